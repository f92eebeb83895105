//! Scenarios in which cores or memory of a host are missing, not devices.

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

/// A node with four devices and room for the memory of two jobs. Queue `a` has a guarantee, `b` has what is left, and both fill it.
fn check(queues: &str, scenario: &str, expected: Expect) {
    told(&format!("node n1 4xh100 mem=100\n{queues}\n{scenario}"), expected);
}

fn told(scenario: &str, expected: Expect) {
    match run(&format!("policy {{half_life: none}}\n{scenario}")) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

const GUARANTEED: &str = "queue a guarantee=2\nqueue b weight=0";

#[test]
fn for_memory_goes_the_job_without_devices_of_a_queue_that_has_too_many() {
    check(
        GUARANTEED,
        "submit train b 1 mem=50\nsubmit prepare b 0 mem=50\nplan\nsubmit a1 a 1 mem=50\nplan",
        expect![[r#"
            place train n1:0
            place prepare n1
            stop prepare Reclaimed by a1
            promise a1 n1:1
        "#]],
    );
}

#[test]
fn a_job_without_devices_takes_places_within_the_guarantee_of_its_queue() {
    check(
        GUARANTEED,
        "submit train b 1 mem=50\nsubmit prepare b 0 mem=50\nplan\nsubmit a1 a 0 mem=50\nsubmit a2 a 0 mem=50\nplan\nend prepare signal=15\nend train signal=15\nplan",
        expect![[r#"
            place train n1:0
            place prepare n1
            stop prepare Reclaimed by a1
            stop train Reclaimed by a2
            promise a1 n1
            promise a2 n1
            ended prepare pending Reclaimed exit=143
            ended train pending Reclaimed exit=143
            place a1 n1
            place a2 n1
            wait DV-HOST-BUSY: no node has 50Gi of memory left
            wait DV-HOST-BUSY: no node has 50Gi of memory left
        "#]],
    );
}

#[test]
fn by_weight_alone_nobody_makes_room_for_a_job_without_devices() {
    check(
        "queue a\nqueue b weight=0",
        "submit train b 1 mem=50\nsubmit other b 1 mem=50\nplan\nsubmit a1 a 0 mem=50\nplan",
        expect![[r#"
            place train n1:0
            place other n1:1
            wait DV-HOST-BUSY: no node has 50Gi of memory left
        "#]],
    );
}

#[test]
fn nobody_without_devices_gives_way_to_another_like_it() {
    check(
        GUARANTEED,
        "submit b1 b 0 mem=50\nsubmit b2 b 0 mem=50\nplan\nsubmit a1 a 0 mem=50\nplan",
        expect![[r#"
            place b1 n1
            place b2 n1
            wait DV-HOST-BUSY: no node has 50Gi of memory left
        "#]],
    );
}

#[test]
fn who_has_more_devices_than_are_guaranteed_takes_none_for_a_job_without_any() {
    check(
        "queue a guarantee=1\nqueue b weight=0",
        "submit a1 a 2 mem=20\nsubmit b1 b 1 mem=40\nsubmit b2 b 1 mem=40\nplan\nsubmit a2 a 0 mem=50\nplan",
        expect![[r#"
            place a1 n1:0+n1:1
            place b1 n1:2
            place b2 n1:3
            wait DV-HOST-BUSY: no node has 50Gi of memory left
        "#]],
    );
}

#[test]
fn where_a_node_takes_no_more_tasks_one_goes_for_the_other_though_devices_are_free() {
    told(
        "node n1 4xh100 tasks=2\nsubmit l1 default 1 prio=low\nsubmit l2 default 1 prio=low\nplan\nsubmit h default 1 prio=high\nplan\nend l2 signal=15\nplan",
        expect![[r#"
            place l1 n1:0
            place l2 n1:1
            stop l2 Preempted by h
            promise h n1:1
            ended l2 pending Preempted exit=143
            place h n1:1
            wait DV-HOST-BUSY: no node has 1 of pods left
        "#]],
    );
}

/// Of the queues below one that has too many cores the one that has most of them gives back, whatever GPUs they have.
#[test]
fn who_holds_most_of_the_cores_gives_back_first() {
    told(
        "node n1 1xh100 cpu=8 mem=64\nqueue r/b\nqueue r/c\n\
         queue a {\"path\": \"a\", \"guarantee\": {\"cpu\": {\"finite\": 2000}}}\n\
         submit c1 r/c 0 cpu=2 mem=1\nplan\npass 1m\nsubmit b1 r/b 0 cpu=3 mem=1\nsubmit b2 r/b 0 cpu=3 mem=1\nplan\n\
         submit j a 0 cpu=2 mem=1\nplan",
        expect![[r#"
            place c1 n1
            place b1 n1
            place b2 n1
            stop b2 Reclaimed by j
            promise j n1
        "#]],
    );
}
