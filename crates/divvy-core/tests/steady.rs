//! What does not depend on chance: more devices are never worse for the first job in line, and a job that asked first gets no more
//! than its due.

use std::collections::BTreeMap;

use divvy_core::scenario::Scenario;
use proptest::prelude::*;

fn pool(lines: &[String]) -> Scenario {
    let mut scenario = Scenario::new();
    for line in lines {
        // A line about a job that is over makes no sense, and does nothing.
        let _ = scenario.line(line).is_err();
    }
    scenario
}

/// How far a job has come, the best last.
#[derive(Debug, PartialEq, PartialOrd)]
enum Outcome {
    Waits,
    Promised,
    Runs,
}

/// How far it has come; nothing for one that was refused.
fn outcome(scenario: &Scenario, name: &str) -> Option<Outcome> {
    let (_, number) = scenario.jobs().find(|(known, _)| *known == name)?;
    let state = scenario.state();
    if state.allocations.values().any(|held| held.job.number == number) {
        return Some(Outcome::Runs);
    }
    let promised = state.promises.keys().any(|job| job.number == number);
    Some(if promised { Outcome::Promised } else { Outcome::Waits })
}

/// A step in the life of a pool with one queue, in which nobody is of high priority.
fn step() -> impl Strategy<Value = String> {
    let submit = (0usize..8, 0u32..5, 1u32..4, prop::sample::select(vec!["low", "normal"]), 0usize..5)
        .prop_map(|(job, gpus, tasks, prio, extra)| {
            let extra = ["", "array=0-3", "fixed", "limit=20m", "within=rack"][extra];
            format!("submit j{job} default {gpus} tasks={tasks} prio={prio} {extra}")
        });
    let end = (0usize..8, 0u32..4).prop_map(|(job, member)| match member {
        0..3 => format!("end j{job}_{member} exit=0"),
        _ => format!("end j{job} exit=0"),
    });
    let other = prop::sample::select(vec!["plan", "plan", "pass 5m", "device n1:0 down", "device n1:0 ok"]);
    prop_oneof![5 => submit, 3 => end, 4 => other.prop_map(String::from)]
}

const NODES: [&str; 2] = ["node n0 4xh100 rack=r1", "node n1 4xh100 rack=r2"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn one_more_node_of_a_kind_never_makes_it_worse_for_the_first_in_line(
        steps in prop::collection::vec(step(), 0..30),
        (gpus, tasks, within) in (0u32..5, 1u32..4, prop::sample::select(vec!["", "within=rack"])),
    ) {
        let first = format!("submit first default {gpus} tasks={tasks} prio=high wait {within}");
        let lines: Vec<String> = NODES.map(String::from).into_iter().chain(steps).chain([first]).collect();
        let ends = |more: &[&str]| {
            let lines: Vec<String> = lines.iter().cloned().chain(more.iter().map(ToString::to_string)).collect();
            outcome(&pool(&lines), "first")
        };
        let (as_it_is, with_more) = (ends(&["plan"]), ends(&["node n2 4xh100 rack=r2", "plan"]));
        prop_assert!(as_it_is.is_some() && as_it_is <= with_more, "{:?}, with more {:?}", as_it_is, with_more);
    }

    #[test]
    fn in_whatever_order_jobs_come_each_queue_gets_its_due(
        (gpus, weights) in (1u32..17, prop::collection::vec(1u32..5, 2..5)),
        order in prop::collection::vec(0usize..4, 0..80),
    ) {
        let names = ["a", "b", "c", "d"];
        let mut lines = vec!["policy {share: fill, preempt: least_loss, half_life: none}".to_owned()];
        lines.push(format!("node n0 {gpus}xh100"));
        lines.extend(weights.iter().zip(names).map(|(weight, name)| format!("queue {name} weight={weight}")));
        // Each wants more than there is; in which order they ask is up to chance.
        let all = order.into_iter().filter(|queue| *queue < weights.len()).chain(0..weights.len());
        let all: Vec<usize> = all.collect();
        let submits = all.iter().enumerate().map(|(number, queue)| {
            format!("submit j{number} {} 1 array=0-16", names[*queue])
        });
        lines.extend(submits);
        let mut scenario = pool(&lines);
        let due: BTreeMap<String, i64> = divvy_core::plan::entitlements(scenario.state(), scenario.snapshot())
            .into_iter()
            .map(|(queue, entitled)| (queue, entitled.due_milli / 1000))
            .filter(|(_, due)| *due > 0)
            .collect();
        scenario.line("plan").map_err(TestCaseError::fail)?;
        let mut held: BTreeMap<String, i64> = BTreeMap::new();
        for allocation in scenario.state().allocations.values() {
            let queue = scenario.state().jobs[&allocation.job.number].spec.queue.clone();
            *held.entry(queue).or_default() += 1;
        }
        prop_assert_eq!(held, due);
    }
}
