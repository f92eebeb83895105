//! Terms, repetitions, and what may happen once only.

use std::fs;

use divvy_core::action::{Action, Fence, Stop};
use divvy_core::engine::{EndedHow, Observation};
use divvy_core::id::{AllocationId, Term};
use divvy_engine::local::{LocalEngine, OpenError, last_term};

use crate::pool::{Pool, await_lines};

crate::tests![
    a_second_launch_starts_nothing,
    a_lower_term_is_refused,
    the_highest_term_is_kept,
    an_engine_with_an_old_term_is_not_opened,
    a_stop_of_an_unknown_allocation_makes_its_launch_impossible,
    an_end_is_told_again_until_it_is_forgotten,
    forgetting_removes_the_record_and_keeps_the_output,
    a_record_that_cannot_be_written_is_a_launch_failure,
    processes_are_attributed_to_their_allocation,
];

fn a_second_launch_starts_nothing() {
    let mut pool = Pool::new();
    let script = "echo $$ >> runs; until [ -e go ]; do sleep 0.01; done";
    pool.script(1, script);
    pool.script(1, script);
    pool.started(1);
    pool.seen.clear();
    pool.script(1, script);
    // Told again, as an answer to the launch.
    pool.started(1);
    fs::write(pool.work().join("go"), "").unwrap();
    assert_eq!(pool.how(1), EndedHow::Exited(0));
    pool.script(1, script);
    pool.script(2, "exit 0");
    pool.ended(2);
    assert_eq!(pool.pids("runs").len(), 1);
}

fn a_lower_term_is_refused() {
    let mut pool = Pool::new();
    pool.term = Term(5);
    pool.script(1, "exit 0");
    pool.ended(1);
    pool.term = Term(4);
    pool.script(2, "exit 0");
    pool.stop(3, "TERM", 0);
    pool.term = Term(5);
    pool.script(4, "exit 0");
    pool.ended(4);
    assert!(!pool.record(2).exists() && !pool.record(3).exists());
}

fn the_highest_term_is_kept() {
    let mut pool = Pool::new();
    pool.term = Term(9);
    pool.script(1, "exit 0");
    pool.ended(1);
    assert_eq!(last_term(&pool.state()).unwrap(), Some(Term(9)));
}

fn an_engine_with_an_old_term_is_not_opened() {
    let mut pool = Pool::new();
    pool.close();
    let opened = LocalEngine::open(pool.settings(Term(0), || ()));
    assert!(matches!(opened, Err(OpenError::StaleTerm { given: Term(0), seen: Term(1) })));
}

fn a_stop_of_an_unknown_allocation_makes_its_launch_impossible() {
    let mut pool = Pool::new();
    pool.stop(1, "TERM", 1000);
    assert_eq!(pool.how(1), EndedHow::NeverStarted);
    pool.script(1, "echo $$ >> runs");
    pool.restart();
    assert_eq!(pool.how(1), EndedHow::NeverStarted);
    assert_eq!(pool.inventory(), [1]);
    pool.script(1, "echo $$ >> runs");
    pool.script(2, "exit 0");
    pool.ended(2);
    assert!(pool.pids("runs").is_empty());
}

fn an_end_is_told_again_until_it_is_forgotten() {
    let mut pool = Pool::new();
    pool.script(1, "exit 3");
    pool.ended(1);
    for _ in 0..2 {
        pool.restart();
        assert_eq!(pool.how(1), EndedHow::Exited(3));
        pool.started(1);
    }
    let fence = pool.fence(1);
    pool.submit(Action::Forget(fence));
    pool.script(2, "exit 0");
    pool.ended(2);
    pool.restart();
    assert_eq!(pool.inventory(), [2]);
    assert!(!pool.seen.iter().any(|seen| matches!(seen, Observation::Ended(AllocationId(1), _))));
}

fn forgetting_removes_the_record_and_keeps_the_output() {
    let mut pool = Pool::new();
    pool.script(1, "echo hello");
    pool.ended(1);
    let fence = pool.fence(1);
    pool.submit(Action::Forget(fence));
    pool.script(2, "exit 0");
    pool.ended(2);
    assert!(!pool.record(1).exists());
    assert_eq!(pool.log(1), "hello\n");
}

fn a_record_that_cannot_be_written_is_a_launch_failure() {
    let mut pool = Pool::new();
    // In the way of the record directory, which for this engine is not a task's.
    fs::write(pool.record(1), "").unwrap();
    pool.script(1, "echo $$ >> runs");
    let how = pool.how(1);
    assert!(matches!(how, EndedHow::LaunchFailed(_)), "{how:?}");
    assert!(pool.pids("runs").is_empty());
    pool.script(2, "exit 0");
    assert_eq!(pool.how(2), EndedHow::Exited(0));
}

fn processes_are_attributed_to_their_allocation() {
    let mut pool = Pool::new();
    pool.script(7, "( setsid sleep 1000 & echo $! > pids; wait ) & wait");
    await_lines(&pool.work().join("pids"), 1);
    let first = pool.started(7).pid;
    let deep = pool.pids("pids")[0];
    let processes = pool.engine.as_ref().unwrap().processes();
    assert_eq!(processes.allocation_of(first), Some(AllocationId(7)));
    assert_eq!(processes.allocation_of(deep), Some(AllocationId(7)));
    assert_eq!(processes.allocation_of(std::process::id()), None);
    pool.restart();
    pool.started(7);
    let processes = pool.engine.as_ref().unwrap().processes();
    assert_eq!(processes.allocation_of(deep), Some(AllocationId(7)));
    let fence = Fence { term: pool.term, allocation: AllocationId(7), seq: 100 };
    pool.submit(Action::Stop(fence, Stop { signal: "KILL".into(), grace_ms: 0 }));
    pool.ended(7);
}
