//! Errors as a person reads them: what failed, why, and what helps.

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::string::FromUtf8Error;

use divvy_api::read::TextError;
use divvy_api::{ClientError, Problem, ProblemCode};
use divvy_server::store::StoreError;
use divvy_server::store::place::PlaceError;

use crate::exit::Exit;
use crate::output::{plain, told};

/// An end other than success. Its texts may hold anything; they are escaped when they are printed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) exit: Exit,
    /// What was being done, and to what.
    pub(crate) what: String,
    /// Why it did not work, line by line.
    pub(crate) why: Vec<String>,
    /// What helps.
    pub(crate) fix: Option<String>,
    /// Whether nothing is printed, because nobody reads the output any more.
    quiet: bool,
}

impl Failure {
    /// A failure with its exit code.
    pub(crate) fn new(exit: Exit, what: impl Into<String>) -> Self {
        Self { exit, what: what.into(), why: Vec::new(), fix: None, quiet: false }
    }

    /// The command line is wrong.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self::new(Exit::Usage, what)
    }

    /// A failure from a text that says everything, line by line.
    pub(crate) fn told(exit: Exit, text: &str) -> Self {
        let mut lines = text.lines();
        let mut failure = Self::new(exit, lines.next().unwrap_or("it did not work"));
        failure.why = lines.map(|line| line.trim().to_owned()).collect();
        failure
    }

    /// Says why.
    pub(crate) fn because(mut self, why: impl Into<String>) -> Self {
        self.why.push(why.into());
        self
    }

    /// Says what helps.
    pub(crate) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// The failure for a pool's log that cannot be read.
    pub(crate) fn log(error: &StoreError) -> Self {
        let exit = match error {
            StoreError::NoLog(_) => Exit::NotFound,
            StoreError::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Exit::NotPermitted
            }
            StoreError::Io { .. } | StoreError::Database { .. } => Exit::Io,
            StoreError::Place(PlaceError::NotYours { .. }) => Exit::NotPermitted,
            StoreError::Place(PlaceError::Taken { .. } | PlaceError::NotLocal { .. }) => Exit::CannotCreate,
            StoreError::Damaged { .. } | StoreError::Newer { .. } => Exit::BadData,
        };
        Self::told(exit, &error.to_string())
    }

    /// The failure for a file that cannot be made.
    pub(crate) fn making(path: &Path, error: &io::Error) -> Self {
        Self::new(Exit::CannotCreate, format!("cannot write {}", path.display())).because(error.to_string())
    }

    /// The failure for a file that cannot be read or written.
    pub(crate) fn file(doing: &str, path: &Path, error: &io::Error) -> Self {
        let exit = if error.kind() == io::ErrorKind::NotFound { Exit::NotFound } else { Exit::Io };
        Self::new(exit, format!("cannot {doing} {}", path.display())).because(error.to_string())
    }

    /// The failure for a text that cannot be understood.
    pub(crate) fn text(path: &Path, error: &TextError) -> Self {
        Self::new(Exit::BadData, format!("{}: {error}", name_of(path)))
    }

    /// The failure for bytes that are not text.
    pub(crate) fn not_utf8(path: &Path, error: &FromUtf8Error) -> Self {
        let at = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count();
        let what =
            format!("{}: line {line}, byte {at} of the file: it is not UTF-8 from there on", name_of(path));
        Self::new(Exit::BadData, what).fix("save it as UTF-8 text")
    }

    /// Prints the report to standard error.
    pub(crate) fn report(&self) {
        if !self.quiet {
            // If standard error is gone too, there is nobody to tell.
            let _ = io::Write::write_all(&mut io::stderr(), self.render().as_bytes());
        }
    }

    /// The report.
    pub(crate) fn render(&self) -> String {
        let mut report = format!("divvy: {}\n", plain(&told(&self.what)));
        for why in &self.why {
            // Writing to a String cannot fail.
            let _ = writeln!(report, "  {}", plain(&told(why)));
        }
        if let Some(fix) = &self.fix {
            let _ = writeln!(report, "  fix: {}", plain(&told(fix)));
        }
        report
    }
}

