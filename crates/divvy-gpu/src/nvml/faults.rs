//! Faults after which a device should get no work, and how long they are remembered.

use std::collections::BTreeMap;

use nvml_wrapper::Device;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::{
    NVML_FI_DEV_REMAPPED_FAILURE, NVML_FI_DEV_REMAPPED_PENDING, NVML_FI_DEV_RETIRED_PENDING,
};

use crate::{DeviceSample, Health};

/// The faults remembered between samples, by UUID.
#[derive(Debug, Default)]
pub(super) struct Faults {
    xids: BTreeMap<String, Health>,
    memory: BTreeMap<String, Health>,
}

impl Faults {
    /// Adds a device's faults to its sample: the remembered ones, the new ones, and the state of its memory
    /// repairs if that was read.
    pub(super) fn judge(&mut self, mut sample: DeviceSample, memory: Option<Health>) -> DeviceSample {
        if let Health::Lost { .. } = sample.health {
            // A device that was away was reset before it came back, which cleared its faults.
            self.forgive(&sample.uuid);
            self.memory.remove(&sample.uuid);
            return sample;
        }
        if let Some(memory) = memory {
            self.memory.insert(sample.uuid.clone(), memory);
        }
        for fault in sample.xids.iter().filter_map(|&xid| needs_reset(xid)) {
            self.xids.insert(sample.uuid.clone(), fault);
        }
        if let Some(fault) = self.xids.get(&sample.uuid).or_else(|| self.memory.get(&sample.uuid)) {
            sample.health = fault.clone();
        }
        sample
    }

    /// Forgets a device's Xid.
    pub(super) fn forgive(&mut self, uuid: &str) {
        self.xids.remove(uuid);
    }
}

/// Returns the fault for an Xid that leaves a device unfit for the next job: those for which NVIDIA's "Xid Errors"
/// asks for a reset or a restart. An application's own faults (13, 31, 43, 45, 68, 94, …) end only the application.
fn needs_reset(xid: u64) -> Option<Health> {
    let what = match xid {
        48 => "uncorrectable memory error",
        62 => "the device's microcontroller halted",
        64 => "a faulty memory row could not be recorded",
        74 => "NVLink error",
        79 => "fallen off the bus",
        95 => "uncontained memory error",
        109 => "context switch timed out",
        110 => "security fault",
        119 | 120 => "the device's firmware does not answer",
        136 => "link training failed",
        140 => "unrecovered memory error",
        143 => "initialisation failed",
        _ => return None,
    };
    let reason = format!("Xid {xid}: {what}; reset the device (`nvidia-smi --gpu-reset`) or reboot");
    Some(Health::Xid { xid, reason })
}

/// Asks whether memory repairs wait for a reset or have failed. Devices without this query count as healthy.
pub(super) fn pending(device: &Device<'_>) -> Health {
    let asked = [NVML_FI_DEV_REMAPPED_FAILURE, NVML_FI_DEV_REMAPPED_PENDING, NVML_FI_DEV_RETIRED_PENDING];
    let answers = device.field_values_for(&asked.map(FieldId)).unwrap_or_default();
    let is_set = |i: usize| match answers.get(i) {
        Some(Ok(sample)) => match sample.value {
            Ok(SampleValue::U32(n)) => n != 0,
            Ok(SampleValue::U64(n)) => n != 0,
            _ => false,
        },
        _ => false,
    };
    let reason = if is_set(0) {
        "a faulty memory row could not be remapped: have the device replaced"
    } else if is_set(1) {
        "faulty memory rows wait to be remapped: reset the device (`nvidia-smi --gpu-reset`)"
    } else if is_set(2) {
        "faulty memory pages wait to be retired: reset the device (`nvidia-smi --gpu-reset`) or reboot"
    } else {
        return Health::Ok;
    };
    Health::Ecc { reason: reason.to_owned() }
}
