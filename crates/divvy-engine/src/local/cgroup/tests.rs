//! Control groups: how they are found, and, as root, what they keep a process from.

use super::*;
use std::process::Command;

const MOUNTS: &str = "\
30 24 0:26 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
32 24 0:28 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory";

#[test]
fn hierarchies_are_found_by_controller() {
    let own = "4:memory:/no/such/group\n3:cpu,cpuacct:/\n0::/";
    let found =
        |kind, controller| Mount::find(MOUNTS, own, kind, controller).map(|(mount, _)| mount.directory);
    assert_eq!(found("cgroup", "memory"), Some("/sys/fs/cgroup/memory".into()));
    assert_eq!(found("cgroup", "cpu"), Some("/sys/fs/cgroup/cpu,cpuacct".into()));
    assert_eq!(found("cgroup2", ""), Some("/sys/fs/cgroup/unified".into()));
    assert_eq!(found("cgroup", "devices"), None);
}

#[test]
fn pools_have_groups_of_their_own() {
    assert_ne!(pool_name(Path::new("/a")), pool_name(Path::new("/b")));
    assert_eq!(pool_name(Path::new("")), "divvy-cbf29ce484222325");
}

/// Runs a shell script in a group.
fn run_in(group: &Group, script: &str) -> bool {
    let enter: Vec<String> = group
        .directories
        .iter()
        .map(|directory| format!("echo $$ > {}/cgroup.procs", directory.display()))
        .collect();
    let script = format!("{} && {script}", enter.join(" && "));
    Command::new("sh").args(["-c", &script]).status().unwrap().success()
}

/// Denies a device that every machine has, and leaves another.
fn assert_devices_are_restricted(make: impl FnOnce(&Limits) -> Option<Group>) {
    let full = DeviceFile { number: 7, major: 1, minor: 7 };
    let group = make(&Limits { denied: vec![full], ..Limits::default() }).unwrap();
    assert_eq!(group.shortfalls, [""; 0]);
    assert!(Command::new("sh").args(["-c", ": < /dev/full"]).status().unwrap().success());
    assert!(run_in(&group, "! true < /dev/full && true < /dev/zero"));
    group.remove();
    assert!(!group.directories[0].exists());
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn version_1_keeps_a_task_to_its_devices() {
    let state = tempfile::tempdir().unwrap();
    let parents = Parents::find(state.path());
    if !is_root() || !matches!(&parents, Parents::Legacy { devices: Some(_), .. }) {
        return println!("no control groups of version 1 here");
    }
    assert_devices_are_restricted(|limits| parents.make(AllocationId(1), limits));
    // If somebody removed the parent, it is made again.
    parents.remove();
    assert_devices_are_restricted(|limits| parents.make(AllocationId(2), limits));
    parents.remove();
}

#[test]
fn version_2_keeps_a_task_to_its_devices_and_kills_it() {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let name = format!("divvy-test-{}", std::process::id());
    let found = unified::find(&mounts, &own, &name);
    let (true, Some(parents)) = (is_root(), found) else {
        return println!("no control groups of version 2 here");
    };
    assert_devices_are_restricted(|limits| parents.make(AllocationId(1), limits));
    let group = parents.make(AllocationId(2), &Limits::default()).unwrap();
    let mut sleeper = Command::new("sleep").arg("1000").spawn().unwrap();
    fs::write(group.directories[0].join("cgroup.procs"), sleeper.id().to_string()).unwrap();
    assert_eq!(group.pids(), [sleeper.id()]);
    group.kill();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&sleeper.wait().unwrap()), Some(libc::SIGKILL));
    assert_eq!(parents.existing(AllocationId(2)).map(|group| group.directories.len()), Some(1));
    parents.clean(&BTreeSet::new());
    assert!(parents.existing(AllocationId(2)).is_none());
    parents.remove();
}

#[test]
fn left_over_groups_go_and_those_of_tasks_stay() {
    let folder = tempfile::tempdir().unwrap();
    let parents = Parents::Unified { directory: folder.path().into(), controllers: Vec::new() };
    for name in ["1", "2", "other"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    parents.clean(&BTreeSet::from([AllocationId(2)]));
    let is_there = ["1", "2", "other"].map(|name| folder.path().join(name).exists());
    assert_eq!(is_there, [false, true, true]);
}
