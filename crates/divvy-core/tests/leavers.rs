//! What tasks that are being stopped leave, and who gets it.

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn what_is_left_beside_what_is_promised_of_one_that_leaves_serves_the_next_claim() {
    check(
        "node n1 4xh100
queue a
submit j1 a 2 mem=1 prio=low
submit j2 a 2 mem=1 prio=low
plan
submit j3 a 1 mem=1 prio=high
plan
submit j4 a 1 mem=1 prio=high
plan",
        expect![[r#"
            place j1 n1:0+n1:1
            place j2 n1:2+n1:3
            stop j2 Preempted by j3
            promise j3 n1:2
            promise j4 n1:3
        "#]],
    );
}

#[test]
fn memory_that_is_promised_of_one_that_leaves_is_not_left_to_another() {
    check(
        "node n1 4xh100 mem=10
queue a
submit j1 a 2 mem=6 prio=low
submit j2 a 2 mem=4 prio=low
plan
submit j3 a 1 mem=5 prio=high
plan
submit j4 a 1 mem=3 prio=high
plan",
        expect![[r#"
            place j1 n1:0+n1:1
            place j2 n1:2+n1:3
            stop j1 Preempted by j3
            promise j3 n1:0
            stop j2 Preempted by j4
            promise j4 n1:2
        "#]],
    );
}

#[test]
fn one_that_leaves_is_waited_for_by_all_who_get_a_part_of_it() {
    check(
        "node n1 4xh100 mem=8
queue a
submit j1 a 4 mem=8 prio=low
plan
submit j2 a 1 mem=2 prio=high
plan
submit j3 a 1 mem=2 prio=high
submit j4 a 2 mem=3 prio=high
submit j5 a 1 mem=1 prio=high
plan
end j1
plan",
        expect![[r#"
            place j1 n1:0+n1:1+n1:2+n1:3
            stop j1 Preempted by j2
            promise j2 n1:0
            promise j3 n1:1
            promise j4 n1:2+n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended j1 pending Preempted exit=0
            place j2 n1:0
            place j3 n1:1
            place j4 n1:2+n1:3
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
        "#]],
    );
}
