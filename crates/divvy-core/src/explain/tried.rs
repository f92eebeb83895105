//! Trying: what the next cycle would make of a job that is not submitted yet, on a copy of the pool.

use std::collections::BTreeSet;

use super::world::{Outcome, World};
use crate::decide::{Command, Rejection, Submit};
use crate::id::JobId;
use crate::model::allocation::Placement;
use crate::model::job::Cause;
use crate::snapshot::Snapshot;
use crate::state::{Run, Runs, State};

/// What would become of a job in the next cycle.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tried {
    /// Whether it has its devices then, or the promise of them.
    pub starts: bool,
    /// Its places, if it has them at once; of an array those of the first member.
    pub placements: Vec<Placement>,
    /// Who gives way for it, why, and the work that this costs, in milli-GPU·ms.
    pub gives_way: Vec<(JobId, Cause, i64)>,
}

/// Submits a job to a copy of the pool and plans one cycle there. An error if it is refused.
pub fn tried(state: &State, snapshot: &Snapshot, submit: &Submit) -> Result<Tried, Rejection> {
    let id = JobId::single(state.next_job);
    let world = World::of(state, snapshot, id).taking(&Command::Submit(Box::new(submit.clone())))?;
    let (world, outcome) = world.cycle();
    let state = world.state();
    let placements = world.job().and_then(|job| match &job.runs {
        Runs::Single(run) => Some(run.placements.clone()),
        Runs::Array(array) => {
            array.touched.values().find(|run| run.is_active()).map(|run| run.placements.clone())
        }
    });
    let holders: BTreeSet<JobId> = state.allocations.values().map(|held| held.job).collect();
    let gives_way = holders.into_iter().filter_map(|holder| {
        let (spec, run) = (&state.jobs.get(&holder.number)?.spec, state.run(holder)?);
        let cause = cause_for(run, id)?;
        Some((holder, cause, super::lost_so_far(state, (spec, run))))
    });
    Ok(Tried {
        starts: outcome == Outcome::Starts,
        placements: placements.unwrap_or_default(),
        gives_way: gives_way.collect(),
    })
}

/// Why a run is being stopped for a job, or for a member of it.
fn cause_for(run: &Run, id: JobId) -> Option<Cause> {
    let stopping = run.stopping.as_ref()?;
    let by = stopping.by.as_ref()?.split('_').next()?;
    (by == id.to_string()).then_some(stopping.cause)
}
