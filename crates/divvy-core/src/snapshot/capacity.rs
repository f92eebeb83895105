//! What is free, node by node, in vectors.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::device::{DeviceView, Unusable, unusable};
use super::shelves::{Filed, Shelves};
use super::sites::{Lanes, survey};
use super::sizes::{Size, Sizes};
use crate::amount::Resource;
use crate::id::{DeviceId, NodeId};
use crate::model::allocation::Placement;
use crate::model::choice::{Face, NodeChoice};
use crate::model::device::WHOLE_MILLI;
use crate::model::extras::Extras;
use crate::model::island::IslandLevel;
use crate::model::job::JobSpec;
use crate::model::node::{NodeSpec, NodeState, OthersHold};
use crate::model::score::Score;
use crate::state::{Device, Node, State, fingerprint};
use crate::time::Time;

/// All nodes and devices, in the order of their ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capacity {
    /// The nodes that are there.
    pub nodes: Vec<NodeView>,
    /// By the number of a device: its node's place, and its own. Numbers are given one after the other.
    places: Vec<(u32, u32)>,
    /// By the number of a node.
    node_places: Vec<u32>,
    /// The models there are, as resources, in the order of the devices that have them first.
    models: Vec<Resource>,
    /// What the nodes have, added up.
    whole: Whole,
    /// The hash of all that a choice among nodes may look at, node by node: what is remembered by it cannot be out of date.
    is_stamped: bool,
    stamps: Vec<u64>,
    /// Whether any node has taints.
    pub(crate) is_tainted: bool,
    /// Whether nodes are kept for any queue, and what those of them that are there have, by queue.
    pub(crate) keeps_nodes: bool,
    kept: BTreeMap<Arc<str>, Whole>,
    /// All that the largest nodes have.
    sizes: Arc<Sizes>,
    /// The nodes by their free devices.
    shelves: Shelves,
}

/// What nodes have, added up: devices that can be given out, in all and by the place of their model, milli-cores and bytes.
#[derive(Clone, Debug, Default, PartialEq)]
struct Whole {
    usable: i64,
    by_model: Vec<i64>,
    cpu_milli: i64,
    memory_bytes: i64,
}

/// The place of what is not there.
const NOWHERE: u32 = u32::MAX;

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
    /// What else it has, and has left.
    pub extras: (Extras, Extras),
    /// Its devices by index.
    pub devices: Vec<DeviceView>,
    /// How many of them are wholly free and usable.
    pub free: u32,
    /// How many of them can be given out at all.
    pub usable: u32,
    /// Whether all of them are of one model and size.
    pub uniform: bool,
    /// By how many lanes any two of them are joined, where it matters which are taken.
    pub(crate) lanes: Option<Arc<Lanes>>,
    /// How many tasks with devices draw on it, by how many devices each has.
    pub tasks: TaskCounts,
    /// Its domain on each level that it names, coarse to fine.
    pub domains: Arc<[(String, String)]>,
    /// Its labels and taints.
    pub face: Arc<Face>,
    /// The queue for which it is kept, if it is.
    pub(crate) kept_for: Option<Arc<str>>,
    /// How many tasks it takes at most, and how many more it takes now.
    pub most_tasks: (i64, i64),
    /// What tasks from outside the pool hold of it; this is already off what is left.
    others: OthersHold,
    /// The hash of what does not change while it is there.
    fixed: u64,
    /// The place of its devices' kind on the shelves; 0 where they are not all alike.
    pub(crate) kind: usize,
}

/// Tasks of a node by the devices that each has: a share, one, two, up to four, more.
pub type TaskCounts = [i32; 5];

/// Where a task with devices is counted; `None` for one without.
pub fn task_kind(devices: usize, shares: bool) -> Option<usize> {
    match devices {
        0 => None,
        _ if shares => Some(0),
        1 | 2 => Some(devices),
        3 | 4 => Some(3),
        _ => Some(4),
    }
}

impl NodeView {
    fn empty((id, node): (NodeId, &Node), takes_tasks: bool) -> Self {
        let spec = &node.spec;
        let mut view = Self {
            id,
            takes_tasks,
            cpu_milli: (spec.cpu_milli, spec.cpu_milli),
            memory_bytes: (spec.memory_bytes, spec.memory_bytes),
            extras: (spec.extras.clone(), spec.extras.clone()),
            devices: Vec::new(),
            free: 0,
            usable: 0,
            uniform: true,
            lanes: None,
            tasks: TaskCounts::default(),
            domains: spec.domains.clone().into(),
            face: Arc::new(spec.face.clone()),
            kept_for: None,
            most_tasks: (most_tasks(spec), most_tasks(spec)),
            others: OthersHold::default(),
            fixed: 0,
            kind: 0,
        };
        view.leave_to_others(&node.others);
        view
    }

