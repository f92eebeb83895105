//! A supervisor's work from the start of its task to the end of the task's last process.
//!
//! The task is over when the supervisor, a subreaper, has no children left: then nothing of the tree lives, however
//! it tried to hide. Processes that the first process leaves behind are told to end, and killed two seconds later. A
//! task that is being stopped has its grace for the whole tree.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use divvy_core::engine::LaunchFailure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::cgroup::Group;
use super::clock::monotonic_ms;
use super::orders::{self, Carried};
use super::output::OpenOutput;
use super::pty::Bridge;
use super::{slim, tree};

/// How long the processes that the first process left behind have between TERM and KILL.
const LEFTOVERS_MS: i64 = 2000;
/// How long a task has when the supervisor itself is told to end (by the machine's shutdown).
const SHUTDOWN_GRACE_MS: i64 = 10_000;
/// How soon the tree is looked at again after a kill, growing to `LAST_KILL_PAUSE_MS`: processes may fork meanwhile.
const FIRST_KILL_PAUSE_MS: i64 = 10;
const LAST_KILL_PAUSE_MS: i64 = 1000;
/// How often the size of a kept output is checked.
const TRIM_PAUSE_MS: i64 = 10_000;
/// When the supervisor of a longer task makes itself small; most tasks of a benchmark are over by then.
const SLIM_PAUSE_MS: i64 = 100;
/// How soon a message is sent again that did not fit into the daemon's full queue.
const TELL_PAUSE_MS: i64 = 50;

/// What a supervisor watches.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    pub(crate) signals: &'a Signals,
    pub(crate) group: Option<&'a Group>,
    pub(crate) output: &'a OpenOutput,
    pub(crate) bridge: Option<Bridge>,
    pub(crate) first: u32,
    /// The channel on which the child says why it could not become the task; it closes when it did.
    pub(crate) report: Option<File>,
    pub(crate) kept_output_most_bytes: u64,
}

/// How the first process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Exited(i32),
    Signalled(i32),
}

/// How the tree ended.
#[derive(Debug)]
pub(crate) struct Gone {
    pub(crate) status: Status,
    pub(crate) failure: Option<LaunchFailure>,
}

/// How a task that has to end is ended.
#[derive(Clone, Copy, Debug)]
struct Ending {
    signal: i32,
    kill_at_ms: i64,
    kill_pause_ms: i64,
    /// Whether the end was ordered, rather than caused by the end of the first process.
    is_ordered: bool,
}

/// The progress of a task; what it watches is in [`Watch`].
#[derive(Debug, Default)]
struct Progress {
    status: Option<Status>,
    failure: Option<LaunchFailure>,
    said: Vec<u8>,
    ending: Option<Ending>,
    leftovers_noticed: bool,
    trim_at_ms: i64,
    tell_at_ms: Option<i64>,
    slim_at_ms: Option<i64>,
}

