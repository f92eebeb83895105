//! Phase 4, reclaim and preempt, by `least_loss`: a job that does not fit takes the places of running jobs. In its own queue these are
//! jobs of lower priority (preemption); in other queues, jobs beyond their queue's due while its own queue stays within its due
//! (reclaim). Of the sets that would do, a small one that loses little work is taken; none goes unless the job gets a place by it (L8).

mod clear;
mod gather;
mod line;
mod might;
mod reach;
mod released;
mod rounds;
mod rules;
mod strangers;

use std::borrow::Cow;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

pub(super) use clear::{Next, Step, Steps};
use gather::{candidates, look_further, next_step};
pub(super) use line::{Candidates, Party};
use might::others_lend;
pub(super) use might::{may_take_juniors, may_take_of_own, might_displace, might_take, might_take_own};
pub(super) use reach::{Reach, Right};
use released::{Released, Served, served, take, who_goes};
pub(super) use rounds::{by_moves, take_back};
pub(super) use rules::{Rules, Stated};
pub(super) use strangers::Strangers;

use super::consolidate;
use super::fair::{Fair, Victim};
use super::leaving;
use super::past::Short;
use super::place;
use super::reserve::Leaves;
use super::resize::Unit;
use super::share::{ANY, Amounts, Shares};
use super::trial::Trial;
use super::victims;
use crate::id::{AllocationId, JobId};
use crate::model::allocation::Placement;
use crate::model::job::{Cause, JobSpec};
use crate::reason::Reason;
use crate::snapshot::{OrderKey, RunView};
use crate::state::State;
use crate::time::Time;

/// A claim: a job that wants the places of others.
#[derive(Clone)]
pub(super) struct Claim<'a> {
    pub(super) job: JobId,
    /// What is to be placed; where a gang grows, its further part alone.
    pub(super) spec: &'a JobSpec,
    /// The part by which a running gang grows, if it does.
    pub(super) part: Option<&'a Unit>,
    pub(super) queue: usize,
    pub(super) asked: Amounts,
    /// Of each resource, whether the pool has too little of it free.
    pub(super) scarce: Vec<bool>,
    /// Whether jobs of its own queue may go for it.
    pub(super) own: bool,
    /// Whether only these may.
    pub(super) own_alone: bool,
    /// Whether only parts of gangs may, without which these run on.
    pub(super) surplus_alone: bool,
    /// Its place in the order, where jobs of its queue and priority give way that stand behind it and lose nothing but a restart.
    pub(super) place: Option<OrderKey>,
    /// Whether it has not run for so long that it goes before all others.
    pub(super) starves: bool,
    /// Whether it is guaranteed to its queue before any job goes for it: then it takes from other queues even
    /// jobs that are still safe because they had to give way before.
    pub(super) owed: bool,
    /// Whether it is, whatever its queue has used: then it does not wait until such jobs have done again what they lost, either.
    pub(super) always_owed: bool,
    /// Whether only jobs of other queues go that lie on nodes kept for its queue: they have no right to be there.
    pub(super) strangers: bool,
    /// Where set, queues beside its own first give back what they have beyond this right, so that a queue
    /// above them has room for the claim in its own part and takes the rest from others.
    pub(super) siblings_first: Option<Right>,
    /// Where set, no job is stopped whose queue would keep less than is guaranteed to it, and no job of that
    /// queue with a higher priority is stopped instead.
    pub(super) spares: Option<&'a Spares>,
    /// Where set, these jobs go before others.
    pub(super) first: Option<&'a BTreeSet<JobId>>,
}

/// The jobs that are spared, since their queues would keep less than is guaranteed to them.
#[derive(Default)]
pub(super) struct Spares {
    /// The lowest priority among them, by queue and by the resource of which that would keep too little.
    lowest: RefCell<BTreeMap<(usize, usize), i32>>,
    whom: Whom,
    /// Whether jobs of the claim's own queue are spared, too: the queue stays within its guarantee with them
    /// and the claim, so they would take back at once, from others that have too much, what they give.
    own: bool,
}

