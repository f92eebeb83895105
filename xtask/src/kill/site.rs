//! The place of a life: its directories, and its daemon.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::wire;

/// A start that takes longer has failed: a start takes some 50 ms.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// The directories of a life. Dropping this ends what still runs there.
#[derive(Debug)]
pub(super) struct Site {
    root: PathBuf,
    program: PathBuf,
    /// Whether the directories stay, to be looked at.
    pub(super) keep: bool,
}

/// A daemon of a site.
#[derive(Debug)]
pub(super) struct Daemon {
    child: Child,
}

impl Site {
    /// Makes the directories.
    pub(super) fn new(program: &Path, seed: u64) -> Result<Self> {
        let name = format!("divvy-kill-{}-{seed}", std::process::id());
        let site = Self { root: std::env::temp_dir().join(name), program: program.to_owned(), keep: false };
        for folder in [site.work(), site.locks()] {
            fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        }
        Ok(site)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.state().join("divvy.sock")
    }

    /// Where jobs run.
    pub(super) fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    /// A file per device, which jobs lock while they have it.
    pub(super) fn locks(&self) -> PathBuf {
        self.root.join("held")
    }

    /// Where jobs say that they start and end.
    pub(super) fn journal(&self) -> PathBuf {
        self.root.join("journal")
    }

    /// Starts a daemon without waiting for it.
    pub(super) fn start(&self) -> Result<Daemon> {
        let path = self.root.join("daemon.log");
        let log = OpenOptions::new().create(true).append(true).open(&path)?;
        let mut command = Command::new(&self.program);
        command.args(["up", "--gpus", "pretend:8xH100", "--state"]).arg(self.state());
        command.env("DIVVY_LOCKS", self.root.join("locks")).env_remove("DIVVY_SOCKET");
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("starting {}", self.program.display()))?;
        Ok(Daemon { child })
    }

    /// The processes that belong to this life, by what their environment says.
    pub(super) fn processes(&self) -> Vec<u32> {
        let mark = self.root.as_os_str().as_encoded_bytes();
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.windows(mark.len()).any(|window| window == mark)
        })
        .collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for pid in self.processes() {
            kill(pid);
        }
        if !self.keep {
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

impl Daemon {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it answers, and says how long that took.
    pub(super) fn wait_until_ready(&mut self, site: &Site) -> Result<Duration> {
        let begun = Instant::now();
        loop {
            if let Ok(answer) = wire::get(&site.socket(), "/v1/pool")
                && answer.body["pid"] == self.pid()
            {
                return Ok(begun.elapsed());
            }
            if let Some(status) = self.child.try_wait()? {
                let log = fs::read_to_string(site.root.join("daemon.log")).unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(12).collect();
                bail!(
                    "a daemon did not start ({status}); it said, last line first:\n  {}",
                    last.join("\n  ")
                );
            }
            if begun.elapsed() > READY_WITHIN {
                bail!("a daemon (pid {}) has not served for {} s", self.pid(), READY_WITHIN.as_secs());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Kills it with SIGKILL; fails if it had ended before by itself.
    pub(super) fn kill(mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the daemon ended by itself ({status})");
        }
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Tells it to end, and waits for that.
    pub(super) fn end(mut self) -> Result<()> {
        send(self.pid(), Signal::TERM);
        let status = self.child.wait()?;
        if !status.success() {
            bail!("the daemon was told to end, and ended badly ({status})");
        }
        Ok(())
    }
}

/// Kills a process, if it is still there.
pub(super) fn kill(pid: u32) {
    send(pid, Signal::KILL);
}

fn send(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // It may have ended meanwhile.
    let _ = pid.map(|pid| kill_process(pid, signal));
}
