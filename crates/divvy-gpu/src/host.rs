//! What the host itself has: CPUs, memory, NUMA nodes, name and boot id, as far as this process may use them.

mod cgroup;
mod cpulist;
mod numa;

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::{NumaNode, printable};

/// What the host has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) hostname: String,
    pub(crate) boot_id: String,
    pub(crate) cpus: u32,
    pub(crate) memory_bytes: u64,
    pub(crate) numa: Vec<NumaNode>,
}

/// Says which file of the kernel could not be read.
#[derive(Debug, thiserror::Error)]
#[error("finding out what this machine has: can't read {}: {source}; /proc and /sys must be mounted", path.display())]
pub struct HostError {
    /// The file.
    path: PathBuf,
    source: io::Error,
}

/// Finds out what the machine under this process has.
pub(crate) fn discover() -> Result<Host, HostError> {
    discover_under(Path::new("/"))
}

/// Returns the kernel's boot id; `DIVVY_BOOT_ID` replaces it, so that a reboot can be rehearsed.
pub fn boot_id() -> Result<String, HostError> {
    boot_id_or(std::env::var("DIVVY_BOOT_ID").ok())
}

fn boot_id_or(replacement: Option<String>) -> Result<String, HostError> {
    match replacement {
        Some(id) if !id.is_empty() => Ok(printable(&id)),
        _ => read(Path::new("/proc/sys/kernel/random/boot_id")).map(|id| id.trim().to_owned()),
    }
}

/// Reads the files of a machine that is mounted at `root`.
fn discover_under(root: &Path) -> Result<Host, HostError> {
    let allowed = allowed_cpus(root)?;
    let limits = cgroup::limits(root);
    let present_bytes = memory_bytes(root)?;
    let memory_bytes = limits.memory_bytes.map_or(present_bytes, |limit| limit.min(present_bytes));
    let affinity = allowed.len().max(1) as u64;
    let cpus = limits.cpu_milli.map_or(affinity, |quota| (quota / 1000).clamp(1, affinity)) as u32;
    let nodes = numa::nodes(root, &allowed, present_bytes);
    let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Ok(Host {
        hostname: printable(&hostname),
        boot_id: boot_id()?,
        cpus,
        memory_bytes,
        numa: numa::shares(nodes, cpus, memory_bytes),
    })
}

/// Reads the CPUs of this process's affinity. The file has no limit of 1024 CPUs, unlike the call in most libraries.
fn allowed_cpus(root: &Path) -> Result<Vec<u32>, HostError> {
    let status = read(&root.join("proc/self/status"))?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or("0");
    Ok(cpulist::parse(list))
}

fn memory_bytes(root: &Path) -> Result<u64, HostError> {
    let meminfo = read(&root.join("proc/meminfo"))?;
    Ok(meminfo.lines().find_map(|line| kib_after(line, "MemTotal:")).unwrap_or(0) * 1024)
}

/// Reads the number from lines such as `MemTotal:  16384 kB` and `Node 0 MemTotal:  16384 kB`.
fn kib_after(line: &str, label: &str) -> Option<u64> {
    let (_, rest) = line.split_once(label)?;
    rest.split_whitespace().next()?.parse().ok()
}

fn read(path: &Path) -> Result<String, HostError> {
    fs::read_to_string(path).map_err(|source| HostError { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests;
