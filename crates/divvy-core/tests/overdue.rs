//! Tasks that do not end though they were told to: whoever waits for them gets something else.

use divvy_core::check::Watch;
use divvy_core::event::{Event, Stamped};
use divvy_core::scenario::{Scenario, run, write};
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn who_waits_for_a_task_that_does_not_end_gets_what_another_leaves() {
    check(
        "node n1 2xh100
submit j1 default 1 prio=low
submit j2 default 1 prio=low
plan
submit j3 default 1 prio=high
plan
pass 69s
plan
pass 1s
plan
explain j3
end j1
plan
end j2
plan",
        expect![[r#"
            place j1 n1:0
            place j2 n1:1
            stop j2 Preempted by j3
            promise j3 n1:1
            overdue j2/0
            stop j1 Preempted by j3
            promise j3 n1:0
            later
              DV-PROMISED its devices are promised to it; the task that holds them is being stopped | wait a moment: it starts when that task has stopped
              2 in pool > 2 right model > 2 enough memory > 2 healthy > 0 free > 0 on one node
            ended j1 pending Preempted exit=0
            place j3 n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended j2 pending Preempted exit=0
            place j1 n1:1
        "#]],
    );
}

#[test]
fn a_job_that_was_to_move_and_does_not_end_holds_nothing_of_what_is_guaranteed_to_its_queue() {
    check(
        "node n0 4xh100 linked=2 numa=32:256,32:256 zone=z1 rack=r1
node n1 4xh100 linked=0+1:2,1+2:1,2+3:2 cpu=32 mem=64 zone=z1 rack=r2
queue a limit=6 guarantee=3
queue c cpu=40 guarantee=2
submit late c 2 prio=low limit=20m
submit keeps a 1 tasks=2 prio=low fixed
submit gives a 2 within=nvlink wait
pass 5m
node n2 2xa100 zone=z2 rack=r3
submit moves c 1 tasks=3 spread=rack
plan
plan
pass 5m
plan
end gives
plan",
        expect![[r#"
            place gives n1:0+n1:1
            place moves n0:0 n1:2 n2:0
            place keeps n0:1 n0:2
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            stop moves Moved by late
            promise moves n0:0 n2:0 n0:3
            promise late n1:2+n1:3
            overdue moves/0
            overdue moves/1
            overdue moves/2
            stop gives Reclaimed by late
            promise late n1:0+n1:1
            ended gives pending Reclaimed exit=0
            place late n1:0+n1:1
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        "#]],
    );
}

#[test]
fn what_becomes_free_goes_to_whom_a_stuck_task_was_promised() {
    check(
        "node n1 2xh100
submit j1 default 1 prio=low
submit j2 default 1 fixed
plan
submit j3 default 1 prio=high
plan
pass 2m
plan
explain j3
explain j1
end j2
plan
end j1
plan",
        expect![[r#"
            place j2 n1:0
            place j1 n1:1
            stop j1 Preempted by j3
            promise j3 n1:1
            overdue j1/0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            later
              DV-GPUS-BUSY every GPU that would do is taken | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              2 in pool > 2 right model > 2 enough memory > 2 healthy > 0 free > 0 on one node
            later
              DV-GPUS-BUSY every GPU that would do is taken | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              2 in pool > 2 right model > 2 enough memory > 2 healthy > 0 free > 0 on one node
            ended j2 completed Exit exit=0
            place j3 n1:0
            ended j1 pending Preempted exit=0
            place j1 n1:1
        "#]],
    );
}

#[test]
fn a_task_is_overdue_a_minute_after_its_own_grace_which_a_later_stop_may_shorten() {
    let slow = r#"submit j1 default {"name": "j1", "queue": "default", "priority": -100, "checkpoint": {"notice": "USR1", "grace_ms": 600000}, "gang": {"role": {"name": "main", "minimum": 1, "maximum": 1, "work": {"external": ["pod"]}, "ask": {"alternatives": [{"devices": {"class": {}, "count": 1, "draw": "whole"}, "speed_percent": 100}]}}}}"#;
    let begin = format!("node n1 1xh100\n{slow}\nplan\nsubmit j2 default 1 prio=high\nplan\npass 5m\nplan");
    check(
        &format!("{begin}\npass 5m\nexplain j2\nplan\npass 1m\nplan"),
        expect![[r#"
        place j1 n1:0
        stop j1 Preempted by j2
        promise j2 n1:0
        later
          DV-PROMISED its devices are promised to it; the task that holds them is being stopped | wait a moment: it starts when that task has stopped
          1 in pool > 1 right model > 1 enough memory > 1 healthy > 0 free > 0 on one node
        overdue j1/0
        wait DV-GPUS-BUSY: every GPU that would do is taken
    "#]],
    );
    check(
        &format!("{begin}\ncancel j1\npass 70s\nplan"),
        expect![[r#"
        place j1 n1:0
        stop j1 Preempted by j2
        promise j2 n1:0
        stop j1 Cancelled
        overdue j1/0
        wait DV-GPUS-BUSY: every GPU that would do is taken
    "#]],
    );
}

#[test]
fn a_gang_that_shrinks_is_counted_on_for_the_tasks_that_end() {
    check(
        "node n1 4xh100
submit j1 default 1 prio=low tasks=2..4
plan
submit j2 default 1 prio=high
submit j3 default 1 prio=high
plan
end j1/3
pass 70s
plan
end j1/2
plan",
        expect![[r#"
            place j1 n1:0 n1:1
            grow j1 n1:2 n1:3
            shrink j1 by n1:3 Preempted by j2
            shrink j1 by n1:2 Preempted by j3
            promise j2 n1:3
            promise j3 n1:2
            place j2 n1:3
            overdue j1/2
            stop j1 Preempted by j3
            promise j3 n1:1
            place j3 n1:2
        "#]],
    );
}

#[test]
fn a_gang_of_which_a_task_is_stuck_is_not_moved_since_it_would_wait_for_that_task() {
    check(
        "node n1 2xh100
submit j1 default 1 prio=low tasks=1..2
plan
submit j2 default 1 prio=high model=h100
plan
pass 70s
node n2 1xa100
plan
end j1/0
plan
end j1/1
plan",
        expect![[r#"
            place j1 n1:0
            grow j1 n1:1
            shrink j1 by n1:1 Preempted by j2
            promise j2 n1:1
            overdue j1/1
            stop j1 Preempted by j2
            promise j2 n1:0
            place j2 n1:0
            ended j1 pending Preempted exit=0
            place j1 n1:1
            grow j1 n2:0
        "#]],
    );
}

#[test]
fn nobody_is_promised_what_a_stuck_task_holds() {
    check(
        "node n1 1xh100
submit j1 default 1 prio=low
plan
submit j2 default 1 prio=high
plan
pass 2m
plan
submit j3 default 1 prio=urgent
plan
cancel j1
plan
end j1
plan",
        expect![[r#"
            place j1 n1:0
            stop j1 Preempted by j2
            promise j2 n1:0
            overdue j1/0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop j1 Cancelled
            ended j1 cancelled Cancelled exit=0
            place j3 n1:0
        "#]],
    );
}

#[test]
fn after_a_start_the_grace_counts_anew_since_the_first_order_may_have_been_lost() {
    let begin = "node n1 1xh100\nsubmit j1 default 1 prio=low\nplan\nsubmit j2 default 1 prio=high\nplan\npass 1h\nrestart\nplan";
    check(
        &format!("{begin}\npass 69s\nplan\nexplain j2\npass 1s\nplan"),
        expect![[r#"
        place j1 n1:0
        stop j1 Preempted by j2
        promise j2 n1:0
        later
          DV-PROMISED its devices are promised to it; the task that holds them is being stopped | wait a moment: it starts when that task has stopped
          1 in pool > 1 right model > 1 enough memory > 1 healthy > 0 free > 0 on one node
        overdue j1/0
        wait DV-GPUS-BUSY: every GPU that would do is taken
    "#]],
    );
}

#[test]
fn a_pool_with_a_task_that_does_not_end_is_written_as_it_is() {
    let mut pool = Scenario::new();
    for line in ["node n1 2xh100", "submit j1 default 1 prio=low", "submit j2 default 1 fixed", "plan"] {
        pool.line(line).unwrap();
    }
    for line in ["pass 1h", "submit j3 default 1 prio=high", "plan", "pass 1h", "plan"] {
        pool.line(line).unwrap();
    }
    let written = write(pool.state());
    assert!(written.differences.is_empty(), "{written:?}");
    expect![[r#"
        overdue j1/0
        wait DV-GPUS-BUSY: every GPU that would do is taken
        ended j2 completed Exit exit=0
        place j3 n1:0
    "#]]
    .assert_eq(&run(&format!("{}\nplan\nend j2\nplan", written.text)).unwrap());
}

#[test]
fn the_checker_names_a_promise_that_waits_for_a_task_that_does_not_end() {
    let mut pool = Scenario::new();
    for line in ["node n1 1xh100", "submit j1 default 1", "plan", "stop j1", "pass 2m", "plan"] {
        pool.line(line).unwrap();
    }
    for line in ["submit j2 default 1", "promise j2 on=n1:0"] {
        pool.line(line).unwrap();
    }
    let mut state = pool.state().clone();
    let mut watch = Watch::new(&state);
    let event = Event::Planned { saw: state.position, state: 0, policy: 0, plan: 0 };
    let planned = Stamped { at: state.now, event };
    state.apply(&planned).unwrap();
    let found: Vec<String> = watch.follow(&state, &planned).into_iter().map(|found| found.text).collect();
    assert_eq!(found, ["the promise to job 2 waits for a task that does not end"]);
    // The planner takes such a promise back.
    pool.line("plan").unwrap();
    assert!(pool.state().promises.is_empty());
}

#[test]
fn when_a_gang_is_stopped_as_a_whole_nobody_waits_for_the_task_that_does_not_end() {
    check(
        "policy {elastic: true}
node n1 3xh100
submit gang default 1 tasks=1..3 prio=low limit=10m requeue=never
plan
submit high default 1 prio=high
plan
pass 70s
plan
end gang/1
plan
submit next default 2
plan
pass 9m
plan
explain next
end gang/2
plan",
        expect![[r#"
            place gang n1:0
            grow gang n1:1 n1:2
            shrink gang by n1:2 Preempted by high
            promise high n1:2
            overdue gang/2
            shrink gang by n1:1 Preempted by high
            promise high n1:1
            place high n1:1
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            stop gang TimeLimit
            later
              DV-GPUS-BUSY no node has 2 GPUs free that would do | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              3 in pool > 3 right model > 3 enough memory > 3 healthy > 0 free > 0 on one node
            promise next n1:0+n1:2
        "#]],
    );
}
