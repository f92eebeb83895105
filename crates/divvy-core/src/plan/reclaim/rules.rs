//! Whose devices a job may take by the settings of its queue, or of the pool.

use super::Claim;
use crate::id::JobId;
use crate::model::borrowing::BorrowEvicts;
use crate::model::job::JobSpec;
use crate::model::policy::{Policy, Reclaim, WithinQueue};
use crate::plan::order;
use crate::snapshot::{OrderKey, RunView};
use crate::state::State;
use crate::time::Time;

/// Whose devices the claim may take by the settings of its queue.
pub(super) struct Rules {
    pub(super) within_queue: WithinQueue,
    pub(super) reclaim: Reclaim,
    pub(super) borrow_evicts: BorrowEvicts,
}

/// By what right jobs of a queue take devices from others that are not guaranteed to it.
pub(super) fn borrow_evicts(state: &State, queue: &str) -> BorrowEvicts {
    let said = state.queues.get(queue).and_then(|it| it.borrow_evicts).unwrap_or(state.policy.borrow_evicts);
    // Where the first of all jobs goes first, nothing is due to a queue beyond what is guaranteed to it: what the line gives, that would
    // take back.
    BorrowEvicts { due: said.due && !state.policy.lends_in_line(), ..said }
}

impl Rules {
    pub(super) fn of(state: &State, spec: &JobSpec) -> Self {
        let queue = state.queues.get(&spec.queue);
        Self {
            within_queue: queue.and_then(|it| it.within_queue).unwrap_or(state.policy.within_queue),
            reclaim: queue.and_then(|it| it.reclaim).unwrap_or(state.policy.reclaim),
            borrow_evicts: borrow_evicts(state, &spec.queue),
        }
    }

    /// Returns the priority up to which jobs of its own queue may give way for a job of this priority.
    pub(super) fn juniors_up_to(&self, priority: i32) -> Option<i32> {
        match self.within_queue {
            WithinQueue::Never => None,
            WithinQueue::Lower => priority.checked_sub(1),
            WithinQueue::LowerOrNewer => Some(priority),
        }
    }

    /// Whether a job of its own queue may give way for it: it is a junior, or stands behind it in the order and loses nothing but a
    /// restart.
    pub(super) fn within(
        &self,
        claim: &Claim,
        run: (JobId, &RunView),
        (policy, now): (&Policy, Time),
    ) -> bool {
        let (job, view) = run;
        let is_behind = |place: OrderKey| {
            view.resumes
                && view.priority == claim.spec.priority
                && place < order::of_runner(policy, job, view, now)
        };
        let may = self.within_queue != WithinQueue::Never;
        may && (self.is_junior(claim, run) || claim.place.is_some_and(is_behind))
    }

    /// Whether a job of its own queue is of lower priority, or was submitted later where that suffices.
    pub(super) fn is_junior(&self, claim: &Claim, (job, view): (JobId, &RunView)) -> bool {
        let lower = view.priority < claim.spec.priority;
        let newer = view.priority == claim.spec.priority && job.number > claim.job.number;
        match self.within_queue {
            WithinQueue::Never => false,
            WithinQueue::Lower => lower,
            WithinQueue::LowerOrNewer => lower || newer,
        }
    }

    pub(super) fn across(&self, claim: &Claim, view: &RunView) -> bool {
        match self.reclaim {
            Reclaim::Never => false,
            Reclaim::Lower => view.priority < claim.spec.priority,
            Reclaim::Any => true,
        }
    }
}
