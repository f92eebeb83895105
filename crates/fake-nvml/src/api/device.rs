//! What a device is and how it is.

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_ulonglong};

use super::{fixed, put, put_text};
use crate::abi::{Code, Handle, MEMORY_V2, Memory, MemoryV2, PciInfo, TemperatureV1, Utilization};
use crate::machine::{self, Ability, Device, Mig, Pci};
use crate::world::call;

const MIB: u64 = 1 << 20;

/// `NVML_AFFINITY_SCOPE_NODE` and `NVML_AFFINITY_SCOPE_SOCKET`; a node here is a socket.
const SCOPES: std::ops::RangeInclusive<u32> = 0..=1;

/// Runs a call on a device that has what is asked for.
fn on(
    handle: Handle,
    needs: Option<Ability>,
    act: impl FnOnce(usize, &Device) -> Result<(), Code>,
) -> c_uint {
    call(|world| {
        let (number, device) = world.device(handle)?;
        if needs.is_some_and(|ability| device.unsupported.contains(&ability)) {
            return Err(Code::NotSupported);
        }
        act(number, device)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetName(device: Handle, out: *mut c_char, length: c_uint) -> c_uint {
    // SAFETY: nvml.h's.
    on(device, None, |_, device| unsafe { put_text(out, length, &device.product) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUUID(device: Handle, out: *mut c_char, length: c_uint) -> c_uint {
    // SAFETY: nvml.h's.
    on(device, None, |_, device| unsafe { put_text(out, length, &device.uuid) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetSerial(device: Handle, out: *mut c_char, length: c_uint) -> c_uint {
    on(device, None, |_, device| {
        let serial = device.serial.as_deref().ok_or(Code::NotSupported)?;
        // SAFETY: nvml.h's.
        unsafe { put_text(out, length, serial) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetIndex(device: Handle, out: *mut c_uint) -> c_uint {
    call(|world| {
        let (number, _) = world.device(device)?;
        let index =
            world.enumerated()?.iter().position(|(other, _)| *other == number).ok_or(Code::GpuIsLost)?;
        // SAFETY: nvml.h's.
        unsafe { put(out, index as c_uint) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMinorNumber(device: Handle, out: *mut c_uint) -> c_uint {
    // SAFETY: nvml.h's.
    on(device, None, |_, device| unsafe { put(out, device.minor) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo(device: Handle, out: *mut Memory) -> c_uint {
    on(device, Some(Ability::Memory), |_, device| {
        // The first version counts the driver's reserve as used.
        let total = device.memory_mib * MIB;
        let used = (device.used_mib() + device.reserved_mib).min(device.memory_mib) * MIB;
        // SAFETY: nvml.h's.
        unsafe { put(out, Memory { total, free: total - used, used }) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Handle, out: *mut MemoryV2) -> c_uint {
    on(device, Some(Ability::Memory), |_, device| {
        // SAFETY: nvml.h's; the caller sets the version before the call.
        if out.is_null() || unsafe { (*out).version } != MEMORY_V2 {
            return Err(if out.is_null() { Code::InvalidArgument } else { Code::ArgumentVersionMismatch });
        }
        let total = device.memory_mib * MIB;
        let reserved = device.reserved_mib.min(device.memory_mib) * MIB;
        let used = (device.used_mib() * MIB).min(total - reserved);
        let free = total - reserved - used;
        // SAFETY: nvml.h's.
        unsafe { put(out, MemoryV2 { version: MEMORY_V2, total, reserved, free, used }) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUtilizationRates(device: Handle, out: *mut Utilization) -> c_uint {
    on(device, Some(Ability::Utilization), |_, device| {
        let gpu = device.utilization_percent;
        // SAFETY: nvml.h's.
        unsafe { put(out, Utilization { gpu, memory: gpu / 2 }) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTemperature(device: Handle, sensor: c_uint, out: *mut c_uint) -> c_uint {
    on(device, Some(Ability::Temperature), |_, device| {
        if sensor != 0 {
            return Err(Code::InvalidArgument);
        }
        // SAFETY: nvml.h's.
        unsafe { put(out, device.temperature_c) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTemperatureV(device: Handle, out: *mut TemperatureV1) -> c_uint {
    on(device, Some(Ability::Temperature), |_, device| {
        if out.is_null() {
            return Err(Code::InvalidArgument);
        }
        // SAFETY: nvml.h's.
        unsafe { (*out).temperature = device.temperature_c as c_int };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPowerUsage(device: Handle, out: *mut c_uint) -> c_uint {
    on(device, Some(Ability::Power), |_, device| {
        let milliwatts = (device.power_w * 1000.0).round() as c_uint;
        // SAFETY: nvml.h's.
        unsafe { put(out, milliwatts) }
    })
}

/// The highest clock of a kind; only that of the memory (2) is reported.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMaxClockInfo(device: Handle, kind: c_uint, out: *mut c_uint) -> c_uint {
    on(device, None, |_, device| {
        let mhz = device.memory_clock_mhz.filter(|_| kind == 2).ok_or(Code::NotSupported)?;
        // SAFETY: nvml.h's.
        unsafe { put(out, mhz) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryBusWidth(device: Handle, out: *mut c_uint) -> c_uint {
    on(device, None, |_, device| {
        let bits = device.memory_bus_bits.ok_or(Code::NotSupported)?;
        // SAFETY: nvml.h's.
        unsafe { put(out, bits) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(device: Handle, out: *mut PciInfo) -> c_uint {
    // SAFETY: nvml.h's.
    on(device, None, |_, device| unsafe { put(out, pci_info(device.pci)) })
}

/// Makes the struct of an address. The ids are those of an H100: vendor 10de, device 2330.
pub(super) fn pci_info(pci: Pci) -> PciInfo {
    let Pci { domain, bus, device } = pci;
    PciInfo {
        bus_id_legacy: fixed(&format!("{domain:04X}:{bus:02X}:{device:02X}.0")),
        domain,
        bus,
        device,
        pci_device_id: 0x2330_10de,
        pci_sub_system_id: 0x16c1_10de,
        bus_id: fixed(&format!("{domain:08X}:{bus:02X}:{device:02X}.0")),
    }
}

/// Answers for coherent devices, whose memory is a node of its own; no described device is one.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetNumaNodeId(device: Handle, _out: *mut c_uint) -> c_uint {
    on(device, None, |_, _| Err(Code::NotSupported))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryAffinity(
    device: Handle,
    words: c_uint,
    out: *mut c_ulong,
    scope: c_uint,
) -> c_uint {
    on(device, Some(Ability::Numa), |_, device| {
        if out.is_null() || words == 0 || !SCOPES.contains(&scope) {
            return Err(Code::InvalidArgument);
        }
        let node = device.numa_node.ok_or(Code::NotSupported)?;
        for i in 0..words {
            let word = if node / c_ulong::BITS == i { 1 << (node % c_ulong::BITS) } else { 0 };
            // SAFETY: nvml.h's: room for as many words as stated.
            unsafe { out.add(i as usize).write(word) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCudaComputeCapability(
    device: Handle,
    major: *mut c_int,
    minor: *mut c_int,
) -> c_uint {
    on(device, None, |_, device| {
        let (first, second) = machine::version(&device.capability).map_err(|_| Code::Unknown)?;
        // SAFETY: nvml.h's.
        unsafe { put(major, first as c_int).and_then(|()| put(minor, second as c_int)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigMode(device: Handle, now: *mut c_uint, next: *mut c_uint) -> c_uint {
    on(device, None, |_, device| {
        let mode = match device.mig {
            Mig::Unsupported => return Err(Code::NotSupported),
            Mig::Disabled => 0,
            Mig::Enabled => 1,
        };
        // SAFETY: nvml.h's.
        unsafe { put(now, mode).and_then(|()| put(next, mode)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetEccMode(device: Handle, now: *mut c_uint, next: *mut c_uint) -> c_uint {
    // SAFETY: nvml.h's.
    on(device, Some(Ability::Ecc), |_, _| unsafe { put(now, 1).and_then(|()| put(next, 1)) })
}

/// Counts memory errors of a kind (0 corrected, 1 uncorrected); the volatile and the aggregate counter are one here.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTotalEccErrors(
    device: Handle,
    kind: c_uint,
    _counter: c_uint,
    out: *mut c_ulonglong,
) -> c_uint {
    on(device, Some(Ability::Ecc), |_, device| {
        let count = match kind {
            0 => device.ecc_corrected,
            1 => device.ecc_uncorrected,
            _ => return Err(Code::InvalidArgument),
        };
        // SAFETY: nvml.h's.
        unsafe { put(out, count) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetRemappedRows(
    device: Handle,
    corrected: *mut c_uint,
    uncorrected: *mut c_uint,
    pending: *mut c_uint,
    failed: *mut c_uint,
) -> c_uint {
    on(device, Some(Ability::Ecc), |_, device| {
        // SAFETY: nvml.h's.
        unsafe {
            put(corrected, device.ecc_corrected as c_uint)?;
            put(uncorrected, device.ecc_uncorrected as c_uint)?;
            put(pending, c_uint::from(device.remap_pending))?;
            put(failed, c_uint::from(device.remap_failed))
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetRetiredPagesPendingStatus(device: Handle, out: *mut c_uint) -> c_uint {
    // SAFETY: nvml.h's.
    on(device, Some(Ability::Ecc), |_, device| unsafe { put(out, c_uint::from(device.retire_pending)) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPersistenceMode(device: Handle, out: *mut c_uint) -> c_uint {
    // SAFETY: nvml.h's.
    on(device, None, |_, _| unsafe { put(out, 1) })
}
