//! The library itself, the driver, and finding devices.

use std::ffi::{c_char, c_int, c_uint};

use super::{put, put_text, text};
use crate::abi::{Code, Handle};
use crate::machine::{self, pci};
use crate::world::{World, call, start, stop};

#[unsafe(no_mangle)]
extern "C" fn nvmlInit() -> c_uint {
    start()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> c_uint {
    start()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> c_uint {
    start()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> c_uint {
    stop()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(code: c_uint) -> *const c_char {
    let text = match code {
        0 => c"The operation was successful",
        1 => c"NVML was not first initialized with nvmlInit()",
        2 => c"A supplied argument is invalid",
        3 => c"The requested operation is not available on target device",
        4 => c"The current user does not have permission for operation",
        6 => c"A query to find an object was unsuccessful",
        7 => c"An input argument is not large enough",
        9 => c"NVIDIA driver is not loaded",
        10 => c"User provided timeout passed",
        15 => c"The GPU has fallen off the bus or has otherwise become inaccessible",
        16 => c"The GPU requires a reset before it can be used again",
        18 => c"RM detects a driver/library version mismatch",
        25 => c"The provided version is invalid/unsupported",
        _ => c"An internal driver error occurred",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetDriverVersion(out: *mut c_char, length: c_uint) -> c_uint {
    // SAFETY: nvml.h's.
    call(|world| unsafe { put_text(out, length, &world.machine()?.driver) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetNVMLVersion(out: *mut c_char, length: c_uint) -> c_uint {
    call(|world| {
        let machine = world.machine()?;
        let major = machine.cuda.split('.').next().unwrap_or("0");
        // SAFETY: nvml.h's.
        unsafe { put_text(out, length, &format!("{major}.{}", machine.driver)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetCudaDriverVersion(out: *mut c_int) -> c_uint {
    call(|world| {
        let (major, minor) = machine::version(&world.machine()?.cuda).map_err(|_| Code::Unknown)?;
        // SAFETY: nvml.h's.
        unsafe { put(out, (major * 1000 + minor * 10) as c_int) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(out: *mut c_int) -> c_uint {
    // SAFETY: nvml.h's.
    unsafe { nvmlSystemGetCudaDriverVersion(out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetProcessName(pid: c_uint, out: *mut c_char, length: c_uint) -> c_uint {
    call(|_| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).map_err(|_| Code::NotFound)?;
        let name = line.split(|byte| *byte == 0).next().unwrap_or_default();
        // SAFETY: nvml.h's.
        unsafe { put_text(out, length, &String::from_utf8_lossy(name)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCount(out: *mut c_uint) -> c_uint {
    // SAFETY: nvml.h's.
    call(|world| unsafe { put(out, world.enumerated()?.len() as c_uint) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCount_v2(out: *mut c_uint) -> c_uint {
    // SAFETY: nvml.h's.
    unsafe { nvmlDeviceGetCount(out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByIndex(index: c_uint, out: *mut Handle) -> c_uint {
    call(|world| {
        let devices = world.enumerated()?;
        let uuid = devices.get(index as usize).ok_or(Code::InvalidArgument)?.1.uuid.clone();
        // SAFETY: nvml.h's.
        unsafe { put_handle(world, &uuid, out) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, out: *mut Handle) -> c_uint {
    // SAFETY: nvml.h's.
    unsafe { nvmlDeviceGetHandleByIndex(index, out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, out: *mut Handle) -> c_uint {
    // SAFETY: nvml.h's.
    call(|world| unsafe { put_handle(world, text(uuid)?, out) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleBySerial(serial: *const c_char, out: *mut Handle) -> c_uint {
    call(|world| {
        // SAFETY: nvml.h's.
        let serial = unsafe { text(serial) }?;
        let devices = world.enumerated()?;
        let found = devices.iter().find(|(_, device)| device.serial.as_deref() == Some(serial));
        let uuid = found.ok_or(Code::NotFound)?.1.uuid.clone();
        // SAFETY: nvml.h's.
        unsafe { put_handle(world, &uuid, out) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId(address: *const c_char, out: *mut Handle) -> c_uint {
    call(|world| {
        // SAFETY: nvml.h's.
        let address = pci(unsafe { text(address) }?).ok_or(Code::InvalidArgument)?;
        let devices = world.enumerated()?;
        let found = devices.iter().find(|(_, device)| device.pci == address);
        let uuid = found.ok_or(Code::NotFound)?.1.uuid.clone();
        // SAFETY: nvml.h's.
        unsafe { put_handle(world, &uuid, out) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(address: *const c_char, out: *mut Handle) -> c_uint {
    // SAFETY: nvml.h's.
    unsafe { nvmlDeviceGetHandleByPciBusId(address, out) }
}

/// Writes a device's handle.
///
/// # Safety
/// `out` is null or points to room for a handle.
unsafe fn put_handle(world: &mut World, uuid: &str, out: *mut Handle) -> Result<(), Code> {
    let handle = world.handle(uuid)?;
    // SAFETY: as the caller promises.
    unsafe { put(out, handle) }
}
