//! Devices through NVML, the NVIDIA driver's library, which is loaded at run time.

mod describe;
mod faults;
mod links;
mod processes;
mod sample;
mod session;

use std::collections::BTreeMap;
use std::path::PathBuf;

use nvml_wrapper::error::NvmlError;

use crate::{Device, DeviceSample, Health, LostDevice, SourceError, printable};
use faults::Faults;
use sample::{Observed, Sampled};
use session::Session;

pub(crate) use session::library_paths;

/// While a device is lost, NVML is restarted every so many samples, since a running NVML does not see a device that was
/// plugged in again. Not more often: without persistence mode each start may initialise all devices, for seconds.
const SAMPLES_BETWEEN_RESTARTS: u32 = 60;

/// Memory faults that wait for a reset change only after an error, which raises an event. They are read then, and
/// every so many samples in case the device has no events.
const SAMPLES_BETWEEN_FAULT_CHECKS: u32 = 60;

/// NVML and what is remembered between calls.
#[derive(Debug)]
pub(crate) struct Backend {
    libraries: Vec<PathBuf>,
    session: Option<Session>,
    /// All devices that ever reported their UUID, each with its last index.
    known: BTreeMap<String, u32>,
    faults: Faults,
    samples: u32,
    some_lost: bool,
}

/// What an enumeration found.
pub(crate) struct Found {
    pub(crate) devices: Vec<Device>,
    pub(crate) lost: Vec<LostDevice>,
}

impl Backend {
    /// Loads the first of `libraries` that can be loaded and starts NVML.
    pub(crate) fn open(libraries: &[PathBuf]) -> Result<Self, SourceError> {
        Ok(Self {
            libraries: libraries.to_vec(),
            session: Some(Session::open(libraries)?),
            known: BTreeMap::new(),
            faults: Faults::default(),
            samples: 0,
            some_lost: false,
        })
    }

    /// Returns the versions of driver and CUDA.
    pub(crate) fn versions(&self) -> (Option<String>, Option<String>) {
        self.session.as_ref().map_or((None, None), Session::versions)
    }

    /// Enumerates the devices and begins to watch those that are new.
    pub(crate) fn discover(&mut self) -> Result<Found, SourceError> {
        let session = self.fresh_session()?;
        let mut found = describe::all(session)?;
        found.devices.iter().for_each(|device| session.watch(&device.uuid, device.index));
        self.known.extend(found.devices.iter().map(|device| (device.uuid.clone(), device.index)));
        self.name_the_lost(&mut found);
        self.some_lost = !found.lost.is_empty();
        Ok(found)
    }

    /// Samples all devices that are, or were, there.
    pub(crate) fn sample(&mut self) -> Vec<DeviceSample> {
        self.samples = self.samples.wrapping_add(1);
        if self.some_lost && self.samples.is_multiple_of(SAMPLES_BETWEEN_RESTARTS) {
            self.session = None;
        }
        let check_faults = self.samples % SAMPLES_BETWEEN_FAULT_CHECKS == 1;
        let sampled = self.open_session().map(|session| {
            let sampled = sample::all(session, check_faults)?;
            // The new devices, and all devices after a restart of NVML.
            let well = sampled.observed.iter().filter(|one| one.sample.health.is_ok());
            well.for_each(|one| session.watch(&one.sample.uuid, one.index));
            Ok(sampled)
        });
        let (sampled, reason) = match sampled {
            Ok(Ok(sampled)) => (sampled, NOT_ENUMERATED.to_owned()),
            Ok(Err(reason)) => (Sampled::default(), reason),
            Err(error) => (Sampled::default(), error.to_string()),
        };
        let observed = self.with_the_lost(sampled, &reason);
        self.some_lost = observed.iter().any(|one| matches!(one.sample.health, Health::Lost { .. }));
        observed.into_iter().map(|one| self.faults.judge(one.sample, one.memory)).collect()
    }

    /// Forgets the Xid of a device.
    pub(crate) fn forgive(&mut self, uuid: &str) {
        self.faults.forgive(uuid);
    }

    /// Returns the session; a new one if a device is lost or the bus has changed.
    fn fresh_session(&mut self) -> Result<&mut Session, SourceError> {
        if self.some_lost || self.session.as_ref().is_some_and(Session::bus_has_changed) {
            self.session = None;
        }
        self.open_session()
    }

    fn open_session(&mut self) -> Result<&mut Session, SourceError> {
        let session = match self.session.take() {
            Some(session) => session,
            None => Session::open(&self.libraries)?,
        };
        Ok(self.session.insert(session))
    }

    /// Gives lost devices the UUID of the known device that was last at their index, and adds known devices that are
    /// no longer enumerated.
    fn name_the_lost(&self, found: &mut Found) {
        let is_present = |uuid: &str| found.devices.iter().any(|device| device.uuid == uuid);
        let mut missing: BTreeMap<u32, &String> = self
            .known
            .iter()
            .filter(|(uuid, _)| !is_present(uuid))
            .map(|(uuid, index)| (*index, uuid))
            .collect();
        for lost in &mut found.lost {
            lost.uuid = missing.remove(&lost.index).cloned();
        }
        found.lost.extend(missing.into_iter().map(|(index, uuid)| LostDevice {
            index,
            uuid: Some(uuid.clone()),
            reason: NOT_ENUMERATED.to_owned(),
        }));
    }

    /// Remembers new devices, and adds a sample for each known device that gave none, with the message at its index
    /// or else `reason`.
    fn with_the_lost(&mut self, sampled: Sampled, reason: &str) -> Vec<Observed> {
        let Sampled { mut observed, silent } = sampled;
        self.known.extend(observed.iter().map(|one| (one.sample.uuid.clone(), one.index)));
        for (uuid, &index) in &self.known {
            if !observed.iter().any(|one| one.sample.uuid == *uuid) {
                let reason = silent.get(&index).map_or(reason, String::as_str).to_owned();
                let sample = DeviceSample::unknown(uuid, Health::Lost { reason });
                observed.push(Observed { index, sample, memory: None });
            }
        }
        observed.sort_by_key(|one| one.index);
        observed
    }
}

const NOT_ENUMERATED: &str = "the driver no longer enumerates the device";

/// Returns whether an answer means that the device as a whole can't be used.
fn means_lost(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::GpuLost | NvmlError::ResetRequired | NvmlError::IrqIssue | NvmlError::InsufficientPower
    )
}

/// Returns what NVML said, printable.
fn reason(error: &NvmlError) -> String {
    printable(&error.to_string())
}
