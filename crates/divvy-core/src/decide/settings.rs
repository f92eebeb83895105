//! Deciding about queues and the settings of the planner.

use std::collections::{BTreeMap, BTreeSet};

use super::{Person, Rejection, given};
use crate::event::Event;
use crate::model::policy::Policy;
use crate::model::queue::{Queue, Settings, lineage, user_at};
use crate::model::recollection::Recollection;
use crate::model::reservation::Purpose;
use crate::state::State;
use crate::time::Time;

/// Puts a whole queues.yaml in force. If it refuses the queues, the policy stays as it was.
pub(super) fn configure(
    state: &State,
    wanted: &Settings,
    by: &Person,
    note: Option<&str>,
) -> Result<Vec<Event>, Rejection> {
    let mut events = set_queues(state, &wanted.queues, by, note)?;
    if let Some(policy) = wanted.policy_beside(&state.policy) {
        events.extend(set_policy(state, &policy, by, note)?);
    }
    Ok(events)
}

pub(super) fn set_policy(
    state: &State,
    policy: &Policy,
    by: &Person,
    note: Option<&str>,
) -> Result<Vec<Event>, Rejection> {
    // Who administers some queues may apply a file that repeats the policy in force.
    if *policy == state.policy {
        return Ok(Vec::new());
    }
    if !by.admin {
        return Err(Rejection::NotAdmin);
    }
    let (by, note) = (by.name.clone(), note.map(str::to_owned));
    Ok(vec![Event::PolicySet { policy: Box::new(policy.clone()), by, note }])
}

/// Takes in what is known of the past of existing queues, if the log has none yet.
pub(super) fn recall(
    state: &State,
    of: Time,
    known: &BTreeMap<String, Recollection>,
    by: &Person,
) -> Result<Vec<Event>, Rejection> {
    if !by.admin {
        return Err(Rejection::NotAdmin);
    }
    if state.ledger.accounts().next().is_some() {
        let what = "this log has a past of its own".to_owned();
        return Err(Rejection::BadSpec { field: "recollections", what });
    }
    let queue = |path: &str| user_at(path).map_or(path, |(queue, _)| queue).to_owned();
    let known = known.iter().filter(|(path, _)| state.queues.contains_key(&queue(path)));
    let known: BTreeMap<String, Recollection> = known.map(|(path, known)| (path.clone(), *known)).collect();
    Ok((!known.is_empty()).then_some(Event::Recalled { of, known }).into_iter().collect())
}

pub(super) fn set_queues(
    state: &State,
    queues: &[Queue],
    by: &Person,
    note: Option<&str>,
) -> Result<Vec<Event>, Rejection> {
    if !by.admin {
        given::of_their_own(state, queues, by)?;
    }
    let wanted: BTreeSet<&str> = queues.iter().map(|queue| queue.path.as_str()).collect();
    let mut in_use: BTreeMap<&str, usize> = BTreeMap::new();
    for job in state.jobs.values().filter(|job| !wanted.contains(job.spec.queue.as_str())) {
        *in_use.entry(&job.spec.queue).or_default() += 1;
    }
    if let Some((queue, jobs)) = in_use.into_iter().next() {
        return Err(Rejection::QueueInUse { queue: queue.to_owned(), jobs });
    }
    if let Some((queue, reservation)) = reserved_for(state, &wanted) {
        return Err(Rejection::QueueReserved { queue: queue.to_owned(), reservation });
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

/// A queue that goes although something is kept for it on the calendar, now or later, and by which reservation.
fn reserved_for<'a>(state: &'a State, wanted: &BTreeSet<&str>) -> Option<(&'a str, u64)> {
    let goes = |queue: &str| state.queues.contains_key(queue) && !wanted.contains(queue);
    state.reservations.iter().find_map(|kept| match &kept.purpose {
        Purpose::Queue(queue) if goes(queue) => Some((queue.as_str(), kept.id)),
        _ => None,
    })
}

/// Promises were made within the limits of their queues: where these change, they are taken back, and planned anew.
fn promises_beyond(state: &State, queues: &[Queue]) -> impl Iterator<Item = Event> {
    let limits = |queue: &Queue| (queue.limit.clone(), queue.users.clone());
    let by_path: BTreeMap<&str, &Queue> = queues.iter().map(|queue| (queue.path.as_str(), queue)).collect();
    let wanted = move |path: &str| by_path.get(path).copied().map(limits);
    let changes = move |path: &str| state.queues.get(path).map(limits) != wanted(path);
    let promised = state.promises.keys().filter(move |id| {
        state.jobs.get(&id.number).is_some_and(|job| lineage(&job.spec.queue).any(&changes))
    });
    promised.map(|job| Event::Revoked { job: *job })
}
