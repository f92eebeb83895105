//! Which tasks run on which node, and on which nodes the least runs.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use crate::id::{AllocationId, NodeId};
use crate::model::allocation::Placement;

/// The tasks on each node, and the nodes in the order of what these hold of devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Hosts {
    nodes: BTreeMap<NodeId, Host>,
    by_held: BTreeSet<(i64, NodeId)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Host {
    /// Thousandths of devices.
    held_milli: i64,
    /// Rising.
    tasks: SmallVec<[AllocationId; 4]>,
}

impl Hosts {
    pub(super) fn add(&mut self, placement: &Placement) {
        let host = self.nodes.entry(placement.node).or_default();
        self.by_held.remove(&(host.held_milli, placement.node));
        host.held_milli += placement.milli();
        let place = host.tasks.partition_point(|task| *task < placement.allocation);
        host.tasks.insert(place, placement.allocation);
        self.by_held.insert((host.held_milli, placement.node));
    }

    pub(super) fn remove(&mut self, placement: &Placement) {
        let Some(host) = self.nodes.get_mut(&placement.node) else { return };
        self.by_held.remove(&(host.held_milli, placement.node));
        host.held_milli -= placement.milli();
        host.tasks.retain(|task| *task != placement.allocation);
        match host.tasks.is_empty() {
            true => drop(self.nodes.remove(&placement.node)),
            false => drop(self.by_held.insert((host.held_milli, placement.node))),
        }
    }

    /// What runs on each node, but for some tasks: first where the least runs without these. `gone` are the placements of such tasks.
    pub(crate) fn least_first<'a>(
        &'a self,
        gone: impl Iterator<Item = &'a Placement>,
    ) -> impl Iterator<Item = Vec<AllocationId>> + 'a {
        let (mut without, mut less) = (BTreeSet::new(), BTreeMap::<NodeId, i64>::new());
        for placement in gone.filter(|placement| without.insert(placement.allocation)) {
            *less.entry(placement.node).or_default() += placement.milli();
        }
        let left = |(node, less): (&NodeId, &i64)| Some((self.nodes.get(node)?.held_milli - less, *node));
        let mut changed: BTreeSet<(i64, NodeId)> = less.iter().filter_map(left).collect();
        let mut as_before =
            self.by_held.iter().copied().filter(move |(_, node)| !less.contains_key(node)).peekable();
        let next = std::iter::from_fn(move || match (as_before.peek(), changed.first()) {
            (Some(one), Some(other)) if other < one => changed.pop_first(),
            (None, _) => changed.pop_first(),
            _ => as_before.next(),
        });
        let tasks = move |(_, node): (i64, NodeId)| {
            let tasks = self.nodes.get(&node)?.tasks.iter().filter(|task| !without.contains(task));
            Some(tasks.copied().collect::<Vec<_>>()).filter(|tasks| !tasks.is_empty())
        };
        next.filter_map(tasks)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::DeviceId;
    use crate::model::device::Draw;

    /// A task that holds so many devices of a node.
    fn task(number: u64, (node, devices): (u32, u32)) -> Placement {
        let whole = |device| (DeviceId(device), Draw { milli: 1000, memory_mib: 0, partition: None });
        Placement {
            allocation: AllocationId(number),
            rank: 0,
            node: NodeId(node),
            devices: (0..devices).map(whole).collect(),
            cpu_milli: 0,
            memory_bytes: 0,
            extras: Default::default(),
            alternative: 0,
        }
    }

    /// The same, looked up task by task.
    fn by_hand(tasks: &[Placement]) -> Vec<Vec<AllocationId>> {
        let mut nodes: BTreeMap<NodeId, (i64, Vec<AllocationId>)> = BTreeMap::new();
        for task in tasks {
            let (milli, ids) = nodes.entry(task.node).or_default();
            *milli += task.milli();
            ids.push(task.allocation);
        }
        let mut nodes: Vec<_> = nodes.into_iter().map(|(node, (milli, ids))| (milli, node, ids)).collect();
        nodes.sort();
        nodes.into_iter().map(|(.., ids)| ids).collect()
    }

    proptest! {
        #[test]
        fn nodes_come_in_the_order_of_what_runs_there_without_what_is_gone(
            tasks in prop::collection::vec((0..5u32, 0..4u32, 0..4u8), 0..24),
        ) {
            let all: Vec<(Placement, u8)> = tasks.iter().zip(1..)
                .map(|((node, devices, fate), number)| (task(number, (*node, *devices)), *fate)).collect();
            let mut hosts = Hosts::default();
            all.iter().rev().for_each(|(task, _)| hosts.add(task));
            // Of four, one has ended, and one is gone by assumption.
            all.iter().filter(|(_, fate)| *fate == 0).for_each(|(task, _)| hosts.remove(task));
            let gone = all.iter().filter(|(_, fate)| *fate == 1).map(|(task, _)| task);
            let stay: Vec<Placement> =
                all.iter().filter(|(_, fate)| *fate > 1).map(|(task, _)| task.clone()).collect();
            prop_assert_eq!(hosts.least_first(gone).collect::<Vec<_>>(), by_hand(&stay));
            let mut anew = Hosts::default();
            all.iter().filter(|(_, fate)| *fate > 0).for_each(|(task, _)| anew.add(task));
            prop_assert!(hosts == anew);
        }
    }
}
