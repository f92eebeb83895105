//! The processes of a cluster: started once, known by their pids, ended by them.

use std::fs::{self, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

/// How long a part may take to end by itself.
const GRACE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(50);

fn pid_file(state: &Path, name: &str) -> PathBuf {
    state.join("pid").join(name)
}

/// The log file of a part.
pub(super) fn log_file(state: &Path, name: &str) -> PathBuf {
    state.join("log").join(name)
}

/// The pid of a running part. The pid may have been reused since: it counts only if it is still this program.
pub(super) fn running(state: &Path, name: &str) -> Option<Pid> {
    let pid: i32 = fs::read_to_string(pid_file(state, name)).ok()?.trim().parse().ok()?;
    let program = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    (program.file_name()? == name).then(|| Pid::from_raw(pid)).flatten()
}

/// Starts a part, unless it runs; away from this terminal, so that a Ctrl-C here does not end it.
pub(super) fn start(state: &Path, program: &Path, arguments: &[String]) -> Result<()> {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    if running(state, &name).is_some() {
        return Ok(());
    }
    let log = OpenOptions::new().create(true).append(true).open(log_file(state, &name))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
    let child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
    fs::write(pid_file(state, &name), child.id().to_string())?;
    Ok(())
}

/// Ends a part if it runs: asks first, and kills what does not listen.
pub(super) fn end(state: &Path, name: &str) -> Result<()> {
    let Some(pid) = running(state, name) else { return Ok(()) };
    kill_process(pid, Signal::TERM)?;
    let mut waited = Duration::ZERO;
    while running(state, name).is_some() && waited < GRACE {
        std::thread::sleep(LOOK_EVERY);
        waited += LOOK_EVERY;
    }
    if let Some(pid) = running(state, name) {
        kill_process(pid, Signal::KILL)?;
    }
    fs::remove_file(pid_file(state, name)).with_context(|| format!("forgetting the pid of {name}"))
}

/// The last lines of a part's log.
pub(super) fn last_words(state: &Path, name: &str) -> String {
    let text = fs::read_to_string(log_file(state, name)).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}
