//! Scenarios of jobs that wait for a long time: once in `starve_after` the one that has not run for the longest time gets a place.

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

/// Runs a scenario after a line of policy.
fn check(policy: &str, scenario: &str, expected: Expect) {
    match run(&format!("policy {policy}\n{scenario}")) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

const USUAL: &str = "{half_life: none, starve_after: 1h, quantum: 10m}";

#[test]
fn who_has_not_run_for_the_longest_time_takes_a_place_from_a_higher_priority_and_keeps_it_for_a_while() {
    check(
        USUAL,
        "node n1 1xh100\nsubmit a default 1 prio=high\nplan\nsubmit low default 1\nplan\npass 1h\nplan\nend a signal=15\nplan\npass 5m\nplan\npass 5m\nplan",
        expect![[r#"
            place a n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            first low
            stop a Starved by low
            promise low n1:0
            ended a pending Starved exit=143
            place low n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop low Preempted by a
            promise a n1:0
        "#]],
    );
}

#[test]
fn one_who_cannot_save_its_work_gives_way_once() {
    check(
        USUAL,
        "node n1 1xh100\nsubmit a default 1\nplan\nsubmit b default 1\npass 1h\nplan\nend a signal=15\nplan\npass 1h\nplan\nend b signal=15\nplan\npass 1h\nplan\npass 1h\nplan",
        expect![[r#"
            place a n1:0
            first b
            stop a Starved by b
            promise b n1:0
            ended a pending Starved exit=143
            place b n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            first a
            stop b Starved by a
            promise a n1:0
            ended b pending Starved exit=143
            place a n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn what_is_guaranteed_to_others_stays_theirs() {
    check(
        USUAL,
        "node n1 2xh100\nqueue a guarantee=1\nqueue b weight=0\nsubmit a1 a 1\nsubmit a2 a 1\nplan\nsubmit b1 b 1\nsubmit b2 b 2\nplan\npass 1h\nplan",
        expect![[r#"
            place a1 n1:0
            place a2 n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            first b1
            stop a2 Starved by b1
            promise b1 n1:1
        "#]],
    );
}

#[test]
fn by_the_walk_the_last_in_the_order_gives_way() {
    check(
        "{order: attained, preempt: walk, share: none, starve_after: 1h, quantum: 10m}",
        "node n1 2xh100\nsubmit a default 1 prio=high resumable\nsubmit b default 1 prio=high resumable\nplan\nsubmit low default 1 resumable\nplan\npass 1h\nplan\nend b signal=15\nplan\npass 10m\nplan",
        expect![[r#"
            place a n1:0
            place b n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            first low
            stop b Starved by low
            promise low n1:1
            ended b pending Starved exit=143
            place low n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop low Order by b
            promise b n1:1
        "#]],
    );
}

#[test]
fn the_place_survives_a_restart_and_an_array_is_one_that_waits() {
    check(
        USUAL,
        "node n1 1xh100\nsubmit a default 1 prio=high resumable\nplan\nsubmit low default 1 array=0-2\nplan\npass 1h\nplan\nrestart\nend a signal=15\nplan\nrestart\npass 10m\nplan\nend low_0 signal=15\npass 50m\nplan",
        expect![[r#"
            place a n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            first low_0
            stop a Starved by low_0
            promise low_0 n1:0
            ended a pending Starved exit=143
            place low_0 n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop low_0 Preempted by a
            promise a n1:0
            ended low_0 pending Preempted exit=143
            place a n1:0
        "#]],
    );
}

#[test]
fn the_time_for_which_a_job_was_held_does_not_count() {
    check(
        "{}",
        "node n1 4xh100
queue b
submit h b 4 held user=eve prio=low
submit x b 4 user=ana prio=high
plan
pass 7d
release h by=eve
plan
pass 7d
plan",
        expect![[r#"
            place x n1:0+n1:1+n1:2+n1:3
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
            first h
            stop x Starved by h
            promise h n1:0+n1:1+n1:2+n1:3
        "#]],
    );
}

#[test]
fn who_starves_in_a_queue_above_others_is_helped_by_a_job_below() {
    check(
        "{half_life: none, borrow_evicts: false, starve_after: 2h}",
        "node n1 2xh100\nqueue a\nqueue a/b\nsubmit x a/b 1 array=0-1\nplan\nsubmit y a 1\nplan\npass 130m\nplan",
        expect![[r#"
            place x_0 n1:0
            place x_1 n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            first y
            stop x_1 Starved by y
            promise y n1:1
        "#]],
    );
}
