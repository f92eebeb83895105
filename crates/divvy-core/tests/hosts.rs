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
            place a1 n1
            ended train pending Reclaimed exit=143
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

#[test]
fn a_promise_waits_for_those_on_its_devices_not_for_all_on_the_host() {
    told(
        "node n1 2xh100\nqueue g guarantee=2\nqueue u\nsubmit v u 1 array=0-1\nplan\nsubmit a g 1\nsubmit b g 1\nplan\nend v_1 signal=15\nend v_0 signal=15",
        expect![[r#"
            place v_0 n1:0
            place v_1 n1:1
            stop v_1 Reclaimed by a
            stop v_0 Reclaimed by b
            promise a n1:1
            promise b n1:0
            ended v_1 pending Reclaimed exit=143
            place a n1:1
            ended v_0 pending Reclaimed exit=143
            place b n1:0
        "#]],
    );
}

#[test]
fn what_a_host_has_left_and_what_those_leave_who_go_is_given_to_one_promise_each() {
    // a1 needs 10 of v2's memory beside v1's and the 20 that are left; a2 the rest of v2's.
    told(
        "node n1 4xh100 mem=100\nqueue a guarantee=4\nqueue b weight=0\nsubmit v1 b 2 mem=40\nsubmit v2 b 2 mem=40\nplan\nsubmit a1 a 2 mem=70\nsubmit a2 a 2 mem=30\nplan\nend v1 signal=15\nplan\nexplain a1\nend v2 signal=15",
        expect![[r#"
            place v1 n1:0+n1:1
            place v2 n1:2+n1:3
            stop v2 Reclaimed by a1
            stop v1 Reclaimed by a1
            promise a1 n1:0+n1:1
            promise a2 n1:2+n1:3
            ended v1 pending Reclaimed exit=143
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            later
              DV-PROMISED its devices are promised to it; the task that holds them is being stopped | wait a moment: it starts when that task has stopped
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 0 free > 0 on one node
            ended v2 pending Reclaimed exit=143
            place a1 n1:0+n1:1
            place a2 n1:2+n1:3
        "#]],
    );
}

#[test]
fn who_needs_more_memory_than_is_left_waits_for_as_many_as_have_it() {
    told(
        "node n1 4xh100 mem=100\nqueue a guarantee=4\nqueue b weight=0\nsubmit v1 b 2 mem=40\nsubmit v2 b 2 mem=40\nplan\nsubmit a1 a 2 mem=90\nplan\nend v2 signal=15\nplan\nend v1 signal=15",
        expect![[r#"
            place v1 n1:0+n1:1
            place v2 n1:2+n1:3
            stop v2 Reclaimed by a1
            stop v1 Reclaimed by a1
            promise a1 n1:0+n1:1
            ended v2 pending Reclaimed exit=143
            wait DV-HOST-BUSY: no node has 40Gi of memory left
            ended v1 pending Reclaimed exit=143
            place a1 n1:0+n1:1
        "#]],
    );
}

#[test]
fn of_those_for_whom_a_promise_waits_only_those_are_counted_that_have_not_ended() {
    told(
        "node n1 2xh100\nqueue g guarantee=2\nqueue u\nsubmit v u 1 array=0-1\nplan\nsubmit a g 2\nplan\nexplain a\nend v_1 signal=15\nexplain a",
        expect![[r#"
            place v_0 n1:0
            place v_1 n1:1
            stop v_1 Reclaimed by a
            stop v_0 Reclaimed by a
            promise a n1:0+n1:1
            later
              DV-PROMISED its devices are promised to it; 2 tasks that hold them are being stopped | wait a moment: it starts when they have stopped
              2 in pool > 2 right model > 2 enough memory > 2 healthy > 0 free > 0 on one node
            ended v_1 pending Reclaimed exit=143
            later
              DV-PROMISED its devices are promised to it; the task that holds them is being stopped | wait a moment: it starts when that task has stopped
              2 in pool > 2 right model > 2 enough memory > 2 healthy > 0 free > 0 on one node
        "#]],
    );
}

#[test]
fn a_node_that_takes_no_more_tasks_is_not_said_to_lack_memory() {
    told(
        "node n1 4xh100 tasks=1\nnode n2 2xh100\nsubmit a default 2 tasks=2\nplan\nsubmit b default 2 mem=1\nplan",
        expect![[r#"
            place a n1:0+n1:1 n2:0+n2:1
            wait DV-HOST-BUSY: no node has 1 of pods left
        "#]],
    );
}
