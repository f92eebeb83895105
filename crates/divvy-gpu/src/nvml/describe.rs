//! The fixed properties of devices, read once per discovery.

use std::{fs, path::Path};

use nvml_wrapper::{enum_wrappers::device::Clock, error::NvmlError};

use super::{Found, links, means_lost, reason, sample, session::Session};
use crate::catalogue::{self, Known};
use crate::{ComputeCapability, Device, LostDevice, MigMode, SourceError, printable};

/// `NVML_AFFINITY_SCOPE_NODE` of nvml.h.
const SCOPE_NODE: u32 = 0;

/// How many words of 64 NUMA nodes are requested: the kernel is built for at most 1024 nodes.
const NODE_WORDS: usize = 16;

/// Describes every device that answers and names those that do not.
pub(super) fn all(session: &Session) -> Result<Found, SourceError> {
    let nvml = session.nvml();
    let count = nvml.device_count().map_err(|error| session.broken("counting devices", &error))?;
    let mut found = Found { devices: Vec::new(), lost: Vec::new() };
    let mut ends = Vec::new();
    for index in 0..count {
        match nvml.device_by_index(index).and_then(|device| Ok((one(&device, index)?, links::ends(&device))))
        {
            Ok((device, device_ends)) => {
                found.devices.push(device);
                ends.push(device_ends);
            }
            // Counted, but not accessible to this user or container.
            Err(NvmlError::NoPermission) => {}
            Err(error) => found.lost.push(LostDevice { index, uuid: None, reason: reason(&error) }),
        }
    }
    links::join(&mut found.devices, &ends);
    Ok(found)
}

fn one(device: &nvml_wrapper::Device<'_>, index: u32) -> Result<Device, NvmlError> {
    let product = printable(&device.name()?);
    let memory_mib = match sample::memory(device) {
        Ok(memory) => memory.total_mib,
        // Devices that share the host's memory have none of their own.
        Err(error) if !means_lost(&error) => 0,
        Err(error) => return Err(error),
    };
    let known = catalogue::lookup(&product, Some(memory_mib));
    let capability = device.cuda_compute_capability().ok();
    let pci_bus_id = device.pci_info().ok().map(|pci| printable(&pci.bus_id));
    Ok(Device {
        index,
        uuid: printable(&device.uuid()?),
        model: known.map_or_else(|| catalogue::key(&product), |known| known.model.key.to_owned()),
        product,
        memory_mib,
        nominal_memory_gb: known.map(|known| known.variant.memory_gb),
        memory_bandwidth_gb_s: bandwidth_gb_s(device, known),
        numa_node: numa_node(device).or_else(|| pci_bus_id.as_deref().and_then(sysfs_numa_node)),
        pci_bus_id,
        minor_number: device.minor_number().ok(),
        nvlink: Vec::new(),
        compute_capability: capability
            .map(|c| ComputeCapability { major: c.major.unsigned_abs(), minor: c.minor.unsigned_abs() }),
        mig_mode: mig_mode(device),
    })
}

/// Returns the sold bandwidth, unless the driver reports different memory.
fn bandwidth_gb_s(device: &nvml_wrapper::Device<'_>, known: Option<Known>) -> Option<u32> {
    let sold = known.map(|known| known.bandwidth_gb_s());
    let told = told_bandwidth_gb_s(device).filter(|told| *told > 0);
    // Datasheets round, and boards of one name run a little faster or slower.
    let is_that = |sold: &u32| told.is_none_or(|told| told.abs_diff(*sold) <= sold / 20);
    sold.filter(is_that).or(told)
}

/// The bandwidth from the driver's figures: two bits per line of the bus and cycle of the memory clock.
fn told_bandwidth_gb_s(device: &nvml_wrapper::Device<'_>) -> Option<u32> {
    let lines = u64::from(device.memory_bus_width().ok()?);
    let mhz = u64::from(device.max_clock_info(Clock::Memory).ok()?);
    u32::try_from(lines.checked_mul(2 * mhz)? / 8 / 1000).ok()
}

/// Returns the node whose memory is near. (`nvmlDeviceGetNumaNodeId` is something else: the node that a coherent
/// device's own memory forms.)
fn numa_node(device: &nvml_wrapper::Device<'_>) -> Option<u32> {
    let words = device.memory_affinity(NODE_WORDS, SCOPE_NODE).ok()?;
    let (i, word) = words.iter().enumerate().find(|(_, word)| **word != 0)?;
    Some(i as u32 * std::ffi::c_ulong::BITS + word.trailing_zeros())
}

/// Asks the kernel, for drivers that do not tell. `-1` there means that the firmware does not say.
fn sysfs_numa_node(pci_bus_id: &str) -> Option<u32> {
    // The kernel writes domains with four digits, NVML with eight.
    let address = pci_bus_id.to_ascii_lowercase();
    let address = address.strip_prefix("0000").filter(|rest| rest.len() == 12).unwrap_or(&address);
    let path = Path::new("/sys/bus/pci/devices").join(address).join("numa_node");
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn mig_mode(device: &nvml_wrapper::Device<'_>) -> MigMode {
    match device.mig_mode() {
        Ok(mode) if mode.current != 0 => MigMode::Enabled,
        Ok(_) => MigMode::Disabled,
        Err(_) => MigMode::Unsupported,
    }
}