/// Which of the jobs whose queues would keep less than is guaranteed to them a claim spares.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Whom {
    #[default]
    All,
    /// All, unless the claimant's side stays within its guarantee.
    ButForGuarantees,
    /// Jobs of queues that would keep less of a model.
    ForModels,
    Nobody,
}

impl Spares {
    /// Notes a job that is spared for the sake of a resource.
    fn note(&self, candidate: &Candidate, resource: usize) {
        let priority = candidate.cost.priority;
        let mut lowest = self.lowest.borrow_mut();
        lowest
            .entry((candidate.queue, resource))
            .and_modify(|lowest| *lowest = priority.min(*lowest))
            .or_insert(priority);
    }

    /// Whether a job of the same queue and of lower priority was spared for the sake of a resource that this
    /// one holds, too: a guaranteed model is no reason to keep another that is not.
    fn has_lower(&self, candidate: &Candidate) -> bool {
        let lowest = self.lowest.borrow();
        let of_queue = lowest.range((candidate.queue, 0)..=(candidate.queue, usize::MAX));
        let mut shared = of_queue.filter(|((_, resource), _)| candidate.draws[*resource] > 0);
        shared.any(|(_, lowest)| candidate.cost.priority > *lowest)
    }
}

impl<'a> Claim<'a> {
    /// A claim of which nothing else is known: jobs of its own queue may go for it as those of others may.
    pub(super) fn of(job: JobId, spec: &'a JobSpec, (queue, asked): (usize, Amounts)) -> Self {
        let (part, scarce, siblings_first, spares, first) = (None, Vec::new(), None, None, None);
        let (own, own_alone, surplus_alone, starves, place) = (true, false, false, false, None);
        let (owed, always_owed, strangers) = (false, false, false);
        Self {
            job,
            spec,
            part,
            queue,
            asked,
            scarce,
            own,
            own_alone,
            surplus_alone,
            place,
            starves,
            owed,
            always_owed,
            strangers,
            siblings_first,
            spares,
            first,
        }
    }

    /// Whether a job of another queue is left alone because it does again what it lost when it made room before:
    /// where device time is pledged, queues take turns, and a job longer than a turn would never be done.
    pub(super) fn lets_redo(&self, view: &RunView, (state, now): (&State, Time)) -> bool {
        !state.pledges.is_empty() && !self.always_owed && view.is_redoing(now)
    }

    /// Whether a job, of the claim's own queue or another's, is left alone for a while because it made room before.
    fn leaves_in_peace(&self, (own, view): (bool, &RunView), (state, now): (&State, Time)) -> bool {
        let is_in_peace = view.is_cooling(now) && (own || !self.owed)
            || !own && !self.starves && self.lets_redo(view, (state, now));
        is_in_peace && !self.strangers
    }

    /// Whether other jobs go before this candidate, whatever it costs.
    fn goes_later(&self, job: JobId) -> bool {
        self.first.is_some_and(|first| !first.contains(&job))
    }

    /// Whether a candidate is of the claim's own queue.
    fn is_of_own(&self, candidate: &Candidate) -> bool {
        candidate.queue == self.queue
    }

    /// Places what is claimed where it fits now.
    pub(super) fn place(&self, trial: &mut Trial) -> Result<Vec<Placement>, Reason> {
        match self.part {
            None => place::place_spec(trial, self.spec),
            Some(unit) => unit.place(trial),
        }
    }

    /// Likewise, where other jobs are counted as gone.
    fn place_by_stops(&self, trial: &mut Trial) -> Result<Vec<Placement>, Reason> {
        let leaves = if self.owed { Leaves::WhatIsFree } else { Leaves::WhatIsForetold };
        let before = trial.reserve.leave(leaves);
        let placed = self.place(trial);
        trial.reserve.leave(before);
        placed
    }
}

