//! Scenarios of the right by which a borrowing queue takes what others borrow, and of guarantees of one model.

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

/// Of four GPUs `a` and `b` are guaranteed one each, and `b` holds all.
fn full(setting: &str, rest: &str) -> String {
    format!(
        "policy {{share: fill, preempt: least_loss, half_life: none, borrow_evicts: {setting}}}\nnode n1 4xh100\nqueue a guarantee=1\n\
         queue b guarantee=1\nsubmit b0 b 1 prio=high\nsubmit b1 b 1\nsubmit b2 b 1 prio=low\nsubmit b3 b 1 prio=low\nplan\n{rest}"
    )
}

#[test]
fn by_priority_alone_a_queue_takes_more_than_its_due_from_others_that_borrow() {
    // It is due two: by what is due, the third waits.
    let urgent = "submit a0 a 3 prio=high\nplan";
    check(
        &full("due", urgent),
        expect![[r#"
        place b0 n1:0
        place b1 n1:1
        place b2 n1:2
        place b3 n1:3
        wait DV-GPUS-BUSY: no node has 3 GPUs free that would do
    "#]],
    );
    check(
        &full("lower", urgent),
        expect![[r#"
        place b0 n1:0
        place b1 n1:1
        place b2 n1:2
        place b3 n1:3
        stop b3 Reclaimed by a0
        stop b2 Reclaimed by a0
        stop b1 Reclaimed by a0
        promise a0 n1:1+n1:2+n1:3
    "#]],
    );
}

#[test]
fn by_priority_alone_nobody_goes_for_an_equal_nor_for_what_is_merely_due() {
    check(
        &full("lower", "submit a0 a 2 prio=low\nplan"),
        expect![[r#"
        place b0 n1:0
        place b1 n1:1
        place b2 n1:2
        place b3 n1:3
        wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
    "#]],
    );
    check(
        &full("due_or_lower", "submit a0 a 2 prio=low\nplan"),
        expect![[r#"
        place b0 n1:0
        place b1 n1:1
        place b2 n1:2
        place b3 n1:3
        stop b3 Reclaimed by a0
        stop b2 Reclaimed by a0
        promise a0 n1:2+n1:3
    "#]],
    );
}

#[test]
fn a_bound_says_up_to_which_priority_jobs_of_others_go() {
    check(
        &full("{lower: low}", "submit a0 a 3 prio=high\nplan"),
        expect![[r#"
        place b0 n1:0
        place b1 n1:1
        place b2 n1:2
        place b3 n1:3
        wait DV-GPUS-BUSY: no node has 3 GPUs free that would do
    "#]],
    );
    check(
        &full("{lower: low}", "submit a0 a 2 prio=high\nplan"),
        expect![[r#"
        place b0 n1:0
        place b1 n1:1
        place b2 n1:2
        place b3 n1:3
        stop b3 Reclaimed by a0
        stop b2 Reclaimed by a0
        promise a0 n1:2+n1:3
    "#]],
    );
}

#[test]
fn by_priority_alone_nobody_is_left_with_less_than_is_guaranteed_to_him() {
    check(
        "policy {share: fill, preempt: least_loss, half_life: none, borrow_evicts: lower}\nnode n1 4xh100\nqueue a guarantee=1\n\
         queue b guarantee=1\nsubmit b0 b 4 prio=low\nplan\nsubmit a0 a 2 prio=high\nplan\nsubmit a1 a 1\nplan",
        expect![[r#"
            place b0 n1:0+n1:1+n1:2+n1:3
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            stop b0 Reclaimed by a1
            promise a1 n1:0
        "#]],
    );
}

#[test]
fn what_goes_by_priority_is_not_taken_back_by_what_is_merely_due() {
    // `b` takes what is due to it, but not from those who could take that back at once.
    check(
        r#"policy {share: fill, preempt: least_loss, half_life: none}
node n1 4xh100
queue a {"path": "a", "borrow_evicts": "lower"}
queue b
queue c
submit a0 a 1 prio=high array=0-3
plan
submit b0 b 1
submit c0 c 1 prio=high
plan"#,
        expect![[r#"
            place a0_0 n1:0
            place a0_1 n1:1
            place a0_2 n1:2
            place a0_3 n1:3
            stop a0_3 Reclaimed by c0
            promise c0 n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

/// `a` has two of the three premium GPUs that are guaranteed to it, and has borrowed five others.
fn premium(of_b: &str, rest: &str) -> String {
    format!(
        r#"policy {{share: fill, preempt: least_loss, half_life: none}}
node n1 3xh100
node n2 6xl4
queue a {{"path": "a", "guarantee": {{"h100": {{"finite": 3000}}}}}}
queue b {{"path": "b", "guarantee": {of_b}}}
submit b0 b 1 model=h100
plan
submit a0 a 1 model=h100 array=0-1
submit a1 a 1 model=l4 array=0-4
plan
{rest}"#
    )
}

#[test]
fn what_is_guaranteed_of_a_model_can_be_had_whatever_is_borrowed_of_others() {
    let of_models = r#"{"l4": {"finite": 6000}}"#;
    check(
        &premium(of_models, "submit a2 a 1 model=h100\nplan"),
        expect![[r#"
        place b0 n1:0
        place a0_0 n1:1
        place a0_1 n1:2
        place a1_0 n2:0
        place a1_1 n2:1
        place a1_2 n2:2
        place a1_3 n2:3
        place a1_4 n2:4
        stop b0 Reclaimed by a2
        promise a2 n1:0
    "#]],
    );
    // Not more than that.
    check(
        &premium(of_models, "submit a2 a 2 model=h100\nplan"),
        expect![[r#"
        place b0 n1:0
        place a0_0 n1:1
        place a0_1 n1:2
        place a1_0 n2:0
        place a1_1 n2:1
        place a1_2 n2:2
        place a1_3 n2:3
        place a1_4 n2:4
        wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
    "#]],
    );
}

#[test]
fn who_is_within_his_guarantee_of_any_model_keeps_what_he_has_of_each() {
    check(
        &premium(r#"{"any": {"finite": 6000}}"#, "submit a2 a 1 model=h100\nplan"),
        expect![[r#"
        place b0 n1:0
        place a0_0 n1:1
        place a0_1 n1:2
        place a1_0 n2:0
        place a1_1 n2:1
        place a1_2 n2:2
        place a1_3 n2:3
        place a1_4 n2:4
        wait DV-GPUS-BUSY: every GPU that would do is taken
    "#]],
    );
}

#[test]
fn for_what_is_guaranteed_of_any_model_nobody_is_left_with_less_of_the_one_that_is_guaranteed_to_him() {
    check(
        r#"policy {share: fill, preempt: least_loss, half_life: none, most_moves: 0}
node n1 2xh100
node n2 2xl4
queue a {"path": "a", "guarantee": {"h100": {"finite": 2000}}}
queue b guarantee=1
submit a0 a 1 model=h100 array=0-1
submit a1 a 1 model=l4 array=0-1
plan
submit b0 b 1
plan"#,
        expect![[r#"
            place a0_0 n1:0
            place a0_1 n1:1
            place a1_0 n2:0
            place a1_1 n2:1
            stop a1_1 Reclaimed by b0
            promise b0 n2:1
        "#]],
    );
}

/// Of two GPUs both are guaranteed to `a`, which holds one and waits for both.
fn half(reclaim: &str, rest: &str) -> String {
    format!(
        "policy {{share: fill, preempt: least_loss, half_life: none, reclaim: {reclaim}}}\nnode n1 2xh100\nqueue a guarantee=2\n\
         queue b guarantee=0\nsubmit a0 a 1\nplan\nsubmit a1 a 2\nsubmit b0 b 1\nplan\n{rest}"
    )
}

#[test]
fn what_a_queue_could_not_take_back_is_kept_for_its_first_job_while_its_own_run() {
    for reclaim in ["never", "lower"] {
        check(
            &half(reclaim, "end a0\nplan"),
            expect![[r#"
        place a0 n1:0
        wait DV-RESERVED: what is free is kept for job 2, which is before it in line
        wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        ended a0 completed Exit exit=0
        place a1 n1:0+n1:1
        wait DV-GPUS-BUSY: every GPU that would do is taken
    "#]],
        );
    }
    check(
        &half("any", "end a0\nplan"),
        expect![[r#"
        place a0 n1:0
        place b0 n1:1
        wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        ended a0 completed Exit exit=0
        stop b0 Reclaimed by a1
        promise a1 n1:0+n1:1
    "#]],
    );
}

#[test]
fn what_is_kept_for_the_first_job_of_a_queue_is_lent_once_that_has_left() {
    check(
        &half("never", "cancel a1\nplan"),
        expect![[r#"
        place a0 n1:0
        wait DV-RESERVED: what is free is kept for job 2, which is before it in line
        wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        drop a1 Cancelled
        place b0 n1:1
    "#]],
    );
}

/// In a tree that lends nothing to others, what these leave idle is nobody's there: what is left of a queue's guarantee is kept for its first.
#[test]
fn what_is_idle_in_another_tree_is_no_reason_to_lend_what_is_left_in_this_one() {
    let tree = |path: &str| {
        format!(
            "queue {path} {{\"path\": \"{path}\", \"guarantee\": {{\"any\": {{\"finite\": 4000}}}}, \
             \"lend\": {{\"any\": {{\"finite\": 0}}}}, \"borrow\": {{\"any\": {{\"finite\": 0}}}}}}\n"
        )
    };
    check(
        &format!(
            "policy {{half_life: none, reclaim: never}}\nnode n1 8xh100\n{}{}queue t/a guarantee=2\nqueue t/b guarantee=2\n\
             submit a1 t/a 1\nsubmit b1 t/b 2\nplan\nsubmit a2 t/a 2\nsubmit b2 t/b 1\nsubmit u1 u 3\nplan",
            tree("t"),
            tree("u"),
        ),
        expect![[r#"
            place a1 n1:0
            place b1 n1:1+n1:2
            place u1 n1:3+n1:4+n1:5
            wait DV-RESERVED: what is free is kept for job 3, which is before it in line
            wait DV-BORROW-LIMIT: queue t would borrow more than the 0 GPUs that it may
        "#]],
    );
}

#[test]
fn no_room_is_kept_for_a_job_that_could_never_have_its_loan() {
    // One H100 is kept for `a`, so of the two nodes only one can ever be lent whole: `wide` asks for two.
    let pool = "policy {half_life: none, collect_after: 1h}\nnode n1 8xh100\nnode n2 8xa100\n\
        queue a {\"path\":\"a\",\"weight\":1,\"guarantee\":{\"h100\":{\"finite\":4000}},\"lend\":{\"h100\":{\"finite\":3000}}}\n\
        queue b\nsubmit wide b 8 tasks=2 wait\nplan\npass 3h\nsubmit next b 8\nplan";
    check(
        pool,
        expect![[r#"
            wait DV-NOT-LENT: queue b would have to borrow, and the others lend 7 more h100
            place next n2:0+n2:1+n2:2+n2:3+n2:4+n2:5+n2:6+n2:7
        "#]],
    );
}
