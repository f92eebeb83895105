//! On which levels of the tree a claim stays within what is guaranteed, or due, to its side.

use super::{Candidate, Claim};
use crate::model::borrowing::BorrowEvicts;
use crate::plan::share::Shares;

/// By what right a queue has something.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::plan) enum Right {
    Guarantee,
    Due,
    /// Its jobs are of higher priority than those of other queues that borrow.
    Priority,
}

/// No levels.
const NONE: (usize, usize) = (1, 0);

/// The levels, counted from the claim's queue upwards, that stay within their guarantee with the claim, from one to another;
/// and how many stay within their due. The first of the former is the claim's own queue or, where all below stay within their
/// due, the first above that does. What is due to siblings that cannot have it, since their jobs are larger, counts as due to those
/// beside them, towards all that are farther away. And the priority up to which jobs of others that borrow give way, on any level.
#[derive(Clone, Copy)]
pub(in crate::plan) struct Reach {
    pub(super) from: usize,
    guarantee: usize,
    due: usize,
    /// The levels that do so above some that only stay within what their siblings leave, too: from one to another.
    due_above: (usize, usize),
    pub(super) lower: Option<i32>,
    /// The levels, by bits, on which only what is asked of models is guaranteed, whatever is held of others.
    named: u64,
}

impl Reach {
    pub(super) fn of(shares: &Shares, claim: &Claim, borrow_evicts: BorrowEvicts) -> Self {
        let (lower, named, due_above) = (None, 0, NONE);
        if claim.starves {
            // Only what is guaranteed to others is theirs.
            return Self { from: 1, guarantee: usize::MAX, due: 0, due_above, lower, named };
        }
        if claim.asked.iter().all(|asked| *asked == 0) {
            let stays = |place: &usize| shares.queues[*place].has_room_in_guarantee();
            return Self {
                from: 1,
                guarantee: shares.upwards(claim.queue).take_while(stays).count(),
                due: 0,
                due_above,
                lower,
                named,
            };
        }
        let is_guaranteed = |place: &usize| shares.guarantees_to((claim.queue, *place), &claim.asked);
        let by_models = |place: &usize| {
            is_guaranteed(place) && !shares.stays_guaranteed((claim.queue, *place), &claim.asked)
        };
        let named = shares.upwards(claim.queue).take(64).enumerate();
        let named = named.filter(|(_, place)| by_models(place)).fold(0, |named, (bit, _)| named | 1 << bit);
        let (due, due_above) = levels_in_due(shares, claim);
        // What is guaranteed to a queue is there for those below it to whom it is due.
        let below = shares.upwards(claim.queue).take_while(|place| !is_guaranteed(place)).count();
        let run = shares.upwards(claim.queue).skip(below).take_while(is_guaranteed).count();
        let may = run > 0 && (below <= due || leaves_room(shares, claim, below));
        let (from, guarantee) = if may { (below + 1, below + run) } else { (1, 0) };
        let lower = borrow_evicts.lower_than(claim.spec.priority);
        let (due, due_above) = if borrow_evicts.due { (due, due_above) } else { (0, NONE) };
        Self { from, guarantee, due, due_above, lower, named }
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
        match right {
            Right::Guarantee => self.guarantee,
            Right::Due => self.due.max(self.due_above.1),
            Right::Priority => self.by(right),
        }
    }

    /// Whether the claim is guaranteed, or due, on such a level.
    pub(in crate::plan) fn has(self, right: Right, level: usize) -> bool {
        match right {
            Right::Guarantee => (self.from..=self.guarantee).contains(&level),
            Right::Due => level <= self.due || (self.due_above.0..=self.due_above.1).contains(&level),
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
            Right::Guarantee => {
                Self { from: 1, guarantee: levels, due: 0, due_above: NONE, lower: None, named: 0 }
            }
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
            due_above: if candidate.goes_before { NONE } else { self.due_above },
            lower: self.lower.filter(|most| candidate.cost.priority <= *most),
            ..self
        }
    }
}

/// The levels, from the claim's queue upwards, that stay within their due with the claim: how many do so without a gap; and the last of
/// those that do so farther up, where siblings leave what is lacking on each level between.
fn levels_in_due(shares: &Shares, claim: &Claim) -> (usize, (usize, usize)) {
    let stays = |place: usize| shares.queues[place].stays_within(&claim.asked, |queue| &queue.target);
    let within = shares.upwards(claim.queue).take_while(|place| stays(*place)).count();
    // On the levels just below the pool nobody is farther away; and where the past counts, what is missed is made up for in time.
    let mut above = shares.upwards(claim.queue).skip(within + 1);
    if shares.remembers || !above.any(stays) {
        return (within, NONE);
    }
    let mut farther = NONE;
    for (below, place) in shares.upwards(claim.queue).enumerate().skip(within) {
        match stays(place) {
            true if farther.1 == below => farther.1 = below + 1,
            true => farther = (below + 1, below + 1),
            false if siblings_leave(shares, claim, place) => {}
            false => break,
        }
    }
    (within, farther)
}

/// Whether each of so many levels stays within its due with the claim, and with what its siblings leave.
fn leaves_room(shares: &Shares, claim: &Claim, levels: usize) -> bool {
    shares.upwards(claim.queue).take(levels).all(|place| {
        shares.queues[place].stays_within(&claim.asked, |queue| &queue.target)
            || siblings_leave(shares, claim, place)
    })
}

fn siblings_leave(shares: &Shares, claim: &Claim, place: usize) -> bool {
    let queue = &shares.queues[place];
    let leaves = |index: usize| {
        let lacks = queue.held[index].saturating_add(claim.asked[index]) - queue.target[index];
        lacks <= 0 || lacks <= shares.left_by_siblings(place, index)
    };
    (0..claim.asked.len()).filter(|index| claim.asked[*index] > 0).all(leaves)
}
