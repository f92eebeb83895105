//! Restarts of the daemon, lost supervisors, other boots.

use std::fs;

use divvy_core::engine::{EndedHow, Observation};

use crate::pool::{
    Pool, await_end, await_file, await_lines, await_record, await_unlocked, is_alive, is_root, send,
    supervisor,
};

crate::tests![
    a_running_task_is_adopted,
    a_task_that_ended_without_a_daemon_is_told,
    a_task_is_adopted_while_it_starts,
    a_stop_reaches_an_adopted_task,
    inventory_comes_once_and_after_what_was_adopted,
    a_lost_supervisor_is_told_and_its_processes_are_killed,
    a_supervisor_lost_without_a_daemon_is_told_and_its_processes_are_killed,
    a_daemon_of_a_lost_supervisor_with_an_empty_environment_is_killed,
    after_another_boot_nothing_is_adopted_and_nothing_killed,
    half_made_records_are_removed,
    a_launch_that_never_began_is_not_in_the_inventory,
    a_torn_end_is_a_lost_supervisor,
];

fn a_running_task_is_adopted() {
    let mut pool = Pool::new();
    pool.script(1, "until [ -e go ]; do sleep 0.01; done; exit 5");
    let start = pool.started(1);
    pool.restart();
    assert_eq!(pool.started(1), start);
    assert_eq!(pool.inventory(), [1]);
    fs::write(pool.work().join("go"), "").unwrap();
    assert_eq!(pool.how(1), EndedHow::Exited(5));
}

fn a_task_that_ended_without_a_daemon_is_told() {
    let mut pool = Pool::new();
    pool.script(1, "until [ -e go ]; do sleep 0.01; done; exit 6");
    pool.started(1);
    let supervisor = supervisor(&pool, 1);
    pool.close();
    fs::write(pool.work().join("go"), "").unwrap();
    // The test's process is the supervisor's parent and does not reap it: its end shows, not its going.
    await_end(supervisor);
    pool.open();
    assert_eq!(pool.how(1), EndedHow::Exited(6));
    pool.started(1);
}

fn a_task_is_adopted_while_it_starts() {
    let mut pool = Pool::new();
    for allocation in 1..=40 {
        pool.script(allocation, "echo $$ >> runs; exit 2");
        // The daemon ends at another moment of the start each time.
        match allocation % 4 {
            0 => await_file(&pool.record(allocation).join("launch.json"), 1),
            1 => await_file(&pool.record(allocation).join("lock"), 1),
            2 => await_record(&pool.record(allocation).join("started.json")),
            _ => await_file(&pool.record(allocation), 0),
        }
        pool.restart();
        if pool.inventory().contains(&allocation) {
            assert_eq!(pool.how(allocation), EndedHow::Exited(2));
        } else {
            // It never began: the daemon would launch it again.
            pool.script(allocation, "echo $$ >> runs; exit 2");
            assert_eq!(pool.how(allocation), EndedHow::Exited(2));
        }
    }
    assert_eq!(pool.pids("runs").len(), 40);
}

fn a_stop_reaches_an_adopted_task() {
    let mut pool = Pool::new();
    pool.script(1, "echo $$ >> pids; sleep 1000");
    pool.started(1);
    await_lines(&pool.work().join("pids"), 1);
    pool.restart();
    pool.stop(1, "TERM", 10_000);
    assert_eq!(pool.how(1), EndedHow::Signalled(libc::SIGTERM));
    pool.assert_all_gone("pids", 1);
}

fn inventory_comes_once_and_after_what_was_adopted() {
    let mut pool = Pool::new();
    pool.script(1, "sleep 1000");
    pool.script(2, "exit 0");
    pool.started(1);
    pool.ended(2);
    pool.close();
    await_unlocked(&pool.record(2));
    pool.open();
    assert_eq!(pool.inventory(), [1, 2]);
    let at = pool.seen.iter().position(|seen| matches!(seen, Observation::Inventory(_))).unwrap();
    assert_eq!(at, 3, "{:?}", pool.seen);
    pool.stop(1, "KILL", 0);
    pool.ended(1);
    let count = pool.seen.iter().filter(|seen| matches!(seen, Observation::Inventory(_))).count();
    assert_eq!(count, 1);
}

