//! Part of phase 1, share: what queues lend each other. A queue keeps for itself what it does not lend. What it uses
//! fills that first, and only the excess counts above, up to the pool, from which all take what no queue keeps.

use smallvec::smallvec;

use super::share::{Amounts, POOL, QueueShare, amount};
use crate::amount::Resource;
use crate::model::queue::Queue;

/// What each queue keeps, may borrow and uses beyond what is kept below it; all by place in the tree.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Loans {
    of: Vec<Loan>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Loan {
    /// What it may take beyond what is its own.
    borrow: Amounts,
    /// What its siblings may use of its own while it does not.
    lend: Amounts,
    /// What is its own without what those below it keep.
    own: Amounts,
    /// What it keeps for itself and those below it.
    kept: Amounts,
    /// That, and all that is kept below it.
    kept_below: Amounts,
    /// What of that others below it could have had, on the same nodes.
    kept_inside: Amounts,
    /// What it uses beyond what is kept below it.
    used: Amounts,
    /// What of all that is kept in it and below it those do not use for whom it is kept.
    vacant: Amounts,
    /// Whether it has nodes that others have not, as the pool has: what is lent on them is lent below it.
    has_nodes: bool,
}

impl Loan {
    fn vacancy(&self, resource: usize) -> i64 {
        (self.kept[resource] - self.used[resource]).max(0)
    }
}

/// Why a queue may not have what is asked.
pub(super) struct Refused {
    /// Which resource.
    pub(super) resource: usize,
    /// The queue whose bound on borrowing refuses it; the pool if no such bound does.
    pub(super) queue: usize,
    /// That bound.
    pub(super) borrow: Option<i64>,
    /// What is left to be lent.
    pub(super) left: i64,
    /// Whether there is less than is guaranteed to all, so that it would be refused even if the others gave back all that they borrow.
    pub(super) is_short: bool,
}

impl Loans {
    /// What queues say of loans.
    pub(super) fn of(queues: &[QueueShare], named: &[(usize, &Queue)], resources: &[Resource]) -> Self {
        let zero: Amounts = smallvec![0; resources.len()];
        let unsaid = || smallvec![i64::MAX; resources.len()];
        let loan = Loan {
            borrow: unsaid(),
            lend: unsaid(),
            own: zero.clone(),
            kept: zero.clone(),
            kept_below: zero.clone(),
            kept_inside: zero.clone(),
            used: zero.clone(),
            vacant: zero,
            has_nodes: false,
        };
        let mut loans = Self { of: vec![loan; queues.len()] };
        loans.of[POOL].has_nodes = true;
        for (place, queue) in named {
            let loan = &mut loans.of[*place];
            loan.has_nodes = !queue.nodes.is_unsaid();
            // A queue with nodes has all of them alone. That it has no others is for the code that looks at nodes.
            let is_kept = |it: &Resource| loan.has_nodes && is_added_up(it);
            // What it lends of all models it lends of each at most.
            let of_all = amount(&queue.lend, &Resource::Any, i64::MAX);
            let lend = |it: &Resource| match it {
                _ if is_kept(it) => 0,
                Resource::Model(_) => amount(&queue.lend, it, i64::MAX).min(of_all),
                _ => amount(&queue.lend, it, i64::MAX),
            };
            loan.lend = resources.iter().map(lend).collect();
            loan.borrow = resources.iter().map(|it| amount(&queue.borrow, it, i64::MAX)).collect();
        }
        loans.keep_anew(queues);
        loans
    }

    /// Notes what queues have, and what of that they keep, by what is guaranteed to them now.
    pub(super) fn keep_anew(&mut self, queues: &[QueueShare]) {
        // From the leaves up: what is kept below a queue is not its own to lend.
        for place in (1..queues.len()).rev() {
            for resource in 0..queues[place].guarantee.len() {
                self.keep(queues, (place, resource), queues[place].guarantee[resource]);
            }
        }
    }

    /// Notes what a queue has without what those below it keep, and what of that it keeps.
    fn keep(&mut self, queues: &[QueueShare], (place, resource): (usize, usize), whole: i64) {
        let below = queues[place].children.iter().map(|child| self.of[*child].kept_below[resource]);
        let below = below.fold(0, i64::saturating_add);
        let inside = queues[place].children.iter().map(|child| &self.of[*child]).map(|child| {
            if child.has_nodes { 0 } else { child.kept[resource].saturating_add(child.kept_inside[resource]) }
        });
        let inside = inside.fold(0, i64::saturating_add);
        let loan = &mut self.of[place];
        loan.kept_inside[resource] = inside;
        loan.own[resource] = whole.saturating_sub(below);
        loan.kept[resource] = match loan.lend[resource] {
            i64::MAX => 0,
            lend => loan.own[resource].saturating_sub(lend).max(0),
        };
        loan.kept_below[resource] = loan.kept[resource].saturating_add(below);
    }

