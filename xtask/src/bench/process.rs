//! What the kernel says of processes, and how commands are run here.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cargo;

/// Processor time in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cpu {
    pub(super) user_s: f64,
    pub(super) system_s: f64,
}

impl Cpu {
    /// What was spent since an earlier look.
    pub(super) fn since(self, earlier: Cpu) -> Cpu {
        Cpu { user_s: self.user_s - earlier.user_s, system_s: self.system_s - earlier.system_s }
    }
}

/// The clock's ticks per second in /proc; the kernel's interface has had this value on all machines since 2.6.
const TICKS: f64 = 100.0;

/// What a process itself has spent, and what its ended and reaped children have (with theirs).
pub(super) fn cpu_of(pid: u32) -> Result<(Cpu, Cpu)> {
    let stat = proc_file(pid, "stat")?;
    parse_cpu(&stat).with_context(|| format!("reading the processor time of process {pid}"))
}

fn parse_cpu(stat: &str) -> Option<(Cpu, Cpu)> {
    // The name may hold anything, even a parenthesis: fields are counted from the last one.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let seconds = |index: usize| Some(fields.get(index)?.parse::<f64>().ok()? / TICKS);
    let own = Cpu { user_s: seconds(11)?, system_s: seconds(12)? };
    Some((own, Cpu { user_s: seconds(13)?, system_s: seconds(14)? }))
}

/// What a process itself has spent, in seconds.
pub(super) fn spent_s(pid: u32) -> Result<f64> {
    let (own, _) = cpu_of(pid)?;
    Ok(own.user_s + own.system_s)
}

/// The time that all threads of a process were on a processor, to the nanosecond.
pub(super) fn running_ns(pid: u32) -> Result<u64> {
    let threads = format!("/proc/{pid}/task");
    let mut sum = 0;
    for thread in std::fs::read_dir(&threads).with_context(|| format!("reading {threads}"))? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        sum += text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(sum)
}

/// A line of /proc/PID/status that counts KiB, in MiB: `VmRSS`, `VmHWM`, `RssAnon`.
pub(super) fn memory_mib(pid: u32, line: &str) -> Result<f64> {
    let status = proc_file(pid, "status")?;
    let value = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    let kib = value.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    Ok(kib.with_context(|| format!("process {pid} has no {line}"))? / 1024.0)
}

/// The child processes of a process, whichever of its threads started them.
pub(super) fn children_of(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().filter_map(Result::ok);
    let texts =
        threads.map(|thread| std::fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    texts
        .flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn proc_file(pid: u32, name: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{name}");
    std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))
}

/// Runs a command and keeps what it writes; fails with that unless the command succeeds.
pub(super) fn output(command: &mut Command) -> Result<Output> {
    let line = cargo::shown(command);
    let output = command.output().with_context(|| format!("starting `{line}`"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{line}` failed ({}): {}", output.status, said.trim());
    }
    Ok(output)
}

/// The first line that a command writes.
pub(super) fn first_line(command: &mut Command) -> Result<String> {
    let output = output(command)?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().trim().to_owned())
}

/// What a program says to `--version`.
pub(super) fn version_of(program: &Path) -> Result<String> {
    first_line(Command::new(program).arg("--version"))
}

/// Asks again and again until something is there.
pub(super) fn until<T>(what: &str, within: Duration, mut look: impl FnMut() -> Option<T>) -> Result<T> {
    let begun = std::time::Instant::now();
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if begun.elapsed() > within {
            bail!("waited {} s in vain for {what}", within.as_secs());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Makes a command end with this program, however that ends: a benchmark leaves nothing behind.
pub(super) fn dies_with_us(command: &mut Command) -> &mut Command {
    use std::os::unix::process::CommandExt;
    // SAFETY: prctl is async-signal-safe and touches no memory of this process.
    unsafe {
        command.pre_exec(|| {
            let signal = Some(rustix::process::Signal::TERM);
            rustix::process::set_parent_process_death_signal(signal).map_err(std::io::Error::from)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_behind_a_name_with_parentheses() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 300 25 20 0 1 0 9 0 0";
        let own = Cpu { user_s: 1.5, system_s: 0.5 };
        assert_eq!(parse_cpu(stat), Some((own, Cpu { user_s: 3.0, system_s: 0.25 })));
    }

    #[test]
    fn this_process_has_memory_and_the_child_that_it_starts() {
        let own = std::process::id();
        assert!(memory_mib(own, "VmRSS").unwrap() > 0.1);
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        assert!(children_of(own).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn waiting_in_vain_says_for_what() {
        let error = until("nothing", Duration::ZERO, || None::<()>).unwrap_err();
        assert_eq!(error.to_string(), "waited 0 s in vain for nothing");
    }
}
