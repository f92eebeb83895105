//! What the library remembers between calls: the machine as last read, the handles given out, the event sets.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{env, fs};

use crate::abi::{Code, Handle, SUCCESS};
use crate::machine::{self, Device, DeviceFault, Machine, MachineFault};

/// The one state of the library; NVML may be called from any thread.
static WORLD: Mutex<World> = Mutex::new(World::new());

/// The file's identity when it was read: device, inode, size, time of change in ns.
type Stamp = (u64, u64, u64, i64, i64);

pub(crate) struct World {
    starts: u32,
    stamp: Option<Stamp>,
    machine: Result<Machine, Code>,
    /// UUIDs by number of the handle. A handle always means the same device, whatever the file says later.
    handles: Vec<String>,
    pub(crate) sets: BTreeMap<usize, Vec<Watch>>,
    next_set: usize,
}

/// A device in an event set.
pub(crate) struct Watch {
    pub(crate) uuid: String,
    pub(crate) types: u64,
    /// How many of the device's Xids existed before, or have been delivered.
    pub(crate) seen: usize,
}

/// Runs a call on the started library; panics and errors become codes.
pub(crate) fn call(act: impl FnOnce(&mut World) -> Result<(), Code>) -> u32 {
    guard(|world| {
        if world.starts == 0 {
            return Err(Code::Uninitialized);
        }
        world.refresh();
        act(world)
    })
}

/// Starts the library. As NVIDIA's does, it counts the starts.
pub(crate) fn start() -> u32 {
    guard(|world| {
        world.refresh();
        let fault = world.machine()?.fault;
        match fault {
            Some(MachineFault::NoDriver) => Err(Code::DriverNotLoaded),
            Some(MachineFault::VersionMismatch) => Err(Code::LibRmVersionMismatch),
            Some(MachineFault::Unknown) => Err(Code::Unknown),
            None => {
                world.starts += 1;
                Ok(())
            }
        }
    })
}

/// Takes back one start.
pub(crate) fn stop() -> u32 {
    guard(|world| {
        world.starts = world.starts.checked_sub(1).ok_or(Code::Uninitialized)?;
        Ok(())
    })
}

fn guard(act: impl FnOnce(&mut World) -> Result<(), Code>) -> u32 {
    let result = catch_unwind(AssertUnwindSafe(|| act(&mut lock())));
    match result {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(code)) => code as u32,
        Err(_) => Code::Unknown as u32,
    }
}

fn lock() -> MutexGuard<'static, World> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    const fn new() -> Self {
        Self {
            starts: 0,
            stamp: None,
            machine: Err(Code::Unknown),
            handles: Vec::new(),
            sets: BTreeMap::new(),
            next_set: 1,
        }
    }

    /// Returns the machine, or why there is none.
    pub(crate) fn machine(&self) -> Result<&Machine, Code> {
        self.machine.as_ref().map_err(|code| *code)
    }

    /// Lists the devices that are enumerated, with their numbers in the file.
    pub(crate) fn enumerated(&self) -> Result<Vec<(usize, &Device)>, Code> {
        let devices = self.machine()?.devices.iter().enumerate();
        Ok(devices.filter(|(_, device)| device.fault != Some(DeviceFault::Absent)).collect())
    }

    /// Returns the handle of a device that answers.
    pub(crate) fn handle(&mut self, uuid: &str) -> Result<Handle, Code> {
        let device =
            self.machine()?.devices.iter().find(|device| device.uuid == uuid).ok_or(Code::NotFound)?;
        answers(device)?;
        let number = self.handles.iter().position(|known| known == uuid).unwrap_or_else(|| {
            self.handles.push(uuid.to_owned());
            self.handles.len() - 1
        });
        Ok(std::ptr::without_provenance_mut::<c_void>((number + 1) << 4))
    }

    /// Finds the device behind a handle, with its number in the file, if it answers.
    pub(crate) fn device(&self, handle: Handle) -> Result<(usize, &Device), Code> {
        let number = (handle.addr() >> 4).checked_sub(1).ok_or(Code::InvalidArgument)?;
        let uuid =
            self.handles.get(number).filter(|_| handle.addr() & 15 == 0).ok_or(Code::InvalidArgument)?;
        let mut devices = self.machine()?.devices.iter().enumerate();
        let found = devices.find(|(_, device)| device.uuid == *uuid).ok_or(Code::GpuIsLost)?;
        answers(found.1)?;
        Ok(found)
    }

    /// Lends the machine and an event set's watches.
    pub(crate) fn machine_and_set(&mut self, set: usize) -> Result<(&Machine, &mut Vec<Watch>), Code> {
        let machine = self.machine.as_ref().map_err(|code| *code)?;
        Ok((machine, self.sets.get_mut(&set).ok_or(Code::InvalidArgument)?))
    }

    pub(crate) fn new_set(&mut self) -> Handle {
        let id = self.next_set << 4;
        self.next_set += 1;
        self.sets.insert(id, Vec::new());
        std::ptr::without_provenance_mut(id)
    }

    /// Reads the file again if it has changed.
    fn refresh(&mut self) {
        let Some(path) = description() else {
            self.machine = Err(Code::DriverNotLoaded);
            eprintln!("fake-nvml: no machine: set FAKE_NVML_MACHINE, or put machine.toml beside the library");
            return;
        };
        let stamp = fs::metadata(&path).ok().map(|m| (m.dev(), m.ino(), m.size(), m.mtime(), m.mtime_nsec()));
        if stamp.is_some() && stamp == self.stamp {
            return;
        }
        self.stamp = stamp;
        self.machine = read(&path).map_err(|problem| {
            eprintln!("fake-nvml: {}: {problem}", path.display());
            Code::Unknown
        });
    }
}

fn answers(device: &Device) -> Result<(), Code> {
    match device.fault {
        None => Ok(()),
        Some(DeviceFault::Lost | DeviceFault::Absent) => Err(Code::GpuIsLost),
        Some(DeviceFault::ResetRequired) => Err(Code::ResetRequired),
        Some(DeviceFault::NoPermission) => Err(Code::NoPermission),
    }
}

fn read(path: &Path) -> Result<Machine, String> {
    machine::read(&fs::read_to_string(path).map_err(|error| error.to_string())?)
}

/// Finds the description: `FAKE_NVML_MACHINE`, or `machine.toml` beside the library. A copy of the library with
/// its own description is a machine of its own; one process may load several.
fn description() -> Option<PathBuf> {
    if let Some(path) = env::var_os("FAKE_NVML_MACHINE").filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    let beside = library()?.with_file_name("machine.toml");
    beside.exists().then_some(beside)
}

/// Asks the loader where this library was loaded from.
fn library() -> Option<PathBuf> {
    // SAFETY: the struct is pointers, for which zero is a value; on success the name is a string of the loader's that
    // lives as long as the library is loaded.
    unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        let within = std::ptr::from_ref(&WORLD).cast();
        if libc::dladdr(within, &mut found) == 0 || found.dli_fname.is_null() {
            return None;
        }
        Some(PathBuf::from(OsStr::from_bytes(CStr::from_ptr(found.dli_fname).to_bytes())))
    }
}
