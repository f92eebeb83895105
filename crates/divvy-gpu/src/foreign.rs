//! Devices that should be free but are used by somebody outside Divvy.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

use crate::{DeviceProcess, DeviceSample, ProcessKind, printable};

/// A compute process with no more device memory than this does not make a device foreign, in MiB: monitors that open a
/// context to look at a device hold a few MiB, while the context of a program that computes is larger.
pub const COMPUTE_FLOOR_MIB: u64 = 64;

/// Returns how much memory may be in use by no visible process before a device counts as used by an unseen one.
///
/// Drivers from 510 on report their own reserve separately, and an idle device then shows 0 to 5 MiB in use. Older
/// drivers, and some virtual devices, count the reserve as used: 300 MiB on a 16 GB device and up to 600 MiB on an 80
/// GB one, since page tables and ECC bookkeeping grow with the memory. An unseen process, on the other hand, has a
/// context (300 to 600 MiB) plus the model that it was opened for, which is rarely below a GiB. Hence 1 GiB, or 1/128
/// of the memory where that is more (devices above 128 GiB).
pub fn unseen_slack_mib(memory_total_mib: u64) -> u64 {
    (memory_total_mib / 128).max(1024)
}

/// Who uses a device that Divvy has given to nobody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "occupancy")]
pub enum Occupancy {
    /// Nobody.
    Free,
    /// A process outside Divvy; if there are several, the one with the most memory.
    Foreign {
        /// The process.
        pid: u32,
        /// Its owner's name, or the uid if it has no name; `None` if the process is not visible from here.
        user: Option<String>,
        /// Its command's name, printable; `None` if the process is not visible from here.
        command: Option<String>,
        /// Device memory it holds, in MiB, where the driver tells.
        memory_mib: Option<u64>,
    },
    /// Memory is in use, but by no visible process.
    ForeignUnknown {
        /// How much of it, in MiB.
        memory_mib: u64,
        /// What a person can do about it.
        remedy: String,
    },
}

/// Returns who uses a device that should be free. `ours` are the processes that Divvy started, dying ones included.
pub fn occupancy(sample: &DeviceSample, ours: &BTreeSet<u32>) -> Occupancy {
    let strangers = sample.processes.iter().filter(|process| !ours.contains(&process.pid));
    let computing =
        strangers.filter(|process| may_count(process)).filter_map(identify).max_by_key(|one| one.rank());
    match computing {
        Some(stranger) => stranger.into_occupancy(),
        None => unseen(sample),
    }
}

fn may_count(process: &DeviceProcess) -> bool {
    // A process of unknown size counts: where the driver tells no sizes, missing a stranger costs somebody's job.
    let is_large = process.used_memory_mib.is_none_or(|mib| mib > COMPUTE_FLOOR_MIB);
    process.kind == ProcessKind::Compute && is_large
}

/// A process outside Divvy.
struct Stranger {
    process: DeviceProcess,
    user: Option<String>,
    command: Option<String>,
}

/// Looks a process up; `None` for one that belongs to the machine.
fn identify(process: &DeviceProcess) -> Option<Stranger> {
    let folder = format!("/proc/{}", process.pid);
    let command = fs::read(format!("{folder}/comm")).ok();
    let command = command.map(|name| printable(String::from_utf8_lossy(&name).trim_end_matches('\n')));
    if command.as_deref().is_some_and(belongs_to_the_machine) {
        return None;
    }
    let user = fs::metadata(&folder).ok().map(|metadata| user_name(metadata.uid()));
    Some(Stranger { process: process.clone(), user, command })
}

impl Stranger {
    /// The largest first; among equals the one with the lowest pid, so that the answer does not flicker.
    fn rank(&self) -> (u64, std::cmp::Reverse<u32>) {
        (self.process.used_memory_mib.unwrap_or(0), std::cmp::Reverse(self.process.pid))
    }

    fn into_occupancy(self) -> Occupancy {
        let Self { process, user, command } = self;
        Occupancy::Foreign { pid: process.pid, user, command, memory_mib: process.used_memory_mib }
    }
}

/// Tells whether a command is a display server, or one of NVIDIA's own services. Names are those of `/proc/<pid>/comm`,
/// which the kernel cuts to 15 characters.
fn belongs_to_the_machine(command: &str) -> bool {
    const NAMES: [&str; 27] = [
        "X",
        "Xorg",
        "Xorg.bin",
        "Xwayland",
        "Xvnc",
        "gnome-shell",
        "mutter",
        "gdm-x-session",
        "gdm-wayland-ses",
        "sddm-greeter",
        "lightdm-gtk-gre",
        "kwin_x11",
        "kwin_wayland",
        "plasmashell",
        "ksmserver",
        "cinnamon",
        "xfwm4",
        "weston",
        "sway",
        "Hyprland",
        "labwc",
        "wayfire",
        "cosmic-comp",
        "nvidia-persiste",
        "nv-hostengine",
        "nv-fabricmanage",
        "nvidia-smi",
    ];
    NAMES.contains(&command) || command.starts_with("dcgm")
}

/// Compares the memory in use with what the visible processes hold.
fn unseen(sample: &DeviceSample) -> Occupancy {
    let (Some(used), Some(total)) = (sample.memory_used_mib, sample.memory_total_mib) else {
        return Occupancy::Free;
    };
    // A visible process of unknown size may hold all of the memory.
    let Some(seen) = sample.processes.iter().map(|process| process.used_memory_mib).sum::<Option<u64>>()
    else {
        return Occupancy::Free;
    };
    let memory_mib = used.saturating_sub(seen);
    if memory_mib <= unseen_slack_mib(total) {
        return Occupancy::Free;
    }
    let remedy = format!(
        "{memory_mib} MiB are in use by no process that can be seen from here: look for it as root with \
         `fuser -v /dev/nvidia*`, also outside this container; if there is none, reset the device with \
         `nvidia-smi --gpu-reset -i {}`",
        sample.uuid
    );
    Occupancy::ForeignUnknown { memory_mib, remedy }
}

