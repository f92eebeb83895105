//! Phase 3, place, within a node: where the devices of a task must lie in one island, what an island has counts, not what its node has.

use crate::model::ask::{Alternative, DeviceAsk};
use crate::model::island::{IslandAsk, IslandLevel};
use crate::model::newer::Newer;
use crate::snapshot::{DeviceView, NodeView};

/// An alternative that requires the island that it prefers; `None` if it requires one already, or prefers none.
pub(super) fn strict(alternative: &Alternative) -> Option<Alternative> {
    let ask = alternative.devices.as_ref()?;
    let preferred = ask.island.said().filter(|island| !island.required && ask.count > 1)?;
    let island = Newer(Some(IslandAsk { required: true, ..*preferred }));
    Some(Alternative { devices: Some(DeviceAsk { island, ..ask.clone() }), ..alternative.clone() })
}

/// Devices by their islands, in the order of the first of each.
pub(super) fn of(level: IslandLevel, devices: Vec<&DeviceView>) -> Vec<Vec<&DeviceView>> {
    let mut islands: Vec<Vec<&DeviceView>> = Vec::new();
    for device in devices {
        let number = device.site.island(level);
        match islands.iter_mut().find(|island| island[0].site.island(level) == number) {
            Some(island) => island.push(device),
            None => islands.push(vec![device]),
        }
    }
    islands
}

/// How many tasks have room on a node by its devices, each of which has room for `draws` draws.
pub(super) fn tasks(node: &NodeView, ask: &DeviceAsk, draws: impl Fn(&DeviceView) -> u64) -> u64 {
    let each = u64::from(ask.count.max(1));
    match ask.required_island() {
        None => node.devices.iter().map(draws).sum::<u64>() / each,
        Some(level) => {
            let of =
                |island: &Vec<&DeviceView>| island.iter().map(|device| draws(device)).sum::<u64>() / each;
            of_node(node, level).iter().map(of).sum()
        }
    }
}

/// The most devices of one island of a node for which `counts` holds; of the whole node, where no island is required.
pub(super) fn most(node: &NodeView, ask: &DeviceAsk, counts: impl Fn(&DeviceView) -> bool) -> u32 {
    match ask.required_island() {
        None => node.devices.iter().filter(|device| counts(device)).count() as u32,
        Some(level) => {
            let of = |island: &Vec<&DeviceView>| island.iter().filter(|device| counts(device)).count() as u32;
            of_node(node, level).iter().map(of).max().unwrap_or(0)
        }
    }
}

/// How many devices of a node for which `counts` holds are in islands that have enough of them for a task; 0 where none is required.
pub(super) fn in_enough(node: &NodeView, ask: &DeviceAsk, counts: impl Fn(&DeviceView) -> bool) -> u32 {
    let Some(level) = ask.required_island() else { return 0 };
    let of = |island: &Vec<&DeviceView>| island.iter().filter(|device| counts(device)).count() as u32;
    of_node(node, level).iter().map(of).filter(|here| *here >= ask.count).sum()
}

fn of_node(node: &NodeView, level: IslandLevel) -> Vec<Vec<&DeviceView>> {
    of(level, node.devices.iter().collect())
}
