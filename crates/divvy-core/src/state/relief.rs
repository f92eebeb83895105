//! A job that has not run for long gets a place before all others for some time. The planner says which job (`Relieved`); the fold knows
//! when that time is over.

use serde::{Deserialize, Serialize};

use super::{Job, Runs, State};
use crate::event::Event;
use crate::id::JobId;
use crate::model::job::Cause;
use crate::time::Time;

/// The job that got a place before all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Relief {
    /// When the last job that came to run was chosen.
    pub last: Option<Time>,
    /// The job that has been chosen, and when, until its time is over.
    pub open: Option<(JobId, Time)>,
}

impl State {
    /// Whether a job may be chosen again.
    pub(crate) fn may_relieve(&self, now: Time) -> bool {
        let is_time = |after| self.relief.last.is_none_or(|last| last + after <= now);
        self.relief.open.is_none() && !self.draining && self.policy.starve_after().is_some_and(is_time)
    }

    /// Whether a job keeps its place whichever job wants it, except for what is guaranteed to another queue.
    pub(crate) fn is_relieved(&self, job: JobId) -> bool {
        self.relief.open.is_some_and(|(other, _)| other == job)
    }

    /// When the time of the chosen job is over; `None` until all of its tasks run.
    pub(crate) fn relief_ends(&self) -> Option<Time> {
        let (job, _) = self.relief.open?;
        Some(self.run(job)?.started_at? + self.policy.quantum())
    }

    /// Ends that time if it is over by a moment, so that others may take the place again; returns whether it was.
    pub(super) fn end_relief(&mut self, at: Time) -> bool {
        let is_over = self.relief_ends().is_some_and(|end| end <= at);
        if is_over {
            self.relief.open = None;
        }
        is_over
    }

    /// Notes that the chosen job runs; or that it does not, or no longer does: then another may be chosen.
    pub(super) fn follow_relief(&mut self, event: &Event) {
        let Some((job, at)) = self.relief.open else { return };
        let run = self.run(job);
        match event {
            // All of its tasks run once the last one starts or goes.
            Event::TaskStarted { .. } | Event::Shrinking { .. } | Event::TaskEnded { .. }
                if run.is_some_and(|run| run.started_at.is_some()) =>
            {
                self.relief.last = Some(at);
            }
            Event::Revoked { job: other }
            | Event::AttemptEnded { job: other, .. }
            | Event::Dropped { job: other, .. }
            | Event::Held { job: other, .. }
                if other.number == job.number && !run.is_some_and(|run| run.is_active() || run.promised) =>
            {
                self.relief.open = None;
                // A guarantee of others has cut its time short: the next job need not wait for its turn.
                if matches!(event, Event::AttemptEnded { end, .. } if end.cause == Cause::Reclaimed) {
                    self.relief.last = None;
                }
            }
            _ => {}
        }
    }
}

impl Job {
    /// Since when it has not run though nobody held it: since its submission, the moment from which it may start, its release or its last
    /// end. `None` while it or one of its members runs.
    pub(crate) fn idle_since(&self) -> Option<Time> {
        let ended = match &self.runs {
            Runs::Single(run) => run.back_since,
            Runs::Array(array) => {
                array.touched.values().filter_map(|run| run.back_since).max().max(array.ran_at)
            }
        };
        let since = [Some(self.submitted_at), self.spec.start_after, self.released_at, ended];
        (self.active_members() == 0).then(|| since.into_iter().flatten().max()).flatten()
    }
}
