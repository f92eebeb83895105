//! The running jobs that stand behind a place in the order.

use std::ops::Bound;

use super::{RunView, Running};
use crate::id::JobId;
use crate::model::policy::Policy;
use crate::snapshot::order::{self, OrderKey};
use crate::time::Time;

impl Running {
    /// The jobs whose places are behind this one, in order; `None` where only a look at each would tell, as from the next crossing on.
    pub(crate) fn behind(
        &self,
        place: OrderKey,
        (policy, now): (&Policy, Time),
    ) -> Option<impl Iterator<Item = (OrderKey, &JobId, &RunView)>> {
        let passed_ms = if order::shrinks(policy) { now.0 } else { 0 };
        let known = match order::shrinks(policy) {
            true => self.all_shrink(now),
            false => order::lasts(policy) && self.next_crossing().is_none_or(|at| at > now),
        };
        let last = JobId { number: u64::MAX, member: Some(u32::MAX) };
        let place = OrderKey { first: place.first.saturating_add(passed_ms), ..place };
        known.then(|| {
            let behind = self.line.range((Bound::Excluded((place, last)), Bound::Unbounded));
            behind.filter_map(move |(place, job)| {
                let place = OrderKey { first: place.first - passed_ms, ..*place };
                Some((place, job, self.jobs.get(job)?))
            })
        })
    }

    /// Whether what is left of every job shrinks, so that they stand in the line by when it is used up: all run and have one priority,
    /// and none has outrun what was foreseen.
    fn all_shrink(&self, now: Time) -> bool {
        let ends = self.line.first().zip(self.line.last());
        let (rank, soonest) =
            ends.map_or((true, i64::MAX), |((first, _), (last, _))| (first.rank == last.rank, first.first));
        rank && soonest > now.0 && self.line.len() == self.jobs.len()
    }

    /// Whether the jobs of a queue that may be behind a place in the order and lose nothing but a restart hold, together with those of
    /// lower priority, so many devices, in thousandths; `false` where there is none of the former.
    pub(crate) fn has_behind(
        &self,
        queue: &str,
        (place, least_milli): ((i32, OrderKey), i64),
        at: (&Policy, Time),
    ) -> bool {
        let Some(queue) = self.queues.get(queue) else { return false };
        let mut behind = queue.behind(place, at).map(|(_, milli)| milli).peekable();
        let mut sum = queue.lower_milli(place.0);
        behind.peek().is_some()
            && behind.any(|milli| {
                sum += milli;
                sum >= least_milli
            })
    }

    /// The jobs that [`Self::has_behind`] counts.
    pub(crate) fn behind_in(
        &self,
        queue: &str,
        place: (i32, OrderKey),
        at: (&Policy, Time),
    ) -> impl Iterator<Item = &RunView> {
        let queue = self.queues.get(queue).into_iter();
        let jobs = queue
            .flat_map(move |queue| queue.lower(place.0).chain(queue.behind(place, at).map(|(job, _)| job)));
        jobs.filter_map(|job| self.jobs.get(&job))
    }
}
