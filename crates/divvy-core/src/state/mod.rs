//! The state: what the fold of the log gives. Every change goes through [`State::apply`].

mod adopt;
mod affinity;
mod apply;
mod calendar;
mod class;
mod cycles;
mod digest;
mod elastic;
mod ends;
mod nodes;
mod outlook;
mod overdue;
mod past;
mod pledged;
mod recall;
mod relief;
mod run;
mod seats;
mod spending;
mod table;
mod worth;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::engine::{Isolation, TaskEnd};
use crate::id::{AllocationId, ClassId, DeviceId, JobId, NodeId, Position, Term};
use crate::ledger::Ledger;
use crate::model::allocation::{AllocationState, Placement};
use crate::model::device::{DeviceSpec, Health, Occupant};
use crate::model::job::{Array, Cause, Estimate, JobSpec, JobState, LastEnd, Owner, StopOrder};
use crate::model::members::Members;
use crate::model::mix::Mix;
use crate::model::moves::Moved;
use crate::model::newer::Newer;
use crate::model::node::{NodeSpec, NodeState, OthersHold};
use crate::model::policy::Policy;
use crate::model::promise::Promise;
use crate::model::queue::Queue;
use crate::model::reservation::Reservation;
use crate::reason::Reason;
use crate::time::Time;

pub use apply::{Misfit, count, counted};
pub(crate) use calendar::Goes;
pub(crate) use class::shape;
pub use digest::fingerprint;
pub use past::{Past, Record, TICK};
pub use pledged::Pledges;
pub use relief::Relief;
pub use run::Dependable;
pub use spending::Spending;
pub use table::{Table, TableIter};

/// All that the pool knows. Jobs that have ended leave it: history keeps them, a short list of outcomes serves dependencies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The running term.
    pub term: Term,
    /// The boot id of the machine when the term began.
    pub boot_id: String,
    /// Whether the pool starts nothing new, since it is being taken down.
    #[serde(default)]
    pub draining: bool,
    /// Whether anything has become free (or allowed) since the last cycle: if not, verdicts stand.
    #[serde(default)]
    pub freed: bool,
    /// The position of the last event that may have freed something.
    #[serde(default)]
    pub freed_at: Position,
    /// The position of the last event by which a cycle ended.
    #[serde(default)]
    pub cycled_at: Position,
    /// The position of the last event that changed nodes, devices, queues or settings.
    #[serde(default)]
    pub changed_at: Position,
    /// Whether jobs waited at that event that could not start in the pool as it was before.
    #[serde(default)]
    pub in_doubt: bool,
    /// The last tick, when everything that time alone changes was looked at.
    #[serde(default)]
    pub ticked_at: Time,
    /// How many events came from outside so far.
    #[serde(default)]
    pub news: u64,
    /// Jobs whose devices were taken for others since the last such event; at the next one, they may take devices of others again.
    #[serde(default)]
    pub taken: BTreeSet<JobId>,
    /// The position of the last event folded.
    pub position: Position,
    /// The stamp of the last event folded.
    pub now: Time,
    /// The planner's settings.
    pub policy: Policy,
    /// The queues, by path.
    pub queues: BTreeMap<String, Queue>,
    /// The seats of users who have submitted to queues that are divided among their users.
    #[serde(default)]
    pub seats: BTreeSet<String>,
    /// What queues that have budgets have used of them.
    #[serde(default)]
    pub spending: BTreeMap<String, Spending>,
    /// What pledges of device time to queues come to.
    #[serde(default, skip_serializing_if = "Pledges::is_empty")]
    pub pledges: Pledges,
    /// The job that gets a place before all others because it has not run for long.
    #[serde(default)]
    pub relief: Relief,
    /// The names of the labels by which jobs have selected others so far.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub heeded: BTreeSet<String>,
    /// Jobs that want to lie near others; some of them may be over.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub seekers: BTreeSet<u64>,
    /// The nodes, also those that are gone (their ids are never reused).
    pub nodes: BTreeMap<NodeId, Node>,
    /// The devices, also those that are gone.
    pub devices: BTreeMap<DeviceId, Device>,
    /// The jobs that have not ended, by number.
    pub jobs: Table<u64, Job>,
    /// What is held.
    pub allocations: Table<AllocationId, Allocation>,
    /// What is promised.
    pub promises: BTreeMap<JobId, Promise>,
    /// What is reserved on the calendar, by number.
    pub reservations: Vec<Reservation>,
    /// The number that the next reservation gets.
    #[serde(default)]
    pub next_reservation: u64,
    /// Who used what.
    pub ledger: Ledger,
    /// The same weighted by the prices of the models, since prices were first set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worth: Option<Box<Ledger>>,
    /// What queues used and missed in the past.
    #[serde(default)]
    pub past: Past,
    /// What keeps each class of waiting jobs waiting.
    pub verdicts: BTreeMap<ClassId, Reason>,
    /// Which kinds of tasks have arrived, and what to expect.
    #[serde(default)]
    pub mix: Mix,
    /// How jobs ended lately.
    pub outcomes: Outcomes,
    /// The keys of recent submissions, by user.
    pub tokens: Tokens,
    /// The number that the next job gets.
    pub next_job: u64,
    /// The id that the next allocation gets.
    pub next_allocation: AllocationId,
    /// Cycles planned since the log began.
    pub cycles: u64,
    /// The wrapping sum of all entities' hashes.
    entities: u64,
    /// The digest of policy and queues.
    #[serde(skip)]
    settings: digest::Remembered,
    /// The devices by uuid.
    uuids: BTreeMap<String, DeviceId>,
    /// The nodes by name.
    names: BTreeMap<String, NodeId>,
}

