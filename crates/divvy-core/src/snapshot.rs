//! The snapshot: the state as the planner wants it. Kept incrementally; equal to one built anew (L3).

mod capacity;
pub(crate) mod order;
mod running;
mod shelves;
mod waiting;

pub use capacity::{Capacity, DeviceView, NodeView, TaskCounts, Unusable, task_kind};
pub use order::OrderKey;
pub use running::{RunView, Running};
pub use waiting::{ClassView, Waiting};

use std::collections::{BTreeMap, BTreeSet};

use crate::amount::Holdings;
use crate::event::Event;
use crate::id::{AllocationId, DeviceId, JobId};
use crate::model::allocation::{AllocationState, Placement};
use crate::model::job::JobSpec;
use crate::model::promise::Promise;
use crate::model::queue::lineage;
use crate::plan::Scores;
use crate::state::{Job, Run, Runs, State, count};
use crate::time::Time;

/// What the planner sees.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// What is free on each node.
    pub capacity: Capacity,
    /// What each queue and its children hold.
    pub held: BTreeMap<String, Holdings>,
    /// What of it those hold that are being stopped.
    pub leaving: BTreeMap<String, Holdings>,
    /// What of it those hold, or are promised, that are not preemptible.
    pub pinned: BTreeMap<String, Holdings>,
    /// Who waits.
    pub waiting: Waiting,
    /// Who runs and may have to give way.
    pub running: Running,
    /// When the attempts that run reach their limits.
    pub limits: BTreeSet<(Time, JobId)>,
    /// What scores have said of nodes: a cache.
    pub(crate) scores: Scores,
}

impl Snapshot {
    /// Builds it anew.
    pub fn new(state: &State) -> Self {
        let mut snapshot = Self { capacity: Capacity::new(state), ..Self::default() };
        for allocation in state.allocations.values() {
            snapshot.capacity.take(&allocation.placement);
            snapshot.charge(state, allocation.job, &allocation.placement, 1);
            if allocation.state == AllocationState::Stopping {
                snapshot.leave(state, allocation.job, &allocation.placement);
            }
        }
        for promise in state.promises.values() {
            promise.placements.iter().for_each(|placement| snapshot.take(state, promise.job, placement));
        }
        for job in state.jobs.values() {
            snapshot.waiting.consider(state, job.number);
            for (id, run) in runs(job) {
                snapshot.running.consider(state, id, state.now);
                snapshot.limits.extend(limit_of(&job.spec, run).map(|at| (at, id)));
            }
        }
        snapshot
    }

    /// The pool without any job: what a new job is measured against.
    pub fn emptied(state: &State) -> Self {
        Self { capacity: Capacity::whole(state), ..Self::default() }
    }

    /// Whether two see the same pool.
    pub fn same_as(&self, other: &Self) -> bool {
        (&self.capacity, &self.held, &self.limits) == (&other.capacity, &other.held, &other.limits)
            && (&self.leaving, &self.pinned) == (&other.leaving, &other.pinned)
            && self.running == other.running
            && self.waiting.same_as(&other.waiting)
    }

    /// Follows one event that the state has just folded. `before` is what [`Self::expect`] returned for it before the fold.
    pub fn follow(&mut self, state: &State, event: &Event, before: Before) {
        match event {
            Event::NodeSeen { node, .. } => {
                let added = self.capacity.add_node(state, *node);
                self.rebuild_capacity_unless(added, state);
            }
            Event::DeviceSeen { device, .. } => {
                let added = self.capacity.add_device(state, *device);
                self.rebuild_capacity_unless(added, state);
            }
            Event::DeviceChanged { device, .. } => self.capacity.refresh(state, *device),
            Event::PolicySet { .. } => *self = Self::new(state),
            Event::QueuesSet { .. } => self.waiting.rebuild(state),
            Event::Placed { job, placements, .. } => {
                placements.iter().for_each(|placement| self.take(state, *job, placement));
            }
            Event::Estimated { job, .. } => {
                let runs = state.jobs.get(&job.number).map(runs).unwrap_or_default();
                runs.into_iter().for_each(|(id, _)| self.running.consider(state, id, state.now));
            }
            Event::Promised(promise) => {
                promise.placements.iter().for_each(|placement| self.take(state, promise.job, placement));
            }
            Event::Stopping { job, .. } => {
                before.stopped.iter().for_each(|placement| self.leave(state, *job, placement));
            }
            Event::TaskEnded { .. } => {
                if let Some(Freed { placement, holder, leaves }) = &before.freed {
                    self.capacity.give_back(placement);
                    self.charge_holder(state, holder, placement, -1);
                    if *leaves {
                        charge(&mut self.leaving, (&holder.queue, state), placement, -1);
                    }
                }
            }
            _ => {}
        }
        for (promise, holder) in
            before.promises.iter().filter(|(promise, _)| !state.promises.contains_key(&promise.job))
        {
            for placement in &promise.placements {
                self.capacity.give_back(placement);
                self.charge_holder(state, holder, placement, -1);
            }
        }
        self.follow_job(state, event, (before.job, before.limit));
    }

