//! Scenarios of jobs that have had to give way before.

use divvy_core::scenario::run;
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
        "node n1 4xh100\nqueue x guarantee=2\nqueue y guarantee=2\nsubmit xl x 1 exclusive\nplan\nsubmit xh x 4 prio=high\nplan\nend xl signal=15\nplan\nsubmit yl y 1 exclusive\nplan\nend xh signal=15\nplan\nsubmit yh y 4 prio=high\nplan\nend yl signal=15\nplan\nend yh signal=15\nplan\nend xl signal=15\nplan\nplan",
        expect![[r#"
            place xl n1:0
            stop xl Preempted by xh
            promise xh n1:0+n1:1+n1:2+n1:3
            ended xl pending Preempted exit=143
            place xh n1:0+n1:1+n1:2+n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop xh Reclaimed by yl
            promise yl n1:0
            wait DV-HOST-BUSY: no node has 128Gi of memory left
            ended xh pending Reclaimed exit=143
            place yl n1:0
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
            stop yl Preempted by yh
            promise yh n1:0+n1:1+n1:2+n1:3
            ended yl pending Preempted exit=143
            place yh n1:0+n1:1+n1:2+n1:3
            stop yh Reclaimed by xl
            promise xl n1:0
            wait DV-HOST-BUSY: no node has 128Gi of memory left
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
