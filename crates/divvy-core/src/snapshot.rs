//! The snapshot: the state as the planner wants it. Kept incrementally; equal to one built anew (L3).

mod anew;
mod capacity;
mod device;
mod hosts;
pub(crate) mod neighbours;
pub(crate) mod order;
mod running;
mod shelves;
mod sites;
mod sizes;
mod steps;
mod waiting;

use neighbours::{Neighbours, Presence};

pub(crate) use capacity::Drained;
pub use capacity::{Capacity, NodeView, TaskCounts, task_kind};
pub use device::{DeviceView, Unusable};
pub(crate) use hosts::Hosts;
pub use order::OrderKey;
pub(crate) use running::Spot;
pub use running::{QueueOf, RunView, Running};
pub(crate) use sites::Lanes;
pub(crate) use sizes::Sizes;
pub use waiting::{ClassView, Waiting};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::amount::{Holdings, Resource};
use crate::event::Event;
use crate::id::{AllocationId, ClassId, JobId};
use crate::model::allocation::{AllocationState, Placement};
use crate::model::job::JobSpec;
use crate::model::models::ByModels;
use crate::model::promise::Promise;
use crate::model::queue::lineage;
use crate::plan::{Scores, Shares};
use crate::state::{Allocation, Job, Run, Runs, State, count};
use crate::time::Time;

/// What the planner sees.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// What is free on each node.
    pub capacity: Capacity,
    /// Which tasks lie on which node, as far as affinity looks at it.
    pub(crate) neighbours: Neighbours,
    /// Which tasks run on which node.
    pub(crate) hosts: Hosts,
    /// What each queue and its children hold.
    pub held: BTreeMap<String, Holdings>,
    /// The part of it that is held by tasks that are being stopped.
    pub leaving: BTreeMap<String, Holdings>,
    /// The allocations of those of these tasks that can be counted on to end.
    pub leavers: BTreeSet<AllocationId>,
    /// When they are overdue.
    pub(crate) stops: BTreeSet<(Time, AllocationId)>,
    /// The part of it that jobs which are not preemptible hold, or are promised.
    pub pinned: BTreeMap<String, Holdings>,
    /// The part of it (thousandths of devices) held by, or promised to, tasks that can run on some models only: of each queue by itself.
    pub(crate) bound: BTreeMap<String, ByModels<i64>>,
    /// The queues as the planner divides the pool between them, with what they hold.
    pub(crate) shares: Shares,
    /// The waiting jobs.
    pub waiting: Waiting,
    /// The running jobs that may have to give way.
    pub running: Running,
    /// The jobs that run with fewer tasks than they may have.
    pub growing: BTreeSet<JobId>,
    /// When the attempts that run reach their limits.
    pub limits: BTreeSet<(Time, JobId)>,
    /// The scores of nodes: a cache.
    pub(crate) scores: Scores,
    /// The classes found to wait for what the pool does not have, whatever is free, since that last changed: likewise a cache.
    pub(crate) stuck: BTreeSet<ClassId>,
}

impl Snapshot {
    /// Builds it anew.
    pub fn new(state: &State) -> Self {
        let capacity = Capacity::new(state);
        let shares = Shares::tree(state, &capacity);
        let neighbours = Neighbours::nobody(&state.heeded);
        let mut snapshot = Self { capacity, shares, neighbours, ..Self::default() };
        for allocation in state.allocations.values() {
            snapshot.hosts.add(&allocation.placement);
            snapshot.take(state, allocation.job, (&allocation.placement, Presence::There));
            if allocation.state == AllocationState::Stopping {
                snapshot.leave(state, allocation.job, &allocation.placement);
                snapshot.await_end(allocation);
            }
        }
        for promise in state.promises.values() {
            let all = promise.placements.iter();
            all.for_each(|placement| snapshot.take(state, promise.job, (placement, Presence::Passing)));
        }
        snapshot.waiting.rebuild(state, &snapshot.shares);
        for job in state.jobs.values() {
            for (id, run) in runs(job).filter(|(_, run)| run.is_active()) {
                snapshot.running.consider(state, id, state.now);
                snapshot.limits.extend(limit_of(&job.spec, run).map(|at| (at, id)));
                snapshot.growing.extend(may_grow(&job.spec, run).then_some(id));
            }
        }
        snapshot
    }

    /// The pool without any job: what a new job is measured against.
    pub fn emptied(state: &State) -> Self {
        let neighbours = Neighbours::nobody(&state.heeded);
        Self { capacity: Capacity::whole(state), neighbours, ..Self::default() }
    }