    fn take(&mut self, state: &State, job: JobId, placement: &Placement) {
        self.capacity.take(placement);
        self.charge(state, job, placement, 1);
    }

    /// What an event is about to take away, read before it is folded.
    pub fn expect(&self, state: &State, event: &Event) -> Before {
        let mut before = Before::default();
        if let Event::TaskEnded { allocation, .. } = event {
            before.freed = freed(state, *allocation);
        }
        if let Event::Stopping { job, .. } = event {
            before.stopped = running_on(state, *job);
        }
        before.job = event_job(state, event);
        before.promises = before.job.map(|job| promises(state, event, job)).unwrap_or_default();
        before.limit = before.job.and_then(|id| limit_entry(state, id));
        before
    }

    fn follow_job(
        &mut self,
        state: &State,
        event: &Event,
        (job, limit_before): (Option<JobId>, Option<(Time, JobId)>),
    ) {
        if let Some(entry) = limit_before {
            self.limits.remove(&entry);
        }
        if let Some(id) = job {
            self.limits.extend(limit_entry(state, id));
            self.waiting.consider(state, id.number);
            self.running.consider(state, id, state.now);
        }
        if let Event::AttemptEnded { job, .. } | Event::Dropped { job, .. } = event {
            self.waiting.wake_dependents(state, job.number);
        }
    }

    /// Lets jobs whose start time has come be considered.
    pub fn pass_time(&mut self, state: &State, now: Time) {
        self.waiting.pass_time(state, now);
        self.running.pass_time(state, now);
    }

    /// The next moment at which something is due.
    pub fn due(&self) -> Option<Time> {
        let limit = self.limits.first().map(|(at, _)| *at);
        [limit, self.waiting.next_start(), self.running.next_crossing()].into_iter().flatten().min()
    }

    fn rebuild_capacity_unless(&mut self, added: bool, state: &State) {
        if added {
            return;
        }
        self.capacity = Capacity::new(state);
        let promised = state.promises.values().flat_map(|promise| &promise.placements);
        let held = state.allocations.values().map(|allocation| &allocation.placement);
        held.chain(promised).for_each(|placement| self.capacity.take(placement));
    }

    fn charge(&mut self, state: &State, job: JobId, placement: &Placement, sign: i64) {
        if let Some(holder) = Holder::of(state, job) {
            self.charge_holder(state, &holder, placement, sign);
        }
    }

    fn charge_holder(&mut self, state: &State, holder: &Holder, placement: &Placement, sign: i64) {
        charge(&mut self.held, (&holder.queue, state), placement, sign);
        if holder.pins {
            charge(&mut self.pinned, (&holder.queue, state), placement, sign);
        }
    }

    fn leave(&mut self, state: &State, job: JobId, placement: &Placement) {
        if let Some(job) = state.jobs.get(&job.number) {
            charge(&mut self.leaving, (&job.spec.queue, state), placement, 1);
        }
    }
}

/// Counts what a task holds for its queue and all above it.
fn charge(
    books: &mut BTreeMap<String, Holdings>,
    (queue, state): (&str, &State),
    placement: &Placement,
    sign: i64,
) {
    let model = |device: DeviceId| state.devices.get(&device).map(|device| device.spec.model.as_str());
    count(placement, model, |resource, amount| {
        for path in lineage(queue) {
            let held = match books.get_mut(path) {
                Some(held) => held,
                None => books.entry(path.to_owned()).or_default(),
            };
            // Cannot leave its range: what is taken away here was added before.
            let _ = held.change(&resource, sign * amount);
        }
    });
    for path in lineage(queue) {
        if books.get(path).is_some_and(|held| held.0.is_empty()) {
            books.remove(path);
        }
    }
}

