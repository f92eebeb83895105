//! Deciding about queues and the settings of the planner.

use super::{Person, Rejection};
use crate::event::Event;
use crate::model::policy::Policy;
use crate::model::queue::{Queue, Settings, lineage};
use crate::state::State;

/// Puts a whole queues.yaml in force. What it refuses of the queues leaves the policy as it was.
pub(super) fn configure(
    state: &State,
    wanted: &Settings,
    by: &Person,
    note: Option<&str>,
) -> Result<Vec<Event>, Rejection> {
    let mut events = set_queues(state, &wanted.queues, by, note)?;
    if let Some(policy) = &wanted.policy {
        events.extend(set_policy(state, policy, by, note)?);
    }
    Ok(events)
}

pub(super) fn set_policy(
    state: &State,
    policy: &Policy,
    by: &Person,
    note: Option<&str>,
) -> Result<Vec<Event>, Rejection> {
    if !by.admin {
        return Err(Rejection::NotAdmin);
    }
    let (by, note) = (by.name.clone(), note.map(str::to_owned));
    let set = (*policy != state.policy).then(|| Event::PolicySet { policy: policy.clone(), by, note });
    Ok(set.into_iter().collect())
}

pub(super) fn set_queues(
    state: &State,
    queues: &[Queue],
    by: &Person,
    note: Option<&str>,
) -> Result<Vec<Event>, Rejection> {
    if !by.admin {
        return Err(Rejection::NotAdmin);
    }
    for path in state.queues.keys().filter(|path| !queues.iter().any(|queue| queue.path == **path)) {
        let jobs = state.jobs.values().filter(|job| job.spec.queue == *path).count();
        if jobs > 0 {
            return Err(Rejection::QueueInUse { queue: path.clone(), jobs });
        }
    }
    if queues.len() == state.queues.len()
        && queues.iter().all(|queue| state.queues.get(&queue.path) == Some(queue))
    {
        return Ok(Vec::new());
    }
    let (by, note) = (by.name.clone(), note.map(str::to_owned));
    let set = Event::QueuesSet { queues: queues.to_vec(), by, note };
    Ok(promises_beyond(state, queues).chain([set]).collect())
}

/// Promises were made within the limits of their queues: where these change, they are taken back, and planned anew.
fn promises_beyond(state: &State, queues: &[Queue]) -> impl Iterator<Item = Event> {
    let limits = |queue: &Queue| (queue.limit.clone(), queue.users.clone());
    let wanted = move |path: &str| queues.iter().find(|queue| queue.path == path).map(limits);
    let changes = move |path: &str| state.queues.get(path).map(limits) != wanted(path);
    let promised = state.promises.keys().filter(move |id| {
        state.jobs.get(&id.number).is_some_and(|job| lineage(&job.spec.queue).any(&changes))
    });
    promised.map(|job| Event::Revoked { job: *job })
}