    /// The pool as it is, but without any job.
    pub(crate) fn unused(state: &State) -> Self {
        let capacity = Capacity::new(state);
        let shares = Shares::tree(state, &capacity);
        Self { capacity, shares, neighbours: Neighbours::nobody(&state.heeded), ..Self::default() }
    }

    /// Copies what placing changes, and nothing else: a scratch pad that costs what the pool has, however many jobs wait.
    pub(crate) fn scratch(&self) -> Self {
        let Self { capacity, neighbours, held, scores, .. } = self;
        let (capacity, held, scores) = (capacity.clone(), held.clone(), scores.clone());
        Self { capacity, neighbours: neighbours.clone(), held, scores, ..Self::default() }
    }

    /// Whether two snapshots see the same pool.
    pub fn same_as(&self, other: &Self) -> bool {
        (&self.capacity, &self.held, &self.limits) == (&other.capacity, &other.held, &other.limits)
            && (&self.leaving, &self.pinned, &self.bound) == (&other.leaving, &other.pinned, &other.bound)
            && (&self.leavers, &self.stops, &self.neighbours)
                == (&other.leavers, &other.stops, &other.neighbours)
            && self.hosts == other.hosts
            && (&self.shares, &self.growing) == (&other.shares, &other.growing)
            && self.running == other.running
            && self.waiting.same_as(&other.waiting)
    }

    /// Follows one event that the state has just folded. `before` is what [`Self::expect`] returned for it before the fold.
    pub fn follow(&mut self, state: &State, event: &Event, before: Before) {
        match event {
            Event::NodeSeen { node, .. } => {
                let added = !before.is_known_node && self.capacity.add_node(state, *node);
                self.rebuild_capacity_unless(added, state);
                self.size_anew(state);
            }
            Event::DeviceSeen { device, .. } => {
                let added = self.capacity.add_device(state, *device);
                self.rebuild_capacity_unless(added, state);
                self.size_anew(state);
            }
            Event::DeviceChanged { device, .. } => self.capacity.refresh(state, *device),
            Event::TermBegan { .. } => {
                self.stops.clear();
                state.allocations.values().for_each(|held| self.await_end(held));
            }
            Event::ReservationBegan { .. } | Event::ReservationEnded { .. } => {
                self.rebuild_capacity_unless(false, state);
                self.divide_anew(state);
            }
            Event::PolicySet { .. } => *self = Self::new(state),
            Event::Prioritised { job, .. } => self.stand_anew(state, job.number),
            Event::QueuesSet { .. } if before.stands || has_stands(state) => *self = Self::new(state),
            Event::QueuesSet { .. } => self.divide_anew(state),
            Event::OthersHold { node, .. } => self.capacity.leave_to_others(state, *node),
            // Jobs that were alike may differ now.
            Event::Submitted(_) if before.heeded != state.heeded.len() => *self = Self::new(state),
            Event::Submitted(submission) => self.seat(state, submission.number),
            Event::Placed { job, placements, .. }
            | Event::Adopted { job, placements, .. }
            | Event::Grown { job, placements } => {
                for placement in placements {
                    self.hosts.add(placement);
                    self.take(state, *job, (placement, Presence::There));
                }
            }
            Event::Stopping { job, .. } | Event::Shrinking { job, .. } => {
                live(state, *job).for_each(|held| self.await_end(held));
            }
            Event::Judged { classes } => {
                classes.iter().for_each(|(class, _)| self.waiting.look_at_verdict(state, *class));
            }
            Event::Estimated { job, .. } => {
                let runs = state.jobs.get(&job.number).into_iter().flat_map(runs);
                runs.for_each(|(id, _)| self.running.consider(state, id, state.now));
            }
            Event::Promised(promise) => {
                let all = promise.placements.iter();
                all.for_each(|placement| self.take(state, promise.job, (placement, Presence::Passing)));
            }
            _ => {}
        }
        if event.changes_pool() || matches!(event, Event::OthersHold { .. }) {
            self.stuck.clear();
        }
        for (promise, holder) in
            before.promises.iter().filter(|(promise, _)| !state.promises.contains_key(&promise.job))
        {
            let all = promise.placements.iter();
            all.for_each(|placement| self.give_back(state, holder, (placement, Presence::Passing)));
        }
        if before.relieved != relieved(state) {
            before.relieved.into_iter().for_each(|job| self.running.consider(state, job, state.now));
        }
        self.follow_job(state, event, (before.job, before.limit));
        if before.pledged != state.pledges.changes() {
            self.divide_anew(state);
        }
    }

