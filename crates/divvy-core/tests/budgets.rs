//! Scenarios of budgets in GPU-hours.

#![allow(clippy::unwrap_used, reason = "only tests live here")]

use divvy_core::controller::Controller;
use divvy_core::decide::Command;
use divvy_core::ledger::Ledger;
use divvy_core::scenario::{Scenario, run};
use divvy_core::time::Time;
use expect_test::{Expect, expect};

/// Runs a scenario in which queues share the pool and jobs give way by least loss.
fn check(scenario: &str, expected: Expect) {
    let text =
        format!("policy {{share: fill, preempt: least_loss, half_life: none}}\nnode n1 4xh100\n{scenario}");
    match run(&text) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

/// A queue with a budget of so many GPU-hours a day.
fn queue(path: &str, gpu_hours: u32, carry: &str) -> String {
    format!(
        "queue {path} {{\"path\": \"{path}\", \"budget\": {{\"milli_gpu_hours\": {}, \"every\": \"day\", \"carry_milli\": {carry}}}}}",
        gpu_hours * 1000
    )
}

#[test]
fn nothing_starts_beyond_a_budget_what_runs_goes_on_and_it_renews() {
    let scenario = format!(
        "{}\nsubmit a q 2\nplan\npass 2h\nsubmit b q 1\nsubmit c q 0\nplan\nexplain b\nend a\nplan\nrestart\npass 22h\nplan",
        queue("q", 4, "0")
    );
    check(
        &scenario,
        expect![[r#"
        place a n1:0+n1:1
        place c n1
        wait DV-OVER-BUDGET: queue q has used its budget of 4 GPU-hours; it has more from 1970-01-02 00:00 UTC on
        later
          DV-OVER-BUDGET queue q has used its budget of 4 GPU-hours; it has more from 1970-01-02 00:00 UTC on | wait until 1970-01-02 00:00 UTC, or have the budget of q raised
          4 in pool > 4 right model > 4 enough memory > 4 healthy > 2 free > 2 on one node
        ended a completed Exit exit=0
        place b n1:0
    "#]],
    );
}

#[test]
fn what_was_used_beyond_a_budget_is_taken_off_the_next() {
    let scenario = format!(
        "{}\nsubmit a q 4\nplan\npass 2h\nend a\nsubmit b q 1\nplan\npass 22h\nplan\npass 24h\nplan",
        queue("q", 4, "0")
    );
    check(
        &scenario,
        expect![[r#"
            place a n1:0+n1:1+n1:2+n1:3
            ended a completed Exit exit=0
            wait DV-OVER-BUDGET: queue q has used its budget of 4 GPU-hours; it has more from 1970-01-03 00:00 UTC on
            place b n1:0
        "#]],
    );
}

#[test]
fn what_is_left_may_be_carried() {
    for (carry, expected) in [
        (
            "0",
            expect![[r#"
        place a n1:0+n1:1+n1:2+n1:3
        ended a completed Exit exit=0
        wait DV-OVER-BUDGET: queue q has used its budget of 4 GPU-hours; it has more from 1970-01-03 00:00 UTC on
    "#]],
        ),
        (
            "null",
            expect![[r#"
        place a n1:0+n1:1+n1:2+n1:3
        ended a completed Exit exit=0
        place b n1:0
    "#]],
        ),
    ] {
        let scenario = format!(
            "{}\npass 1d\nsubmit a q 4\nplan\npass 1h\nend a\nsubmit b q 1\nplan",
            queue("q", 4, carry)
        );
        check(&scenario, expected);
    }
}

#[test]
fn who_has_used_up_a_budget_wants_nothing_of_what_is_due_to_others() {
    let scenario = format!(
        "{}\n{}\nqueue r\nsubmit a t/q 4\nplan\npass 1h\nend a\nsubmit b t/q 1 array=0-3\nsubmit c r 1 array=0-3\nplan\nexplain b\nqueue t/q\nplan",
        "queue t",
        queue("t/q", 4, "0")
    );
    check(
        &scenario,
        expect![[r#"
        place a n1:0+n1:1+n1:2+n1:3
        ended a completed Exit exit=0
        place c_0 n1:0
        place c_1 n1:1
        place c_2 n1:2
        place c_3 n1:3
        wait DV-OVER-BUDGET: queue t/q has used its budget of 4 GPU-hours; it has more from 1970-01-02 00:00 UTC on
        later
          DV-OVER-BUDGET queue t/q has used its budget of 4 GPU-hours; it has more from 1970-01-02 00:00 UTC on | wait until 1970-01-02 00:00 UTC, or have the budget of t/q raised
          DV-GPUS-BUSY every GPU that would do is taken | wait for running jobs to end, or ask for fewer GPUs or for other models, too
          4 in pool > 4 right model > 4 enough memory > 4 healthy > 0 free > 0 on one node
        stop c_3 Reclaimed by b_0
        stop c_2 Reclaimed by b_1
        promise b_0 n1:3
        promise b_1 n1:2
        wait DV-GPUS-BUSY: every GPU that would do is taken
    "#]],
    );
}

#[test]
fn a_budget_of_nothing_lets_nothing_with_a_device_start() {
    let scenario = format!("{}\nsubmit a q 1\nsubmit b q 0\nplan", queue("q", 0, "0"));
    check(
        &scenario,
        expect![[r#"
        place b n1
        wait DV-OVER-BUDGET: queue q has a budget of 0 GPU-hours
    "#]],
    );
}

#[test]
fn one_that_renews_is_waited_for_one_of_nothing_is_not() {
    let due = |gpu_hours: u32, begins: &[&str]| {
        let mut scenario = Scenario::new();
        let queue = queue("q", gpu_hours, "0");
        let lines = ["policy {half_life: none, starve_after: none}", "node n1 4xh100", &queue];
        for line in lines.iter().chain(begins).chain(&["submit b q 1", "plan"]) {
            scenario.line(line).unwrap();
        }
        Controller::open(scenario.state().clone()).due().map(|at| at.0)
    };
    assert_eq!(due(4, &["submit a q 2", "plan", "pass 2h", "end a"]), Some(24 * 3_600_000));
    assert_eq!(due(0, &[]), None);
}

#[test]
fn what_was_promised_is_taken_back_if_the_budget_is_used_up_meanwhile() {
    let text = format!(
        "policy {{half_life: none}}\nnode n0 4xh100\nqueue a\n{}\nsubmit w b 1 mem=1\nsubmit x a 1 array=0-2 mem=1\nplan\npass 59m\n\
        submit y b 1 array=0-1 mem=1\nplan\npass 1m\nplan\nend x_2 signal=15\nplan",
        queue("b", 1, "0")
    );
    expect![[r#"
        place w n0:0
        place x_0 n0:1
        place x_1 n0:2
        place x_2 n0:3
        stop x_2 Reclaimed by y_0
        promise y_0 n0:3
        wait DV-GPUS-BUSY: every GPU that would do is taken
        ended x_2 pending Reclaimed exit=143
        place x_2 n0:3
    "#]]
    .assert_eq(&run(&text).unwrap());
}

/// What is left of a budget that renews each hour after so many hours, seen so often on the way.
fn left(budget: &str, (hours, looks): (u32, u32)) -> Option<i128> {
    let mut pool = Scenario::new();
    let queue = format!("queue q {{\"path\": \"q\", \"budget\": {{{budget}}}}}");
    for line in ["node n1 4xh100", queue.as_str(), "submit a q 3", "plan", "pass 90m"] {
        pool.line(line).unwrap();
    }
    for _ in 0..looks {
        pool.line(&format!("pass {}h", hours / looks)).unwrap();
        let now = pool.now();
        pool.controller().take(&Command::Tick, now).unwrap().unwrap();
    }
    pool.state().budget_left("q", pool.now())
}

#[test]
fn however_many_periods_pass_unseen_as_much_is_left_as_if_each_had_been_seen() {
    for (hours, carry) in [(2, "0"), (2, "null"), (4, "7000"), (5, "null"), (4, "0"), (3, "500")] {
        let every = r#""every": {"span": 3600000}"#;
        let budget = format!(r#""milli_gpu_hours": {hours}000, {every}, "carry_milli": {carry}"#);
        assert_eq!(left(&budget, (240, 1)), left(&budget, (240, 240)), "{budget}");
    }
    // One of a millisecond, over fifty years.
    let budget = r#""milli_gpu_hours": 1, "every": {"span": 1}, "carry_milli": 0"#;
    assert!(left(budget, (50 * 365 * 24, 1)).is_some());
}

#[test]
fn what_is_charged_below_a_queue_is_nothing_of_those_with_names_like_it() {
    let mut ledger = Ledger::default();
    for (queue, milli) in
        [("a", 1), ("a-b", 10), ("a/x", 100), ("a/x/y", 1000), ("a0", 10_000), ("b/a", 100_000)]
    {
        ledger.change(queue, "ana", milli, Time(0)).unwrap();
    }
    let charged = |path| ledger.charged_below(path, Time(1));
    assert_eq!((charged("a"), charged("a/x"), charged("b"), charged("c")), (1101, 1100, 100_000, 0));
}

#[test]
fn of_two_budgets_that_are_used_up_each_is_named() {
    check(
        r#"queue t {"path":"t","budget":{"every":"day","milli_gpu_hours":4000,"carry_milli":0}}
queue t/a {"path":"t/a","budget":{"every":{"span":43200000},"milli_gpu_hours":2000,"carry_milli":0}}
queue t/b
submit a t/a 2
submit b t/b 2
plan
pass 1h
end a
end b
submit c t/a 1
plan
explain c
pass 11h
plan
explain c"#,
        expect![[r#"
            place a n1:0+n1:1
            place b n1:2+n1:3
            ended a completed Exit exit=0
            ended b completed Exit exit=0
            wait DV-OVER-BUDGET: queue t/a has used its budget of 2 GPU-hours; it has more from 1970-01-01 12:00 UTC on
            later
              DV-OVER-BUDGET queue t/a has used its budget of 2 GPU-hours; it has more from 1970-01-01 12:00 UTC on | wait until 1970-01-01 12:00 UTC, or have the budget of t/a raised
              DV-OVER-BUDGET queue t has used its budget of 4 GPU-hours; it has more from 1970-01-02 00:00 UTC on | wait until 1970-01-02 00:00 UTC, or have the budget of t raised
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 4 free > 4 on one node
            wait DV-OVER-BUDGET: queue t has used its budget of 4 GPU-hours; it has more from 1970-01-02 00:00 UTC on
            later
              DV-OVER-BUDGET queue t has used its budget of 4 GPU-hours; it has more from 1970-01-02 00:00 UTC on | wait until 1970-01-02 00:00 UTC, or have the budget of t raised
              4 in pool > 4 right model > 4 enough memory > 4 healthy > 4 free > 4 on one node
        "#]],
    );
}
