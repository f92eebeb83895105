//! What is free, node by node, in vectors.

use std::collections::BTreeMap;

use crate::id::{DeviceId, NodeId};
use crate::model::allocation::Placement;
use crate::model::device::{Health, WHOLE_MILLI};
use crate::model::node::NodeState;
use crate::state::{Device, State};

/// All nodes and devices, in the order of their ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capacity {
    /// The nodes that are there.
    pub nodes: Vec<NodeView>,
    places: BTreeMap<DeviceId, (usize, usize)>,
    node_places: BTreeMap<NodeId, usize>,
}

/// A node as the planner sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeView {
    /// Its id.
    pub id: NodeId,
    /// Whether it takes tasks; otherwise it is draining.
    pub takes_tasks: bool,
    /// Milli-cores it has, and has left.
    pub cpu_milli: (i64, i64),
    /// Bytes of memory it has, and has left.
    pub memory_bytes: (i64, i64),
    /// Its devices by index.
    pub devices: Vec<DeviceView>,
    /// How many of them are wholly free and usable.
    pub free: u32,
}

/// A device as the planner sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceView {
    /// Its id.
    pub id: DeviceId,
    /// Its place among its node's devices, by the driver.
    pub index: u32,
    /// What it is.
    pub spec: crate::model::device::DeviceSpec,
    /// Why it cannot be given out, if it cannot.
    pub unusable: Option<Unusable>,
    /// Thousandths left.
    pub free_milli: u32,
    /// MiB left.
    pub free_memory_mib: u64,
    /// Its share of the host: milli-cores and bytes of its NUMA node, divided by the devices there.
    pub host_share: (i64, i64),
}

/// Why a device cannot be given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unusable {
    /// It is broken or gone.
    Down,
    /// Someone outside the pool uses it.
    Foreign,
}

impl NodeView {
    /// Whether nothing of it is taken.
    pub fn is_idle(&self) -> bool {
        let whole = |device: &DeviceView| device.free_milli == WHOLE_MILLI;
        self.cpu_milli.0 == self.cpu_milli.1
            && self.memory_bytes.0 == self.memory_bytes.1
            && self.devices.iter().all(whole)
    }
}

impl DeviceView {
    /// Whether all of it is free to be given out.
    pub fn is_free(&self) -> bool {
        self.unusable.is_none() && self.free_milli == WHOLE_MILLI
    }
}

impl Capacity {
    /// What the pool has, nothing taken.
    pub fn new(state: &State) -> Self {
        Self::build(state, unusable)
    }

    /// What the pool has when every device works and nobody else uses it.
    pub fn whole(state: &State) -> Self {
        let mut whole = Self::build(state, |_| None);
        whole.nodes.iter_mut().for_each(|node| node.takes_tasks = true);
        whole
    }

    fn build(state: &State, unusable: impl Fn(&Device) -> Option<Unusable>) -> Self {
        let mut capacity = Self::default();
        for (id, node) in state.nodes.iter().filter(|(_, node)| node.state != NodeState::Gone) {
            capacity.node_places.insert(*id, capacity.nodes.len());
            let spec = &node.spec;
            capacity.nodes.push(NodeView {
                id: *id,
                takes_tasks: node.state == NodeState::Ready,
                cpu_milli: (spec.cpu_milli, spec.cpu_milli),
                memory_bytes: (spec.memory_bytes, spec.memory_bytes),
                devices: Vec::new(),
                free: 0,
            });
        }
        for (id, device) in &state.devices {
            let Some(node) = capacity.node_places.get(&device.node) else { continue };
            capacity.nodes[*node].devices.push(DeviceView {
                id: *id,
                index: device.spec.index,
                spec: device.spec.clone(),
                unusable: unusable(device),
                free_milli: WHOLE_MILLI,
                free_memory_mib: device.spec.memory_mib,
                host_share: (0, 0),
            });
        }
        for (place, node) in capacity.nodes.iter_mut().enumerate() {
            node.devices.sort_by_key(|device| (device.index, device.id));
            share_host(node, state);
            node.free = free_devices(node);
            let places = node.devices.iter().enumerate().map(|(index, device)| (device.id, (place, index)));
            capacity.places.extend(places);
        }
        capacity
    }

