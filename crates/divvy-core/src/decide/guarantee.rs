//! Whether a pool can keep what its queues are guaranteed.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::amount::{Amount, Resource};
use crate::model::device::WHOLE_MILLI;
use crate::model::node::NodeState;
use crate::model::queue::{Promised, Queue, guaranteed, keeper, lineage, own, sayers};
use crate::reason::{amount_of, shown};
use crate::state::{Node, State};
use crate::time::Time;

/// What is guaranteed beyond what the pool has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// What, to whom, and what to do.
    pub what: String,
    /// The queues that are guaranteed some of it, the one with most first.
    pub queues: Vec<String>,
}

/// What is guaranteed beyond what the pool has, if anything: devices of any model or of one, or host amounts. Nodes that are gone do not
/// count; a pool without devices is not checked.
pub fn guaranteed_beyond(state: &State, queues: &[Queue]) -> Option<Beyond> {
    let there = has(state, |_| true)?;
    let amounts = in_amounts(state, queues, &there);
    let queues = &*with_pledges(state, &amounts);
    if let Some(beyond) = beyond_nodes(queues) {
        return Some(beyond);
    }
    let sums = in_all(queues);
    let is_known = |resource: &Resource| {
        matches!(resource, Resource::Any | Resource::Model(_))
            || there.get(resource).is_some_and(|it| *it > 0)
    };
    let has_of = |resource: &Resource| there.get(resource).copied().unwrap_or(0);
    let is_beyond = |(resource, sum): &(&Resource, &i64)| is_known(resource) && **sum > has_of(resource);
    sums.iter().find(is_beyond).map(|(resource, sum)| beyond(queues, resource, (*sum, has_of(resource))))
}

/// What is guaranteed to all of these queues together.
pub(super) fn in_all(queues: &[Queue]) -> Promised {
    let promised = guaranteed(queues);
    let is_top = |path: &&&str| !lineage(path).skip(1).any(|above| promised.contains_key(above));
    let mut sums = Promised::new();
    for (resource, amount) in promised.keys().filter(is_top).flat_map(|path| &promised[*path]) {
        let sum = sums.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
    sums
}

/// Says how much of a resource is guaranteed in total, which queues have most of it, and how much the pool has.
fn beyond(queues: &[Queue], resource: &Resource, (sum, there): (i64, i64)) -> Beyond {
    let mut to = sayers(queues, resource);
    to.sort_by_key(|(path, amount)| (std::cmp::Reverse(*amount), *path));
    let named =
        to.iter().take(MOST_NAMED).map(|(path, amount)| format!("{path} {}", shown(resource, *amount)));
    let mut named: Vec<String> = named.collect();
    if to.len() > MOST_NAMED {
        named.push(format!("{} more", to.len() - MOST_NAMED));
    }
    let (sum, there, named) = (amount_of(resource, sum), shown(resource, there), named.join(", "));
    let what = format!("{sum} are guaranteed in all ({named}), and the pool has {there}: lower some");
    Beyond { what, queues: to.into_iter().map(|(path, _)| path.to_owned()).collect() }
}

/// How many queues an error names.
const MOST_NAMED: usize = 5;

/// The queues with all guarantees as amounts: queues with nodes of their own are guaranteed what these have, and queues that are guaranteed
/// all of something are guaranteed what the pool has of it.
fn in_amounts<'a>(state: &State, queues: &'a [Queue], pool: &BTreeMap<Resource, i64>) -> Cow<'a, [Queue]> {
    let is_said = |queue: &Queue| queue.guarantee.values().all(|amount| *amount != Amount::Unlimited);
    if queues.iter().all(|queue| queue.nodes.is_unsaid() && is_said(queue)) {
        return Cow::Borrowed(queues);
    }
    let wanted: BTreeMap<String, Queue> =
        queues.iter().map(|queue| (queue.path.clone(), queue.clone())).collect();
    let of = |queue: &Queue| {
        let is_kept = |node: &Node| keeper(&wanted, &node.spec) == Some(&queue.path);
        let there = has(state, is_kept).filter(|_| !queue.nodes.is_unsaid()).unwrap_or_default();
        let guarantee = there.into_iter().map(|(resource, amount)| (resource, Amount::Finite(amount)));
        let mut queue = queue.clone();
        let all = queue.guarantee.iter_mut().filter(|(_, amount)| **amount == Amount::Unlimited);
        for (resource, amount) in all {
            *amount = Amount::Finite(pool.get(resource).copied().unwrap_or(0));
        }
        queue.guarantee.extend(guarantee);
        queue
    };
    Cow::Owned(queues.iter().map(of).collect())
}

/// What is guaranteed below a queue with nodes of its own beyond what these nodes have, if anything.
fn beyond_nodes(queues: &[Queue]) -> Option<Beyond> {
    let promised = guaranteed(queues);
    let with_nodes = queues.iter().filter(|queue| !queue.nodes.is_unsaid() && !queue.guarantee.is_empty());
    with_nodes.into_iter().find_map(|queue| {
        let has = |resource: &Resource| match queue.guarantee.get(resource) {
            Some(Amount::Finite(amount)) => *amount,
            _ => 0,
        };
        let (resource, sum) = promised.get(&*queue.path)?.iter().find(|(it, sum)| **sum > has(it))?;
        let (sum, there) = (amount_of(resource, *sum), shown(resource, has(resource)));
        let path = &queue.path;
        let what = format!("{sum} are guaranteed below {path}, and its nodes have {there}: lower some");
        let below = queues.iter().filter(|other| lineage(&other.path).skip(1).any(|above| above == path));
        Some(Beyond { what, queues: below.map(|queue| queue.path.clone()).collect() })
    })
}

/// What the nodes have for which `is_meant` holds; `None` if they have no devices.
fn has(state: &State, is_meant: impl Fn(&Node) -> bool) -> Option<BTreeMap<Resource, i64>> {
    let there = |node: &&Node| node.state != NodeState::Gone && is_meant(node);
    let is_there = |node| state.nodes.get(node).filter(there).is_some();
    let mut sums: BTreeMap<Resource, i64> = BTreeMap::new();
    for device in state.devices.values().filter(|device| is_there(&device.node)) {
        *sums.entry(Resource::Any).or_default() += i64::from(WHOLE_MILLI);
        *sums.entry(Resource::Model(device.spec.model.clone())).or_default() += i64::from(WHOLE_MILLI);
    }
    if sums.is_empty() {
        return None;
    }
    for node in state.nodes.values().filter(there) {
        *sums.entry(Resource::Cpu).or_default() += node.spec.cpu_milli;
        *sums.entry(Resource::Memory).or_default() += node.spec.memory_bytes;
    }
    Some(sums)
}

/// The queues, where a pledge of device time counts as a guarantee of at least the devices that add up to it when they are held all the
/// time.
fn with_pledges<'a>(state: &State, queues: &'a [Queue]) -> Cow<'a, [Queue]> {
    if queues.iter().all(|queue| queue.pledge.is_unsaid()) {
        return Cow::Borrowed(queues);
    }
    Cow::Owned(queues.iter().map(|queue| with_pledge(queue.clone(), state.now)).collect())
}

/// Such a queue.
pub(super) fn with_pledge(mut queue: Queue, now: Time) -> Queue {
    let pace = queue.pledge.said().map_or(0, |pledge| pledge.pace_milli(now));
    if pace > own(&queue).get(&Resource::Any).copied().unwrap_or(0) {
        queue.guarantee.insert(Resource::Any, Amount::Finite(pace));
    }
    queue
}
