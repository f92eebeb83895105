//! The machine that was measured, so that figures can be compared.

use std::fmt;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

/// What a reader must know of the machine.
#[derive(Serialize)]
pub(super) struct Machine {
    cpu: String,
    cpus: usize,
    memory_mib: u64,
    kernel: String,
    /// What the state and the log lay on.
    disk: String,
    /// Runnable programs in the minute before: if far above 0, the figures are those of a busy machine.
    load_before: f64,
}

/// Describes this machine, and the disk below a path.
pub(super) fn describe(path: &Path) -> Result<Machine> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let meminfo = read("/proc/meminfo");
    let kib =
        field(&meminfo, "MemTotal:").and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    Ok(Machine {
        cpu: field(&read("/proc/cpuinfo"), "model name")
            .unwrap_or("unknown")
            .trim_start_matches([':', ' ', '\t'])
            .to_owned(),
        cpus: std::thread::available_parallelism()?.get(),
        memory_mib: kib.unwrap_or(0) / 1024,
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        disk: disk(&read("/proc/self/mounts"), &path.canonicalize()?),
        load_before: read("/proc/loadavg")
            .split(' ')
            .next()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0.0),
    })
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Device and kind of the file system that a path lies on: of all mounts above it, the deepest.
fn disk(mounts: &str, path: &Path) -> String {
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        Some((words.next()?, words.next()?, words.next()?))
    });
    let above = mounts.filter(|(_, place, _)| path.starts_with(place));
    let deepest = above.max_by_key(|(_, place, _)| place.len());
    deepest.map_or_else(|| "unknown".to_owned(), |(device, _, kind)| format!("{kind} on {device}"))
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gib = self.memory_mib / 1024;
        write!(f, "{} × {}, {gib} GiB, Linux {}, {}", self.cpus, self.cpu, self.kernel, self.disk)?;
        write!(f, "; load before: {:.2}", self.load_before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_is_that_of_the_deepest_mount_above() {
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n";
        assert_eq!(disk(mounts, Path::new("/tmp/x")), "tmpfs on tmpfs");
        assert_eq!(disk(mounts, Path::new("/tmpx")), "ext4 on /dev/vda");
    }
}
