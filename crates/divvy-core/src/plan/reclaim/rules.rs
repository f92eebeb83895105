//! Whose devices a job may take by the settings of its queue, or of the pool.

use super::Claim;
use crate::id::JobId;
use crate::model::borrowing::BorrowEvicts;
use crate::model::policy::{Policy, Reclaim, WithinQueue};
use crate::model::queue::Queue;
use crate::plan::fair::Fair;
use crate::plan::order;
use crate::plan::share::Shares;
use crate::snapshot::{OrderKey, RunView};
use crate::time::Time;

/// Whose devices the jobs of a queue may take, as far as the queue says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::plan) struct Stated {
    within_queue: Option<WithinQueue>,
    reclaim: Option<Reclaim>,
    borrow_evicts: Option<BorrowEvicts>,
}

impl Stated {
    pub(in crate::plan) fn by(queue: &Queue) -> Self {
        let Queue { within_queue, reclaim, borrow_evicts, .. } = *queue;
        Self { within_queue, reclaim, borrow_evicts }
    }
}

/// Whose devices the claim may take by the settings of its queue.
pub(in crate::plan) struct Rules {
    pub(super) within_queue: WithinQueue,
    pub(super) reclaim: Reclaim,
    pub(super) borrow_evicts: BorrowEvicts,
}

impl Rules {
    /// The rules for jobs that stand in this place.
    pub(in crate::plan) fn of(fair: &Fair, place: usize) -> Self {
        Self::among(&fair.shares, &fair.trial.state.policy, place)
    }

    /// Likewise, for whom the shares are all that is at hand.
    pub(in crate::plan) fn among(shares: &Shares, policy: &Policy, place: usize) -> Self {
        let stated = shares.queues[place].stated;
        let borrow_evicts = stated.borrow_evicts.unwrap_or(policy.borrow_evicts);
        Self {
            within_queue: stated.within_queue.unwrap_or(policy.within_queue),
            reclaim: stated.reclaim.unwrap_or(policy.reclaim),
            // Where the first of all jobs goes first, nothing is due to a queue beyond what is guaranteed to it: what the line gives,
            // that would take back.
            borrow_evicts: BorrowEvicts {
                due: borrow_evicts.due && !policy.lends_in_line(),
                ..borrow_evicts
            },
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
