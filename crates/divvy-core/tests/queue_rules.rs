//! Scenarios of the settings of queues, over several cycles: each fails where a setting is ignored, or holds for one cycle only.

use divvy_core::decide::Rejection;
use divvy_core::scenario::run;
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn a_guarantee_of_models_is_one_of_their_sum() {
    check(
        r#"policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
queue a {"path": "a", "guarantee": {"h100": {"finite": 2000}}}
queue b
submit a1 a 2 fixed
submit a2 a 1 fixed
plan"#,
        expect![[r#"
            place a1 n1:0+n1:1
            wait DV-OVER-QUOTA: is not preemptible, and queue a is guaranteed 2 GPUs for such jobs
        "#]],
    );
}

#[test]
fn a_queue_that_says_less_than_those_below_it_means_it_for_those_that_never_give_way() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
queue lab guarantee=2
queue lab/v guarantee=2
queue lab/s guarantee=2
submit b1 default 1 array=0-3
plan
submit v1 lab/v 2 fixed
submit s1 lab/s 1 fixed
plan",
        expect![[r#"
            place b1_0 n1:0
            place b1_1 n1:1
            place b1_2 n1:2
            place b1_3 n1:3
            stop b1_3 Reclaimed by v1
            stop b1_2 Reclaimed by v1
            promise v1 n1:2+n1:3
            wait DV-OVER-QUOTA: is not preemptible, and queue lab is guaranteed 2 GPUs for such jobs
        "#]],
    );
}

#[test]
fn what_a_queue_is_promised_is_no_reason_to_take_what_it_runs() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
queue a guarantee=2
queue b guarantee=2
queue c
submit x c 2
start x on=n1:2+n1:3
submit b1 b 2
start b1 on=n1:0+n1:1
stop x
submit b2 b 2
promise b2 on=n1:2+n1:3
submit a1 a 2
plan
end x
plan",
        expect![[r#"
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            ended x pending Preempted exit=0
            place b2 n1:2+n1:3
            stop b2 Reclaimed by a1
            promise a1 n1:2+n1:3
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        "#]],
    );
}

#[test]
fn what_a_queue_may_not_borrow_is_due_to_others() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 8xh100
queue a guarantee=1 borrow=0
queue b
queue c
submit c1 c 1 array=0-7
plan
submit a1 a 1 array=0-7
submit b1 b 1 array=0-7
plan",
        expect![[r#"
            place c1_0 n1:0
            place c1_1 n1:1
            place c1_2 n1:2
            place c1_3 n1:3
            place c1_4 n1:4
            place c1_5 n1:5
            place c1_6 n1:6
            place c1_7 n1:7
            stop c1_7 Reclaimed by a1_0
            stop c1_6 Reclaimed by b1_0
            stop c1_5 Reclaimed by b1_1
            stop c1_4 Reclaimed by b1_2
            stop c1_3 Reclaimed by b1_3
            promise a1_0 n1:7
            promise b1_0 n1:6
            promise b1_1 n1:5
            promise b1_2 n1:4
            promise b1_3 n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
            wait DV-BORROW-LIMIT: queue a would borrow more than the 0 GPUs that it may
        "#]],
    );
}

#[test]
fn the_surplus_goes_to_the_queues_of_higher_priority_first() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
queue a priority=1
queue b weight=3
submit b1 b 1 array=0-7
submit a1 a 1 array=0-7
plan",
        expect![[r#"
            place a1_0 n1:0
            place a1_1 n1:1
            place a1_2 n1:2
            place a1_3 n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn of_queues_that_are_due_as_much_the_one_of_higher_priority_goes_first() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
queue a guarantee=1 priority=1
queue b guarantee=1
queue c guarantee=1
submit c1 c 1 fixed
submit c2 c 2
plan
submit b1 b 1
plan
end b1
submit b2 b 1
submit a1 a 1
plan",
        expect![[r#"
            place c1 n1:0
            place c2 n1:1+n1:2
            place b1 n1:3
            ended b1 completed Exit exit=0
            stop c2 Reclaimed by b2
            promise b2 n1:1
            place a1 n1:3
        "#]],
    );
}

#[test]
fn in_a_strict_order_nobody_passes_for_what_is_guaranteed() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none, strict: true}
node n1 4xh100
queue a guarantee=1 weight=0
queue b
submit b1 b 1 array=0-3 polite
plan
submit a1 a 2 polite
submit a2 a 1 polite
plan
end b1_0
plan",
        expect![[r#"
            place b1_0 n1:0
            place b1_1 n1:1
            place b1_2 n1:2
            place b1_3 n1:3
            wait DV-IN-LINE: jobs start strictly in order, and one before it does not fit yet
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            ended b1_0 completed Exit exit=0
        "#]],
    );
}

#[test]
fn who_ends_by_his_limit_is_no_reason_to_take_what_else_his_queue_has() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 2xh100
node n2 1xa100
queue a guarantee=1
queue b guarantee=2
submit b1 b 1 model=h100
submit b2 b 1 model=h100
submit b3 b 1 model=a100 limit=1h
plan
pass 1h
submit a1 a 1 model=h100
plan
end b3
plan
submit b4 b 1
plan",
        expect![[r#"
            place b1 n1:0
            place b2 n1:1
            place b3 n2:0
            stop b3 TimeLimit
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended b3 timeout TimeLimit exit=0
            place b4 n2:0
        "#]],
    );
}

#[test]
fn nobody_of_higher_priority_goes_in_the_stead_of_one_who_is_spared() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
queue a guarantee=1
queue b guarantee=2
submit b1 b 2 prio=low
submit b2 b 1
submit a0 a 1
plan
submit a1 a 1
plan",
        expect![[r#"
            place b2 n1:0
            place a0 n1:1
            place b1 n1:2+n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn a_queue_may_say_from_whom_its_jobs_take_what_others_have_too_much_of() {
    check(
        r#"policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
queue a {"path": "a", "guarantee": {"any": {"finite": 2000}}, "reclaim": "lower"}
queue c {"path": "c", "guarantee": {"any": {"finite": 1000}}, "reclaim": "never"}
queue b
submit b1 b 1 array=0-2
submit b2 b 1 prio=low
plan
submit a1 a 1 array=0-1
submit c1 c 1
plan"#,
        expect![[r#"
            place b1_0 n1:0
            place b1_1 n1:1
            place b1_2 n1:2
            place b2 n1:3
            stop b2 Reclaimed by a1_0
            promise a1_0 n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn a_queue_may_say_whose_devices_its_jobs_take_inside_it() {
    check(
        r#"policy {share: fill, preempt: least_loss, half_life: none}
node n1 2xh100
queue a {"path": "a", "within_queue": "never"}
submit a1 a 1 prio=low
submit a0 a 1
plan
submit a2 a 1 prio=high
plan"#,
        expect![[r#"
            place a0 n1:0
            place a1 n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn the_queue_of_lower_priority_gives_back_first() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
queue a guarantee=1
queue c priority=1
queue d
submit d1 d 1 array=0-1
plan
pass 1h
submit c1 c 1 array=0-1
plan
submit a1 a 1
plan",
        expect![[r#"
            place d1_0 n1:0
            place d1_1 n1:1
            place c1_0 n1:2
            place c1_1 n1:3
            stop d1_1 Reclaimed by a1
            promise a1 n1:1
        "#]],
    );
}

#[test]
fn a_restart_counts_as_lost_too() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 2xh100
node n2 1xh100
queue q
submit x q 1 prio=low
start x on=n2:0
pass 40s
submit y q 2 prio=low
start y on=n1:0+n1:1
pass 20s
submit h q 1 prio=high
plan",
        expect![[r#"
            stop x Preempted by h
            promise h n2:0
        "#]],
    );
}

#[test]
fn promises_are_made_anew_where_the_limits_of_their_queues_change() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
queue lab limit=4
submit low default 4 prio=low
plan
submit h lab 2
plan
queue lab limit=1
end low signal=15
plan",
        expect![[r#"
            place low n1:0+n1:1+n1:2+n1:3
            stop low Reclaimed by h
            promise h n1:0+n1:1
            ended low pending Reclaimed exit=143
            place low n1:0+n1:1+n1:2+n1:3
            wait DV-QUEUE-LIMIT: queue lab has a limit of 1 GPU, and it asks for 2
        "#]],
    );
}

#[test]
fn who_is_within_his_guarantee_gives_nothing_for_what_his_siblings_have_too_much() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
queue a guarantee=2
queue lab
queue lab/v guarantee=1
queue lab/s
submit v1 lab/v 1 prio=low
submit s1 lab/s 1 array=0-2
plan
submit a1 a 1
plan",
        expect![[r#"
            place v1 n1:0
            place s1_0 n1:1
            place s1_1 n1:2
            place s1_2 n1:3
            stop s1_2 Reclaimed by a1
            promise a1 n1:3
        "#]],
    );
}

#[test]
fn who_takes_by_stops_takes_nothing_of_what_is_kept_for_another() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 6xh100
queue a guarantee=2 lend=0
queue b
queue c
submit c1 c 1 array=0-7
plan
submit b1 b 2
plan
end c1_3
end c1_2
plan
submit a1 a 2
plan",
        expect![[r#"
            place c1_0 n1:0
            place c1_1 n1:1
            place c1_2 n1:2
            place c1_3 n1:3
            wait DV-NOT-LENT: queue c would have to borrow, and the others lend 0 more GPUs
            stop c1_3 Reclaimed by b1
            stop c1_2 Reclaimed by b1
            promise b1 n1:4+n1:2
            ended c1_3 pending Reclaimed exit=0
            ended c1_2 pending Reclaimed exit=0
            place b1 n1:4+n1:2
            place a1 n1:3+n1:5
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn members_of_an_array_start_one_by_one_where_borrowing_is_bounded() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
queue a borrow=2
submit a a 1 array=0-7
plan",
        expect![[r#"
            place a_0 n1:0
            place a_1 n1:1
            wait DV-BORROW-LIMIT: queue a would borrow more than the 2 GPUs that it may
        "#]],
    );
}

#[test]
fn who_may_start_since_another_leaves_a_limit_waits_until_that_one_is_gone() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 2xh100
node n2 2xa100
queue a guarantee=2
queue lab limit=2
submit low lab 2 model=h100
plan
submit l2 lab 2 model=a100
submit a1 a 2 model=h100
plan
end low signal=15
plan",
        expect![[r#"
            place low n1:0+n1:1
            stop low Reclaimed by a1
            promise a1 n1:0+n1:1
            promise l2 n2:0+n2:1
            ended low pending Reclaimed exit=143
            place l2 n2:0+n2:1
            place a1 n1:0+n1:1
            wait DV-QUEUE-LIMIT: queue lab is at its limit of 2 GPUs
        "#]],
    );
}

#[test]
fn the_usual_time_is_no_longer_than_what_is_allowed_above() {
    check(
        r#"policy {half_life: none}
node n1 2xh100
queue lab {"path": "lab", "bounds": {"max_time": 3600000}}
queue lab/v {"path": "lab/v", "bounds": {"default_time": 7200000}}
submit a lab/v 1
plan
pass 1h
plan"#,
        expect![[r#"
            place a n1:0
            stop a TimeLimit
        "#]],
    );
}

#[test]
fn a_user_has_as_many_jobs_in_a_queue_as_it_says_whatever_he_has_elsewhere() {
    check(
        r#"policy {half_life: none}
node n1 4xh100
queue lab {"path": "lab", "users": {"bounds": {"max_jobs": 1}}}
submit x default 1 user=ana
submit a lab 1 user=ana
submit b lab 1 user=ana
submit c lab 1 user=eva
plan"#,
        expect![[r#"
            refused queue-full: queue lab, of each user, takes 1 job at once, and 1 waits or runs
            place x n1:0
            place a n1:1
            place c n1:2
        "#]],
    );
}

#[test]
fn who_lacks_devices_alone_takes_them_from_who_has_too_many_of_them() {
    check(
        r#"policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100 cpu=64
queue a {"path": "a", "guarantee": {"any": {"finite": 2000}, "cpu": {"finite": 8000}}}
queue b {"path": "b", "guarantee": {"cpu": {"finite": 40000}}}
submit b1 b 1 array=0-3 cpu=4
plan
submit a1 a 1 array=0-1 cpu=4
plan"#,
        expect![[r#"
            place b1_0 n1:0
            place b1_1 n1:1
            place b1_2 n1:2
            place b1_3 n1:3
            stop b1_3 Reclaimed by a1_0
            stop b1_2 Reclaimed by a1_1
            promise a1_0 n1:3
            promise a1_1 n1:2
        "#]],
    );
}

#[test]
fn an_array_wants_no_more_than_may_run_of_it() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 6xh100
queue a
queue b
queue c
submit c1 c 1 array=0-5
plan
submit a1 a 1 array=0-7%1
submit b1 b 1 array=0-7
plan",
        expect![[r#"
            place c1_0 n1:0
            place c1_1 n1:1
            place c1_2 n1:2
            place c1_3 n1:3
            place c1_4 n1:4
            place c1_5 n1:5
            stop c1_5 Reclaimed by a1_0
            stop c1_4 Reclaimed by b1_0
            stop c1_3 Reclaimed by b1_1
            stop c1_2 Reclaimed by b1_2
            promise a1_0 n1:5
            promise b1_0 n1:4
            promise b1_1 n1:3
            promise b1_2 n1:2
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn a_model_that_one_queue_may_not_have_is_open_to_others_in_the_same_cycle() {
    check(
        "policy {share: none, preempt: off, half_life: none, starve_after: none}
node n1 2xh100
node n2 2xa100
queue a h100=0
queue b
submit o default 2 model=a100
start o on=n2:0+n2:1
submit a1 a 1 model=h100,a100
submit b1 b 1 model=h100,a100
plan",
        expect![[r#"
            place b1 n1:0
            wait DV-QUEUE-LIMIT: queue a has a limit of 0 h100, and it asks for 1
        "#]],
    );
}

#[test]
fn who_gave_way_takes_from_those_that_come_after_him_in_his_queue() {
    check(
        "policy {preempt: least_loss, starve_after: none, cool_down: none, most_moves: 0}
node n1 1xh100
node n2 1xa100
submit x default 1 model=h100 or=a100:1
plan
submit low default 1 model=a100 prio=low
plan
submit h default 1 model=h100 prio=high
plan
end x signal=15
plan",
        expect![[r#"
            place x n1:0
            place low n2:0
            stop x Preempted by h
            promise h n1:0
            ended x pending Preempted exit=143
            place h n1:0
            stop low Preempted by x
            promise x n2:0
        "#]],
    );
}

#[test]
fn who_gave_way_takes_what_is_due_to_his_queue_with_the_next_submission() {
    check(
        "policy {share: fill, preempt: least_loss, starve_after: none, cool_down: none, most_moves: 0}
node n1 1xh100
node n2 3xa100
queue a
queue b
submit x a 1 model=h100 or=a100:1
submit b1 b 1 array=0-3 model=a100
plan
pass 5m
submit h a 1 model=h100 prio=high
plan
end x signal=15
plan
pass 5m
plan
submit b2 b 1 model=a100
plan",
        expect![[r#"
            place x n1:0
            place b1_0 n2:0
            place b1_1 n2:1
            place b1_2 n2:2
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop x Preempted by h
            promise h n1:0
            ended x pending Preempted exit=143
            place h n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop b1_2 Reclaimed by x
            promise x n2:2
        "#]],
    );
}

#[test]
fn of_very_many_queues_an_error_names_the_few_that_are_most_like_what_was_written() {
    let known = (0..10_000).map(|number| format!("lab-{number}")).collect();
    let said = Rejection::UnknownQueue { queue: "lab-9999x".into(), known }.to_string();
    assert!(
        said.len() < 200 && said.contains("lab-9999,") && said.ends_with("and 9992 more (`divvy queues`)"),
        "{said}"
    );
}