    /// Takes what others hold off what is left, in place of what they held before.
    fn leave_to_others(&mut self, hold: &OthersHold) {
        let before = std::mem::replace(&mut self.others, hold.clone());
        self.cpu_milli.1 += before.cpu_milli - hold.cpu_milli;
        self.memory_bytes.1 += before.memory_bytes - hold.memory_bytes;
        self.most_tasks.1 += i64::from(before.tasks) - i64::from(hold.tasks);
        self.extras.1.add(&before.extras, 1);
        self.extras.1.add(&hold.extras, -1);
    }

    /// The hash of all that a choice among nodes may look at, without the node's name: equal nodes have equal hashes.
    fn stamp(&self) -> u64 {
        let devices = self.devices.iter();
        let left = |device: &DeviceView| (device.free_milli, device.free_memory_mib, device.unusable);
        let host = (self.takes_tasks, self.cpu_milli.1, self.memory_bytes.1, self.most_tasks.1 > 0);
        fingerprint(&(self.fixed, host, &self.extras.1, self.tasks, Each(devices.map(left))))
    }

    /// Whether a job may use it, whatever it chooses.
    pub(crate) fn is_open_to(&self, spec: &JobSpec) -> bool {
        self.kept_for == spec.kept_to.0
    }

    /// Whether it suits a task of a job with this choice of nodes.
    pub(crate) fn takes(&self, spec: &JobSpec, choice: &NodeChoice) -> bool {
        self.is_open_to(spec) && choice.takes(&self.face)
    }

    /// Its domain on a level.
    pub fn domain(&self, level: &str) -> Option<&str> {
        self.domains.iter().find(|(key, _)| key == level).map(|(_, domain)| domain.as_str())
    }

    /// Whether nothing of it is taken.
    pub fn is_idle(&self) -> bool {
        let whole = |device: &DeviceView| device.free_milli == WHOLE_MILLI as i32;
        self.cpu_milli.0 == self.cpu_milli.1
            && self.memory_bytes.0 == self.memory_bytes.1
            && self.extras.0 == self.extras.1
            && self.devices.iter().all(whole)
    }
}

impl Capacity {
    /// What the pool has, nothing taken.
    pub fn new(state: &State) -> Self {
        Self::build(state, |id, device| unusable(state, id, device))
    }

    /// What the pool has when every device works and nobody else uses it.
    pub fn whole(state: &State) -> Self {
        let mut whole = Self::build(state, |_, _| None);
        whole.nodes.iter_mut().for_each(|node| node.takes_tasks = true);
        (0..whole.nodes.len()).for_each(|place| whole.count(place));
        whole.stamp_all();
        whole
    }

    fn build(state: &State, unusable: impl Fn(DeviceId, &Device) -> Option<Unusable>) -> Self {
        let mut capacity = Self { keeps_nodes: state.keeps_nodes(), ..Self::default() };
        for (id, node) in state.nodes.iter().filter(|(_, node)| node.state != NodeState::Gone) {
            capacity.join(state, *id, node);
        }
        for (id, device) in &state.devices {
            let Some(node) = capacity.node_place(device.node) else { continue };
            let model = capacity.model_of(device);
            capacity.nodes[node].devices.push(DeviceView::idle(*id, device, (model, unusable(*id, device))));
        }
        for place in 0..capacity.nodes.len() {
            capacity.finish(place, state);
        }
        capacity.is_stamped = state.policy.score != Score::KeepWhole;
        capacity.stamp_all();
        capacity
    }

    /// Adds a node without its devices; returns its place.
    fn join(&mut self, state: &State, id: NodeId, node: &Node) -> usize {
        let place = self.nodes.len();
        *entry(&mut self.node_places, id.0, NOWHERE) = place as u32;
        self.nodes.push(NodeView::empty((id, node), state.takes_tasks(id)));
        let keeper = if self.keeps_nodes { state.keeper_of(node).map(Arc::from) } else { None };
        self.nodes[place].kept_for.clone_from(&keeper);
        let models = self.models.len();
        let nothing = || Whole { by_model: vec![0; models], ..Whole::default() };
        let kept = keeper.map(|queue| self.kept.entry(queue).or_insert_with(nothing));
        for whole in std::iter::once(&mut self.whole).chain(kept) {
            whole.cpu_milli = whole.cpu_milli.saturating_add(node.spec.cpu_milli);
            whole.memory_bytes = whole.memory_bytes.saturating_add(node.spec.memory_bytes);
        }
        place
    }

