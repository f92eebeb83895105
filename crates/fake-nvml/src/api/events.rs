//! Event sets: they deliver Xids as these are added to the description.

use std::ffi::{c_uint, c_ulonglong};
use std::time::{Duration, Instant};

use super::put;
use crate::abi::{Code, EVENT_XID, EventV1, EventV2, Handle, NO_INSTANCE, SUCCESS};
use crate::machine::Ability;
use crate::world::{Watch, World, call};

/// How often the description is read while a caller waits.
const LOOK_EVERY: Duration = Duration::from_millis(10);

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetSupportedEventTypes(device: Handle, out: *mut c_ulonglong) -> c_uint {
    call(|world| {
        let (_, device) = world.device(device)?;
        let types = if device.unsupported.contains(&Ability::Events) { 0 } else { EVENT_XID };
        // SAFETY: nvml.h's.
        unsafe { put(out, types) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetCreate(out: *mut Handle) -> c_uint {
    call(|world| {
        if out.is_null() {
            return Err(Code::InvalidArgument);
        }
        // SAFETY: nvml.h's.
        unsafe { put(out, world.new_set()) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetFree(set: Handle) -> c_uint {
    call(|world| world.sets.remove(&set.addr()).map(drop).ok_or(Code::InvalidArgument))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceRegisterEvents(device: Handle, types: c_ulonglong, set: Handle) -> c_uint {
    call(|world| {
        let (_, device) = world.device(device)?;
        if device.unsupported.contains(&Ability::Events) || types & !EVENT_XID != 0 {
            return Err(Code::NotSupported);
        }
        let watch = Watch { uuid: device.uuid.clone(), types, seen: device.xids.len() };
        world.sets.get_mut(&set.addr()).ok_or(Code::InvalidArgument)?.push(watch);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetWait(set: Handle, out: *mut EventV1, timeout_ms: c_uint) -> c_uint {
    wait(set, timeout_ms, |device, xid| {
        // SAFETY: nvml.h's.
        unsafe { put(out, EventV1 { device, event_type: EVENT_XID, event_data: xid }) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetWait_v2(set: Handle, out: *mut EventV2, timeout_ms: c_uint) -> c_uint {
    wait(set, timeout_ms, |device, xid| {
        let event = EventV2 {
            device,
            event_type: EVENT_XID,
            event_data: xid,
            gpu_instance_id: NO_INSTANCE,
            compute_instance_id: NO_INSTANCE,
        };
        // SAFETY: nvml.h's.
        unsafe { put(out, event) }
    })
}

/// Waits for an event without blocking other calls.
fn wait(set: Handle, timeout_ms: c_uint, deliver: impl Fn(Handle, u64) -> Result<(), Code>) -> c_uint {
    let deadline = Instant::now() + Duration::from_millis(u64::from(timeout_ms));
    loop {
        let mut found = false;
        let code = call(|world| match next(world, set.addr())? {
            Some((device, xid)) => {
                found = true;
                deliver(device, xid)
            }
            None => Ok(()),
        });
        let left = deadline.saturating_duration_since(Instant::now());
        match code {
            SUCCESS if !found && left.is_zero() => return Code::Timeout as c_uint,
            SUCCESS if !found => std::thread::sleep(left.min(LOOK_EVERY)),
            code => return code,
        }
    }
}

/// Takes the next event of a set.
fn next(world: &mut World, set: usize) -> Result<Option<(Handle, u64)>, Code> {
    let (machine, watches) = world.machine_and_set(set)?;
    let mut found = None;
    for watch in watches {
        let device =
            machine.devices.iter().find(|device| device.uuid == watch.uuid).ok_or(Code::GpuIsLost)?;
        // A shorter list is a new list, from which nothing has been delivered.
        watch.seen = if watch.seen > device.xids.len() { 0 } else { watch.seen };
        if let Some(xid) = device.xids.get(watch.seen).filter(|_| watch.types & EVENT_XID != 0) {
            watch.seen += 1;
            found = Some((watch.uuid.clone(), *xid));
            break;
        }
    }
    found.map(|(uuid, xid)| Ok((world.handle(&uuid)?, xid))).transpose()
}
