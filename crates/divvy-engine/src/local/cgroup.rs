//! Control groups: a task's limits, its list of processes, its end, its peak memory, and the devices it may open.
//!
//! Version 1 is used where its memory controller is mounted, version 2 elsewhere. The supervisor makes its task's
//! group below a parent that the daemon has found. The launch record names the parent, so that a cleanup after a
//! crash knows where to look.

mod legacy;
mod program;
mod unified;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use divvy_core::id::AllocationId;
use serde::{Deserialize, Serialize};

use super::devices::DeviceFile;

/// Where the groups of a pool's tasks are made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Parents {
    /// Version 1: one directory per controller, absent where the controller is.
    Legacy { memory: PathBuf, cpu: Option<PathBuf>, devices: Option<PathBuf> },
    /// Version 2, and the controllers that groups below it have.
    Unified { directory: PathBuf, controllers: Vec<String> },
    /// None, and why.
    Nowhere(String),
}

/// The limits of a task's group; 0 and empty restrict nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) memory_bytes: i64,
    pub(crate) cpu_milli: i64,
    /// Whether the cores are a ceiling even when nobody else wants them.
    pub(crate) cpu_is_ceiling: bool,
    /// The device files that it must not open.
    pub(crate) denied: Vec<DeviceFile>,
}

/// The group of one task.
#[derive(Debug)]
pub(crate) struct Group {
    /// Its directories: one in version 2; in version 1 the first is memory's.
    directories: Vec<PathBuf>,
    is_unified: bool,
    memory_bytes: i64,
    /// Which limits are missing, and why.
    pub(crate) shortfalls: Vec<String>,
}

/// How a new process gets into a group.
#[derive(Debug)]
pub(crate) enum Entrance {
    /// The process writes itself into these files. (A thread that moves itself takes no lock over all forks of the
    /// machine; moving another process does, and costs milliseconds.)
    Files(Vec<fs::File>),
    /// It is cloned into this directory.
    Directory(OwnedFd),
    /// There is no group.
    None,
}

impl Parents {
    /// Finds, and makes, the place for the groups of the pool that has its state in `state`.
    pub(crate) fn find(state: &Path) -> Self {
        let name = pool_name(state);
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        legacy::find(&mounts, &own, &name)
            .or_else(|| unified::find(&mounts, &own, &name))
            .unwrap_or_else(|| Self::Nowhere(why_nowhere()))
    }

    /// Makes the group of a task. Limits that cannot be set are in its shortfalls.
    pub(crate) fn make(&self, allocation: AllocationId, limits: &Limits) -> Option<Group> {
        match self {
            Self::Legacy { memory, cpu, devices } => {
                legacy::make([Some(memory), cpu.as_ref(), devices.as_ref()], allocation, limits)
            }
            Self::Unified { directory, controllers } => {
                unified::make(directory, controllers, allocation, limits)
            }
            Self::Nowhere(_) => None,
        }
    }

    /// Returns the group of a task, if it has one.
    pub(crate) fn existing(&self, allocation: AllocationId) -> Option<Group> {
        let directories = self.directories().map(|parent| parent.join(allocation.to_string()));
        let directories: Vec<PathBuf> = directories.filter(|directory| directory.is_dir()).collect();
        let is_unified = matches!(self, Self::Unified { .. });
        (!directories.is_empty()).then(|| Group {
            directories,
            is_unified,
            memory_bytes: 0,
            shortfalls: Vec::new(),
        })
    }

    /// Removes the empty groups of tasks that are not among `alive`, left over from crashes.
    pub(crate) fn clean(&self, alive: &BTreeSet<AllocationId>) {
        for entry in self.directories().filter_map(|parent| fs::read_dir(parent).ok()).flatten().flatten() {
            let name = entry.file_name();
            let allocation = name.to_str().and_then(|name| name.parse().ok()).map(AllocationId);
            if allocation.is_some_and(|allocation| !alive.contains(&allocation)) {
                let _ = fs::remove_dir(entry.path());
            }
        }
    }

    /// Removes the pool's own parents, if nothing is below them; the next daemon makes them again.
    pub(crate) fn remove(&self) {
        for directory in self.directories() {
            let _ = fs::remove_dir(directory);
        }
    }

    fn directories(&self) -> impl Iterator<Item = &PathBuf> {
        let (first, second, third) = match self {
            Self::Legacy { memory, cpu, devices } => (Some(memory), cpu.as_ref(), devices.as_ref()),
            Self::Unified { directory, .. } => (Some(directory), None, None),
            Self::Nowhere(_) => (None, None, None),
        };
        first.into_iter().chain(second).chain(third)
    }
}

