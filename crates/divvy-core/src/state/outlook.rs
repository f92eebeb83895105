//! The outlook: what arrivals lead to expect, measured against the pool as it stands. The fold computes it at moments that follow from the
//! arrivals alone, so that every fold of the log gives the same.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::State;
use crate::id::{DeviceId, NodeId};
use crate::model::device::{DeviceSpec, Health, WHOLE_MILLI};
use crate::model::job::Submission;
use crate::model::members::Members;
use crate::model::mix::{DeviceKind, Outlook, TaskKind};
use crate::model::node::NodeState;

/// The most kinds of tasks with several devices for which places are counted: those that ask for most.
const MOST_LARGE: usize = 16;

/// The pool as it stands, as far as it takes tasks and has devices.
#[derive(Default)]
struct Pool {
    /// The kinds of devices, and how many there are.
    devices: Vec<(DeviceKind, u64)>,
    nodes: BTreeMap<NodeId, Standing>,
    /// Devices that are neither full nor free, by the thousandths left.
    open: BTreeMap<u32, u64>,
}

/// A node as it stands: milli-cores left, and by kind of device how many are wholly free.
#[derive(Default)]
struct Standing {
    cpu_milli: i64,
    free: SmallVec<[(usize, u64); 1]>,
}

impl Standing {
    fn add_free(&mut self, kind: usize) {
        match self.free.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, free)) => *free += 1,
            None => self.free.push((kind, 1)),
        }
    }
}

impl State {
    /// Counts the tasks of a submission, and computes a new outlook if one is due.
    pub(super) fn note_arrivals(&mut self, submission: &Submission) {
        let members = submission.array.as_ref().map_or(1, |array| Members::of(array).len());
        for role in submission.spec.gang.roles() {
            let Some(first) = role.ask.alternatives.first() else { continue };
            self.mix.note(TaskKind::of(first), members.saturating_mul(role.minimum.into()));
        }
        if self.mix.is_due() {
            let outlook = self.outlook();
            self.mix.look_out(outlook);
        }
    }

    fn outlook(&self) -> Outlook {
        let kinds = self.mix.counts().to_vec();
        let pool = self.standing();
        let cpu_milli = pool.nodes.keys().filter_map(|node| Some(self.nodes.get(node)?.spec.cpu_milli)).sum();
        let mut large: Vec<usize> = (0..kinds.len()).filter(|place| kinds[*place].0.count > 1).collect();
        large.sort_by_key(|place| Reverse(kinds[*place].1.saturating_mul(kinds[*place].0.count.into())));
        large.truncate(MOST_LARGE);
        let places = large.into_iter().map(|place| (place, pool.room_for(&kinds[place].0))).collect();
        let open = pool.open.into_iter().collect();
        Outlook { digest: 0, kinds, devices: pool.devices, cpu_milli, open, places }.sealed()
    }

    fn standing(&self) -> Pool {
        let held = || self.allocations.values().map(|held| &held.placement);
        let mut cpu_milli: BTreeMap<NodeId, i64> = BTreeMap::new();
        held().for_each(|placement| *cpu_milli.entry(placement.node).or_insert(0) += placement.cpu_milli);
        // Both are in the order of the devices.
        let mut drawn: Vec<(DeviceId, u32)> =
            held().flat_map(|placement| &placement.devices).map(|(id, draw)| (*id, draw.milli)).collect();
        drawn.sort_unstable();
        let mut drawn = drawn.into_iter().peekable();
        let mut pool = Pool::default();
        for (id, device) in &self.devices {
            while drawn.next_if(|(other, _)| other < id).is_some() {}
            let mut left = WHOLE_MILLI;
            while let Some((_, milli)) = drawn.next_if(|(other, _)| other == id) {
                left = left.saturating_sub(milli);
            }
            let ready = self.nodes.get(&device.node).filter(|node| node.state == NodeState::Ready);
            let Some(node) = ready.filter(|_| device.health == Health::Ok) else { continue };
            let standing = pool.nodes.entry(device.node).or_insert_with(|| {
                let held_milli = cpu_milli.get(&device.node).copied().unwrap_or(0);
                Standing { cpu_milli: node.spec.cpu_milli - held_milli, free: SmallVec::new() }
            });
            let kind = place_of(&mut pool.devices, &device.spec);
            pool.devices[kind].1 += 1;
            match left {
                0 => {}
                WHOLE_MILLI => standing.add_free(kind),
                left => *pool.open.entry(left).or_insert(0) += 1,
            }
        }
        pool
    }
}

impl Pool {
    /// How many tasks of a kind fit on the nodes, each node by itself.
    fn room_for(&self, kind: &TaskKind) -> u64 {
        let takes = |spec: &DeviceSpec| kind.class.takes(spec);
        let may: Vec<bool> = self.devices.iter().map(|(device, _)| takes(&device.example())).collect();
        let on_node = |node: &Standing| {
            let free: u64 = node.free.iter().filter(|(kind, _)| may[*kind]).map(|(_, free)| free).sum();
            let by_cores = (node.cpu_milli.max(0) / kind.cpu_milli.max(1)) as u64;
            (free / u64::from(kind.count.max(1))).min(by_cores)
        };
        self.nodes.values().map(on_node).sum()
    }
}

fn place_of(kinds: &mut Vec<(DeviceKind, u64)>, spec: &DeviceSpec) -> usize {
    kinds.iter().position(|(kind, _)| kind.is_of(spec)).unwrap_or_else(|| {
        kinds.push((DeviceKind::of(spec), 0));
        kinds.len() - 1
    })
}
