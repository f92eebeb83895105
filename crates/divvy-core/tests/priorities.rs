//! Scenarios of jobs that are given another priority.
#![allow(clippy::unwrap_used, reason = "what a test's own functions can't set up has failed the test")]

use divvy_core::scenario::{Scenario, run};
use divvy_core::snapshot::Snapshot;
use expect_test::{Expect, expect};

/// Runs a scenario in a pool of one node with two devices.
fn check(scenario: &str, expected: Expect) {
    match run(&format!("policy {{preempt: least_loss, cool_down: none}}\nnode n1 2xh100\n{scenario}")) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn who_is_given_a_higher_priority_goes_before_those_that_came_earlier() {
    check(
        "queue q\nsubmit a q 2 prio=high\nplan\nsubmit b q 2\nsubmit c q 2\nplan\nprioritise c high\nplan\nend a\nplan",
        expect![[r#"
            place a n1:0+n1:1
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            ended a completed Exit exit=0
            place c n1:0+n1:1
        "#]],
    );
}

#[test]
fn it_takes_the_place_of_a_running_job_that_is_below_it_now() {
    check(
        "queue q\nsubmit a q 2\nplan\nsubmit b q 2\nplan\nprioritise b high\nplan",
        expect![[r#"
        place a n1:0+n1:1
        wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        stop a Preempted by b
        promise b n1:0+n1:1
    "#]],
    );
}

#[test]
fn a_running_job_keeps_its_place_by_the_priority_that_it_is_given() {
    check(
        "queue q\nsubmit a q 2\nplan\nprioritise a high\nsubmit b q 2 prio=high\nplan",
        expect![[r#"
        place a n1:0+n1:1
        wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
    "#]],
    );
}

#[test]
fn jobs_that_were_alike_are_judged_apart() {
    check(
        "queue q\nsubmit a q 2 fixed\nplan\nsubmit b q 2\nsubmit c q 2\nplan\nprioritise c low\nplan\nprioritise c normal\nrestart\nplan\nend a\nplan",
        expect![[r#"
            place a n1:0+n1:1
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            ended a completed Exit exit=0
            place b n1:0+n1:1
        "#]],
    );
}

#[test]
fn only_within_the_bounds_of_its_queue_by_its_user_or_an_administrator_and_whole_arrays() {
    let queue = r#"queue q {"path": "q", "bounds": {"max_priority": 50}}
submit a q 1 user=ana
submit b q 1 array=0-3 user=ana"#;
    for (line, expected) in [
        ("prioritise a 50 by=ana", expect![[""]]),
        (
            "prioritise a 51 by=ana",
            expect![[r#"
            refused beyond-queue: queue q takes jobs with a priority of at most 50, and this one has 51
        "#]],
        ),
        (
            "prioritise a urgent by=root",
            expect![[r#"
            refused beyond-queue: queue q takes jobs with a priority of at most 50, and this one has urgent
        "#]],
        ),
        (
            "prioritise a low by=ben",
            expect![[r#"
                refused not-yours: job a is not yours
            "#]],
        ),
        ("prioritise a soon", expect![[r#"line 6: "soon" is no priority: write high, or 100"#]]),
        (
            "prioritise b_1 low",
            expect![[r#"
            refused bad-spec: job: the members of an array have one priority: name the array
        "#]],
        ),
    ] {
        check(&format!("{queue}\n{line}"), expected);
    }
}

#[test]
fn urgent_needs_the_leave_of_the_queue_then_too() {
    check(
        "queue q\nqueue p\nsubmit a q 2 user=ana\nprioritise a urgent",
        expect![[r#"
        refused no-leave: queue q takes no urgent jobs, and this one has priority urgent
    "#]],
    );
}

#[test]
fn who_gets_another_priority_stands_as_if_it_had_always_had_it() {
    let mut scenario = Scenario::new();
    let lines = "policy {order: attained, cool_down: 1m}\nnode n1 4xh100\nnode n2 4xa100\nqueue q\nqueue r guarantee=2
submit all q 1 array=0-5 speed=h100:100,a100:50 limit=2h\nsubmit e r 1 tasks=1..3\nplan\nsubmit w q 2\nplan\npass 1h\nplan
prioritise all high\nplan\nprioritise e low\nplan\nprioritise w urgent\nplan\npass 1h\nplan\nprioritise all low\nplan";
    for line in lines.lines() {
        scenario.line(line).unwrap();
        assert!(scenario.snapshot().same_as(&Snapshot::new(scenario.state())), "{line}");
    }
}
