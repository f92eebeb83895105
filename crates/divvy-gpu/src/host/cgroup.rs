//! Limits that control groups, of either version, put on this process.

use std::fs;
use std::path::{Path, PathBuf};

/// The lowest limits between this process's group and the root of the mount.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// CPU quota: 1000 is one CPU's full time.
    pub(super) cpu_milli: Option<u64>,
    pub(super) memory_bytes: Option<u64>,
}

/// The hierarchy of a controller, and where it is mounted.
struct Hierarchy {
    /// The mount point, under the root that is looked at.
    mounted: PathBuf,
    /// The group within the hierarchy that appears as the root of the mount.
    shown: String,
    /// This process's group.
    group: String,
}

/// Reads the limits. What is missing or can't be read limits nothing: a kernel without cgroups is a valid machine.
pub(super) fn limits(root: &Path) -> Limits {
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let unified = hierarchy(root, &mounts, &groups, "");
    let cpu = hierarchy(root, &mounts, &groups, "cpu");
    let memory = hierarchy(root, &mounts, &groups, "memory");
    Limits {
        cpu_milli: lowest(&unified, cpu_v2).into_iter().chain(lowest(&cpu, cpu_v1)).min(),
        memory_bytes: lowest(&unified, memory_v2).into_iter().chain(lowest(&memory, memory_v1)).min(),
    }
}

/// Finds where `controller` is mounted and this process's group in it; the empty name is version 2.
fn hierarchy(root: &Path, mounts: &str, groups: &str, controller: &str) -> Option<Hierarchy> {
    let group = groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_it =
            if controller.is_empty() { number == "0" } else { names.split(',').any(|n| n == controller) };
        is_it.then(|| path.to_owned())
    })?;
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1)?);
        let is_it = match kind {
            "cgroup2" => controller.is_empty(),
            "cgroup" => !controller.is_empty() && options.split(',').any(|option| option == controller),
            _ => false,
        };
        let mut left = left.split(' ').skip(3);
        let (shown, mounted) = (left.next()?, left.next()?);
        is_it.then(|| Hierarchy {
            mounted: root.join(mounted.trim_start_matches('/')),
            shown: shown.to_owned(),
            group: group.clone(),
        })
    })
}

/// Returns the lowest limit that `read` finds from the process's group up to the mount point.
fn lowest(hierarchy: &Option<Hierarchy>, read: fn(&Path) -> Option<u64>) -> Option<u64> {
    let hierarchy = hierarchy.as_ref()?;
    // In a container without a cgroup namespace the mount shows the container's group as its root, while the
    // process's path still starts at the host's.
    let group =
        hierarchy.group.strip_prefix(hierarchy.shown.trim_end_matches('/')).unwrap_or(&hierarchy.group);
    let deepest = hierarchy.mounted.join(group.trim_start_matches('/'));
    deepest.ancestors().take_while(|folder| folder.starts_with(&hierarchy.mounted)).filter_map(read).min()
}

fn cpu_v2(folder: &Path) -> Option<u64> {
    let text = fs::read_to_string(folder.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    milli(quota.parse().ok()?, period.parse().ok()?)
}

fn cpu_v1(folder: &Path) -> Option<u64> {
    milli(number(&folder.join("cpu.cfs_quota_us"))?, number(&folder.join("cpu.cfs_period_us"))?)
}

fn milli(quota_us: u64, period_us: u64) -> Option<u64> {
    quota_us.saturating_mul(1000).checked_div(period_us)
}

fn memory_v2(folder: &Path) -> Option<u64> {
    number(&folder.join("memory.max"))
}

fn memory_v1(folder: &Path) -> Option<u64> {
    number(&folder.join("memory.limit_in_bytes"))
}

/// Reads a number; `max` and `-1` give `None`, which means no limit.
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
