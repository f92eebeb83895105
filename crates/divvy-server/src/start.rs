//! Starting a pool, serving it, and ending it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use divvy_core::controller::Controller;
use divvy_core::decide::{Command, Person};
use divvy_core::id::Term;
use divvy_core::state::State;
use divvy_engine::local::{LocalEngine, OpenError, last_term};
use divvy_gpu::{Choice, ChoiceError, HostError, Source, SourceError};
use signal_hook::iterator::Signals;
use tokio::sync::{oneshot, watch};

use crate::control::{Control, ControlError, Ending, Request, Requests};
use crate::people::People;
use crate::place::{self, SocketError};
use crate::pool::{Parts, Pool, Settled};
use crate::store::place::{Claim, PlaceError};
use crate::store::{Lost, Store, StoreError};
use crate::{clock, environments, http};

/// What a user says when starting a pool.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The state directory; the usual place if `None`.
    pub state: Option<PathBuf>,
    /// The socket; if `None`, in `state` if that is set, else the usual place.
    pub socket: Option<PathBuf>,
    /// Where GPUs come from: `auto`, `nvml`, `none` or `pretend:8xH100`.
    pub gpus: String,
    /// Whether free GPUs that processes outside the pool use are kept back.
    pub foreign: bool,
    /// The program that supervises tasks: this one.
    pub program: PathBuf,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            state: None,
            socket: None,
            gpus: "auto".into(),
            foreign: true,
            program: "/proc/self/exe".into(),
        }
    }
}

/// Why a pool could not be started, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// `--gpus` cannot be understood.
    #[error(transparent)]
    Gpus(#[from] ChoiceError),
    /// The GPUs cannot be found out.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The state directory or its log cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The socket cannot be used.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The engine cannot be opened.
    #[error(transparent)]
    Engine(#[from] OpenError),
    /// The machine cannot be identified.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The control thread gave up.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The disk is full at the start.
    #[error("the daemon cannot start: {0}. Make room on the disk of the state directory {path}; jobs that run are not touched", path = .1.display())]
    Full(String, PathBuf),
    /// A system call failed.
    #[error("the daemon cannot start: {0}")]
    System(#[from] std::io::Error),
}

/// An engine that cannot be opened because the disk is full needs a different remedy.
fn not_opened(error: OpenError) -> RunError {
    match &error {
        OpenError::State { doing, path, source } if source.kind() == std::io::ErrorKind::StorageFull => {
            RunError::Full(format!("{doing} {}: {source}", path.display()), path.clone())
        }
        _ => RunError::Engine(error),
    }
}

/// The kind of an error, for exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The settings make no sense.
    Usage,
    /// The log is damaged, or from a newer version.
    Data,
    /// Another daemon is there.
    Taken,
    /// The state directory or the socket cannot be used.
    Place,
    /// The driver of the GPUs that were asked for is not there.
    NoDriver,
    /// The disk is full.
    Full,
    /// The system, or a bug in this program.
    System,
}

impl RunError {
    /// Returns the kind of the error.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Gpus(_) => Kind::Usage,
            Self::Store(StoreError::Damaged { .. } | StoreError::Newer { .. }) => Kind::Data,
            Self::Store(StoreError::Place(PlaceError::Taken { .. }))
            | Self::Socket(SocketError::Taken(_)) => Kind::Taken,
            Self::Source(_) | Self::Engine(OpenError::Devices(_)) => Kind::NoDriver,
            Self::Full(..) => Kind::Full,
            Self::Engine(OpenError::StaleTerm { .. }) => Kind::Taken,
            Self::Store(StoreError::Place(_) | StoreError::Io { .. })
            | Self::Socket(_)
            | Self::Engine(OpenError::State { .. }) => Kind::Place,
            _ => Kind::System,
        }
    }
}

/// A pool that serves. Displayed, it is a few lines for people.
#[derive(Clone, Debug)]
pub struct Started {
    /// Where clients connect.
    pub socket: PathBuf,
    /// Where the state is.
    pub state: PathBuf,
    /// The daemon's process.
    pub pid: u32,
    /// `nvml`, `pretend` or `none`.
    pub source: String,
    /// How many GPUs of each model there are.
    pub gpus: BTreeMap<String, u32>,
    /// How many GPUs the pool knows that are no longer there.
    pub missing: u32,
    /// Which users it serves.
    pub serves: String,
    /// Warnings to show.
    pub warnings: Vec<String>,
}

