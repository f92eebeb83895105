//! Scenarios of jobs that give way to those of their own queue and priority that stand before them in its order.

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

/// Runs a scenario after a line of policy.
fn check(policy: &str, scenario: &str, expected: Expect) {
    match run(&format!("policy {policy}\n{scenario}")) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

const ATTAINED: &str =
    "{half_life: none, order: attained, attained: {levels: [10m, 100m], head_start: none}}";
const SHORTEST: &str = "{half_life: none, order: shortest}";
const WALK_BY_WHAT_IS_LEFT: &str = "{share: none, order: shortest, shortest: {of: remaining}, preempt: walk, cool_down: none, starve_after: none}";

#[test]
fn a_job_gives_way_to_one_that_has_had_less_once_it_falls_a_level_and_comes_back() {
    check(
        ATTAINED,
        "node n1 1xh100\nsubmit long default 1 resumable\nplan\npass 9m\nsubmit new default 1 resumable\nplan\npass 1m\nplan\nend long signal=15\nplan\npass 10m\nplan\nend new\nplan",
        expect![[r#"
            place long n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop long Order by new
            promise new n1:0
            ended long pending Order exit=143
            place new n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop new Order by long
            promise long n1:0
            ended new pending Order exit=0
            place long n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn a_job_gives_way_when_its_hold_is_over_though_nothing_else_happens() {
    for preempt in ["least_loss", "walk"] {
        for cool_down in ["1m", "none"] {
            let policy = format!(
                "{{half_life: none, order: attained, attained: {{levels: [10m, 100m], head_start: none, hold: 30m}}, preempt: {preempt}, cool_down: {cool_down}}}"
            );
            check(
                &policy,
                "node n1 1xh100\nsubmit long default 1 resumable\nplan\npass 15m\nsubmit new default 1 resumable\nplan\npass 14m\nplan\npass 1m\nplan",
                expect![[r#"
                    place long n1:0
                    wait DV-GPUS-BUSY: every GPU that would do is taken
                    stop long Order by new
                    promise new n1:0
                "#]],
            );
        }
    }
}

#[test]
fn a_job_that_would_lose_its_work_does_not_give_way_by_the_order() {
    check(
        ATTAINED,
        "node n1 1xh100\nsubmit long default 1\nplan\npass 1d\nsubmit new default 1 resumable\nplan",
        expect![[r#"
            place long n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn by_the_order_nobody_gives_way_to_another_queue_nor_to_a_lower_priority() {
    check(
        ATTAINED,
        "node n1 2xh100\nqueue a guarantee=1\nqueue b guarantee=1\nsubmit a1 a 1 prio=high resumable\nsubmit b1 b 1 resumable\nplan\npass 1d\nsubmit a2 a 1 resumable\nsubmit b2 b 1 resumable\nplan",
        expect![[r#"
            place a1 n1:0
            place b1 n1:1
            stop b1 Order by b2
            promise b2 n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn a_gang_takes_the_places_of_as_many_as_it_needs_and_of_those_that_lose_least() {
    check(
        ATTAINED,
        "node n1 4xh100\nsubmit a default 1 resumable saves=30m\nsubmit b default 2 resumable\nsubmit c default 1 resumable\nplan\npass 1h\nsubmit wide default 1 tasks=2 resumable\nplan",
        expect![[r#"
            place a n1:0
            place b n1:1+n1:2
            place c n1:3
            stop b Order by wide
            promise wide n1:1 n1:2
        "#]],
    );
}

#[test]
fn a_shorter_job_takes_the_place_of_one_that_has_more_left_and_not_of_one_that_is_nearly_done() {
    check(
        SHORTEST,
        "node n1 2xh100\nsubmit day default 1 resumable\nestimate day 1d 2d\nsubmit ten default 1 resumable\nestimate ten 10h 20h\nplan\npass 9h\nsubmit five default 1 resumable\nestimate five 5h 10h\nsubmit four default 1 resumable\nestimate four 4h 8h\nplan",
        expect![[r#"
            place ten n1:0
            place day n1:1
            stop day Order by four
            promise four n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn where_a_queue_says_that_nobody_in_it_gives_way_nobody_does_by_the_order() {
    check(
        "{half_life: none, order: shortest, within_queue: never}",
        "node n1 1xh100\nsubmit day default 1 resumable\nestimate day 1d 2d\nplan\nsubmit four default 1 resumable\nestimate four 4h 8h\nplan",
        expect![[r#"
            place day n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn in_the_order_of_arrival_nobody_gives_way_to_an_equal() {
    check(
        "{half_life: none}",
        "node n1 1xh100\nsubmit day default 1 resumable\nestimate day 1d 2d\nplan\npass 1d\nsubmit four default 1 resumable\nestimate four 4h 8h\nplan",
        expect![[r#"
            place day n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn an_array_that_gave_way_stands_where_its_service_puts_it() {
    check(
        ATTAINED,
        "node n1 2xh100\nsubmit sweep default 1 array=0-3 resumable\nplan\npass 10m\nplan\nend sweep_0 signal=15\nend sweep_1 signal=15\nplan\npass 10m\nplan",
        expect![[r#"
            place sweep_0 n1:0
            place sweep_1 n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop sweep_1 Order by sweep_2
            stop sweep_0 Order by sweep_3
            promise sweep_2 n1:1
            promise sweep_3 n1:0
            ended sweep_0 pending Order exit=143
            place sweep_3 n1:0
            ended sweep_1 pending Order exit=143
            place sweep_2 n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn a_member_that_gave_way_waits_behind_those_that_have_had_less_whoever_of_its_array_starts_before_them() {
    check(
        ATTAINED,
        "node n1 2xh100\nsubmit a default 1 array=0-2\nplan\npass 11m\nstop a_0\nend a_0 signal=15\nstop a_1\nend a_1 signal=15\nsubmit b default 1 cpu=2\nplan",
        expect![[r#"
            place a_0 n1:0
            place a_1 n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended a_0 pending Preempted exit=143
            ended a_1 pending Preempted exit=143
            place a_2 n1:0
            place b n1:1
        "#]],
    );
}

#[test]
fn in_a_strict_order_an_array_keeps_back_only_those_behind_the_member_that_is_next() {
    check(
        "{strict: true, half_life: none, order: attained, attained: {levels: [10m], head_start: none}}",
        "node n1 2xh100\nsubmit a default 1 array=0-2\nplan\npass 11m\nstop a_0\nend a_0 signal=15\nsubmit b default 1 cpu=2\nplan\nexplain b",
        expect![[r#"
            place a_0 n1:0
            place a_1 n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended a_0 pending Preempted exit=143
            place a_2 n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            wait DV-IN-LINE: jobs start strictly in order, and one before it does not fit yet
            later
              DV-GPUS-BUSY every GPU that would do is taken | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              2 in pool > 2 right model > 2 enough memory > 2 healthy > 0 free > 0 on one node
        "#]],
    );
}

#[test]
fn in_the_order_without_shares_an_array_starts_no_more_than_stand_before_the_next_job() {
    check(
        "{share: none, preempt: off, order: attained, attained: {levels: [10m], head_start: none}}",
        "node n1 2xh100\nsubmit a default 1 array=0-2\nplan\npass 11m\nstop a_0\nend a_0 signal=15\nstop a_1\nend a_1 signal=15\nsubmit b default 1 cpu=2\nplan",
        expect![[r#"
            place a_0 n1:0
            place a_1 n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended a_0 pending Preempted exit=143
            ended a_1 pending Preempted exit=143
            place a_2 n1:0
            place b n1:1
        "#]],
    );
}

#[test]
fn who_outruns_his_estimate_falls_behind_in_steps_and_not_with_every_second() {
    check(
        "{half_life: none, order: shortest, shortest: {of: remaining}}",
        "node n1 1xh100\nsubmit sweep default 1 array=0-1 resumable\nestimate sweep 10m 20m\nplan\npass 601s\nplan\nexplain sweep_1\npass 599s\nplan\nend sweep_0 signal=15\nplan\npass 1201s\nplan\nexplain sweep_0\npass 20m\nplan",
        expect![[r#"
            place sweep_0 n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            later
              DV-GPUS-BUSY every GPU that would do is taken | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              1 in pool > 1 right model > 1 enough memory > 1 healthy > 0 free > 0 on one node
              room from 20m
            stop sweep_0 Order by sweep_1
            promise sweep_1 n1:0
            ended sweep_0 pending Order exit=143
            place sweep_1 n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            later
              DV-GPUS-BUSY every GPU that would do is taken | wait for running jobs to end, or ask for fewer GPUs or for other models, too
              1 in pool > 1 right model > 1 enough memory > 1 healthy > 0 free > 0 on one node
              room from 40m
            stop sweep_1 Order by sweep_0
            promise sweep_0 n1:0
        "#]],
    );
}

#[test]
fn by_the_walk_who_has_more_left_gives_way_and_who_has_outrun_its_estimate_does_once_it_ran_longer_than_that()
{
    check(
        WALK_BY_WHAT_IS_LEFT,
        "node n1 1xh100\nsubmit long default 1 resumable\nestimate long 1h 1h\nplan\npass 10m\nsubmit new default 1 resumable\nestimate new 30m 30m\nplan\nend long signal=15\nplan\npass 40m\nplan\npass 20m\nplan",
        expect![[r#"
            place long n1:0
            stop long Order by new
            promise new n1:0
            ended long pending Order exit=143
            place new n1:0
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop new Order by long
            promise long n1:0
        "#]],
    );
}

#[test]
fn by_the_walk_priority_goes_before_what_is_left() {
    check(
        WALK_BY_WHAT_IS_LEFT,
        "node n1 2xh100\nsubmit a default 1 prio=high resumable\nestimate a 9h 9h\nsubmit b default 1 resumable\nestimate b 2h 2h\nplan\npass 10m\nsubmit c default 1 resumable\nestimate c 1h 1h\nplan",
        expect![[r#"
            place a n1:0
            place b n1:1
            stop b Order by c
            promise c n1:1
        "#]],
    );
}

#[test]
fn by_the_walk_one_that_would_lose_its_work_gives_way_only_to_a_higher_priority() {
    for order in
        ["shortest, shortest: {of: remaining}", "attained, attained: {levels: [5m], head_start: none}"]
    {
        let policy =
            format!("{{share: none, order: {order}, preempt: walk, cool_down: none, starve_after: none}}");
        check(
            &policy,
            "node n1 1xh100\nsubmit long default 1\nestimate long 1h 1h\nplan\nsubmit new default 1\nestimate new 10m 10m\nplan\npass 2h\nplan\nsubmit urgent default 1 prio=high\nestimate urgent 9h 9h\nplan",
            expect![[r#"
                place long n1:0
                wait DV-GPUS-BUSY: every GPU that would do is taken
                stop long Order by urgent
                promise urgent n1:0
            "#]],
        );
    }
}

#[test]
fn by_the_walk_one_gives_way_to_those_before_it_alone_though_one_that_is_chosen_by_count_does_not_fit() {
    let policy = "{share: none, preempt: walk, cool_down: none, starve_after: none}";
    let first = "submit first default 1 model=a100 prio=high wait";
    check(
        policy,
        &format!("node n1 4xh100\n{first}\nsubmit old default 4\nplan\npass 1h\nsubmit new default 2\nplan"),
        expect![[r#"
            place old n1:0+n1:1+n1:2+n1:3
            wait DV-NO-SUCH-MODEL: the pool has no GPU like a100
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        "#]],
    );
    // Two that would take their only node from each other for ever.
    check(
        policy,
        &format!(
            "node n1 1xh100\n{first}\nsubmit pair default 0 array=0-1 exclusive\nplan\npass 1h\nplan\npass 1h\nplan"
        ),
        expect![[r#"
            place pair_0 n1:0
            wait DV-HOST-BUSY: no node has 1Gi of memory left
            wait DV-NO-SUCH-MODEL: the pool has no GPU like a100
        "#]],
    );
}

#[test]
fn nobody_takes_what_one_of_higher_priority_needs_beside_the_places_of_others_in_their_queue() {
    check(
        "{half_life: none}",
        "node n1 8xh100
queue a guarantee=4
queue b guarantee=4
submit a1 a 3
submit b1 b 4
plan
submit wide a 5 prio=high
submit junior a 1
submit senior a 4 prio=high
plan",
        expect![[r#"
            place a1 n1:0+n1:1+n1:2
            place b1 n1:3+n1:4+n1:5+n1:6
            stop a1 Preempted by senior
            promise senior n1:0+n1:1+n1:2+n1:7
            wait DV-GPUS-BUSY: no node has 5 GPUs free that would do
            wait DV-GPUS-BUSY: every GPU that would do is taken
        "#]],
    );
}

#[test]
fn beyond_guarantees_the_first_in_line_goes_first_where_the_policy_says_so() {
    let lines = "node n1 4xh100\nqueue a\nqueue b\nsubmit x a 2\nsubmit y b 1\nsubmit z default 1 fixed\nplan\n\
        end z\nsubmit old a 1\npass 1m\nsubmit new b 1\nplan";
    check(
        "{half_life: none, surplus: line}",
        lines,
        expect![[r#"
        place x n1:0+n1:1
        place y n1:2
        place z n1:3
        ended z completed Exit exit=0
        place old n1:3
        wait DV-GPUS-BUSY: every GPU that would do is taken
    "#]],
    );
    check(
        "{half_life: none}",
        lines,
        expect![[r#"
        place x n1:0+n1:1
        place y n1:2
        place z n1:3
        ended z completed Exit exit=0
        place new n1:3
        wait DV-GPUS-BUSY: every GPU that would do is taken
    "#]],
    );
}

#[test]
fn the_estimate_of_its_user_counts_from_the_submission_on() {
    let scenario = format!(
        "policy {SHORTEST}\nnode n1 1xh100\nsubmit x default 1\nplan\nsubmit long default 1 estimate=5h\nsubmit short default 1 estimate=1h\nend x\nplan"
    );
    assert!(run(&scenario).unwrap().contains("place short n1:0"));
}