/// Returns the name of a user, or the number where none is known.
pub(crate) fn user_name(uid: u32) -> String {
    let mut buffer = vec![0; 16 * 1024];
    // SAFETY: `passwd` is plain integers and pointers, for which zero is a value; the buffer outlives the strings that
    // the call makes the entry point to, and its length is given.
    let name = unsafe {
        let mut entry: libc::passwd = std::mem::zeroed();
        let mut found = std::ptr::null_mut();
        libc::getpwuid_r(uid, &mut entry, buffer.as_mut_ptr(), buffer.len(), &mut found);
        if found.is_null() {
            None
        } else {
            Some(std::ffi::CStr::from_ptr(entry.pw_name).to_string_lossy().into_owned())
        }
    };
    name.map_or_else(|| uid.to_string(), |name| printable(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Health;

    const TOTAL_MIB: u64 = 81_559;

    fn sample(used: u64, processes: &[(u32, ProcessKind, Option<u64>)]) -> DeviceSample {
        let process = |&(pid, kind, used_memory_mib): &(u32, ProcessKind, Option<u64>)| DeviceProcess {
            pid,
            kind,
            used_memory_mib,
        };
        DeviceSample {
            memory_used_mib: Some(used),
            memory_total_mib: Some(TOTAL_MIB),
            processes: processes.iter().map(process).collect(),
            ..DeviceSample::unknown("GPU-0", Health::Ok)
        }
    }

    fn with(used: u64, processes: &[(u32, ProcessKind, Option<u64>)]) -> Occupancy {
        occupancy(&sample(used, processes), &BTreeSet::from([7]))
    }

    use ProcessKind::{Compute, Graphics};

    #[test]
    fn this_process_is_named_with_user_and_command() {
        let me = std::process::id();
        let Occupancy::Foreign { pid, user, command, memory_mib } = with(900, &[(me, Compute, Some(800))])
        else {
            panic!("not foreign")
        };
        let comm = fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!((pid, memory_mib), (me, Some(800)));
        assert_eq!(command.as_deref(), Some(comm.trim_end()));
        assert_eq!(user, Some(user_name(rustix::process::geteuid().as_raw())));
    }

    #[test]
    fn divvys_own_processes_graphics_and_small_contexts_do_not_count() {
        let me = std::process::id();
        assert_eq!(with(9000, &[(7, Compute, Some(9000))]), Occupancy::Free);
        assert_eq!(with(9000, &[(me, Graphics, Some(9000))]), Occupancy::Free);
        assert_eq!(with(64, &[(me, Compute, Some(64))]), Occupancy::Free);
        assert!(matches!(with(65, &[(me, Compute, Some(65))]), Occupancy::Foreign { .. }));
    }

    #[test]
    fn a_process_that_is_not_visible_or_of_unknown_size_counts() {
        // No process has pid 2^22 + 1: the kernel's limit is 2^22.
        let hidden = 4_194_305;
        assert_eq!(
            with(500, &[(hidden, Compute, None)]),
            Occupancy::Foreign { pid: hidden, user: None, command: None, memory_mib: None }
        );
    }

    #[test]
    fn the_largest_of_several_is_named() {
        let (one, other) = (4_194_305, 4_194_306);
        let occupancy = with(500, &[(one, Compute, Some(100)), (other, Compute, Some(200))]);
        assert!(matches!(occupancy, Occupancy::Foreign { pid, .. } if pid == other), "{occupancy:?}");
    }

    #[test]
    fn the_drivers_reserve_is_no_stranger_and_more_is_an_unknown_one() {
        assert_eq!(with(600, &[]), Occupancy::Free);
        assert_eq!(with(1024, &[]), Occupancy::Free);
        let Occupancy::ForeignUnknown { memory_mib, remedy } = with(1025, &[]) else { panic!("free") };
        assert_eq!(memory_mib, 1025);
        assert!(remedy.contains("fuser") && remedy.contains("GPU-0"), "{remedy}");
    }

    #[test]
    fn memory_of_visible_processes_is_not_unknown() {
        assert_eq!(with(9000, &[(7, Compute, Some(8500))]), Occupancy::Free);
        assert_eq!(with(9000, &[(7, Compute, None)]), Occupancy::Free);
        assert!(matches!(
            with(9000, &[(7, Compute, Some(1000))]),
            Occupancy::ForeignUnknown { memory_mib: 8000, .. }
        ));
    }

    #[test]
    fn large_devices_have_a_larger_reserve() {
        assert_eq!(unseen_slack_mib(81_559), 1024);
        assert_eq!(unseen_slack_mib(183_359), 1432);
    }

    #[test]
    fn the_machines_own_services_are_known_by_their_cut_names() {
        for name in
            ["Xorg", "gnome-shell", "nvidia-persiste", "nv-hostengine", "dcgm-exporter", "gdm-wayland-ses"]
        {
            assert!(belongs_to_the_machine(name), "{name}");
            assert!(name.len() <= 15, "{name} is never what the kernel tells");
        }
        for name in ["python3", "xorg", "Xorg2", "nvidia-cuda-mps"] {
            assert!(!belongs_to_the_machine(name), "{name}");
        }
    }

    #[test]
    fn users_without_a_name_are_numbers() {
        assert_eq!(user_name(0), "root");
        assert_eq!(user_name(3_999_999_999), "3999999999");
    }
}