/// A running job, or a part of one, that may have to give way.
#[derive(Clone)]
pub(super) struct Candidate<'a> {
    pub(super) job: JobId,
    pub(super) view: &'a RunView,
    pub(super) queue: usize,
    /// What goes with it.
    pub(super) live: Cow<'a, [AllocationId]>,
    pub(super) draws: Amounts,
    /// Lower goes first.
    pub(super) cost: Cost,
    /// The ranks of the group that goes, where it is a part of a gang that runs on without it.
    pub(super) within: Option<Range<u32>>,
    /// Other candidates, by index, that go before it: the surplus of the same gang.
    pub(super) needs: Vec<usize>,
    /// Whether it could take the claim's place by priority alone.
    pub(super) goes_before: bool,
}

/// What it costs to stop a job, compared in this order: jobs that others go before last; jobs of the own queue after those of
/// others; queue priority; queues that keep what is due to them first; job priority; surplus first; jobs that gave way before
/// last; of those that go by the order, the last in it by level or length first; of those that move, where the policy says so, the newest
/// first; lost work; devices; hosts; how many jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost {
    pub(super) later: bool,
    pub(super) own: bool,
    pub(super) queue_priority: i32,
    /// Whether its queue, or one above it, is left with less than is due to it.
    pub(super) short: Short,
    pub(super) priority: i32,
    pub(super) goes: Goes,
    /// Whether it would be safe from a claim that is not guaranteed, since it has given way before.
    pub(super) in_peace: bool,
    /// What the order compares first of the job, where it goes by the order: the last level first.
    pub(super) stands: Reverse<i64>,
    /// How early the job was submitted, where those that were submitted last go first.
    pub(super) seniority: u64,
    pub(super) lost_milli_ms: i64,
    pub(super) milli: i64,
    pub(super) drawn: i64,
    /// How many jobs, or parts of jobs, go: of what costs the same otherwise the fewest.
    pub(super) jobs: u32,
}

/// What of a job goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Goes {
    /// A task beyond the minimum of its role.
    #[default]
    Task,
    /// A group beyond what its branch needs.
    Group,
    /// All of it.
    Job,
}

impl Cost {
    fn with(self, other: Self) -> Self {
        Self {
            later: self.later || other.later,
            own: self.own || other.own,
            queue_priority: self.queue_priority.max(other.queue_priority),
            short: self.short.max(other.short),
            priority: self.priority.max(other.priority),
            goes: self.goes.max(other.goes),
            in_peace: self.in_peace || other.in_peace,
            stands: self.stands.max(other.stands),
            seniority: self.seniority.max(other.seniority),
            lost_milli_ms: self.lost_milli_ms.saturating_add(other.lost_milli_ms),
            milli: self.milli.saturating_add(other.milli),
            drawn: self.drawn.saturating_add(other.drawn),
            jobs: self.jobs + other.jobs,
        }
    }
}

/// Finds places for the claim by stopping jobs, and by moving further ones where that does not suffice. A job that
/// could no longer go, since others of its queue had been counted as gone before it, may then go without them.
fn by_stops(fair: &mut Fair, claim: &Claim) -> Option<Vec<Placement>> {
    // Until it fits, the reason is of no interest.
    let told = fair.trial.name_reasons(false);
    let mut late = BTreeSet::new();
    let mut placements = make_room(fair, claim, &mut late);
    if placements.is_none() && !late.is_empty() && claim.siblings_first.is_none() {
        let spares = claim.spares.map(|spares| Spares { lowest: RefCell::default(), ..*spares });
        let again = Claim { first: Some(&late), spares: spares.as_ref(), ..claim.clone() };
        placements = make_room(fair, &again, &mut BTreeSet::new());
    }
    fair.trial.name_reasons(told);
    placements
}

