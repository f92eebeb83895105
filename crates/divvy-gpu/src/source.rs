//! The one object through which the rest of Divvy sees a machine's devices.

use std::path::{Path, PathBuf};

use crate::host::{self, HostError};
use crate::nvml::{self, Backend};
use crate::{Choice, Device, DeviceSample, LostDevice, Machine, PretendedGroup, SourceKind, pretend};

/// Why devices can't be found out.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// No library of NVML could be loaded.
    #[error(
        "loading NVML, the NVIDIA driver's library: none of {} can be loaded ({reason}); install the NVIDIA driver, \
         or set DIVVY_NVML to the library's path, or start with --gpus none or --gpus pretend:8xH100",
        .tried.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    NoLibrary {
        /// The names that were tried, in order.
        tried: Vec<PathBuf>,
        /// What the loader said to the last of them.
        reason: String,
    },
    /// The library is there, but its driver is not running.
    #[error(
        "starting NVML from {}: the NVIDIA driver is not loaded; run `modprobe nvidia` and look at `dmesg`, or start \
         with --gpus none or --gpus pretend:8xH100", library.display()
    )]
    NoDriver {
        /// The library that was loaded.
        library: PathBuf,
    },
    /// Library and driver are there but do not work.
    #[error("{doing} with NVML from {}: {reason}; see whether `nvidia-smi` works, or start with --gpus none", library.display())]
    Broken {
        /// What was being done.
        doing: &'static str,
        /// The library that was loaded.
        library: PathBuf,
        /// What NVML said.
        reason: String,
    },
    /// The host's own files can't be read.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// Reports which devices a machine has and how they are. Calls block, so it needs a thread of its own.
#[derive(Debug)]
pub struct Source {
    origin: Origin,
    note: Option<String>,
}

#[derive(Debug)]
enum Origin {
    None,
    Pretend { groups: Vec<PretendedGroup>, state_dir: PathBuf, devices: Vec<Device> },
    Nvml(Box<Backend>),
}

impl Source {
    /// Opens the source that the user chose, for the pool that keeps its state in `state_dir`. `DIVVY_NVML` replaces
    /// the places where NVML's library is searched.
    pub fn open(choice: &Choice, state_dir: &Path) -> Result<Self, SourceError> {
        Self::open_from(choice, state_dir, &nvml::library_paths())
    }

    /// Opens the source that the user chose, with NVML from the first of `libraries` that can be loaded.
    pub fn open_from(choice: &Choice, state_dir: &Path, libraries: &[PathBuf]) -> Result<Self, SourceError> {
        match choice {
            Choice::None => Ok(Self { origin: Origin::None, note: None }),
            Choice::Pretend(groups) => Ok(Self::pretend(groups, state_dir)),
            Choice::Nvml => Self::nvml(libraries),
            Choice::Auto => Self::auto(libraries),
        }
    }

    /// Returns which kind of devices this source has.
    pub fn kind(&self) -> SourceKind {
        match self.origin {
            Origin::None => SourceKind::None,
            Origin::Pretend { .. } => SourceKind::Pretend,
            Origin::Nvml(_) => SourceKind::Nvml,
        }
    }

    /// Returns why there are no devices although they were not declined.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Finds out what the machine has now. To be called at the start, and again when a sample names a device that the
    /// last machine did not have, or one that has come back.
    pub fn discover(&mut self) -> Result<Machine, SourceError> {
        let host = host::discover()?;
        let kind = self.kind();
        let mut versions = (None, None);
        let mut lost: Vec<LostDevice> = Vec::new();
        let devices = match &mut self.origin {
            Origin::None => Vec::new(),
            Origin::Pretend { groups, state_dir, devices } => {
                *devices = pretend::devices(groups, state_dir, &host.numa);
                devices.clone()
            }
            Origin::Nvml(backend) => {
                let found = backend.discover()?;
                versions = backend.versions();
                lost = found.lost;
                found.devices
            }
        };
        Ok(Machine {
            hostname: host.hostname,
            boot_id: host.boot_id,
            cpus: host.cpus,
            memory_bytes: host.memory_bytes,
            numa: host.numa,
            driver_version: versions.0,
            cuda_version: versions.1,
            devices,
            lost,
            source: kind,
        })
    }

    /// Samples each device that is or was there. Never fails: a device that does not answer is `Lost`.
    pub fn sample(&mut self) -> Vec<DeviceSample> {
        match &mut self.origin {
            Origin::None => Vec::new(),
            Origin::Pretend { devices, .. } => devices.iter().map(pretend::sample).collect(),
            Origin::Nvml(backend) => backend.sample(),
        }
    }

    /// Forgets the Xid for which the device counts as unhealthy, after somebody has serviced it.
    pub fn forgive(&mut self, uuid: &str) {
        if let Origin::Nvml(backend) = &mut self.origin {
            backend.forgive(uuid);
        }
    }

    fn pretend(groups: &[PretendedGroup], state_dir: &Path) -> Self {
        // The same folder under another path is the same pool.
        let state_dir = std::fs::canonicalize(state_dir).unwrap_or_else(|_| state_dir.to_owned());
        let devices = pretend::devices(groups, &state_dir, &[]);
        Self { origin: Origin::Pretend { groups: groups.to_vec(), state_dir, devices }, note: None }
    }

    fn nvml(libraries: &[PathBuf]) -> Result<Self, SourceError> {
        let backend = Backend::open(libraries)?;
        Ok(Self { origin: Origin::Nvml(Box::new(backend)), note: None })
    }

    /// Opens NVML if there is any. A driver that exists but does not work is an error: starting without the machine's
    /// GPUs because of it would look like success.
    fn auto(libraries: &[PathBuf]) -> Result<Self, SourceError> {
        match Self::nvml(libraries) {
            Err(error @ (SourceError::NoLibrary { .. } | SourceError::NoDriver { .. })) => {
                Ok(Self { origin: Origin::None, note: Some(error.to_string()) })
            }
            other => other,
        }
    }
}