/// A node and where it is in its life.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Node {
    /// What it is.
    pub spec: NodeSpec,
    /// Whether it takes tasks.
    pub state: NodeState,
    /// What tasks from outside the pool hold of it.
    #[serde(default, skip_serializing_if = "OthersHold::is_nothing")]
    pub others: OthersHold,
}

/// A device and how it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Device {
    /// Its node.
    pub node: NodeId,
    /// What it is.
    pub spec: Arc<DeviceSpec>,
    /// Whether it works.
    pub health: Health,
    /// Who uses it besides the pool.
    pub occupant: Option<Occupant>,
}

/// A job that has not ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its number.
    pub number: u64,
    /// Whose it is.
    pub owner: Arc<Owner>,
    /// What is wanted.
    pub spec: Arc<JobSpec>,
    /// When it was submitted.
    pub submitted_at: Time,
    /// Jobs alike in queue, priority and ask share a class.
    pub class: ClassId,
    /// When it, or a member, was last released after somebody had held it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_at: Option<Time>,
    /// How long it will run, if there is a forecast.
    #[serde(default)]
    pub estimate: Option<Arc<Estimate>>,
    /// Its run, or those of its members.
    pub runs: Runs,
    /// The hash of all but its runs.
    #[serde(skip)]
    hash: digest::Remembered,
}

/// The run of a job, or those of an array's members.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all jobs are single: a box would be one more allocation for each"
)]
pub enum Runs {
    /// A job that is no array.
    Single(Run),
    /// An array.
    Array(ArrayRuns),
}

/// The members of an array. They materialise when touched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArrayRuns {
    /// As submitted.
    pub array: Array,
    /// Whether the untouched members are held, and by whom.
    pub held: Option<String>,
    /// Members that nothing has happened to.
    pub fresh: Members,
    /// Members that something has happened to and that have not ended.
    pub touched: BTreeMap<u32, Run>,
    /// Members that have ended, by state.
    pub ended: BTreeMap<JobState, Members>,
    /// When a member last ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran_at: Option<Time>,
}

