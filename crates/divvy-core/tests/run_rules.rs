//! Scenarios of which jobs give way or go first, over several cycles: each fails where a rule is dropped, or holds for one cycle only.

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn others_give_way_on_a_node_of_which_the_first_gpu_is_broken() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
queue a guarantee=1
device n1:0 down
submit low default 1 prio=low array=0-2
plan
submit h default 1 prio=high
submit a1 a 1
plan",
        expect![[r#"
            place low_0 n1:1
            place low_1 n1:2
            place low_2 n1:3
            stop low_2 Reclaimed by a1
            stop low_1 Preempted by h
            promise a1 n1:3
            promise h n1:2
        "#]],
    );
}

#[test]
fn others_give_way_on_a_node_of_which_the_first_gpu_is_used_by_others() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
queue a guarantee=1
device n1:0 foreign
submit low default 1 prio=low array=0-2
plan
submit h default 1 prio=high
submit a1 a 1
plan",
        expect![[r#"
            place low_0 n1:1
            place low_1 n1:2
            place low_2 n1:3
            stop low_2 Reclaimed by a1
            stop low_1 Preempted by h
            promise a1 n1:3
            promise h n1:2
        "#]],
    );
}

#[test]
fn others_give_way_on_a_node_of_which_the_first_gpu_is_drained() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
queue a guarantee=1
drain on n1:0
submit low default 1 prio=low array=0-2
plan
submit h default 1 prio=high
submit a1 a 1
plan",
        expect![[r#"
            reservation 1 begins
            place low_0 n1:1
            place low_1 n1:2
            place low_2 n1:3
            stop low_2 Reclaimed by a1
            stop low_1 Preempted by h
            promise a1 n1:3
            promise h n1:2
        "#]],
    );
}

