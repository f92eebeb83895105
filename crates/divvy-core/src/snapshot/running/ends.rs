//! When running jobs are foreseen to end: a job for which room is kept counts on it, whether they may have to give way or not.

use super::{Running, remark};
use crate::id::JobId;
use crate::state::{Job, Run};
use crate::time::{Span, Time};

/// Whether a run has its devices, and nothing says that it is to leave them.
pub(super) fn runs_on(run: &Run) -> bool {
    run.is_active() && run.stopping.is_none() && !run.promised
}

/// When a run ends, by how long its job is expected to run: what earlier runs have done for good counts. For a run that has its
/// devices and is about to start, its time limit counts as well, because that is enforced only once the run has started.
pub(super) fn ends_at(job: &Job, run: &Run) -> Option<Time> {
    let foreseen = job.estimate.as_ref().map(|estimate| estimate.p90_ms);
    let foreseen = job.spec.estimate.map(|estimate| estimate.0).into_iter().chain(foreseen).min();
    let after = |foreseen_ms: i64| Span((foreseen_ms - run.done_before_ms(&job.spec)).max(0));
    match run.started_at {
        Some(started) => Some(started + after(foreseen?)),
        None => {
            let limit = job.spec.time_limit;
            let longest = foreseen.map(after).into_iter().chain(limit).min()?;
            Some(run.placed_at? + longest)
        }
    }
}

impl Running {
    /// Notes when a job ends that never gives way, if that is foreseen: the room that it leaves is kept, too.
    pub(super) fn note_end_of_other(&mut self, id: JobId, other: Option<(&Job, &Run, JobId)>) {
        let now = other.and_then(|(job, run, _)| ends_at(job, run));
        let before = match now {
            Some(now) => self.ends_of_others.insert(id, now),
            None => self.ends_of_others.remove(&id),
        };
        remark(&mut self.ends, id, (before, now));
    }

    /// The jobs that are foreseen to end after a moment, and when, the earliest first.
    pub(crate) fn ends_after(&self, now: Time) -> impl Iterator<Item = (Time, JobId)> {
        self.ends.range((now + Span(1), JobId::single(0))..).copied()
    }
}
