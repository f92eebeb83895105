//! Control groups of version 1: one hierarchy per controller.

use std::fs;
use std::path::{Path, PathBuf};

use divvy_core::id::AllocationId;

use super::{Group, Limits, Mount, Parents, set};

/// The period in which a quota of processor time is counted, in µs; the kernel's own default.
const PERIOD_US: i64 = 100_000;
/// The lowest quota that the kernel accepts, in µs.
const LEAST_QUOTA_US: i64 = 1000;

/// Makes the pool's parents below the daemon's own groups, so that the daemon's limits hold for its jobs too.
pub(super) fn find(mounts: &str, own: &str, name: &str) -> Option<Parents> {
    let parent = |controller: &str| {
        let (mount, own) = Mount::find(mounts, own, "cgroup", controller)?;
        make_below(&own, name).or_else(|| make_below(&mount.directory, name))
    };
    Some(Parents::Legacy { memory: parent("memory")?, cpu: parent("cpu"), devices: parent("devices") })
}

fn make_below(directory: &Path, name: &str) -> Option<PathBuf> {
    let parent = directory.join(name);
    let is_there = fs::create_dir(&parent).is_ok() || parent.is_dir();
    let is_ours = rustix::fs::access(&parent, rustix::fs::Access::WRITE_OK).is_ok();
    (is_there && is_ours).then_some(parent)
}

/// Makes the group of a task: memory's always, for the list of processes and the peak; the others if they restrict.
pub(super) fn make(
    parents: [Option<&PathBuf>; 3],
    allocation: AllocationId,
    limits: &Limits,
) -> Option<Group> {
    let [memory, cpu, devices] = parents;
    let memory = group(memory?, allocation).ok()?;
    let mut made =
        Group { directories: vec![memory], is_unified: false, memory_bytes: 0, shortfalls: Vec::new() };
    if limits.memory_bytes > 0 {
        match limit_memory(&made.directories[0], limits.memory_bytes) {
            Ok(()) => made.memory_bytes = limits.memory_bytes,
            Err(why) => made.shortfalls.push(format!("memory is not limited: {why}")),
        }
    }
    if limits.cpu_milli > 0 {
        let limited = restrict(&mut made, cpu, allocation, |directory| limit_cpu(directory, limits));
        limited.unwrap_or_else(|why| made.shortfalls.push(format!("cores are not divided: {why}")));
    }
    if !limits.denied.is_empty() {
        let restricted = restrict(&mut made, devices, allocation, |directory| {
            limits.denied.iter().try_for_each(|device| {
                set(directory, "devices.deny", &format!("c {}:{} rwm", device.major, device.minor))
            })
        });
        restricted.unwrap_or_else(|why| made.shortfalls.push(format!("GPU access is not restricted: {why}")));
    }
    Some(made)
}

fn group(parent: &Path, allocation: AllocationId) -> Result<PathBuf, String> {
    let directory = parent.join(allocation.to_string());
    // Left over from a crash, with the old limits and counters: an empty one goes, a full one is someone's.
    let _ = fs::remove_dir(&directory);
    // Makes the parent too, in case somebody removed it while it was empty.
    fs::create_dir_all(&directory).map_err(|error| format!("making {}: {error}", directory.display()))?;
    Ok(directory)
}

/// Adds the group of a further controller.
fn restrict(
    made: &mut Group,
    parent: Option<&PathBuf>,
    allocation: AllocationId,
    apply: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<(), String> {
    let directory =
        group(parent.ok_or("the kernel's controller for it is not mounted or not writable")?, allocation)?;
    let applied = apply(&directory);
    made.directories.push(directory);
    applied
}

fn limit_memory(directory: &Path, bytes: i64) -> Result<(), String> {
    set(directory, "memory.limit_in_bytes", &bytes.to_string())?;
    // Swap would only hide the limit. The file is absent where the kernel does not account it.
    let _ = set(directory, "memory.memsw.limit_in_bytes", &bytes.to_string());
    Ok(())
}

fn limit_cpu(directory: &Path, limits: &Limits) -> Result<(), String> {
    // The kernel's default group has 1024 shares; the minimum is 2.
    let shares = (limits.cpu_milli.saturating_mul(1024) / 1000).clamp(2, 262_144);
    set(directory, "cpu.shares", &shares.to_string())?;
    if !limits.cpu_is_ceiling {
        return Ok(());
    }
    let quota_us = (limits.cpu_milli.saturating_mul(PERIOD_US) / 1000).max(LEAST_QUOTA_US);
    set(directory, "cpu.cfs_period_us", &PERIOD_US.to_string())?;
    set(directory, "cpu.cfs_quota_us", &quota_us.to_string())
}
