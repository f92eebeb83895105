//! What ends anyway: tasks that are being stopped, for whatever reason. Before other jobs go for a job, it
//! gets what these leave, by which no job loses anything.

use std::collections::BTreeSet;

use super::consolidate;
use super::fair::Fair;
use super::reclaim::{self, Claim, Rules};
use super::reserve;
use super::settle::Leaver;
use super::trial::Trial;
use super::{Place, place};
use crate::id::AllocationId;
use crate::model::allocation::Placement;
use crate::model::job::{Cause, JobSpec};
use crate::snapshot::OrderKey;
use crate::state::{Job, State};

/// The tasks that are being stopped.
#[derive(Default)]
pub(super) struct Leaving {
    /// Those on whose places this cycle has planned nothing yet.
    free: BTreeSet<AllocationId>,
    /// Those whose ends a job has waited for since before: what is promised of them is not to be had.
    promised: BTreeSet<AllocationId>,
    /// Those whose places a job of this cycle gets.
    awaited: BTreeSet<AllocationId>,
}

impl Leaving {
    /// Whether a job of the same queue and of lower priority is among them.
    pub(super) fn has_junior_of(&self, state: &State, (spec, rules): (&JobSpec, &Rules)) -> bool {
        let leaver = |id: &AllocationId| Some(&state.jobs.get(&state.allocations.get(id)?.job.number)?.spec);
        let is_junior = |other: &JobSpec| other.stand() == spec.stand() && other.priority < spec.priority;
        !self.free.is_empty()
            && reclaim::may_take_juniors(rules, &state.policy, spec)
            && self.free.iter().filter_map(leaver).any(|other| is_junior(other))
    }

    /// The tasks that the snapshot knows, and those that are told to stop in this cycle.
    pub(super) fn new(
        state: &State,
        known: &BTreeSet<AllocationId>,
        told: impl Iterator<Item = AllocationId>,
    ) -> Self {
        let free: BTreeSet<AllocationId> = known.iter().copied().chain(told).collect();
        let promises = state.promises.values().filter(|_| !free.is_empty());
        let promised = promises.flat_map(|promise| &promise.waits_for);
        let promised = promised.copied().filter(|id| free.contains(id)).collect();
        Self { free, promised, awaited: BTreeSet::new() }
    }

    /// Whether there is nothing that ends anyway and that a job of this cycle may get.
    pub(super) fn is_nothing(&self) -> bool {
        self.free.is_empty()
    }

    /// Those whose places a job gets, in the form of jobs that give way: one for each task.
    pub(super) fn leavers<'a>(&'a self, state: &'a State) -> impl Iterator<Item = Leaver<'a>> {
        self.awaited.iter().filter_map(move |id| {
            let job = state.allocations.get(id)?.job;
            let (queue, live) = (state.jobs.get(&job.number)?.spec.stand(), std::slice::from_ref(id));
            Some(Leaver { job, queue, live, whole: false, cause: Cause::Exit, by: None, grows: false })
        })
    }
}

/// Counts what they leave as free; returns which they are.
pub(super) fn let_go(fair: &mut Fair) -> Vec<AllocationId> {
    let ids: Vec<AllocationId> = fair.leaving.free.iter().copied().collect();
    for (placement, queue) in ids.iter().filter_map(|id| held(fair.trial.state, *id)) {
        if fair.leaving.promised.contains(&placement.allocation) {
            fair.trial.release_rest(placement, queue);
        } else {
            fair.trial.release(placement, queue);
        }
    }
    ids
}

/// Counts as taken again whatever of that no job got.
pub(super) fn keep_the_rest(fair: &mut Fair, let_go: Vec<AllocationId>) {
    for id in let_go {
        let is_promised = fair.leaving.promised.contains(&id);
        if !stays(fair.trial, id, is_promised) {
            fair.leaving.free.remove(&id);
            fair.leaving.awaited.insert(id);
        }
    }
}

fn stays(trial: &mut Trial, id: AllocationId, is_promised: bool) -> bool {
    held(trial.state, id).is_none_or(|(placement, queue)| match is_promised {
        true => trial.keep_rest(placement, queue),
        false => trial.keep(&[placement], queue),
    })
}

fn held(state: &State, id: AllocationId) -> Option<(&Placement, &str)> {
    let held = state.allocations.get(&id)?;
    Some((&held.placement, state.jobs.get(&held.job.number)?.spec.stand()))
}

/// Finds places for a claim for which others might go, where what ends anyway suffices.
pub(super) fn take_over(fair: &mut Fair, claim: &Claim) -> Option<Vec<Placement>> {
    if fair.leaving.free.is_empty() {
        return None;
    }
    let has_claim =
        || reclaim::might_take(fair, claim) || consolidate::may_make_room(fair, (claim.spec, 0), claim.owed);
    let has_claim = fair.leaving.has_junior_of(fair.trial.state, (claim.spec, &Rules::of(fair, claim.queue)))
        || has_claim();
    if !has_claim || !reclaim::may_have(fair, claim) {
        return None;
    }
    let mark = fair.trial.mark();
    let ids = let_go(fair);
    let Ok(placements) = claim.place(fair.trial) else {
        fair.trial.roll_back_to(mark);
        return None;
    };
    keep_the_rest(fair, ids);
    let taken = fair.shares.counted(fair.trial.state, placements.iter());
    fair.shares.charge(claim.queue, &taken, (1, !claim.spec.preemptible));
    Some(placements)
}

/// Whether anything that counts as free in this cycle is still held.
pub(super) fn is_any(fair: &Fair) -> bool {
    !fair.victims.is_empty() || !fair.leaving.awaited.is_empty()
}

/// Starts the next run of a job on what no job has, where others leave in this cycle: what they leave would only be promised to it.
/// Returns where the run after it stands, if it has started.
pub(super) fn place_beside(fair: &mut Fair, job: &Job) -> Option<Option<OrderKey>> {
    if !is_any(fair) || fair.trial.state.draining {
        return None;
    }
    // Rooms are found as things stand now, whether or not there is a try.
    reserve::reserve(fair.trial);
    if fair.trial.is_full_beside(&job.spec) {
        return None;
    }
    let id = place::next_member(fair.trial, job)?;
    let (mark, told) = (fair.trial.mark(), fair.trial.name_reasons(false));
    fair.trial.put_leavers_aside(false);
    fair.trial.note_beside(&job.spec, mark);
    let placed = place::place_spec(fair.trial, &job.spec);
    fair.trial.roll_back_to(mark);
    fair.trial.name_reasons(told);
    let mut placements = placed.ok()?;
    place::take_again(fair.trial, &job.spec, &mut placements);
    fair.trial.note_member(id);
    fair.places.push(Place::new(id, placements));
    Some(place::next_start(fair.trial, job))
}
