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
            place urgent n1:0+n1:1
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
            place b2 n1:4+n1:5
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
            promise next n1:2+n1:3
            ended low pending Preempted exit=0
            place next n1:2+n1:3
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        "#]],
    );
}

#[test]
fn what_its_victims_leave_then_goes_to_the_next_before_anybody_else_is_stopped() {
    check(
        "node n1 2xh100
node n2 2xh100
node n3 2xh100
queue a
submit j0 a 2 prio=high
submit j1 a 2 prio=low
submit j5 a 2
plan
submit j2 a 2 prio=60
plan
submit j3 a 2 prio=50
end j0
plan",
        expect![[r#"
            place j0 n1:0+n1:1
            place j5 n2:0+n2:1
            place j1 n3:0+n3:1
            stop j1 Preempted by j2
            promise j2 n3:0+n3:1
            ended j0 completed Exit exit=0
            place j2 n1:0+n1:1
            promise j3 n3:0+n3:1
        "#]],
    );
}

#[test]
fn nobody_behind_it_is_started_and_stopped_in_one_moment() {
    check(
        "policy {reserve: 0}
node n1 4xh100
queue a
submit j1 a 2 prio=high
submit j2 a 2
plan
submit j5 a 3 prio=50
submit j8 a 1 prio=50
plan
end j1
submit j9 a 1
plan",
        expect![[r#"
            place j1 n1:0+n1:1
            place j2 n1:2+n1:3
            stop j2 Preempted by j8
            promise j8 n1:2
            wait DV-GPUS-BUSY: no node has 3 GPUs free that would do
            ended j1 completed Exit exit=0
            promise j5 n1:0+n1:1+n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn it_takes_nothing_before_a_job_of_another_queue_to_which_that_is_due() {
    check(
        "node n1 3xh100
node n2 4xh100
queue e1
queue e2
submit j1 e1 1
submit j2 e2 3
submit j3 e2 1
submit j4 e1 1 prio=high
submit j5 e2 1
plan
submit j6 e2 1 prio=50
submit j7 e1 3
plan
end j4
plan",
        expect![[r#"
            place j4 n1:0
            place j2 n2:0+n2:1+n2:2
            place j1 n2:3
            place j3 n1:1
            place j5 n1:2
            stop j5 Preempted by j6
            promise j6 n1:2
            wait DV-GPUS-BUSY: no node has 3 GPUs free that would do
            ended j4 completed Exit exit=0
        "#]],
    );
}

#[test]
fn what_another_queue_does_not_lend_stays_idle_for_it() {
    check(
        "node n1 2xh100
queue a
queue urgent guarantee=1 lend=0
submit j0 a 0
submit j1 a 1 prio=low
plan
submit j2 a 1 prio=high
plan
end j0
plan
submit u urgent 1
plan",
        expect![[r#"
            place j0 n1
            place j1 n1:0
            stop j1 Preempted by j2
            promise j2 n1:0
            ended j0 completed Exit exit=0
            place u n1:1
        "#]],
    );
}

#[test]
fn a_queue_borrows_no_more_than_it_may_though_some_of_that_is_being_given_back() {
    check(
        "node n1 2xh100
queue a borrow=1
submit j0 a 0
submit j1 a 1 prio=low
plan
submit j2 a 1 prio=high
plan
end j0
plan
end j1
plan",
        expect![[r#"
            place j0 n1
            place j1 n1:0
            stop j1 Preempted by j2
            promise j2 n1:0
            ended j0 completed Exit exit=0
            ended j1 pending Preempted exit=0
            place j2 n1:0
            wait DV-BORROW-LIMIT: queue a would borrow more than the 1 GPU that it may
        "#]],
    );
}

#[test]
fn the_room_of_a_job_before_it_is_looked_for_as_long_as_its_promise_stands() {
    check(
        "node n1 4xh100
queue a
submit j1 a 2 mem=1 prio=high
submit j2 a 2 mem=1
plan
submit j5 a 3 mem=1 prio=50
submit j8 a 1 mem=1 prio=50
submit j6 a 1 mem=1 prio=50
plan
end j1
plan
submit j9 a 1 mem=1
plan",
        expect![[r#"
            place j1 n1:0+n1:1
            place j2 n1:2+n1:3
            stop j2 Preempted by j8
            promise j8 n1:2
            promise j6 n1:3
            wait DV-GPUS-BUSY: no node has 3 GPUs free that would do
            ended j1 completed Exit exit=0
            place j8 n1:0
            place j6 n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn any_model_does_that_the_job_may_have() {
    check(
        "node n1 1xh100
node n2 2xl4
queue a
submit j0 a 1 model=h100 prio=high
submit j1 a 1 model=l4 prio=high
submit j2 a 1 model=l4
plan
submit j3 a 1 prio=50
plan
end j0
end j1
submit j4 a 1 prio=low mem=1
plan",
        expect![[r#"
            place j0 n1:0
            place j1 n2:0
            place j2 n2:1
            stop j2 Preempted by j3
            promise j3 n2:1
            ended j0 completed Exit exit=0
            ended j1 completed Exit exit=0
            place j3 n1:0
            place j4 n2:0
        "#]],
    );
}

#[test]
fn nodes_with_another_share_of_memory_for_each_device_do_too() {
    check(
        "node n1 2xh100
node n2 4xh100
queue a
submit j0 a 4 prio=high
submit j1 a 2 prio=low
plan
submit j2 a 1
plan
end j0
plan
submit j4 a 1 prio=low
plan",
        expect![[r#"
            place j0 n2:0+n2:1+n2:2+n2:3
            place j1 n1:0+n1:1
            stop j1 Preempted by j2
            promise j2 n1:0
            ended j0 completed Exit exit=0
            place j2 n2:0
            place j4 n2:1
        "#]],
    );
}
