//! What affinity needs from the fold: which jobs want to lie near others, and when that may have become possible.

use super::State;
use crate::event::Event;
use crate::id::JobId;
use crate::model::job::JobSpec;

impl State {
    /// Notes a job that wants to lie near others.
    pub(super) fn note_seeker(&mut self, number: u64, spec: &JobSpec) {
        if spec.gang.roles().iter().any(|role| !role.ask.affinity().near.is_empty()) {
            self.seekers.insert(number);
        }
    }

    /// Whether an event from outside brings a task that a waiting job wants to lie near: that may let the job start (L10).
    pub(super) fn draws(&mut self, event: &Event) -> bool {
        if self.seekers.is_empty() {
            return false;
        }
        let (job, rank) = match event {
            Event::Adopted { job, placements, .. } => (*job, placements.first().map(|first| first.rank)),
            Event::TaskStarted { allocation, .. } => match self.allocations.get(allocation) {
                Some(held) => (held.job, Some(held.placement.rank)),
                None => return false,
            },
            _ => return false,
        };
        let Self { seekers, jobs, .. } = self;
        seekers.retain(|number| jobs.contains_key(number));
        let waiting = self.seekers.iter().filter_map(|number| self.jobs.get(number));
        let mut waiting = waiting.filter(|job| job.has_waiting_members());
        waiting.any(|seeker| self.is_sought(&seeker.spec, job, rank.unwrap_or(0)))
    }

    /// Whether a task is one of those that a job wants to lie near.
    fn is_sought(&self, by: &JobSpec, job: JobId, rank: u32) -> bool {
        let Some(spec) = self.jobs.get(&job.number).map(|job| &job.spec) else { return false };
        let Some((role, _)) = spec.gang.role_of(rank) else { return false };
        let labels = spec.labels_of(role.ask.affinity());
        let roles = by.gang.roles();
        roles.iter().any(|role| role.ask.affinity().near.iter().any(|others| others.are(&labels)))
    }
}
