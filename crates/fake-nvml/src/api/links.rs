//! NVLink.

use std::ffi::c_uint;

use super::{device::pci_info, put};
use crate::abi::{Code, Handle, MOST_LINKS, PciInfo};
use crate::machine::{Device, End, Pci};
use crate::world::call;

/// The address of the switch at which all switch links end.
const SWITCH: Pci = Pci { domain: 0, bus: 0x05, device: 0 };

/// The version that `nvmlDeviceGetNvLinkVersion` returns: that of Hopper.
const LINK_VERSION: u32 = 4;

/// Runs a call on a link; `None` for a link that exists but leads nowhere.
fn on(device: Handle, link: c_uint, act: impl FnOnce(Option<End>, &[Device]) -> Result<(), Code>) -> c_uint {
    call(|world| {
        let (number, device) = world.device(device)?;
        let ends = device.link_ends(number);
        if ends.is_empty() {
            return Err(Code::NotSupported);
        }
        if link as usize >= MOST_LINKS {
            return Err(Code::InvalidArgument);
        }
        act(ends.get(link as usize).copied(), &world.machine()?.devices)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetNvLinkState(device: Handle, link: c_uint, out: *mut c_uint) -> c_uint {
    // SAFETY: nvml.h's.
    on(device, link, |end, _| unsafe { put(out, c_uint::from(end.is_some())) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetNvLinkVersion(device: Handle, link: c_uint, out: *mut c_uint) -> c_uint {
    // SAFETY: nvml.h's.
    on(device, link, |_, _| unsafe { put(out, LINK_VERSION) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetNvLinkCapability(
    device: Handle,
    link: c_uint,
    _capability: c_uint,
    out: *mut c_uint,
) -> c_uint {
    // SAFETY: nvml.h's.
    on(device, link, |end, _| unsafe { put(out, c_uint::from(end.is_some())) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetNvLinkRemotePciInfo_v2(
    device: Handle,
    link: c_uint,
    out: *mut PciInfo,
) -> c_uint {
    on(device, link, |end, devices| {
        let pci = match end.ok_or(Code::NotSupported)? {
            End::Switch(_) => SWITCH,
            End::Device(number) => devices.get(number).ok_or(Code::Unknown)?.pci,
        };
        // SAFETY: nvml.h's.
        unsafe { put(out, pci_info(pci)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetNvLinkRemoteDeviceType(
    device: Handle,
    link: c_uint,
    out: *mut c_uint,
) -> c_uint {
    on(device, link, |end, _| {
        let kind = match end.ok_or(Code::NotSupported)? {
            End::Device(_) => 0,
            End::Switch(_) => 2,
        };
        // SAFETY: nvml.h's.
        unsafe { put(out, kind) }
    })
}
