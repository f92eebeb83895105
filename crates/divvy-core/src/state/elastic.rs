//! The fold of gangs that grow and shrink while they run.

use super::State;
use super::apply::{Applied, Wrong};
use crate::id::{AllocationId, JobId};
use crate::model::allocation::{AllocationState, Placement};
use crate::model::job::Cause;
use crate::time::Time;

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
    pub(super) fn shrink(&mut self, id: JobId, allocations: &[AllocationId], cause: Cause) -> Applied {
        for allocation in allocations {
            if self.allocations.get(allocation).is_none_or(|held| held.job != id) {
                return Err(Wrong::Unknown(format!("allocation {allocation} of job {id}")));
            }
            self.change_allocation(*allocation, |held| {
                held.state = AllocationState::Stopping;
                held.seq += 1;
            })?;
        }
        if !cause.takes() {
            return Ok(());
        }
        let news = self.news;
        self.taken.insert(id);
        self.change_run(id, |run| run.taken_at = Some(news))
    }
}
