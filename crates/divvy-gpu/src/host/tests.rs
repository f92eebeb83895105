use std::fs;

use super::*;

/// Lays out the files of a machine: 64 CPUs on two nodes with 256 GiB.
fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let whole = [
        ("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-63\n"),
        ("proc/meminfo", "MemTotal:       268435456 kB\nMemFree: 1 kB\n"),
        ("sys/devices/system/node/node0/cpulist", "0-31\n"),
        ("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:       134217728 kB\n"),
        ("sys/devices/system/node/node1/cpulist", "32-63\n"),
        ("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:       134217728 kB\n"),
        ("sys/devices/system/node/online", "0-1\n"),
    ];
    for (path, text) in whole.iter().chain(files) {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn summary(host: &Host) -> (u32, u64, Vec<(u32, u32, u64)>) {
    let gib = |bytes: u64| bytes >> 30;
    let nodes = host.numa.iter().map(|node| (node.id, node.cpus, gib(node.memory_bytes))).collect();
    (host.cpus, gib(host.memory_bytes), nodes)
}

#[test]
fn an_unlimited_machine_has_all_that_it_has() {
    let root = machine(&[]);
    let host = discover_under(root.path()).unwrap();
    assert_eq!(summary(&host), (64, 256, vec![(0, 32, 128), (1, 32, 128)]));
    assert_eq!(host.numa[1].cpu_ids, (32..64).collect::<Vec<_>>());
}

#[test]
fn a_container_has_what_its_quota_and_memory_limit_leave() {
    let root = machine(&[
        ("proc/self/cgroup", "0::/pod/job\n"),
        ("proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
        ("sys/fs/cgroup/pod/cpu.max", "400000 100000\n"),
        ("sys/fs/cgroup/pod/job/cpu.max", "max 100000\n"),
        ("sys/fs/cgroup/pod/job/memory.max", "17179869184\n"),
    ]);
    let host = discover_under(root.path()).unwrap();
    assert_eq!(summary(&host), (4, 16, vec![(0, 2, 8), (1, 2, 8)]));
}

#[test]
fn limits_of_version_one_count_where_the_mount_shows_the_containers_group() {
    let root = machine(&[
        ("proc/self/cgroup", "4:cpu,cpuacct:/docker/abc\n3:memory:/docker/abc\n0::/docker/abc\n"),
        (
            "proc/self/mountinfo",
            "31 1 0:27 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n\
             32 1 0:28 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
        ),
        ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000\n"),
        ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "8589934592\n"),
    ]);
    let host = discover_under(root.path()).unwrap();
    assert_eq!(summary(&host), (2, 8, vec![(0, 1, 4), (1, 1, 4)]));
}

#[test]
fn a_quota_below_one_cpu_still_leaves_one() {
    let root = machine(&[
        ("proc/self/cgroup", "0::/\n"),
        ("proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
        ("sys/fs/cgroup/cpu.max", "50000 100000\n"),
    ]);
    assert_eq!(discover_under(root.path()).unwrap().cpus, 1);
}

#[test]
fn affinity_leaves_out_cpus_and_nodes() {
    let root = machine(&[("proc/self/status", "Cpus_allowed_list:\t32-35\n")]);
    let host = discover_under(root.path()).unwrap();
    assert_eq!(summary(&host), (4, 256, vec![(1, 4, 128)]));
    assert_eq!(host.numa[0].cpu_ids, [32, 33, 34, 35]);
}

#[test]
fn memory_that_is_near_no_cpu_belongs_to_all() {
    let far = [
        ("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:       67108864 kB\n"),
        ("sys/devices/system/node/node2/cpulist", "\n"),
        ("sys/devices/system/node/node2/meminfo", "Node 2 MemTotal:       33554432 kB\n"),
    ];
    let host = discover_under(machine(&far).path()).unwrap();
    assert_eq!(summary(&host), (64, 256, vec![(0, 32, 96), (1, 32, 160)]));
    let bound = far.iter().chain([&("proc/self/status", "Cpus_allowed_list:\t0-3\n")]);
    let root = machine(&bound.copied().collect::<Vec<_>>());
    assert_eq!(summary(&discover_under(root.path()).unwrap()), (4, 256, vec![(0, 4, 128)]));
}

#[test]
fn a_machine_without_numa_is_one_node() {
    let root = machine(&[]);
    fs::remove_dir_all(root.path().join("sys")).unwrap();
    assert_eq!(summary(&discover_under(root.path()).unwrap()), (64, 256, vec![(0, 64, 256)]));
}

#[test]
fn this_machine_has_cpus_memory_and_a_boot_id() {
    let host = discover().unwrap();
    assert!(host.cpus >= 1 && host.memory_bytes > 1 << 20 && host.boot_id.len() >= 32, "{host:?}");
    assert_eq!(host.numa.iter().map(|node| node.cpus).sum::<u32>(), host.cpus);
}

#[test]
fn an_unmounted_proc_is_named() {
    let root = tempfile::tempdir().unwrap();
    let error = discover_under(root.path()).unwrap_err().to_string();
    assert!(error.contains("proc/self/status") && error.contains("must be mounted"), "{error}");
}

#[test]
fn a_reboot_can_be_rehearsed() {
    assert_eq!(boot_id_or(Some("another".to_owned())).unwrap(), "another");
    assert_eq!(boot_id_or(Some(String::new())).unwrap(), boot_id_or(None).unwrap());
}
