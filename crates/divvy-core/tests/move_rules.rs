//! Scenarios of which jobs move, grow, and lie beside which others, over several cycles.

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn a_job_waits_as_long_as_a_restart_takes_before_others_move_for_it() {
    check(
        "policy {half_life: none}
node n1 2xh100
node n2 2xh100
submit x default 1 resumable
start x on=n1:0
submit y default 1 resumable
start y on=n2:0
pass 2h
submit w default 2
pass 20s
plan
submit z default 0
plan
pass 10s
end z
plan",
        expect![[r#"
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            place z n1
            ended z completed Exit exit=0
            stop x Moved by w
            promise x n2:1
            promise w n1:0+n1:1
        "#]],
    );
}

#[test]
fn who_has_not_run_for_long_is_not_moved() {
    check(
        "policy {half_life: none, min_runtime: 10m}
node n1 2xh100
node n2 2xh100
submit x default 1 resumable
start x on=n1:0
submit y default 1 resumable
start y on=n2:0
submit w default 2
pass 5m
plan
pass 5m
plan",
        expect![[r#"
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            stop x Moved by w
            promise x n2:1
            promise w n1:0+n1:1
        "#]],
    );
}

#[test]
fn who_had_to_give_way_a_while_ago_is_not_moved() {
    check(
        "policy {half_life: none, cool_down: 30m, starve_after: none}
node n1 2xh100
node n2 2xh100
submit x default 1 resumable prio=low
start x on=n1:0
submit f default 1 fixed
start f on=n1:1
submit y default 2 fixed
start y on=n2:0+n2:1
submit h default 1 prio=high
plan
end x signal=15
plan
end h
plan
end y
end f
submit g default 1 fixed
start g on=n2:0
submit w default 2 prio=low
pass 5m
plan
pass 30m
plan",
        expect![[r#"
            stop x Preempted by h
            promise h n1:0
            ended x pending Preempted exit=143
            place h n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended h completed Exit exit=0
            place x n1:0
            ended y completed Exit exit=0
            ended f completed Exit exit=0
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            stop x Moved by w
            promise x n2:1
            promise w n1:0+n1:1
        "#]],
    );
}

#[test]
fn those_that_find_another_place_are_moves_of_the_cycle() {
    check(
        "policy {half_life: none, most_moves: 1, cool_down: none}
node n1 2xh100
node n2 2xa100
submit x default 1 prio=low model=h100,a100
start x on=n1:0
submit y default 1 prio=low model=h100,a100
start y on=n1:1
submit h default 2 prio=high model=h100
plan
end x signal=15
end y signal=15
plan",
        expect![[r#"
            stop y Preempted by h
            stop x Preempted by h
            promise h n1:0+n1:1
            promise x n2:0
            ended x pending Preempted exit=143
            place x n2:0
            ended y pending Preempted exit=143
            place h n1:0+n1:1
            place y n2:1
        "#]],
    );
}

#[test]
fn only_moves_count_as_moves() {
    check(
        "policy {half_life: none, cool_down: none, starve_after: none}
node n1 2xh100
node n2 2xh100
submit x default 1 resumable prio=low
start x on=n1:0
submit f default 1 fixed
start f on=n1:1
submit y default 2 fixed
start y on=n2:0+n2:1
submit h default 1 prio=high
plan
end x signal=15
plan
end h
plan
end y
end f
submit g default 1 fixed
start g on=n2:0
submit w default 2 prio=low
pass 5m
plan",
        expect![[r#"
            stop x Preempted by h
            promise h n1:0
            ended x pending Preempted exit=143
            place h n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended h completed Exit exit=0
            place x n1:0
            ended y completed Exit exit=0
            ended f completed Exit exit=0
            stop x Moved by w
            promise x n2:1
            promise w n1:0+n1:1
        "#]],
    );
}

#[test]
fn who_goes_on_on_faster_devices_stays_within_what_his_queue_may_have() {
    check(
        r#"policy {share: fill, preempt: least_loss, half_life: none}
node n1 2xh100
node n2 2xa100
queue a {"path": "a", "guarantee": {"h100": {"finite": 1000}}, "borrow": {"h100": {"finite": 0}}}
queue b
submit a1 a 1 resumable speed=h100:100,a100:40
submit a2 a 1 resumable speed=h100:100,a100:40
plan
pass 1h
plan"#,
        expect![[r#"
            place a1 n1:0
            place a2 n2:0
        "#]],
    );
}

#[test]
fn who_had_to_give_way_goes_on_on_faster_gpus_when_he_is_not_safe_any_more() {
    check(
        "policy {half_life: none, cool_down: 30m, starve_after: none}
node n1 1xh100
node n2 1xa100
submit o default 1 fixed model=h100
start o on=n1:0
submit x default 1 prio=low resumable speed=h100:100,a100:40
start x on=n2:0 alt=1
submit h default 1 prio=high model=a100
plan
end x signal=15
plan
end h
plan
pass 5m
end o
plan
pass 24m
plan
pass 1m
plan",
        expect![[r#"
            stop x Preempted by h
            promise h n2:0
            ended x pending Preempted exit=143
            place h n2:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended h completed Exit exit=0
            place x n2:0
            ended o completed Exit exit=0
            stop x Faster
            promise x n1:0
        "#]],
    );
}

#[test]
fn a_gang_goes_on_without_a_task_that_was_lost_and_not_without_one_that_failed() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
submit e default 1 tasks=1..3
submit f default 1 fixed
plan
end e/2 reboot
plan
end e/1 exit=1
plan",
        expect![[r#"
            place e n1:0
            place f n1:1
            grow e n1:2 n1:3
            shrink e by a task NodeReboot
            grow e n1:3
            stop e BrokenGang
        "#]],
    );
}

#[test]
fn an_array_leaves_a_gang_what_is_due_to_it() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
queue a
queue b
submit o default 3 fixed
plan
submit e a 1 tasks=1..4
plan
submit x b 1 array=0-7
end o
plan",
        expect![[r#"
            place o n1:0+n1:1+n1:2
            place e n1:3
            ended o completed Exit exit=0
            place x_0 n1:0
            place x_1 n1:1
            grow e n1:2
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn a_gang_grows_when_the_budget_of_its_queue_renews() {
    check(
        r#"policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
queue q {"path": "q", "budget": {"milli_gpu_hours": 30000, "every": "day", "carry_milli": 0}}
submit z q 3
plan
submit e q 1 tasks=1..4
plan
pass 8h
end z
plan
pass 16h
plan"#,
        expect![[r#"
            place z n1:0+n1:1+n1:2
            place e n1:3
            ended z completed Exit exit=0
            grow e n1:0 n1:1 n1:2
        "#]],
    );
}

#[test]
fn a_gang_grows_when_its_queue_is_behind_what_was_pledged_to_it() {
    check(
        r#"policy {share: fill, preempt: least_loss, half_life: none}
node n1 8xh100
queue a {"path": "a", "weight": 0, "pledge": {"milli_gpu_hours": 48000, "every": "day"}}
queue b
submit x a 7
plan
submit e a 1 tasks=1..8
plan
pass 1h
end x
submit b b 1 array=0-6
plan
pass 9h
plan"#,
        expect![[r#"
            place x n1:0+n1:1+n1:2+n1:3+n1:4+n1:5+n1:6
            place e n1:7
            ended x completed Exit exit=0
            place b_0 n1:0
            place b_1 n1:1
            place b_2 n1:2
            place b_3 n1:3
            place b_4 n1:4
            place b_5 n1:5
            place b_6 n1:6
            stop b_6 Reclaimed by e
            stop b_5 Reclaimed by e
            promise e to grow n1:6 n1:5
        "#]],
    );
}

#[test]
fn of_an_array_that_is_held_those_wait_too_that_ran_before() {
    check(
        "policy {half_life: none}
node n1 2xh100
submit a default 1 array=0-3 prio=low
plan
submit h default 2 prio=high
plan
end a_0 signal=15
end a_1 signal=15
plan
hold a
end h
plan",
        expect![[r#"
            place a_0 n1:0
            place a_1 n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop a_1 Preempted by h
            stop a_0 Preempted by h
            promise h n1:0+n1:1
            ended a_0 pending Preempted exit=143
            ended a_1 pending Preempted exit=143
            place h n1:0+n1:1
            ended h completed Exit exit=0
        "#]],
    );
}

#[test]
fn a_pool_that_starts_again_drains_no_more() {
    check(
        "policy {half_life: none}
node n1 2xh100
drain on
submit a default 1
plan
restart
plan",
        expect![[r#"
            wait DV-POOL-DRAINING: the pool is being taken down and starts nothing new
            place a n1:0
        "#]],
    );
}

#[test]
fn what_was_promised_is_not_given_where_it_has_broken_since() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 2xh100
submit low default 1 prio=low
submit o default 1 fixed
plan
submit h default 1 prio=high
plan
device n1:1 down
end low signal=15
plan",
        expect![[r#"
            place o n1:0
            place low n1:1
            stop low Preempted by h
            promise h n1:1
            ended low pending Preempted exit=143
            wait DV-GPUS-BUSY: every GPU that would do is taken
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn who_lies_where_another_wants_to_be_near_him_does_not_go_in_that_cycle() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 2xh100
node n2 2xh100
submit db default 1 prio=low labels=app:db
start db on=n1:0
submit x default 2 prio=low
start x on=n2:0+n2:1
pass 1h
submit near default 1 prio=high near=app:db
submit h default 1 prio=normal
plan",
        expect![[r#"
            stop x Preempted by h
            promise h n2:0
            place near n1:1
        "#]],
    );
}

#[test]
fn who_lies_where_another_leaves_from_whom_he_wants_to_be_apart_waits_until_he_is_gone() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100 mem=400
submit low default 2 prio=low labels=app:web mem=1
plan
submit h default 3 prio=high mem=1
submit p default 1 apart=app:web mem=1
plan
end low signal=15
plan",
        expect![[r#"
            place low n1:0+n1:1
            stop low Preempted by h
            promise h n1:0+n1:1+n1:2
            promise p n1:3
            ended low pending Preempted exit=143
            place h n1:0+n1:1+n1:2
            place p n1:3
            wait DV-REPELLED: those that lie where it has room want no tasks with app=web near them (same node)
        "#]],
    );
}
