//! The control thread: the only one that changes anything.
//!
//! Each turn takes everything that has come in (requests, observations, due timers), plans and appends one commit. Only
//! then does it tell the engine, answer the requests and wake the watchers. What comes in during the append waits for
//! the next turn, so one fsync serves all of it.

mod foresight;
mod snapshots;
mod turn;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use divvy_core::controller::{Answer, Broken, Controller};
use divvy_core::decide::{Command, Person, Rejection, Submit};
use divvy_core::engine::{Engine, Observation};
use divvy_core::id::Position;
use divvy_core::log::LogError;
use divvy_engine::local::LocalEngine;
use tokio::sync::oneshot;

use crate::clock;
use crate::environments::Arrived;
use crate::pool::Pool;
use crate::store::{Store, StoreError};

/// A request to the control thread.
pub(crate) enum Request {
    /// Submit a job.
    Submit(Box<Submit>, Option<Arrived>, Reply),
    /// Carry out any other command.
    Command(Box<Command>, Reply),
    /// Look at what the engine has observed.
    Wake,
    /// End the daemon.
    End(Ending, Reply),
}

/// Where the answer goes once the commit is durable.
pub(crate) type Reply = oneshot::Sender<Result<Answer, Refusal>>;

/// Why a request was not carried out.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// The core rejects it.
    Rejected(Rejection),
    /// The log cannot be written.
    Log(LogError),
    /// The daemon is ending.
    Ending,
}

/// What happens to the jobs when the daemon ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// They run on.
    Leave,
    /// Nothing starts any more; the daemon ends when the last running job has ended.
    Drain(Person),
    /// They are stopped.
    Kill(Person),
}

/// Why the control thread gave up. Jobs run on; the next daemon takes them over.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Something does not fit the state, or a law is broken.
    #[error(
        "the daemon stops, since going on could harm: {0}. Jobs run on; look at the state with `divvy doctor`"
    )]
    Broken(#[from] Broken),
    /// The log cannot be read again.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The log cannot be written, for a reason other than a full disk.
    #[error("the log cannot be written: {0}. Jobs run on; look at the state with `divvy doctor`")]
    Log(LogError),
    /// The thread ended without saying why.
    #[error(
        "the daemon's control thread broke off: a mistake of this program. Jobs run on; start it again with `divvy up`"
    )]
    Vanished,
}

/// The control thread's own state.
pub(crate) struct Control {
    pool: Arc<Pool>,
    store: Store,
    engine: LocalEngine,
    requests: Receiver<Request>,
    /// What the engine has observed and is not in the log yet.
    observed: Vec<Observation>,
    /// Set while the disk is full: nothing is tried until there is room.
    full: Option<LogError>,
    /// How the daemon is about to end.
    ending: Option<Ending>,
    ticked: Position,
    foresight: foresight::Foresight,
    snapshots: snapshots::Snapshots,
}

/// Sends requests to the control thread.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    sender: mpsc::Sender<Request>,
    /// Set while a wake-up is on its way: one is enough.
    woken: Arc<AtomicBool>,
}

impl Requests {
    /// Makes the channel to a control thread that has not started yet.
    pub(crate) fn new() -> (Self, Receiver<Request>) {
        let (sender, receiver) = mpsc::channel();
        (Self { sender, woken: Arc::default() }, receiver)
    }

    /// Sends a request. Does not fail if the thread is gone: the closed reply tells.
    pub(crate) fn send(&self, request: Request) {
        let _ = self.sender.send(request);
    }

    /// Has the control thread look at the engine.
    pub(crate) fn wake(&self) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.send(Request::Wake);
        }
    }

    /// Allows wake-ups again: from here on a wake-up means news.
    fn awake(&self) {
        self.woken.store(false, Ordering::Release);
    }

    /// Sends a request and waits until its commit is durable.
    pub(crate) async fn ask(&self, request: impl FnOnce(Reply) -> Request) -> Result<Answer, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.send(request(reply));
        answer.await.unwrap_or(Err(Refusal::Ending))
    }
}

/// How soon the disk is looked at again while it is full and there is something to write.
const FULL_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How often a tick is logged, if anything has happened since the last one.
const TICK: Duration = Duration::from_secs(60);

/// The most requests that one turn takes: bounds how long the first of them waits.
const MOST_AT_ONCE: usize = 1024;

impl Control {
    /// Puts together what the control thread needs.
    pub(crate) fn new(
        pool: Arc<Pool>,
        store: Store,
        engine: LocalEngine,
        requests: Receiver<Request>,
    ) -> Self {
        let (ticked, snapshots) = (store.position(), snapshots::Snapshots::since(store.position()));
        Self {
            pool,
            store,
            engine,
            requests,
            observed: Vec::new(),
            full: None,
            ending: None,
            ticked,
            foresight: foresight::Foresight::default(),
            snapshots,
        }
    }

    /// Runs turns until the daemon ends.
    pub(crate) fn run(mut self) -> Result<(), ControlError> {
        while !self.is_over() {
            let requests = self.wait();
            self.turn(requests)?;
        }
        self.snapshots.at_the_end(&self.store, &self.pool);
        self.pool.reader.rest();
        Ok(())
    }

    /// Runs one turn before the thread starts, so that the first request finds the pool's devices known.
    pub(crate) fn first_turn(&mut self) -> Result<(), ControlError> {
        self.turn(Vec::new())
    }

    fn is_over(&self) -> bool {
        match &self.ending {
            None => false,
            Some(Ending::Leave) => true,
            Some(Ending::Drain(_) | Ending::Kill(_)) => {
                self.pool.controller.blocking_read().state().allocations.is_empty()
            }
        }
    }

    /// Waits for something to do, and takes everything that has come in.
    fn wait(&self) -> Vec<Request> {
        let first = match self.pause() {
            None => self.requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(pause) => self.requests.recv_timeout(pause),
        };
        let mut requests: Vec<Request> = first.into_iter().collect();
        requests.extend(self.requests.try_iter().take(MOST_AT_ONCE));
        requests
    }

    /// Returns how long to wait at most; `None` when nothing is due.
    fn pause(&self) -> Option<Duration> {
        if self.full.is_some() && !self.observed.is_empty() {
            return Some(FULL_AGAIN_AFTER);
        }
        let due = self.pool.controller.blocking_read().due();
        let until = due.map(|due| Duration::from_millis(u64::try_from(due.0 - clock::now().0).unwrap_or(0)));
        // At least 1 ms: what is due was just looked at. At most a tick: the wall clock may step.
        let due = until.map(|until| until.clamp(Duration::from_millis(1), TICK));
        let tick = (self.store.position() > self.ticked).then_some(TICK);
        due.into_iter().chain(tick).min()
    }
}