/// One job or member: what it does now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its state; never an ended one.
    pub state: JobState,
    /// Who holds it, if it is held.
    pub held_by: Option<String>,
    /// Counts attempts from 1; a waiting job's is the one to come.
    pub attempt: u32,
    /// How often it went back into the queue without anyone wanting that.
    pub restarts: u32,
    /// When the attempt got its devices.
    pub placed_at: Option<Time>,
    /// When all tasks of the attempt ran.
    pub started_at: Option<Time>,
    /// Up to when the attempt's work is safe, if it has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpointed_at: Option<Time>,
    /// The allocations of tasks that are not over, by rank.
    pub live: Vec<AllocationId>,
    /// How the tasks that are over ended: rank and end.
    pub over: Vec<(u32, TaskEnd)>,
    /// What the attempt got, by rank: kept for history.
    pub placements: Vec<Placement>,
    /// Where each task's output goes, by rank.
    pub outputs: BTreeMap<u32, String>,
    /// What isolates its tasks.
    pub isolation: Option<Isolation>,
    /// The port at which the gang meets.
    pub port: u16,
    /// Device time that tasks already over have held, in milli-GPU·ms.
    pub held_milli_ms: i64,
    /// Set while it is being stopped.
    pub stopping: Option<Stopping>,
    /// How the attempt before ended.
    pub last_end: Option<LastEnd>,
    /// How long its earlier attempts ran in total, in milliseconds.
    #[serde(default)]
    pub attained_ms: i64,
    /// When it last came back into the queue, if it ever did.
    #[serde(default)]
    pub back_since: Option<Time>,
    /// Whether devices are promised to it.
    #[serde(default)]
    pub promised: bool,
    /// How often it had to give way, counted while the policy asked for that.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gave_way: u32,
    /// What [`State::news`] was when its devices were last taken for other jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_at: Option<u64>,
    /// How often it was moved lately, counted while the policy asked for that.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub moved: Newer<Moved>,
    /// The tasks that the gang last gave up and runs on without, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gave_up: Option<Box<GaveUp>>,
    /// Its hash, from one change to the next.
    #[serde(skip)]
    hash: digest::Remembered,
}

/// Tasks that a gang gave up, and runs on without.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GaveUp {
    /// How many.
    pub tasks: u32,
    /// Why.
    pub cause: Cause,
    /// By whom, or for which job.
    pub by: Option<String>,
    /// When they were told to stop.
    pub at: Time,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Why and how a job is being stopped.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stopping {
    /// Why.
    pub cause: Cause,
    /// By whom, or for which job.
    pub by: Option<String>,
    /// How.
    pub order: StopOrder,
    /// Whether it goes back into the queue.
    pub requeue: bool,
}

/// Devices and host amounts held by a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// The job that holds them.
    pub job: JobId,
    /// What is held.
    pub placement: Placement,
    /// Where it is in its life.
    pub state: AllocationState,
    /// Since when it is held.
    pub since: Time,
    /// The number of the last action about it.
    pub seq: u32,
    /// What it is charged as in [`State::worth`], in thousandths.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub worth: Newer<i64>,
    /// When its grace is over, once it was told to stop. It follows from the events, and is in no digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stops_by: Option<Time>,
    /// Since when it is known not to have ended in time.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub overdue_since: Newer<Time>,
    /// Its hash, from one change to the next.
    #[serde(skip)]
    hash: digest::Remembered,
}

/// How a job ended, as dependencies see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// It (all of its members) completed.
    Ok,
    /// It (one of its members) ended otherwise.
    Fail,
}

/// How jobs ended lately; the oldest are forgotten, since history knows them, too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcomes {
    by_job: BTreeMap<u64, Outcome>,
    oldest: VecDeque<u64>,
    /// Which members completed, of arrays in which only some did.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    completed: BTreeMap<u64, Members>,
}

/// How many outcomes the state keeps: dependencies on older jobs are looked up in history by the shell.
const OUTCOMES_KEPT: usize = 10_000;

impl Outcomes {
    /// How a job, or an array as a whole, ended, if it did lately.
    pub fn of(&self, number: u64) -> Option<Outcome> {
        self.by_job.get(&number).copied()
    }

    /// How a job, or one member of an array, ended, if the job or the whole array did lately.
    fn of_member(&self, id: JobId) -> Option<Outcome> {
        let whole = self.of(id.number)?;
        let completed = id.member.zip(self.completed.get(&id.number));
        Some(match completed {
            Some((member, completed)) if completed.contains(member) => Outcome::Ok,
            _ => whole,
        })
    }

