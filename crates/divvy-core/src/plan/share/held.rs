//! Part of phase 1, share: what the queues hold, kept from event to event in the snapshot and from step to step in a cycle.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Amounts, POOL, QueueShare, Shares};
use crate::amount::{Holdings, Resource};
use crate::model::models::{ByModels, Models};
use crate::plan::reclaim::Right;
use crate::snapshot::Running;

impl QueueShare {
    /// Whether it stays within `bound` for every resource that is asked for if it takes so much more. A job
    /// that asks for nothing that is divided has no claim on others.
    pub(crate) fn stays_within(&self, asked: &Amounts, bound: fn(&Self) -> &Amounts) -> bool {
        let mut asked = asked.iter().enumerate().filter(|(_, asked)| **asked > 0).peekable();
        let stays =
            |(index, asked): (usize, &i64)| self.held[index].saturating_add(*asked) <= bound(self)[index];
        asked.peek().is_some() && asked.all(stays)
    }

    /// Whether devices are guaranteed to it, and it holds no more of them: the hosts that they need come with them.
    pub(crate) fn has_room_in_guarantee(&self) -> bool {
        self.guarantee[ANY] > 0 && self.held[ANY] <= self.guarantee[ANY]
    }

    /// Whether a host resource is asked for with devices, and the queue states no guarantee of it.
    pub(crate) fn comes_with_devices(&self, index: usize, asked: &Amounts) -> bool {
        asked[ANY] > 0 && self.said[index] == i64::MAX
    }

    /// Whether it takes more of a resource than is guaranteed to it, and runs more than is due as well. What it is
    /// promised it does not hold yet, so that is no reason to take what it has.
    pub(crate) fn beyond(&self, index: usize) -> (bool, bool) {
        let is_beyond = self.takes(index) > self.guarantee[index];
        (is_beyond, is_beyond && self.running[index] > self.keeps[index])
    }

    /// What it wants of the queue above it. Without a weight nothing is due to it but its guarantee.
    pub(in crate::plan) fn wants_above(&self, index: usize) -> i64 {
        let most = if self.weight > 0 { i64::MAX } else { self.guarantee[index] };
        self.wanted[index].min(most)
    }

    /// What it runs, and what is kept in it for those who do not use it.
    pub(crate) fn takes(&self, index: usize) -> i64 {
        self.running[index].saturating_add(self.vacant[index])
    }

    /// Likewise, as far as a job that draws so much may go for that. Where the past counts, a queue with too
    /// much gives it back in time, so it is never left with less than is due to it.
    pub(crate) fn lends(&self, (index, draw): (usize, i64), remembers: bool) -> (bool, bool) {
        let (beyond_guarantee, beyond_due) = self.beyond(index);
        let is_left_it = !remembers || self.running[index].saturating_sub(draw) >= self.keeps[index];
        (beyond_guarantee, beyond_due && is_left_it)
    }

    /// Whether it bounds what jobs that are not preemptible hold. No part of a queue's guarantee is a user's own; and on nodes that are
    /// kept for it no other queue has any part.
    pub(super) fn binds_fixed(&self) -> bool {
        !self.is_seat && !self.has_nodes
    }

    /// The most that they hold. A queue that states less than is guaranteed to those below it is bound by that.
    pub(super) fn pinned_at_most(&self, index: usize) -> i64 {
        self.guarantee[index].min(self.said[index])
    }

    /// The least that a job in it draws of a resource, as far as that is known; nothing where none gives way.
    pub(crate) fn least(&self, index: usize) -> Option<i64> {
        let known = if index == ANY { self.least_milli } else { 0 };
        (self.least_milli < i64::MAX).then_some(known)
    }
}

/// Where devices of all models are among the resources.
pub(crate) const ANY: usize = 0;

/// The resources of which others must have too much: any of those that are asked for or, for a job that asks
/// for nothing that is divided, devices.
pub(crate) fn at_stake(asked: &Amounts) -> impl Iterator<Item = usize> {
    let asks = |index: &usize| asked[*index] > 0;
    let devices = (!(0..asked.len()).any(|index| asks(&index))).then_some(ANY);
    (0..asked.len()).filter(asks).chain(devices)
}

impl Shares {
    /// Notes what the jobs that may give way draw at least.
    pub(super) fn note_least(&mut self, running: &Running) {
        let mut places = self.in_order();
        let least = running.least_milli();
        let least: Vec<(usize, i64)> = least
            .map(|(path, milli)| (places.place(path).unwrap_or_else(|| self.place(path)), milli))
            .collect();
        for (mut place, milli) in least {
            while place != POOL {
                let queue = &mut self.queues[place];
                queue.least_milli = queue.least_milli.min(milli);
                place = queue.parent;
            }
        }
    }

