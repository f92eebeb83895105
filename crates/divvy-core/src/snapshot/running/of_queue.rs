//! The running jobs of one queue, as far as it matters which of them might give way.

use std::collections::{BTreeMap, BTreeSet};

use super::RunView;
use crate::id::JobId;
use crate::model::policy::Policy;
use crate::snapshot::order::{self, OrderKey};
use crate::time::Time;

/// The running jobs of a queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OfQueue {
    /// The lowest priority first.
    pub(super) jobs: BTreeSet<(i32, JobId)>,
    /// How many of them give back at least so much when they give way.
    sizes: BTreeMap<i64, u32>,
    /// How many devices they hold, in thousandths, by priority.
    held_milli: BTreeMap<i32, i64>,
    /// Those that lose nothing but a restart, where running jobs give way by the order.
    in_order: BTreeSet<Stands>,
}

/// Where a job stands: its priority; an upper bound for what the order compares first of it; the devices that count for its place,
/// in thousandths; when it was submitted; its id; and all of its devices, in thousandths.
type Stands = (i32, i64, i64, Time, JobId, i64);

impl OfQueue {
    /// Counts a job in.
    pub(super) fn enter(&mut self, id: JobId, view: &RunView) {
        self.jobs.insert((view.priority, id));
        *self.sizes.entry(view.least_milli()).or_default() += 1;
        self.hold(view.priority, view.milli);
        self.in_order.extend(stands(id, view));
    }

    /// Counts a job out, as it was counted in.
    pub(super) fn leave(&mut self, id: JobId, view: &RunView) {
        self.jobs.remove(&(view.priority, id));
        let least = view.least_milli();
        if let Some(count) = self.sizes.get_mut(&least) {
            *count -= 1;
            if *count == 0 {
                self.sizes.remove(&least);
            }
        }
        self.hold(view.priority, -view.milli);
        if let Some(stands) = stands(id, view) {
            self.in_order.remove(&stands);
        }
    }

    /// Notes that running on has moved a job; `before` is what the order compared first of it until now.
    pub(super) fn cross(&mut self, id: JobId, view: &RunView, before: i64) {
        if let Some(now) = stands(id, view) {
            self.in_order.remove(&(now.0, before, now.2, now.3, now.4, now.5));
            self.in_order.insert(now);
        }
    }

    fn hold(&mut self, priority: i32, milli: i64) {
        let held = self.held_milli.entry(priority).or_default();
        *held += milli;
        if *held == 0 {
            self.held_milli.remove(&priority);
        }
    }

    /// The least that any of them gives back when it gives way, in thousandths of devices.
    pub(super) fn least_milli(&self) -> Option<i64> {
        self.sizes.first_key_value().map(|(milli, _)| *milli)
    }

    /// How many devices, in thousandths, those of lower priority hold.
    pub(super) fn lower_milli(&self, priority: i32) -> i64 {
        self.held_milli.range(..priority).map(|(_, milli)| *milli).sum()
    }

    /// Those of lower priority.
    pub(super) fn lower(&self, priority: i32) -> impl Iterator<Item = JobId> {
        self.jobs.range(..(priority, JobId::single(0))).map(|(_, job)| *job)
    }

    /// The jobs of a priority that lose nothing but a restart and may stand behind a place in the order (by attained service, those that
    /// do), with their devices in thousandths.
    pub(super) fn behind(
        &self,
        (priority, place): (i32, OrderKey),
        (policy, now): (&Policy, Time),
    ) -> impl Iterator<Item = (JobId, i64)> {
        let further = place.first.checked_add(1).map(|first| least_of((priority, first, i64::MIN)));
        let further =
            further.map(|least| self.in_order.range(least..=most_of((priority, i64::MAX, i64::MAX))));
        let mut milli = i64::MIN;
        let groups = std::iter::from_fn(move || {
            let level = (priority, place.first);
            let rest = least_of((level.0, level.1, milli))..=most_of((level.0, level.1, i64::MAX));
            let of = self.in_order.range(rest).next()?.2;
            milli = of.saturating_add(1);
            let since = order::submitted_behind(policy, place, of, now);
            let least = (level.0, level.1, of, since, JobId::single(0), i64::MIN);
            Some(self.in_order.range(least..=most_of((level.0, level.1, of))))
        });
        let is_behind = move |(.., milli, submitted, job, _): &&Stands| {
            order::is_behind(policy, place, (*job, *submitted, *milli), now)
        };
        let level = groups.flatten().filter(is_behind);
        further.into_iter().flatten().chain(level).map(|(.., job, milli)| (*job, *milli))
    }
}

fn stands(id: JobId, view: &RunView) -> Option<Stands> {
    view.first.map(|first| (view.priority, first, view.order_milli(), view.submitted_at, id, view.milli))
}

fn least_of((priority, first, milli): (i32, i64, i64)) -> Stands {
    (priority, first, milli, Time(i64::MIN), JobId::single(0), i64::MIN)
}

fn most_of((priority, first, milli): (i32, i64, i64)) -> Stands {
    (priority, first, milli, Time(i64::MAX), JobId { number: u64::MAX, member: Some(u32::MAX) }, i64::MAX)
}