    fn take(&mut self, state: &State, job: JobId, (placement, presence): (&Placement, Presence)) {
        self.capacity.take(placement);
        let Some(job) = state.jobs.get(&job.number) else { return };
        self.neighbours.add(self.neighbours.kind(&job.spec, placement.rank), placement.node, presence);
        self.charge(state, &job.spec, placement, 1);
    }

    fn give_back(&mut self, state: &State, holder: &JobSpec, (placement, presence): (&Placement, Presence)) {
        self.capacity.give_back(placement);
        let kind = self.neighbours.kind(holder, placement.rank);
        self.neighbours.remove(kind.as_ref(), placement.node, presence);
        self.charge(state, holder, placement, -1);
    }

    /// Before an event is folded, lets go of what it is about to take away, and notes what must be known later of how things were.
    pub fn expect(&mut self, state: &State, event: &Event) -> Before {
        let mut before = Before::default();
        match event {
            Event::TaskEnded { allocation, .. } => self.let_go(state, *allocation),
            Event::NodeSeen { node, .. } => before.is_known_node = state.nodes.contains_key(node),
            Event::Overdue { allocation } => {
                state.allocations.get(allocation).into_iter().for_each(|held| self.await_no_end(held));
            }
            Event::Stopping { job, .. } => {
                live(state, *job).for_each(|held| self.await_no_end(held));
                running_on(state, *job).for_each(|placement| self.leave(state, *job, placement));
            }
            Event::Shrinking { job, allocations, .. } => {
                live(state, *job).for_each(|held| self.await_no_end(held));
                let goes = |placement: &&Placement| allocations.contains(&placement.allocation);
                let going = running_on(state, *job).filter(goes);
                going.for_each(|placement| self.leave(state, *job, placement));
            }
            _ => {}
        }
        before.stands = matches!(event, Event::QueuesSet { .. }) && has_stands(state);
        before.heeded = state.heeded.len();
        before.relieved = relieved(state);
        before.pledged = state.pledges.changes();
        before.job = event_job(state, event);
        before.promises = before.job.map(|job| promises(state, event, job)).unwrap_or_default();
        let limited = before.job.filter(|_| !self.limits.is_empty());
        before.limit = limited.and_then(|id| limit_entry(state, id));
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
            let known = known_run(state, id);
            self.limits.extend(known.and_then(|(job, run)| Some((limit_of(&job.spec, run)?, id))));
            match known.is_some_and(|(job, run)| may_grow(&job.spec, run)) {
                true => drop(self.growing.insert(id)),
                false => drop(self.growing.remove(&id)),
            }
            // What happens to a job that has its devices does not change which jobs wait.
            if !matches!(event, Event::TaskStarted { .. } | Event::TaskEnded { .. } | Event::Stopping { .. })
            {
                self.waiting.consider(state, &self.shares, id.number);
            }
            self.running.consider(state, id, state.now);
        }
        if let Event::AttemptEnded { job, .. } | Event::Dropped { job, .. } = event {
            self.waiting.wake_dependents(state, &self.shares, job.number);
        }
    }

    /// Lets jobs whose start time has come be considered.
    pub fn pass_time(&mut self, state: &State, now: Time) {
        self.waiting.pass_time(state, &self.shares, now);
        self.running.pass_time(state, now);
    }

    /// The next moment at which something is due.
    pub fn due(&self) -> Option<Time> {
        let limit = self.limits.first().map(|(at, _)| *at);
        let overdue = self.stops.first().map(|(at, _)| *at);
        [limit, overdue, self.waiting.next_start(), self.running.next_crossing()].into_iter().flatten().min()
    }

    /// When time alone changes which jobs may take devices, or from which.
    pub(crate) fn next_turn_of_time(&self, state: &State) -> Option<Time> {
        // Moments that have passed unseen still count, whatever was folded since.
        let seen = state.ticked_at;
        let redone = || self.running.next_redone(seen).filter(|_| !state.pledges.is_empty());
        let let_go = [self.running.next_cooled(seen), redone()].into_iter().flatten();
        self.next_relief(state).into_iter().chain(let_go.filter(|_| !self.waiting.is_empty())).min()
    }

    /// When a job may be due a place before all others, or the time of the job that has such a place is over.
    fn next_relief(&self, state: &State) -> Option<Time> {
        let after = state.policy.starve_after()?;
        if state.relief.open.is_some() {
            return state.relief_ends();
        }
        let again = state.relief.last.map_or(Time(0), |last| last + after);
        let waited = state.ticked_at - after;
        // Jobs that had waited long enough before and could not be helped are looked at with the others, whenever there is a cycle.
        let waits = self.waiting.idle_since(waited).next().map(|_| again).filter(|at| *at > state.ticked_at);
        let next = self.waiting.idle_after(waited).map(|since| (since + after).max(again));
        waits.into_iter().chain(next).min()
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

    /// Lets go of what a task held that is about to end.
    fn let_go(&mut self, state: &State, allocation: AllocationId) {
        let Some(held) = state.allocations.get(&allocation) else { return };
        let Some(job) = state.jobs.get(&held.job.number) else { return };
        self.hosts.remove(&held.placement);
        self.give_back(state, &job.spec, (&held.placement, held.presence()));
        if held.state == AllocationState::Stopping {
            self.await_no_end(held);
            self.count_leaving(state, &job.spec, (&held.placement, -1));
        }
    }

    /// Counts what a task holds for its queue and all above it.
    fn charge(&mut self, state: &State, holder: &JobSpec, placement: &Placement, sign: i64) {
        let pins = !holder.preemptible;
        self.bind(holder, placement, sign);
        let Self { capacity, held, pinned, shares, .. } = self;
        count_drawn(state, capacity, placement, |drawn| {
            count_held(held, holder.stand(), drawn, sign);
            if pins {
                count_held(pinned, holder.stand(), drawn, sign);
            }
            shares.hold(holder.stand(), drawn, (sign, pins));
        });
    }

    /// Counts it for its queue alone if the task could hold some models only.
    fn bind(&mut self, holder: &JobSpec, placement: &Placement, sign: i64) {
        let role = holder.gang.role_of(placement.rank);
        let Some(models) = role.and_then(|(role, _)| role.ask.only_models()) else { return };
        let more = sign * placement.milli();
        let held = self.bound.entry(holder.stand().to_owned()).or_default();
        held.change(&models, |milli| *milli += more);
        if held.is_empty() {
            self.bound.remove(holder.stand());
        }
        self.shares.bind(holder.stand(), (&models, more));
    }

    fn leave(&mut self, state: &State, job: JobId, placement: &Placement) {
        if let Some(job) = state.jobs.get(&job.number) {
            let kind = self.neighbours.kind(&job.spec, placement.rank);
            self.neighbours.remove(kind.as_ref(), placement.node, Presence::There);
            self.neighbours.add(kind, placement.node, Presence::Passing);
            self.count_leaving(state, &job.spec, (placement, 1));
        }
    }

    /// Counts on the end of a task, if it was told to stop and can be counted on.
    fn await_end(&mut self, held: &Allocation) {
        self.leavers.extend(held.leaves().then_some(held.placement.allocation));
        self.stops.extend(held.overdue_at().map(|at| (at, held.placement.allocation)));
    }

    fn await_no_end(&mut self, held: &Allocation) {
        self.leavers.remove(&held.placement.allocation);
        if let Some(at) = held.overdue_at() {
            self.stops.remove(&(at, held.placement.allocation));
        }
    }

    /// The tasks that have not ended in time and that nobody has noted yet.
    pub(crate) fn overdue(&self, now: Time) -> Vec<AllocationId> {
        self.stops.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect()
    }

    fn count_leaving(&mut self, state: &State, holder: &JobSpec, (placement, sign): (&Placement, i64)) {
        let Self { capacity, leaving, shares, .. } = self;
        count_drawn(state, capacity, placement, |drawn| {
            count_held(leaving, holder.stand(), drawn, sign);
            shares.leave(holder.stand(), drawn, sign);
        });
    }
}