/// Counts candidates as free, one after the other, until the claim fits; else notes those that could have gone at first, but no longer.
fn make_room<'a>(
    fair: &mut Fair<'a, '_>,
    claim: &Claim,
    late: &mut BTreeSet<JobId>,
) -> Option<Vec<Placement>> {
    let candidates = &mut candidates(fair, claim)?;
    let mark = fair.trial.mark();
    let ending = leaving::let_go(fair);
    let borrow_evicts = Rules::of(fair, claim.queue).borrow_evicts;
    let mut released = Released::new(borrow_evicts);
    let mut steps = Steps::new(fair.trial, claim, candidates);
    let mut looked = 0;
    let may_move = !claim.own_alone && fair.budget.has_any();
    while !may_move && steps.are_in_vain(fair.trial, candidates) {
        if !look_further(fair, claim, candidates, &[]) {
            fair.trial.roll_back_to(mark);
            return None;
        }
    }
    while let Some(Step { stop, slots }) = next_step(fair, claim, candidates, (&mut steps, &released.order)) {
        released.release(fair, claim, candidates, &stop);
        let mut is_more = looked < released.order.len() || stop.is_empty();
        loop {
            if slots && is_more && may_have(fair, claim) {
                looked = released.order.len();
                match served(fair, claim, (candidates, &released)) {
                    Served::Not => {}
                    Served::Kept => {
                        // Which jobs are spared is to be known of all.
                        while look_further(fair, claim, candidates, &[]) {}
                        fair.trial.roll_back_to(mark);
                        return None;
                    }
                    Served::With(placements) => {
                        leaving::keep_the_rest(fair, ending);
                        return Some(placements);
                    }
                }
            }
            // As long as the claim's own queue, or its siblings, give enough, nobody else is asked.
            is_more = released.release_refused(fair, claim, candidates);
            if !is_more {
                break;
            }
        }
    }
    let mut keep = |fair: &mut Fair<'a, '_>, placements: &[Placement]| {
        let goes = who_goes(fair, claim, (candidates, &released.order), placements);
        take(fair, claim, (candidates, goes), placements);
    };
    let jobs = released.order.iter().map(|index| candidates.get(*index).job).collect();
    let moved = match claim.own_alone {
        true => None,
        false => consolidate::make_room(fair, claim, &jobs, &mut keep),
    };
    if let Some(placements) = moved {
        leaving::keep_the_rest(fair, ending);
        return Some(placements);
    }
    fair.trial.roll_back_to(mark);
    late.extend(released.late.iter().map(|index| candidates.get(*index).job));
    for index in released.order {
        let candidate = candidates.get(index);
        fair.shares.stop(candidate.queue, &candidate.draws, -1);
    }
    None
}

/// Whether the claim's queue may have it now, whatever is free; it gets none of the models that the queue may not have.
pub(super) fn may_have(fair: &mut Fair, claim: &Claim) -> bool {
    let closed = fair.shares.closed(claim.queue, claim.spec);
    let allowed = fair.shares.allows(claim.queue, &claim.asked, claim.spec).is_ok() && closed.is_ok();
    fair.trial.not_lent = closed.unwrap_or_default();
    allowed
}

fn victim<'a>(candidate: &Candidate<'a>, (rules, claim): (&Rules, &Claim)) -> Victim<'a> {
    let is_junior = || rules.is_junior(claim, (candidate.job, candidate.view));
    let cause = match (claim.starves, claim.is_of_own(candidate)) {
        (true, _) => Cause::Starved,
        (false, true) if is_junior() => Cause::Preempted,
        (false, true) => Cause::Order,
        (false, false) => Cause::Reclaimed,
    };
    let (job, queue, live) = (candidate.job, &candidate.view.queue, candidate.live.to_vec());
    let (whole, by, grows) = (candidate.within.is_none(), claim.job, claim.part.is_some());
    Victim { job, queue, live, whole, by, grows, cause }
}

/// What a restart costs a job beside its work: half a minute of its devices.
pub(super) const RESTART_MS: i64 = 30_000;

/// The device time wasted when a job is stopped now and starts anew: the lost work and the restart.
pub(super) fn lost_by_stopping(view: &RunView, now: Time) -> i64 {
    lost(view, now).saturating_add(restart(view))
}

/// The device time wasted while a job starts anew.
pub(super) fn restart(view: &RunView) -> i64 {
    view.milli.saturating_mul(RESTART_MS)
}

/// The work that is lost when a job is stopped now: its devices times the run since its start, or since its
/// work was saved; none where a stop costs no more than a restart.
pub(super) fn lost(view: &RunView, now: Time) -> i64 {
    let since = view.checkpointed_at.or(view.started_at);
    let unsaved_ms = since.map_or(0, |since| now.since(since).0);
    unsaved_ms.min(view.loses_at_most_ms.unwrap_or(i64::MAX)).saturating_mul(view.milli)
}

