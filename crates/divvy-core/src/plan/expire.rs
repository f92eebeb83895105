//! Phase 0, expire: attempts at their time limit or on what a reservation keeps, promises that can no longer
//! be kept, and waiting jobs whose dependency can no longer be met.

use super::calendar;
use crate::event::Event;
use crate::id::JobId;
use crate::model::job::{Cause, JobState, LastEnd};
use crate::snapshot::Snapshot;
use crate::state::{Dependable, State};
use crate::time::Time;

pub(super) fn expire(state: &State, snapshot: &Snapshot, now: Time) -> Vec<Event> {
    let mut ends: Vec<Event> = snapshot
        .limits
        .iter()
        .take_while(|(at, _)| *at <= now)
        .filter_map(|(_, id)| time_limit(state, *id))
        .collect();
    let at_limit: Vec<JobId> = ends.iter().filter_map(stopped).collect();
    let evicted = calendar::evicted(state).into_iter();
    ends.extend(evicted.filter(|end| stopped(end).is_none_or(|job| !at_limit.contains(&job))));
    let bad = state.promises.values().filter(|promise| !state.is_good(promise));
    ends.extend(bad.map(|promise| Event::Revoked { job: promise.job }));
    ends.extend(snapshot.waiting.hopeless().filter_map(|number| hopeless(state, number)));
    ends.dedup();
    ends
}

fn stopped(event: &Event) -> Option<JobId> {
    match event {
        Event::Stopping { job, .. } | Event::Shrinking { job, .. } => Some(*job),
        _ => None,
    }
}

fn time_limit(state: &State, id: JobId) -> Option<Event> {
    let job = state.jobs.get(&id.number)?;
    let order = job.spec.stop.clone();
    Some(Event::Stopping { job: id, cause: Cause::TimeLimit, by: None, order, requeue: false })
}

fn hopeless(state: &State, number: u64) -> Option<Event> {
    let job = state.jobs.get(&number)?;
    let never = job
        .spec
        .after
        .iter()
        .find(|dependency| state.dependency(dependency.job, dependency.on) == Dependable::Never)?;
    job.open_members().next()?;
    let detail = Some(format!("job {} ended otherwise", never.job));
    let end = LastEnd { cause: Cause::Dependency, by: Some(never.job.to_string()), signal: None, detail };
    Some(Event::Dropped { job: job.id(), end, state: JobState::Cancelled })
}