fn a_lost_supervisor_is_told_and_its_processes_are_killed() {
    let mut pool = Pool::new();
    pool.script(
        1,
        "echo $$ >> pids; sleep 1000 & echo $! >> pids; setsid sleep 1000 & echo $! >> pids; wait",
    );
    await_lines(&pool.work().join("pids"), 3);
    pool.started(1);
    send(supervisor(&pool, 1), libc::SIGKILL);
    let end = pool.ended(1);
    assert_eq!(end.how, EndedHow::SupervisorLost);
    pool.assert_all_gone("pids", 3);
    pool.restart();
    assert_eq!(pool.how(1), EndedHow::SupervisorLost);
}

fn a_supervisor_lost_without_a_daemon_is_told_and_its_processes_are_killed() {
    let mut pool = Pool::new();
    pool.script(1, "echo $$ >> pids; sleep 1000 & echo $! >> pids; wait");
    pool.started(1);
    await_lines(&pool.work().join("pids"), 2);
    let supervisor = supervisor(&pool, 1);
    pool.close();
    send(supervisor, libc::SIGKILL);
    await_end(supervisor);
    assert!(pool.pids("pids").iter().all(|pid| is_alive(*pid)));
    pool.open();
    assert_eq!(pool.how(1), EndedHow::SupervisorLost);
    pool.assert_all_gone("pids", 2);
}

fn a_daemon_of_a_lost_supervisor_with_an_empty_environment_is_killed() {
    if !is_root() {
        return println!("not root: without control groups such a process cannot be found");
    }
    let mut pool = Pool::new();
    let daemon = "setsid env -i /bin/sh -c 'echo $$ >> pids; exec sleep 1000' &";
    pool.script(1, &format!("( ( {daemon} ) & ); sleep 1000"));
    pool.started(1);
    await_lines(&pool.work().join("pids"), 1);
    send(supervisor(&pool, 1), libc::SIGKILL);
    assert_eq!(pool.how(1), EndedHow::SupervisorLost);
    pool.assert_all_gone("pids", 1);
}

fn after_another_boot_nothing_is_adopted_and_nothing_killed() {
    let mut pool = Pool::new();
    pool.script(1, "echo $$ >> pids; sleep 1000");
    let start = pool.started(1);
    pool.close();
    let path = pool.record(1).join("launch.json");
    let text = fs::read_to_string(&path).unwrap();
    let boot = divvy_gpu::boot_id().unwrap();
    assert!(text.contains(&boot));
    fs::write(&path, text.replace(&boot, "00000000-0000-0000-0000-000000000000")).unwrap();
    pool.open();
    assert_eq!(pool.how(1), EndedHow::NodeReboot);
    assert_eq!(pool.inventory(), [1]);
    assert!(is_alive(start.pid));
    pool.restart();
    assert_eq!(pool.how(1), EndedHow::NodeReboot);
    send(start.pid, libc::SIGKILL);
    await_end(start.pid);
}

fn half_made_records_are_removed() {
    let mut pool = Pool::new();
    pool.close();
    fs::create_dir(pool.record(1)).unwrap();
    fs::create_dir(pool.record(2)).unwrap();
    fs::write(pool.record(2).join("lock"), "").unwrap();
    pool.open();
    assert_eq!(pool.inventory(), [0; 0]);
    assert!(!pool.record(1).exists() && !pool.record(2).exists());
    pool.script(1, "exit 0");
    assert_eq!(pool.how(1), EndedHow::Exited(0));
}

fn a_launch_that_never_began_is_not_in_the_inventory() {
    let mut pool = Pool::new();
    pool.script(1, "exit 0");
    pool.ended(1);
    pool.close();
    await_unlocked(&pool.record(1));
    // As if the daemon had ended between the record and the supervisor.
    for name in ["ended.json", "started.json"] {
        fs::remove_file(pool.record(1).join(name)).unwrap();
    }
    fs::write(pool.record(1).join("lock"), "").unwrap();
    pool.open();
    assert_eq!(pool.inventory(), [0; 0]);
    assert!(!pool.record(1).exists());
}

fn a_torn_end_is_a_lost_supervisor() {
    let mut pool = Pool::new();
    pool.script(1, "exit 0");
    pool.ended(1);
    pool.close();
    await_unlocked(&pool.record(1));
    fs::write(pool.record(1).join("ended.json"), "{\"end\":").unwrap();
    pool.open();
    assert_eq!(pool.how(1), EndedHow::SupervisorLost);
}
