//! Who uses a free device: real processes that fake-nvml lists on it.
#![allow(clippy::unwrap_used, reason = "what a test's own functions can't set up has failed the test")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use divvy_gpu::testing::FakeMachine;
use divvy_gpu::{Occupancy, occupancy};

/// A process that waits, under a name of its own.
struct Named {
    child: Child,
    _folder: tempfile::TempDir,
}

impl Named {
    fn start(name: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(OsStr::from_bytes(name));
        // The kernel names a process after the link; a program that serves several names chooses by `arg0`.
        symlink("/bin/cat", &program).unwrap();
        let mut command = Command::new(program);
        command.arg0("cat").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // The process has its name once it answers; a start alone is not enough.
        child.stdin.as_mut().unwrap().write_all(b"!").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Self { child, _folder: folder }
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Asks about a device on which `pid` holds `used_mib`.
fn occupancy_with(pid: u32, used_mib: u64) -> Occupancy {
    let machine =
        FakeMachine::new(&format!("[[device]]\nprocesses = [{{ pid = {pid}, used_mib = {used_mib} }}]"));
    occupancy(&machine.source().sample()[0], &BTreeSet::new())
}

#[test]
fn a_strangers_process_makes_the_device_foreign() {
    let stranger = Named::start(b"train");
    let Occupancy::Foreign { pid, user, command, memory_mib } = occupancy_with(stranger.child.id(), 5000)
    else {
        panic!("the device counts as free")
    };
    assert_eq!((pid, command.as_deref(), memory_mib), (stranger.child.id(), Some("train"), Some(5000)));
    assert!(user.is_some());
}

#[test]
fn a_display_server_and_dcgm_do_not_even_when_they_are_large() {
    for name in [&b"Xorg"[..], b"nvidia-persistenced", b"dcgm-exporter", b"gnome-shell"] {
        let server = Named::start(name);
        assert_eq!(occupancy_with(server.child.id(), 5000), Occupancy::Free, "{}", name.escape_ascii());
    }
}

#[test]
fn a_name_with_control_characters_is_shown_without() {
    let hostile = Named::start(b"a\x1b[2J\xff\nb");
    let Occupancy::Foreign { command: Some(command), .. } = occupancy_with(hostile.child.id(), 5000) else {
        panic!("not foreign, or without a name")
    };
    assert!(command.starts_with('a') && !command.chars().any(char::is_control), "{command:?}");
}

#[test]
fn memory_without_a_process_is_an_unknown_stranger_and_the_drivers_reserve_is_not() {
    let machine =
        FakeMachine::new("[[device]]\nused_mib = 40000\n[[device]]\nused_mib = 600\nreserved_mib = 2000");
    let samples = machine.source().sample();
    let found: Vec<Occupancy> = samples.iter().map(|sample| occupancy(sample, &BTreeSet::new())).collect();
    assert!(
        matches!(&found[0], Occupancy::ForeignUnknown { memory_mib: 40_000, remedy } if !remedy.is_empty())
    );
    assert_eq!(found[1], Occupancy::Free);
}
