//! Tasks that do not end though they were told to: a process that the kernel does not end, a node that does not answer. Nobody is to
//! wait for what they hold.

use super::apply::{Applied, Wrong};
use super::{Allocation, State};
use crate::id::{AllocationId, JobId};
use crate::model::allocation::AllocationState;
use crate::model::job::StopOrder;
use crate::model::newer::Newer;
use crate::model::promise::Promise;
use crate::time::{Span, Time};

/// How long after its grace a task may still take to end: it is killed then, and its devices have to be cleared.
const MARGIN: Span = Span::seconds(60);

impl Allocation {
    /// Notes that its task is told to stop, and by when its grace is over.
    pub(super) fn is_told(&mut self, stops_by: Time) {
        self.state = AllocationState::Stopping;
        // A later stop may shorten the grace, not lengthen it.
        self.stops_by = self.stops_by.into_iter().chain([stops_by]).min();
        self.seq += 1;
    }

    /// Whether its task is being stopped, and can be counted on to end.
    pub fn leaves(&self) -> bool {
        self.state == AllocationState::Stopping && self.overdue_since.is_unsaid()
    }

    /// When its task is overdue if it does not end before; `None` if it is already, or was not told to stop.
    pub(crate) fn overdue_at(&self) -> Option<Time> {
        Some(self.stops_by.filter(|_| self.leaves())? + MARGIN)
    }
}

impl State {
    /// Notes that a task has not ended in time.
    pub(super) fn miss(&mut self, id: AllocationId, at: Time) -> Applied {
        self.change_allocation(id, |held| match held.leaves() {
            true => {
                held.overdue_since = Newer(Some(at));
                Ok(())
            }
            false => {
                Err(Wrong::Impossible(format!("allocation {id} was not told to stop, or is overdue already")))
            }
        })?
    }

    /// How the tasks of a job are told to stop that are being stopped: as the job is, or those that a gang gives up as the job hears of it.
    pub(crate) fn stop_order(&self, id: JobId) -> StopOrder {
        let stopping = self.run(id).and_then(|run| run.stopping.as_ref());
        let of_job = || self.jobs.get(&id.number).map(|job| job.spec.notice());
        stopping.map(|stopping| stopping.order.clone()).or_else(of_job).unwrap_or_default()
    }

    /// After a start the tasks that are being stopped are told again, since the first order may have been lost: their grace may begin only
    /// now.
    pub(super) fn tell_again(&mut self, at: Time) {
        let told = self.allocations.iter().filter(|(_, held)| held.leaves());
        let told: Vec<(AllocationId, i64)> =
            told.map(|(id, held)| (*id, self.stop_order(held.job).grace_ms)).collect();
        for (id, grace_ms) in told {
            if let Some(held) = self.allocations.get_mut(&id) {
                held.stops_by = Some(at + Span(grace_ms));
            }
        }
    }

    /// By when a job should have ended of which a task is overdue.
    pub fn should_have_ended(&self, id: JobId) -> Option<Time> {
        let live = self.run(id)?.live.iter().filter_map(|id| self.allocations.get(id));
        live.filter(|held| !held.overdue_since.is_unsaid()).filter_map(|held| held.stops_by).min()
    }

    /// Whether a task of a job does not end though it was told to. Such a job cannot go on elsewhere, which it does once all of it is gone.
    pub(crate) fn is_held_up(&self, id: JobId) -> bool {
        self.should_have_ended(id).is_some()
    }

    /// Whether a promise waits for a task that does not end.
    pub(crate) fn waits_in_vain(&self, promise: &Promise) -> bool {
        let is_overdue =
            |id: &AllocationId| self.allocations.get(id).is_some_and(|held| !held.overdue_since.is_unsaid());
        promise.waits_for.iter().any(is_overdue)
    }
}
