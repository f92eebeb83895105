//! What the administrators of a queue may give to the queues below it: no more than their queue has.

use std::collections::{BTreeMap, BTreeSet};

use super::guarantee::{in_all, with_pledge};
use super::{Person, Rejection};
use crate::amount::{Amount, Resource};
use crate::model::borrowing::BorrowEvicts;
use crate::model::job::priority;
use crate::model::policy::Reclaim;
use crate::model::queue::{Promised, Queue, lineage, own};
use crate::state::State;

/// Users who administer queues may set the queues below them, and no others. What they give to these may not exceed what their queue has.
pub(super) fn of_their_own(state: &State, queues: &[Queue], by: &Person) -> Result<(), Rejection> {
    let wanted: BTreeMap<&str, &Queue> = queues.iter().map(|queue| (queue.path.as_str(), queue)).collect();
    let paths = state.queues.keys().map(String::as_str).chain(wanted.keys().copied());
    let changed = paths.filter(|path| state.queues.get(*path) != wanted.get(path).copied());
    let mut owners: BTreeSet<&str> = BTreeSet::new();
    for path in changed {
        let owner = owner_of(state, path, by).ok_or(Rejection::NotAdmin)?;
        let (before, after) = (state.queues.get(path), wanted.get(path).copied());
        // They may not say whose default queue it is, nor which nodes are kept for it.
        let of_the_pool = |queue: Option<&Queue>| {
            queue
                .map(|queue| (queue.default_for.said().cloned(), queue.nodes.said().cloned()))
                .unwrap_or_default()
        };
        if of_the_pool(before) != of_the_pool(after) {
            return Err(Rejection::NotAdmin);
        }
        if let Some(after) = after {
            within_rights(state, owner, before, after)?;
            within_priority(state, before, after)?;
        }
        owners.insert(owner);
    }
    match owners.into_iter().find_map(|owner| beyond(state, owner, queues)) {
        Some(what) => Err(Rejection::BadSpec { field: "guarantee", what }),
        None => Ok(()),
    }
}

/// The uppermost queue above another that the user administers.
fn owner_of<'a>(state: &State, path: &'a str, by: &Person) -> Option<&'a str> {
    lineage(path).skip(1).filter(|above| by.is_admin_of(state, above)).last()
}

/// Refuses rights over jobs of other queues that neither the policy gives to all queues, nor an administrator of the pool gave to this queue
/// or to one between it and the one whose administrator gives them.
fn within_rights(state: &State, owner: &str, before: Option<&Queue>, after: &Queue) -> Result<(), Rejection> {
    let is_between = |above: &&str| above.len() >= owner.len();
    let above = lineage(&after.path).skip(1).take_while(is_between).filter_map(|path| state.queues.get(path));
    let known: Vec<&Queue> = above.chain(before).collect();
    let bad = |field, said: String| {
        let what = format!("{} would have {said}, which {owner} has not: ask an administrator", after.path);
        Err(Rejection::BadSpec { field, what })
    };
    let may_evict = |evicts: BorrowEvicts| {
        let mut given = known.iter().filter_map(|queue| queue.borrow_evicts);
        evicts.is_within(state.policy.borrow_evicts) || given.any(|given| evicts.is_within(given))
    };
    if let Some(evicts) = after.borrow_evicts.filter(|evicts| !may_evict(*evicts)) {
        return bad("borrow_evicts", format!("borrow_evicts: {evicts}"));
    }
    let may_reclaim = |reclaim: Reclaim| {
        let given = known.iter().filter_map(|queue| queue.reclaim).max();
        Some(reclaim) <= given.max(Some(state.policy.reclaim))
    };
    match after.reclaim.filter(|reclaim| !may_reclaim(*reclaim)) {
        Some(reclaim) => bad("reclaim", format!("reclaim: {reclaim}")),
        None => Ok(()),
    }
}

/// Refuses a highest priority above that of the queues above, unless it was so high before.
fn within_priority(state: &State, before: Option<&Queue>, after: &Queue) -> Result<(), Rejection> {
    let own = |queue: &Queue| queue.bounds.max_priority;
    let of_users = |queue: &Queue| queue.users.said().and_then(|users| users.bounds.max_priority);
    let above = lineage(&after.path).skip(1).filter_map(|path| state.queues.get(path));
    // What is urgent has to be allowed.
    let most = above.filter_map(own).min().unwrap_or(priority::URGENT - 1);
    let is_beyond = |of: &dyn Fn(&Queue) -> Option<i32>| of(after) > before.and_then(of).max(Some(most));
    if !is_beyond(&own) && !is_beyond(&of_users) {
        return Ok(());
    }
    let what = format!(
        "the highest priority that {} can be given here is {most}: write no more, or ask an administrator",
        after.path
    );
    Err(Rejection::BadSpec { field: "max_priority", what })
}

/// What the queues below another would be guaranteed beyond what that one has, if anything: in GPUs, and with GPU-hours counted as the GPUs
/// that make them up. What was guaranteed to them before, by someone who may do so, stays.
fn beyond(state: &State, path: &str, wanted: &[Queue]) -> Option<String> {
    let owner = state.queues.get(path)?;
    // What its nodes have is checked where it is known.
    if !owner.nodes.is_unsaid() {
        return None;
    }
    let hours_too = |queue: Queue| with_pledge(queue, state.now);
    let ways: [(&dyn Fn(Queue) -> Queue, &str); 2] =
        [(&|queue| queue, ""), (&hours_too, ", with GPU-hours as the GPUs that make them up")];
    ways.into_iter().find_map(|(counted, how)| {
        let has = own(&counted(owner.clone()));
        let before = given_below(path, state.queues.values(), counted);
        let is_beyond = |(resource, sum): &(&Resource, &i64)| {
            let of = |all: &Promised| all.get(*resource).copied().unwrap_or(0);
            let has_all = owner.guarantee.get(*resource) == Some(&Amount::Unlimited);
            !has_all && **sum > of(&has).max(of(&before))
        };
        let given = given_below(path, wanted, counted);
        let (resource, _) = given.iter().find(is_beyond)?;
        Some(format!(
            "more {resource} is guaranteed below {path} than to it{how}: lower it, or ask an administrator"
        ))
    })
}

/// What is guaranteed to all queues below one together. Queues with nodes of their own, and those below them, take it from these nodes.
fn given_below<'a>(
    owner: &str,
    queues: impl IntoIterator<Item = &'a Queue>,
    counted: impl Fn(Queue) -> Queue,
) -> Promised {
    let all: Vec<&Queue> = queues.into_iter().collect();
    let kept: BTreeSet<&str> =
        all.iter().filter(|queue| !queue.nodes.is_unsaid()).map(|queue| queue.path.as_str()).collect();
    let is_below = |queue: &&&Queue| {
        let mut above = lineage(&queue.path).skip(1);
        let has_nodes =
            || lineage(&queue.path).take_while(|path| *path != owner).any(|path| kept.contains(path));
        above.any(|path| path == owner) && !has_nodes()
    };
    let below: Vec<Queue> =
        all.iter().filter(is_below).map(|queue| counted(finite((*queue).clone()))).collect();
    in_all(&below)
}

/// A guarantee of all that there is, as an amount.
fn finite(mut queue: Queue) -> Queue {
    for amount in queue.guarantee.values_mut().filter(|amount| **amount == Amount::Unlimited) {
        *amount = Amount::Finite(i64::MAX);
    }
    queue
}