    /// Notes how a job ended, with the members that completed if it is an array.
    fn note(&mut self, number: u64, outcome: Outcome, completed: Option<Members>) {
        self.by_job.insert(number, outcome);
        if let Some(completed) = completed.filter(|_| outcome == Outcome::Fail) {
            self.completed.insert(number, completed);
        }
        self.oldest.push_back(number);
        while self.oldest.len() > OUTCOMES_KEPT {
            if let Some(oldest) = self.oldest.pop_front() {
                self.by_job.remove(&oldest);
                self.completed.remove(&oldest);
            }
        }
    }
}

/// The keys of recent submissions, so that a repeated request submits once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tokens {
    by_user: BTreeMap<String, BTreeMap<String, u64>>,
    oldest: VecDeque<(String, String)>,
}

/// How many keys the state keeps: a client that repeats a request does so within minutes.
const TOKENS_KEPT: usize = 10_000;

impl Tokens {
    /// The job that a user's key has submitted.
    pub fn of(&self, user: &str, token: &str) -> Option<u64> {
        self.by_user.get(user)?.get(token).copied()
    }

    fn note(&mut self, user: &str, token: &str, number: u64) {
        self.by_user.entry(user.to_owned()).or_default().insert(token.to_owned(), number);
        self.oldest.push_back((user.to_owned(), token.to_owned()));
        while self.oldest.len() > TOKENS_KEPT {
            let Some((user, token)) = self.oldest.pop_front() else { break };
            let emptied = self.by_user.get_mut(&user).is_some_and(|tokens| {
                tokens.remove(&token);
                tokens.is_empty()
            });
            if emptied {
                self.by_user.remove(&user);
            }
        }
    }
}

impl Default for State {
    /// An empty pool with the queue `default`.
    fn default() -> Self {
        let queue = Queue::named(crate::model::queue::DEFAULT);
        let mut state = Self {
            term: Term(0),
            boot_id: String::new(),
            draining: false,
            freed: false,
            freed_at: Position(0),
            cycled_at: Position(0),
            changed_at: Position(0),
            in_doubt: false,
            ticked_at: Time(0),
            news: 0,
            taken: BTreeSet::new(),
            position: Position(0),
            now: Time(0),
            policy: Policy::default(),
            queues: BTreeMap::new(),
            seats: BTreeSet::new(),
            spending: BTreeMap::new(),
            pledges: Pledges::default(),
            relief: Relief::default(),
            heeded: BTreeSet::new(),
            seekers: BTreeSet::new(),
            nodes: BTreeMap::new(),
            devices: BTreeMap::new(),
            jobs: Table::default(),
            allocations: Table::default(),
            promises: BTreeMap::new(),
            reservations: Vec::new(),
            next_reservation: 0,
            ledger: Ledger::default(),
            worth: None,
            past: Past::default(),
            verdicts: BTreeMap::new(),
            mix: Mix::default(),
            outcomes: Outcomes::default(),
            tokens: Tokens::default(),
            next_job: 1,
            next_allocation: AllocationId(1),
            cycles: 0,
            entities: 0,
            settings: digest::Remembered::default(),
            uuids: BTreeMap::new(),
            names: BTreeMap::new(),
        };
        state.set_queues(vec![queue]);
        state
    }
}

impl State {
    /// The run of a job or touched member. An untouched member has none: see [`Job::run`].
    pub fn run(&self, job: JobId) -> Option<&Run> {
        self.jobs.get(&job.number)?.known_run(job.member)
    }

    /// The device with this uuid.
    pub fn device_by_uuid(&self, uuid: &str) -> Option<DeviceId> {
        self.uuids.get(uuid).copied()
    }

    /// The node with this name.
    pub fn node_by_name(&self, name: &str) -> Option<NodeId> {
        self.names.get(name).copied()
    }

    /// The allocations on a device, with what each draws of it.
    pub fn draws_on(
        &self,
        device: DeviceId,
    ) -> impl Iterator<Item = (&Allocation, &crate::model::device::Draw)> {
        self.allocations.values().flat_map(move |allocation| {
            let draws = allocation.placement.devices.iter().filter(move |(id, _)| *id == device);
            draws.map(move |(_, draw)| (allocation, draw))
        })
    }
}
