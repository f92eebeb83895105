//! The rounds in which jobs to give way are looked for: first those that lose nothing by it, last those whose
//! queues are left with less than is guaranteed to them.

use std::collections::BTreeSet;

use super::might::others_lend;
use super::rules::Rules;
use super::{Claim, Reach, Right, Spares, Whom, by_stops, strangers};
use crate::model::allocation::Placement;
use crate::model::borrowing::BorrowEvicts;
use crate::model::policy::{Reclaim, WithinQueue};
use crate::plan::consolidate;
use crate::plan::fair::Fair;
use crate::plan::leaving;
use crate::plan::reserve::Leaves;
use crate::plan::share::{ANY, Amounts, QueueShare};

/// Finds places for the claim, and jobs that give way for it: by moves alone, where no job loses; else jobs
/// whose queues keep what is guaranteed to them; else, for a claim that stays within its own guarantee, any
/// that may go. Without success everything is as it was.
pub(in crate::plan) fn take_back(fair: &mut Fair, claim: &Claim) -> Option<Vec<Placement>> {
    if !may_anyone_go(fair, claim) {
        return None;
    }
    let before = fair.trial.reserve.leave(Leaves::All);
    let placements = by_rounds(fair, claim);
    fair.trial.reserve.leave(before);
    placements
}

/// Whether other jobs may be stopped or moved for the claim at all, and now.
fn may_anyone_go(fair: &Fair, claim: &Claim) -> bool {
    claim.spec.may_preempt() && !fair.trial.state.is_in_doubt()
}

fn by_rounds(fair: &mut Fair, claim: &Claim) -> Option<Vec<Placement>> {
    if claim.own_alone {
        return by_stops(fair, claim);
    }
    if let Some(placements) = leaving::take_over(fair, claim) {
        return Some(placements);
    }
    if let Some(placements) = by_moves(fair, claim) {
        return Some(placements);
    }
    if let Some(placements) = strangers::make_way(fair, claim).or_else(|| by_own_first(fair, claim)) {
        return Some(placements);
    }
    if !fair.shares.guarantees {
        return by_stops(fair, claim).or_else(|| by_siblings(fair, claim));
    }
    let spares = Spares { own: spares_own(fair, claim), ..Spares::default() };
    if let Some(placements) = by_stops(fair, &Claim { spares: Some(&spares), ..claim.clone() }) {
        return Some(placements);
    }
    // Where no job was spared there is no other to stop.
    if spares.lowest.borrow().is_empty() {
        return by_siblings(fair, claim);
    }
    by_siblings(fair, claim).or_else(|| by_leaving_short(fair, claim))
}

/// Finds places for the claim by moves alone.
pub(in crate::plan) fn by_moves(fair: &mut Fair, claim: &Claim) -> Option<Vec<Placement>> {
    if !may_anyone_go(fair, claim) {
        return None;
    }
    let placements = consolidate::make_room(fair, claim, &BTreeSet::new(), &mut |_, _| {})?;
    let taken = fair.shares.counted(fair.trial.state, placements.iter());
    fair.shares.charge(claim.queue, &taken, (1, !claim.spec.preemptible));
    Some(placements)
}

/// Whether the claim spares jobs of its own queue while others have what is guaranteed to it.
fn spares_own(fair: &Fair, claim: &Claim) -> bool {
    let rules = Rules::of(fair, claim.queue);
    let reach = || Reach::of(&fair.shares, claim, rules.borrow_evicts);
    claim.owed && !fair.trial.state.was_just_taken(claim.job) && others_lend(fair, claim, (&rules, reach()))
}

/// Finds places for what would be guaranteed, or due, to a queue without the jobs of lower priority that run
/// in it: as many of these go as that takes, and others that have too much give what is still lacking.
fn by_own_first(fair: &mut Fair, claim: &Claim) -> Option<Vec<Placement>> {
    [Right::Guarantee, Right::Due].into_iter().find_map(|right| {
        if !might_be_own(fair, claim, right) {
            return None;
        }
        let by = |fair: &mut Fair, spares: &Spares| {
            by_stops(fair, &Claim { siblings_first: Some(right), spares: Some(spares), ..claim.clone() })
        };
        // What is due to the queue as it stands, others give back: its own jobs do not stand between.
        if right == Right::Guarantee && is_due(fair, claim) {
            let spares = Spares::default();
            let others = by_stops(fair, &Claim { own: false, spares: Some(&spares), ..claim.clone() });
            if others.is_some() {
                return others;
            }
        }
        let spares = Spares::default();
        by(fair, &spares).or_else(|| {
            let may = right == Right::Guarantee && !spares.lowest.borrow().is_empty();
            if may { by(fair, &Spares { whom: Whom::Nobody, ..Spares::default() }) } else { None }
        })
    })
}

