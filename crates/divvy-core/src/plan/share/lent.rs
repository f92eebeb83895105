//! Part of phase 1, share: when a queue may borrow; and, for people, how much of what is guaranteed to a queue others hold now.

use std::collections::BTreeMap;

use super::super::divide::{Claim, fill};
use super::{ANY, Amounts, POOL, Shares};
use crate::amount::{Holdings, Resource};
use crate::model::device::WHOLE_MILLI;

/// What a queue has that others may use.
#[derive(Clone, Copy, Debug, Default)]
struct Lender {
    /// What is guaranteed to it and not held by it.
    idle: i64,
    /// What of that it is willing to lend.
    willing: i64,
}

impl Shares {
    /// Whether a queue that takes so much takes more than it keeps for itself, and so some of what no queue keeps.
    pub(in crate::plan) fn borrows(&self, place: usize, asked: &Amounts) -> bool {
        self.loans.as_ref().is_some_and(|loans| loans.borrows(&self.queues, place, asked))
    }

    /// Returns the number of the step after which a queue may have so much, by what the others lend and what it may
    /// borrow, while jobs end in this order. Each step gives the queues of the jobs that end, and what they draw. `suffices`
    /// says whether so much of each model (milli) is enough.
    pub(in crate::plan) fn lent_after(
        &self,
        place: usize,
        asked: &Amounts,
        ends: impl Iterator<Item = Vec<(usize, Amounts)>>,
        suffices: impl Fn(&dyn Fn(&str) -> i64) -> bool,
    ) -> Option<usize> {
        let mut loans = self.loans.clone()?;
        ends.enumerate().find_map(|(step, ended)| {
            ended.iter().for_each(|(of, amounts)| loans.charge(&self.queues, *of, (amounts, -1)));
            let left = |model: &str| {
                let is_it =
                    |index: &usize| matches!(&self.resources[*index], Resource::Model(it) if it == model);
                let index = self.models().find(is_it);
                index.map_or(i64::MAX, |index| loans.left(&self.queues, (place, place), index))
            };
            let is_lent = loans.refuses(&self.queues, place, asked).is_none() && suffices(&left);
            is_lent.then_some(step)
        })
    }

    /// What a queue could take of each resource once another has taken so much; `None` where that leaves it as much as before.
    pub(in crate::plan) fn leaves(
        &self,
        (owner, other): (usize, usize),
        asked: &Amounts,
    ) -> Vec<Option<i64>> {
        let Some(loans) = &self.loans else {
            return asked.iter().enumerate().map(|(index, asked)| Some(self.left(index) - asked)).collect();
        };
        let mut after = loans.clone();
        after.charge(&self.queues, other, (asked, 1));
        let of = |index: usize| {
            let left = after.available(&self.queues, owner, index);
            (left < loans.available(&self.queues, owner, index)).then_some(left)
        };
        (0..asked.len()).map(of).collect()
    }

    /// What each queue lends of its guarantee, in thousandths of devices of any model, by place.
    ///
    /// At each fork, what the children hold beyond their guarantees comes from what is guaranteed to none of them (used first),
    /// from outside, and for the rest from each other. What the queue above lends goes outside, out of what they have idle.
    pub(super) fn lent(&self, held: &BTreeMap<String, Holdings>, whole: i64) -> Vec<i64> {
        let mut held_by = vec![0; self.queues.len()];
        for (path, place) in self.by_path.iter() {
            held_by[*place] = held.get(path).map_or(0, |held| held.of(&Resource::Any));
        }
        let tops = self.queues[POOL].children.iter();
        held_by[POOL] = sum(tops.map(|child| held_by[*child]));
        let mut lent = vec![0; self.queues.len()];
        // Parents come before their children.
        for queue in 0..self.queues.len() {
            let guarantee = if queue == POOL { whole } else { self.queues[queue].guarantee[ANY] };
            self.lent_below((queue, guarantee), &held_by, &mut lent);
        }
        lent
    }

    /// Divides what those below a queue lend among them.
    fn lent_below(&self, (queue, guarantee): (usize, i64), held: &[i64], lent: &mut [i64]) {
        // No part of a queue's guarantee is a user's own.
        let is_queue = |child: &&usize| !self.queues[**child].is_seat;
        let children: Vec<usize> = self.queues[queue].children.iter().filter(is_queue).copied().collect();
        if children.is_empty() {
            return;
        }
        let guaranteed = |child: &usize| self.queues[*child].guarantee[ANY];
        let apart = guarantee.saturating_sub(sum(children.iter().map(guaranteed))).max(0);
        let apart_held = held[queue] - sum(children.iter().map(|child| held[*child]));
        let beyond = |guarantee: i64, held: i64| (held - guarantee).max(0);
        let borrowed = sum(children.iter().map(|child| beyond(guaranteed(child), held[*child])));
        let borrowed = borrowed + beyond(apart, apart_held);
        let left = lent[queue] + borrowed - beyond(guarantee, held[queue]) - (apart - apart_held).max(0);
        let lender = |child: &usize| {
            let kept = self.loans.as_ref().map_or(0, |loans| loans.kept_below(*child)[ANY]);
            let idle_beside = |held: i64| (guaranteed(child) - held).max(0);
            Lender { idle: idle_beside(held[*child]), willing: idle_beside(held[*child].max(kept)) }
        };
        let lenders: Vec<Lender> = children.iter().map(lender).collect();
        for (child, part) in children.into_iter().zip(parts(left.max(0), &lenders)) {
            lent[child] = part;
        }
    }
}

/// Divides what is lent by what each queue has idle: first what they are willing to lend, then, where
/// settings have changed since, the rest.
fn parts(whole: i64, lenders: &[Lender]) -> Vec<i64> {
    let of = |wanted: i64| {
        let weight = u32::try_from(wanted).unwrap_or(u32::MAX);
        Claim { guaranteed: 0, wanted, weight, priority: 0 }
    };
    let willing: Vec<Claim> = lenders.iter().map(|lender| of(lender.willing)).collect();
    let first = fill(whole, &willing, i64::from(WHOLE_MILLI));
    let rest: Vec<Claim> = lenders.iter().zip(&first).map(|(lender, part)| of(lender.idle - part)).collect();
    let more = fill(whole - sum(first.iter().copied()), &rest, i64::from(WHOLE_MILLI));
    first.into_iter().zip(more).map(|(first, more)| first + more).collect()
}

fn sum(amounts: impl Iterator<Item = i64>) -> i64 {
    amounts.fold(0, i64::saturating_add)
}
