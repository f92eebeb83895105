//! What the kernel keeps a task to, and what is said about it.

use divvy_core::engine::{EndedHow, Isolation};

use crate::pool::{Pool, device, is_root, launch};

crate::tests![
    a_task_beyond_its_memory_is_killed_and_told_so,
    a_task_that_gets_over_the_loss_of_a_child_has_not_run_out_of_memory,
    a_tasks_cores_are_limited,
    isolation_of_pretended_devices_is_advisory,
    isolation_of_an_ordinary_users_task_is_enforced,
    control_groups_are_removed,
];

fn a_task_beyond_its_memory_is_killed_and_told_so() {
    if !is_root() {
        return println!("not root: memory is not limited");
    }
    let mut pool = Pool::new();
    let limit = 64 << 20;
    for (allocation, argv) in
        [(1, vec!["tail", "/dev/zero"]), (2, vec!["sh", "-c", "tail /dev/zero; exit $?"])]
    {
        let mut order = launch(allocation, &argv);
        order.memory_bytes = limit;
        pool.launch(allocation, order);
        let EndedHow::OutOfMemory(peak, told) = pool.how(allocation) else { panic!("{:?}", pool.seen) };
        assert_eq!(told, limit);
        assert!(peak > limit / 2 && peak <= limit, "{peak}");
    }
}

fn a_task_that_gets_over_the_loss_of_a_child_has_not_run_out_of_memory() {
    if !is_root() {
        return println!("not root: memory is not limited");
    }
    let mut pool = Pool::new();
    let mut order = launch(1, &["sh", "-c", "tail /dev/zero; exit 0"]);
    order.memory_bytes = 64 << 20;
    pool.launch(1, order);
    assert_eq!(pool.how(1), EndedHow::Exited(0));
}

fn a_tasks_cores_are_limited() {
    if !is_root() {
        return println!("not root: cores are not limited");
    }
    let mut pool = Pool::new();
    let script = "cd /sys/fs/cgroup/cpu/$(sed -n 's/^[0-9]*:cpu:.//p' /proc/self/cgroup); cat cpu.cfs_quota_us cpu.shares";
    if !std::path::Path::new("/sys/fs/cgroup/cpu/cpu.shares").exists() {
        return println!("no cpu controller of version 1: its files are not looked at");
    }
    for (allocation, is_ceiling, expected) in [(1, true, "50000\n512\n"), (2, false, "-1\n512\n")] {
        let mut order = pool.shell(allocation, script);
        (order.cpu_milli, order.cpu_is_ceiling) = (500, is_ceiling);
        pool.launch(allocation, order);
        pool.ended(allocation);
        assert_eq!(pool.log(allocation), expected);
    }
}

fn isolation_of_pretended_devices_is_advisory() {
    let mut pool = Pool::new();
    let mut order = launch(1, &["true"]);
    order.devices = vec![device("GPU-pretended")];
    pool.launch(1, order);
    let Isolation::Advisory(why) = pool.started(1).isolation else { panic!("enforced") };
    assert!(why.contains("pretended devices"), "{why}");
}

fn isolation_of_an_ordinary_users_task_is_enforced() {
    if !is_root() {
        return println!("not root: nothing is enforced");
    }
    let mut pool = Pool::new();
    for (allocation, uid) in [(1, 54_321), (2, 0)] {
        let mut order = launch(allocation, &["true"]);
        (order.owner.uid, order.owner.gid, order.memory_bytes) = (uid, uid, 1 << 30);
        pool.launch(allocation, order);
    }
    assert_eq!(pool.started(1).isolation, Isolation::Enforced);
    assert!(matches!(pool.started(2).isolation, Isolation::Advisory(why) if why.contains("root")));
}

fn control_groups_are_removed() {
    let mut pool = Pool::new();
    let mut order = pool.shell(1, "cat /proc/self/cgroup");
    (order.cpu_milli, order.memory_bytes) = (1000, 1 << 30);
    pool.launch(1, order);
    pool.ended(1);
    for line in pool.log(1).lines().filter(|line| line.contains("divvy-")) {
        let (controllers, path) = line.split_once(':').unwrap().1.split_once(':').unwrap();
        let path = format!("/sys/fs/cgroup/{controllers}{path}");
        assert!(!std::path::Path::new(&path).exists(), "{path}");
    }
}
