//! A real daemon in a temporary directory, and the real command line to ask it with.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of it")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

/// The program.
pub const DIVVY: &str = env!("CARGO_BIN_EXE_divvy");

/// Nothing here takes a tenth of this; a test that takes it all is stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon with eight pretended devices. It ends with its jobs when this is dropped.
pub struct Pool {
    directory: TempDir,
}

/// What a command said and how it ended.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    /// The output of a command that must have succeeded, without white space around it.
    #[track_caller]
    pub fn ok(&self) -> &str {
        assert_eq!(self.code, 0, "{self:?}");
        self.out.trim()
    }

    /// The output of a command that must have succeeded, as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(self.ok()).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Pool {
    /// Starts one with eight pretended devices.
    pub fn start() -> Self {
        let pool = Self::unstarted();
        pool.up();
        pool
    }

    /// Only a place, without a daemon.
    pub fn unstarted() -> Self {
        let pool = Self { directory: tempfile::Builder::new().prefix("divvy-test-").tempdir().unwrap() };
        std::fs::create_dir(pool.work()).unwrap();
        pool
    }

    /// Starts the daemon.
    pub fn up(&self) {
        let said = self.divvy(["up", "--detach", "--gpus", "pretend:8xH100"]);
        assert_eq!(said.code, 0, "{said:?}");
    }

    /// The state directory.
    pub fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// The directory where jobs are submitted.
    pub fn work(&self) -> PathBuf {
        self.directory.path().join("work")
    }

    /// The command line, ready to be given arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new(DIVVY);
        command.current_dir(self.work()).env("DIVVY_STATE", self.state()).env_remove("DIVVY_SOCKET");
        command.env("DIVVY_LOCKS", self.directory.path().join("locks")).env("TZ", "UTC").stdin(Stdio::null());
        command
    }

    /// Runs a command and waits for its end.
    pub fn divvy(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Said {
        let mut command = self.command();
        command.args(args);
        finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// The same for a line of words.
    pub fn say(&self, line: &str) -> Said {
        self.divvy(line.split_whitespace())
    }

    /// Submits a shell script, and returns the job's id.
    pub fn submit(&self, flags: &str, script: &str) -> String {
        let words =
            ["run", "-d"].into_iter().chain(flags.split_whitespace()).chain(["--", "sh", "-c", script]);
        self.divvy(words).ok().to_owned()
    }

    /// One row of `ps`.
    pub fn job(&self, id: &str) -> Value {
        let rows = self.say("ps -a -o json").json();
        let row = rows.as_array().unwrap().iter().find(|row| row["id"] == id);
        row.unwrap_or_else(|| panic!("no job {id} in {rows}")).clone()
    }

    /// A named pipe in the working directory, at which jobs and tests wait for each other.
    pub fn gate(&self, name: &str) -> Gate {
        let path = self.work().join(name);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        Gate { path }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = self.command().args(["down", "--kill"]).output();
        let _ = self.command().args(["down"]).output();
    }
}

/// A named pipe. A shell opens it with `echo x > gate` or `read x < gate`, and waits until the other end is there.
pub struct Gate {
    path: PathBuf,
}

impl Gate {
    /// Waits until a job writes to it, and returns what it wrote.
    pub fn await_job(&self) -> String {
        let path = self.path.clone();
        within(move || std::fs::read_to_string(path).unwrap()).trim().to_owned()
    }

    /// Lets a job that reads from it go on.
    pub fn open(&self) {
        let path = self.path.clone();
        within(move || std::fs::write(path, "go\n").unwrap());
    }
}

/// Does something that may wait, but not for ever.
pub fn within<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(PATIENCE).expect("stuck")
}

/// Waits for a command's end and what it said.
pub fn finish(child: Child) -> Said {
    let pid = child.id();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output().unwrap()));
    match receiver.recv_timeout(PATIENCE) {
        Ok(output) => output.into(),
        Err(_) => {
            signal(pid, rustix::process::Signal::KILL);
            panic!("a command is stuck: {:?}", receiver.recv().map(Said::from));
        }
    }
}

/// Sends a signal to a process.
pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// The lines of a file that a job wrote.
pub fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(str::to_owned).collect()
}
