//! Filters: which devices a task can have. They tally what they refuse: the funnel.

use std::collections::BTreeSet;

use super::islands;
use crate::id::DeviceId;
use crate::model::ask::{DeviceAsk, DrawAsk};
use crate::model::device::{Draw, WHOLE_MILLI};
use crate::snapshot::{DeviceView, NodeView, Unusable};

/// The steps of the funnel, in order; a device is counted in each step that it passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// It is there.
    InPool,
    /// Its model is among those asked for.
    RightModel,
    /// Its memory is within the bounds.
    EnoughMemory,
    /// It works, and nobody outside the pool uses it.
    Healthy,
    /// Nobody has it, and its node takes tasks.
    Free,
    /// It is on a node with as many free ones as a task needs.
    OnOneNode,
    /// It is in an island of its node with as many free ones as a task needs; counted only where a task needs one.
    InOneIsland,
    /// It is on a node that the job's queue may use; counted second, and only where nodes are kept for queues.
    OfItsQueue,
    /// The calendar does not keep it from the job; counted before those that are free, and only where it keeps any.
    NotReserved,
}

impl Step {
    /// All that are counted for every task, in order.
    pub const ALL: [Step; 6] =
        [Step::InPool, Step::RightModel, Step::EnoughMemory, Step::Healthy, Step::Free, Step::OnOneNode];

    /// The step's name, as everywhere.
    pub fn name(self) -> &'static str {
        match self {
            Step::InPool => "in pool",
            Step::RightModel => "right model",
            Step::EnoughMemory => "enough memory",
            Step::Healthy => "healthy",
            Step::Free => "free",
            Step::OnOneNode => "on one node",
            Step::InOneIsland => "in one island",
            Step::OfItsQueue => "for its queue",
            Step::NotReserved => "not reserved",
        }
    }
}

/// How many devices, on how many nodes, pass each step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Funnel(pub Vec<(Step, u32, u32)>);

/// Why devices of one class are not to be had, counted over the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) right_model: u32,
    pub(super) enough_memory: u32,
    pub(super) down: u32,
    pub(super) foreign: u32,
    pub(super) draining: u32,
    /// The most devices that would do on one node, however busy or broken.
    pub(super) most_on_a_node: u32,
    /// The most that would do on one node that takes tasks if all were idle.
    pub(super) most_usable: u32,
    /// The most that are free on one node.
    pub(super) most_free: u32,
}

/// How far a device gets.
fn reaches(device: &DeviceView, node: &NodeView, ask: &DeviceAsk) -> Step {
    if !ask.class.takes_model(&device.spec) {
        Step::InPool
    } else if !ask.class.takes_memory(&device.spec) {
        Step::RightModel
    } else if device.unusable.is_some() {
        Step::EnoughMemory
    } else if !has_left(device, ask) || !node.takes_tasks {
        Step::Healthy
    } else {
        Step::Free
    }
}

/// Whether a task can have what it asks of the device now.
pub(super) fn fits(device: &DeviceView, ask: &DeviceAsk) -> bool {
    has_left(device, ask) && ask.class.takes(&device.spec)
}

/// Whether enough is left of a device, whatever its class.
fn has_left(device: &DeviceView, ask: &DeviceAsk) -> bool {
    match ask.draw {
        DrawAsk::Whole => device.is_free(),
        DrawAsk::Share { milli, memory_mib } => {
            let asked_mib = || share_memory_mib(device.spec.memory_mib, milli, memory_mib);
            i64::from(milli) <= i64::from(device.free_milli)
                && device.unusable.is_none()
                && i64::try_from(asked_mib()).is_ok_and(|asked| asked <= device.free_memory_mib)
        }
        DrawAsk::Partition(_) => false,
    }
}

/// The memory of a share: as it says, or the same part of the device's memory as of its time (rounded down, so that shares which
/// fit by time fit by memory).
pub(super) fn share_memory_mib(whole_mib: u64, milli: u32, asked_mib: Option<u64>) -> u64 {
    asked_mib.unwrap_or_else(|| whole_mib * u64::from(milli) / u64::from(WHOLE_MILLI))
}

/// What a task draws of a device that it gets.
pub(super) fn draw(device: &DeviceView, ask: &DeviceAsk) -> Draw {
    let whole_mib = device.spec.memory_mib;
    let (milli, memory_mib) = match ask.draw {
        DrawAsk::Share { milli, memory_mib } => (milli, share_memory_mib(whole_mib, milli, memory_mib)),
        _ => (WHOLE_MILLI, whole_mib),
    };
    Draw { milli, memory_mib, partition: None }
}

