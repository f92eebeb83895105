//! On which levels of the tree a claim stays within what is guaranteed, or due, to its side.

use super::Claim;
use crate::plan::share::{ANY, Amounts, QueueShare, Shares};

/// By what right a queue has something.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::plan) enum Right {
    Guarantee,
    Due,
}

/// Which levels, from the claim's queue upwards, stay within their guarantee with the claim: from one up to one; and how many stay
/// within their due. The first is the claim's own queue's or, where all below it stay within their due, the first above that.
#[derive(Clone, Copy)]
pub(in crate::plan) struct Reach {
    pub(super) from: usize,
    guarantee: usize,
    due: usize,
}

impl Reach {
    pub(super) fn of(shares: &Shares, claim: &Claim, borrow_evicts: bool) -> Self {
        if claim.starves {
            // Only what is guaranteed to others is theirs.
            return Self { from: 1, guarantee: usize::MAX, due: 0 };
        }
        if claim.asked.iter().all(|asked| *asked == 0) {
            // A guarantee of devices comes with the hosts that they need.
            let stays = |place: &usize| {
                let queue = &shares.queues[*place];
                queue.guarantee[ANY] > 0 && queue.held[ANY] <= queue.guarantee[ANY]
            };
            return Self {
                from: 1,
                guarantee: shares.upwards(claim.queue).take_while(stays).count(),
                due: 0,
            };
        }
        let stays = |place: &usize, bound: fn(&QueueShare) -> &Amounts| {
            shares.queues[*place].stays_within(&claim.asked, bound)
        };
        let is_guaranteed = |place: &usize| stays(place, |queue| &queue.guarantee);
        let due = shares.upwards(claim.queue).take_while(|place| stays(place, |queue| &queue.target)).count();
        // What is guaranteed to a queue is there for those below it to whom it is due.
        let below = shares.upwards(claim.queue).take_while(|place| !is_guaranteed(place)).count();
        let run = shares.upwards(claim.queue).skip(below).take_while(is_guaranteed).count();
        let (from, guarantee) = if run > 0 && below <= due { (below + 1, below + run) } else { (1, 0) };
        Self { from, guarantee, due: if borrow_evicts { due } else { 0 } }
    }

    /// How many levels stay within what is guaranteed, or due, to them, its own queue's and those above without a gap.
    pub(super) fn by(self, right: Right) -> usize {
        match right {
            Right::Guarantee if self.from > 1 => 0,
            Right::Guarantee => self.guarantee,
            Right::Due => self.due,
        }
    }

    /// Whether it is guaranteed, on such a level, or due.
    pub(in crate::plan) fn has(self, right: Right, level: usize) -> bool {
        match right {
            Right::Guarantee => (self.from..=self.guarantee).contains(&level),
            Right::Due => level <= self.due,
        }
    }

    /// Once siblings have given back what they have too much.
    pub(super) fn at_last(self, right: Right, levels: usize) -> Self {
        match right {
            Right::Guarantee => Self { from: 1, guarantee: levels, due: 0 },
            Right::Due => Self { due: levels, ..self },
        }
    }
}
