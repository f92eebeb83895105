//! The processes on a device.

use std::ffi::c_uint;

use crate::abi::{Code, Handle, NO_INSTANCE, NOT_AVAILABLE, ProcessV1, ProcessV2};
use crate::machine::{Ability, Kind, Process};
use crate::world::call;

fn bytes(process: &Process) -> u64 {
    process.used_mib.map_or(NOT_AVAILABLE, |mib| mib << 20)
}

fn first(process: &Process) -> ProcessV1 {
    ProcessV1 { pid: process.pid, used_gpu_memory: bytes(process) }
}

fn second(process: &Process) -> ProcessV2 {
    ProcessV2 {
        pid: process.pid,
        used_gpu_memory: bytes(process),
        gpu_instance_id: NO_INSTANCE,
        compute_instance_id: NO_INSTANCE,
    }
}

/// A request for a list: the device, the kind of processes (`None`: a kind that no process has), and the layout.
struct Asked<T> {
    device: Handle,
    kind: Option<Kind>,
    layout: fn(&Process) -> T,
}

/// Lists processes as NVML does: `count` has the room on entry and the number of processes on return. Too little
/// room, which is how callers ask for the number, is an error.
///
/// # Safety
/// `count` is null or points to a number, and `out` is null or has room for that many.
unsafe fn list<T>(asked: &Asked<T>, count: *mut c_uint, out: *mut T) -> c_uint {
    call(|world| {
        let (_, device) = world.device(asked.device)?;
        if device.unsupported.contains(&Ability::Processes) {
            return Err(Code::NotSupported);
        }
        if count.is_null() {
            return Err(Code::InvalidArgument);
        }
        let listed: Vec<&Process> =
            device.processes.iter().filter(|process| Some(process.kind) == asked.kind).collect();
        // SAFETY: as the caller promises.
        let room = unsafe { count.replace(listed.len() as c_uint) };
        if (room as usize) < listed.len() {
            return Err(Code::InsufficientSize);
        }
        if out.is_null() && !listed.is_empty() {
            return Err(Code::InvalidArgument);
        }
        for (i, process) in listed.into_iter().enumerate() {
            // SAFETY: as the caller promises, and there are no more than there is room for.
            unsafe { out.add(i).write((asked.layout)(process)) };
        }
        Ok(())
    })
}

macro_rules! lists {
    ($($name:ident: $kind:expr, $layout:ident -> $process:ty;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(device: Handle, count: *mut c_uint, out: *mut $process) -> c_uint {
            // SAFETY: nvml.h's.
            unsafe { list(&Asked { device, kind: $kind, layout: $layout }, count, out) }
        }
    )*};
}

lists! {
    nvmlDeviceGetComputeRunningProcesses: Some(Kind::Compute), first -> ProcessV1;
    nvmlDeviceGetComputeRunningProcesses_v2: Some(Kind::Compute), second -> ProcessV2;
    nvmlDeviceGetComputeRunningProcesses_v3: Some(Kind::Compute), second -> ProcessV2;
    nvmlDeviceGetGraphicsRunningProcesses: Some(Kind::Graphics), first -> ProcessV1;
    nvmlDeviceGetGraphicsRunningProcesses_v2: Some(Kind::Graphics), second -> ProcessV2;
    nvmlDeviceGetGraphicsRunningProcesses_v3: Some(Kind::Graphics), second -> ProcessV2;
    nvmlDeviceGetMPSComputeRunningProcesses_v3: None, second -> ProcessV2;
}
