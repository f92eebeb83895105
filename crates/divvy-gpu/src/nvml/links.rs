//! NVLink: which devices reach each other, and over how many links.

use std::collections::BTreeMap;

use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::{NvmlError, nvml_try};
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_NVLINK_LINK_COUNT;

use crate::{Device, NvlinkPeer, printable};

/// `NVML_NVLINK_MAX_LINKS` of nvml.h, for drivers that do not report how many links a device has.
const MOST_LINKS: u32 = 18;

/// `NVML_NVLINK_DEVICE_TYPE_SWITCH` of nvml.h.
const SWITCH: u32 = 2;

/// Where a device's active links end.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    /// Links to other devices, by normalised PCI address.
    pub(super) devices: BTreeMap<String, u32>,
    /// Links to NVSwitches, all together.
    pub(super) switches: u32,
}

/// Asks a device for its active links.
pub(super) fn ends(device: &nvml_wrapper::Device<'_>) -> Ends {
    let mut ends = Ends::default();
    for link in 0..count(device) {
        let wrapper = device.link_wrapper_for(link);
        if !matches!(wrapper.is_active(), Ok(true)) {
            continue;
        }
        match remote_type(device, link) {
            Ok(SWITCH) => ends.switches += 1,
            // Links to a POWER CPU join no devices. Drivers that do not report the type give an address anyway; one
            // that is no device's joins nothing either.
            Ok(_) | Err(_) => {
                if let Ok(pci) = wrapper.remote_pci_info() {
                    *ends.devices.entry(normal(&pci.bus_id)).or_default() += 1;
                }
            }
        }
    }
    ends
}

/// Returns what is at the other end of a link. (The wrapper's own call, in its version 0.13, discards the answer and
/// always returns "unknown".)
fn remote_type(device: &nvml_wrapper::Device<'_>, link: u32) -> Result<u32, NvmlError> {
    let Ok(call) = device.nvml().lib().nvmlDeviceGetNvLinkRemoteDeviceType.as_ref() else {
        return Err(NvmlError::FunctionNotFound);
    };
    let mut kind = 0;
    // SAFETY: the handle is of this library, and the call writes a number to where the pointer says.
    nvml_try(unsafe { call(device.handle(), link, &mut kind) })?;
    Ok(kind)
}

fn count(device: &nvml_wrapper::Device<'_>) -> u32 {
    let values = device.field_values_for(&[FieldId(NVML_FI_DEV_NVLINK_LINK_COUNT)]).unwrap_or_default();
    match values.into_iter().next() {
        Some(Ok(sample)) => match sample.value {
            Ok(SampleValue::U32(count)) => count.min(64),
            // The driver answered that the device has none.
            Ok(_) | Err(_) => MOST_LINKS,
        },
        _ => MOST_LINKS,
    }
}

/// Fills in each device's peers from the ends of all devices. Devices on switches reach each other over all the links
/// that both have: a switch does not block.
pub(super) fn join(devices: &mut [Device], ends: &[Ends]) {
    let names: Vec<(String, String)> = devices
        .iter()
        .map(|device| (device.uuid.clone(), device.pci_bus_id.clone().unwrap_or_default()))
        .collect();
    for (i, device) in devices.iter_mut().enumerate() {
        let others = (0..names.len()).filter(|&j| j != i);
        device.nvlink = others
            .filter_map(|j| {
                let (uuid, bus_id) = &names[j];
                let direct = ends[i].devices.get(&normal(bus_id)).copied().unwrap_or(0);
                let switched = ends[i].switches.min(ends[j].switches);
                let lanes = direct + switched;
                (lanes > 0).then(|| NvlinkPeer {
                    uuid: uuid.clone(),
                    pci_bus_id: bus_id.clone(),
                    lanes,
                    switched: switched > 0,
                })
            })
            .collect();
    }
}

/// Normalises a PCI address: lower case, a domain of eight digits.
fn normal(bus_id: &str) -> String {
    let lower = printable(bus_id).to_ascii_lowercase();
    match lower.split_once(':') {
        Some((domain, rest)) => format!("{domain:0>8}:{rest}"),
        None => lower,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_four_and_eight_digits_are_alike() {
        assert_eq!(normal("0000:3B:00.0"), normal("00000000:3b:00.0"));
    }
}