    /// With what the pool has, and what the queues hold.
    pub(super) fn noted(mut self, queues: &[QueueShare], whole: &Amounts) -> Self {
        for (resource, whole) in whole.iter().enumerate() {
            self.keep(queues, (POOL, resource), *whole);
        }
        self.fill(queues, |queue| &queue.held);
        self
    }

    /// What of all that is kept in each queue and below it is left, by place, once those for whom it is kept have such amounts.
    pub(super) fn vacant_with(
        &self,
        queues: &[QueueShare],
        amounts: fn(&QueueShare) -> &Amounts,
    ) -> Vec<Amounts> {
        let mut filled = self.clone();
        filled.fill(queues, amounts);
        filled.of.into_iter().map(|loan| loan.vacant).collect()
    }

    /// Fills what is kept with what queues hold, or want.
    fn fill(&mut self, queues: &[QueueShare], amounts: fn(&QueueShare) -> &Amounts) {
        let of = |queue: usize, resource: usize| amounts(&queues[queue])[resource];
        for place in (0..queues.len()).rev() {
            let children = &queues[place].children;
            for resource in 0..self.of[place].own.len() {
                let inside = |child: &usize| {
                    let child_loan = &self.of[*child];
                    of(*child, resource) - (child_loan.used[resource] - child_loan.kept[resource]).max(0)
                };
                let inside: i64 = children.iter().map(inside).sum();
                let below: i64 = children.iter().map(|child| self.of[*child].vacant[resource]).sum();
                // The pool is no queue whose holdings are counted: its queues hold all that is held.
                let held = match place {
                    POOL => children.iter().map(|child| of(*child, resource)).sum(),
                    _ => of(place, resource),
                };
                let loan = &mut self.of[place];
                loan.used[resource] = held - inside;
                loan.vacant[resource] = below + loan.vacancy(resource);
            }
        }
    }

    /// What a queue may take beyond what is its own.
    pub(super) fn borrow(&self, place: usize) -> &Amounts {
        &self.of[place].borrow
    }

    /// What a queue and those below it keep for themselves.
    pub(super) fn kept_below(&self, place: usize) -> &Amounts {
        &self.of[place].kept_below
    }

    /// What of all that is kept in a queue and below it those do not use for whom it is kept.
    pub(super) fn vacant(&self, place: usize) -> &Amounts {
        &self.of[place].vacant
    }

    /// Counts what a queue takes (or, with the sign −1, gives back): above it only what exceeds what it keeps.
    pub(super) fn charge(&mut self, queues: &[QueueShare], place: usize, (amounts, sign): (&Amounts, i64)) {
        for (resource, amount) in amounts.iter().enumerate() {
            let (mut place, mut more, mut emptied) = (place, sign * amount, 0);
            loop {
                let loan = &mut self.of[place];
                let excess = |loan: &Loan| (loan.used[resource] - loan.kept[resource]).max(0);
                let (before, vacancy) = (excess(loan), loan.vacancy(resource));
                loan.used[resource] += more;
                more = excess(loan) - before;
                emptied += loan.vacancy(resource) - vacancy;
                loan.vacant[resource] += emptied;
                if place == POOL {
                    break;
                }
                place = queues[place].parent;
            }
        }
    }

    /// Where a queue's request is refused, if it is.
    pub(super) fn refuses(&self, queues: &[QueueShare], place: usize, asked: &Amounts) -> Option<Refused> {
        (0..asked.len()).filter(|resource| asked[*resource] > 0).find_map(|resource| {
            let (asker, mut place, mut need) = (place, place, asked[resource]);
            loop {
                let loan = &self.of[place];
                if loan.has_nodes {
                    let left = loan.own[resource].saturating_sub(loan.used[resource]);
                    // Where nothing is kept that others do not use themselves, capacity alone decides.
                    let is_refused = loan.kept_inside[resource] > 0 && need > left;
                    if !is_refused || !self.keep_idle(queues, (place, asker), resource) {
                        return None;
                    }
                    let (queue, borrow) = (POOL, None);
                    let lent = self.lent_to_others(queues, asker, resource);
                    let tops = queues[place].children.iter().map(|child| queues[*child].guarantee[resource]);
                    let guaranteed = tops.fold(0, i64::saturating_add);
                    let is_short = guaranteed > loan.own[resource] && need > left.saturating_add(lent);
                    return Some(Refused { resource, queue, borrow, left: left.max(0), is_short });
                }
                need -= (loan.kept[resource] - loan.used[resource]).clamp(0, need);
                if need == 0 {
                    return None;
                }
                let left = self.may_still_borrow(place, resource);
                if need > left {
                    let borrow = Some(loan.borrow[resource]);
                    let (queue, left) = (place, left.max(0));
                    return Some(Refused { resource, queue, borrow, left, is_short: false });
                }
                place = queues[place].parent;
            }
        })
    }