impl fmt::Display for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let models = self
            .gpus
            .iter()
            .map(|(model, count)| format!("{count} × {model}"))
            .collect::<Vec<_>>()
            .join(", ");
        writeln!(
            f,
            "divvy {} serves on {} (pid {})",
            env!("CARGO_PKG_VERSION"),
            self.socket.display(),
            self.pid
        )?;
        writeln!(f, "state  {}", self.state.display())?;
        match (self.source.as_str(), models.as_str()) {
            (_, "") => writeln!(f, "GPUs   none: jobs get cores and memory only")?,
            ("pretend", _) => writeln!(f, "GPUs   {models}, PRETENDED")?,
            _ => writeln!(f, "GPUs   {models}")?,
        }
        match self.missing {
            0 => {}
            1 => writeln!(f, "       1 more is known and missing: see `divvy gpus`")?,
            missing => writeln!(f, "       {missing} more are known and missing: see `divvy gpus`")?,
        }
        write!(f, "users  {}", self.serves)?;
        self.warnings.iter().try_for_each(|warning| write!(f, "\n!      {warning}"))
    }
}

/// How a pool ended. Displayed, it is one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Tasks that go on running.
    pub tasks: usize,
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tasks {
            0 => write!(f, "the daemon has ended; nothing is running"),
            1 => write!(f, "the daemon has ended; 1 task runs on, and the next `divvy up` takes it over"),
            tasks => write!(
                f,
                "the daemon has ended; {tasks} tasks run on, and the next `divvy up` takes them over"
            ),
        }
    }
}

/// Serves a pool until it is told to end. `announce` is called once, when the socket takes requests.
pub fn run(settings: Settings, announce: impl FnOnce(&Started)) -> Result<Stopped, RunError> {
    prepare_process();
    let choice: Choice = settings.gpus.parse()?;
    let said_socket = place::socket(settings.socket.as_deref(), settings.state.as_deref());
    let (state, socket, claim) = claim(&settings, &said_socket)?;
    let (control, pool) = open(&settings, &choice, (state, socket.clone()))?;
    let listener = place::listen(&socket)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(64)
        .enable_all()
        .build()?;
    let started = started(&pool);
    let served = runtime.block_on(serve(control, pool.clone(), listener, || announce(&started)));
    let _ = std::fs::remove_file(&socket);
    let tasks = pool.controller.blocking_read().state().allocations.len();
    drop((runtime, claim));
    served.map(|()| Stopped { tasks })
}

/// Sets limits and signals of the whole process.
fn prepare_process() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("DIVVY_LOG").unwrap_or_else(|_| "warn".into());
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
    // SAFETY: both only set a number of this process, before other threads are there.
    unsafe {
        // Writing beyond the file size limit becomes an error instead of a deadly signal.
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        // Two arenas: each further one costs memory, and few threads ever allocate at the same time.
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    // Connections and followed files take descriptors; jobs have limits of their own.
    let _ = rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit { current: limit.maximum, ..limit },
    );
}

/// Makes and claims the state directory. Returns its canonical path and the absolute path of the socket.
fn claim(settings: &Settings, socket: &Path) -> Result<(PathBuf, PathBuf, Claim), RunError> {
    let state = settings.state.clone().unwrap_or_else(place::usual_state);
    let claim = crate::store::place::claim(&state, place::state_mode(&state, socket))?;
    let canonical = state.canonicalize().map_err(StoreError::io("find", &state))?;
    let socket = match (socket.parent() == Some(state.as_path()), socket.file_name()) {
        (true, Some(name)) => canonical.join(name),
        _ => std::path::absolute(socket)?,
    };
    Ok((canonical, socket, claim))
}

/// Opens log, engine and controller, and runs the first turn: the term, the devices, the adopted tasks.
fn open(
    settings: &Settings,
    choice: &Choice,
    (state_dir, socket): (PathBuf, PathBuf),
) -> Result<(Control, Arc<Pool>), RunError> {
    let (store, lost) = Store::open(&state_dir)?;
    let state = store.fold()?;
    environments::sweep(&state_dir, |number| state.jobs.contains_key(&number))
        .map_err(StoreError::io("clean up", &state_dir))?;
    let term = next_term(&state_dir, &store, &state)?;
    let source = Source::open(choice, &state_dir)?;
    let node = divvy_gpu::printable(&rustix::system::uname().nodename().to_string_lossy());
    let (requests, receiver) = Requests::new();
    let ringer = requests.clone();
    let mut engine_settings =
        divvy_engine::local::Settings::new(&state_dir, &socket, term, move || ringer.wake());
    (engine_settings.program, engine_settings.node) = (settings.program.clone(), node.clone());
    (engine_settings.foreign, engine_settings.devices) = (settings.foreign, Some(source));
    let engine = LocalEngine::open(engine_settings).map_err(not_opened)?;
    let latest = engine.telemetry().latest();
    let only = only_user();
    let settled = Settled {
        warnings: warnings(lost, &latest, only.as_ref().map(|owner| owner.name.as_str())),
        state: state_dir.clone(),
        socket,
        only,
        node,
        source: latest.source.to_string(),
        started_at: clock::now(),
    };
    let controller = begin(state, term)?;
    let telemetry = engine.telemetry();
    let pool = Arc::new(Pool::new(Parts { settings: settled, controller, requests, telemetry }));
    let mut control = Control::new(pool.clone(), store, engine, receiver);
    control.first_turn()?;
    match pool.condition().full {
        Some(why) => Err(RunError::Full(why, state_dir)),
        None => Ok((control, pool)),
    }
}

