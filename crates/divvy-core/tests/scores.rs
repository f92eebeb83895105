//! Scores and shares: which node and device a task gets under each, and that what scores remember changes nothing (L3).
#![allow(clippy::unwrap_used, reason = "what a test's own functions can't set up has failed the test")]

use std::sync::Arc;

use divvy_core::decide::{Command, Person};
use divvy_core::event::Stamped;
use divvy_core::model::policy::Policy;
use divvy_core::model::score::{Score, Typical, TypicalTask};
use divvy_core::plan::plan;
use divvy_core::scenario::Scenario;
use divvy_core::snapshot::Snapshot;
use expect_test::{Expect, expect};
use proptest::prelude::*;

/// A pool that gives shares, and chooses by this score.
fn pool(score: Score) -> Scenario {
    let mut scenario = Scenario::new();
    let policy = Policy { score, shares: true, ..Policy::default() };
    let by = Person::administrator("root");
    let now = scenario.now();
    scenario.controller().take(&Command::SetPolicy(Box::new(policy), by), now).unwrap().unwrap();
    scenario
}

fn check(score: Score, lines: &str, expected: Expect) {
    let mut scenario = pool(score);
    for line in lines.lines() {
        scenario.line(line).unwrap();
    }
    expected.assert_eq(scenario.printed());
}

/// Half of the tasks to expect want half a GPU, the others two.
fn fgd() -> Score {
    let task = |milli, count| TypicalTask { cpu_milli: 1000, milli, count, models: vec![], seen: 1 };
    Score::Fgd { typical: Arc::new(Typical::new(vec![task(500, 1), task(1000, 2)], 2)) }
}

