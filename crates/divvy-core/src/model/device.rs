//! A device: a set of named integer counters, from which tasks draw.

use serde::{Deserialize, Serialize};

use super::newer::Newer;

/// Milli of one whole device.
pub const WHOLE_MILLI: u32 = 1000;

/// What a device is, as discovery saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeviceSpec {
    /// The driver's name for it (`GPU-…`): a field, never a key.
    pub uuid: String,
    /// The driver's index on its node.
    pub index: u32,
    /// The catalogue's key of the model: `h100`.
    pub model: String,
    /// The name as reported: `NVIDIA H100 80GB HBM3`.
    pub product: String,
    /// Memory as reported, in MiB.
    pub memory_mib: u64,
    /// The size the model is sold with, in GB; absent where the model is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nominal_gb: Option<u32>,
    /// The NUMA node that it hangs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa: Option<u32>,
    /// The number of its device file (`/dev/nvidia3`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor: Option<u32>,
    /// The uuids of devices it shares a fast link with, and the lanes of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// Slices of a partitionable device, by profile; empty for all others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<(String, u32)>,
    /// How fast its memory is, in GB/s; unsaid where nobody knows.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub bandwidth_gb_s: Newer<u32>,
}

impl DeviceSpec {
    /// The size that bounds such as `80GB` compare with: nominal where known, else as reported, rounded up to whole GiB
    /// (drivers report a little less than what is sold: 81,559 MiB for 80).
    pub fn size_gb(&self) -> u32 {
        self.nominal_gb.unwrap_or_else(|| u32::try_from(self.memory_mib.div_ceil(1024)).unwrap_or(u32::MAX))
    }

    /// Whether no ask can tell it and another device apart by what they are. Where they are and what they are linked to is another matter.
    pub fn is_like(&self, other: &Self) -> bool {
        let memory = |spec: &Self| (spec.memory_mib, spec.nominal_gb, spec.bandwidth_gb_s);
        memory(self) == memory(other) && self.model == other.model
    }
}

/// A fast link between two devices of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Link {
    /// The other end.
    pub uuid: String,
    /// How many lanes join them.
    pub lanes: u32,
}

/// Whether a device can be given out at all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It works as far as the driver knows.
    #[default]
    Ok,
    /// It does not, or it is gone; the text says what was seen.
    Down(String),
}

/// Someone outside the pool who uses a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Occupant {
    /// A process that no job of this pool started.
    Process {
        /// Its process id.
        pid: u32,
        /// Its user's name.
        user: String,
        /// Its command name.
        command: String,
        /// Device memory it uses, in MiB.
        memory_mib: u64,
    },
    /// Another Divvy pool on the same machine.
    Pool {
        /// The user whose pool it is.
        user: String,
        /// Where its state is.
        state: String,
    },
    /// Device memory is in use, and no visible process uses it.
    Unknown {
        /// Device memory in use, in MiB.
        memory_mib: u64,
        /// What the administrator can do.
        remedy: String,
    },
    /// A task that another scheduler has put on the node.
    Others,
}

/// What a task takes of one device: exact counters. A whole device is all of its milli and memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Draw {
    /// Thousandths of the device's time.
    pub milli: u32,
    /// MiB of its memory.
    pub memory_mib: u64,
    /// The partition's profile, where a partition is drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
}
