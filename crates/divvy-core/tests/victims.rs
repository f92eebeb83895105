//! Scenarios of which jobs give way, and which do not: no job is stopped that would take its place back at once.

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn a_queue_within_its_guarantee_takes_from_others_what_they_have_too_much_before_its_own_jobs_give_way() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
queue a guarantee=3
queue b guarantee=1
submit a1 a 1 prio=low
submit b1 b 3
plan
submit a2 a 1 prio=high
plan
end b1
plan",
        expect![[r#"
            place a1 n1:0
            place b1 n1:1+n1:2+n1:3
            stop b1 Reclaimed by a2
            promise a2 n1:1
            ended b1 pending Reclaimed exit=0
            place a2 n1:1
            wait DV-GPUS-BUSY: no node has 3 GPUs free that would do
        "#]],
    );
}

#[test]
fn its_own_jobs_do_where_nobody_else_has_too_much() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
queue a guarantee=3
queue b guarantee=2
submit a1 a 1 prio=low
submit a2 a 1
submit b1 b 2
plan
submit a3 a 1 prio=high
plan",
        expect![[r#"
            place a2 n1:0
            place b1 n1:1+n1:2
            place a1 n1:3
            stop a1 Preempted by a3
            promise a3 n1:3
        "#]],
    );
}

#[test]
fn one_goes_in_its_own_queue_and_one_in_another_where_that_makes_what_it_asks_for_guaranteed() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 12xh100
queue a guarantee=6
queue b guarantee=6
submit a1 a 3 prio=low
submit a2 a 2
submit b1 b 3 prio=low
submit b2 b 4
plan
submit a3 a 4
plan
end a1
end b1
plan",
        expect![[r#"
            place a2 n1:0+n1:1
            place b2 n1:2+n1:3+n1:4+n1:5
            place a1 n1:6+n1:7+n1:8
            place b1 n1:9+n1:10+n1:11
            stop a1 Preempted by a3
            stop b1 Reclaimed by a3
            promise a3 n1:6+n1:7+n1:8+n1:9
            ended a1 pending Preempted exit=0
            ended b1 pending Reclaimed exit=0
            place a3 n1:6+n1:7+n1:8+n1:9
            wait DV-GPUS-BUSY: no node has 3 GPUs free that would do
            wait DV-GPUS-BUSY: no node has 3 GPUs free that would do
        "#]],
    );
}

#[test]
fn of_its_own_queue_no_more_go_than_that_takes() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 12xh100
queue a guarantee=6
queue b guarantee=6
submit a1 a 2 prio=low
submit a2 a 1 prio=low
submit a3 a 1
submit b1 b 2 prio=low
submit b2 b 4
submit b3 b 2
plan
submit a4 a 3 prio=high
plan",
        expect![[r#"
            place a3 n1:0
            place b2 n1:1+n1:2+n1:3+n1:4
            place a1 n1:5+n1:6
            place b3 n1:7+n1:8
            place a2 n1:9
            place b1 n1:10+n1:11
            stop a2 Preempted by a4
            stop b1 Reclaimed by a4
            promise a4 n1:9+n1:10+n1:11
        "#]],
    );
}