/// An error in reading from or writing to the terminal or a pipe.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let quiet = error.kind() == io::ErrorKind::BrokenPipe;
        let exit = if quiet { Exit::Success } else { Exit::Io };
        Self { quiet, ..Self::new(exit, format!("cannot read or write: {error}")) }
    }
}

impl From<csv::Error> for Failure {
    fn from(error: csv::Error) -> Self {
        match error.into_kind() {
            csv::ErrorKind::Io(error) => error.into(),
            other => Self::new(Exit::Internal, format!("cannot write CSV: {other:?}")),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::new(Exit::Internal, format!("the daemon's answer cannot be read: {error}"))
            .fix("is the daemon of another version? compare `divvy --version` with `divvy top`")
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let what = error.to_string();
        match error {
            ClientError::NoDaemon { tried } => no_daemon(&tried),
            ClientError::Problem(problem) => (*problem).into(),
            ClientError::Silent { .. } => Self::new(Exit::TryAgain, what)
                .because("it is stopped, or its disk does not answer")
                .fix("look at the daemon's process and its messages; jobs run on without it"),
            ClientError::Broken { source, .. } => Self::new(Exit::TryAgain, what)
                .because(source.to_string())
                .fix("ask again; if the daemon is gone, start it with `divvy up --detach`: jobs run on without it"),
            ClientError::Version { .. } => {
                Self::new(Exit::NoDaemon, what).fix("use the divvy that belongs to the daemon, or restart the daemon")
            }
            ClientError::Answer { .. } => {
                Self::new(Exit::Internal, what).fix("is the daemon of another version? see `divvy --version`")
            }
        }
    }
}

fn no_daemon(tried: &[(std::path::PathBuf, io::Error)]) -> Failure {
    let is_closed = |(_, error): &(_, io::Error)| error.kind() == io::ErrorKind::PermissionDenied;
    let closed = tried.iter().any(is_closed);
    let mut failure = match closed {
        true => Failure::new(Exit::NotPermitted, "you may not use this pool"),
        false => Failure::new(Exit::NoDaemon, "no daemon answers"),
    };
    for (socket, error) in tried {
        failure.why.push(format!("tried {}: {}", socket.display(), in_short(error)));
    }
    failure.fix(match closed {
        true => "start one of your own with `divvy up --detach`, or name another with --socket, --state or DIVVY_SOCKET",
        false => "start one with `divvy up --detach`, or name its socket with --socket, --state or DIVVY_SOCKET",
    })
}

fn name_of(path: &Path) -> String {
    if path == Path::new("-") { "standard input".into() } else { path.display().to_string() }
}

fn in_short(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "not there".into(),
        io::ErrorKind::ConnectionRefused => "nobody listens".into(),
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_some() => "not permitted".into(),
        _ => error.to_string(),
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let mut failure = Self::new(exit_of(&problem.code, problem.status), problem.title);
        if !problem.detail.is_empty() {
            let field = problem.field.map(|field| format!("{field}: ")).unwrap_or_default();
            let reason = problem.reason.map(|code| format!(" ({code})")).unwrap_or_default();
            failure.why.push(format!("{field}{}{reason}", problem.detail));
        }
        failure.fix = problem.fix;
        failure
    }
}