impl Group {
    /// Opens the way into the group.
    pub(crate) fn entrance(&self) -> io::Result<Entrance> {
        if self.is_unified {
            return Ok(Entrance::Directory(fs::File::open(&self.directories[0])?.into()));
        }
        let open = |directory: &PathBuf| fs::OpenOptions::new().write(true).open(directory.join("tasks"));
        Ok(Entrance::Files(self.directories.iter().map(open).collect::<io::Result<_>>()?))
    }

    /// Kills all processes in it.
    pub(crate) fn kill(&self) {
        if self.is_unified && fs::write(self.directories[0].join("cgroup.kill"), "1").is_ok() {
            return;
        }
        for pid in self.pids() {
            super::tree::send(pid, libc::SIGKILL);
        }
    }

    /// Lists the processes in it.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let listed = fs::read_to_string(self.directories[0].join("cgroup.procs")).unwrap_or_default();
        listed.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Returns the most memory that was in use at once, in bytes.
    pub(crate) fn peak_bytes(&self) -> Option<i64> {
        let file = if self.is_unified { "memory.peak" } else { "memory.max_usage_in_bytes" };
        read_number(&self.directories[0].join(file))
    }

    /// Returns peak and limit if the kernel killed processes of it at its limit.
    pub(crate) fn out_of_memory(&self) -> Option<(i64, i64)> {
        let file = if self.is_unified { "memory.events" } else { "memory.oom_control" };
        let text = fs::read_to_string(self.directories[0].join(file)).ok()?;
        let killed =
            text.lines().filter_map(|line| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok());
        (self.memory_bytes > 0 && killed.sum::<u64>() > 0)
            .then(|| (self.peak_bytes().unwrap_or(self.memory_bytes), self.memory_bytes))
    }

    /// Removes it; it must be empty.
    pub(crate) fn remove(&self) {
        for directory in &self.directories {
            let _ = fs::remove_dir(directory);
        }
    }
}

/// Returns a name for the pool's groups that differs from those of other pools. (FNV-1a: enough for a handful of
/// paths, and the same in every version.)
fn pool_name(state: &Path) -> String {
    let bytes = state.as_os_str().as_encoded_bytes().iter();
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("divvy-{hash:016x}")
}

fn why_nowhere() -> String {
    match rustix::process::geteuid().is_root() {
        true => "no control group can be made below /sys/fs/cgroup".into(),
        false => "no control group: not root, and no delegated subtree".into(),
    }
}

fn read_number(path: &Path) -> Option<i64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Writes into a file of the control group's filesystem, and says which if it cannot.
fn set(directory: &Path, file: &str, value: &str) -> Result<(), String> {
    fs::write(directory.join(file), value)
        .map_err(|error| format!("writing {value} to {file} of its group: {error}"))
}

/// Finds where a hierarchy is mounted and where this process is in it.
struct Mount {
    directory: PathBuf,
}

impl Mount {
    /// `kind` is `cgroup` or `cgroup2`; `controller` is empty for version 2.
    fn find(mounts: &str, own: &str, kind: &str, controller: &str) -> Option<(Self, PathBuf)> {
        let line = mounts.lines().find(|line| is_mount_of(line, kind, controller))?;
        let mut fields = line.split(' ').skip(3);
        let (root, directory) = (fields.next()?, PathBuf::from(fields.next()?));
        let group = own.lines().find_map(|line| own_group(line, controller))?;
        let inside = group.strip_prefix(root).unwrap_or(group).trim_start_matches('/');
        let own = directory.join(inside);
        let own = if own.is_dir() { own } else { directory.clone() };
        Some((Self { directory }, own))
    }
}

fn is_mount_of(line: &str, kind: &str, controller: &str) -> bool {
    let Some((_, after)) = line.split_once(" - ") else { return false };
    let mut fields = after.split(' ');
    let is_kind = fields.next() == Some(kind);
    is_kind && (controller.is_empty() || fields.nth(1).is_some_and(|o| o.split(',').any(|o| o == controller)))
}

/// A line of `/proc/self/cgroup`: `4:memory:/path`, or `0::/path` for version 2.
fn own_group<'a>(line: &'a str, controller: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(':')?;
    let (controllers, path) = rest.split_once(':')?;
    controllers.split(',').any(|name| name == controller).then_some(path)
}

#[cfg(test)]
mod tests;