    /// Returns the place of a device's model. The model, and the kind of the device, are known from here on.
    fn model_of(&mut self, device: &Device) -> usize {
        self.shelves.kind_of(&device.spec);
        let is_it = |model: &Resource| matches!(model, Resource::Model(name) if *name == device.spec.model);
        self.models.iter().position(is_it).unwrap_or_else(|| {
            self.models.push(Resource::Model(device.spec.model.clone()));
            std::iter::once(&mut self.whole).chain(self.kept.values_mut()).for_each(|it| it.by_model.push(0));
            self.models.len() - 1
        })
    }

    /// Sorts a node's devices, and computes what follows from them.
    fn finish(&mut self, place: usize, state: &State) {
        let node = &mut self.nodes[place];
        node.devices.sort_by_key(|device| (device.index, device.id));
        share_host(node, state);
        let numa = state.nodes.get(&node.id).map_or(0, |node| node.spec.numa.len());
        node.lanes = survey(&mut node.devices, numa == 1);
        node.fixed = fixed(node);
        self.is_tainted |= !node.face.taints.is_empty();
        for (index, device) in node.devices.iter().enumerate() {
            *entry(&mut self.places, device.id.0, (NOWHERE, NOWHERE)) = (place as u32, index as u32);
        }
        self.count(place);
        self.note_size(place);
    }

    /// Notes how large a node is.
    fn note_size(&mut self, place: usize) {
        let Self { nodes, shelves, sizes, .. } = self;
        let node = &nodes[place];
        let mut devices: Vec<(usize, u32)> = Vec::new();
        if node.uniform {
            devices.extend((!node.devices.is_empty()).then_some((node.kind, node.devices.len() as u32)));
        } else {
            for device in &node.devices {
                let kind = shelves.kind_of(&device.spec);
                match devices.iter_mut().find(|(known, _)| *known == kind) {
                    Some((_, count)) => *count += 1,
                    None => devices.push((kind, 1)),
                }
            }
            devices.sort_unstable();
        }
        let size = Size { cpu_milli: node.cpu_milli.0, memory_bytes: node.memory_bytes.0, devices };
        Sizes::note(sizes, size, shelves.examples());
    }

    /// How large the largest nodes are.
    pub(crate) fn sizes(&self) -> &Arc<Sizes> {
        &self.sizes
    }

    /// Counts which of a node's devices are free and can be given out.
    fn count(&mut self, place: usize) {
        self.add_up(place, -1);
        let node = &mut self.nodes[place];
        count_devices(node);
        for device in &mut node.devices {
            device.is_counted = device.counts(node.takes_tasks);
        }
        node.kind = match node.devices.first().filter(|_| node.uniform) {
            Some(first) => self.shelves.kind_of(&first.spec),
            None => 0,
        };
        self.add_up(place, 1);
        self.file(place);
    }

    /// Adds a node's devices that can be given out to what the nodes have; with the sign −1 subtracts them.
    fn add_up(&mut self, place: usize, sign: i64) {
        let Self { nodes, whole, kept, .. } = self;
        let node = &nodes[place];
        let kept = node.kept_for.as_ref().and_then(|queue| kept.get_mut(queue));
        for whole in std::iter::once(whole).chain(kept) {
            for device in node.devices.iter().filter(|device| device.is_counted) {
                whole.usable += sign;
                whole.by_model[device.model] += sign;
            }
        }
    }

    /// Files a node with those that have as many free devices.
    fn file(&mut self, place: usize) {
        let node = &self.nodes[place];
        let is_impaired = !node.takes_tasks || node.usable as usize != node.devices.len();
        let shelf = node.takes_tasks.then_some(node.free);
        self.shelves.file(place, Filed { kind: node.kind, shelf, is_impaired });
    }

    /// What the nodes have of a resource: devices that can be given out or are held, in thousandths; hosts as they are.
    pub fn total(&self, resource: &Resource) -> i64 {
        // Not added up: a queue that has it on one node cannot lend it on another.
        self.added_up(&self.whole, resource).unwrap_or(i64::MAX)
    }

    /// Likewise what the nodes that are kept for a queue have; `None` for what is not added up.
    pub(crate) fn kept_total(&self, queue: &str, resource: &Resource) -> Option<i64> {
        match self.kept.get(queue) {
            Some(kept) => self.added_up(kept, resource),
            None => self.added_up(&self.whole, resource).map(|_| 0),
        }
    }