/// For whom something is held: the queue, and whether the job is not preemptible.
#[derive(Clone, Debug)]
struct Holder {
    queue: String,
    pins: bool,
}

impl Holder {
    fn of(state: &State, job: JobId) -> Option<Self> {
        let spec = &state.jobs.get(&job.number)?.spec;
        Some(Self { queue: spec.queue.clone(), pins: !spec.preemptible })
    }
}

/// What an event takes away, read before it is folded.
#[derive(Clone, Debug, Default)]
pub struct Before {
    freed: Option<Freed>,
    /// What a job that is told to stop holds, as far as it was not told before.
    stopped: Vec<Placement>,
    promises: Vec<(Promise, Holder)>,
    job: Option<JobId>,
    limit: Option<(Time, JobId)>,
}

/// What a task held that ends.
#[derive(Clone, Debug)]
struct Freed {
    placement: Placement,
    holder: Holder,
    /// Whether it was being stopped.
    leaves: bool,
}

fn freed(state: &State, allocation: AllocationId) -> Option<Freed> {
    let held = state.allocations.get(&allocation)?;
    let holder = Holder::of(state, held.job)?;
    let leaves = held.state == AllocationState::Stopping;
    Some(Freed { placement: held.placement.clone(), holder, leaves })
}

/// What a job holds that was not told to stop yet.
fn running_on(state: &State, job: JobId) -> Vec<Placement> {
    let live = state.run(job).map(|run| run.live.as_slice()).unwrap_or_default();
    let held = live.iter().filter_map(|id| state.allocations.get(id));
    held.filter(|held| held.state != AllocationState::Stopping).map(|held| held.placement.clone()).collect()
}

/// The promises that an event about a job may take away, with its queue.
fn promises(state: &State, event: &Event, id: JobId) -> Vec<(Promise, Holder)> {
    if state.promises.is_empty() {
        return Vec::new();
    }
    let found = |promise: &Promise| Some((promise.clone(), Holder::of(state, promise.job)?));
    match event {
        Event::Placed { .. } | Event::Revoked { .. } | Event::AttemptEnded { .. } => {
            state.promises.get(&id).and_then(found).into_iter().collect()
        }
        // An array as a whole, with what is promised to its members.
        Event::Dropped { .. } => {
            let meant = |promise: &&Promise| promise.job.number == id.number;
            state.promises.values().filter(meant).filter_map(found).collect()
        }
        _ => Vec::new(),
    }
}

/// The runs of a job that something has happened to.
fn runs(job: &Job) -> Vec<(JobId, &Run)> {
    match &job.runs {
        Runs::Single(run) => vec![(job.id(), run)],
        Runs::Array(array) => {
            array.touched.iter().map(|(member, run)| (JobId::member(job.number, *member), run)).collect()
        }
    }
}

/// The job (or member) that an event is about.
fn event_job(state: &State, event: &Event) -> Option<JobId> {
    match event {
        Event::Submitted(submission) => Some(JobId::single(submission.number)),
        Event::Promised(promise) => Some(promise.job),
        Event::Held { job, .. }
        | Event::Checkpointed { job, .. }
        | Event::Released { job, .. }
        | Event::Placed { job, .. }
        | Event::Estimated { job, .. }
        | Event::Revoked { job }
        | Event::Stopping { job, .. }
        | Event::AttemptEnded { job, .. }
        | Event::Dropped { job, .. } => Some(*job),
        Event::TaskStarted { allocation, .. } | Event::TaskEnded { allocation, .. } => {
            state.allocations.get(allocation).map(|held| held.job)
        }
        _ => None,
    }
}

fn limit_entry(state: &State, id: JobId) -> Option<(Time, JobId)> {
    let spec = &state.jobs.get(&id.number)?.spec;
    Some((limit_of(spec, state.run(id)?)?, id))
}

/// When a run reaches its time limit, if it has one and was not told to stop yet.
fn limit_of(spec: &JobSpec, run: &Run) -> Option<Time> {
    (run.stopping.is_none()).then_some(())?;
    Some(run.started_at? + spec.time_limit?)
}
