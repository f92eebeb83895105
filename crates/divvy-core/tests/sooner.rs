//! Scenarios of jobs that wait for others to stop, and start before that where as much becomes free.

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn a_job_that_waits_for_its_victims_starts_at_once_on_what_becomes_free() {
    check(
        "node n1 4xh100
queue a
submit low a 2 prio=low
submit other a 2
plan
submit high a 2 prio=high
plan
submit next a 2
end other
plan
end low
plan",
        expect![[r#"
            place other n1:0+n1:1
            place low n1:2+n1:3
            stop low Preempted by high
            promise high n1:2+n1:3
            ended other completed Exit exit=0
            place high n1:0+n1:1
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            promise next n1:2+n1:3
            ended low pending Preempted exit=0
            place next n1:2+n1:3
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        "#]],
    );
}

#[test]
fn it_does_so_though_nobody_else_waits() {
    check(
        "node n1 4xh100
queue a
submit low a 2 prio=low
submit other a 2
plan
submit high a 2 prio=high
plan
end other
plan
end low
plan",
        expect![[r#"
            place other n1:0+n1:1
            place low n1:2+n1:3
            stop low Preempted by high
            promise high n1:2+n1:3
            ended other completed Exit exit=0
            place high n1:0+n1:1
            ended low pending Preempted exit=0
            place low n1:2+n1:3
        "#]],
    );
}

#[test]
fn who_stands_before_it_in_its_queue_has_the_free_devices_first() {
    check(
        "node n1 4xh100
queue a
submit low a 2 prio=low
submit other a 2 prio=500
plan
submit high a 2 prio=high
plan
submit urgent a 2 prio=500
end other
plan",
        expect![[r#"
            place other n1:0+n1:1
            place low n1:2+n1:3
            stop low Preempted by high
            promise high n1:2+n1:3
            ended other completed Exit exit=0
            place high n1:0+n1:1
            wait DV-HOST-BUSY: no node has 256Gi of memory left
            promise urgent n1:2+n1:3
        "#]],
    );
}

#[test]
fn another_queue_that_is_due_them_has_them_first() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 7xh100
queue a guarantee=3
queue b guarantee=4
submit low a 2 prio=low
submit b1 b 2
submit other b 2
plan
submit high a 2 prio=high
plan
submit b2 b 2
end other
plan",
        expect![[r#"
            place b1 n1:0+n1:1
            place low n1:2+n1:3
            place other n1:4+n1:5
            stop low Preempted by high
            promise high n1:2+n1:3
            ended other completed Exit exit=0
            place high n1:4+n1:5
            wait DV-HOST-BUSY: no node has 146.2Gi of memory left
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        "#]],
    );
}

#[test]
fn a_gang_does_only_where_all_of_it_can() {
    check(
        "node n1 2xh100
node n2 2xh100
node n3 2xh100
queue a
submit low a 2 tasks=2 prio=low
submit other a 2
plan
submit high a 2 tasks=2 prio=high
plan
end other
plan
end low
plan",
        expect![[r#"
            place other n1:0+n1:1
            place low n2:0+n2:1 n3:0+n3:1
            stop low Preempted by high
            promise high n2:0+n2:1 n3:0+n3:1
            ended other completed Exit exit=0
            ended low pending Preempted exit=0
            place high n2:0+n2:1 n3:0+n3:1
            wait DV-GANG: not all of its 2 tasks fit at once
        "#]],
    );
}

#[test]
fn what_it_waits_for_no_longer_goes_to_the_next() {
    check(
        "node n1 4xh100
queue a
submit low a 2 prio=low
submit other a 2
plan
submit high a 2 prio=high
plan
submit next a 2 prio=high
end other
plan
end low
plan",
        expect![[r#"
            place other n1:0+n1:1
            place low n1:2+n1:3
            stop low Preempted by high
            promise high n1:2+n1:3
            ended other completed Exit exit=0
            place high n1:0+n1:1
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            promise next n1:2+n1:3
            ended low pending Preempted exit=0
            place next n1:2+n1:3
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        "#]],
    );
}
