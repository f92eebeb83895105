//! Notice, grace, kill.

use std::fs;
use std::time::{Duration, Instant};

use divvy_core::engine::EndedHow;

use crate::pool::{Pool, await_file, await_lines, await_record, send, supervisor};

crate::tests![
    the_notice_reaches_the_first_process_group,
    a_task_may_use_its_grace,
    a_wrappers_child_may_use_the_grace_too,
    a_task_that_ignores_the_notice_is_killed_with_its_tree,
    a_later_stop_shortens_the_grace_and_does_not_lengthen_it,
    a_stop_without_grace_kills_at_once,
    a_stopped_task_hears_the_notice,
    a_stop_during_the_start_is_not_lost,
    a_supervisor_that_is_told_to_end_ends_its_task,
    a_stop_of_an_ended_task_tells_the_end_again,
];

fn the_notice_reaches_the_first_process_group() {
    let mut pool = Pool::new();
    // The shell waits for its child and would not pass a signal on.
    pool.script(
        1,
        "sh -c 'trap \"echo usr1; exit 9\" USR1; echo ready > ready; while :; do sleep 0.01; done'; exit $?",
    );
    await_file(&pool.work().join("ready"), 1);
    pool.stop(1, "USR1", 30_000);
    pool.ended(1);
    assert!(pool.log(1).contains("usr1\n"));
}

fn a_task_may_use_its_grace() {
    let mut pool = Pool::new();
    pool.script(1, "trap 'sleep 0.3; echo saved; exit 0' TERM; echo > ready; while :; do sleep 0.01; done");
    await_file(&pool.work().join("ready"), 1);
    pool.stop(1, "TERM", 30_000);
    assert_eq!(pool.how(1), EndedHow::Exited(0));
    assert!(pool.log(1).contains("saved\n"));
}

fn a_wrappers_child_may_use_the_grace_too() {
    let mut pool = Pool::new();
    let child = "trap \"sleep 3; echo saved; exit 0\" TERM; echo > ready; while :; do sleep 0.01; done";
    pool.script(1, &format!("sh -c '{child}' & wait"));
    await_file(&pool.work().join("ready"), 1);
    pool.stop(1, "TERM", 30_000);
    // The first process is gone at once; its child takes longer than leftovers otherwise may.
    assert_eq!(pool.how(1), EndedHow::Signalled(libc::SIGTERM));
    assert!(pool.log(1).contains("saved\n"));
}

fn a_task_that_ignores_the_notice_is_killed_with_its_tree() {
    let mut pool = Pool::new();
    let stubborn = "trap \"\" TERM; echo $$ >> pids; while :; do sleep 0.05; done";
    pool.script(
        1,
        &format!("trap '' TERM; sh -c '{stubborn}' & echo $$ >> pids; while :; do sleep 0.05; done"),
    );
    await_lines(&pool.work().join("pids"), 2);
    pool.started(1);
    pool.stop(1, "TERM", 200);
    let end = pool.ended(1);
    assert_eq!(end.how, EndedHow::Signalled(libc::SIGKILL));
    pool.assert_all_gone("pids", 1);
}

fn a_later_stop_shortens_the_grace_and_does_not_lengthen_it() {
    let mut pool = Pool::new();
    for (allocation, graces) in [(1, [3_600_000, 100]), (2, [100, 3_600_000])] {
        pool.script(allocation, "trap '' TERM; echo > ready; while :; do sleep 0.05; done");
        await_file(&pool.work().join("ready"), 1);
        fs::remove_file(pool.work().join("ready")).unwrap();
        for grace_ms in graces {
            pool.stop(allocation, "TERM", grace_ms);
        }
        assert_eq!(pool.how(allocation), EndedHow::Signalled(libc::SIGKILL));
    }
}

fn a_stop_without_grace_kills_at_once() {
    let mut pool = Pool::new();
    pool.script(1, "trap 'echo heard; exit 0' TERM; echo > ready; while :; do sleep 0.05; done");
    await_file(&pool.work().join("ready"), 1);
    pool.stop(1, "KILL", 3_600_000);
    assert_eq!(pool.how(1), EndedHow::Signalled(libc::SIGKILL));
    assert_eq!(pool.log(1), "");
}

fn a_stopped_task_hears_the_notice() {
    let mut pool = Pool::new();
    pool.script(1, "trap 'exit 8' TERM; echo > ready; kill -STOP $$; while :; do sleep 0.05; done");
    await_file(&pool.work().join("ready"), 1);
    pool.started(1);
    pool.stop(1, "TERM", 30_000);
    assert_eq!(pool.how(1), EndedHow::Exited(8));
}

fn a_stop_during_the_start_is_not_lost() {
    let mut pool = Pool::new();
    let begun = Instant::now();
    for allocation in 1..=150 {
        pool.script(allocation, "echo $$ >> pids; exec sleep 1000");
        let record = pool.record(allocation);
        // The stop comes at another moment of the start each time.
        match allocation % 6 {
            0 => {}
            1 => await_file(&record.join("launch.json"), 1),
            2 => await_file(&record.join("lock"), 1),
            3 => await_record(&record.join("started.json")),
            4 => await_record(&record.join("ended.json")),
            _ => drop(pool.started(allocation)),
        }
        pool.stop(allocation, "TERM", 30_000);
        let how = pool.how(allocation);
        let is_stopped = matches!(how, EndedHow::NeverStarted | EndedHow::Signalled(libc::SIGTERM));
        assert!(is_stopped, "{allocation}: {how:?}");
    }
    assert!(pool.pids("pids").len() <= 150);
    pool.assert_all_gone("pids", 1);
    // None of them had to wait for its grace.
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

fn a_supervisor_that_is_told_to_end_ends_its_task() {
    let mut pool = Pool::new();
    pool.script(1, "echo $$ >> pids; sleep 1000");
    pool.started(1);
    await_lines(&pool.work().join("pids"), 1);
    send(supervisor(&pool, 1), libc::SIGTERM);
    assert_eq!(pool.how(1), EndedHow::Signalled(libc::SIGTERM));
    pool.assert_all_gone("pids", 1);
}

fn a_stop_of_an_ended_task_tells_the_end_again() {
    let mut pool = Pool::new();
    pool.script(1, "exit 4");
    pool.ended(1);
    pool.seen.clear();
    pool.stop(1, "TERM", 10);
    assert_eq!(pool.how(1), EndedHow::Exited(4));
}
