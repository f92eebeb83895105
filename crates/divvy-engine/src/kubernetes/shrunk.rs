//! A node that has less than before. A device plugin that restarts shows no devices for a moment, while all pods run on. So a node
//! with pods of the pool keeps its size, and what is missing counts as taken by others, as far as nobody holds it.

use divvy_core::amount::Resource;
use divvy_core::model::device::DeviceSpec;
use divvy_core::model::extras::Extras;
use divvy_core::model::node::{NodeSpec, OthersHold};

/// A node and its devices.
pub(super) type Seen = (NodeSpec, Vec<DeviceSpec>);

/// Returns the node with at least its former amounts, and what is missing of them.
pub(super) fn kept((before, devices_before): &Seen, (now, mut devices): Seen) -> (Seen, OthersHold) {
    let resources = before.extras.iter().chain(now.extras.iter()).map(|(resource, _)| resource);
    let most = |resource: &Resource| before.extras.of(resource).max(now.extras.of(resource));
    let extras: Extras = resources.map(|resource| (resource.clone(), most(resource))).collect();
    let tasks = before.most_tasks.zip(now.most_tasks).map(|(before, now)| before.saturating_sub(now));
    let is_more = tasks.is_some_and(|missing| missing > 0);
    let mut missing = OthersHold {
        cpu_milli: (before.cpu_milli - now.cpu_milli).max(0),
        memory_bytes: (before.memory_bytes - now.memory_bytes).max(0),
        devices: devices_before.len().saturating_sub(devices.len()) as u32,
        tasks: tasks.unwrap_or(0),
        extras: extras.clone(),
    };
    missing.extras.add(&now.extras, -1);
    devices.extend(devices_before.iter().skip(devices.len()).cloned());
    let spec = NodeSpec {
        cpu_milli: now.cpu_milli.max(before.cpu_milli),
        memory_bytes: now.memory_bytes.max(before.memory_bytes),
        most_tasks: if is_more { before.most_tasks } else { now.most_tasks },
        extras,
        ..now
    };
    ((spec, devices), missing)
}

/// Returns what others hold of a node, plus the missing part, as far as neither they nor the pool's own pods hold it.
pub(super) fn with_missing(
    node: &Seen,
    (others, own): (&OthersHold, &OthersHold),
    missing: &OthersHold,
) -> OthersHold {
    let (spec, devices) = node;
    let left = |whole: i64, taken: [i64; 2], missing: i64| missing.min(whole - taken[0] - taken[1]).max(0);
    let count = |whole: u32, taken: [u32; 2], missing: u32| {
        missing.min(whole.saturating_sub(taken[0]).saturating_sub(taken[1]))
    };
    let extra = |(resource, missing): (&Resource, i64)| {
        let taken = [others.extras.of(resource), own.extras.of(resource)];
        (resource.clone(), left(spec.extras.of(resource), taken, missing))
    };
    let mut all = others.clone();
    all.cpu_milli += left(spec.cpu_milli, [others.cpu_milli, own.cpu_milli], missing.cpu_milli);
    all.memory_bytes +=
        left(spec.memory_bytes, [others.memory_bytes, own.memory_bytes], missing.memory_bytes);
    all.devices += count(devices.len() as u32, [others.devices, own.devices], missing.devices);
    all.tasks += count(spec.most_tasks.unwrap_or(u32::MAX), [others.tasks, own.tasks], missing.tasks);
    all.extras.add(&missing.extras.iter().map(extra).collect(), 1);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(devices: u32, cpu_milli: i64, cards: i64) -> Seen {
        let device = |index| DeviceSpec { index, ..DeviceSpec::default() };
        let extras = [(Resource::from("example.com/nic"), cards)].into_iter().collect();
        let spec = NodeSpec { cpu_milli, most_tasks: Some(10), extras, ..NodeSpec::default() };
        (spec, (0..devices).map(device).collect())
    }

    #[test]
    fn what_is_missing_is_taken_as_far_as_nobody_has_it() {
        let (there, missing) = kept(&node(8, 4000, 2), node(0, 5000, 1));
        assert_eq!((there.0.cpu_milli, there.1.len(), missing.devices, missing.cpu_milli), (5000, 8, 8, 0));
        let own = OthersHold { devices: 6, ..OthersHold::default() };
        let others = OthersHold { devices: 1, ..OthersHold::default() };
        let told = with_missing(&there, (&others, &own), &missing);
        assert_eq!((told.devices, told.extras.of(&Resource::from("example.com/nic"))), (2, 1));
        let told = with_missing(&there, (&others, &OthersHold::default()), &missing);
        assert_eq!(told.devices, 8);
    }

    #[test]
    fn of_a_node_that_has_more_nothing_is_missing() {
        let (there, missing) = kept(&node(4, 4000, 1), node(8, 8000, 2));
        assert_eq!((there, missing), (node(8, 8000, 2), OthersHold::default()));
    }
}