    fn added_up(&self, whole: &Whole, resource: &Resource) -> Option<i64> {
        let milli = |devices: i64| devices * i64::from(WHOLE_MILLI);
        match resource {
            Resource::Any => Some(milli(whole.usable)),
            Resource::Model(_) => {
                let place = self.models.iter().position(|model| model == resource);
                Some(place.map_or(0, |place| milli(whole.by_model[place])))
            }
            Resource::Cpu => Some(whole.cpu_milli),
            Resource::Memory => Some(whole.memory_bytes),
            Resource::Storage | Resource::Pods | Resource::Extended(_) => None,
        }
    }

    /// The model of all devices of a placement, as a resource, if they are there and of one.
    pub(super) fn one_model(&self, placement: &Placement) -> Option<&Resource> {
        let model = |device: DeviceId| {
            let (place, index) = self.place_of(device)?;
            Some(self.nodes[place].devices[index].model)
        };
        let (first, others) = placement.devices.split_first()?;
        let first = model(first.0)?;
        others.iter().all(|(device, _)| model(*device) == Some(first)).then(|| &self.models[first])
    }

    /// The nodes by their free devices.
    pub fn shelves(&self) -> &Shelves {
        &self.shelves
    }

    /// Takes in a node, if it is new and the last by its id; returns whether it is. Otherwise all is to be built anew.
    pub(super) fn add_node(&mut self, state: &State, id: NodeId) -> bool {
        let Some(node) = state.nodes.get(&id).filter(|node| node.state != NodeState::Gone) else {
            return false;
        };
        if self.nodes.last().is_some_and(|last| last.id >= id) {
            return false;
        }
        let place = self.join(state, id, node);
        self.finish(place, state);
        if self.is_stamped {
            self.stamps.push(self.nodes[place].stamp());
        }
        true
    }

    /// Takes in a device, if it is new and its node is there; returns whether it is, likewise.
    pub(super) fn add_device(&mut self, state: &State, id: DeviceId) -> bool {
        let device = state.devices.get(&id).filter(|_| self.place_of(id).is_none());
        let Some((device, place)) = device.and_then(|device| Some((device, self.node_place(device.node)?)))
        else {
            return false;
        };
        let model = self.model_of(device);
        let unusable = unusable(state, id, device);
        self.nodes[place].devices.push(DeviceView::idle(id, device, (model, unusable)));
        self.finish(place, state);
        self.restamp(Some(place));
        true
    }

    fn stamp_all(&mut self) {
        let stamps = self.nodes.iter().map(NodeView::stamp);
        self.stamps = if self.is_stamped { stamps.collect() } else { Vec::new() };
    }

    /// The hash of all that a choice among nodes may look at, node by node; empty where no scores are cached by it.
    pub fn stamps(&self) -> &[u64] {
        &self.stamps
    }

    /// Where a device is: its node's place and its own.
    pub fn place_of(&self, device: DeviceId) -> Option<(usize, usize)> {
        let (place, index) = *self.places.get(device.0 as usize).filter(|(place, _)| *place != NOWHERE)?;
        Some((place as usize, index as usize))
    }

    /// Where a node is.
    pub fn node_place(&self, node: NodeId) -> Option<usize> {
        self.node_places.get(node.0 as usize).filter(|place| **place != NOWHERE).map(|place| *place as usize)
    }

    /// The cores that belong to a placement's devices when none were asked for: a share, not a claim.
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

    /// Amounts may fall below zero: a promise draws on what others still hold. To find what must not be is left to the checker,
    /// which computes from the state.
    fn draw(&mut self, placement: &Placement, take: bool) {
        let sign: i64 = if take { -1 } else { 1 };
        let home = self.node_place(placement.node);
        if let Some(place) = home {
            let node = &mut self.nodes[place];
            node.cpu_milli.1 += sign * placement.cpu_milli;
            node.memory_bytes.1 += sign * placement.memory_bytes;
            node.extras.1.add(&placement.extras, sign);
            node.most_tasks.1 += sign;
            let shares = placement.devices.iter().any(|(_, draw)| draw.milli < WHOLE_MILLI);
            if let Some(kind) = task_kind(placement.devices.len(), shares) {
                node.tasks[kind] -= sign as i32;
            }
        }
        for (id, draw) in &placement.devices {
            let Some((place, index)) = self.place_of(*id) else { continue };
            let node = &mut self.nodes[place];
            let device = &mut node.devices[index];
            let was_free = device.is_free();
            device.free_milli += sign as i32 * draw.milli as i32;
            device.free_memory_mib += sign * draw.memory_mib as i64;
            let is_free = device.is_free();
            let recounts = device.is_counted != device.counts(node.takes_tasks);
            node.free = node.free + u32::from(is_free) - u32::from(was_free);
            if recounts {
                self.count(place);
            }
        }
        if let Some(place) = home {
            self.file(place);
        }
        self.restamp(home);
    }

