//! Models in new settings that nobody knows: most likely typos, which would apply to nothing.

use std::collections::BTreeSet;

use divvy_api::read::nearest;
use divvy_core::amount::{Limits, Resource};
use divvy_core::model::node::NodeState;
use divvy_core::model::policy::Policy;
use divvy_core::model::queue::{Queue, Settings};
use divvy_core::state::State;
use divvy_gpu::catalogue;

/// Returns the memory of a model's GPUs in MiB, as the driver reports it; of several sizes the most common one. `None` for a model
/// that the catalogue does not know.
pub fn memory_mib_of(model: &str) -> Option<u64> {
    catalogue::lookup(model, None).map(|known| known.variant.memory_mib)
}

/// Returns a line for each newly named model that no node has and that the catalogue does not know. Returns none where no node has
/// devices to compare with.
pub(crate) fn unknown(wanted: &Settings, state: &State) -> Vec<String> {
    let is_there = |node| state.nodes.get(node).is_some_and(|node| node.state != NodeState::Gone);
    let devices = state.devices.values().filter(|device| is_there(&device.node));
    let here: BTreeSet<&str> = devices.map(|device| device.spec.model.as_str()).collect();
    if here.is_empty() {
        return Vec::new();
    }
    let before: BTreeSet<(String, &str)> =
        state.queues.values().flat_map(named).chain(priced(&state.policy)).collect();
    let policy = wanted.policy_beside(&state.policy);
    let prices = policy.iter().flat_map(priced);
    let named = wanted.queues.iter().flat_map(named).chain(prices);
    let is_new = |name: &(String, &str)| {
        !before.contains(name) && !here.contains(name.1) && catalogue::by_key(name.1).is_none()
    };
    let line = |(place, model): (String, &str)| {
        // Models that the pool has are meant more often than others that exist.
        let near = nearest(model, here.iter().copied()).or_else(|| nearest(model, catalogue::keys()));
        let hint =
            near.map_or("`divvy gpus` lists what there is".into(), |near| format!("did you mean {near}?"));
        format!("{place} names {model:?}, and no GPU of that name is there or known: {hint}")
    };
    named.filter(is_new).map(line).collect()
}

/// Returns the models that a queue names, each with the place where it does.
fn named(queue: &Queue) -> Vec<(String, &str)> {
    let mut amounts: Vec<(&str, &Limits)> = vec![
        ("guarantee", &queue.guarantee),
        ("limit", &queue.limit),
        ("borrow", &queue.borrow),
        ("lend", &queue.lend),
    ];
    amounts.extend(queue.users.said().map(|users| ("users.limit", &users.limit)));
    let mut named = Vec::new();
    for (key, limits) in amounts {
        let models =
            limits.keys().filter_map(|it| if let Resource::Model(model) = it { Some(model) } else { None });
        named.extend(models.map(|model| (format!("{key} of {}", queue.path), model.as_str())));
    }
    named
}

fn priced(policy: &Policy) -> Vec<(String, &str)> {
    let prices = policy.prices.said().into_iter().flat_map(|prices| prices.0.keys());
    prices.map(|model| ("prices".to_owned(), model.as_str())).collect()
}