    /// Where a device is: its node's place and its own.
    pub fn place_of(&self, device: DeviceId) -> Option<(usize, usize)> {
        self.places.get(&device).copied()
    }

    /// Where a node is.
    pub fn node_place(&self, node: NodeId) -> Option<usize> {
        self.node_places.get(&node).copied()
    }

    /// The cores that belong to a placement's devices when nobody asked for any: a share, not a claim.
    pub fn core_share(&self, placement: &Placement) -> i64 {
        let share = |device: &DeviceId| {
            let (place, index) = self.place_of(*device)?;
            Some(self.nodes[place].devices[index].host_share.0)
        };
        placement.devices.iter().filter_map(|(device, _)| share(device)).sum()
    }

    /// Takes what a placement draws.
    pub fn take(&mut self, placement: &Placement) {
        self.draw(placement, true);
    }

    /// Gives it back.
    pub fn give_back(&mut self, placement: &Placement) {
        self.draw(placement, false);
    }

    /// Saturates: what does not fit is for the checker to find, which reckons from the state.
    fn draw(&mut self, placement: &Placement, take: bool) {
        let sign = if take { -1 } else { 1 };
        if let Some(place) = self.node_place(placement.node) {
            let node = &mut self.nodes[place];
            node.cpu_milli.1 += sign * placement.cpu_milli;
            node.memory_bytes.1 += sign * placement.memory_bytes;
        }
        for (id, draw) in &placement.devices {
            let Some((place, index)) = self.place_of(*id) else { continue };
            let device = &mut self.nodes[place].devices[index];
            let was_free = device.is_free();
            if take {
                device.free_milli = device.free_milli.saturating_sub(draw.milli);
                device.free_memory_mib = device.free_memory_mib.saturating_sub(draw.memory_mib);
            } else {
                device.free_milli += draw.milli;
                device.free_memory_mib += draw.memory_mib;
            }
            let is_free = device.is_free();
            let node = &mut self.nodes[place];
            node.free = node.free + u32::from(is_free) - u32::from(was_free);
        }
    }

    /// Follows a change of a device's health or outside user.
    pub fn refresh(&mut self, state: &State, id: DeviceId) {
        let Some(((place, index), device)) = self.place_of(id).zip(state.devices.get(&id)) else { return };
        self.nodes[place].devices[index].unusable = unusable(device);
        self.nodes[place].free = free_devices(&self.nodes[place]);
    }
}

fn free_devices(node: &NodeView) -> u32 {
    node.devices.iter().map(|device| u32::from(device.is_free())).sum()
}

fn unusable(device: &Device) -> Option<Unusable> {
    if device.health != Health::Ok {
        Some(Unusable::Down)
    } else {
        device.occupant.is_some().then_some(Unusable::Foreign)
    }
}

/// Divides the cores and memory of each NUMA node (or of the whole node, where none is known) among its devices.
fn share_host(node: &mut NodeView, state: &State) {
    let Some(spec) = state.nodes.get(&node.id).map(|node| &node.spec) else { return };
    let known = |numa: Option<u32>| {
        numa.filter(|numa| spec.numa.get(*numa as usize).is_some_and(|there| there.cpu_milli > 0))
    };
    let all_known = node.devices.iter().all(|device| known(device.spec.numa).is_some());
    let mut counts: BTreeMap<Option<u32>, i64> = BTreeMap::new();
    let key = |numa: Option<u32>| if all_known { numa } else { None };
    for device in &node.devices {
        *counts.entry(key(device.spec.numa)).or_default() += 1;
    }
    for device in &mut node.devices {
        let numa = key(device.spec.numa);
        let count = counts.get(&numa).copied().unwrap_or(1).max(1);
        let place = numa.and_then(|numa| spec.numa.get(numa as usize));
        let (cpu, memory) =
            place.map_or((spec.cpu_milli, spec.memory_bytes), |numa| (numa.cpu_milli, numa.memory_bytes));
        device.host_share = (cpu / count, memory / count);
    }
}
