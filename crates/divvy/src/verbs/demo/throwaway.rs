//! A pool in a temporary directory that ends with the demo, however that ends.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use divvy_api::client::Ask;
use divvy_api::{
    Applied, Client, Gpu, GpuState, JobFile, Shutdown, ShutdownBegun, ShutdownMode, Sockets, Submit,
    Submitted, paths,
};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::exit::Exit;
use crate::failure::Failure;

/// The devices where a machine has no free GPU of its own.
const PRETENDED: &str = "pretend:8xH100";

/// How long the daemon may take to start, and to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The demo's own daemon.
pub(super) struct ThrowAway {
    /// The connection to it.
    pub(super) client: Client,
    /// Its devices in words; pretended devices are named as such.
    pub(super) devices: String,
    daemon: Daemon,
}

impl ThrowAway {
    /// Starts it with the given devices, or else with the machine's own, or pretended ones if none is free.
    pub(super) async fn start(gpus: Option<&str>) -> Result<Self, Failure> {
        if let Some(source) = gpus {
            let (daemon, mut client) = Daemon::start(source).await?;
            let gpus = client.get::<Vec<Gpu>>(paths::GPUS).await?;
            return Ok(Self { devices: described(&gpus), client, daemon });
        }
        let (daemon, mut client) = Daemon::start("auto").await?;
        let gpus = client.get::<Vec<Gpu>>(paths::GPUS).await?;
        if gpus.iter().any(|gpu| gpu.state == GpuState::Free) {
            return Ok(Self { devices: described(&gpus), client, daemon });
        }
        let why =
            if gpus.is_empty() { "This machine has no GPUs" } else { "All GPUs of this machine are in use" };
        daemon.end(&mut client).await;
        let (daemon, mut client) = Daemon::start(PRETENDED).await?;
        let gpus = client.get::<Vec<Gpu>>(paths::GPUS).await?;
        let devices = format!("{}. {why}: these only act as if", described(&gpus));
        Ok(Self { devices, client, daemon })
    }

    /// Puts a queues.yaml in force.
    pub(super) async fn apply(&mut self, queues: &str) -> Result<(), Failure> {
        let _: Applied = self.client.ask(&Ask::put_text(paths::QUEUES, queues.to_owned())).await?;
        Ok(())
    }

    /// Submits a job and returns its id.
    pub(super) async fn submit(&mut self, job: JobFile) -> Result<String, Failure> {
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".into());
        let submit = Submit {
            job,
            directory: self.daemon.directory.path().display().to_string(),
            umask: 0o077,
            environment: BTreeMap::from([("PATH".to_owned(), path)]),
            ..Submit::default()
        };
        let submitted: Submitted = self.client.ask(&Ask::post(paths::JOBS, &submit)).await?;
        Ok(submitted.id)
    }

    /// Stops its jobs, ends the daemon and removes the directory.
    pub(super) async fn end(mut self) {
        self.daemon.end(&mut self.client).await;
    }
}

/// The daemon's process and directory.
struct Daemon {
    child: Child,
    directory: TempDir,
}

impl Daemon {
    async fn start(gpus: &str) -> Result<(Self, Client), Failure> {
        let cannot = |error: io::Error| {
            Failure::new(Exit::CannotCreate, "cannot make a throw-away pool").because(error.to_string())
        };
        let directory = tempfile::Builder::new().prefix("divvy-demo-").tempdir().map_err(cannot)?;
        let messages = File::create(directory.path().join("daemon.log")).map_err(cannot)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("divvy").args(["up", "--gpus", gpus, "--state"]).arg(directory.path());
        command.env_remove("DIVVY_SOCKET").env_remove("DIVVY_STATE");
        command.stdin(Stdio::null()).stdout(messages.try_clone().map_err(cannot)?).stderr(messages);
        // SAFETY: both calls are async-signal-safe and touch no memory of this process.
        unsafe {
            command.pre_exec(|| {
                // Ctrl-C goes to the demo alone. If the demo is killed, the daemon ends by itself.
                rustix::process::setsid()?;
                rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
                Ok(())
            });
        }
        let child = command.spawn().map_err(cannot)?;
        let mut daemon = Self { child, directory };
        let client = daemon.answers().await?;
        Ok((daemon, client))
    }

    async fn answers(&mut self) -> Result<Client, Failure> {
        let sockets = Sockets { state: Some(self.directory.path().to_owned()), ..Sockets::default() };
        let begun = Instant::now();
        loop {
            if let Ok(mut client) = Client::connect(&sockets).await
                && client.get::<divvy_api::Pool>(paths::POOL).await.is_ok()
            {
                return Ok(client);
            }
            if self.child.try_wait()?.is_some() || begun.elapsed() > PATIENCE {
                let said =
                    std::fs::read_to_string(self.directory.path().join("daemon.log")).unwrap_or_default();
                let mut failure = Failure::new(Exit::Internal, "the daemon of the demo did not come up");
                failure.why = said.lines().map(str::to_owned).collect();
                return Err(failure);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Ends it in an orderly way; whatever is left of it after that is killed on drop.
    async fn end(mut self, client: &mut Client) {
        let ask = Ask::post(paths::SHUTDOWN, &Shutdown { mode: ShutdownMode::Kill }).within(PATIENCE);
        // The connection may be busy with an answer that is no longer wanted.
        let asked = match client.reconnect().await {
            Ok(()) => client.ask::<ShutdownBegun>(&ask).await,
            Err(error) => Err(error),
        };
        let begun = Instant::now();
        while asked.is_ok() && matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Both do nothing if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Describes the GPUs of the pool: `8 PRETENDED GPUs (h100)`.
fn described(gpus: &[Gpu]) -> String {
    let pretended = gpus.iter().any(|gpu| gpu.source == "pretend");
    let mut models: Vec<&str> = gpus.iter().map(|gpu| gpu.model.as_str()).collect();
    models.dedup();
    let kind = if pretended { "PRETENDED GPUs" } else { "GPUs" };
    format!("{} {kind} ({})", gpus.len(), models.join(", "))
}
