//! Scenarios of guarantees in a tree of queues: no job waits for what is guaranteed to it longer than it takes to stop others.

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

/// Two labs of a tree, each with its own part, and another tree beside them.
const TREE: &str = r#"policy {share: fill, preempt: least_loss, cool_down: none}
queue o guarantee=5
queue o/lab guarantee=3
queue o/lab/a guarantee=1
queue o/lab/b guarantee=2
queue o/other guarantee=2
queue p guarantee=3
"#;

fn check(scenario: &str, expected: Expect) {
    match run(&format!("{TREE}{scenario}")) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn a_small_job_with_room_in_the_guarantee_goes_before_the_larger_one_of_a_sibling_that_nobody_owes_anything()
{
    check(
        "node n1 8xh100\nsubmit fill p 1 array=0-2\nplan\nsubmit large o/lab/b 4\nsubmit beyond o/lab/a 5\nsubmit owed o/lab/b 2\nplan",
        expect![[r#"
            place fill_0 n1:0
            place fill_1 n1:1
            place fill_2 n1:2
            place owed n1:3+n1:4
            wait DV-GPUS-BUSY: no node has 5 GPUs free that would do
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
        "#]],
    );
}

#[test]
fn a_sibling_that_has_too_much_gives_back_first_and_then_those_beyond_it_do() {
    check(
        "policy {share: fill, preempt: least_loss, cool_down: none, most_moves: 0}\nqueue o/lab guarantee=3 weight=0\nnode n1 2xh100\nnode n2 2xh100\nnode n3 2xh100\n\
        submit c1 o/other 1\nsubmit a1 o/lab/a 1\nplan\nsubmit c2 o/other 1\nplan\nsubmit a2 o/lab/a 1\nplan\n\
        submit c3 o/other 1\nplan\nsubmit a3 o/lab/a 1\nplan\npass 1h\nsubmit b0 o/lab/b 2\nplan",
        expect![[r#"
            place c1 n1:0
            place a1 n1:1
            place c2 n2:0
            place a2 n2:1
            place c3 n3:0
            place a3 n3:1
            stop a1 Reclaimed by b0
            stop a2 Reclaimed by b0
            stop c2 Reclaimed by b0
            promise b0 n2:0+n2:1
        "#]],
    );
}

#[test]
fn for_what_is_guaranteed_another_moves_at_once() {
    check(
        "node n1 2xh100\nnode n2 2xh100\nsubmit x0 p 1 array=0-3\nplan\nend x0_0\nend x0_2\nsubmit b0 o/lab/b 2\nplan",
        expect![[r#"
            place x0_0 n1:0
            place x0_1 n1:1
            place x0_2 n2:0
            place x0_3 n2:1
            ended x0_0 completed Exit exit=0
            ended x0_2 completed Exit exit=0
            stop x0_1 Moved by b0
            promise x0_1 n2:0
            promise b0 n1:0+n1:1
        "#]],
    );
}

#[test]
fn who_stands_first_is_passed_by_nobody_where_what_is_guaranteed_has_room_for_one_of_his_alternatives() {
    check(
        "policy {share: fill, preempt: least_loss, order: shortest, reserve: 0, most_moves: 0, starve_after: none, cool_down: none}
node n1 2xh100
node n2 8xa100
queue a guarantee=2
queue b guarantee=8
submit b b 4 array=0-3 model=a100
plan
submit first a 8 model=a100 or=h100:2 estimate=1h
submit second a 2 model=h100 estimate=2h
plan
pass 1m
plan",
        expect![[r#"
            place b_0 n2:0+n2:1+n2:2+n2:3
            place b_1 n2:4+n2:5+n2:6+n2:7
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
            place first n1:0+n1:1
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        "#]],
    );
}
