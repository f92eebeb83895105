//! One start of NVML: the loaded library and its event sets.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fmt, fs};

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{EventSet, Nvml, cuda_driver_version_major, cuda_driver_version_minor};

use crate::{SourceError, printable};

/// Where the library is searched: by the loader, then where WSL, Debian's alternatives, container hosts and NixOS put it.
const LIBRARIES: [&str; 5] = [
    "libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/run/opengl-driver/lib/libnvidia-ml.so.1",
];

/// The folder in which the driver keeps a folder for each device bound to it.
const BUS: &str = "/proc/driver/nvidia/gpus";

/// The most events taken from a device in one sample; the rest is taken in the next.
const MOST_EVENTS: usize = 32;

/// The Xid that NVML reports when it does not know which one occurred.
const UNKNOWN_XID: u64 = 999;

/// A started NVML.
pub(crate) struct Session {
    /// One event set per device, by UUID, so that a lost device does not end the events of the others; `None` for a
    /// device without events. Declared before `nvml`: the sets must be freed before the library is shut down.
    watches: BTreeMap<String, Option<EventSet<'static>>>,
    nvml: Arc<Nvml>,
    library: PathBuf,
    /// The devices bound to the driver when NVML was started.
    bus: Vec<OsString>,
}

/// Returns the names under which the library is tried, in order; `DIVVY_NVML` replaces them all.
pub(crate) fn library_paths() -> Vec<PathBuf> {
    match env::var_os("DIVVY_NVML") {
        Some(path) if !path.is_empty() => vec![path.into()],
        _ => LIBRARIES.iter().map(PathBuf::from).collect(),
    }
}

impl Session {
    pub(crate) fn open(libraries: &[PathBuf]) -> Result<Self, SourceError> {
        let mut reason = String::from("no name to try");
        for library in libraries {
            match Nvml::builder().lib_path(library.as_os_str()).init() {
                Ok(nvml) => {
                    return Ok(Self {
                        watches: BTreeMap::new(),
                        nvml: Arc::new(nvml),
                        library: library.clone(),
                        bus: bus(),
                    });
                }
                Err(NvmlError::LibloadingError(error)) => reason = printable(&error.to_string()),
                Err(error) => return Err(start_failed(library, &error)),
            }
        }
        Err(SourceError::NoLibrary { tried: libraries.to_vec(), reason })
    }

    /// Lends the library.
    pub(crate) fn nvml(&self) -> &Nvml {
        &self.nvml
    }

    /// Makes the error of a call that does not concern a single device.
    pub(crate) fn broken(&self, doing: &'static str, error: &NvmlError) -> SourceError {
        SourceError::Broken { doing, library: self.library.clone(), reason: super::reason(error) }
    }

    pub(crate) fn versions(&self) -> (Option<String>, Option<String>) {
        let driver = self.nvml.sys_driver_version().ok().map(|version| printable(&version));
        let cuda = self.nvml.sys_cuda_driver_version().ok();
        let cuda = cuda.map(|n| format!("{}.{}", cuda_driver_version_major(n), cuda_driver_version_minor(n)));
        (driver, cuda)
    }

    /// Returns whether devices were bound to the driver, or unbound, since NVML was started.
    pub(crate) fn bus_has_changed(&self) -> bool {
        self.bus != bus()
    }

    /// Begins to collect a device's events, if it is not watched yet. A device without events (a virtual one, say) is
    /// left out: its answers still show when it is lost.
    pub(crate) fn watch(&mut self, uuid: &str, index: u32) {
        if !self.watches.contains_key(uuid) {
            let set = self.watch_one(index).ok();
            self.watches.insert(uuid.to_owned(), set);
        }
    }

    fn watch_one(&self, index: u32) -> Result<EventSet<'static>, NvmlError> {
        let device = self.nvml.device_by_index(index)?;
        let wanted = EventTypes::CRITICAL_XID_ERROR | EventTypes::DOUBLE_BIT_ECC_ERROR;
        let events = device.supported_event_types()? & wanted;
        let set =
            device.register_events(events, self.nvml.create_event_set()?).map_err(|error| error.error)?;
        // SAFETY: the set borrows from the `Nvml` in the `Arc`, whose address does not change and which this session
        // drops after `watches`, by the order of its fields; no set leaves the session.
        Ok(unsafe { std::mem::transmute::<EventSet<'_>, EventSet<'static>>(set) })
    }

    /// Takes the events since the last call, without waiting.
    pub(crate) fn take_events(&self, uuid: &str) -> Events {
        let mut events = Events::default();
        let Some(Some(set)) = self.watches.get(uuid) else { return events };
        for event in std::iter::from_fn(|| set.wait(0).ok()).take(MOST_EVENTS) {
            events.any = true;
            events.xids.extend(event.event_data.map(|xid| match xid {
                XidError::Value(xid) => xid,
                XidError::Unknown => UNKNOWN_XID,
            }));
        }
        events
    }
}

/// The events of a device since the last call.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// Whether there was any event, Xid or not.
    pub(crate) any: bool,
    pub(crate) xids: Vec<u64>,
}

fn start_failed(library: &Path, error: &NvmlError) -> SourceError {
    let library = library.to_owned();
    match error {
        NvmlError::DriverNotLoaded => SourceError::NoDriver { library },
        _ => SourceError::Broken { doing: "starting", library, reason: super::reason(error) },
    }
}

fn bus() -> Vec<OsString> {
    let mut bus: Vec<OsString> =
        fs::read_dir(BUS).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect();
    bus.sort_unstable();
    bus
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("library", &self.library).finish_non_exhaustive()
    }
}