/// Whether the claim stays within what is due to its queue, and may take that.
fn is_due(fair: &Fair, claim: &Claim) -> bool {
    let due = Rules::of(fair, claim.queue).borrow_evicts.due;
    due && fair.shares.queues[claim.queue].stays_within(&claim.asked, |queue| &queue.target)
}

/// Whether the claim is not guaranteed, or due, now, but would be if the jobs of lower priority in its queue
/// were gone, and others have too much.
fn might_be_own(fair: &Fair, claim: &Claim, right: Right) -> bool {
    let rules = Rules::of(fair, claim.queue);
    let reach = || Reach::of(&fair.shares, claim, rules.borrow_evicts);
    let queue = &fair.shares.queues[claim.queue];
    let bound: fn(&QueueShare) -> &Amounts = match right {
        Right::Guarantee => |queue| &queue.guarantee,
        Right::Due | Right::Priority => |queue| &queue.target,
    };
    let may = claim.own && !claim.starves && rules.within_queue != WithinQueue::Never;
    let may =
        may && rules.reclaim != Reclaim::Never && (right == Right::Guarantee || rules.borrow_evicts.due);
    // A job that asks for nothing that is divided has no part of it.
    let asks = claim.asked.iter().any(|asked| *asked > 0);
    if !may || !asks || queue.stays_within(&claim.asked, bound) {
        return false;
    }
    let (stand, priority) = (claim.spec.stand(), claim.spec.priority);
    let is_lower = || fair.running.lowest_priority(stand).is_some_and(|lowest| lowest < priority);
    let rest = || queue.held[ANY] - fair.running.lower_milli(stand, priority);
    let would_fit = || claim.asked[ANY] == 0 || rest().saturating_add(claim.asked[ANY]) <= bound(queue)[ANY];
    is_lower()
        && would_fit()
        && reach().by(right) == 0
        && fair.shares.anyone_lends(claim.queue, &claim.asked, |by, _| by == right)
}

/// Finds places for what is guaranteed, or due, to a queue, where a queue above has no room for that in its
/// own part since a sibling has too much.
fn by_siblings(fair: &mut Fair, claim: &Claim) -> Option<Vec<Placement>> {
    let rules = Rules::of(fair, claim.queue);
    let reach = Reach::of(&fair.shares, claim, rules.borrow_evicts);
    let levels = fair.shares.upwards(claim.queue).count();
    let siblings_lend = |right: &Right| {
        let within = reach.up_to(*right);
        let own = |by, level| by == *right && reach.has(*right, level);
        0 < within && within < levels && fair.shares.anyone_lends(claim.queue, &claim.asked, own)
    };
    let rights = [Right::Guarantee, Right::Due].into_iter();
    let is_owed = claim.owed || reach.from > 1;
    let mut rights = rights.filter(|right| *right == Right::Due || is_owed).filter(siblings_lend);
    let right = rights.next().filter(|_| !claim.starves)?;
    let spares = Spares { own: spares_own(fair, claim), ..Spares::default() };
    by_stops(fair, &Claim { siblings_first: Some(right), spares: Some(&spares), ..claim.clone() })
}

/// Likewise, though others are left with less than is guaranteed to them: for a claim that goes before all others, or with which
/// its queue, or one above it, stays within its own guarantee; by `straddling: due` for any. Not if its own devices were just taken: each
/// claim of such jobs has to raise what queues have of their guarantees, or they could take each other's places in turns for ever (L10).
fn by_leaving_short(fair: &mut Fair, claim: &Claim) -> Option<Vec<Placement>> {
    let is_back = || fair.trial.state.was_just_taken(claim.job);
    let is_owed_above = || Reach::of(&fair.shares, claim, BorrowEvicts::NEVER).from > 1;
    let whom = match claim.starves || fair.shares.guarantees_it(claim.queue, &claim.asked) && !is_back() {
        true if !claim.starves && fair.shares.guarantees_by_any(claim.queue, &claim.asked) => Whom::ForModels,
        true => Whom::Nobody,
        false if fair.trial.state.policy.leaves_short() && !is_back() => Whom::Nobody,
        false if is_owed_above() && !is_back() => Whom::ButForGuarantees,
        false => return None,
    };
    let spares = Spares { whom, ..Spares::default() };
    by_stops(fair, &Claim { spares: Some(&spares), ..claim.clone() })
}
