//! The types that describe a machine and its devices.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where the devices of a [`Machine`] come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// Real devices (or those of a library that stands in for them), through NVML.
    Nvml,
    /// Devices that exist on paper only; every display of them says so.
    Pretend,
    /// No devices at all.
    None,
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nvml => "nvml",
            Self::Pretend => "pretend",
            Self::None => "none",
        })
    }
}

/// The host and its devices at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The host's name as the kernel has it, made printable.
    pub hostname: String,
    /// The kernel's boot id; if it has changed, nothing from before is still running.
    pub boot_id: String,
    /// Whole CPUs this process may use: affinity, and cgroup quota where that is lower; at least 1.
    pub cpus: u32,
    /// Bytes of memory this process may use: the host's, or the cgroup's limit where that is lower.
    pub memory_bytes: u64,
    /// The NUMA nodes with usable CPUs, by id; one node on machines without NUMA.
    pub numa: Vec<NumaNode>,
    /// The NVIDIA driver's version, as "580.95.05".
    pub driver_version: Option<String>,
    /// The newest CUDA version that the driver serves, as "13.0".
    pub cuda_version: Option<String>,
    /// The devices that answer, by index.
    pub devices: Vec<Device>,
    /// Devices that are enumerated, or once were, but do not answer.
    pub lost: Vec<LostDevice>,
    /// Where `devices` comes from.
    pub source: SourceKind,
}

/// One NUMA node, as far as this process may use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumaNode {
    /// The kernel's number of the node.
    pub id: u32,
    /// The node's share of [`Machine::cpus`]; the shares add up to it.
    pub cpus: u32,
    /// The CPUs of the node that this process may run on, in ascending order.
    pub cpu_ids: Vec<u32>,
    /// The node's share of [`Machine::memory_bytes`]; the shares add up to no more than that.
    pub memory_bytes: u64,
}

/// The properties of a device that do not change while it stays on the bus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The place in NVML's enumeration (PCI order); may change when devices come and go.
    pub index: u32,
    /// `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`: the device's identity.
    pub uuid: String,
    /// The product's name as NVML tells it, made printable.
    pub product: String,
    /// The catalogue's key (`h100`), or one derived from the product's name.
    pub model: String,
    /// Memory as the device reports it, in MiB (81,559 for an "80GB" H100).
    pub memory_mib: u64,
    /// The size on the box in GB; `None` for a product that the catalogue does not know.
    pub nominal_memory_gb: Option<u32>,
    /// Memory bandwidth in GB/s: the catalogue's, or the driver's where that differs; `None` where neither knows.
    pub memory_bandwidth_gb_s: Option<u32>,
    /// The PCI address as `00000000:17:00.0`.
    pub pci_bus_id: Option<String>,
    /// The NUMA node that the device hangs on.
    pub numa_node: Option<u32>,
    /// N of `/dev/nvidiaN`.
    pub minor_number: Option<u32>,
    /// The devices that this one reaches by NVLink, by index.
    pub nvlink: Vec<NvlinkPeer>,
    /// The CUDA compute capability.
    pub compute_capability: Option<ComputeCapability>,
    /// Whether the device is cut into instances.
    pub mig_mode: MigMode,
}

/// A device at the other end of NVLinks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NvlinkPeer {
    /// The peer's UUID.
    pub uuid: String,
    /// The peer's PCI address.
    pub pci_bus_id: String,
    /// How many NVLinks lead there (18 is what `nvidia-smi topo` calls NV18).
    pub lanes: u32,
    /// True when the links go through NVSwitches, so that all peers share them.
    pub switched: bool,
}

/// A CUDA compute capability, as 9.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ComputeCapability {
    /// The part before the point.
    pub major: u32,
    /// The part after the point.
    pub minor: u32,
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Whether a device is split into MIG instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MigMode {
    /// The device can't be split.
    Unsupported,
    /// The device could be split but is whole.
    Disabled,
    /// The device is in MIG mode: CUDA can't use it as a whole.
    Enabled,
}

/// A device that does not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostDevice {
    /// The index at which it is, or was last, enumerated.
    pub index: u32,
    /// Its UUID, if this process ever learned it.
    pub uuid: Option<String>,
    /// Why it counts as lost.
    pub reason: String,
}

/// A device at the moment of sampling. Values that the device does not support are `None`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSample {
    /// The device's UUID.
    pub uuid: String,
    /// Memory in use, in MiB, without the driver's reserve where the driver reports it separately.
    pub memory_used_mib: Option<u64>,
    /// Memory as the device reports it, in MiB.
    pub memory_total_mib: Option<u64>,
    /// Share of the last sample period in which a kernel ran, 0 to 100.
    pub utilization_percent: Option<u32>,
    /// The chip's temperature in °C.
    pub temperature_c: Option<u32>,
    /// Power drawn, in W.
    pub power_w: Option<u32>,
    /// The processes on the device that the driver shows; empty also where it shows none.
    pub processes: Vec<DeviceProcess>,
    /// Xid codes that the driver raised for the device since the last sample, including application faults.
    pub xids: Vec<u64>,
    /// Whether work should be put on the device.
    pub health: Health,
}

/// One process on a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceProcess {
    /// The process id, as this process's PID namespace sees it where the driver translates.
    pub pid: u32,
    /// The kind of context it has open. A process with both kinds is listed as compute.
    pub kind: ProcessKind,
    /// Device memory it holds, in MiB; `None` where the driver does not account it.
    pub used_memory_mib: Option<u64>,
}

/// The kind of context that a process has on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessKind {
    /// CUDA or OpenCL.
    Compute,
    /// OpenGL, Vulkan, X.
    Graphics,
}

/// Whether work should be put on a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "state")]
pub enum Health {
    /// Nothing speaks against it.
    Ok,
    /// The device does not answer: fallen off the bus, removed, or in need of a reset.
    Lost {
        /// What NVML said.
        reason: String,
    },
    /// The driver raised an Xid after which the device needs a reset; kept until the device has been away, or
    /// until [`Source::forgive`](crate::Source::forgive).
    Xid {
        /// The code, as in NVIDIA's list of Xid errors.
        xid: u64,
        /// What the code means and what to do.
        reason: String,
    },
    /// Memory errors that need a reset: a row remapping or page retirement is pending, or has failed.
    Ecc {
        /// What is pending and what to do.
        reason: String,
    },
}

impl Health {
    /// Returns whether work may be put on the device.
    pub fn is_ok(&self) -> bool {
        matches!(self, Self::Ok)
    }
}

impl DeviceSample {
    /// Makes the sample of a device of which only the health is known.
    pub fn unknown(uuid: &str, health: Health) -> Self {
        Self {
            uuid: uuid.to_owned(),
            memory_used_mib: None,
            memory_total_mib: None,
            utilization_percent: None,
            temperature_c: None,
            power_w: None,
            processes: Vec::new(),
            xids: Vec::new(),
            health,
        }
    }
}
