//! Scenarios of jobs that have had to give way before.

#![allow(clippy::unwrap_used, reason = "only tests live here")]

use divvy_core::decide::observe;
use divvy_core::engine::{Observation, TaskEnd, TaskStart};
use divvy_core::event::{Event, Stamped};
use divvy_core::id::AllocationId;
use divvy_core::scenario::{Scenario, run};
use divvy_core::time::Time;
use expect_test::{Expect, expect};

/// Runs a scenario after a line of policy.
fn check(policy: &str, scenario: &str, expected: Expect) {
    match run(&format!("policy {policy}\n{scenario}")) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn who_gave_way_is_safe_for_a_while_once_it_runs_again_and_then_not_any_more() {
    check(
        "{half_life: none, cool_down: 30m}",
        "node n1 1xh100\nsubmit low default 1\nplan\nsubmit h1 default 1 prio=high\nplan\nend low signal=15\nend h1\nplan\npass 10m\nsubmit h2 default 1 prio=high\nplan\nrestart\nplan\npass 20m\nplan",
        expect![[r#"
            place low n1:0
            stop low Preempted by h1
            promise h1 n1:0
            ended low pending Preempted exit=143
            place h1 n1:0
            ended h1 completed Exit exit=0
            place low n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop low Preempted by h2
            promise h2 n1:0
        "#]],
    );
}

#[test]
fn who_gave_way_as_often_as_the_policy_says_gives_way_no_more() {
    check(
        "{half_life: none, cool_down: none, most_restarts: 1}",
        "node n1 1xh100\nsubmit low default 1\nplan\nsubmit h1 default 1 prio=high\nplan\nend low signal=15\nend h1\nplan\nrestart\nsubmit h2 default 1 prio=high\nplan\npass 30d\nplan\nend low\nplan",
        expect![[r#"
            place low n1:0
            stop low Preempted by h1
            promise h1 n1:0
            ended low pending Preempted exit=143
            place h1 n1:0
            ended h1 completed Exit exit=0
            place low n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended low completed Exit exit=0
            first h2
            place h2 n1:0
        "#]],
    );
}

#[test]
fn what_is_guaranteed_to_a_queue_does_not_wait_until_those_of_others_are_not_safe_any_more() {
    check(
        "{half_life: none, cool_down: 30m, most_restarts: 1}",
        "node n1 1xh100\nqueue a guarantee=1\nqueue b\nsubmit b1 b 1\nplan\nsubmit a1 a 1\nplan\nend b1 signal=15\nend a1\nplan\nrestart\nsubmit b2 b 1 prio=high\nplan\nsubmit a2 a 1\nplan",
        expect![[r#"
            place b1 n1:0
            stop b1 Reclaimed by a1
            promise a1 n1:0
            ended b1 pending Reclaimed exit=143
            place a1 n1:0
            ended a1 completed Exit exit=0
            place b1 n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop b1 Reclaimed by a2
            promise a2 n1:0
        "#]],
    );
}

#[test]
fn by_default_who_gave_way_is_safe_for_a_minute() {
    check(
        "{half_life: none}",
        "node n1 1xh100\nsubmit low default 1\nplan\nsubmit h1 default 1 prio=high\nplan\nend low signal=15\nend h1\nplan\npass 50s\nsubmit h2 default 1 prio=high\nplan\npass 10s\nplan",
        expect![[r#"
            place low n1:0
            stop low Preempted by h1
            promise h1 n1:0
            ended low pending Preempted exit=143
            place h1 n1:0
            ended h1 completed Exit exit=0
            place low n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop low Preempted by h2
            promise h2 n1:0
        "#]],
    );
}

#[test]
fn who_has_not_run_for_long_is_left_alone_by_other_queues_until_he_has() {
    check(
        "{half_life: none, cool_down: none, min_runtime: 10m}",
        "node n1 1xh100\nqueue a guarantee=1\nqueue b\nsubmit b1 b 1\nplan\npass 1m\nsubmit a1 a 1\nplan\npass 9m\nplan",
        expect![[r#"
            place b1 n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop b1 Reclaimed by a1
            promise a1 n1:0
        "#]],
    );
}

#[test]
fn of_two_the_one_goes_that_has_less_to_do_again() {
    check(
        "{half_life: none, cool_down: none}",
        "node n1 2xh100\nsubmit saves default 1 saves=5m\nplan\npass 1h\nsubmit young default 1\nplan\npass 10m\nsubmit high default 1 prio=high\nplan",
        expect![[r#"
            place saves n1:0
            place young n1:1
            stop saves Preempted by high
            promise high n1:0
        "#]],
    );
}

#[test]
fn those_whose_devices_were_just_taken_leave_no_queue_short_of_its_guarantee() {
    check(
        "{half_life: none, cool_down: none, starve_after: none}",
        "node n1 4xh100\nqueue x guarantee=2\nqueue y guarantee=2\nsubmit xl x 1 mem=512\nplan\nsubmit xh x 4 prio=high\nplan\nend xl signal=15\nplan\nsubmit yl y 1 mem=512\nplan\nend xh signal=15\nplan\nsubmit yh y 4 prio=high\nplan\nend yl signal=15\nplan\nend yh signal=15\nplan\nend xl signal=15\nplan\nplan",
        expect![[r#"
            place xl n1:0
            stop xl Preempted by xh
            promise xh n1:0+n1:1+n1:2+n1:3
            ended xl pending Preempted exit=143
            place xh n1:0+n1:1+n1:2+n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop xh Reclaimed by yl
            promise yl n1:0
            wait DV-HOST-BUSY: no node has 512Gi of memory left
            ended xh pending Reclaimed exit=143
            place yl n1:0
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
            stop yl Preempted by yh
            promise yh n1:0+n1:1+n1:2+n1:3
            ended yl pending Preempted exit=143
            place yh n1:0+n1:1+n1:2+n1:3
            stop yh Reclaimed by xl
            promise xl n1:0
            wait DV-HOST-BUSY: no node has 512Gi of memory left
            ended yh pending Reclaimed exit=143
            place xl n1:0
            stop xl Preempted by xh
            promise xh n1:0+n1:1+n1:2+n1:3
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
            ended xl pending Preempted exit=143
            place xh n1:0+n1:1+n1:2+n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn the_end_of_a_while_of_safety_is_not_missed_where_something_else_happens_then() {
    check(
        "{}",
        "node n0 1xh100\nsubmit j3 default 1 mem=1 prio=low\nplan\nsubmit j5 default 1 mem=1 prio=high\nplan\nend j3 signal=15\nplan\nend j5\nplan\nsubmit j7 default 1 mem=1 prio=high\nplan\npass 61s\nsubmit j8 default 1 mem=1 prio=low\nplan",
        expect![[r#"
            place j3 n0:0
            stop j3 Preempted by j5
            promise j5 n0:0
            ended j3 pending Preempted exit=143
            place j5 n0:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended j5 completed Exit exit=0
            place j3 n0:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop j3 Preempted by j7
            promise j7 n0:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn nor_is_the_moment_from_which_other_queues_may_take_from_a_run() {
    check(
        "{half_life: none, min_runtime: 5m}",
        "node n0 2xh100\nqueue c\nqueue a guarantee=1\nsubmit j3 c 1 array=0-1 mem=1\nplan\nsubmit j5 a 1 mem=1\nplan\npass 6m\nsubmit j6 c 1 mem=1\nplan",
        expect![[r#"
            place j3_0 n0:0
            place j3_1 n0:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop j3_1 Reclaimed by j5
            promise j5 n0:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

/// A pool in which a job of two GPUs has run for two seconds when the daemon goes away, and 15 are over when it is back and is told so.
fn ended_while_nobody_looked() -> Scenario {
    let mut pool = Scenario::new();
    let lines =
        ["policy {half_life: none}", "node n1 2xh100", "submit a default 2", "plan", "pass 15s", "restart"];
    lines.iter().for_each(|line| pool.line(line).unwrap());
    let (allocation, now) = (*pool.state().allocations.keys().next().unwrap(), pool.now());
    let end = TaskEnd { at: Time(2000), ran_ms: 2000, ..TaskEnd::default() };
    pool.controller().see(&Observation::Ended(allocation, end), now).unwrap();
    pool
}

#[test]
fn what_ended_while_nobody_looked_is_charged_until_it_ended() {
    let mut pool = ended_while_nobody_looked();
    let charged = pool.state().ledger.charged("default", pool.now());
    assert_eq!(charged, 2 * 1000 * 2000);
    // The checker of the laws looks at it from here on.
    ["submit b default 2", "plan", "pass 3s", "end b", "plan"]
        .iter()
        .for_each(|line| pool.line(line).unwrap());
    assert_eq!(divvy_core::check::check(pool.state()), []);
    assert_eq!(pool.state().ledger.charged("default", pool.now()), 2 * 1000 * 5000);
}

#[test]
fn history_tells_when_it_ended_and_not_when_that_was_seen() {
    let mut pool = ended_while_nobody_looked();
    let attempts = pool.controller().drain().unwrap().attempts;
    let told: Vec<_> = attempts.iter().map(|it| (it.ended_at, it.held_milli_ms)).collect();
    assert_eq!(told, [(Time(2000), 2 * 1000 * 2000)]);
}

#[test]
fn an_end_lies_between_the_beginning_and_when_it_is_seen_whatever_the_clock_said() {
    let mut pool = Scenario::new();
    let lines = ["node n1 1xh100", "pass 10s", "submit a default 1", "plan", "pass 5s", "restart"];
    lines.iter().for_each(|line| pool.line(line).unwrap());
    let (allocation, now) = (*pool.state().allocations.keys().next().unwrap(), pool.now());
    // A clock that is set back makes no run shorter than it says that it was.
    for (at, ran_ms, held_ms) in
        [(12_000, 0, 2000), (2000, 0, 0), (2000, 3000, 3000), (12_000, 90_000, 5000), (99_000, 0, 5000)]
    {
        let mut state = pool.state().clone();
        let end = TaskEnd { at: Time(at), ran_ms, ..TaskEnd::default() };
        let seen = observe(&state, &Observation::Ended(allocation, end));
        seen.events.into_iter().for_each(|event| state.apply(&Stamped { at: now, event }).unwrap());
        assert_eq!(state.ledger.charged("default", now), 1000 * held_ms, "{at} after {ran_ms}");
        assert_eq!(divvy_core::check::check(&state), []);
    }
    // Nor does what stands in a log.
    for (ended_at, held_ms) in [(Some(2000), 0), (Some(99_000), 5000), (None, 5000)] {
        let mut state = pool.state().clone();
        let event = Event::TaskEnded { allocation, end: TaskEnd::default(), ended_at: ended_at.map(Time) };
        state.apply(&Stamped { at: now, event }).unwrap();
        assert_eq!(state.ledger.charged("default", now), 1000 * held_ms, "{ended_at:?}");
    }
}

#[test]
fn an_end_of_which_a_log_does_not_say_when_it_was_was_when_it_is_in_it() {
    let (allocation, end) = (AllocationId(1), TaskEnd::default());
    let seen_at_once = Event::TaskEnded { allocation, end: end.clone(), ended_at: None };
    let text = serde_json::to_string(&seen_at_once).unwrap();
    assert!(!text.contains("ended_at"), "{text}");
    assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), seen_at_once);
    let late = Event::TaskEnded { allocation, end, ended_at: Some(Time(7)) };
    assert_eq!(serde_json::from_str::<Event>(&serde_json::to_string(&late).unwrap()).unwrap(), late);
}

#[test]
fn what_began_and_ended_while_nobody_looked_ran_for_as_long_as_it_says() {
    let mut pool = Scenario::new();
    let lines = ["node n1 1xh100", "submit a default 1", "start a on=n1:0 slowly", "pass 15s", "restart"];
    lines.iter().for_each(|line| pool.line(line).unwrap());
    let (allocation, now) = (*pool.state().allocations.keys().next().unwrap(), pool.now());
    let start = TaskStart { at: Time(7000), ..TaskStart::default() };
    pool.controller().see(&Observation::Started(allocation, start), now).unwrap();
    let end = TaskEnd { at: Time(9000), ran_ms: 2000, ..TaskEnd::default() };
    pool.controller().see(&Observation::Ended(allocation, end), now).unwrap();
    let attempts = pool.controller().drain().unwrap().attempts;
    let told: Vec<_> = attempts.iter().map(|it| (it.started_at, it.ended_at)).collect();
    assert_eq!(told, [(Some(Time(7000)), Time(9000))]);
}

/// How many GPU-hours are left of a budget of ten a day, of which all that is left is carried, after a job that used one of them and of
/// which that is seen so many hours after it began.
fn left_when_seen_after(hours: i64) -> i128 {
    let mut pool = Scenario::new();
    let queue = r#"queue q {"path": "q", "budget": {"milli_gpu_hours": 10000, "every": "day", "carry_milli": null}, "pledge": {"milli_gpu_hours": 10000, "every": "day"}}"#;
    let pass = format!("pass {hours}h");
    let lines =
        ["policy {half_life: none}", "node n1 1xh100", queue, "submit a q 1", "plan", &pass, "restart"];
    lines.iter().for_each(|line| pool.line(line).unwrap());
    let (allocation, now) = (*pool.state().allocations.keys().next().unwrap(), pool.now());
    let end = TaskEnd { at: Time(3_600_000), ran_ms: 3_600_000, ..TaskEnd::default() };
    pool.controller().see(&Observation::Ended(allocation, end), now).unwrap();
    let behind = pool.state().behind_pledge("q", now).unwrap();
    let due = i128::from(10_000 * 3_600_000 / 24 * (hours % 24));
    assert_eq!(due - behind, if hours < 24 { 1000 * 3_600_000 } else { 0 }, "{hours}");
    pool.state().budget_left("q", now).unwrap() / (1000 * 3_600_000)
}

#[test]
fn what_was_charged_in_days_that_are_over_is_left_of_those_and_no_gain_today() {
    assert_eq!([1, 6, 30, 49, 75].map(left_when_seen_after), [9, 9, 19, 29, 39]);
}
