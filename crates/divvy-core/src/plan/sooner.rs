//! Phase 4, sooner: a job with promised devices starts at once where as much is free meanwhile that no job before it takes.
//! The promise is revoked and the job placed in one plan, so that it never loses the one without having the other.

use super::fair::Fair;
use super::turns::Turns;
use super::{Place, order, place};
use crate::event::Event;
use crate::model::allocation::Placement;
use crate::model::job::JobSpec;
use crate::model::promise::Promise;
use crate::snapshot::OrderKey;
use crate::state::State;

/// The promises that may be kept sooner than planned, in the order of their jobs.
pub(super) struct Sooner<'a> {
    open: Vec<Promised<'a>>,
}

struct Promised<'a> {
    promise: &'a Promise,
    spec: &'a JobSpec,
    queue: usize,
    place: OrderKey,
}

impl<'a> Sooner<'a> {
    /// None can start sooner unless something has become free.
    pub(super) fn new(fair: &Fair<'a, '_>) -> Self {
        let state = fair.trial.state;
        let mut open: Vec<Promised> = match may_be_sooner(state) {
            true => state.promises.values().filter_map(|promise| promised(fair, promise)).collect(),
            false => Vec::new(),
        };
        open.sort_by_key(|promised| (promised.place, promised.promise.job));
        Self { open }
    }

    /// Starts the jobs that stand first in their own queues, once the next in line is of the same queue or would go beyond its queue's due.
    pub(super) fn before_turn(&mut self, fair: &mut Fair<'a, '_>, turns: &Turns) -> Vec<Event> {
        if self.open.is_empty() {
            return Vec::new();
        }
        let Some(next) = turns.next_queue(&fair.shares) else { return Vec::new() };
        let is_beyond_due = turns.is_beyond_due(&fair.shares);
        let is_first = |it: &Promised| turns.first_of(it.queue).is_none_or(|head| it.place < head.place);
        let goes = |it: &mut Promised| (it.queue == next || is_beyond_due) && is_first(it);
        self.open.extract_if(.., goes).filter_map(|promised| start(fair, &promised)).collect()
    }

    /// Starts all others that fit beside those in line.
    pub(super) fn at_last(self, fair: &mut Fair<'a, '_>) -> Vec<Event> {
        self.open.into_iter().filter_map(|promised| start(fair, &promised)).collect()
    }
}

/// Whether a plan has to look for jobs that could start before what they wait for has ended.
pub(super) fn may_be_sooner(state: &State) -> bool {
    state.freed && !state.draining && state.promises.values().any(|promise| !promise.grows)
}

/// A promise to a job that waits for nothing else. A job that goes on elsewhere leaves its place for the new
/// one; a job that starved keeps what it was chosen for.
fn promised<'a>(fair: &Fair<'a, '_>, promise: &'a Promise) -> Option<Promised<'a>> {
    let state = fair.trial.state;
    let job = state.jobs.get(&promise.job.number)?;
    let run = state.run(promise.job)?;
    let waits =
        !promise.grows && !run.is_active() && !state.is_relieved(promise.job) && state.is_good(promise);
    let place = order::of_waiting(&state.policy, (job, Some(run)), fair.now);
    let queue = fair.shares.place(job.spec.stand());
    waits.then_some(Promised { promise, spec: &job.spec, queue, place })
}

/// Gives a job what is free now instead of what was promised to it; returns the end of the promise, if that worked.
fn start(fair: &mut Fair<'_, '_>, promised: &Promised) -> Option<Event> {
    let Promised { promise, spec, .. } = promised;
    let trial = &mut *fair.trial;
    let (mark, told) = (trial.mark(), trial.name_reasons(false));
    promise.placements.iter().for_each(|placement| trial.withdraw(placement.clone(), spec.stand()));
    let placed = place::place_spec(trial, spec)
        .ok()
        .filter(|found| is_as_much(trial.state, &promise.placements, found));
    trial.name_reasons(told);
    let Some(placements) = placed else {
        trial.roll_back_to(mark);
        return None;
    };
    fair.places.push(Place::new(promise.job, placements));
    Some(Event::Revoked { job: promise.job })
}

/// Whether placements are as much as was promised, task for task: then they draw the same from limits, guarantees and loans.
fn is_as_much(state: &State, promised: &[Placement], found: &[Placement]) -> bool {
    let model = |placement: &Placement| {
        let (device, _) = placement.devices.first()?;
        Some(&state.devices.get(device)?.spec.model)
    };
    let alike = |(one, other): (&Placement, &Placement)| {
        let drawn = |placement: &Placement| {
            (placement.rank, placement.milli(), placement.cpu_milli, placement.memory_bytes)
        };
        drawn(one) == drawn(other) && one.alternative == other.alternative && model(one) == model(other)
    };
    promised.len() == found.len() && promised.iter().zip(found).all(alike)
}
