//! Whether a pool can keep what its queues are guaranteed.

use std::collections::BTreeMap;

use crate::amount::Resource;
use crate::model::device::WHOLE_MILLI;
use crate::model::node::NodeState;
use crate::model::queue::{Promised, Queue, guaranteed, lineage, sayers};
use crate::reason::shown;
use crate::state::State;

/// What is guaranteed beyond what the pool has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// What, to whom, and what to do.
    pub what: String,
    /// The queues that are guaranteed some of it, the one with most first.
    pub queues: Vec<String>,
}

/// What is guaranteed beyond what the pool has, if anything: of devices of any model, or of one, or of what hosts have. Nodes that are
/// gone do not count; a pool without devices is not asked.
pub fn guaranteed_beyond(state: &State, queues: &[Queue]) -> Option<Beyond> {
    let there = has(state)?;
    let tops = promised_at_the_top(state, queues);
    let mut sums = Promised::new();
    for (resource, amount) in tops.values().flat_map(|(said, _)| said) {
        let sum = sums.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
    let is_known = |resource: &Resource| {
        matches!(resource, Resource::Any | Resource::Model(_))
            || there.get(resource).is_some_and(|it| *it > 0)
    };
    let has_of = |resource: &Resource| there.get(resource).copied().unwrap_or(0);
    let is_beyond = |(resource, sum): &(&Resource, &i64)| is_known(resource) && **sum > has_of(resource);
    sums.iter()
        .find(is_beyond)
        .map(|(resource, sum)| beyond(queues, &tops, resource, (*sum, has_of(resource))))
}

/// What of a resource is guaranteed in all, and to whom most of it, and what the pool has of it.
fn beyond(queues: &[Queue], tops: &Tops, resource: &Resource, (sum, there): (i64, i64)) -> Beyond {
    let mut to = sayers(queues, resource);
    // A pledge at the top counts there as a whole.
    let pledged = tops.iter().filter(|(_, (_, is_pledged))| *is_pledged && *resource == Resource::Any);
    for (path, (said, _)) in pledged {
        to.retain(|(other, _)| !lineage(other).any(|above| above == *path));
        to.push((path, said.get(resource).copied().unwrap_or(0)));
    }
    to.sort_by_key(|(path, amount)| (std::cmp::Reverse(*amount), *path));
    let named =
        to.iter().take(MOST_NAMED).map(|(path, amount)| format!("{path} {}", shown(resource, *amount)));
    let mut named: Vec<String> = named.collect();
    if to.len() > MOST_NAMED {
        named.push(format!("{} more", to.len() - MOST_NAMED));
    }
    let (sum, there, named) = (shown(resource, sum), shown(resource, there), named.join(", "));
    let what =
        format!("{sum} of {resource} are guaranteed in all ({named}), and the pool has {there}: lower some");
    Beyond { what, queues: to.into_iter().map(|(path, _)| path.to_owned()).collect() }
}

/// How many queues an error names.
const MOST_NAMED: usize = 5;

/// What the pool has; nothing where it has no devices.
fn has(state: &State) -> Option<BTreeMap<Resource, i64>> {
    let is_there = |node| state.nodes.get(node).is_some_and(|node| node.state != NodeState::Gone);
    let mut there: BTreeMap<Resource, i64> = BTreeMap::new();
    for device in state.devices.values().filter(|device| is_there(&device.node)) {
        *there.entry(Resource::Any).or_default() += i64::from(WHOLE_MILLI);
        *there.entry(Resource::Model(device.spec.model.clone())).or_default() += i64::from(WHOLE_MILLI);
    }
    if there.is_empty() {
        return None;
    }
    for node in state.nodes.values().filter(|node| node.state != NodeState::Gone) {
        *there.entry(Resource::Cpu).or_default() += node.spec.cpu_milli;
        *there.entry(Resource::Memory).or_default() += node.spec.memory_bytes;
    }
    Some(there)
}

/// By path: what is guaranteed to each of the queues above which nothing is guaranteed, and whether a pledge makes it more.
type Tops<'a> = BTreeMap<&'a str, (Promised, bool)>;

fn promised_at_the_top<'a>(state: &State, queues: &'a [Queue]) -> Tops<'a> {
    let promised = guaranteed(queues);
    let is_top = |queue: &&Queue| !lineage(&queue.path).skip(1).any(|above| promised.contains_key(above));
    let mut tops = Tops::new();
    for queue in queues.iter().filter(is_top) {
        let mut said = promised.get(&*queue.path).cloned().unwrap_or_default();
        let pace = queue.pledge.said().map_or(0, |pledge| pledge.pace_milli(state.now));
        let is_pledged = pace > said.get(&Resource::Any).copied().unwrap_or(0);
        if is_pledged {
            // What is pledged comes on top of what is guaranteed all the time.
            said.insert(Resource::Any, pace);
        }
        tops.insert(&*queue.path, (said, is_pledged));
    }
    tops
}
