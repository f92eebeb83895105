//! On which levels of the tree a claim stays within what is guaranteed, or due, to its side.

use super::{Candidate, Claim};
use crate::model::borrowing::BorrowEvicts;
use crate::plan::share::{Amounts, QueueShare, Shares};

/// By what right a queue has something.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::plan) enum Right {
    Guarantee,
    Due,
    /// Its jobs are of higher priority than those of other queues that borrow.
    Priority,
}

/// The levels, counted from the claim's queue upwards, that stay within their guarantee with the claim, from one to another;
/// and how many stay within their due. The first of the former is the claim's own queue or, where all below stay within their
/// due, the first above that does. And the priority up to which jobs of others that borrow give way, on any level.
#[derive(Clone, Copy)]
pub(in crate::plan) struct Reach {
    pub(super) from: usize,
    guarantee: usize,
    due: usize,
    pub(super) lower: Option<i32>,
    /// The levels, by bits, on which only what is asked of models is guaranteed, whatever is held of others.
    named: u64,
}

impl Reach {
    pub(super) fn of(shares: &Shares, claim: &Claim, borrow_evicts: BorrowEvicts) -> Self {
        let (lower, named) = (None, 0);
        if claim.starves {
            // Only what is guaranteed to others is theirs.
            return Self { from: 1, guarantee: usize::MAX, due: 0, lower, named };
        }
        if claim.asked.iter().all(|asked| *asked == 0) {
            let stays = |place: &usize| shares.queues[*place].has_room_in_guarantee();
            return Self {
                from: 1,
                guarantee: shares.upwards(claim.queue).take_while(stays).count(),
                due: 0,
                lower,
                named,
            };
        }
        let stays = |place: &usize, bound: fn(&QueueShare) -> &Amounts| {
            shares.queues[*place].stays_within(&claim.asked, bound)
        };
        let is_guaranteed = |place: &usize| shares.guarantees_to((claim.queue, *place), &claim.asked);
        let by_models = |place: &usize| {
            is_guaranteed(place) && !shares.stays_guaranteed((claim.queue, *place), &claim.asked)
        };
        let named = shares.upwards(claim.queue).take(64).enumerate();
        let named = named.filter(|(_, place)| by_models(place)).fold(0, |named, (bit, _)| named | 1 << bit);
        let due = shares.upwards(claim.queue).take_while(|place| stays(place, |queue| &queue.target)).count();
        // What is guaranteed to a queue is there for those below it to whom it is due.
        let below = shares.upwards(claim.queue).take_while(|place| !is_guaranteed(place)).count();
        let run = shares.upwards(claim.queue).skip(below).take_while(is_guaranteed).count();
        let (from, guarantee) = if run > 0 && below <= due { (below + 1, below + run) } else { (1, 0) };
        let lower = borrow_evicts.lower_than(claim.spec.priority);
        Self { from, guarantee, due: if borrow_evicts.due { due } else { 0 }, lower, named }
    }

    /// How many levels stay within what is guaranteed, or due, to them, from the claim's own queue upwards without a gap.
    pub(super) fn by(self, right: Right) -> usize {
        match right {
            Right::Guarantee if self.from > 1 => 0,
            Right::Guarantee => self.guarantee,
            Right::Due => self.due,
            Right::Priority => self.lower.map_or(0, |_| usize::MAX),
        }
    }

    /// Likewise, where levels below the first that is guaranteed have what is theirs of its guarantee.
    pub(super) fn up_to(self, right: Right) -> usize {
        if right == Right::Guarantee { self.guarantee } else { self.by(right) }
    }

    /// Whether the claim is guaranteed, or due, on such a level.
    pub(in crate::plan) fn has(self, right: Right, level: usize) -> bool {
        match right {
            Right::Guarantee => (self.from..=self.guarantee).contains(&level),
            Right::Due => level <= self.due,
            Right::Priority => self.lower.is_some(),
        }
    }

    /// Whether the claim is guaranteed on a level by models alone: then only jobs that hold some of these give way for that.
    pub(in crate::plan) fn is_by_models(self, level: usize) -> bool {
        (1..=64).contains(&level) && self.named & (1 << (level - 1)) != 0
    }

    /// The reach once siblings have given back what they have too much.
    pub(super) fn at_last(self, right: Right, levels: usize) -> Self {
        match right {
            Right::Guarantee => Self { from: 1, guarantee: levels, due: 0, lower: None, named: 0 },
            Right::Due | Right::Priority => Self { due: levels, ..self },
        }
    }

    /// The part that does not go by priority alone.
    pub(super) fn without_priority(self) -> Self {
        Self { lower: None, ..self }
    }

    /// The part that holds against one job. By what is merely due nothing is taken from a job that may take
    /// it back by priority alone: the two would take each other's places in turns.
    pub(super) fn against(self, candidate: &Candidate) -> Self {
        Self {
            due: if candidate.goes_before { 0 } else { self.due },
            lower: self.lower.filter(|most| candidate.cost.priority <= *most),
            ..self
        }
    }
}
