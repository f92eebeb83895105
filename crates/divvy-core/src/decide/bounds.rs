//! What a queue, and those above it, allow the jobs that are submitted to it.

use std::sync::Arc;

use super::{Rejection, Submit};
use crate::model::job::JobSpec;
use crate::model::members::Members;
use crate::model::queue::{Queue, lineage};
use crate::state::{Job, Runs, State};

/// Gives a job the time limit that it does not say itself, and refuses what is beyond what its queue allows.
pub(super) fn keep(state: &State, submit: &Submit, spec: &mut Arc<JobSpec>) -> Result<(), Rejection> {
    let path = spec.queue.clone();
    let queues = || lineage(&path).filter_map(|path| state.queues.get(path));
    let said = queues().find_map(|queue| queue.bounds.default_time.or(queue.bounds.max_time));
    let most = queues().filter_map(|queue| queue.bounds.max_time).min();
    // The nearest queue says what is usual; it may say more than one above it allows.
    if let Some(usual) = said.filter(|_| spec.time_limit.is_none()) {
        Arc::make_mut(spec).time_limit = Some(most.map_or(usual, |most| usual.min(most)));
    }
    queues().try_for_each(|queue| allows(queue, spec))?;
    queues().try_for_each(|queue| takes_more(state, queue, submit))
}

fn allows(queue: &Queue, spec: &JobSpec) -> Result<(), Rejection> {
    let beyond = |what, most: String, asked: String| {
        Err(Rejection::BeyondQueue { queue: queue.path.clone(), what, most, asked })
    };
    if let Some(most) = queue.bounds.max_priority.filter(|most| spec.priority > *most) {
        return beyond("priority", most.to_string(), spec.priority.to_string());
    }
    match (queue.bounds.max_time, spec.time_limit) {
        (Some(most), Some(limit)) if limit > most => {
            beyond("time limit", most.to_string(), limit.to_string())
        }
        _ => Ok(()),
    }
}

fn takes_more(state: &State, queue: &Queue, submit: &Submit) -> Result<(), Rejection> {
    let Some(most) = queue.bounds.max_jobs else { return Ok(()) };
    let is_below = |job: &&Job| lineage(&job.spec.queue).any(|path| path == queue.path);
    let open = |job: &Job| match &job.runs {
        Runs::Single(_) => 1,
        Runs::Array(array) => array.fresh.len() + array.touched.len() as u64,
    };
    let there: u64 = state.jobs.values().filter(is_below).map(open).sum();
    let more = submit.array.as_ref().map_or(1, |array| Members::of(array).len());
    if there.saturating_add(more) <= most {
        return Ok(());
    }
    Err(Rejection::QueueFull { queue: queue.path.clone(), most, there })
}