impl Watch<'_> {
    /// Waits until nothing of the task is left. `started` is called when the program runs; `tell` is called until it
    /// returns that the daemon was told.
    pub(crate) fn until_gone(mut self, started: impl FnOnce(), mut tell: impl FnMut() -> bool) -> Gone {
        let mut progress = Progress {
            trim_at_ms: monotonic_ms() + TRIM_PAUSE_MS,
            slim_at_ms: Some(monotonic_ms() + SLIM_PAUSE_MS),
            ..Progress::default()
        };
        let mut started = Some(started);
        loop {
            self.wait(&progress);
            self.take_orders(&mut progress);
            if self.program_runs(&mut progress)
                && let Some(started) = started.take()
            {
                started();
                progress.tell_at_ms = Some(0);
            }
            if let Some(bridge) = &mut self.bridge {
                bridge.turn(&self.output.file);
            }
            if self.reap(&mut progress) && self.report.is_none() {
                break;
            }
            self.notice_leftovers(&mut progress);
            self.keep_time(&mut progress, &mut tell);
        }
        if let Some(bridge) = self.bridge.take() {
            bridge.finish(&self.output.file);
        }
        Gone {
            status: progress.status.unwrap_or(Status::Signalled(libc::SIGKILL)),
            failure: progress.failure,
        }
    }

    fn wait(&self, progress: &Progress) {
        let mut fds = vec![PollFd::new(self.signals, PollFlags::IN)];
        if let Some(report) = &self.report {
            fds.push(PollFd::new(report, PollFlags::IN));
        }
        if let Some(bridge) = &self.bridge {
            bridge.interest(&mut fds);
        }
        let trim_at = self.output.is_kept.then_some(progress.trim_at_ms);
        let times = [
            trim_at,
            progress.tell_at_ms,
            progress.slim_at_ms,
            progress.ending.map(|ending| ending.kill_at_ms),
        ];
        let timeout = times.into_iter().flatten().min().map(|at| timespec((at - monotonic_ms()).max(0)));
        let _ = poll(&mut fds, timeout.as_ref());
    }

    fn take_orders(&self, progress: &mut Progress) {
        for order in self.signals.drain() {
            self.end(progress, order.signal, order.kill_at_ms);
        }
    }

    /// Announces the end to the first process group, as a terminal would, or to all if that group is gone. A further
    /// order may shorten the grace but not lengthen it.
    fn end(&self, progress: &mut Progress, signal: i32, kill_at_ms: i64) {
        let former = progress.ending.filter(|ending| ending.is_ordered);
        let kill_at_ms = progress.ending.map_or(kill_at_ms, |ending| ending.kill_at_ms.min(kill_at_ms));
        progress.ending =
            Some(Ending { signal, kill_at_ms, kill_pause_ms: FIRST_KILL_PAUSE_MS, is_ordered: true });
        let is_news = former.is_none_or(|former| former.signal != signal) && kill_at_ms > monotonic_ms();
        if is_news && (progress.status.is_some() || !tree::send_to_group(self.first, signal)) {
            announce(signal, |_| true);
        }
    }

    /// Reads what the child says between fork and exec; true when it has become the program.
    fn program_runs(&mut self, progress: &mut Progress) -> bool {
        let Some(report) = &mut self.report else { return false };
        match report.read_to_end(&mut progress.said) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            _ => self.report = None,
        }
        if progress.said.is_empty() {
            return true;
        }
        let unreadable =
            |_| LaunchFailure::Other("the new process broke off while it told why it failed".into());
        progress.failure = Some(serde_json::from_slice(&progress.said).unwrap_or_else(unreadable));
        false
    }

    /// Collects the dead; true when no child is left.
    fn reap(&self, progress: &mut Progress) -> bool {
        loop {
            let mut status = 0;
            // SAFETY: the status outlives the call.
            match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } {
                0 => return false,
                pid if pid > 0 && pid.unsigned_abs() == self.first => {
                    progress.status = Some(Status::from_raw(status));
                }
                pid if pid > 0 => {}
                _ if io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD) => return true,
                _ => {}
            }
        }
    }

    /// Ends what the first process left behind.
    fn notice_leftovers(&self, progress: &mut Progress) {
        if progress.status.is_none() || progress.leftovers_noticed {
            return;
        }
        progress.leftovers_noticed = true;
        match progress.ending {
            // The group was told when the stop was ordered; processes that had left the group were not.
            Some(ending) => announce(ending.signal, |seen| seen.group != self.first),
            None => {
                let kill_at_ms = monotonic_ms() + LEFTOVERS_MS;
                let signal = libc::SIGTERM;
                progress.ending = Some(Ending {
                    signal,
                    kill_at_ms,
                    kill_pause_ms: FIRST_KILL_PAUSE_MS,
                    is_ordered: false,
                });
                announce(signal, |_| true);
            }
        }
    }

    fn keep_time(&self, progress: &mut Progress, tell: &mut impl FnMut() -> bool) {
        let now = monotonic_ms();
        if let Some(ending) = progress.ending.as_mut().filter(|ending| ending.kill_at_ms <= now) {
            self.kill();
            ending.kill_at_ms = now + ending.kill_pause_ms;
            ending.kill_pause_ms = (ending.kill_pause_ms * 2).min(LAST_KILL_PAUSE_MS);
        }
        if self.output.is_kept && progress.trim_at_ms <= now {
            self.output.trim(self.kept_output_most_bytes);
            progress.trim_at_ms = now + TRIM_PAUSE_MS;
        }
        if progress.slim_at_ms.is_some_and(|at| at <= now) {
            progress.slim_at_ms = None;
            slim::slim();
        }
        if progress.tell_at_ms.is_some_and(|at| at <= now) {
            progress.tell_at_ms = (!tell()).then_some(now + TELL_PAUSE_MS);
        }
    }

    fn kill(&self) {
        if let Some(group) = self.group {
            group.kill();
        }
        for seen in tree::below_me() {
            tree::send(seen.pid, libc::SIGKILL);
        }
    }
}

/// Sends a signal to the processes of the tree that `which` picks, and resumes stopped ones.
fn announce(signal: i32, which: impl Fn(&tree::Seen) -> bool) {
    for seen in tree::below_me().iter().filter(|seen| which(seen)) {
        tree::send(seen.pid, signal);
        tree::send(seen.pid, libc::SIGCONT);
    }
}

impl Status {
    fn from_raw(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            Self::Signalled(libc::WTERMSIG(status))
        } else {
            Self::Exited(libc::WEXITSTATUS(status))
        }
    }
}

/// Makes a timeout of milliseconds.
pub(crate) fn timespec(ms: i64) -> Timespec {
    Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 }
}

/// The signals that a supervisor reads instead of receiving: all are blocked, three are told by a descriptor.
#[derive(Debug)]
pub(crate) struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// Blocks all signals and opens the descriptor.
    pub(crate) fn block() -> io::Result<Self> {
        // SAFETY: the sets are initialised by the calls that fill them, and outlive those that read them.
        let fd = unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::sigprocmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
            let mut told: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut told);
            for signal in [libc::SIGCHLD, libc::SIGTERM, orders::carrier()] {
                libc::sigaddset(&raw mut told, signal);
            }
            libc::signalfd(-1, &raw const told, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so that the result is a descriptor that nobody else owns.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Takes the signals that have come, and returns the orders to stop among them.
    pub(crate) fn drain(&self) -> Vec<Carried> {
        let mut orders = Vec::new();
        // SAFETY: the struct is plain numbers, for which zero is a value.
        let mut one: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let size = size_of_val(&one);
        // SAFETY: the buffer is of the size given.
        while unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut one).cast(), size) } > 0 {
            match one.ssi_signo.cast_signed() {
                libc::SIGTERM => {
                    let kill_at_ms = monotonic_ms() + SHUTDOWN_GRACE_MS;
                    orders.push(Carried { signal: libc::SIGTERM, kill_at_ms });
                }
                signal if signal == orders::carrier() => orders.push(Carried::unpack(one.ssi_ptr)),
                _ => {}
            }
        }
        orders
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