    /// The most of a resource that a queue is not refused.
    pub(super) fn left(&self, queues: &[QueueShare], (place, asker): (usize, usize), resource: usize) -> i64 {
        let loan = &self.of[place];
        if loan.has_nodes {
            let is_kept = loan.kept_inside[resource] > 0 && self.keep_idle(queues, (place, asker), resource);
            let left = loan.own[resource].saturating_sub(loan.used[resource]).max(0);
            return if is_kept { left } else { i64::MAX };
        }
        let free = loan.kept[resource].saturating_sub(loan.used[resource]).max(0);
        let above = self.left(queues, (queues[place].parent, asker), resource);
        free.saturating_add(above.min(self.may_still_borrow(place, resource).max(0)))
    }

    /// Whether a queue that takes so much takes any of what no queue keeps.
    pub(super) fn borrows(&self, queues: &[QueueShare], place: usize, asked: &Amounts) -> bool {
        (0..asked.len()).filter(|resource| asked[*resource] > 0).any(|resource| {
            let (mut place, mut need) = (place, asked[resource]);
            while need > 0 && !self.of[place].has_nodes {
                let loan = &self.of[place];
                need -= (loan.kept[resource] - loan.used[resource]).clamp(0, need);
                place = queues[place].parent;
            }
            need > 0
        })
    }

    /// What queues other than `asker` and those above it borrow; what is borrowed at several levels counts at each.
    fn lent_to_others(&self, queues: &[QueueShare], asker: usize, resource: usize) -> i64 {
        let parent = |place: &usize| (*place != POOL).then(|| queues[*place].parent);
        let is_other = |place: &usize| !std::iter::successors(Some(asker), parent).any(|own| own == *place);
        let others = (1..self.of.len()).filter(is_other);
        others.map(|place| self.borrowed(place, resource)).fold(0, i64::saturating_add)
    }

    /// Whether queues other than `asker` and those above it keep, on the nodes of `nodes_of`, anything that they do not use.
    fn keep_idle(&self, queues: &[QueueShare], (nodes_of, asker): (usize, usize), resource: usize) -> bool {
        let parent = |place: &usize| (*place != POOL).then(|| queues[*place].parent);
        let has_nodes = |place: &usize| self.of[*place].has_nodes;
        let lies_there = |place| std::iter::successors(Some(place), parent).find(has_nodes) == Some(nodes_of);
        let is_other = |place: &usize| !std::iter::successors(Some(asker), parent).any(|own| own == *place);
        let idle = |place: &usize| self.of[*place].kept[resource] > self.of[*place].used[resource];
        (1..self.of.len()).filter(idle).any(|place| is_other(&place) && lies_there(place))
    }

    /// What a queue may still take from above: what it lends of its own and what it may borrow, less what it already has of these.
    fn may_still_borrow(&self, place: usize, resource: usize) -> i64 {
        let loan = &self.of[place];
        if loan.borrow[resource] == i64::MAX {
            return i64::MAX;
        }
        let lent = loan.own[resource].saturating_sub(loan.kept[resource]);
        let excess = loan.used[resource].saturating_sub(loan.kept[resource]).max(0);
        lent.saturating_add(loan.borrow[resource]).saturating_sub(excess)
    }

    /// What a queue has of what others lend it.
    pub(super) fn borrowed(&self, place: usize, resource: usize) -> i64 {
        let loan = &self.of[place];
        loan.used[resource].saturating_sub(loan.own[resource]).max(0)
    }

    /// What a queue could still take.
    pub(super) fn available(&self, queues: &[QueueShare], place: usize, resource: usize) -> i64 {
        let loan = &self.of[place];
        if loan.has_nodes {
            return loan.own[resource].saturating_sub(loan.used[resource]);
        }
        let free = loan.kept[resource].saturating_sub(loan.used[resource]).max(0);
        let above = self.available(queues, queues[place].parent, resource);
        free.saturating_add(above.min(self.may_still_borrow(place, resource)))
    }
}

/// Whether what nodes have of a resource is added up, so that it can be divided.
pub(super) fn is_added_up(resource: &Resource) -> bool {
    matches!(resource, Resource::Any | Resource::Model(_) | Resource::Cpu | Resource::Memory)
}
