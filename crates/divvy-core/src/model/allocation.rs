//! An allocation: devices and host amounts held by one task.

use serde::{Deserialize, Serialize};

use super::device::Draw;
use super::extras::Extras;
use crate::id::{AllocationId, DeviceId, NodeId};

/// Where an allocation is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllocationState {
    /// Its devices are not free yet.
    Promised,
    /// Its task is being launched.
    Starting,
    /// Its task runs.
    Held,
    /// Its task is paused.
    Paused,
    /// Its task was told to stop.
    Stopping,
}

/// What one task of a gang gets, as planned.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Placement {
    /// The allocation that holds it.
    pub allocation: AllocationId,
    /// The task's rank in the gang.
    pub rank: u32,
    /// Where.
    pub node: NodeId,
    /// Which devices, and how much of each.
    pub devices: Vec<(DeviceId, Draw)>,
    /// Milli-cores.
    pub cpu_milli: i64,
    /// Bytes of host memory.
    pub memory_bytes: i64,
    /// Other host amounts.
    #[serde(default, skip_serializing_if = "Extras::is_empty")]
    pub extras: Extras,
    /// Which of the ask's alternatives it satisfies.
    #[serde(default)]
    pub alternative: u32,
}

impl Placement {
    /// Thousandths of devices drawn in all.
    pub fn milli(&self) -> i64 {
        self.devices.iter().map(|(_, draw)| i64::from(draw.milli)).sum()
    }
}
