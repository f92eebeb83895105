//! Scenarios of queues below one that they share: the excess of one is not taken from the queues beside their parent, and what one
//! cannot use now is not the others' by right.

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn who_has_too_much_takes_nothing_by_the_right_of_a_sibling_that_waits() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none, reclaim: never}\nnode n1 4xh100\nnode n2 4xh100\nnode n3 4xh100\n\
        queue o\nqueue o/a weight=2\nqueue o/b\nqueue p\n\
        submit p0 p 1 array=0-5\nsubmit b0 o/b 1 array=0-4\nplan\nsubmit b1 o/b 1\nsubmit p1 p 1\nsubmit wide o/a 4\nplan",
        expect![[r#"
            place p0_0 n1:0
            place b0_0 n1:1
            place p0_1 n1:2
            place b0_1 n1:3
            place p0_2 n2:0
            place b0_2 n2:1
            place p0_3 n2:2
            place b0_3 n2:3
            place p0_4 n3:0
            place b0_4 n3:1
            place p0_5 n3:2
            place p1 n3:3
            wait DV-GPUS-BUSY: no node has 4 GPUs free that would do
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn what_is_guaranteed_goes_first_though_a_sibling_has_more_than_their_parent_is_due() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none}\nnode n1 8xh100\n\
        queue o guarantee=5\nqueue o/lab guarantee=3\nqueue o/lab/a guarantee=1\nqueue o/lab/b guarantee=2\nqueue o/other guarantee=2\nqueue p guarantee=3\n\
        submit a0 o/lab/a 1 array=0-3\nsubmit c0 o/other 1\nplan\nsubmit beyond o/other 3\nsubmit owed o/lab/b 2\nplan",
        expect![[r#"
            place a0_0 n1:0
            place c0 n1:1
            place a0_1 n1:2
            place a0_2 n1:3
            place a0_3 n1:4
            place owed n1:5+n1:6
            wait DV-GPUS-BUSY: no node has 3 GPUs free that would do
        "#]],
    );
}

#[test]
fn a_sibling_gives_back_first_what_it_has_beyond_its_due_and_then_those_beyond_it_do() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none, most_moves: 0}\nnode n1 2xh100\nnode n2 2xh100\nnode n3 2xh100\n\
        queue o\nqueue o/lab weight=2\nqueue o/lab/a\nqueue o/lab/b\nqueue o/other weight=1\n\
        submit c1 o/other 1\nsubmit a1 o/lab/a 1\nplan\nsubmit c2 o/other 1\nplan\nsubmit a2 o/lab/a 1\nplan\n\
        submit c3 o/other 1\nplan\nsubmit a3 o/lab/a 1\nplan\npass 1h\nsubmit b0 o/lab/b 2\nplan",
        expect![[r#"
            place a1 n1:0
            place c1 n1:1
            place c2 n2:0
            place a2 n2:1
            place c3 n3:0
            place a3 n3:1
            stop a1 Reclaimed by b0
            stop c1 Reclaimed by b0
            promise b0 n1:0+n1:1
        "#]],
    );
}

#[test]
fn what_is_guaranteed_above_a_queue_is_taken_from_its_siblings_first_and_then_from_those_beyond() {
    check(
        "policy {half_life: none, surplus: line, borrow_evicts: false}\nnode n1 2xh100\nqueue r guarantee=2\nqueue r/q1\n\
        queue r/c guarantee=2\nqueue r/c/q2\nqueue r/c/b guarantee=2\nqueue r/c/b/q5\n\
        submit j1 r/q1 1\nsubmit j4 r/c/q2 1\nplan\nsubmit in r/c/b/q5 2\nplan",
        expect![[r#"
            place j4 n1:0
            place j1 n1:1
            stop j4 Reclaimed by in
            stop j1 Reclaimed by in
            promise in n1:0+n1:1
        "#]],
    );
}
