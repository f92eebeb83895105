//! The state of devices at one moment. Runs each second: a handful of calls per device, hardly any allocation.

use std::collections::BTreeMap;

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::error::{NvmlError, nvml_try};

use super::{faults, means_lost, processes, reason, session::Session};
use crate::{DeviceSample, Health, printable};

const MIB: u64 = 1 << 20;

/// The result of one round over the devices.
#[derive(Debug, Default)]
pub(super) struct Sampled {
    /// What each answering device reported.
    pub(super) observed: Vec<Observed>,
    /// Indices at which the enumerated device does not even report its UUID, each with its error.
    pub(super) silent: BTreeMap<u32, String>,
}

/// What a device reported.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) index: u32,
    pub(super) sample: DeviceSample,
    /// The state of its memory repairs, if it was read.
    pub(super) memory: Option<Health>,
}

/// Samples each enumerated device; an error concerns NVML as a whole.
pub(super) fn all(session: &Session, check_faults: bool) -> Result<Sampled, String> {
    let count = session.nvml().device_count().map_err(|error| reason(&error))?;
    let mut sampled = Sampled::default();
    for index in 0..count {
        let device = session.nvml().device_by_index(index).and_then(|device| Ok((device.uuid()?, device)));
        match device {
            Ok((uuid, device)) => {
                let (sample, memory) = one(session, &device, (&printable(&uuid), check_faults));
                sampled.observed.push(Observed { index, sample, memory });
            }
            Err(error) => {
                sampled.silent.insert(index, reason(&error));
            }
        }
    }
    Ok(sampled)
}

fn one(session: &Session, device: &Device<'_>, asked: (&str, bool)) -> (DeviceSample, Option<Health>) {
    let (uuid, check_faults) = asked;
    let memory = match memory(device) {
        Err(error) if means_lost(&error) => {
            return (DeviceSample::unknown(uuid, Health::Lost { reason: reason(&error) }), None);
        }
        answer => answer.ok(),
    };
    let events = session.take_events(uuid);
    let pending = (check_faults || events.any).then(|| faults::pending(device));
    let sample = DeviceSample {
        uuid: uuid.to_owned(),
        memory_used_mib: memory.map(|memory| memory.used_mib),
        memory_total_mib: memory.map(|memory| memory.total_mib),
        utilization_percent: device.utilization_rates().ok().map(|rates| rates.gpu),
        temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
        power_w: device.power_usage().ok().map(|milliwatts| milliwatts.div_ceil(1000)),
        processes: processes::on(device),
        xids: events.xids,
        health: Health::Ok,
    };
    (sample, pending)
}

/// A device's memory, in MiB.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    pub(super) total_mib: u64,
    /// Without the driver's reserve, if the driver reports it separately.
    pub(super) used_mib: u64,
}

/// Reads the memory; drivers before 510 have only the first version of the call, which counts the reserve as used.
pub(super) fn memory(device: &Device<'_>) -> Result<Memory, NvmlError> {
    match device.memory_info() {
        Ok(info) => Ok(Memory { total_mib: info.total / MIB, used_mib: info.used / MIB }),
        Err(NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound) => memory_v1(device),
        Err(error) => Err(error),
    }
}

fn memory_v1(device: &Device<'_>) -> Result<Memory, NvmlError> {
    let Ok(call) = device.nvml().lib().nvmlDeviceGetMemoryInfo.as_ref() else {
        return Err(NvmlError::FunctionNotFound);
    };
    // SAFETY: the handle is of this library and the struct is the one that the call's type names; it is plain
    // integers, for which zero is a value.
    let memory = unsafe {
        let mut memory = std::mem::zeroed();
        nvml_try(call(device.handle(), &mut memory))?;
        memory
    };
    Ok(Memory { total_mib: memory.total / MIB, used_mib: memory.used / MIB })
}