#[test]
fn one_of_its_own_queue_goes_and_one_of_another_that_has_more_than_is_due_to_it() {
    check(
        "policy {share: fill, preempt: least_loss}
node n1 8xh100
queue a
queue b
submit a1 a 2 prio=low
submit a2 a 1
submit b1 b 1 array=0-4
plan
submit a3 a 3 prio=high
plan",
        expect![[r#"
            place a2 n1:0
            place b1_0 n1:1
            place b1_1 n1:2
            place a1 n1:3+n1:4
            place b1_2 n1:5
            place b1_3 n1:6
            place b1_4 n1:7
            stop a1 Preempted by a3
            stop b1_4 Reclaimed by a3
            promise a3 n1:3+n1:4+n1:7
        "#]],
    );
}

#[test]
fn a_queue_is_left_what_is_guaranteed_to_it_though_others_of_higher_priority_go_in_another() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 8xh100
queue a guarantee=2
queue b guarantee=3
queue c
submit b1 b 2
submit b2 b 2 prio=low
submit c1 c 2
submit c2 c 2
plan
submit a1 a 1
plan",
        expect![[r#"
            place b1 n1:0+n1:1
            place c1 n1:2+n1:3
            place b2 n1:4+n1:5
            place c2 n1:6+n1:7
            stop c2 Reclaimed by a1
            promise a1 n1:6
        "#]],
    );
}

#[test]
fn who_has_no_more_than_is_due_to_it_goes_after_who_has() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}
node n1 8xh100
queue a guarantee=2
queue b guarantee=2
queue c
submit b1 b 4
submit b2 b 3
submit c1 c 1 prio=low
plan
submit a1 a 1
plan",
        expect![[r#"
            place b1 n1:0+n1:1+n1:2+n1:3
            place c1 n1:4
            place b2 n1:5+n1:6+n1:7
            stop b2 Reclaimed by a1
            promise a1 n1:5
        "#]],
    );
}

#[test]
fn in_one_queue_nobody_of_higher_priority_goes_since_it_is_the_smaller_one() {
    check(
        "policy {share: fill, preempt: least_loss}
node n1 8xh100
queue a guarantee=2
queue b
submit b1 b 7 prio=low
submit b2 b 1
plan
submit a1 a 1
plan",
        expect![[r#"
            place b2 n1:0
            place b1 n1:1+n1:2+n1:3+n1:4+n1:5+n1:6+n1:7
            stop b1 Reclaimed by a1
            promise a1 n1:1
        "#]],
    );
}

#[test]
fn a_task_too_many_goes_where_a_whole_job_would_leave_its_queue_short() {
    check(
        "policy {share: fill, preempt: least_loss}
node n1 8xh100
queue a guarantee=2
queue b
queue c
submit b1 b 1 tasks=2..5
submit c1 c 3
plan
submit a1 a 1
plan",
        expect![[r#"
            place b1 n1:0 n1:1
            place c1 n1:2+n1:3+n1:4
            grow b1 n1:5 n1:6 n1:7
            shrink b1 by n1:7 Reclaimed by a1
            promise a1 n1:7
        "#]],
    );
}

#[test]
fn what_is_due_comes_from_another_queue_though_one_of_its_own_would_do() {
    check(
        "node n1 2xh100
node n2 2xh100
queue e1 guarantee=2
queue e2 guarantee=1
submit j1 e1 1
submit j2 e2 1
submit j4 e1 1
submit j5 e2 1
plan
submit j7 e1 1 prio=high
plan",
        expect![[r#"
            place j1 n1:0
            place j2 n1:1
            place j4 n2:0
            place j5 n2:1
            stop j5 Reclaimed by j7
            promise j7 n2:1
        "#]],
    );
}

#[test]
fn nobody_is_stopped_and_gets_his_own_devices_back() {
    check(
        "node n1 2xh100
node n2 2xh100
queue e1 guarantee=1
queue e2
submit j1 e1 2
submit j2 e2 1
submit j3 e2 1
plan
submit j6 e1 1 prio=high
plan",
        expect![[r#"
            place j1 n1:0+n1:1
            place j2 n2:0
            place j3 n2:1
            stop j3 Reclaimed by j6
            promise j6 n2:1
        "#]],
    );
}

#[test]
fn a_job_takes_free_devices_before_those_that_a_victim_leaves() {
    check(
        "node n1 4xh100
node n2 1xh100
queue a
submit j1 a 4 mem=1
plan
submit j2 a 3 mem=1 prio=high
submit j3 a 1 mem=1
plan
submit j4 a 1 mem=1 prio=low
plan",
        expect![[r#"
            place j1 n1:0+n1:1+n1:2+n1:3
            stop j1 Preempted by j2
            promise j2 n1:0+n1:1+n1:2
            place j3 n2:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn of_equal_jobs_the_first_gets_what_is_free_and_the_next_what_a_victim_leaves() {
    check(
        "node n1 4xh100
queue a guarantee=3
submit j1 a 3
plan
submit j2 a 2 prio=high
submit j3 a 1 mem=1
submit j4 a 1 mem=1
plan",
        expect![[r#"
            place j1 n1:0+n1:1+n1:2
            stop j1 Preempted by j2
            promise j2 n1:0+n1:1
            promise j4 n1:2
            place j3 n1:3
        "#]],
    );
}

#[test]
fn what_is_due_to_a_queue_as_it_stands_its_own_jobs_do_not_stop_for() {
    check(
        "node n1 6xh100\nqueue a guarantee=2\nqueue b\nsubmit j1 a 1\nsubmit j4 b 2\nsubmit j5 b 3\nplan\npass 5h\nsubmit j6 a 2 prio=high\nplan",
        expect![[r#"
            place j1 n1:0
            place j4 n1:1+n1:2
            place j5 n1:3+n1:4+n1:5
            stop j4 Reclaimed by j6
            promise j6 n1:1+n1:2
        "#]],
    );
}

#[test]
fn where_a_limit_binds_and_not_room_the_one_that_costs_least_goes_wherever_it_lies() {
    check(
        "policy {half_life: none}\nnode n1 2xh100\nnode n2 3xh100\nqueue c limit=4\n\
        submit large c 3\nsubmit low c 1 prio=low\nplan\npass 10m\nsubmit h c 1 prio=high\nplan",
        expect![[r#"
            place large n2:0+n2:1+n2:2
            place low n1:0
            stop low Preempted by h
            promise h n1:1
        "#]],
    );
}

#[test]
fn where_a_loan_binds_and_not_room_the_one_that_costs_least_goes_wherever_it_lies() {
    check(
        "policy {half_life: none}\nnode n1 2xh100\nnode n2 3xh100\nqueue k guarantee=1 lend=0\nqueue a guarantee=1\nqueue b\n\
        submit y b 3\nplan\npass 10h\nsubmit x b 1 prio=low\nplan\npass 10m\nsubmit h a 1\nplan",
        expect![[r#"
            place y n2:0+n2:1+n2:2
            place x n1:0
            stop x Reclaimed by h
            promise h n1:1
        "#]],
    );
}

#[test]
fn of_all_sets_of_jobs_on_a_node_that_make_room_for_a_task_the_one_that_loses_least_goes() {
    check(
        "node n1 4xh100\nnode n2 3xh100\nsubmit x default 2\nplan\nsubmit c default 1\npass 2m\nplan\n\
        submit y default 3\nplan\npass 130m\nsubmit h default 2 prio=high\nplan",
        expect![[r#"
            place x n2:0+n2:1
            place c n2:2
            place y n1:0+n1:1+n1:2
            stop x Preempted by h
            promise h n2:0+n2:1
        "#]],
    );
}

#[test]
fn one_job_goes_where_several_would_lose_as_much() {
    check(
        "node n1 8xh100\nqueue q guarantee=8\nsubmit a q 1\nsubmit b q 1\nsubmit c q 1\nsubmit d q 1\nsubmit e q 4\nplan\n\
        pass 1m\nsubmit h q 4 prio=high\nplan",
        expect![[r#"
            place a n1:0
            place b n1:1
            place c n1:2
            place d n1:3
            place e n1:4+n1:5+n1:6+n1:7
            stop e Preempted by h
            promise h n1:4+n1:5+n1:6+n1:7
        "#]],
    );
}

#[test]
fn one_job_goes_where_several_that_share_a_gpu_would_lose_as_much() {
    check(
        "policy {shares: true, half_life: none}\nnode n1 2xh100\nsubmit a default 1 milli=500\nsubmit b default 1\n\
        submit c default 1 milli=500\nplan\npass 1m\nsubmit h default 1 prio=high\nplan",
        expect![[r#"
            place a n1:0
            place b n1:1
            place c n1:0
            stop b Preempted by h
            promise h n1:1
        "#]],
    );
}
