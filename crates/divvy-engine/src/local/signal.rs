//! Signals by name.

/// The signals that a stop order may name; `KILL` skips the grace.
const NAMES: [(&str, i32); 16] = [
    ("TERM", libc::SIGTERM),
    ("INT", libc::SIGINT),
    ("HUP", libc::SIGHUP),
    ("QUIT", libc::SIGQUIT),
    ("USR1", libc::SIGUSR1),
    ("USR2", libc::SIGUSR2),
    ("KILL", libc::SIGKILL),
    ("ALRM", libc::SIGALRM),
    ("CONT", libc::SIGCONT),
    ("STOP", libc::SIGSTOP),
    ("TSTP", libc::SIGTSTP),
    ("WINCH", libc::SIGWINCH),
    ("URG", libc::SIGURG),
    ("XCPU", libc::SIGXCPU),
    ("ABRT", libc::SIGABRT),
    ("PIPE", libc::SIGPIPE),
];

/// Returns a signal's number: of `TERM`, `SIGTERM`, `term` or `15`.
pub fn number(name: &str) -> Option<i32> {
    if let Ok(number) = name.parse::<i32>() {
        return (1..=64).contains(&number).then_some(number);
    }
    let upper = name.to_ascii_uppercase();
    let short = upper.strip_prefix("SIG").unwrap_or(&upper);
    NAMES.iter().find(|(known, _)| *known == short).map(|(_, number)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_known_by_name_prefix_case_and_number() {
        for text in ["TERM", "SIGTERM", "term", "15"] {
            assert_eq!(number(text), Some(libc::SIGTERM), "{text}");
        }
        for text in ["", "SIG", "0", "65", "-9", "NOPE"] {
            assert_eq!(number(text), None, "{text}");
        }
    }
}
