//! Devices.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::open::open_enum;

open_enum! {
    /// What a device is doing.
    GpuState {
        /// Nobody has it.
        Free = "free",
        /// A part of it is held.
        Shared = "shared",
        /// A job has it.
        Allocated = "allocated",
        /// A job will have it when what it waits for has ended.
        Promised = "promised",
        /// A process outside the pool uses it.
        Foreign = "foreign",
        /// It takes no new jobs.
        Draining = "draining",
        /// It is kept for one queue.
        Reserved = "reserved",
        /// It cannot be used.
        Down = "down",
    }
}

/// A device of the pool.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Gpu {
    /// The machine's name.
    pub node: String,
    /// Its number on the machine.
    pub index: u32,
    /// The driver's name for it.
    pub uuid: String,
    /// The canonical model: `h100`.
    pub model: String,
    /// Memory as the driver reports it.
    pub memory_mib: u64,
    /// Memory in use; null where it cannot be known.
    #[serde(default)]
    pub memory_used_mib: Option<u64>,
    /// How much of the time its cores were at work.
    #[serde(default)]
    pub utilization_percent: Option<u32>,
    /// Temperature.
    #[serde(default)]
    pub temperature_c: Option<i32>,
    /// Power drawn, in watts.
    #[serde(default)]
    pub power_w: Option<u32>,
    /// What it is doing.
    pub state: GpuState,
    /// Thousandths of it that nobody holds.
    pub free_milli: u32,
    /// Who holds it.
    pub allocations: Vec<GpuAllocation>,
    /// `nvml` or `pretend`.
    pub source: String,
    /// The full product name.
    #[serde(default)]
    pub product: String,
    /// Why it is foreign, down, drained or reserved, and what helps, in a sentence; or when it will be.
    #[serde(default)]
    pub reason: Option<String>,
    /// Who uses it from outside the pool.
    #[serde(default)]
    pub foreign: Option<Foreign>,
    /// PCI bus id.
    #[serde(default)]
    pub pci_bus_id: Option<String>,
    /// How fast its memory is, in GB/s.
    #[serde(default)]
    pub memory_bandwidth_gb_s: Option<u32>,
    /// The NUMA node that it hangs on.
    #[serde(default)]
    pub numa_node: Option<u32>,
    /// CUDA compute capability: `9.0`.
    #[serde(default)]
    pub compute_capability: Option<String>,
    /// `enabled` or `disabled`, where the device knows partitions.
    #[serde(default)]
    pub mig_mode: Option<String>,
    /// Devices reached over NVLink.
    #[serde(default)]
    pub nvlinks: Vec<GpuLink>,
    /// Version of the driver.
    #[serde(default)]
    pub driver_version: Option<String>,
    /// Version of CUDA that the driver brings.
    #[serde(default)]
    pub cuda_version: Option<String>,
}

/// A part of a device that a task holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GpuAllocation {
    /// The job.
    pub job: String,
    /// The task's rank.
    pub task: u32,
    /// Thousandths of the device.
    pub milli: u32,
    /// MiB of its memory.
    pub memory_mib: u64,
    /// The job's user.
    #[serde(default)]
    pub user: String,
    /// The job's name.
    #[serde(default)]
    pub name: String,
    /// When the task started.
    #[serde(default)]
    pub started_ms: Option<i64>,
}

/// A process, or pool, outside this pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Foreign {
    /// Its process, if it can be seen.
    pub pid: Option<u32>,
    /// Its user, if it can be seen; the pool's owner for another pool.
    pub user: Option<String>,
    /// Its command's name.
    pub command: Option<String>,
    /// What it uses.
    pub memory_mib: Option<u64>,
    /// The state directory of the other pool that holds the device.
    pub pool: Option<String>,
}

/// A link between two devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct GpuLink {
    /// The device at the other end.
    pub uuid: String,
    /// Links in parallel.
    pub lanes: u32,
    /// The number of that device on its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
}
