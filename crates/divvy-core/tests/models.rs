//! Scenarios of jobs that name no model, or several, where queues speak of models.

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

fn check(scenario: &str, expected: Expect) {
    match run(scenario) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn of_models_in_no_order_a_job_gets_what_is_lent() {
    check(
        r#"node n1 4xh100
node n2 4xl4
queue a {"path": "a", "guarantee": {"h100": {"finite": 4000}}, "lend": {"h100": {"finite": 0}}}
queue b
submit x b 2 model=h100,l4
submit y b 2 model=l4,h100
submit z b 1
plan"#,
        expect![[r#"
            place x n2:0+n2:1
            place y n2:2+n2:3
            wait DV-NOT-LENT: queue b would have to borrow, and the others lend 0 more h100
        "#]],
    );
}

#[test]
fn what_is_guaranteed_of_one_of_several_models_is_taken_back() {
    check(
        r#"node n1 4xh100
node n2 4xl4
queue a {"path": "a", "guarantee": {"h100": {"finite": 4000}}}
queue b {"path": "b", "guarantee": {"l4": {"finite": 4000}}}
submit x b 1 array=0-7
plan
submit y a 4 model=h100,l4
plan"#,
        expect![[r#"
            place x_0 n1:0
            place x_1 n1:1
            place x_2 n1:2
            place x_3 n1:3
            place x_4 n2:0
            place x_5 n2:1
            place x_6 n2:2
            place x_7 n2:3
            stop x_3 Reclaimed by y
            stop x_2 Reclaimed by y
            stop x_1 Reclaimed by y
            stop x_0 Reclaimed by y
            promise y n1:0+n1:1+n1:2+n1:3
        "#]],
    );
}

#[test]
fn a_gang_grows_over_what_is_lent_and_no_more() {
    check(
        r#"node n1 4xh100
node n2 4xl4
queue a {"path": "a", "guarantee": {"h100": {"finite": 4000}}, "lend": {"h100": {"finite": 1000}}}
queue b
submit b b 1 tasks=1..8
plan
submit a a 3 model=h100
plan"#,
        expect![[r#"
            place b n1:0
            grow b n2:0 n2:1 n2:2 n2:3
            place a n1:1+n1:2+n1:3
        "#]],
    );
}

#[test]
fn who_lends_nothing_lends_no_model() {
    check(
        r#"node n1 4xh100
node n2 4xl4
queue a {"path": "a", "guarantee": {"h100": {"finite": 4000}}, "lend": {"any": {"finite": 0}}}
queue b
submit x b 1 model=h100
submit y b 4
submit z b 1
plan"#,
        expect![[r#"
            place y n2:0+n2:1+n2:2+n2:3
            wait DV-NOT-LENT: queue b would have to borrow, and the others lend 0 more GPUs
            wait DV-NOT-LENT: queue b would have to borrow, and the others lend 0 more h100
        "#]],
    );
}

#[test]
fn what_a_queue_may_not_borrow_of_a_model_its_jobs_do_not_get() {
    check(
        r#"node n1 4xh100
node n2 2xl4
queue a {"path": "a", "guarantee": {"any": {"finite": 1000}}, "borrow": {"h100": {"finite": 0}}}
queue b
submit x a 1 array=0-2
plan"#,
        expect![[r#"
            place x_0 n2:0
            place x_1 n2:1
            wait DV-BORROW-LIMIT: queue a would borrow more than the 0 h100 that it may
        "#]],
    );
}

#[test]
fn who_never_gives_way_leaves_others_what_is_guaranteed_to_them_by_name() {
    check(
        r#"node n1 4xh100
node n2 4xl4
queue a {"path": "a", "guarantee": {"any": {"finite": 4000}}}
queue b {"path": "b", "guarantee": {"h100": {"finite": 4000}}}
submit w a 2 model=h100,l4 fixed
submit x a 2 fixed
plan
submit y b 4 model=h100
plan
submit z a 1 fixed
plan"#,
        expect![[r#"
            place w n2:0+n2:1
            place x n2:2+n2:3
            place y n1:0+n1:1+n1:2+n1:3
            wait DV-OVER-QUOTA: is not preemptible, and queue a is guaranteed 4 GPUs for such jobs
        "#]],
    );
}

#[test]
fn a_job_at_its_queues_limit_of_a_model_is_told_so_though_others_of_the_model_are_free() {
    check(
        r#"node n1 4xh100
node n2 4xl4
queue a {"path": "a", "limit": {"h100": {"finite": 1000}}}
submit x a 1 array=0-5
plan"#,
        expect![[r#"
            place x_0 n1:0
            place x_1 n2:0
            place x_2 n2:1
            place x_3 n2:2
            place x_4 n2:3
            wait DV-QUEUE-LIMIT: queue a is at its limit of 1 h100
        "#]],
    );
}
