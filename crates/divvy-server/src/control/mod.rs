//! The control thread: the only one that changes anything.
//!
//! Each turn takes what has come in (requests, observations, due timers), plans, appends one commit, and only then tells
//! the engine, those who asked, and those who watch. What comes in during the append is the next turn: one fsync serves
//! all of it.

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

/// What the control thread is asked.
pub(crate) enum Request {
    /// To take a job.
    Submit(Box<Submit>, Option<Arrived>, Reply),
    /// To take any other command.
    Command(Box<Command>, Reply),
    /// To see what the engine has observed.
    Wake,
    /// To end.
    End(Ending, Reply),
}

/// Where the answer goes, once it is in the log for good.
pub(crate) type Reply = oneshot::Sender<Result<Answer, Refusal>>;

/// Why a request was not carried out.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// The pool does not want it.
    Rejected(Rejection),
    /// The log takes nothing.
    Log(LogError),
    /// The daemon is ending.
    Ending,
}

/// What becomes of the jobs when the daemon ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// They run on.
    Leave,
    /// Nothing starts any more; it ends with the last one that runs.
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
    /// The log cannot be written, for another reason than a full disk.
    #[error("the log cannot be written: {0}. Jobs run on; look at the state with `divvy doctor`")]
    Log(LogError),
    /// The thread is gone without a word.
    #[error(
        "the daemon's control thread broke off: a mistake of this program. Jobs run on; start it again with `divvy up`"
    )]
    Vanished,
}

/// The control thread's own.
pub(crate) struct Control {
    pool: Arc<Pool>,
    store: Store,
    engine: LocalEngine,
    requests: Receiver<Request>,
    /// What the engine has observed and is not in the log yet.
    observed: Vec<Observation>,
    /// Set while the disk is full: nothing is tried before there is room.
    full: Option<LogError>,
    /// How the daemon is about to end.
    ending: Option<Ending>,
    ticked: Position,
    foresight: foresight::Foresight,
    snapshots: snapshots::Snapshots,
}

/// The way to the control thread.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    sender: mpsc::Sender<Request>,
    /// Set while a wake-up is on its way: one is enough.
    woken: Arc<AtomicBool>,
}

impl Requests {
    /// A channel to a control thread that is to come.
    pub(crate) fn new() -> (Self, Receiver<Request>) {
        let (sender, receiver) = mpsc::channel();
        (Self { sender, woken: Arc::default() }, receiver)
    }

    /// Asks for something; says nothing if nobody listens any more: the reply's end tells.
    pub(crate) fn send(&self, request: Request) {
        let _ = self.sender.send(request);
    }

    /// Has the engine looked at.
    pub(crate) fn wake(&self) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.send(Request::Wake);
        }
    }

    /// From here on, a wake-up means news again.
    fn awake(&self) {
        self.woken.store(false, Ordering::Release);
    }

    /// Asks for something and waits until it is in the log for good.
    pub(crate) async fn ask(&self, request: impl FnOnce(Reply) -> Request) -> Result<Answer, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.send(request(reply));
        answer.await.unwrap_or(Err(Refusal::Ending))
    }
}

/// How long until the disk is looked at again while it is full and jobs have something to say.
const FULL_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How often time passes in the log, if anything else has happened since it did last.
const TICK: Duration = Duration::from_secs(60);

/// The most that a turn takes at once: bounds how long the first of them waits.
const MOST_AT_ONCE: usize = 1024;

impl Control {
    /// Puts together what the thread needs.
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

    /// Turns until the daemon ends.
    pub(crate) fn run(mut self) -> Result<(), ControlError> {
        while !self.is_over() {
            let requests = self.wait();
            self.turn(requests)?;
        }
        self.snapshots.at_the_end(&self.store, &self.pool);
        self.pool.reader.rest();
        Ok(())
    }

    /// One turn before the thread starts, so that the pool knows its devices when the first request comes.
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

    /// Waits for something to do, and takes all of it.
    fn wait(&self) -> Vec<Request> {
        let first = match self.pause() {
            None => self.requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(pause) => self.requests.recv_timeout(pause),
        };
        let mut requests: Vec<Request> = first.into_iter().collect();
        requests.extend(self.requests.try_iter().take(MOST_AT_ONCE));
        requests
    }

    /// How long to wait at most; `None` when nothing is due.
    fn pause(&self) -> Option<Duration> {
        if self.full.is_some() && !self.observed.is_empty() {
            return Some(FULL_AGAIN_AFTER);
        }
        let due = self.pool.controller.blocking_read().due();
        let until = due.map(|due| Duration::from_millis(u64::try_from(due.0 - clock::now().0).unwrap_or(0)));
        // Never at once: what is due was just looked at. And never for long: the wall clock may step.
        let due = until.map(|until| until.clamp(Duration::from_millis(1), TICK));
        let tick = (self.store.position() > self.ticked).then_some(TICK);
        due.into_iter().chain(tick).min()
    }
}
