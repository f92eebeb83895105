//! Scenarios of what queues and users had before, over several cycles: of budgets, pledges and the past.

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn a_debt_takes_nothing_of_what_is_guaranteed() {
    check(
        r#"policy {share: fill, preempt: least_loss, half_life: 1d, starve_after: none, cool_down: none, most_moves: 0}
node n1 4xh100
queue a guarantee=2
queue b {"path": "b", "reclaim": "never"}
submit a0 a 4
plan
submit b0 b 1 array=0-7
plan
pass 1m
plan
pass 3h
plan
submit a1 a 1 array=0-7
end a0
plan"#,
        expect![[r#"
            place a0 n1:0+n1:1+n1:2+n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended a0 completed Exit exit=0
            place a1_0 n1:0
            place a1_1 n1:1
            place b0_0 n1:2
            place b0_1 n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn who_takes_what_is_guaranteed_takes_it_from_who_keeps_what_is_due_to_him() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: 1d, starve_after: none, cool_down: none, most_moves: 0}
node n1 8xh100
queue a guarantee=1
queue c
queue d weight=3
submit c1 c 1 array=0-3
plan
pass 10m
submit d1 d 1 array=0-3
plan
pass 1m
submit a1 a 1
plan",
        expect![[r#"
            place c1_0 n1:0
            place c1_1 n1:1
            place c1_2 n1:2
            place c1_3 n1:3
            place d1_0 n1:4
            place d1_1 n1:5
            place d1_2 n1:6
            place d1_3 n1:7
            stop c1_3 Reclaimed by a1
            promise a1 n1:3
        "#]],
    );
}

#[test]
fn what_queues_missed_is_owed_to_the_one_above_them() {
    check(
        r#"policy {share: fill, preempt: least_loss, half_life: 1d, starve_after: none, cool_down: none, most_moves: 0}
node n1 4xh100
queue lab {"path": "lab", "reclaim": "never"}
queue lab/v {"path": "lab/v", "reclaim": "never"}
queue b
submit b0 b 4
plan
submit v lab/v 1 array=0-7
plan
pass 1m
plan
pass 3h
plan
submit b1 b 1 array=0-7
end b0
plan"#,
        expect![[r#"
            place b0 n1:0+n1:1+n1:2+n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended b0 completed Exit exit=0
            place v_0 n1:0
            place v_1 n1:1
            place v_2 n1:2
            place v_3 n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn what_waits_where_a_budget_is_used_up_above_wants_nothing() {
    check(
        r#"policy {share: fill, preempt: least_loss, half_life: none}
node n1 6xh100
queue t {"path": "t", "budget": {"milli_gpu_hours": 6000, "every": "day", "carry_milli": 0}}
queue t/q
queue r
queue s
submit a t/q 6
plan
pass 1h
end a
submit s1 s 1 array=0-5
plan
submit b t/q 1 array=0-5
submit c r 1 array=0-5
plan"#,
        expect![[r#"
            place a n1:0+n1:1+n1:2+n1:3+n1:4+n1:5
            ended a completed Exit exit=0
            place s1_0 n1:0
            place s1_1 n1:1
            place s1_2 n1:2
            place s1_3 n1:3
            place s1_4 n1:4
            place s1_5 n1:5
            stop s1_5 Reclaimed by c_0
            stop s1_4 Reclaimed by c_1
            stop s1_3 Reclaimed by c_2
            promise c_0 n1:5
            promise c_1 n1:4
            promise c_2 n1:3
            wait DV-OVER-BUDGET: queue t has used its budget of 6 GPU-hours; it has more from 1970-01-02 00:00 UTC on
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn a_budget_that_was_not_used_for_days_is_carried_once_for_each() {
    check(
        r#"policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
queue q {"path": "q", "budget": {"milli_gpu_hours": 4000, "every": "day", "carry_milli": null}}
plan
pass 71h
submit a q 4
plan
pass 3h
plan
end a
submit b q 1
plan"#,
        expect![[r#"
            place a n1:0+n1:1+n1:2+n1:3
            ended a completed Exit exit=0
            place b n1:0
        "#]],
    );
}

#[test]
fn a_budget_holds_for_all_below_a_queue_and_when_queues_change() {
    check(
        r#"policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
queue t {"path": "t", "budget": {"milli_gpu_hours": 4000, "every": "day", "carry_milli": 0}}
queue t/q
submit a t/q 4
plan
pass 1h
end a
queue other weight=2
submit b t/q 1
plan
restart
plan"#,
        expect![[r#"
            place a n1:0+n1:1+n1:2+n1:3
            ended a completed Exit exit=0
            wait DV-OVER-BUDGET: queue t has used its budget of 4 GPU-hours; it has more from 1970-01-02 00:00 UTC on
        "#]],
    );
}

#[test]
fn who_is_behind_gets_twice_his_pace_at_most() {
    check(
        r#"policy {share: fill, preempt: least_loss, half_life: none}
node n1 8xh100
queue a {"path": "a", "weight": 0, "pledge": {"milli_gpu_hours": 48000, "every": "day"}}
queue b
submit b b 1 array=0-7
plan
pass 18h
submit a a 1 array=0-7
plan"#,
        expect![[r#"
            place b_0 n1:0
            place b_1 n1:1
            place b_2 n1:2
            place b_3 n1:3
            place b_4 n1:4
            place b_5 n1:5
            place b_6 n1:6
            place b_7 n1:7
            stop b_7 Reclaimed by a_0
            stop b_6 Reclaimed by a_1
            stop b_5 Reclaimed by a_2
            stop b_4 Reclaimed by a_3
            promise a_0 n1:7
            promise a_1 n1:6
            promise a_2 n1:5
            promise a_3 n1:4
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn who_is_ahead_of_his_pace_is_so_when_queues_change_too() {
    check(
        r#"policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
queue a {"path": "a", "weight": 0, "pledge": {"milli_gpu_hours": 48000, "every": "day"}}
queue b
submit x a 4
plan
pass 4h
end x
submit b b 1 array=0-3
plan
queue c
submit a a 1 array=0-3
plan"#,
        expect![[r#"
            place x n1:0+n1:1+n1:2+n1:3
            ended x completed Exit exit=0
            place b_0 n1:0
            place b_1 n1:1
            place b_2 n1:2
            place b_3 n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn what_is_guaranteed_to_a_queue_bounds_those_that_never_give_way_whosever_they_are() {
    check(
        r#"policy {share: fill, preempt: least_loss, half_life: none}
node n1 6xh100
queue lab {"path": "lab", "guarantee": {"any": {"finite": 4000}}, "users": {}}
queue b
submit e1 lab 1 user=eva array=0-7
submit a1 lab 1 user=ana array=0-7 fixed
plan"#,
        expect![[r#"
            place e1_0 n1:0
            place a1_0 n1:1
            place e1_1 n1:2
            place a1_1 n1:3
            place e1_2 n1:4
            place a1_2 n1:5
            wait DV-GPUS-BUSY: every GPU that would do is taken
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn what_is_guaranteed_to_a_queue_is_its_users_while_it_is_due_to_them() {
    check(
        r#"policy {share: fill, preempt: least_loss, half_life: none}
node n1 8xh100
queue lab {"path": "lab", "borrow_evicts": false, "guarantee": {"any": {"finite": 4000}}, "users": {}}
queue lab/v guarantee=3
queue b
submit b1 b 1 array=0-7
plan
submit a1 lab 1 user=ana array=0-3
plan"#,
        expect![[r#"
            place b1_0 n1:0
            place b1_1 n1:1
            place b1_2 n1:2
            place b1_3 n1:3
            place b1_4 n1:4
            place b1_5 n1:5
            place b1_6 n1:6
            place b1_7 n1:7
            stop b1_7 Reclaimed by a1_0
            stop b1_6 Reclaimed by a1_1
            stop b1_5 Reclaimed by a1_2
            stop b1_4 Reclaimed by a1_3
            promise a1_0 n1:7
            promise a1_1 n1:6
            promise a1_2 n1:5
            promise a1_3 n1:4
        "#]],
    );
}

#[test]
fn runs_that_never_give_way_and_start_in_one_cycle_stay_within_the_guarantee_together() {
    check(
        r#"policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
queue lab {"path": "lab", "guarantee": {"any": {"finite": 2000}}, "users": {"weight": {"ana": 1}}}
queue b
submit a1 lab 1 user=ana fixed
submit a2 lab 1 user=ana fixed
submit a3 lab 1 user=ana fixed
plan"#,
        expect![[r#"
            place a1 n1:0
            place a2 n1:1
            wait DV-OVER-QUOTA: is not preemptible, and queue lab is guaranteed 2 GPUs for such jobs
        "#]],
    );
}

#[test]
fn gangs_that_could_have_more_take_turns_where_what_is_due_to_them_is_no_whole_device() {
    let lines = "policy {share: fill, preempt: least_loss, half_life: 1d, catch_up: 1h, starve_after: none, cool_down: none, most_moves: 0}
node n1 5xh100
queue a
queue b
submit ga a 1 tasks=1..5
submit gb b 1 tasks=1..5
plan";
    let hours = "\npass 10m\nplan".repeat(18);
    check(
        &format!("{lines}{hours}"),
        expect![[r#"
            place ga n1:0
            place gb n1:1
            grow ga n1:2 n1:4
            grow gb n1:3
            shrink ga by n1:4 Reclaimed by gb
            promise gb to grow n1:4
            overdue ga/2
        "#]],
    );
}
