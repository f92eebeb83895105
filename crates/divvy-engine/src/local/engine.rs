//! The engine as the shell sees it.

use std::collections::VecDeque;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use divvy_core::action::Action;
use divvy_core::engine::{Abilities, Engine, Observation, TaskEnd};
use divvy_core::id::AllocationId;
use rustix::event::{EventfdFlags, eventfd};

use super::outbox::{Outbox, lock};
use super::processes::Processes;
use super::settings::{OpenError, Settings, keep_term, last_term};
use super::telemetry::Telemetry;
use super::worker::Worker;

/// Runs tasks as processes on this machine.
///
/// Neither `submit` nor `observe` blocks: a thread does the work. Dropping the engine ends its threads and leaves the
/// tasks alone; the next engine that is opened on the same state adopts them.
#[derive(Debug)]
pub struct LocalEngine {
    commands: Commands,
    outbox: Outbox,
    processes: Processes,
    telemetry: Telemetry,
    thread: Option<JoinHandle<()>>,
}

/// A command to the thread.
#[derive(Debug)]
pub(crate) enum Command {
    /// Carry out an action.
    Act(Action),
    /// Nothing is left of a task whose supervisor was lost.
    Cleaned(AllocationId, TaskEnd),
    /// End the thread.
    Quit,
}

/// Sends commands to the thread. Clones share the queue.
#[derive(Clone, Debug)]
pub(crate) struct Commands {
    waiting: Arc<Mutex<VecDeque<Command>>>,
    bell: Arc<OwnedFd>,
}

impl Commands {
    fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { waiting: Arc::default(), bell: Arc::new(bell) })
    }

    /// Adds commands and rings the bell.
    pub(crate) fn give(&self, commands: impl IntoIterator<Item = Command>) {
        lock(&self.waiting).extend(commands);
        // Fails only after 2⁶⁴ rings.
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
    }

    /// Takes all commands and silences the bell.
    pub(crate) fn take(&self) -> VecDeque<Command> {
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        std::mem::take(&mut *lock(&self.waiting))
    }

    /// Returns the descriptor that is readable when there are commands.
    pub(crate) fn bell(&self) -> &OwnedFd {
        &self.bell
    }
}

impl LocalEngine {
    /// Opens the engine on a state directory and adopts the tasks that it finds there. Their state, and then the
    /// inventory, can be observed at once.
    pub fn open(settings: Settings) -> Result<Self, OpenError> {
        let settings = prepare(settings)?;
        let Settings { devices, foreign, sample_every, ref node, ref state, .. } = settings;
        let outbox = Outbox::new(settings.wake);
        let commands = Commands::new()?;
        let processes = Processes::default();
        let (node, state) = (node.clone(), state.clone());
        let pool = super::worker::PoolSettings {
            state: settings.state,
            socket: settings.socket,
            term: settings.term,
            kept_output_most_bytes: settings.kept_output_most_bytes,
            kept_output_age: settings.kept_output_age,
        };
        let shared = (commands.clone(), outbox.clone(), processes.clone());
        let worker = Worker::open(pool, &settings.program, shared)?;
        let watched = super::telemetry::Watched { node, state, foreign, sample_every };
        let telemetry = Telemetry::start(devices, watched, outbox.clone(), processes.clone())?;
        let thread = std::thread::Builder::new().name("divvy-engine".into()).spawn(move || worker.run())?;
        Ok(Self { commands, outbox, processes, telemetry, thread: Some(thread) })
    }

    /// Returns the lookup from processes to tasks.
    pub fn processes(&self) -> Processes {
        self.processes.clone()
    }

    /// Returns access to the devices' latest samples.
    pub fn telemetry(&self) -> Telemetry {
        self.telemetry.clone()
    }
}

/// Makes the folders and takes over the term.
fn prepare(mut settings: Settings) -> Result<Settings, OpenError> {
    let state = settings.state.clone();
    settings.state = state.canonicalize().map_err(OpenError::state("opening the state directory", &state))?;
    for folder in ["tasks", "output", "environments"] {
        let path = settings.state.join(folder);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(OpenError::state("making the directory", &path))?;
    }
    let path = settings.state.join("term");
    let seen = last_term(&settings.state).map_err(OpenError::state("reading the last term from", &path))?;
    if let Some(seen) = seen.filter(|seen| *seen > settings.term) {
        return Err(OpenError::StaleTerm { given: settings.term, seen });
    }
    keep_term(&settings.state, settings.term).map_err(OpenError::state("keeping the term in", &path))?;
    Ok(settings)
}

impl Engine for LocalEngine {
    fn submit(&mut self, actions: &[Action]) {
        self.commands.give(actions.iter().cloned().map(Command::Act));
    }

    fn observe(&mut self) -> Vec<Observation> {
        self.outbox.take()
    }

    fn abilities(&self) -> Abilities {
        Abilities { names_devices: true, runs_processes: true, keeps_allocations: true }
    }
}

impl Drop for LocalEngine {
    fn drop(&mut self) {
        self.commands.give([Command::Quit]);
        self.telemetry.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Outbox")
    }
}
