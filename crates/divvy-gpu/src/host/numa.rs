//! NUMA nodes, and how a limit that is lower than the machine is spread over them.

use std::fs;
use std::path::Path;

use super::{cpulist, kib_after};
use crate::NumaNode;

/// Reads the nodes with CPUs that may be used; a machine without NUMA is one node with everything.
pub(super) fn nodes(root: &Path, allowed: &[u32], memory_bytes: u64) -> Vec<NumaNode> {
    let folder = root.join("sys/devices/system/node");
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let ids =
        entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse::<u32>().ok());
    let mut nodes: Vec<NumaNode> = ids.filter_map(|id| node(&folder, id)).collect();
    nodes.sort_unstable_by_key(|node| node.id);
    let near_cpus: u64 = nodes.iter().map(|node| node.memory_bytes).sum();
    for node in &mut nodes {
        node.cpu_ids.retain(|cpu| allowed.binary_search(cpu).is_ok());
        node.cpus = node.cpu_ids.len() as u32;
    }
    nodes.retain(|node| node.cpus > 0);
    if nodes.is_empty() {
        let cpus = allowed.len() as u32;
        nodes.push(NumaNode { id: 0, cpus, cpu_ids: allowed.to_vec(), memory_bytes });
        return nodes;
    }
    share_out(&mut nodes, memory_bytes.saturating_sub(near_cpus));
    nodes
}

/// Reads a node; `None` if it has no CPUs.
fn node(folder: &Path, id: u32) -> Option<NumaNode> {
    let folder = folder.join(format!("node{id}"));
    let list = fs::read_to_string(folder.join("cpulist")).ok()?;
    let cpu_ids = cpulist::parse(&list);
    if cpu_ids.is_empty() {
        return None;
    }
    let meminfo = fs::read_to_string(folder.join("meminfo")).unwrap_or_default();
    let kib = meminfo.lines().find_map(|line| kib_after(line, "MemTotal:")).unwrap_or(0);
    Some(NumaNode { id, cpus: cpu_ids.len() as u32, cpu_ids, memory_bytes: kib * 1024 })
}

/// Adds memory that is near no CPU to the nodes, by their CPUs. It is on nodes without CPUs (CXL), or in a virtual machine
/// that was given more while it ran: such memory was seen on no node at all.
fn share_out(nodes: &mut [NumaNode], memory_bytes: u64) {
    let weights: Vec<u64> = nodes.iter().map(|node| u64::from(node.cpus)).collect();
    for (node, part) in nodes.iter_mut().zip(apportion(&weights, memory_bytes)) {
        node.memory_bytes += part;
    }
}

/// Scales the nodes down until they add up to `cpus` and at most `memory_bytes`.
pub(super) fn shares(mut nodes: Vec<NumaNode>, cpus: u32, memory_bytes: u64) -> Vec<NumaNode> {
    let weights: Vec<u64> = nodes.iter().map(|node| u64::from(node.cpus)).collect();
    let cpu_shares = apportion(&weights, u64::from(cpus));
    let memory: Vec<u64> = nodes.iter().map(|node| node.memory_bytes).collect();
    let present: u64 = memory.iter().sum();
    let memory_shares = if present > memory_bytes { apportion(&memory, memory_bytes) } else { memory };
    for ((node, cpus), memory_bytes) in nodes.iter_mut().zip(cpu_shares).zip(memory_shares) {
        node.cpus = cpus as u32;
        node.memory_bytes = memory_bytes;
    }
    nodes
}

/// Splits `total` in proportion to `weights`, exactly: each part is the difference of two running sums, rounded down.
fn apportion(weights: &[u64], total: u64) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
    let mut before = 0;
    let mut running = 0;
    let part = |&weight: &u64| {
        running += u128::from(weight);
        let until = (running * u128::from(total)).checked_div(sum).unwrap_or(0);
        let part = until - before;
        before = until;
        part as u64
    };
    weights.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parts_add_up_to_the_total(
            weights in prop::collection::vec(1u64..1 << 44, 1..9), total in 0u64..1 << 44,
        ) {
            prop_assert_eq!(apportion(&weights, total).iter().sum::<u64>(), total);
        }
    }

    #[test]
    fn two_cpus_over_two_nodes_are_one_each() {
        assert_eq!(apportion(&[32, 32], 2), [1, 1]);
        assert_eq!(apportion(&[0, 0], 2), [0, 0]);
    }
}