    /// Notes what the queues hold, by their paths: all of it, what of it is being stopped, and what is not preemptible.
    pub(crate) fn note(
        &mut self,
        held: &BTreeMap<String, Holdings>,
        leaving: &BTreeMap<String, Holdings>,
        pinned: &BTreeMap<String, Holdings>,
    ) {
        let Self { resources, queues, by_path, .. } = self;
        for (path, place) in by_path.iter() {
            let queue = &mut queues[*place];
            for (index, resource) in resources.iter().enumerate() {
                let of =
                    |books: &BTreeMap<String, Holdings>| books.get(path).map_or(0, |held| held.of(resource));
                queue.wanted[index] = of(held);
                queue.held[index] = of(held) - of(leaving);
                queue.running[index] = queue.held[index];
                queue.pinned[index] = of(pinned);
            }
        }
    }

    /// Counts what a job in a queue holds (or, with the sign −1, gives back).
    pub(crate) fn hold(&mut self, path: &str, drawn: &[(&Resource, i64)], (sign, pins): (i64, bool)) {
        self.count(path, drawn, |queue, index, amount| {
            queue.held[index] += sign * amount;
            queue.running[index] += sign * amount;
            queue.wanted[index] += sign * amount;
            queue.pinned[index] += if pins { sign * amount } else { 0 };
        });
    }

    /// Counts what tasks of a queue hold (or, with less than nothing, give back) that can run on some models only.
    pub(crate) fn bind(&mut self, path: &str, (models, milli): (&Models, i64)) {
        let (place, bound) = (self.place(path), Arc::make_mut(&mut self.bound));
        bound.resize_with(bound.len().max(place + 1), ByModels::default);
        bound[place].change(models, |sum| *sum += milli);
    }

    /// Counts what of that is being stopped: it is no longer held, but still wanted.
    pub(crate) fn leave(&mut self, path: &str, drawn: &[(&Resource, i64)], sign: i64) {
        self.count(path, drawn, |queue, index, amount| {
            queue.held[index] -= sign * amount;
            queue.running[index] -= sign * amount;
        });
    }

    /// Counts what is drawn of each resource that is divided, for a queue and those above it.
    fn count(&mut self, path: &str, drawn: &[(&Resource, i64)], count: impl Fn(&mut QueueShare, usize, i64)) {
        let mut place = self.place(path);
        while place != POOL {
            let Self { resources, queues, .. } = &mut *self;
            for (index, resource) in resources.iter().enumerate() {
                if let Some((_, amount)) = drawn.iter().find(|(other, _)| *other == resource) {
                    count(&mut queues[place], index, *amount);
                }
            }
            place = queues[place].parent;
        }
    }

    /// Counts a running job as stopped (or, with the sign −1, as running on).
    pub(crate) fn stop(&mut self, place: usize, amounts: &Amounts, sign: i64) {
        self.charge(place, amounts, (-sign, false));
        let mut place = place;
        while place != POOL {
            self.count_lender(place, -1);
            let running = self.queues[place].running.iter_mut();
            running.zip(amounts).for_each(|(running, amount)| *running -= sign * amount);
            self.count_lender(place, 1);
            place = self.queues[place].parent;
        }
    }

    /// Counts a queue for its parent among those that run more than is guaranteed, or due, to them; with −1 takes it out.
    pub(super) fn count_lender(&mut self, place: usize, sign: i32) {
        let parent = self.queues[place].parent;
        for index in 0..self.resources.len() {
            let queue = &self.queues[place];
            let Some(least) = queue.least(index) else { continue };
            let lends = queue.lends((index, least), self.remembers);
            let lenders = &mut self.queues[parent].lenders[index];
            *lenders = (
                lenders.0.saturating_add_signed(sign * i32::from(lends.0)),
                lenders.1.saturating_add_signed(sign * i32::from(lends.1)),
            );
        }
    }

    /// Whether any queue beside a queue's path has more of something that is asked for than is guaranteed to it, or
    /// than is due, on a level (the queue's own is the first) on which `may` lets that be taken by such a right.
    pub(in crate::plan) fn anyone_lends(
        &self,
        place: usize,
        asked: &Amounts,
        may: impl Fn(Right, usize) -> bool,
    ) -> bool {
        let lends = |(place, level): (usize, usize)| {
            let lenders = &self.queues[self.queues[place].parent].lenders;
            at_stake(asked).filter_map(|index| lenders.get(index)).any(|(beyond_guarantee, beyond_due)| {
                *beyond_guarantee > 0 && may(Right::Guarantee, level)
                    || *beyond_due > 0 && may(Right::Due, level)
                    || *beyond_guarantee > 0 && may(Right::Priority, level)
            })
        };
        self.upwards(place).zip(1..).any(lends)
    }
}
