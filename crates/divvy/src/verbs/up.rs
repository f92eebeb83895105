//! `divvy up`: serves the pool of this machine.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use divvy_api::{Client, Pool, paths};
use divvy_server::{Kind, RunError, Settings};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{plain, say};
use crate::pool::{self, Place};

const EXAMPLES: &str = "\
Examples:
  divvy up                             in the foreground; Ctrl-C ends it, jobs run on
  divvy up --detach                    in the background
  divvy up --gpus pretend:8xH100       on a machine without GPUs, to try it
  divvy up --state /var/tmp/pool2      a pool of its own, beside another

As root the pool is for everyone, and jobs run as who submitted them.
As an ordinary user it is that user's alone.";

/// Start the pool of this machine
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Up {
    /// Serve in the background, and return when it is ready
    #[arg(short, long)]
    detach: bool,
    /// Where GPUs come from: auto, nvml, none or pretend:8xH100[,4xA100-40GB]
    #[arg(long, value_name = "SOURCE", default_value = "auto")]
    gpus: String,
    /// Hand out free GPUs even if processes outside the pool use them
    #[arg(long)]
    ignore_foreign: bool,
}

impl Up {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        let sockets = place.sockets();
        let variable = |name: &Option<std::ffi::OsString>| name.clone().map(PathBuf::from);
        // A state directory named on the command line has its socket in it, whatever the environment says.
        let socket_variable = if place.state.is_some() { None } else { variable(&sockets.socket_variable) };
        let state = place.state.clone().or_else(|| variable(&sockets.state_variable));
        let socket = place.socket.clone().or(socket_variable);
        if self.detach {
            return self.in_background(state.as_deref(), socket.as_deref());
        }
        let gpus = self.gpus.clone();
        let settings = Settings { state, socket, gpus, foreign: !self.ignore_foreign, ..Settings::default() };
        // A closed terminal output does not end the daemon.
        let stopped =
            divvy_server::run(settings, |started| say_lines(&started.to_string())).map_err(from_server)?;
        say_lines(&stopped.to_string());
        Ok(Exit::Success)
    }

    /// Starts this program again without a terminal, and waits until it serves or has failed.
    fn in_background(&self, state: Option<&Path>, socket: Option<&Path>) -> Result<Exit, Failure> {
        let log = daemon_log(state)?;
        // Measured before the start, so that the daemon's first messages are passed on, too.
        let began = log.metadata().map(|file| file.len())?;
        let mut child = self.command(state, socket, &log)?;
        let sockets =
            Place { socket: socket.map(Path::to_owned), state: state.map(Path::to_owned) }.sockets();
        let served = pool::runtime()?.block_on(until_served(&sockets, &mut child));
        let said = since(&daemon_log_path(state), began);
        match served? {
            Served::By(client_socket) => {
                io::stderr().write_all(escaped(&said).as_bytes())?;
                say(&format!(
                    "serving in the background on {}, pid {}; `divvy down` ends it",
                    client_socket.display(),
                    child.id()
                ));
                Ok(Exit::Success)
            }
            Served::Not(code) => {
                let _ = io::stderr().write_all(escaped(&said).as_bytes());
                Ok(Exit::Job(code))
            }
        }
    }

    fn command(&self, state: Option<&Path>, socket: Option<&Path>, log: &File) -> Result<Child, Failure> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("divvy").arg("up").arg("--gpus").arg(&self.gpus);
        if self.ignore_foreign {
            command.arg("--ignore-foreign");
        }
        for (flag, path) in [("--state", state), ("--socket", socket)] {
            if let Some(path) = path {
                command.arg(flag).arg(std::path::absolute(path)?);
            }
        }
        // The daemon must not keep a file system busy only because it was started there.
        command.current_dir("/");
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?);
        // SAFETY: setsid is async-signal-safe and touches no memory of this process.
        unsafe {
            command.pre_exec(|| rustix::process::setsid().map(drop).map_err(io::Error::from));
        }
        command.spawn().map_err(|error| {
            Failure::new(Exit::Internal, "cannot start the daemon").because(error.to_string())
        })
    }
}

/// The outcome of starting a daemon in the background.
enum Served {
    /// It serves on this socket.
    By(PathBuf),
    /// It ended with this code.
    Not(u8),
}

/// How long a daemon may take to serve: a log of a million events takes 2 s, a slow disk ten times that.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Asks until the daemon that answers is the one that was started.
async fn until_served(sockets: &divvy_api::Sockets, child: &mut Child) -> Result<Served, Failure> {
    let begun = Instant::now();
    let pause = Duration::from_millis(10);
    loop {
        if let Ok(mut client) = Client::connect(sockets).await
            && let Ok(pool) = client.get::<Pool>(paths::POOL).await
            && pool.pid == child.id()
        {
            return Ok(Served::By(client.socket().to_owned()));
        }
        if let Some(status) = child.try_wait()? {
            let code =
                status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(Exit::Internal.code());
            return Ok(Served::Not(code.max(1)));
        }
        if begun.elapsed() > READY_WITHIN {
            return Err(Failure::new(
                Exit::TryAgain,
                format!("the daemon (pid {}) does not serve yet", child.id()),
            )
            .fix("look into daemon.log in the state directory"));
        }
        tokio::time::sleep(pause).await;
    }
}

fn daemon_log_path(state: Option<&Path>) -> PathBuf {
    state.map_or_else(divvy_server::usual_state, Path::to_owned).join("daemon.log")
}

/// The daemon's own messages go beside its state.
fn daemon_log(state: Option<&Path>) -> Result<File, Failure> {
    let path = daemon_log_path(state);
    let cannot = |error: io::Error| {
        Failure::new(Exit::CannotCreate, format!("cannot write {}", path.display()))
            .because(error.to_string())
            .fix("name a directory of your own with --state")
    };
    if let Some(directory) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(cannot)?;
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(cannot)
}

/// What was written to a file since it had this length.
fn since(path: &Path, length: u64) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    let start = usize::try_from(length).unwrap_or(0).min(bytes.len());
    String::from_utf8_lossy(&bytes[start..]).into_owned()
}

fn escaped(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", plain(line))).collect()
}

/// Passes on several lines to the terminal of the person who started the daemon.
fn say_lines(text: &str) {
    let _ = io::stderr().write_all(escaped(text).as_bytes());
}

/// The server's errors say what, why and what helps in one text.
fn from_server(error: RunError) -> Failure {
    let exit = match error.kind() {
        Kind::Usage => Exit::Usage,
        Kind::Data => Exit::BadData,
        Kind::Taken | Kind::Place => Exit::CannotCreate,
        Kind::NoDriver => Exit::NoDaemon,
        Kind::Full => Exit::TryAgain,
        Kind::System => Exit::Internal,
    };
    Failure::told(exit, &error.to_string())
}