/// The funnel of a task that asks for devices of these nodes; some of these are kept from it.
pub(super) fn funnel<'a>(
    nodes: impl IntoIterator<Item = &'a NodeView>,
    ask: &DeviceAsk,
    kept: &BTreeSet<DeviceId>,
) -> Funnel {
    let open = |device: &DeviceView, node: &NodeView| match reaches(device, node, ask) {
        Step::Free if kept.contains(&device.id) => Step::Healthy,
        last => last,
    };
    let mut totals = Step::ALL.map(|step| (step, 0u32, 0u32));
    let mut in_islands = (Step::InOneIsland, 0, 0);
    let mut not_reserved = (Step::NotReserved, 0, 0);
    for node in nodes {
        let mut here = [0u32; 6];
        for device in &node.devices {
            let last = open(device, node);
            here.iter_mut().take(last as usize + 1).for_each(|passed| *passed += 1);
        }
        let free = here[Step::Free as usize];
        here[Step::OnOneNode as usize] = if free >= ask.count { free } else { 0 };
        for (total, passed) in totals.iter_mut().zip(here) {
            total.1 += passed;
            total.2 += u32::from(passed > 0);
        }
        let is_left =
            |device: &&DeviceView| reaches(device, node, ask) >= Step::Healthy && !kept.contains(&device.id);
        let left = node.devices.iter().filter(is_left).count() as u32;
        not_reserved = (Step::NotReserved, not_reserved.1 + left, not_reserved.2 + u32::from(left > 0));
        let here = islands::in_enough(node, ask, |device| open(device, node) >= Step::Free);
        in_islands = (Step::InOneIsland, in_islands.1 + here, in_islands.2 + u32::from(here > 0));
    }
    let mut steps = totals.to_vec();
    if !kept.is_empty() {
        steps.insert(Step::Free as usize, not_reserved);
    }
    steps.extend(ask.required_island().map(|_| in_islands));
    Funnel(steps)
}

/// Which kinds of devices suit a task; each kind is looked at once, since most nodes are of a kind with others.
pub(super) struct Suits<'a> {
    ask: &'a DeviceAsk,
    /// Whether the model is right, and the memory, by the place of the kind.
    known: Vec<Option<(bool, bool)>>,
}

impl<'a> Suits<'a> {
    pub(super) fn new(ask: &'a DeviceAsk) -> Self {
        Self { ask, known: Vec::new() }
    }

    /// Whether the devices of a node, all of them like its first, are of the right model, and whether they have the right memory.
    pub(super) fn of(&mut self, node: &NodeView, first: &DeviceView) -> (bool, bool) {
        let class = &self.ask.class;
        let look = || (class.takes_model(&first.spec), class.takes_memory(&first.spec));
        if node.kind == 0 {
            return look();
        }
        if self.known.len() <= node.kind {
            self.known.resize(node.kind + 1, None);
        }
        *self.known[node.kind].get_or_insert_with(look)
    }
}

/// Counts what on these nodes keeps an ask from being met.
pub(super) fn tally<'a>(nodes: impl IntoIterator<Item = &'a NodeView>, ask: &DeviceAsk) -> Tally {
    let (mut tally, mut suits) = (Tally::default(), Suits::new(ask));
    for node in nodes {
        let (would_do, usable, free) = tally.node(node, &mut suits);
        tally.enough_memory += would_do;
        tally.most_on_a_node = tally.most_on_a_node.max(would_do);
        tally.most_usable = tally.most_usable.max(usable);
        tally.most_free = tally.most_free.max(free);
    }
    tally
}

impl Tally {
    /// The devices of a node that would do, those of them that can be given out, and those with enough left; neither of the
    /// latter two where the node takes no tasks. Where all devices are alike, as on most nodes, the first speaks for all.
    fn node(&mut self, node: &NodeView, suits: &mut Suits) -> (u32, u32, u32) {
        let Some(first) = node.devices.first() else { return (0, 0, 0) };
        let (all, ask) = (node.devices.len() as u32, suits.ask);
        let (right_model, enough_memory) = if node.uniform { suits.of(node, first) } else { (true, true) };
        if !right_model {
            return (0, 0, 0);
        }
        if node.uniform && node.usable == all {
            self.right_model += all;
            if !enough_memory {
                return (0, 0, 0);
            }
            let with_room = || node.devices.iter().filter(|device| has_left(device, ask)).count() as u32;
            let free = if ask.draw == DrawAsk::Whole { node.free } else { with_room() };
            return if node.takes_tasks { (all, all, free) } else { (all, 0, 0) };
        }
        let (mut would_do, mut usable, mut free) = (0, 0, 0);
        for device in node.devices.iter().filter(|device| ask.class.takes_model(&device.spec)) {
            self.right_model += 1;
            if !ask.class.takes_memory(&device.spec) {
                continue;
            }
            would_do += 1;
            match device.unusable {
                Some(Unusable::Down) => self.down += 1,
                Some(Unusable::Foreign) => self.foreign += 1,
                Some(Unusable::Draining) => self.draining += 1,
                None => usable += 1,
            }
            free += u32::from(node.takes_tasks && has_left(device, ask));
        }
        (would_do, if node.takes_tasks { usable } else { 0 }, free)
    }
}
