//! Control groups of version 2: one tree for all controllers.

use std::fs;
use std::path::{Path, PathBuf};

use divvy_core::id::AllocationId;

use super::{Group, Limits, Mount, Parents, program, set};

/// The controllers that are wanted below the parent.
const WANTED: [&str; 2] = ["memory", "cpu"];

/// Makes the pool's parent where its groups can have controllers, or else where groups can be made at all.
///
/// Tried in turn: the daemon's own group (a unit with `Delegate=yes`), those above it as far as they may be written
/// (a user's delegated subtree), and for root the top.
pub(super) fn find(mounts: &str, own: &str, name: &str) -> Option<Parents> {
    let (mount, own) = Mount::find(mounts, own, "cgroup2", "")?;
    let is_root = rustix::process::geteuid().is_root();
    let above = own.ancestors().take_while(|at| at.starts_with(&mount.directory) && *at != mount.directory);
    let mut places: Vec<&Path> = above.take(if is_root { 1 } else { usize::MAX }).collect();
    if is_root {
        places.push(&mount.directory);
    }
    let mut best: Option<(PathBuf, Vec<String>)> = None;
    for place in places {
        let Some((parent, controllers)) = make_below(place, place == own, name) else { continue };
        if best.as_ref().is_none_or(|(_, most)| controllers.len() > most.len()) {
            if let Some((worse, _)) = best.replace((parent, controllers)) {
                let _ = fs::remove_dir(worse);
            }
        } else {
            let _ = fs::remove_dir(parent);
        }
    }
    best.map(|(directory, controllers)| Parents::Unified { directory, controllers })
}

fn make_below(place: &Path, is_own: bool, name: &str) -> Option<(PathBuf, Vec<String>)> {
    enable(place);
    if is_own && enabled(place).is_empty() && step_aside(place).is_some() {
        enable(place);
    }
    let parent = place.join(name);
    let is_there = fs::create_dir(&parent).is_ok() || parent.is_dir();
    rustix::fs::access(&parent, rustix::fs::Access::WRITE_OK).ok().filter(|()| is_there)?;
    enable(&parent);
    let controllers = enabled(&parent);
    Some((parent, controllers))
}

/// A group with controllers below it must hold no process itself. If the daemon is alone in its own, it moves one
/// level down.
fn step_aside(own: &Path) -> Option<()> {
    let me = std::process::id().to_string();
    let listed = fs::read_to_string(own.join("cgroup.procs")).ok()?;
    (listed.trim() == me).then_some(())?;
    let leaf = own.join("divvy-daemon");
    if !leaf.is_dir() {
        fs::create_dir(&leaf).ok()?;
    }
    fs::write(leaf.join("cgroup.procs"), me).ok()
}

fn enable(directory: &Path) {
    for controller in WANTED {
        // One by one: a controller that is not available must not keep the other out.
        let _ = fs::write(directory.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

fn enabled(directory: &Path) -> Vec<String> {
    let listed = fs::read_to_string(directory.join("cgroup.subtree_control")).unwrap_or_default();
    listed.split_ascii_whitespace().filter(|name| WANTED.contains(name)).map(str::to_owned).collect()
}

/// Makes the group of a task.
pub(super) fn make(
    parent: &Path,
    controllers: &[String],
    allocation: AllocationId,
    limits: &Limits,
) -> Option<Group> {
    let directory = parent.join(allocation.to_string());
    // Left over from a crash, with the old limits and counters.
    let _ = fs::remove_dir(&directory);
    fs::create_dir(&directory).ok()?;
    let mut made = Group {
        directories: vec![directory.clone()],
        is_unified: true,
        memory_bytes: 0,
        shortfalls: Vec::new(),
    };
    let has = |name: &str| match controllers.iter().any(|controller| controller == name) {
        true => Ok(()),
        false => Err(format!("the {name} controller is not delegated")),
    };
    if limits.memory_bytes > 0 {
        match has("memory").and_then(|()| limit_memory(&directory, limits.memory_bytes)) {
            Ok(()) => made.memory_bytes = limits.memory_bytes,
            Err(why) => made.shortfalls.push(format!("memory is not limited: {why}")),
        }
    }
    if limits.cpu_milli > 0 {
        let limited = has("cpu").and_then(|()| limit_cpu(&directory, limits));
        limited.unwrap_or_else(|why| made.shortfalls.push(format!("cores are not divided: {why}")));
    }
    if !limits.denied.is_empty()
        && let Err(error) = program::deny(&directory, &limits.denied)
    {
        made.shortfalls.push(format!("GPU access is not restricted: attaching a device program: {error}"));
    }
    Some(made)
}

fn limit_memory(directory: &Path, bytes: i64) -> Result<(), String> {
    set(directory, "memory.max", &bytes.to_string())?;
    // Swap would only hide the limit, and a tree that lost one process is of no use. Both may be absent.
    let _ = set(directory, "memory.swap.max", "0");
    let _ = set(directory, "memory.oom.group", "1");
    Ok(())
}

fn limit_cpu(directory: &Path, limits: &Limits) -> Result<(), String> {
    // The kernel's default weight, 100, for each core.
    let weight = (limits.cpu_milli / 10).clamp(1, 10_000);
    set(directory, "cpu.weight", &weight.to_string())?;
    if !limits.cpu_is_ceiling {
        return Ok(());
    }
    // In the kernel's default period of 100 ms; it takes no quota below 1 ms.
    let quota_us = limits.cpu_milli.saturating_mul(100).max(1000);
    set(directory, "cpu.max", &format!("{quota_us} 100000"))
}
