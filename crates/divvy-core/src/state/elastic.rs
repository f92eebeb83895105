//! The fold of gangs that grow and shrink while they run.

use super::apply::{Applied, Wrong};
use super::{GaveUp, State};
use crate::id::{AllocationId, JobId};
use crate::model::allocation::{AllocationState, Placement};
use crate::model::job::JobState;
use crate::time::{Span, Time};

impl State {
    /// Gives a running gang devices for further tasks.
    pub(super) fn grow(&mut self, id: JobId, placements: &[Placement], at: Time) -> Applied {
        if self.promises.contains_key(&id) {
            self.revoke(id)?;
        }
        self.change_run(id, |run| {
            let taken = |rank: u32| run.placements.iter().any(|placement| placement.rank == rank);
            if !run.is_active() || run.stopping.is_some() {
                return Err(Wrong::Impossible(format!("job {id} cannot grow: it does not run")));
            }
            if placements.iter().any(|placement| taken(placement.rank)) {
                return Err(Wrong::Impossible(format!("job {id} cannot grow: it has a task of that rank")));
            }
            run.placements.extend(placements.iter().cloned());
            run.placements.sort_by_key(|placement| placement.rank);
            let over = |placement: &Placement| run.over.iter().any(|(rank, _)| *rank == placement.rank);
            let live = run.placements.iter().filter(|placement| !over(placement));
            run.live = live.map(|placement| placement.allocation).collect();
            Ok(())
        })??;
        self.allocate(id, placements, at)?;
        let job = self.jobs.get(&id.number).ok_or_else(|| Wrong::Unknown(format!("job {id}")))?;
        let whose = (job.spec.queue.clone(), job.owner.name.clone());
        self.charge((&whose.0, &whose.1), placements, at)
    }

    /// Tells some tasks of a gang to stop.
    pub(super) fn shrink(&mut self, id: JobId, allocations: &[AllocationId], gives_up: GaveUp) -> Applied {
        let job = self.jobs.get(&id.number).ok_or_else(|| Wrong::Unknown(format!("job {id}")))?;
        let stops_by = gives_up.at + Span(job.spec.notice().grace_ms);
        for allocation in allocations {
            if self.allocations.get(allocation).is_none_or(|held| held.job != id) {
                return Err(Wrong::Unknown(format!("allocation {allocation} of job {id}")));
            }
            self.change_allocation(*allocation, |held| held.is_told(stops_by))?;
        }
        let takes = gives_up.cause.takes();
        let news = self.news;
        if takes {
            self.taken.insert(id);
        }
        let (begins, at, moves) = (self.begins_without(id), gives_up.at, self.policy.moves);
        self.change_run(id, |run| {
            run.taken_at = if takes { Some(news) } else { run.taken_at };
            run.moved = run.moved_in_part(&moves, &gives_up);
            run.gave_up = Some(Box::new(gives_up.with(run.gave_up.as_deref())));
            if begins {
                run.begins(at);
            }
        })
    }

    /// Whether tasks of a job are yet to start, apart from those that were told to go.
    pub(super) fn has_starting(&self, job: JobId) -> bool {
        self.has_task(job, AllocationState::Starting)
    }

    /// Whether all of a gang runs now that one of its tasks goes: the tasks that stay have started.
    pub(super) fn begins_without(&self, job: JobId) -> bool {
        let is_starting = self.run(job).is_some_and(|run| run.state == JobState::Starting);
        is_starting && !self.has_starting(job) && self.has_task(job, AllocationState::Held)
    }

    fn has_task(&self, job: JobId, state: AllocationState) -> bool {
        let is = |id: &AllocationId| self.allocations.get(id).is_some_and(|held| held.state == state);
        // From the last on, since tasks nearly always start in the order of their ranks.
        self.run(job).is_some_and(|run| run.live.iter().rev().any(is))
    }
}

impl GaveUp {
    /// Adds what was given up at the same moment for the same job: parts of a gang go one by one.
    fn with(self, before: Option<&Self>) -> Self {
        let same =
            before.filter(|before| (before.at, &before.by, before.cause) == (self.at, &self.by, self.cause));
        Self { tasks: self.tasks + same.map_or(0, |before| before.tasks), ..self }
    }
}
