//! A pool that faults happen to: its daemon is killed, restarted, copied, and asked over its socket.

use std::ffi::OsStr;
use std::fmt::Debug;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;

use crate::pool::{DIVVY, Pool, Said};
use crate::wire;

/// Nothing here takes a tenth of this; whatever takes it all is stuck.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A pool. Dropping it ends whatever is left when a test fails half-way.
pub(crate) struct Site {
    pool: Pool,
}

impl Deref for Site {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        &self.pool
    }
}

impl Site {
    /// A daemon with eight pretended devices.
    pub(crate) fn start() -> Self {
        let site = Self::unstarted();
        site.up();
        site
    }

    /// Only a place, without a daemon.
    pub(crate) fn unstarted() -> Self {
        Self { pool: Pool::unstarted() }
    }

    /// The directory that contains everything of the pool.
    pub(crate) fn root(&self) -> PathBuf {
        self.work().parent().unwrap().to_owned()
    }

    /// The socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.state().join("divvy.sock")
    }

    /// Starts a daemon with further flags and variables.
    pub(crate) fn up_with(&self, gpus: &str, change: impl FnOnce(&mut Command)) -> Said {
        let mut command = self.command();
        command.args(["up", "--detach", "--gpus", gpus]);
        change(&mut command);
        command.output().unwrap().into()
    }

    /// Starts the daemon in the foreground, where it is expected to refuse.
    pub(crate) fn refused(&self) -> Said {
        let said = self.say("up --gpus pretend:8xH100");
        assert_ne!(said.code, 0, "{said:?}");
        said
    }

    /// What the daemon says of the pool.
    pub(crate) fn pool(&self) -> Value {
        wire::get(&self.socket(), "/v1/pool")
    }

    /// The daemon's process.
    pub(crate) fn daemon(&self) -> u32 {
        u32::try_from(self.pool()["pid"].as_u64().unwrap()).unwrap()
    }

    /// Kills the daemon, and returns when it is gone.
    pub(crate) fn kill_daemon(&self) {
        let daemon = self.daemon();
        kill(daemon);
        wait_until_gone(daemon);
    }

    /// Kills the daemon, lets something happen, and starts it again.
    pub(crate) fn crash(&self, meanwhile: impl FnOnce()) {
        self.kill_daemon();
        meanwhile();
        self.up();
    }

    /// Asserts that every law holds.
    #[track_caller]
    pub(crate) fn assert_lawful(&self) {
        let check = wire::get(&self.socket(), "/v1/pool/check");
        assert_eq!(check["violations"], Value::Array(Vec::new()), "{check}");
    }

    /// Asserts that no device is held by anyone.
    #[track_caller]
    pub(crate) fn assert_all_free(&self) {
        let gpus = self.say("gpus -o json").json();
        for gpu in gpus.as_array().unwrap() {
            assert!(gpu["state"] == "free" && gpu["allocations"] == Value::Array(Vec::new()), "{gpu}");
        }
    }

    /// The output of `show` for a job, as JSON.
    #[track_caller]
    pub(crate) fn shown(&self, id: &str) -> Value {
        self.divvy(["show", id, "-o", "json"]).json()
    }

    /// The supervisor of a job's only task: it holds the lock of the task's record, and its pid is in it.
    #[track_caller]
    pub(crate) fn supervisor(&self) -> u32 {
        let records: Vec<PathBuf> = entries(&self.state().join("tasks"))
            .into_iter()
            .filter(|record| record.join("launch.json").exists() && !record.join("ended.json").exists())
            .collect();
        assert_eq!(records.len(), 1, "tasks that run: {records:?}");
        fs::read_to_string(records[0].join("lock")).unwrap().trim().parse().unwrap()
    }

    /// Every process whose environment says that it belongs to this pool.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mark = self.root().into_os_string().into_encoded_bytes();
        let pids = entries(Path::new("/proc")).into_iter().filter_map(|path| {
            path.file_name().and_then(OsStr::to_str).and_then(|name| name.parse::<u32>().ok())
        });
        pids.filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.windows(mark.len()).any(|window| window == mark)
        })
        .collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let ended = self.command().args(["down", "--kill"]).output();
        if ended.is_ok_and(|output| output.status.success()) {
            return;
        }
        // Without a daemon nobody would end what still runs.
        for pid in self.processes() {
            kill(pid);
        }
    }
}

/// Asks again and again until the `Result` is `Ok`; at the deadline, fails with what was seen instead.
#[track_caller]
pub(crate) fn wait_until<T, E: Debug>(what: &str, mut ask: impl FnMut() -> Result<T, E>) -> T {
    let begun = Instant::now();
    loop {
        match ask() {
            Ok(found) => return found,
            Err(seen) if begun.elapsed() > PATIENCE => panic!("in vain waited until {what}: {seen:?}"),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Copies the program in a separate process: a process that another test forks meanwhile would inherit a descriptor
/// open for writing, and a program that is open for writing cannot be started (`ETXTBSY`).
pub(crate) fn copy_program(to: &Path) {
    assert!(Command::new("cp").arg(DIVVY).arg(to).status().unwrap().success(), "{}", to.display());
}

/// Waits until a file has so many lines, and returns them.
#[track_caller]
pub(crate) fn wait_for_lines(path: &Path, count: usize) -> Vec<String> {
    wait_until(&format!("{} has {count} lines", path.display()), || {
        let text = fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if lines.len() >= count && text.ends_with('\n') { Ok(lines) } else { Err(text) }
    })
}

/// Kills a process.
pub(crate) fn kill(pid: u32) {
    // It may be gone already.
    let _ = kill_process(pid_of(pid), Signal::KILL);
}

/// Waits for a process to end; whether it was reaped by its parent does not matter.
#[track_caller]
pub(crate) fn wait_until_gone(pid: u32) {
    let Ok(pidfd) = pidfd_open(pid_of(pid), PidfdFlags::empty()) else { return };
    let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&patience)).unwrap();
    assert_eq!(ended, 1, "process {pid} does not end");
}

/// Whether a process runs; one that ended and was not reaped does not.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

/// What is in a directory.
pub(crate) fn entries(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).collect()
}

/// Whether the tests are root; some need to be.
pub(crate) fn is_root() -> bool {
    rustix::process::getuid().is_root()
}
