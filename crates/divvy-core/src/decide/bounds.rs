//! What a queue and the queues above it allow jobs that are submitted to it, and what it allows each of its users.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Rejection, Submit};
use crate::model::job::{JobSpec, priority};
use crate::model::members::Members;
use crate::model::queue::{Bounds, DEFAULT, Queue, lineage};
use crate::state::{Job, Runs, State};
use crate::time::Span;

/// Bounds, and whose they are, in words that follow "queue".
type Bound<'a> = (Cow<'a, str>, &'a Bounds);

/// Gives a job that says no time limit the usual one, and refuses what is beyond what its queue allows.
pub(super) fn keep(state: &State, submit: &Submit, spec: &mut Arc<JobSpec>) -> Result<(), Rejection> {
    let asked = Arc::clone(spec);
    let path = asked.queue.as_str();
    let bounds = bounds_of(state, path);
    let usual = usual_time(&bounds);
    if let Some(usual) = usual.filter(|_| spec.time_limit.is_none()) {
        Arc::make_mut(spec).time_limit = Some(usual);
    }
    may_have(state, path, spec)?;
    for queue in lineage(path).filter_map(|path| state.queues.get(path)) {
        let is_below = |job: &Job| lineage(&job.spec.queue).any(|path| path == queue.path);
        takes_more(state, submit, (queue.path.as_str().into(), &queue.bounds), is_below)?;
    }
    let Some(users) = state.users_of(path) else { return Ok(()) };
    let is_users = |job: &Job| job.spec.queue == path && job.owner.name == submit.owner.name;
    takes_more(state, submit, (of_user(path).into(), &users.bounds), is_users)
}

/// Refuses a priority or a time limit beyond what the queue, the queues above it and its bounds for each user allow.
pub(super) fn may_have(state: &State, path: &str, spec: &JobSpec) -> Result<(), Rejection> {
    let bounds = bounds_of(state, path);
    bounds.iter().try_for_each(|bound| allows(bound, spec))?;
    if spec.priority >= priority::URGENT && !has_leave(state, (path, &bounds), spec) {
        return Err(Rejection::NoLeave { queue: path.to_owned(), priority: spec.priority });
    }
    Ok(())
}

/// Whether a job may be urgent: if its queue, or one above it, says up to which priority its jobs go; in a pool whose queues nobody has
/// set; and if priorities are given out elsewhere.
fn has_leave(state: &State, (path, bounds): (&str, &[Bound]), spec: &JobSpec) -> bool {
    let is_untouched = || state.queues.len() == 1 && state.queues.get(path) == Some(&Queue::named(DEFAULT));
    spec.runs_outside() || bounds.iter().any(|(_, bounds)| bounds.max_priority.is_some()) || is_untouched()
}

/// The highest priority that a job may have where it is, up to `urgent`.
pub(crate) fn highest_priority(state: &State, spec: &JobSpec) -> i32 {
    let bounds = bounds_of(state, &spec.queue);
    let said = bounds.iter().filter_map(|(_, bounds)| bounds.max_priority).min();
    let most =
        if has_leave(state, (&spec.queue, &bounds), spec) { priority::URGENT } else { priority::URGENT - 1 };
    said.map_or(most, |said| said.min(most))
}

fn of_user(queue: &str) -> String {
    format!("{queue}, of each user,")
}

/// The bounds for jobs of a queue: its own, those of the queues above it, and those that it sets for its users.
fn bounds_of<'a>(state: &'a State, path: &str) -> Vec<Bound<'a>> {
    let users = state.users_of(path).map(|users| (of_user(path).into(), &users.bounds));
    let queues = lineage(path).filter_map(|path| state.queues.get(path));
    queues.map(|queue| (queue.path.as_str().into(), &queue.bounds)).chain(users).collect()
}

/// The time limit of jobs that say none: that of the nearest queue that says one, but no more than any bound allows.
fn usual_time(bounds: &[Bound]) -> Option<Span> {
    let most = bounds.iter().filter_map(|(_, bounds)| bounds.max_time).min();
    let said = bounds.iter().find_map(|(_, bounds)| bounds.default_time.or(bounds.max_time));
    Some(most.map_or(said?, |most| said.unwrap_or(most).min(most)))
}

fn allows((queue, bounds): &Bound, spec: &JobSpec) -> Result<(), Rejection> {
    let beyond = |what, most: String, asked: String| {
        Err(Rejection::BeyondQueue { queue: queue.to_string(), what, most, asked })
    };
    if let Some(most) = bounds.max_priority.filter(|most| spec.priority > *most) {
        return beyond("priority", priority::named(most), priority::named(spec.priority));
    }
    match (bounds.max_time, spec.time_limit) {
        (Some(most), Some(limit)) if limit > most => {
            beyond("time limit", most.to_string(), limit.to_string())
        }
        _ => Ok(()),
    }
}

fn takes_more(
    state: &State,
    submit: &Submit,
    (queue, bounds): Bound,
    counts: impl Fn(&Job) -> bool,
) -> Result<(), Rejection> {
    let Some(most) = bounds.max_jobs else { return Ok(()) };
    let open = |job: &Job| match &job.runs {
        Runs::Single(_) => 1,
        Runs::Array(array) => array.fresh.len() + array.touched.len() as u64,
    };
    let there: u64 = state.jobs.values().filter(|job| counts(job)).map(open).sum();
    let more = submit.array.as_ref().map_or(1, |array| Members::of(array).len());
    if there.saturating_add(more) <= most {
        return Ok(());
    }
    if more > most {
        // However many jobs end, the queue never takes this many.
        return Err(Rejection::BeyondArrays { queue: queue.into_owned(), most, asked: more });
    }
    Err(Rejection::QueueFull { queue: queue.into_owned(), most, there })
}
