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
    /// The jobs that give way for it.
    pub gives_way: Vec<GivesWay>,
}

/// A job that would give way for another.
#[derive(Clone, Debug, PartialEq)]
pub struct GivesWay {
    /// Which job (or member).
    pub job: JobId,
    /// Why.
    pub cause: Cause,
    /// How many of its tasks it gives up, if it runs on without them.
    pub tasks: Option<u32>,
    /// The work that this costs, in milli-GPU·ms.
    pub lost_milli_ms: i64,
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
        let (cause, tasks) = given_for(run, id)?;
        let lost_milli_ms = if tasks.is_none() { super::lost_so_far(state, (spec, run)) } else { 0 };
        Some(GivesWay { job: holder, cause, tasks, lost_milli_ms })
    });
    Ok(Tried {
        starts: outcome == Outcome::Starts,
        placements: placements.unwrap_or_default(),
        gives_way: gives_way.collect(),
    })
}

/// Why a run is being stopped for a job, or for a member of it, or gives up some of its tasks, and how many.
fn given_for(run: &Run, id: JobId) -> Option<(Cause, Option<u32>)> {
    let id = id.to_string();
    let is_for = |by: &Option<String>| by.as_ref().is_some_and(|by| by.split('_').next() == Some(&*id));
    let stops = run.stopping.as_ref().filter(|stopping| is_for(&stopping.by));
    let gave_up = || run.gave_up.as_ref().filter(|gave_up| is_for(&gave_up.by));
    let part = || gave_up().map(|gave_up| (gave_up.cause, Some(gave_up.tasks)));
    stops.map(|stopping| (stopping.cause, None)).or_else(part)
}