    /// Updates a node's hash, where scores are cached by it.
    fn restamp(&mut self, place: Option<usize>) {
        if let Some(place) = place.filter(|_| self.is_stamped) {
            self.stamps[place] = self.nodes[place].stamp();
        }
    }

    /// Follows a change of what others hold of a node.
    pub(super) fn leave_to_others(&mut self, state: &State, id: NodeId) {
        let Some((place, node)) = self.node_place(id).zip(state.nodes.get(&id)) else { return };
        self.nodes[place].leave_to_others(&node.others);
        self.restamp(Some(place));
    }

    /// The parts of a node that take no tasks now, but will at a moment to come, because maintenance is over by then.
    pub(crate) fn drained_until(&self, state: &State, id: NodeId, at: Time) -> Option<Drained> {
        let place = self.node_place(id)?;
        let node = &self.nodes[place];
        let opens = |device: &DeviceView| {
            device.unusable == Some(Unusable::Draining) && !state.is_drained_at(device.id, Some(at))
        };
        let devices = (0..node.devices.len()).filter(|index| opens(&node.devices[*index])).collect();
        let drained =
            Drained { place, whole: !node.takes_tasks && state.takes_tasks_at(id, Some(at)), devices };
        (drained.whole || !drained.devices.is_empty()).then_some(drained)
    }

    /// Lets these parts take tasks, or (`back`) none again.
    pub(crate) fn open(&mut self, drained: &Drained, back: bool) {
        let node = &mut self.nodes[drained.place];
        node.takes_tasks = if drained.whole { !back } else { node.takes_tasks };
        for index in &drained.devices {
            node.devices[*index].unusable = back.then_some(Unusable::Draining);
        }
        self.count(drained.place);
        self.restamp(Some(drained.place));
    }

    /// Follows a change of a device's health or outside user.
    pub fn refresh(&mut self, state: &State, id: DeviceId) {
        let Some(((place, index), device)) = self.place_of(id).zip(state.devices.get(&id)) else { return };
        self.nodes[place].devices[index].unusable = unusable(state, id, device);
        self.count(place);
        self.restamp(Some(place));
    }
}

/// The parts of a node that take no tasks because of maintenance.
#[derive(Debug)]
pub(crate) struct Drained {
    place: usize,
    /// Whether that is the whole node.
    whole: bool,
    /// The places of devices that are drained by themselves.
    devices: Vec<usize>,
}

/// The entry of a number in a table that grows with the numbers.
fn entry<T: Clone>(table: &mut Vec<T>, number: u32, none: T) -> &mut T {
    let place = number as usize;
    if table.len() <= place {
        table.resize(place + 1, none);
    }
    &mut table[place]
}

/// Hashes each in turn, without gathering them first.
struct Each<I>(I);

impl<I: Iterator<Item: Hash> + Clone> Hash for Each<I> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.clone().for_each(|item| item.hash(hasher));
    }
}

fn count_devices(node: &mut NodeView) {
    node.free = node.devices.iter().map(|device| u32::from(device.is_free())).sum();
    node.usable = node.devices.iter().map(|device| u32::from(device.unusable.is_none())).sum();
    node.uniform = node.devices.windows(2).all(|pair| pair[0].spec.is_like(&pair[1].spec));
}

fn fixed(node: &NodeView) -> u64 {
    let of = |device: &DeviceView| {
        let spec = &device.spec;
        let islands = [IslandLevel::Nvlink, IslandLevel::Numa].map(|level| device.site.island(level));
        let memory = (spec.memory_mib, spec.nominal_gb);
        fingerprint(&(&spec.model, memory, spec.numa, device.host_share, islands, spec.bandwidth_gb_s))
    };
    fingerprint(&(node.cpu_milli.0, node.memory_bytes.0, &node.extras.0, Each(node.devices.iter().map(of))))
}

fn most_tasks(spec: &NodeSpec) -> i64 {
    spec.most_tasks.map_or(i64::MAX / 2, i64::from)
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
