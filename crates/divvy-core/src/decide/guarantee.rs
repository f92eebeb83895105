//! Whether a pool can keep what its queues are guaranteed.

use std::collections::BTreeMap;

use crate::amount::Resource;
use crate::model::device::WHOLE_MILLI;
use crate::model::node::NodeState;
use crate::model::queue::{Promised, Queue, guaranteed, lineage};
use crate::reason::shown;
use crate::state::State;

/// What is guaranteed beyond what the pool has, if anything: of devices of any model, or of one, or of what hosts have. Nodes that are
/// gone do not count; a pool without devices is not asked.
pub fn guaranteed_beyond(state: &State, queues: &[Queue]) -> Option<String> {
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
    let promised = guaranteed(queues);
    let is_top = |queue: &&Queue| !lineage(&queue.path).skip(1).any(|above| promised.contains_key(above));
    let mut sums = Promised::new();
    for queue in queues.iter().filter(is_top) {
        let pace = queue.pledge.said().map_or(0, |pledge| pledge.pace_milli(state.now));
        let said = promised.get(&*queue.path).cloned().unwrap_or_default();
        // What is pledged comes on top of what is guaranteed all the time.
        let all_the_time = said.get(&Resource::Any).copied().unwrap_or(0);
        let sum = sums.entry(Resource::Any).or_default();
        *sum = sum.saturating_add((pace - all_the_time).max(0));
        for (resource, amount) in said {
            let sum = sums.entry(resource).or_default();
            *sum = sum.saturating_add(amount);
        }
    }
    let is_known = |resource: &Resource| {
        matches!(resource, Resource::Any | Resource::Model(_))
            || there.get(resource).is_some_and(|it| *it > 0)
    };
    let beyond = |(resource, sum): (&Resource, &i64)| {
        let there = there.get(resource).copied().unwrap_or(0);
        let (sum_text, there_text) = (shown(resource, *sum), shown(resource, there));
        (*sum > there).then(|| {
            format!(
                "{sum_text} of {resource} are guaranteed in all, and the pool has {there_text}: lower some"
            )
        })
    };
    sums.iter().filter(|(resource, _)| is_known(resource)).find_map(beyond)
}
