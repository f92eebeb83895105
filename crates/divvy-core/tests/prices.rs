//! Scenarios of prices: an hour of one model counts beside an hour of another by what it costs.

use divvy_core::scenario::run;
use expect_test::{Expect, expect};

const POOL: &str = "node n1 4xh100\nnode n2 4xl4\n";

fn check(policy: &str, scenario: &str, expected: Expect) {
    match run(&format!("policy {policy}\n{POOL}{scenario}")) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

/// A queue with a budget of four GPU-hours a day.
const QUEUE: &str = "queue q {\"path\": \"q\", \"budget\": {\"milli_gpu_hours\": 4000, \"every\": \"day\", \"carry_milli\": 0}}\n";

#[test]
fn hours_of_a_cheap_model_use_less_of_a_budget() {
    let scenario = format!(
        "{QUEUE}submit a q 4 model=l4\nplan\npass 3h\nend a\nsubmit b q 1 model=l4\nplan\npass 4h\nsubmit c q 1\nplan"
    );
    check(
        "{half_life: none}",
        &scenario,
        expect![[r#"
        place a n2:0+n2:1+n2:2+n2:3
        ended a completed Exit exit=0
        wait DV-OVER-BUDGET: queue q has used its budget of 4 GPU-hours; it has more from 1970-01-04 00:00 UTC on
        wait DV-OVER-BUDGET: queue q has used its budget of 4 GPU-hours; it has more from 1970-01-04 00:00 UTC on
    "#]],
    );
    check(
        "{half_life: none, prices: {h100: 4, l4: 1}}",
        &scenario,
        expect![[r#"
        place a n2:0+n2:1+n2:2+n2:3
        ended a completed Exit exit=0
        place b n2:0
        wait DV-OVER-BUDGET: queue q has used its budget of 4 GPU-hours; it has more from 1970-01-02 00:00 UTC on
    "#]],
    );
}

#[test]
fn new_prices_hold_from_when_they_are_set() {
    let prices = "{half_life: none, prices: {h100: 4, l4: 1}}";
    // Two hours of one GPU count whole, the eight hours after that as two.
    let scenario = format!(
        "{QUEUE}submit a q 1 model=l4\nplan\npass 2h\npolicy {prices}\nplan\npass 7h\nsubmit b q 1\nplan\npass 1h\nsubmit c q 1\nplan"
    );
    check(
        "{half_life: none}",
        &scenario,
        expect![[r#"
        place a n2:0
        place b n2:1
        wait DV-OVER-BUDGET: queue q has used its budget of 4 GPU-hours; it has more from 1970-01-02 00:00 UTC on
    "#]],
    );
}

#[test]
fn who_used_what_is_cheap_goes_before_who_used_what_is_dear() {
    let scenario = "queue a\nqueue b\nsubmit x default 2 model=h100\nsubmit a1 a 2 model=h100\nsubmit b1 b 2 model=l4\nsubmit y default 2 model=l4\nplan\nsubmit a2 a 2\nsubmit b2 b 2\nplan\npass 2h\nplan\nend x\nplan";
    check(
        "{catch_up: 1h}",
        scenario,
        expect![[r#"
        place x n1:0+n1:1
        place a1 n1:2+n1:3
        place b1 n2:0+n2:1
        place y n2:2+n2:3
        wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
        ended x completed Exit exit=0
        place a2 n1:0+n1:1
    "#]],
    );
    check(
        "{catch_up: 1h, prices: {h100: 4, l4: 1}}",
        scenario,
        expect![[r#"
            place x n1:0+n1:1
            place a1 n1:2+n1:3
            place b1 n2:0+n2:1
            place y n2:2+n2:3
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            stop y Reclaimed by b2
            promise b2 n2:2+n2:3
            ended x completed Exit exit=0
            place b2 n1:0+n1:1
        "#]],
    );
}
