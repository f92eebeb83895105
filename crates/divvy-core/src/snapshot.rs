//! The snapshot: the state as the planner wants it. Kept incrementally; equal to one built anew (L3).

mod capacity;
mod waiting;

pub use capacity::{Capacity, DeviceView, NodeView, Unusable};
pub use waiting::{ClassView, OrderKey, Waiting};

use std::collections::{BTreeMap, BTreeSet};

use crate::amount::Holdings;
use crate::event::Event;
use crate::id::{AllocationId, DeviceId, JobId};
use crate::model::allocation::Placement;
use crate::model::job::JobSpec;
use crate::model::queue::lineage;
use crate::state::{Run, Runs, State, counted};
use crate::time::Time;

/// What the planner sees.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// What is free on each node.
    pub capacity: Capacity,
    /// What each queue and its children hold.
    pub held: BTreeMap<String, Holdings>,
    /// Who waits.
    pub waiting: Waiting,
    /// When the attempts that run reach their limits.
    pub limits: BTreeSet<(Time, JobId)>,
}

impl Snapshot {
    /// Builds it anew.
    pub fn new(state: &State) -> Self {
        let mut snapshot = Self { capacity: Capacity::new(state), ..Self::default() };
        for allocation in state.allocations.values() {
            snapshot.capacity.take(&allocation.placement);
            snapshot.charge(state, allocation.job, &allocation.placement, 1);
        }
        for job in state.jobs.values() {
            snapshot.waiting.consider(state, job.number);
            let runs: Vec<(JobId, &Run)> = match &job.runs {
                Runs::Single(run) => vec![(job.id(), run)],
                Runs::Array(array) => array
                    .touched
                    .iter()
                    .map(|(member, run)| (JobId::member(job.number, *member), run))
                    .collect(),
            };
            snapshot
                .limits
                .extend(runs.into_iter().filter_map(|(id, run)| Some((limit_of(&job.spec, run)?, id))));
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
            && self.waiting.same_as(&other.waiting)
    }

    /// Follows one event that the state has just folded. `before` is what [`Self::expect`] returned for it before the fold.
    pub fn follow(&mut self, state: &State, event: &Event, before: Before) {
        match event {
            Event::NodeSeen { .. } | Event::DeviceSeen { .. } => self.rebuild_capacity(state),
            Event::DeviceChanged { device, .. } => self.capacity.refresh(state, *device),
            Event::PolicySet { .. } | Event::QueuesSet { .. } => self.waiting.rebuild(state),
            Event::Placed { job, placements, .. } => {
                for placement in placements {
                    self.capacity.take(placement);
                    self.charge(state, *job, placement, 1);
                }
            }
            Event::TaskEnded { .. } => {
                if let Some((placement, queue)) = &before.freed {
                    self.capacity.give_back(placement);
                    self.charge_queue(state, queue, placement, -1);
                }
            }
            _ => {}
        }
        self.follow_jobs(state, event, (before.jobs, before.limits));
    }

    /// What an event is about to take away, read before it is folded.
    pub fn expect(&self, state: &State, event: &Event) -> Before {
        let mut before = Before::default();
        if let Event::TaskEnded { allocation, .. } = event {
            before.freed = freed(state, *allocation);
        }
        before.jobs = event_jobs(state, event);
        before.limits = before.jobs.iter().filter_map(|id| limit_entry(state, *id)).collect();
        before
    }

    fn follow_jobs(
        &mut self,
        state: &State,
        event: &Event,
        (jobs, limits_before): (Vec<JobId>, Vec<(Time, JobId)>),
    ) {
        for entry in limits_before {
            self.limits.remove(&entry);
        }
        for id in jobs {
            self.limits.extend(limit_entry(state, id));
            self.waiting.consider(state, id.number);
        }
        if let Event::AttemptEnded { job, .. } | Event::Dropped { job, .. } = event {
            self.waiting.wake_dependents(state, job.number);
        }
    }

    /// Lets jobs whose start time has come be considered.
    pub fn pass_time(&mut self, state: &State, now: Time) {
        self.waiting.pass_time(state, now);
    }

    /// The next moment at which something is due.
    pub fn due(&self) -> Option<Time> {
        let limit = self.limits.first().map(|(at, _)| *at);
        [limit, self.waiting.next_start()].into_iter().flatten().min()
    }

    fn rebuild_capacity(&mut self, state: &State) {
        self.capacity = Capacity::new(state);
        state.allocations.values().for_each(|allocation| self.capacity.take(&allocation.placement));
    }

    fn charge(&mut self, state: &State, job: JobId, placement: &Placement, sign: i64) {
        if let Some(job) = state.jobs.get(&job.number) {
            self.charge_queue(state, &job.spec.queue, placement, sign);
        }
    }

    fn charge_queue(&mut self, state: &State, queue: &str, placement: &Placement, sign: i64) {
        let model = |device: DeviceId| state.devices.get(&device).map(|device| device.spec.model.clone());
        let amounts = counted(placement, model);
        for path in lineage(queue) {
            let held = self.held.entry(path.to_owned()).or_default();
            for (resource, amount) in amounts.iter() {
                // Cannot leave its range: what is taken away here was added before.
                let _ = held.change(resource, sign * amount);
            }
            if held.0.is_empty() {
                self.held.remove(path);
            }
        }
    }
}

/// What an event takes away, read before it is folded.
#[derive(Clone, Debug, Default)]
pub struct Before {
    freed: Option<(Placement, String)>,
    jobs: Vec<JobId>,
    limits: Vec<(Time, JobId)>,
}

fn freed(state: &State, allocation: AllocationId) -> Option<(Placement, String)> {
    let held = state.allocations.get(&allocation)?;
    let queue = state.jobs.get(&held.job.number)?.spec.queue.clone();
    Some((held.placement.clone(), queue))
}

/// The jobs (or members) that an event is about.
fn event_jobs(state: &State, event: &Event) -> Vec<JobId> {
    match event {
        Event::Submitted(submission) => vec![JobId::single(submission.number)],
        Event::Held { job, .. }
        | Event::Released { job, .. }
        | Event::Placed { job, .. }
        | Event::Stopping { job, .. }
        | Event::AttemptEnded { job, .. }
        | Event::Dropped { job, .. } => vec![*job],
        Event::TaskStarted { allocation, .. } | Event::TaskEnded { allocation, .. } => {
            state.allocations.get(allocation).map(|held| held.job).into_iter().collect()
        }
        _ => Vec::new(),
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
