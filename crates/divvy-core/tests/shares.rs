//! Scenarios of what is divided, and among which queues: what no job could get, and jobs that could not start, play no part.

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn nothing_is_due_to_jobs_that_the_pool_could_never_hold() {
    // Without those of x, b and c have a half each.
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 8xh100
queue x
queue b
queue c
submit x1 x 4 model=h200 array=0-1 wait
plan
submit b1 b 1 array=0-7
plan
submit c1 c 1 array=0-7
plan",
        expect![[r#"
            wait DV-NO-SUCH-MODEL: the pool has no GPU like h200
            place b1_0 n1:0
            place b1_1 n1:1
            place b1_2 n1:2
            place b1_3 n1:3
            place b1_4 n1:4
            place b1_5 n1:5
            place b1_6 n1:6
            place b1_7 n1:7
            stop b1_7 Reclaimed by c1_0
            stop b1_6 Reclaimed by c1_1
            stop b1_5 Reclaimed by c1_2
            stop b1_4 Reclaimed by c1_3
            promise c1_0 n1:7
            promise c1_1 n1:6
            promise c1_2 n1:5
            promise c1_3 n1:4
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn nor_to_jobs_larger_than_their_queues_limit() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 8xh100
queue a limit=3
queue b
submit a1 a 4 wait
submit b1 b 1 array=0-8
plan
submit a2 a 1 array=0-2
plan",
        expect![[r#"
            place b1_0 n1:0
            place b1_1 n1:1
            place b1_2 n1:2
            place b1_3 n1:3
            place b1_4 n1:4
            place b1_5 n1:5
            place b1_6 n1:6
            place b1_7 n1:7
            wait DV-GPUS-BUSY: every GPU that would do is taken
            wait DV-QUEUE-LIMIT: queue a has a limit of 3 GPUs, and it asks for 4
            stop b1_7 Reclaimed by a2_0
            stop b1_6 Reclaimed by a2_1
            stop b1_5 Reclaimed by a2_2
            promise a2_0 n1:7
            promise a2_1 n1:6
            promise a2_2 n1:5
        "#]],
    );
}

#[test]
fn jobs_that_turn_out_to_fit_nowhere_leave_what_was_due_to_them_to_others_in_the_same_cycle() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 6xh100
queue x
queue b
queue c
submit b1 b 1 array=0-5
plan
submit x1 x 6 gb=141 wait
submit c1 c 3
plan",
        expect![[r#"
            place b1_0 n1:0
            place b1_1 n1:1
            place b1_2 n1:2
            place b1_3 n1:3
            place b1_4 n1:4
            place b1_5 n1:5
            wait DV-GPUS-BUSY: no node has 3 GPUs free that would do
            wait DV-NO-SUCH-MEMORY: no GPU of that model has such memory: 141GB..
            stop b1_5 Reclaimed by c1
            stop b1_4 Reclaimed by c1
            stop b1_3 Reclaimed by c1
            promise c1 n1:3+n1:4+n1:5
        "#]],
    );
}

#[test]
fn once_the_pool_has_what_they_want_they_have_their_part_again() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 2xh100
queue x
queue b
submit x1 x 1 model=h200 array=0-1 wait
submit b1 b 1 array=0-4
plan
node n2 2xh200
plan",
        expect![[r#"
            place b1_0 n1:0
            place b1_1 n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            wait DV-NO-SUCH-MODEL: the pool has no GPU like h200
            place x1_0 n2:0
            place x1_1 n2:1
        "#]],
    );
}

#[test]
fn what_is_drained_is_divided_no_more_once_nobody_has_it() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 8xh100
queue a
queue b weight=3
drain on n1:0
drain on n1:1
drain on n1:2
drain on n1:3
submit a1 a 1 array=0-7
plan
submit b1 b 1 array=0-7
plan",
        expect![[r#"
            reservation 1 begins
            reservation 2 begins
            reservation 3 begins
            reservation 4 begins
            place a1_0 n1:4
            place a1_1 n1:5
            place a1_2 n1:6
            place a1_3 n1:7
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop a1_3 Reclaimed by b1_0
            stop a1_2 Reclaimed by b1_1
            stop a1_1 Reclaimed by b1_2
            promise b1_0 n1:7
            promise b1_1 n1:6
            promise b1_2 n1:5
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn what_is_drained_counts_as_long_as_somebody_has_it() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
queue a
queue b
submit a1 a 1 array=0-3
plan
drain on n1:0
drain on n1:1
submit b1 b 1 array=0-3
plan",
        expect![[r#"
            place a1_0 n1:0
            place a1_1 n1:1
            place a1_2 n1:2
            place a1_3 n1:3
            reservation 1 begins
            reservation 2 begins
            stop a1_3 Reclaimed by b1_0
            stop a1_2 Reclaimed by b1_1
            promise b1_0 n1:3
            promise b1_1 n1:2
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn a_queue_that_holds_more_than_its_new_limit_gives_back_what_is_due_to_others() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 8xh100
queue a
queue b
submit b1 b 2 array=0-2
submit a1 a 2
plan
queue b limit=2
submit a2 a 1
plan",
        expect![[r#"
            place b1_0 n1:0+n1:1
            place a1 n1:2+n1:3
            place b1_1 n1:4+n1:5
            place b1_2 n1:6+n1:7
            stop b1_2 Reclaimed by a2
            promise a2 n1:6
        "#]],
    );
}

#[test]
fn a_job_that_loses_nothing_but_a_restart_goes_before_one_that_loses_its_work() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 8xh100
queue a
queue b guarantee=4
submit a1 a 4 resumable
plan
pass 1h
submit a2 a 4
plan
pass 1m
submit b1 b 4
plan",
        expect![[r#"
            place a1 n1:0+n1:1+n1:2+n1:3
            place a2 n1:4+n1:5+n1:6+n1:7
            stop a1 Reclaimed by b1
            promise b1 n1:0+n1:1+n1:2+n1:3
        "#]],
    );
}

#[test]
fn who_gave_way_as_often_as_the_policy_lets_him_goes_after_one_who_never_did() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none, cool_down: none, most_restarts: 1, most_moves: 0}
node n1 2xh100
queue a
queue b guarantee=1
submit a1 a 1
plan
pass 1h
submit a2 a 1
plan
submit b1 b 1
plan
end a2
plan
end b1
plan
pass 1m
submit b2 b 1
plan",
        expect![[r#"
            place a1 n1:0
            place a2 n1:1
            stop a2 Reclaimed by b1
            promise b1 n1:1
            ended a2 pending Reclaimed exit=0
            place b1 n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended b1 completed Exit exit=0
            place a2 n1:1
            stop a1 Reclaimed by b2
            promise b2 n1:0
        "#]],
    );
}

#[test]
fn room_is_kept_for_a_gang_though_those_in_its_way_are_still_about_to_start() {
    // Nothing is said of a start between the plans: the first has its devices and does not run yet.
    check(
        "policy {most_moves: 0}
node n1 8xh100
submit a default 4 limit=10m
start a on=n1:0+n1:1+n1:2+n1:3 slowly
submit wide default 8
submit b default 2 limit=2h
submit c default 2 limit=5m
plan",
        expect![[r#"
            place c n1:4+n1:5
            wait DV-RESERVED: what is free is kept for job 2, which is before it in line
            wait DV-GPUS-BUSY: no node has 8 GPUs free that would do
        "#]],
    );
}
