//! Facts: a node in numbers, packed for scores that look at many.

use crate::model::ask::{DeviceAsk, DrawAsk};
use crate::model::device::{DeviceSpec, WHOLE_MILLI};
use crate::model::mix::DeviceKind;
use crate::plan::filter;
use crate::snapshot::{DeviceView, NodeView, TaskCounts};

/// The kinds seen so far, in the order in which they were first seen.
#[derive(Debug, Default)]
pub(super) struct Kinds(Vec<DeviceKind>);

impl Kinds {
    /// The number of a device's kind; a new one if needed.
    pub(super) fn of(&mut self, device: &DeviceView) -> u16 {
        let known = self.0.iter().position(|kind| kind.is_of(&device.spec)).unwrap_or_else(|| {
            self.0.push(DeviceKind::of(&device.spec));
            self.0.len() - 1
        });
        u16::try_from(known).unwrap_or(u16::MAX)
    }

    /// An example device of a kind, if there are so many kinds.
    pub(super) fn spec(&self, kind: u16) -> Option<DeviceSpec> {
        self.0.get(usize::from(kind)).map(DeviceKind::example)
    }

    /// The model of a kind.
    pub(super) fn model(&self, kind: u16) -> &str {
        self.0.get(usize::from(kind)).map_or("", |kind| &kind.model)
    }
}

/// A node in numbers.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The hash of what the facts were read from; 0 before.
    pub(super) stamp: u64,
    pub(super) takes_tasks: bool,
    pub(super) is_idle: bool,
    pub(super) cpu_milli: (i64, i64),
    pub(super) memory_bytes: (i64, i64),
    pub(super) slots: Vec<Slot>,
    /// Thousandths left on each device, none on those that cannot be given out.
    pub(super) left_milli: Vec<i32>,
    /// Their sum.
    pub(super) total_milli: i32,
    pub(super) tasks: TaskCounts,
    /// The fragmentation of the node as it is, once computed.
    pub(super) fragmentation: Option<f64>,
    /// What of it is expected to be unused in the end, likewise.
    pub(super) waste: Option<i64>,
}

/// A device in numbers.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) kind: u16,
    pub(super) usable: bool,
    pub(super) free_memory_mib: i64,
    pub(super) memory_mib: u64,
}

impl Facts {
    /// Reads a node again.
    pub(super) fn read(&mut self, view: &NodeView, stamp: u64, kinds: &mut Kinds) {
        self.stamp = stamp;
        self.takes_tasks = view.takes_tasks;
        self.is_idle = view.is_idle();
        (self.cpu_milli, self.memory_bytes) = (view.cpu_milli, view.memory_bytes);
        self.tasks = view.tasks;
        self.slots.clear();
        self.slots.extend(view.devices.iter().map(|device| Slot {
            kind: kinds.of(device),
            usable: device.unusable.is_none(),
            free_memory_mib: device.free_memory_mib,
            memory_mib: device.spec.memory_mib,
        }));
        let left = |device: &DeviceView| if device.unusable.is_none() { device.free_milli.max(0) } else { 0 };
        self.left_milli.clear();
        self.left_milli.extend(view.devices.iter().map(left));
        self.total_milli = self.left_milli.iter().sum();
        (self.fragmentation, self.waste) = (None, None);
    }

    /// The kind of its devices: that of the first.
    pub(super) fn kind(&self) -> Option<u16> {
        self.slots.first().map(|slot| slot.kind)
    }
}

/// What one task asks for, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    /// Milli-cores; `None` where it does not say.
    pub(super) cpu_milli: Option<i64>,
    /// Bytes; `None` where it does not say.
    pub(super) memory_bytes: Option<i64>,
    /// Devices.
    pub(super) count: usize,
    /// Thousandths of each.
    pub(super) milli: i32,
    /// MiB of each, where a share says so.
    pub(super) memory_mib: Option<u64>,
    pub(super) exclusive: bool,
    /// A partition: no device has any to give.
    pub(super) impossible: bool,
}

impl Shape {
    /// The shape of an ask for devices.
    pub(super) fn of(ask: Option<&DeviceAsk>) -> Self {
        let Some(ask) = ask else { return Self::default() };
        let (milli, memory_mib) = match ask.draw {
            DrawAsk::Share { milli, memory_mib } => (milli as i32, memory_mib),
            _ => (WHOLE_MILLI as i32, None),
        };
        let impossible = matches!(ask.draw, DrawAsk::Partition(_));
        Self { count: ask.count as usize, milli, memory_mib, impossible, ..Self::default() }
    }

    /// Whether it is a part of a device.
    pub(super) fn is_share(&self) -> bool {
        self.count > 0 && self.milli < WHOLE_MILLI as i32
    }

    /// Whether a device has enough left; the caller checks which kinds it may be.
    pub(super) fn fits(&self, slot: &Slot, left_milli: i32) -> bool {
        let need_mib = || filter::share_memory_mib(slot.memory_mib, self.milli as u32, self.memory_mib);
        let memory =
            || !self.is_share() || i64::try_from(need_mib()).is_ok_and(|need| need <= slot.free_memory_mib);
        !self.impossible && slot.usable && left_milli >= self.milli && memory()
    }
}
