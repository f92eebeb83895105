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

#[test]
fn what_victims_leave_beside_their_claim_goes_to_who_stands_first_though_it_was_judged_before() {
    check(
        "node n1 2xh100\nsubmit big default 2\nplan\nsubmit w default 1\nplan\npass 1h\nsubmit h default 1 prio=high\n\
        submit l default 1 prio=low\nplan\nend big signal=15\nplan",
        expect![[r#"
            place big n1:0+n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop big Preempted by h
            promise h n1:0
            promise w n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended big pending Preempted exit=143
            place w n1:1
            place h n1:0
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        "#]],
    );
}

#[test]
fn what_victims_leave_beside_their_claim_goes_to_the_queue_to_which_it_is_guaranteed() {
    check(
        "node n1 4xh100\nqueue x guarantee=2\nqueue y guarantee=2\nsubmit big x 4\nplan\nsubmit small x 2\nplan\npass 10m\n\
        submit e y 1 array=0-7\nplan\nend big signal=15\nplan",
        expect![[r#"
            place big n1:0+n1:1+n1:2+n1:3
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            stop big Reclaimed by e_0
            promise e_0 n1:0
            promise small n1:1+n1:2
            promise e_1 n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended big pending Reclaimed exit=143
            place small n1:1+n1:2
            place e_0 n1:0
            place e_1 n1:3
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
        "#]],
    );
}

#[test]
fn what_one_counts_on_that_waits_for_all_is_not_what_the_next_is_told_to_wait_for() {
    // `c` waits for all tasks of `low`, `d` for one of them; then `x` and `y` stop `low2`, and nothing of `low` is left for them.
    check(
        "policy {half_life: none}
node n1 cpu=11
submit low default 0 tasks=5 prio=low
submit a default 0 tasks=1..2
submit b default 0 tasks=1..2
submit c default 0 tasks=1..3
submit d default 0 tasks=1..2
submit f default 0 tasks=2
submit low2 default 0 tasks=2 prio=low
plan
end f
plan
submit x default 0
submit y default 0
plan
end low/4
end low/3
end low/2
end low/1
end low/0
plan",
        expect![[r#"
            place a n1
            place b n1
            place c n1
            place d n1
            place f n1 n1
            place low n1 n1 n1 n1 n1
            wait DV-HOST-BUSY: no node has 1 core left
            ended f completed Exit exit=0
            stop low Preempted by c
            place low2 n1 n1
            promise a to grow n1
            promise b to grow n1
            promise c to grow n1 n1
            promise d to grow n1
            stop low2 Preempted by x
            promise x n1
            promise y n1
            grow d n1
            grow b n1
            ended low pending Preempted exit=0
            grow a n1
            grow c n1 n1
            wait DV-HOST-BUSY: no node has 1 core left
        "#]],
    );
}