/// Returns a term above all that the log or the engine has seen: the log may have lost its tail.
fn next_term(state_dir: &Path, store: &Store, state: &State) -> Result<Term, RunError> {
    let engine = last_term(state_dir).map_err(StoreError::io("read the last term of", state_dir))?;
    let highest =
        [state.term, store.term(), engine.unwrap_or_default()].into_iter().max().unwrap_or_default();
    Ok(Term(highest.0 + 1))
}

fn begin(state: State, term: Term) -> Result<Controller, RunError> {
    let draining = state.draining;
    let mut controller = Controller::open(state);
    let command =
        Command::Begin { term, boot_id: divvy_gpu::boot_id()?, version: env!("CARGO_PKG_VERSION").into() };
    let mut commands = vec![command];
    if draining {
        // The drain was for taking the pool down; now it is up again.
        commands.push(Command::SetDrain(false, Person::administrator("divvy up")));
    }
    for command in commands {
        // The core never refuses these two: both come from the daemon itself.
        let _ = controller.take(&command, clock::now()).map_err(ControlError::Broken)?;
    }
    Ok(controller)
}

/// Returns the user whose own pool it is; `None` for root's pool.
fn only_user() -> Option<divvy_core::model::job::Owner> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    (!uid.is_root()).then(|| People::default().look_up(uid.as_raw(), gid.as_raw()).owner)
}

fn warnings(lost: Option<Lost>, latest: &divvy_engine::local::Latest, only: Option<&str>) -> Vec<String> {
    let mut warnings: Vec<String> = lost.iter().map(ToString::to_string).collect();
    if latest.source == divvy_gpu::SourceKind::Pretend {
        warnings.push("the GPUs are pretended: jobs get made-up UUIDs, and no device does any work".into());
    }
    warnings.extend(
        latest.note.as_ref().map(|note| format!("{note}; `--gpus pretend:8xH100` tries Divvy without GPUs")),
    );
    warnings
        .extend(only.map(|name| format!("this pool is private to {name}, since it was not started by root")));
    warnings
}

fn started(pool: &Pool) -> Started {
    let (settings, latest) = (&pool.settings, pool.telemetry.latest());
    let controller = pool.controller.blocking_read();
    let is_there = |gpu: &divvy_api::Gpu| {
        latest.machine.as_ref().is_none_or(|machine| machine.devices.iter().any(|seen| seen.uuid == gpu.uuid))
    };
    let (mut gpus, mut missing): (BTreeMap<String, u32>, u32) = (BTreeMap::new(), 0);
    for gpu in crate::wire::device::all(controller.state(), &latest) {
        match is_there(&gpu) {
            true => *gpus.entry(gpu.model).or_default() += 1,
            false => missing += 1,
        }
    }
    let serves = match &settings.only {
        None => "everybody; jobs run as whoever submits them; root and the group divvy administer".into(),
        Some(owner) => format!("{} alone", owner.name),
    };
    Started {
        socket: settings.socket.clone(),
        state: settings.state.clone(),
        pid: std::process::id(),
        source: settings.source.clone(),
        gpus,
        missing,
        serves,
        warnings: settings.warnings.clone(),
    }
}

/// Serves requests while the control thread runs; returns when that thread ends.
async fn serve(
    control: Control,
    pool: Arc<Pool>,
    listener: std::os::unix::net::UnixListener,
    announce: impl FnOnce(),
) -> Result<(), RunError> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let (ended, controlled) = oneshot::channel();
    let thread = std::thread::Builder::new().name("divvy-control".into());
    let thread = thread.spawn(move || {
        let _ = ended.send(control.run());
    })?;
    let (ending, end) = watch::channel(false);
    let mut serving = tokio::spawn(http::serve(listener, pool.clone(), end));
    end_on_signals(pool.requests.clone())?;
    announce();
    let result = tokio::select! {
        result = controlled => result.unwrap_or_else(|_| Err(ControlError::Vanished)),
        _ = &mut serving => Ok(()),
    };
    pool.set_ending();
    ending.send_replace(true);
    let _ = serving.await;
    let _ = thread.join();
    Ok(result?)
}

/// A signal to end leaves the jobs running; a hang-up does not concern a daemon. From here on no signal is lost: each is kept
/// in a pipe until the thread has read it.
fn end_on_signals(requests: Requests) -> std::io::Result<()> {
    let mut signals = Signals::new([libc::SIGTERM, libc::SIGINT, libc::SIGHUP])?;
    let thread = std::thread::Builder::new().name("divvy-signals".into());
    thread.spawn(move || {
        for _ in signals.forever().filter(|signal| *signal != libc::SIGHUP) {
            let (reply, _) = oneshot::channel();
            requests.send(Request::End(Ending::Leave, reply));
        }
    })?;
    Ok(())
}