#[test]
fn a_share_goes_to_an_open_device_with_room_before_it_breaks_a_free_one() {
    check(
        Score::KeepWhole,
        "node n1 2xh100\nnode n2 1xh100\nsubmit a default 1 milli=600\nplan\nsubmit b default 1 milli=500\nplan\nsubmit c default 1 milli=400\nplan\nsubmit d default 2\nplan\nsubmit e default 1 milli=300\nplan",
        expect![[r#"
            place a n2:0
            place b n1:0
            place c n2:0
            wait DV-GPUS-BUSY: no node has 2 GPUs free that would do
            place e n1:0
        "#]],
    );
}

#[test]
fn a_share_takes_the_fullest_device_that_has_room() {
    check(
        Score::BestFit,
        "node n1 3xh100\nsubmit a default 1 milli=300\nplan\nsubmit b default 1 milli=800\nplan\nsubmit c default 1 milli=200\nplan\nsubmit d default 1\nplan\nend a\nplan\nsubmit e default 1 milli=100\nplan",
        expect![[r#"
            place a n1:0
            place b n1:1
            place c n1:1
            place d n1:2
            ended a completed Exit exit=0
            place e n1:0
        "#]],
    );
}

#[test]
fn best_fit_takes_the_node_with_the_least_left_and_the_first_of_equals() {
    check(
        Score::BestFit,
        "node n1 8xh100 cpu=128\nnode n2 2xh100 cpu=32\nnode n3 2xh100 cpu=32\nsubmit a default 1 cpu=4\nplan\nsubmit b default 2 cpu=4\nplan\nsubmit c default 4 cpu=4\nplan",
        expect![[r#"
            place a n2:0
            place b n3:0+n3:1
            place c n1:0+n1:1+n1:2+n1:3
        "#]],
    );
}

#[test]
fn clustering_keeps_tasks_of_the_same_size_on_the_same_node() {
    check(
        Score::GpuClustering,
        "node n1 8xh100\nnode n2 8xh100\nsubmit a default 1\nplan\nsubmit b default 2\nplan\nsubmit c default 1\nplan\nsubmit d default 2\nplan\nsubmit e default 1 milli=500\nplan",
        expect![[r#"
            place a n1:0
            place b n2:0+n2:1
            place c n1:1
            place d n2:2+n2:3
            place e n2:4
        "#]],
    );
}

#[test]
fn packing_opens_devices_of_used_nodes_before_idle_nodes() {
    check(
        Score::GpuPacking,
        "node n1 2xh100\nnode n2 8xh100\nnode n3 8xh100\nsubmit a default 4\nplan\nsubmit b default 1\nplan\nsubmit c default 1 milli=500\nplan\nsubmit d default 1 milli=500\nplan",
        expect![[r#"
            place a n2:0+n2:1+n2:2+n2:3
            place b n2:4
            place c n2:5
            place d n2:5
        "#]],
    );
}

#[test]
fn the_fragmentation_gradient_leaves_gaps_that_expected_tasks_can_use() {
    check(
        fgd(),
        "node n1 2xh100\nnode n2 1xh100\nsubmit a default 1 milli=500\nplan\nsubmit b default 1 milli=500\nplan\nsubmit c default 2\nplan",
        expect![[r#"
            place a n2:0
            place b n2:0
            place c n1:0+n1:1
        "#]],
    );
}

/// So many submissions of each of these asks, each of which ends again: from them the score learns what to expect.
fn after(asks: &[&str], lines: &str) -> String {
    let seen = (0..10).flat_map(|turn| {
        let one = move |(place, ask): (usize, &&str)| {
            format!("submit s{turn}x{place} default {ask}\nplan\nend s{turn}x{place}\n")
        };
        asks.iter().enumerate().map(one).collect::<Vec<_>>()
    });
    let learned: String = seen.collect();
    let (nodes, rest) = lines.split_once("\n\n").unwrap();
    format!("{nodes}\n{learned}{rest}")
}

fn check_learned(asks: &[&str], lines: &str, expected: Expect) {
    let mut scenario = pool(Score::LeastWaste);
    let text = after(asks, lines);
    for line in text.lines() {
        scenario.line(line).unwrap();
    }
    let printed: Vec<&str> = scenario.printed().lines().filter(|line| !line.contains(" s")).collect();
    expected.assert_eq(&printed.join("\n"));
}

#[test]
fn a_gap_is_kept_for_the_share_that_fills_it() {
    check_learned(
        &["1 milli=700", "1 milli=300", "1 milli=200"],
        "node n1 2xh100\n\nsubmit a default 1 milli=700\nplan\nsubmit b default 1 milli=200\nplan\nsubmit c default 1 milli=300\nplan",
        expect![[r#"
            place a n1:0
            place b n1:1
            place c n1:0"#]],
    );
}

#[test]
fn tasks_of_cores_alone_go_where_no_device_needs_the_cores() {
    check_learned(
        &["1 cpu=8", "0 cpu=8"],
        "node n1 2xh100 cpu=16\nnode n2 2xh100 cpu=64\n\nsubmit a default 0 cpu=8\nplan\nsubmit b default 0 cpu=32\nplan\nsubmit c default 2 cpu=16\nplan",
        expect![[r#"
            place a n2
            place b n2
            place c n1:0+n1:1"#]],
    );
}

#[test]
fn a_model_that_others_depend_on_is_left_to_them() {
    check_learned(
        &["1 model=a100", "1"],
        "node n1 1xa100\nnode n2 4xh100\n\nsubmit a default 1\nplan\nsubmit b default 1 model=a100\nplan",
        expect![[r#"
            place a n2:0
            place b n1:0"#]],
    );
}

#[test]
fn single_devices_fill_a_used_node_and_whole_nodes_stay_for_gangs() {
    check_learned(
        &["1", "8"],
        "node n1 8xh100\nnode n2 8xh100\nnode n3 8xh100\n\nsubmit a default 1\nplan\nsubmit b default 2\nplan\nsubmit c default 4\nplan\nsubmit d default 1\nplan\nsubmit e default 8 tasks=2\nplan",
        expect![[r#"
            place a n1:0
            place b n1:1+n1:2
            place c n1:3+n1:4+n1:5+n1:6
            place d n1:7
            place e n2:0+n2:1+n2:2+n2:3+n2:4+n2:5+n2:6+n2:7 n3:0+n3:1+n3:2+n3:3+n3:4+n3:5+n3:6+n3:7"#]],
    );
}

#[test]
fn a_single_node_is_packed_without_any_history() {
    check(
        Score::LeastWaste,
        "node n1 4xh100\nsubmit a default 1\nplan\nsubmit b default 1 milli=500\nplan\nsubmit c default 1 milli=500\nplan\nsubmit d default 2\nplan",
        expect![[r#"
            place a n1:0
            place b n1:1
            place c n1:1
            place d n1:2+n1:3
        "#]],
    );
}

#[test]
fn a_random_choice_is_the_same_for_the_same_seed() {
    let placed = |seed| {
        let mut scenario = pool(Score::Random { seed });
        for node in 0..9 {
            scenario.line(&format!("node n{node} 4xh100")).unwrap();
        }
        for job in 0..12 {
            scenario.line(&format!("submit j{job} default 1 milli=300")).unwrap();
        }
        scenario.line("plan").unwrap();
        scenario.printed().to_owned()
    };
    assert_eq!(placed(1), placed(1));
    assert_ne!(placed(1), placed(2));
}

#[test]
fn shares_are_refused_where_the_policy_gives_none() {
    let mut scenario = Scenario::new();
    scenario.line("node n1 1xh100").unwrap();
    scenario.line("submit a default 1 milli=500").unwrap();
    assert!(scenario.printed().starts_with("refused cannot-fit"), "{}", scenario.printed());
}

fn score() -> impl Strategy<Value = Score> {
    prop::sample::select(vec![
        Score::KeepWhole,
        Score::LeastWaste,
        Score::BestFit,
        Score::DotProduct,
        Score::GpuPacking,
        Score::GpuClustering,
        Score::Random { seed: 3 },
        fgd(),
    ])
}

fn step() -> impl Strategy<Value = String> {
    let submit = (0u32..12, 0u32..3, prop::sample::select(vec![1000, 1000, 200, 470, 700]), 0u32..10)
        .prop_map(|(job, gpus, milli, extra)| {
            let (gpus, milli) =
                if milli < 1000 { (1, format!("milli={milli}")) } else { (gpus, String::new()) };
            let extra = match extra {
                0 => "cpu=20 mem=40",
                1 => "tasks=2",
                2 => "model=a100",
                3 => "exclusive",
                4 => "gb=60",
                _ => "cpu=4",
            };
            format!("submit j{job} default {gpus} {milli} {extra} wait")
        });
    let end = (0u32..12).prop_map(|job| format!("end j{job}"));
    let cancel = (0u32..12).prop_map(|job| format!("cancel j{job}"));
    let device = (0u32..3, 0u32..2, prop::sample::select(vec!["down", "foreign", "ok"]))
        .prop_map(|(node, index, how)| format!("device n{node}:{index} {how}"));
    let other =
        prop::sample::select(vec!["plan", "plan", "plan", "drain on n1", "drain off n1", "node n3 2xa100"]);
    prop_oneof![5 => submit, 3 => end, 1 => cancel, 1 => device, 5 => other.prop_map(String::from)]
}

fn live(score: Score, lines: &[String]) -> Result<(), TestCaseError> {
    let mut scenario = pool(score);
    for line in ["node n0 4xh100", "node n1 2xa100 cpu=32 mem=64", "node n2 2xh100 cpu=24"] {
        scenario.line(line).map_err(TestCaseError::fail)?;
    }
    for line in lines {
        // A line about a job that was never submitted makes no sense, and does nothing.
        let _ = scenario.line(line).is_err();
        let (mut state, now) = (scenario.state().clone(), scenario.now());
        prop_assert!(scenario.controller().snapshot().same_as(&Snapshot::new(&state)), "after {line}");
        // That a drain begins is noted before the plan.
        for event in state.calendar_news(now) {
            state.apply(&Stamped { at: now, event })?;
        }
        let mut cold = Snapshot::new(&state);
        let expected = plan(&state, &mut cold, now).0;
        scenario.line("plan").map_err(TestCaseError::fail)?;
        let events: Vec<_> = expected.into_events();
        let logged: Vec<_> = scenario
            .log
            .iter()
            .skip(state.position.0 as usize)
            .map(|stamped| stamped.event.clone())
            .collect();
        prop_assert!(logged.starts_with(&events), "warm: {logged:?}\ncold: {events:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn scores_that_are_remembered_choose_as_scores_reckoned_anew(score in score(), lines in prop::collection::vec(step(), 1..40)) {
        live(score, &lines)?;
    }
}

proptest! {
    // Long enough for several outlooks.
    #![proptest_config(ProptestConfig { cases: 15, ..ProptestConfig::default() })]
    #[test]
    fn what_arrivals_teach_is_the_same_for_a_warm_and_a_cold_planner(lines in prop::collection::vec(step(), 70..90)) {
        live(Score::LeastWaste, &lines)?;
    }
}