#[test]
fn the_time_in_which_a_run_is_left_alone_ends_by_itself() {
    check(
        "policy {half_life: none, cool_down: none, starve_after: none, min_runtime: 10m}
node n1 1xh100
queue a guarantee=1
queue b
submit b1 b 1
plan
pass 1m
submit a1 a 1
plan
pass 9m
plan",
        expect![[r#"
            place b1 n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop b1 Reclaimed by a1
            promise a1 n1:0
        "#]],
    );
}

#[test]
fn inside_its_queue_who_gave_way_is_safe_from_what_is_guaranteed_too() {
    check(
        "policy {half_life: none, cool_down: 30m, starve_after: none}
node n1 1xh100
node n2 1xa100
queue a guarantee=2
submit low a 1 model=h100 prio=low
plan
submit h1 a 1 model=h100
plan
end low signal=15
end h1
plan
pass 10m
submit h2 a 1 model=h100
plan
pass 20m
plan",
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
fn only_what_the_planner_wanted_counts_as_giving_way() {
    check(
        "policy {half_life: none, cool_down: none, most_restarts: 1}
node n1 2xh100
submit f default 1 fixed
submit a default 1 prio=low
plan
drain on n1:1 evict
plan
end a signal=15
drain off n1:1
plan
submit h default 1 prio=high
plan
end a signal=15
end h
plan
submit h2 default 1 prio=high
plan",
        expect![[r#"
            place f n1:0
            place a n1:1
            reservation 1 begins
            stop a Drain
            ended a pending Drain exit=143
            reservation 1 is over
            place a n1:1
            stop a Preempted by h
            promise h n1:1
            ended a pending Preempted exit=143
            place h n1:1
            ended h completed Exit exit=0
            place a n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn who_saves_his_work_and_does_some_in_between_is_run_again_however_often() {
    check(
        "policy {half_life: none}
node n1 2xh100
submit a default 1 saves=30m restarts=1
plan
pass 5s
end a exit=85
plan
pass 11s
end a exit=85
plan
pass 1h
end a exit=85
plan
pass 9s
end a exit=85",
        expect![[r#"
            place a n1:0
            ended a pending Checkpointed exit=85
            place a n1:0
            ended a pending Checkpointed exit=85
            place a n1:0
            ended a pending Checkpointed exit=85
            place a n1:0
            ended a failed Checkpointed exit=85
        "#]],
    );
}

#[test]
fn the_next_one_is_chosen_in_time_though_nothing_happens() {
    check(
        "policy {half_life: none, starve_after: 1h, quantum: 10m, cool_down: none}
node n1 2xh100
submit x default 1 prio=high
submit y default 1 prio=high
plan
submit b1 default 1
submit b2 default 1
pass 1h
plan
end y signal=15
plan
pass 10m
plan
end b1 signal=15
plan
pass 50m
plan",
        expect![[r#"
            place x n1:0
            place y n1:1
            first b1
            stop y Starved by b1
            promise b1 n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended y pending Starved exit=143
            place b1 n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop b1 Preempted by y
            promise y n1:1
            ended b1 pending Preempted exit=143
            place y n1:1
            first b2
            stop x Starved by b2
            promise b2 n1:0
        "#]],
    );
}

#[test]
fn who_starves_takes_from_his_own_queue_first() {
    check(
        "policy {half_life: none, starve_after: 1h, quantum: 10m, cool_down: none}
node n1 2xh100
queue a
queue b
submit a0 a 1 prio=high
submit b0 b 1
plan
submit a1 a 1
pass 1h
plan",
        expect![[r#"
            place a0 n1:0
            place b0 n1:1
            first a1
            stop a0 Starved by a1
            promise a1 n1:0
        "#]],
    );
}

#[test]
fn who_never_gives_way_starves_within_what_is_guaranteed() {
    check(
        "policy {half_life: none, starve_after: 1h, quantum: 10m, cool_down: none}
node n1 3xh100
queue a guarantee=1
queue b
submit a0 a 1 fixed
submit b0 b 1
plan
submit a1 a 1 fixed
pass 1h
plan
pass 1h
submit z b 0
plan",
        expect![[r#"
            place a0 n1:0
            place b0 n1:1
            wait DV-OVER-QUOTA: is not preemptible, and queue a is guaranteed 1 GPU for such jobs
            place z n1
        "#]],
    );
}

#[test]
fn where_a_guarantee_cuts_one_short_the_next_is_chosen_at_once() {
    check(
        "policy {half_life: none, starve_after: 1h, quantum: 10m}
node n1 1xh100
queue a guarantee=1
queue b
submit x b 1 prio=high
plan
submit b1 b 1
submit b2 b 1
pass 1h
plan
end x signal=15
plan
pass 5m
submit a1 a 1
plan
end b1 signal=15
plan
pass 1m
end a1
plan",
        expect![[r#"
            place x n1:0
            first b1
            stop x Starved by b1
            promise b1 n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended x pending Starved exit=143
            place b1 n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop b1 Reclaimed by a1
            promise a1 n1:0
            ended b1 pending Reclaimed exit=143
            place a1 n1:0
            ended a1 completed Exit exit=0
            first b2
            place b2 n1:0
        "#]],
    );
}

#[test]
fn where_one_is_held_who_was_chosen_another_is() {
    check(
        "policy {half_life: none, starve_after: 1h, quantum: 10m}
node n1 1xh100
submit x default 1 prio=high
plan
submit b1 default 1
submit b2 default 1
pass 1h
plan
hold b1
plan
end x signal=15
plan",
        expect![[r#"
            place x n1:0
            first b1
            stop x Starved by b1
            promise b1 n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended x pending Starved exit=143
            first b2
            place b2 n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn an_array_has_run_when_a_member_of_it_has_ended() {
    check(
        "policy {half_life: none, starve_after: 1h, quantum: 10m}
node n1 1xh100
submit low default 1 array=0-1
plan
pass 50m
submit a default 1 prio=high
end low_0
plan
pass 20m
plan",
        expect![[r#"
            place low_0 n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended low_0 completed Exit exit=0
            place a n1:0
        "#]],
    );
}

#[test]
fn only_those_give_way_by_the_order_that_go_on_where_they_were() {
    check(
        "policy {order: shortest, shortest: {of: remaining}, preempt: least_loss, half_life: none, reserve: 0}
node n1 2xh100
submit a default 1
estimate a 9h 9h
submit r default 1 resumable
estimate r 5h 5h
plan
submit s default 1
estimate s 1h 1h
plan",
        expect![[r#"
            place r n1:0
            place a n1:1
            stop r Order by s
            promise s n1:0
        "#]],
    );
}

#[test]
fn members_that_ran_stand_where_their_service_puts_them() {
    check(
        "policy {order: attained, preempt: least_loss, half_life: none, reserve: 0, attained: {levels: [1h, 10h], within: submit, head_start: 0s}}
node n1 2xh100
submit a default 1 array=0-3 resumable
plan
pass 30m
submit h default 2 prio=high
plan
end a_0 signal=15
end a_1 signal=15
plan
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
            place a_0 n1:0
            place a_1 n1:1
        "#]],
    );
}

#[test]
fn by_devices_the_shortest_is_the_one_that_takes_the_least_device_time() {
    check(
        "policy {order: shortest, shortest: {of: whole, by_devices: true}, preempt: off, half_life: none, reserve: 0, starve_after: none}
node n1 4xh100
submit o default 4
plan
submit a default 4
estimate a 1h 1h
submit b default 1
estimate b 3h 3h
end o
plan",
        expect![[r#"
            place o n1:0+n1:1+n1:2+n1:3
            ended o completed Exit exit=0
            place b n1:0
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
        "#]],
    );
}

#[test]
fn one_that_takes_nobodys_place_keeps_back_none_that_may() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 1xh100
submit low default 1 prio=low
plan
submit p default 1 prio=high polite
submit h default 1 prio=high
plan",
        expect![[r#"
            place low n1:0
            stop low Preempted by h
            promise h n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn who_was_just_stopped_for_others_stops_nobody_in_turn() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none, cool_down: none, most_moves: 0}
node n1 1xh100
node n2 2xa100
queue a guarantee=1
queue b
queue c
submit x b 1 model=h100,a100
start x on=n1:0
submit low c 1 prio=low model=a100 array=0-1
start low_0 on=n2:0
start low_1 on=n2:1
submit a1 a 1 model=h100
plan
end x signal=15
plan",
        expect![[r#"
            stop x Reclaimed by a1
            promise a1 n1:0
            ended x pending Reclaimed exit=143
            place a1 n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn who_was_just_stopped_for_others_stops_nobody_by_an_alternative() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none, cool_down: none, most_moves: 0}
node n1 1xh100
node n2 2xa100
queue a guarantee=1
queue b
queue c
submit x b 1 model=h100 or=a100:1
start x on=n1:0
submit low c 1 prio=low model=a100 array=0-1
start low_0 on=n2:0
start low_1 on=n2:1
submit a1 a 1 model=h100
plan
end x signal=15
plan",
        expect![[r#"
            stop x Reclaimed by a1
            promise a1 n1:0
            ended x pending Reclaimed exit=143
            place a1 n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}
