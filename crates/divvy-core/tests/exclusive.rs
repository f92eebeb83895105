//! Jobs that want their nodes for themselves: they get all of them, and all of it counts.

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn what_comes_with_the_node_counts_against_the_limit_of_the_queue() {
    check(
        "node n1 4xh100
queue x limit=3
queue y limit=4
submit jx x 1 exclusive wait
submit jy y 1 exclusive
plan
explain jx",
        expect![[r#"
            place jy n1:0+n1:1+n1:2+n1:3
            wait DV-QUEUE-LIMIT: queue x has a limit of 3 GPUs, and it asks for 4
            no_fit
              DV-QUEUE-LIMIT queue x has a limit of 3 GPUs, and it asks for 4 | ask for fewer GPUs, or have x's limit of 3 raised (this job asks for 4)
              DV-GPUS-BUSY every GPU that would do is taken | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 0 free > 0 on one node
        "#]],
    );
}

#[test]
fn a_small_guarantee_takes_no_whole_node_back() {
    check(
        "node n1 4xh100
queue x guarantee=1
queue y
submit all y 4
plan
submit alone x 1 exclusive
plan
submit one x 1
plan",
        expect![[r#"
            place all n1:0+n1:1+n1:2+n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop all Reclaimed by one
            promise one n1:0
        "#]],
    );
}

#[test]
fn a_guarantee_of_the_whole_node_does() {
    check(
        "node n1 4xh100
queue x guarantee=4
queue y
submit all y 4
plan
submit alone x 1 exclusive
plan
end all signal=15
plan",
        expect![[r#"
            place all n1:0+n1:1+n1:2+n1:3
            stop all Reclaimed by alone
            promise alone n1:0+n1:1+n1:2+n1:3
            ended all pending Reclaimed exit=143
            place alone n1:0+n1:1+n1:2+n1:3
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
        "#]],
    );
}

#[test]
fn one_that_is_not_preemptible_stays_within_the_guarantee_with_all_that_it_gets() {
    check(
        "node n1 4xh100
queue x guarantee=2
queue y guarantee=2
submit fixed x 1 exclusive fixed wait
submit other y 1 exclusive
plan",
        expect![[r#"
            place other n1:0+n1:1+n1:2+n1:3
            wait DV-OVER-QUOTA: is not preemptible, and queue x is guaranteed 2 GPUs for such jobs
        "#]],
    );
}

#[test]
fn one_without_gpus_is_charged_for_those_that_it_keeps_from_others() {
    check(
        "node n1 4xh100
node cpu 0xh100 cpu=64
queue x limit=2
submit first x 0 exclusive
plan
submit second x 0 exclusive wait
plan",
        expect![[r#"
            place first cpu
            wait DV-QUEUE-LIMIT: queue x has a limit of 2 GPUs, and it asks for 4
        "#]],
    );
}

#[test]
fn a_limit_of_a_model_leaves_the_nodes_of_others() {
    check(
        "node n1 4xh100
node n2 2xa100
queue x h100=3
submit alone x 1 exclusive
plan",
        expect![[r#"
            place alone n2:0+n2:1
        "#]],
    );
}

#[test]
fn what_is_broken_or_comes_later_is_nobodys_charge() {
    check(
        "node n1 4xh100
device n1:2 down
submit alone default 1 exclusive
plan
device n1:2 ok
submit more default 1 wait
plan",
        expect![[r#"
            place alone n1:0+n1:1+n1:3
            wait DV-HOST-BUSY: no node has 128Gi of memory left
        "#]],
    );
}

#[test]
fn it_asks_for_all_of_the_largest_node_that_would_do_as_soon_as_that_is_there() {
    check(
        "node n1 2xh100
queue x guarantee=2
queue y
submit y1 y 2
plan
submit alone x 1 exclusive
node n2 4xh100
submit y2 y 4
start y2 on=n2:0+n2:1+n2:2+n2:3
plan
queue x guarantee=4
plan",
        expect![[r#"
            place y1 n1:0+n1:1
            stop y1 Reclaimed by alone
            promise alone n1:0+n1:1
        "#]],
    );
}

#[test]
fn each_task_of_a_gang_gets_a_node_and_the_lender_gets_them_back_whole() {
    check(
        "node n1 4xh100
node n2 4xh100
queue x
queue y guarantee=4
submit gang x 1 tasks=2 exclusive
plan
submit back y 2
plan",
        expect![[r#"
            place gang n1:0+n1:1+n1:2+n1:3 n2:0+n2:1+n2:2+n2:3
            stop gang Reclaimed by back
            promise back n1:0+n1:1
        "#]],
    );
}

#[test]
fn a_pool_with_such_a_job_is_staged_as_it_is() {
    check(
        "node n1 4xh100
submit alone default 1 exclusive
start alone on=n1:0+n1:1+n1:2+n1:3
submit next default 1
plan",
        expect![[r#"
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn a_gang_that_starts_on_small_nodes_grows_by_a_large_one_that_is_guaranteed_to_its_queue() {
    // Where it starts, it holds four: with the eight by which it grows, no more than is guaranteed to its queue.
    check(
        "policy {half_life: none}
node n1 8xh100
node n2 8xh100
node n3 4xh100
node cpu 0xh100 cpu=64
queue default guarantee=12
queue b
submit v b 8 tasks=2
plan
submit w default 8
plan
end v signal=15
plan
end w
plan
pass 30s
submit e default 0 tasks=2..3 exclusive
plan",
        expect![[r#"
            place v n1:0+n1:1+n1:2+n1:3+n1:4+n1:5+n1:6+n1:7 n2:0+n2:1+n2:2+n2:3+n2:4+n2:5+n2:6+n2:7
            stop v Reclaimed by w
            promise w n1:0+n1:1+n1:2+n1:3+n1:4+n1:5+n1:6+n1:7
            ended v pending Reclaimed exit=143
            place w n1:0+n1:1+n1:2+n1:3+n1:4+n1:5+n1:6+n1:7
            wait DV-GANG: not all of its 2 tasks fit at once
            ended w completed Exit exit=0
            place v n1:0+n1:1+n1:2+n1:3+n1:4+n1:5+n1:6+n1:7 n2:0+n2:1+n2:2+n2:3+n2:4+n2:5+n2:6+n2:7
            stop v Reclaimed by e
            place e cpu n3:0+n3:1+n3:2+n3:3
            promise e to grow n1:0+n1:1+n1:2+n1:3+n1:4+n1:5+n1:6+n1:7
        "#]],
    );
}
