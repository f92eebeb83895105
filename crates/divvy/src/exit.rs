//! The exit codes, one enum. `run` and `wait` give the job's own; the rest follow `sysexits.h`.

use std::process::ExitCode;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0: it did what was asked.
    Success,
    /// The job's own exit code, or 128 + n for signal n.
    Job(u8),
    /// 1: the check ran, and what it looked at is not well (`doctor`, `demo`).
    Unwell,
    /// 64: the command line is wrong.
    Usage,
    /// 65: a job file, queues.yaml or value is wrong, or the pool can never run it.
    BadData,
    /// 66: there is no such job, file or output.
    NotFound,
    /// 69: no daemon answers; for `up`: the GPU driver that it was to use is not there.
    NoDaemon,
    /// 70: an internal error of the program.
    Internal,
    /// 73: something cannot be made: a state directory, a socket.
    CannotCreate,
    /// 74: reading or writing went wrong.
    Io,
    /// 75: not now; try again (disk full, shutting down, busy, a job in a state that does not allow it).
    TryAgain,
    /// 77: not permitted: another user's job or pool, a queue that belongs to others.
    NotPermitted,
}

impl Exit {
    /// The number that the shell sees.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Job(code) => code,
            Self::Unwell => 1,
            Self::Usage => 64,
            Self::BadData => 65,
            Self::NotFound => 66,
            Self::NoDaemon => 69,
            Self::Internal => 70,
            Self::CannotCreate => 73,
            Self::Io => 74,
            Self::TryAgain => 75,
            Self::NotPermitted => 77,
        }
    }

    /// The exit code of a job that was ended by a signal.
    pub(crate) fn of_signal(signal: i32) -> Self {
        Self::Job(u8::try_from(128 + signal).unwrap_or(u8::MAX))
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

/// The codes as `divvy --help` lists them.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
    0        done; run and wait: the job's own code, 128+n if signal n ended it
    1        doctor, demo: something is not well
   64        the command line is wrong
   65        a job file, queues.yaml or value is wrong, or the pool can never run the job
   66        no such job, file or output
   69        no daemon answers; up: there is no GPU driver
   70        a mistake inside divvy
   73, 74    something cannot be made; reading or writing went wrong
   75        not now, try again: disk full, pool going down, a job's state
   77        not permitted: another user's job or pool, a queue of others";
