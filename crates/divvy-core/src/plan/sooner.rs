//! Phase 4, sooner: a job with promised devices starts at once where as much is free meanwhile that no job before it takes.
//! The promise is revoked and the job placed in one plan, so that it never loses the one without having the other.

use super::fair::Fair;
use super::share::Closed;
use super::turns::{Turn, Turns};
use super::{Place, order, place, reserve};
use crate::event::Event;
use crate::model::allocation::Placement;
use crate::model::job::JobSpec;
use crate::model::promise::Promise;
use crate::snapshot::OrderKey;
use crate::state::State;

/// The promises that may be kept sooner than planned, in the order of their jobs.
pub(super) struct Sooner<'a> {
    open: Vec<Promised<'a>>,
    /// Whether the next turn is that of a job that takes no more than is due to its queue.
    is_due: bool,
    /// Whether a job has started: what its victims leave is free from then on, so the next plan of the cycle begins anew.
    has_started: bool,
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
        Self { open, is_due: false, has_started: false }
    }

    /// Starts the jobs that go before the next in line: those with no waiting job before them in their own queue, if the next is of that
    /// queue or would take its queue beyond what is due to it.
    pub(super) fn before_turn(&mut self, fair: &mut Fair<'a, '_>, turns: &Turns, ends: &mut Vec<Event>) {
        if self.open.is_empty() {
            return;
        }
        let Some(next) = turns.next_queue(&fair.shares) else { return };
        self.is_due = !turns.is_beyond_due(&fair.shares);
        let is_first = |it: &Promised| turns.first_of(it.queue).is_none_or(|head| it.place < head.place);
        let is_due = self.is_due;
        let goes = |it: &mut Promised| (it.queue == next || !is_due) && is_first(it);
        let going: Vec<Promised> = self.open.extract_if(.., goes).collect();
        self.start_all(fair, going, ends);
    }

    /// Notes that a job waits still. What is free, and what victims leave, might serve it next if it is due to its queue: no job of another
    /// queue takes that before it.
    pub(super) fn waits(&mut self, turn: Turn) {
        if self.is_due {
            self.open.retain(|promised| promised.queue == turn.queue);
        }
    }

    /// Starts all others that fit beside the jobs in line.
    pub(super) fn at_last(&mut self, fair: &mut Fair<'a, '_>, ends: &mut Vec<Event>) {
        let going = std::mem::take(&mut self.open);
        self.start_all(fair, going, ends);
    }

    /// Whether any job has started.
    pub(super) fn has_started(&self) -> bool {
        self.has_started
    }

    fn start_all(&mut self, fair: &mut Fair<'a, '_>, going: Vec<Promised<'a>>, ends: &mut Vec<Event>) {
        for promised in going {
            if let Some(placements) = placed(fair, &promised) {
                let job = promised.promise.job;
                fair.places.push(Place::new(job, placements));
                ends.push(Event::Revoked { job });
                self.has_started = true;
            }
        }
    }
}

/// Whether a plan has to look for jobs that could start before what they wait for has ended.
pub(super) fn may_be_sooner(state: &State) -> bool {
    state.freed && !state.draining && state.promises.values().any(|promise| !promise.grows)
}

/// A promise to a job that waits for nothing else. A job that is moved leaves its place for the new one, and a job that starved keeps
/// what it was chosen for.
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

/// Gives a job what is free now instead of what was promised to it, or leaves the trial as it was.
fn placed(fair: &mut Fair, promised: &Promised) -> Option<Vec<Placement>> {
    let Promised { promise, spec, .. } = promised;
    let closed = closed(fair, promised)?;
    let trial = &mut *fair.trial;
    // The rooms of jobs before it are found as long as the promise stands.
    reserve::reserve(trial);
    let (mark, told) = (trial.mark(), trial.name_reasons(false));
    promise.placements.iter().for_each(|placement| trial.withdraw(placement.clone(), spec.stand()));
    let before = std::mem::replace(&mut trial.not_lent, closed);
    let withdrawn = trial.mark();
    // What leaves only later is not there sooner.
    trial.put_leavers_aside(true);
    let placed = place::place_spec(trial, spec).ok();
    trial.roll_back_to(withdrawn);
    trial.not_lent = before;
    trial.name_reasons(told);
    let placed = placed.filter(|found| is_no_less(fair, promised, found));
    let Some(mut placements) = placed else {
        fair.trial.roll_back_to(mark);
        return None;
    };
    place::take_again(fair.trial, spec, &mut placements);
    Some(placements)
}

/// The alternatives that the job's queue may not have while those that stop for the job are still there; nothing where it may have none.
/// Loans are numbers: what stops counts as given back already, so a job would start beside what its queue still holds.
fn closed(fair: &mut Fair, promised: &Promised) -> Option<Closed> {
    let state = fair.trial.state;
    let Promised { promise, spec, queue, .. } = promised;
    let pins = !spec.preemptible;
    let own = fair.shares.counted(state, promise.placements.iter());
    let stopping = promise.waits_for.iter().filter_map(|id| state.allocations.get(id));
    let stopping: Vec<_> = stopping
        .filter_map(|held| Some((state.jobs.get(&held.job.number)?.spec.stand(), &held.placement)))
        .map(|(path, held)| (fair.shares.place(path), fair.shares.counted(state, std::iter::once(held))))
        .collect();
    fair.shares.charge(*queue, &own, (-1, pins));
    stopping.iter().for_each(|(queue, held)| fair.shares.charge(*queue, held, (1, false)));
    let closed = fair.shares.closed(*queue, spec);
    stopping.iter().for_each(|(queue, held)| fair.shares.charge(*queue, held, (-1, false)));
    fair.shares.charge(*queue, &own, (1, pins));
    closed.ok()
}

/// Whether placements are as good as what was promised: as much of what is divided, by alternatives no less preferred, as fast.
fn is_no_less(fair: &Fair, promised: &Promised, found: &[Placement]) -> bool {
    let Promised { promise, spec, .. } = promised;
    let counted = |placements: &[Placement]| fair.shares.counted(fair.trial.state, placements.iter());
    let is_as_wanted = |(one, other): (&Placement, &Placement)| {
        one.rank == other.rank && other.alternative <= one.alternative
    };
    promise.placements.len() == found.len()
        && promise.placements.iter().zip(found).all(is_as_wanted)
        && spec.pace_percent(found) >= spec.pace_percent(&promise.placements)
        && counted(found) == counted(&promise.placements)
}
