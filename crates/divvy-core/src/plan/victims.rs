//! Part of phase 4: which jobs may give way. Of queues, those that have more than is theirs; of an elastic
//! gang, what may go by itself: surplus tasks and groups go one by one, before the core.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::fair::Fair;
use super::parts;
use super::past::Short;
use super::reclaim::{Candidate, Goes, Reach, Right};
use super::share::{ANY, Amounts, Shares};
use crate::id::{AllocationId, JobId};
use crate::snapshot::RunView;

/// What a running job holds and this cycle has not taken from it yet.
pub(super) fn left_of<'a>(fair: &Fair<'a, '_>, (job, view): (JobId, &'a RunView)) -> Cow<'a, [AllocationId]> {
    if !view.elastic {
        return Cow::Borrowed(&view.live);
    }
    let gone = fair.taken_of(job);
    if gone.is_empty() {
        return Cow::Borrowed(&view.live);
    }
    Cow::Owned(view.live.iter().filter(|id| !gone.contains(id)).copied().collect())
}

/// The parts of a gang that may run with less: each part that may go by itself, with what that leaves its queue short of, and
/// the core. What may not go by itself goes with what it is a part of: nothing of a gang stays without its core.
pub(super) fn parts_of<'a>(
    fair: &Fair<'a, '_>,
    whole: Candidate<'a>,
    mut short: impl FnMut(&Amounts) -> Short,
    may_go: impl Fn(&Candidate) -> bool,
) -> Vec<Candidate<'a>> {
    let state = fair.trial.state;
    let Some(job) = state.jobs.get(&whole.job.number) else { return Vec::new() };
    let held = whole.live.iter().filter_map(|id| Some((state.allocations.get(id)?.placement.rank, *id)));
    let by_rank: BTreeMap<u32, AllocationId> = held.collect();
    let mut found: Vec<Candidate> = Vec::new();
    let mut goes: BTreeSet<AllocationId> = BTreeSet::new();
    for part in parts::surplus(&job.spec.gang, &by_rank.keys().copied().collect()) {
        let inside = by_rank.range(part.clone()).map(|(_, id)| *id);
        let live: Vec<AllocationId> = inside.filter(|id| !goes.contains(id)).collect();
        let goes_as = if part.len() == 1 { Goes::Task } else { Goes::Group };
        let within = Some(part);
        // The job runs on: nothing of its work is lost.
        let mut part =
            candidate(fair, Candidate { within, live: Cow::Owned(live), ..whole.clone() }, (goes_as, 0));
        part.cost.short = short(&part.draws);
        if may_go(&part) {
            goes.extend(part.live.iter().copied());
            found.push(part);
        }
    }
    let core: Vec<AllocationId> = whole.live.iter().filter(|id| !goes.contains(id)).copied().collect();
    let lost = whole.cost.lost_milli_ms;
    let core = candidate(fair, Candidate { live: Cow::Owned(core), ..whole }, (Goes::Job, lost));
    found.extend(Some(core).filter(may_go));
    found
}

/// What a part draws and costs.
fn candidate<'a>(
    fair: &Fair<'a, '_>,
    part: Candidate<'a>,
    (goes, lost_milli_ms): (Goes, i64),
) -> Candidate<'a> {
    let state = fair.trial.state;
    let draws = fair.shares.drawn(state, &part.live);
    let held = part.live.iter().filter_map(|id| state.allocations.get(id));
    let mut cost = part.cost;
    (cost.goes, cost.lost_milli_ms) = (goes, lost_milli_ms);
    cost.milli = held.map(|held| held.placement.milli()).sum();
    cost.drawn = draws.iter().fold(0, |sum, amount| sum.saturating_add(*amount));
    Candidate { draws, cost, ..part }
}

/// Notes for each candidate which others of its gang go before it.
pub(super) fn tie(candidates: &mut [Candidate]) {
    let mut of_job: BTreeMap<JobId, Vec<usize>> = BTreeMap::new();
    for (index, candidate) in candidates.iter().enumerate().filter(|(_, candidate)| candidate.view.elastic) {
        of_job.entry(candidate.job).or_default().push(index);
    }
    for group in of_job.values().filter(|group| group.len() > 1) {
        for index in group {
            let before = |other: &usize| {
                let Some(inner) = &candidates[*other].within else { return false };
                candidates[*index].within.as_ref().is_none_or(|outer| {
                    outer != inner && outer.start <= inner.start && inner.end <= outer.end
                })
            };
            let needs: Vec<usize> = group.iter().copied().filter(before).collect();
            candidates[*index].needs = needs;
        }
    }
}

/// The level, from the claim's queue upwards, at which another queue's path parts from it.
pub(super) fn level(shares: &Shares, to: usize, from: usize) -> usize {
    shares.part(to, from).map_or(0, |(own, _)| levels_to(shares, to, own))
}

fn levels_to(shares: &Shares, from: usize, to: usize) -> usize {
    shares.upwards(from).take_while(|place| *place != to).count() + 1
}

/// Whether `other`, a sibling of a queue on the claimant's path, has more of a resource than is guaranteed to it and may be told to give
/// up so much. It must have more than is due to it, too, unless the claimant's side stays within its guarantee or goes before by priority
/// alone. Each queue below it on the way to the holder must have too much as well: a queue within its guarantee gives nothing for what
/// its siblings have too much. For models that are guaranteed to the claimant's side, a queue counts as within its guarantee as far as
/// that is of these models, or of any; and it gives only what is of the models that are asked for (`has_model`).
pub(super) fn lends(
    shares: &Shares,
    (to, from): (usize, usize),
    (own, other, index): (usize, usize, usize),
    (reach, draw, has_model): (Reach, i64, bool),
) -> bool {
    let level = levels_to(shares, to, own);
    let (by_models, is_guaranteed) = (reach.is_by_models(level), reach.has(Right::Guarantee, level));
    let mut side = shares.upwards(from).take_while(|place| *place != shares.queues[other].parent);
    if index == ANY && is_guaranteed && has_model && side.all(|place| shares.exceeds_models(place)) {
        return true;
    }
    let mut below = shares.upwards(from).take_while(|place| *place != other);
    if below.any(|place| !shares.queues[place].beyond(index).0) {
        return false;
    }
    let (beyond_guarantee, beyond_due) = shares.queues[other].lends((index, draw), shares.remembers);
    // Where only models are guaranteed, devices of others are no part of it.
    let is_guaranteed = is_guaranteed && (!by_models || index != ANY);
    let by_guarantee = is_guaranteed || reach.has(Right::Priority, level);
    by_guarantee && beyond_guarantee || reach.has(Right::Due, level) && beyond_due
}