/// Passes on what a placement draws, each resource once. Resource names are not copied where its devices are there and of one model.
pub(crate) fn count_drawn(
    state: &State,
    capacity: &Capacity,
    placement: &Placement,
    counts: impl FnOnce(&[(&Resource, i64)]),
) {
    let model = capacity.one_model(placement);
    if model.is_some() || placement.devices.is_empty() {
        let milli = placement.milli();
        let models = model.map(|model| (model, milli));
        let all = std::iter::once((&Resource::Any, milli)).chain(models);
        let host = [(&Resource::Cpu, placement.cpu_milli), (&Resource::Memory, placement.memory_bytes)];
        let extras = placement.extras.iter();
        let drawn: SmallVec<[_; 4]> =
            all.chain(host).chain(extras).filter(|(_, amount)| *amount != 0).collect();
        return counts(&drawn);
    }
    let mut owned = Vec::new();
    let model = |device| state.devices.get(&device).map(|device| device.spec.model.as_str());
    count(placement, model, |resource, amount| owned.push((resource, amount)));
    let drawn: Vec<(&Resource, i64)> = owned.iter().map(|(resource, amount)| (resource, *amount)).collect();
    counts(&drawn);
}

/// Counts what is drawn for a queue and all above it.
fn count_held(books: &mut BTreeMap<String, Holdings>, queue: &str, drawn: &[(&Resource, i64)], sign: i64) {
    for path in lineage(queue) {
        let held = match books.get_mut(path) {
            Some(held) => held,
            None => books.entry(path.to_owned()).or_default(),
        };
        for (resource, amount) in drawn {
            // Cannot overflow: what is taken away here was added before.
            let _ = held.change(resource, sign * amount);
        }
        if held.0.is_empty() {
            books.remove(path);
        }
    }
}

