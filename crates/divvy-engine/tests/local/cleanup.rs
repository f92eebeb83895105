//! Nothing of a task is left behind.

use divvy_core::engine::EndedHow;

use crate::pool::{Pool, await_lines, is_alive};

crate::tests![
    the_exit_code_is_the_first_processes,
    a_signal_is_told,
    what_the_first_process_leaves_behind_is_ended,
    leftovers_that_ignore_term_are_killed,
    a_daemon_in_a_session_of_its_own_with_an_empty_environment_is_ended,
    a_tree_that_forks_on_is_ended,
    a_stopped_child_is_ended,
    a_task_that_closes_its_output_ends_when_it_exits,
    device_locks_are_free_when_the_end_is_told,
];

fn the_exit_code_is_the_first_processes() {
    let mut pool = Pool::new();
    pool.script(1, "exit 7");
    let end = pool.ended(1);
    assert_eq!(end.how, EndedHow::Exited(7));
    assert!(end.ran_ms >= 0 && end.usage.peak_memory_bytes > 0);
    assert!(pool.started(1).pid > 0);
}

fn a_signal_is_told() {
    let mut pool = Pool::new();
    pool.script(1, "kill -USR1 $$");
    assert_eq!(pool.how(1), EndedHow::Signalled(libc::SIGUSR1));
}

fn what_the_first_process_leaves_behind_is_ended() {
    let mut pool = Pool::new();
    pool.script(1, "sleep 1000 & echo $! >> pids; sleep 1000 & echo $! >> pids; exit 3");
    assert_eq!(pool.how(1), EndedHow::Exited(3));
    pool.assert_all_gone("pids", 2);
}

fn leftovers_that_ignore_term_are_killed() {
    let mut pool = Pool::new();
    let stubborn = "trap '' TERM HUP INT; echo $$ >> pids; while :; do sleep 1000; done";
    pool.script(
        1,
        &format!("/bin/sh -c \"{}\" & until [ -s pids ]; do :; done; exit 0", stubborn.replace('$', "\\$")),
    );
    let end = pool.ended(1);
    assert_eq!(end.how, EndedHow::Exited(0));
    pool.assert_all_gone("pids", 1);
}

fn a_daemon_in_a_session_of_its_own_with_an_empty_environment_is_ended() {
    let mut pool = Pool::new();
    let daemon = "setsid env -i /bin/sh -c 'echo $$ >> pids; exec sleep 1000' &";
    pool.script(1, &format!("( ( {daemon} ) & ) ; until [ -s pids ]; do :; done; exit 0"));
    assert_eq!(pool.how(1), EndedHow::Exited(0));
    pool.assert_all_gone("pids", 1);
}

fn a_tree_that_forks_on_is_ended() {
    let mut pool = Pool::new();
    // Each generation starts the next in a new session and goes.
    let generation = "trap '' TERM; echo $$ >> pids; setsid ./next & sleep 0.01; exit 0";
    std::fs::write(pool.work().join("next"), format!("#!/bin/sh\n{generation}\n")).unwrap();
    pool.script(1, "chmod +x next; ./next; ./next; sleep 1000");
    await_lines(&pool.work().join("pids"), 8);
    pool.stop(1, "TERM", 100);
    pool.ended(1);
    let pids = pool.pids("pids");
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    let before = pids.len();
    assert_eq!(pool.pids("pids").len(), before, "it still forks");
}

fn a_stopped_child_is_ended() {
    let mut pool = Pool::new();
    pool.script(1, "sleep 1000 & echo $! >> pids; kill -STOP $!; exit 0");
    assert_eq!(pool.how(1), EndedHow::Exited(0));
    pool.assert_all_gone("pids", 1);
}

fn a_task_that_closes_its_output_ends_when_it_exits() {
    let mut pool = Pool::new();
    pool.script(1, "exec <&- >&- 2>&-; sleep 0.2; exit 4");
    let end = pool.ended(1);
    assert_eq!(end.how, EndedHow::Exited(4));
    assert!(end.ran_ms >= 150, "{end:?}");
}

fn device_locks_are_free_when_the_end_is_told() {
    let mut pool = Pool::new();
    for allocation in 1..30 {
        let mut launch = pool.shell(allocation, "sleep 1000 & exit 0");
        if allocation % 5 != 0 {
            launch = pool.shell(allocation, "exit 0");
        }
        launch.devices = vec![crate::pool::device("GPU-again-and-again")];
        pool.launch(allocation, launch);
        assert_eq!(pool.how(allocation), EndedHow::Exited(0));
    }
}
