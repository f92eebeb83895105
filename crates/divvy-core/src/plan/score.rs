//! Scores: among the nodes that can take a task, which is best; among a node's devices, which go together.

use crate::snapshot::{DeviceView, NodeView};

/// Lower is better: first nodes that hold tasks of the same gang; then nodes that hold all of the gang's remaining tasks, the
/// fullest of them (whole nodes stay whole); where none does, the one that holds most, so that few nodes are joined; then the
/// fewest cores left over, then the node's place.
pub(super) type NodeScore = (bool, bool, u32, i64, usize);

/// Scores a node for the first of so many remaining tasks, each of so many devices.
pub(super) fn node(
    (place, view): (usize, &NodeView),
    count: u32,
    remaining: u32,
    has_gang: bool,
) -> NodeScore {
    let holds_all = view.free >= count.saturating_mul(remaining);
    let left = if holds_all { view.free } else { u32::MAX - view.free };
    (!has_gang, !holds_all, left, view.cpu_milli.1, place)
}

/// Chooses so many of the fitting devices: from the NUMA node (or link island) with the fewest fitting ones that has enough;
/// where none has enough, from the fullest down, so that as few as possible are joined. Inside, the lowest index.
pub(super) fn devices<'a>(fitting: &[&'a DeviceView], count: usize) -> Vec<&'a DeviceView> {
    let mut islands: Vec<Vec<&DeviceView>> = Vec::new();
    for device in fitting {
        let near = |other: &DeviceView| {
            linked(other, device)
                || (other.spec.links.is_empty()
                    && device.spec.links.is_empty()
                    && other.spec.numa == device.spec.numa)
        };
        match islands.iter_mut().find(|island| island.iter().any(|other| near(other))) {
            Some(island) => island.push(device),
            None => islands.push(vec![device]),
        }
    }
    if let Some(island) =
        islands.iter().filter(|island| island.len() >= count).min_by_key(|island| island.len())
    {
        return island[..count].to_vec();
    }
    islands.sort_by_key(|island| std::cmp::Reverse(island.len()));
    islands.into_iter().flatten().take(count).collect()
}

fn linked(a: &DeviceView, b: &DeviceView) -> bool {
    a.spec.links.iter().any(|link| link.uuid == b.spec.uuid)
}