/// What is remembered of how things were before an event.
#[derive(Clone, Debug, Default)]
pub struct Before {
    /// Whether the node that was seen had been known before: a node that comes back has its devices already.
    is_known_node: bool,
    /// Whether queues had seats for their users, or nodes of their own.
    stands: bool,
    /// The number of labels by which jobs selected others.
    heeded: usize,
    /// The promises that the event may end, each with the job that they were made to.
    promises: Vec<(Promise, Arc<JobSpec>)>,
    job: Option<JobId>,
    limit: Option<(Time, JobId)>,
    /// The job that keeps its place, whichever job wants it.
    relieved: Option<JobId>,
    /// How often what the pledges come to had changed.
    pledged: u64,
}

/// Whether any queue gives its users seats of their own, or keeps nodes for its jobs.
fn has_stands(state: &State) -> bool {
    state.has_seats() || state.keeps_nodes()
}

/// The job that keeps its place, whichever job wants it.
fn relieved(state: &State) -> Option<JobId> {
    state.relief.open.map(|(job, _)| job)
}

/// What a job's tasks hold.
fn live(state: &State, job: JobId) -> impl Iterator<Item = &Allocation> {
    let live = state.run(job).map(|run| run.live.as_slice()).unwrap_or_default();
    live.iter().filter_map(|id| state.allocations.get(id))
}

/// The placements of a job's tasks that have not been told to stop.
fn running_on(state: &State, job: JobId) -> impl Iterator<Item = &Placement> {
    live(state, job).filter(|held| held.state != AllocationState::Stopping).map(|held| &held.placement)
}

/// The promises that an event about a job may take away, each with the job that it was made to.
fn promises(state: &State, event: &Event, id: JobId) -> Vec<(Promise, Arc<JobSpec>)> {
    if state.promises.is_empty() {
        return Vec::new();
    }
    let owner = |promise: &Promise| Some(Arc::clone(&state.jobs.get(&promise.job.number)?.spec));
    let found = |promise: &Promise| Some((promise.clone(), owner(promise)?));
    match event {
        Event::Placed { .. } | Event::Grown { .. } | Event::Revoked { .. } | Event::AttemptEnded { .. } => {
            state.promises.get(&id).and_then(found).into_iter().collect()
        }
        // An array as a whole ends, with what is promised to its members.
        Event::Dropped { .. } => {
            let meant = |promise: &&Promise| promise.job.number == id.number;
            state.promises.values().filter(meant).filter_map(found).collect()
        }
        _ => Vec::new(),
    }
}

/// The runs of a job to which something has happened.
fn runs(job: &Job) -> impl Iterator<Item = (JobId, &Run)> {
    let (single, array) = match &job.runs {
        Runs::Single(run) => (Some((job.id(), run)), None),
        Runs::Array(array) => (None, Some(&array.touched)),
    };
    let members = array.into_iter().flatten();
    single.into_iter().chain(members.map(|(member, run)| (JobId::member(job.number, *member), run)))
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
        | Event::Adopted { job, .. }
        | Event::Grown { job, .. }
        | Event::Shrinking { job, .. }
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

/// A job, and its run (or that of its member) to which something has happened.
fn known_run(state: &State, id: JobId) -> Option<(&Job, &Run)> {
    let job = state.jobs.get(&id.number)?;
    Some((job, job.known_run(id.member)?))
}

fn limit_entry(state: &State, id: JobId) -> Option<(Time, JobId)> {
    let (job, run) = known_run(state, id)?;
    Some((limit_of(&job.spec, run)?, id))
}

/// Whether a gang runs and may get further tasks: none are promised to it yet, and it has not been told to stop.
fn may_grow(spec: &JobSpec, run: &Run) -> bool {
    spec.gang.is_elastic()
        && run.is_active()
        && run.stopping.is_none()
        && !run.promised
        && run.placements.len() < spec.gang.most_tasks() as usize
}

/// When a run reaches its time limit, if it has one and has not been told to stop.
fn limit_of(spec: &JobSpec, run: &Run) -> Option<Time> {
    (run.stopping.is_none()).then_some(())?;
    Some(run.started_at? + spec.time_limit?)
}
