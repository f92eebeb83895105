//! A throw-away pool: a daemon of its own with pretended GPUs and a state directory on the real disk.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Bench;
use super::process::{dies_with_us, output, until};

/// A running daemon; dropped, it ends, with its jobs and all that it wrote.
pub(super) struct Pool {
    program: PathBuf,
    state: PathBuf,
    daemon: Child,
}

/// How long a daemon may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(60);

impl Pool {
    /// Starts a daemon with so many pretended GPUs, and waits until it answers.
    pub(super) fn start(bench: &Bench, gpus: u32) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("pool-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let state = bench.directory().join(name);
        fs::create_dir_all(state.join("work")).with_context(|| format!("making {}", state.display()))?;
        let log = File::create(state.join("work/daemon.log"))?;
        let mut up = divvy(&bench.program, &state);
        up.args(["up", "--gpus", &format!("pretend:{gpus}xH100")]);
        up.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let daemon = dies_with_us(&mut up).spawn().context("starting `divvy up`")?;
        let mut pool = Self { program: bench.program.clone(), state, daemon };
        pool.until_it_answers()?;
        Ok(pool)
    }

    fn until_it_answers(&mut self) -> Result<()> {
        let begun = Instant::now();
        while self.get("/v1/pool").is_err() {
            if let Some(status) = self.daemon.try_wait()? {
                let said = fs::read_to_string(self.state.join("work/daemon.log")).unwrap_or_default();
                bail!("`divvy up` ended ({status}): {}", said.trim());
            }
            if begun.elapsed() > PATIENCE {
                bail!("`divvy up` does not answer after {} s", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The daemon's process.
    pub(super) fn pid(&self) -> u32 {
        self.daemon.id()
    }

    /// A directory that jobs may fill.
    pub(super) fn work(&self) -> PathBuf {
        self.state.join("work")
    }

    /// A command of this pool.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = divvy(&self.program, &self.state);
        command.args(arguments).current_dir(self.work()).stdin(Stdio::null());
        command
    }

    /// Runs a command of this pool, and returns what it wrote.
    pub(super) fn say(&self, arguments: &[&str]) -> Result<String> {
        let output = output(&mut self.command(arguments))?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Asks the daemon itself, without the command line: one request, one answer in JSON.
    pub(super) fn get(&self, path: &str) -> Result<Value> {
        let socket = self.state.join("divvy.sock");
        let mut stream =
            UnixStream::connect(&socket).with_context(|| format!("reaching {}", socket.display()))?;
        write!(stream, "GET {path} HTTP/1.0\r\nhost: divvy\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let text = String::from_utf8_lossy(&answer);
        let (head, body) = text.split_once("\r\n\r\n").with_context(|| format!("no answer to GET {path}"))?;
        if head.split(' ').nth(1) != Some("200") {
            bail!("GET {path}: {}", head.lines().next().unwrap_or_default());
        }
        serde_json::from_str(body).with_context(|| format!("reading the answer to GET {path}"))
    }

    /// A number in what the daemon says of the pool: `waiting`, `running`.
    pub(super) fn count(&self, key: &str) -> Result<u64> {
        let pool = self.get("/v1/pool")?;
        pool.get(key).and_then(Value::as_u64).with_context(|| format!("the pool has no number {key}"))
    }

    /// Waits until the first job's command runs.
    pub(super) fn until_job_runs(&self) -> Result<()> {
        let state = || self.get("/v1/jobs/1").ok()?.get("state")?.as_str().map(str::to_owned);
        until("a job's start", PATIENCE, || state().filter(|state| state == "running")).map(drop)
    }

    /// Waits until a number in what the daemon says of the pool is as wanted.
    pub(super) fn until_count(&self, key: &str, wanted: impl Fn(u64) -> bool) -> Result<u64> {
        until(&format!("another number of {key} jobs"), PATIENCE, || {
            self.count(key).ok().filter(|count| wanted(*count))
        })
    }
}

fn divvy(program: &Path, state: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_remove("DIVVY_SOCKET").env("DIVVY_STATE", state);
    command
}

impl Drop for Pool {
    fn drop(&mut self) {
        let down = self.say(&["down", "--kill"]);
        let ended = until("the daemon's end", PATIENCE, || self.daemon.try_wait().ok().flatten());
        if down.is_err() || ended.is_err() {
            let _ = self.daemon.kill();
            let _ = self.daemon.wait();
        }
        let _ = fs::remove_dir_all(&self.state);
    }
}
