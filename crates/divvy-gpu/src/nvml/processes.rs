//! The processes on a device, as the driver lists them.

use nvml_wrapper::Device;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;

use crate::{DeviceProcess, ProcessKind};

const MIB: u64 = 1 << 20;

/// Lists the processes with any context on the device, by pid, as far as the driver lists them.
pub(super) fn on(device: &Device<'_>) -> Vec<DeviceProcess> {
    let compute = listed(|| device.running_compute_processes(), || device.running_compute_processes_v2());
    let graphics = listed(|| device.running_graphics_processes(), || device.running_graphics_processes_v2());
    let compute = compute.into_iter().map(|process| of_kind(ProcessKind::Compute, &process));
    let graphics = graphics.into_iter().map(|process| of_kind(ProcessKind::Graphics, &process));
    merge(compute.chain(graphics).collect())
}

/// Uses the current call; drivers before 510 have only the older one. Tries once more if processes were added
/// between counting and listing them.
fn listed(
    current: impl Fn() -> Result<Vec<ProcessInfo>, NvmlError>,
    older: impl Fn() -> Result<Vec<ProcessInfo>, NvmlError>,
) -> Vec<ProcessInfo> {
    let processes = match current() {
        Err(NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound) => older(),
        Err(NvmlError::InsufficientSize(_)) => current(),
        answer => answer,
    };
    processes.unwrap_or_default()
}

fn of_kind(kind: ProcessKind, process: &ProcessInfo) -> DeviceProcess {
    let used_memory_mib = match process.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some(bytes / MIB),
        UsedGpuMemory::Unavailable => None,
    };
    DeviceProcess { pid: process.pid, kind, used_memory_mib }
}

/// Makes one entry per process. A process with contexts of both kinds is in both lists with the same memory. One
/// with several instances of a device is in one list several times, each time with a part of its memory.
fn merge(listed: Vec<DeviceProcess>) -> Vec<DeviceProcess> {
    let mut merged: Vec<DeviceProcess> = Vec::with_capacity(listed.len());
    for process in listed {
        match merged.iter_mut().find(|known| known.pid == process.pid) {
            Some(known) if known.kind == process.kind => {
                known.used_memory_mib = match (known.used_memory_mib, process.used_memory_mib) {
                    (Some(one), Some(other)) => Some(one.saturating_add(other)),
                    (one, other) => one.or(other),
                };
            }
            Some(_) => {}
            None => merged.push(process),
        }
    }
    merged.sort_unstable_by_key(|process| process.pid);
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, kind: ProcessKind, mib: u64) -> DeviceProcess {
        DeviceProcess { pid, kind, used_memory_mib: Some(mib) }
    }

    #[test]
    fn a_process_in_both_lists_is_one_compute_process() {
        let merged =
            merge(vec![process(7, ProcessKind::Compute, 100), process(7, ProcessKind::Graphics, 100)]);
        assert_eq!(merged, [process(7, ProcessKind::Compute, 100)]);
    }

    #[test]
    fn parts_on_several_instances_add_up() {
        let merged = merge(vec![process(7, ProcessKind::Compute, 100), process(7, ProcessKind::Compute, 50)]);
        assert_eq!(merged, [process(7, ProcessKind::Compute, 150)]);
    }
}