/// Whether the lost work grows with time.
pub(super) fn loses_more(view: &RunView, now: Time) -> bool {
    let since = view.checkpointed_at.or(view.started_at);
    since.is_some_and(|since| view.loses_at_most_ms.is_none_or(|most| now.since(since).0 < most))
}

/// Whether a job may be stopped for the claim now (L9). Across queues the siblings are compared where the
/// paths part: what the claim lacks is taken only from a queue that holds more of it than is guaranteed and,
/// unless the claim is guaranteed, more than is due.
fn may_stop(shares: &Shares, claim: &Claim, candidate: &Candidate, reach: Reach) -> bool {
    if claim.strangers {
        return true;
    }
    if claim.is_of_own(candidate) {
        let spares = claim.spares.filter(|spares| spares.own);
        spares.into_iter().for_each(|spares| spares.note(candidate, ANY));
        return spares.is_none();
    }
    let Some((own, other)) = shares.part(claim.queue, candidate.queue) else { return false };
    let reach = reach.against(candidate);
    let shared = |index: &usize| claim.asked[*index] > 0 && candidate.draws[*index] > 0;
    // Where nothing is scarce, the claim lacks what others keep.
    let any_scarce = (0..claim.asked.len()).any(|index| claim.asked[index] > 0 && claim.scarce[index]);
    // Where the two share nothing that is divided, the claim lacks room on hosts: then jobs of queues with too many devices go.
    let is_for_hosts = !(0..claim.asked.len()).any(|index| shared(&index));
    // Hosts may lack what the pool has enough of: then all that the two share counts.
    let any_scarce = any_scarce && (0..claim.asked.len()).any(|index| shared(&index) && claim.scarce[index]);
    let lacks = |index: &usize| match is_for_hosts {
        true => *index == ANY,
        false => shared(index) && (claim.scarce[*index] || !any_scarce),
    };
    let mut lacking = (0..claim.asked.len()).filter(lacks).peekable();
    let has_model = shares.has_model(|index| shared(&index));
    let lends = |index: usize| {
        victims::lends(
            shares,
            (claim.queue, candidate.queue),
            (own, other, index),
            (reach, candidate.draws[index], has_model),
        )
    };
    let may = lacking.peek().is_some() && lacking.all(lends);
    let is_guaranteed = reach.has(Right::Guarantee, victims::level(shares, claim.queue, candidate.queue));
    let is_owed = claim.spares.is_some_and(|spares| spares.whom == Whom::ButForGuarantees && is_guaranteed);
    let by_models = has_model && is_guaranteed;
    may && (is_owed || !is_spared(shares, claim, (candidate, other, by_models), lacks))
}

/// Whether the claim spares a job: without it, its queue, or one above it on its side, would fall below its guarantee of what
/// the claim lacks, or of a model that it holds; or a job of its queue with a lower priority was spared for that.
fn is_spared(
    shares: &Shares,
    claim: &Claim,
    (candidate, other, by_models): (&Candidate, usize, bool),
    lacks: impl Fn(&usize) -> bool,
) -> bool {
    let Some(spares) = claim.spares.filter(|spares| spares.whom != Whom::Nobody) else { return false };
    let side = || shares.upwards(candidate.queue).take_while(|place| *place != shares.queues[other].parent);
    let falls = |place: usize, index: usize| {
        let queue = &shares.queues[place];
        match by_models && index == ANY {
            true => shares.falls_short_of_any(place, &candidate.draws),
            false => queue.takes(index) - candidate.draws[index] < queue.guarantee[index],
        }
    };
    let below = |index: &usize| side().any(|place| falls(place, *index));
    let of_a_model = || side().find_map(|place| shares.falls_short(place, &candidate.draws));
    let counts = |index: &usize| spares.whom != Whom::ForModels && lacks(index);
    let short = (0..claim.asked.len()).filter(counts).find(below).or_else(of_a_model);
    short.into_iter().for_each(|resource| spares.note(candidate, resource));
    short.is_some() || spares.has_lower(candidate)
}