fn exit_of(code: &ProblemCode, status: u16) -> Exit {
    use ProblemCode as C;
    match code {
        C::BadRequest | C::BadSpec | C::UnknownQueue | C::CannotFit | C::BadDirectory | C::TooLarge => {
            Exit::BadData
        }
        C::NoSuchJob | C::NoSuchPath | C::NoOutput => Exit::NotFound,
        C::NotYours | C::NotMember => Exit::NotPermitted,
        C::DiskFull | C::ShuttingDown | C::Busy | C::Conflict => Exit::TryAgain,
        C::Internal => Exit::Internal,
        // A code that only a newer daemon knows: its status says enough.
        C::Other(_) => match status {
            401 | 403 => Exit::NotPermitted,
            404 | 410 => Exit::NotFound,
            429 | 503 | 507 => Exit::TryAgain,
            400..=499 => Exit::BadData,
            _ => Exit::Internal,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn without_a_daemon_the_report_says_what_was_tried_and_how_to_start_one() {
        let tried = vec![
            ("/run/divvy/divvy.sock".into(), io::Error::from_raw_os_error(2)),
            ("/run/user/1000/divvy/divvy.sock".into(), io::Error::from_raw_os_error(111)),
        ];
        let failure = Failure::from(ClientError::NoDaemon { tried });
        expect![[r#"
            divvy: no daemon answers
              tried /run/divvy/divvy.sock: not there
              tried /run/user/1000/divvy/divvy.sock: nobody listens
              fix: start one with `divvy up --detach`, or name its socket with --socket, --state or DIVVY_SOCKET
        "#]]
        .assert_eq(&failure.render());
        assert_eq!(failure.exit, Exit::NoDaemon);
    }

    #[test]
    fn a_pool_that_the_user_may_not_use_is_not_called_absent() {
        let tried = vec![
            ("/run/divvy/divvy.sock".into(), io::Error::from_raw_os_error(2)),
            ("/home/ana/pool/divvy.sock".into(), io::Error::from_raw_os_error(13)),
        ];
        let failure = Failure::from(ClientError::NoDaemon { tried });
        expect![[r#"
            divvy: you may not use this pool
              tried /run/divvy/divvy.sock: not there
              tried /home/ana/pool/divvy.sock: not permitted
              fix: start one of your own with `divvy up --detach`, or name another with --socket, --state or DIVVY_SOCKET
        "#]]
        .assert_eq(&failure.render());
        assert_eq!(failure.exit, Exit::NotPermitted);
    }

    #[test]
    fn a_problem_is_told_with_its_field_its_fix_and_without_control_characters() {
        let problem = Problem::new(ProblemCode::UnknownQueue, "there is no queue \"\x1b[31mred\"")
            .with_field("queue")
            .with_fix("use one of: default");
        let failure = Failure::from(problem);
        expect![[r#"
            divvy: there is no such queue
              queue: there is no queue "\u{1b}[31mred"
              fix: use one of: default
        "#]]
        .assert_eq(&failure.render());
        assert_eq!(failure.exit.code(), 65);
    }

    #[test]
    fn a_log_that_may_not_be_read_is_not_called_damaged() {
        let error = |kind| StoreError::Io {
            doing: "open the log",
            path: "divvy.db".into(),
            source: io::Error::from(kind),
        };
        for (kind, exit) in
            [(io::ErrorKind::PermissionDenied, Exit::NotPermitted), (io::ErrorKind::StorageFull, Exit::Io)]
        {
            assert_eq!(Failure::log(&error(kind)).exit, exit);
        }
        assert_eq!(Failure::log(&StoreError::NoLog("x".into())).exit, Exit::NotFound);
        let place = |error| Failure::log(&StoreError::Place(error)).exit;
        assert_eq!(place(PlaceError::NotYours { path: "x".into(), owner: 1 }), Exit::NotPermitted);
        assert_eq!(place(PlaceError::Taken { path: "x".into(), pid: None }), Exit::CannotCreate);
    }

    #[test]
    fn a_reader_that_is_gone_is_no_failure() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(failure.quiet && failure.exit == Exit::Success);
    }

    #[test]
    fn codes_of_a_newer_daemon_are_judged_by_their_status() {
        let other = ProblemCode::Other("moon-phase".into());
        assert_eq!(exit_of(&other, 403), Exit::NotPermitted);
        assert_eq!(exit_of(&other, 500), Exit::Internal);
    }
}
