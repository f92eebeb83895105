//! A pool in virtual time: the core's controller, the simulated engine and a clock.

use std::collections::BTreeMap;

use divvy_core::controller::{Batch, Broken, Controller, Tells};
use divvy_core::decide::{Beyond, Command, Person, Rejection, guaranteed_beyond};
use divvy_core::engine::{Engine, Observation};
use divvy_core::event::{Event, Stamped};
use divvy_core::id::Term;
use divvy_core::model::device::DeviceSpec;
use divvy_core::model::node::NodeSpec;
use divvy_core::model::policy::{Policy, Preempt};
use divvy_core::model::queue::Queue;
use divvy_core::state::{State, fingerprint};
use divvy_core::time::{Span, Time};

use crate::engine::{Costs, SimulatedEngine};

/// The person who gives the simulator's commands.
pub(crate) fn root() -> Person {
    Person::administrator("root")
}

/// A pool in virtual time.
pub struct VirtualPool {
    controller: Controller,
    engine: SimulatedEngine,
    now: Time,
    digest: u64,
    events: u64,
    /// When the next decision is made, if something follows from the last one.
    again: Option<Time>,
    lists: Lists,
}

/// Lists whose memory is reused.
#[derive(Default)]
struct Lists {
    batch: Batch,
    observed: Vec<Observation>,
    happened: Vec<Stamped>,
}

/// How long after a stop the pool plans with what it has freed: a second, so that endless rounds take time, too.
const NEXT_CYCLE: Span = Span(1000);

/// What a pool begins with.
pub struct Beginning {
    /// Its nodes with their devices, in the order of their ids.
    pub nodes: Vec<(NodeSpec, Vec<DeviceSpec>)>,
    /// Its queues; empty for only the one that every pool has.
    pub queues: Vec<Queue>,
    /// How it decides.
    pub policy: Policy,
}

/// Returns what these queues are guaranteed beyond what the nodes have, if anything: a pool would refuse them.
pub fn beyond(
    nodes: Vec<(NodeSpec, Vec<DeviceSpec>)>,
    queues: &[Queue],
    now: Time,
) -> Result<Option<Beyond>, Broken> {
    let engine = SimulatedEngine::new(now, Costs::default(), BTreeMap::new());
    let beginning = Beginning { nodes, queues: Vec::new(), policy: Policy::default() };
    let pool = VirtualPool::begin(beginning, engine, now)?;
    Ok(guaranteed_beyond(pool.state(), queues))
}

impl VirtualPool {
    /// Begins a pool with nothing in it but its nodes and queues.
    pub fn begin(beginning: Beginning, engine: SimulatedEngine, now: Time) -> Result<Self, Broken> {
        let mut pool = Self::of(State::default(), engine, now);
        let term = Command::Begin {
            term: Term(1),
            boot_id: "virtual".into(),
            version: env!("CARGO_PKG_VERSION").into(),
        };
        let mut commands = vec![term, Command::SetPolicy(Box::new(beginning.policy), root())];
        if !beginning.queues.is_empty() {
            commands.push(Command::SetQueues(beginning.queues, root()));
        }
        for command in commands {
            // None of these is ever refused: an administrator gives them.
            let _ = pool.controller.take(&command, now)?;
        }
        for (node, devices) in beginning.nodes {
            pool.controller.see(&Observation::Node(node, devices), now)?;
        }
        pool.settle()?;
        Ok(pool)
    }

    /// Continues a pool as it was found. The engine has taken over what runs in it.
    pub fn resume(state: State, engine: SimulatedEngine, now: Time) -> Self {
        let now = now.max(state.now);
        Self::of(state, engine, now)
    }

    fn of(state: State, engine: SimulatedEngine, now: Time) -> Self {
        let mut controller = Controller::open(state);
        controller.check_every(0);
        controller.keep_history(false);
        controller.tell(if engine.looks_at_devices() { Tells::Devices } else { Tells::Jobs });
        Self { controller, engine, now, digest: 0, events: 0, again: None, lists: Lists::default() }
    }

    /// The state.
    pub fn state(&self) -> &State {
        self.controller.state()
    }

    /// The controller.
    pub fn controller(&mut self) -> &mut Controller {
        &mut self.controller
    }

    /// The engine.
    pub fn engine(&mut self) -> &mut SimulatedEngine {
        &mut self.engine
    }

    /// The clock.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The hash of all decisions so far: equal for equal input, on any machine.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// How many events there were.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns when something next happens by itself.
    pub fn next_due(&self) -> Option<Time> {
        [self.engine.next_due(), self.controller.due(), self.again].into_iter().flatten().min()
    }

    /// Returns whether something is due that the planner was not told of.
    pub fn is_due(&self) -> bool {
        self.controller.due().into_iter().chain(self.again).any(|due| due <= self.now)
    }

    /// Lets time pass, and takes in what has happened by then.
    pub fn advance_to(&mut self, now: Time) -> Result<Vec<Stamped>, Broken> {
        self.now = self.now.max(now);
        self.engine.advance_to(self.now);
        self.settle()
    }

    /// Gives a command.
    pub fn take(&mut self, command: &Command) -> Result<Result<Option<u64>, Rejection>, Broken> {
        Ok(self.controller.take(command, self.now)?.map(|answer| answer.job))
    }

    /// Decides once, and carries out what was decided. What follows from that at the same moment waits for the next decision.
    /// Where victims are chosen by least loss, that decision comes soon after, as in a pool; the orders of the literature
    /// decide when a job arrives or ends, also where a decision ends it, as a time limit does.
    pub fn decide(&mut self) -> Result<Vec<Stamped>, Broken> {
        self.controller.cycle(self.now)?;
        let happened = self.settle()?;
        let ends = |stamped: &Stamped| match &stamped.event {
            Event::AttemptEnded { state, .. } => state.is_ended(),
            Event::Dropped { .. } => true,
            _ => false,
        };
        let by_least_loss = self.state().policy.preempt == Preempt::LeastLoss;
        let goes_on = self.controller.has_news() && (by_least_loss || happened.iter().any(ends));
        self.again = goes_on.then(|| self.now + NEXT_CYCLE);
        Ok(happened)
    }

    /// Carries out what is to be done until nothing more follows at this moment.
    fn settle(&mut self) -> Result<Vec<Stamped>, Broken> {
        let mut happened = std::mem::take(&mut self.lists.happened);
        loop {
            self.see_all()?;
            let batch = &mut self.lists.batch;
            if !self.controller.drain_into(batch) {
                break;
            }
            self.engine.submit(&batch.actions);
            happened.append(&mut batch.commit.events);
        }
        self.note(&happened);
        Ok(happened)
    }

    fn see_all(&mut self) -> Result<(), Broken> {
        let observed = &mut self.lists.observed;
        self.engine.observe_into(observed);
        observed.iter().try_for_each(|observation| self.controller.see(observation, self.now))
    }

    fn note(&mut self, events: &[Stamped]) {
        self.events += events.len() as u64;
        for stamped in events {
            if let Event::Planned { plan, .. } = stamped.event {
                self.digest = fingerprint(&(self.digest, stamped.at, plan));
            }
        }
    }

    /// Takes back a list that it gave out, to reuse its memory.
    pub fn take_back(&mut self, mut happened: Vec<Stamped>) {
        happened.clear();
        self.lists.happened = happened;
    }
}
