//! The device files of GPUs.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use divvy_core::action::ExposedDevice;

/// A GPU's character device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeviceFile {
    /// N of `/dev/nvidiaN`.
    pub(crate) number: u32,
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

/// Lists the GPUs that have a device file. The control devices (`nvidiactl`, `nvidia-uvm`) are no GPUs.
pub(crate) fn list(folder: &Path) -> Vec<DeviceFile> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<DeviceFile> = entries.flatten().filter_map(|entry| identify(&entry)).collect();
    found.sort_unstable();
    found
}

fn identify(entry: &fs::DirEntry) -> Option<DeviceFile> {
    let number = entry.file_name().to_str()?.strip_prefix("nvidia")?.parse().ok()?;
    let metadata = entry.metadata().ok()?;
    let device = metadata.rdev();
    metadata.file_type().is_char_device().then(|| DeviceFile {
        number,
        major: rustix::fs::major(device),
        minor: rustix::fs::minor(device),
    })
}

/// Returns the device files that a task must not open: all GPUs' but its own.
pub(crate) fn denied(all: &[DeviceFile], exposed: &[ExposedDevice]) -> Vec<DeviceFile> {
    let own: BTreeSet<u32> = exposed.iter().filter_map(|device| device.minor).collect();
    all.iter().filter(|device| !own.contains(&device.number)).copied().collect()
}

/// Returns why access to GPUs rests on good will whatever the kernel can do; `None` where it need not.
pub(crate) fn why_advisory(all: &[DeviceFile], exposed: &[ExposedDevice]) -> Option<String> {
    if exposed.iter().any(|device| device.minor.is_none()) {
        return Some("pretended devices".into());
    }
    let has_file = |number: u32| all.iter().any(|device| device.number == number);
    let missing = exposed.iter().filter_map(|device| device.minor).find(|number| !has_file(*number))?;
    Some(format!("GPU access is not restricted: /dev/nvidia{missing} does not exist"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_core::model::device::Draw;

    fn exposed(minor: Option<u32>) -> ExposedDevice {
        ExposedDevice {
            uuid: "GPU-1".into(),
            minor,
            draw: Draw { milli: 1000, memory_mib: 1, partition: None },
        }
    }

    fn file(number: u32) -> DeviceFile {
        DeviceFile { number, major: 195, minor: number }
    }

    #[test]
    fn all_but_the_tasks_own_devices_are_denied() {
        let all = [file(0), file(1), file(2)];
        assert_eq!(denied(&all, &[exposed(Some(1))]), [file(0), file(2)]);
        assert_eq!(denied(&all, &[]), all);
    }

    #[test]
    fn pretended_and_missing_devices_are_said_to_be_advisory() {
        assert_eq!(why_advisory(&[], &[exposed(None)]).as_deref(), Some("pretended devices"));
        assert!(why_advisory(&[file(0)], &[exposed(Some(3))]).unwrap().contains("/dev/nvidia3"));
        assert_eq!(why_advisory(&[file(3)], &[exposed(Some(3))]), None);
        assert_eq!(why_advisory(&[], &[]), None);
    }
}
