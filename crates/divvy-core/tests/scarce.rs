//! Models of which more is wanted than there is, by jobs that can run on no other: what is due to queues they could all have at once.

use std::collections::BTreeSet;

use divvy_core::plan::entitlements;
use divvy_core::scenario::{Scenario, run};
use expect_test::{Expect, expect};
use proptest::prelude::*;

/// Runs a scenario in which the past does not count.
fn check(scenario: &str, expected: Expect) {
    let text = format!("policy {{share: fill, preempt: least_loss, half_life: none}}\n{scenario}");
    match run(&text) {
        Ok(printed) => expected.assert_eq(&printed),
        Err(bad) => expected.assert_eq(&bad.to_string()),
    }
}

#[test]
fn idle_gpus_of_another_model_are_due_to_nobody_who_cannot_use_them() {
    check(
        "node n1 4xh100\nnode n2 4xa100\nqueue a\nqueue c\nsubmit a a 1 model=h100 array=0-5\nplan\npass 10m\nsubmit c c 1 model=h100 array=0-5\nplan\nend a_2 signal=15\nend a_3 signal=15\nplan",
        expect![[r#"
            place a_0 n1:0
            place a_1 n1:1
            place a_2 n1:2
            place a_3 n1:3
            wait DV-GPUS-BUSY: every GPU that would do is taken
            stop a_3 Reclaimed by c_0
            stop a_2 Reclaimed by c_1
            promise c_0 n1:3
            promise c_1 n1:2
            wait DV-GPUS-BUSY: every GPU that would do is taken
            ended a_2 pending Reclaimed exit=143
            place c_1 n1:2
            ended a_3 pending Reclaimed exit=143
            place c_0 n1:3
        "#]],
    );
}

/// The models of a pool.
const MODELS: [&str; 3] = ["h100", "a100", "l4"];

/// What jobs ask for: these models, or any.
const ASKS: [&str; 5] = ["h100", "a100", "l4", "h100,a100", ""];

/// A flat or deep tree of queues whose jobs ask for one device each.
#[derive(Clone, Debug)]
struct Pool {
    /// Devices by model.
    there: [i64; 3],
    queues: Vec<Wants>,
}

#[derive(Clone, Debug)]
struct Wants {
    path: &'static str,
    weight: i64,
    /// By what they ask for.
    jobs: [i64; 5],
}

impl Pool {
    fn lines(&self) -> Vec<String> {
        let mut lines = vec!["policy {share: fill, preempt: least_loss, half_life: none}".to_owned()];
        let nodes = MODELS.iter().zip(self.there);
        lines.extend(nodes.map(|(model, there)| format!("node n-{model} {there}x{model}")));
        let above: BTreeSet<&str> =
            self.queues.iter().filter_map(|wants| Some(wants.path.split_once('/')?.0)).collect();
        lines.extend(above.iter().map(|path| format!("queue {path}")));
        lines.extend(self.queues.iter().map(|wants| format!("queue {} weight={}", wants.path, wants.weight)));
        for (number, wants) in self.queues.iter().enumerate() {
            let ways = ASKS.iter().zip(wants.jobs).enumerate().filter(|(_, (_, jobs))| *jobs > 0);
            lines.extend(ways.map(|(way, (models, jobs))| {
                let asks = if models.is_empty() { String::new() } else { format!("model={models} ") };
                format!("submit j{number}-{way} {} 1 {asks}array=0-{}", wants.path, jobs - 1)
            }));
            // Some run before the others come: what is due does not depend on that.
            lines.extend((number == 1).then(|| "plan".to_owned()));
        }
        lines
    }

    /// What is due to each queue, in devices.
    fn dues(&self) -> Result<Vec<i64>, TestCaseError> {
        let mut scenario = Scenario::new();
        for (line, text) in self.lines().iter().enumerate() {
            let done = scenario.numbered_line(line + 1, text);
            done.map_err(|bad| TestCaseError::fail(bad.to_string()))?;
        }
        let entitled = entitlements(scenario.state(), scenario.snapshot());
        let of = |wants: &Wants| entitled.get(wants.path).map_or(0, |entitled| entitled.due_milli);
        let due: Vec<i64> = self.queues.iter().map(of).collect();
        prop_assert!(due.iter().all(|milli| milli % 1000 == 0), "whole devices are due: {due:?}");
        Ok(due.iter().map(|milli| milli / 1000).collect())
    }

    /// Whether there are devices for so many jobs of each queue, all at once: a flow from queues through their jobs to models.
    fn has_room_for(&self, jobs: &[i64]) -> bool {
        let queues = self.queues.len();
        let (source, sink) = (0, 1);
        let (queue, ask, model) = (
            |it: usize| 2 + it,
            |it: usize, of: usize| 2 + queues + 5 * it + of,
            |of: usize| 2 + 6 * queues + of,
        );
        let mut left = vec![vec![0i64; 5 + 6 * queues]; 5 + 6 * queues];
        for (it, wants) in self.queues.iter().enumerate() {
            left[source][queue(it)] = jobs[it];
            for (of, wanted) in wants.jobs.into_iter().enumerate() {
                left[queue(it)][ask(it, of)] = wanted;
                let may = (0..3).filter(|other| ASKS[of].is_empty() || ASKS[of].contains(MODELS[*other]));
                may.for_each(|other| left[ask(it, of)][model(other)] = wanted);
            }
        }
        (0..3).for_each(|of| left[model(of)][sink] = self.there[of]);
        let mut flow = 0;
        while push(&mut left, source, sink, &mut vec![false; 5 + 6 * queues]) {
            flow += 1;
        }
        flow == jobs.iter().sum::<i64>()
    }
}

/// Pushes one more through, if that is possible.
fn push(left: &mut [Vec<i64>], from: usize, sink: usize, seen: &mut [bool]) -> bool {
    if from == sink {
        return true;
    }
    seen[from] = true;
    for to in 0..left.len() {
        if left[from][to] > 0 && !seen[to] && push(left, to, sink, seen) {
            left[from][to] -= 1;
            left[to][from] += 1;
            return true;
        }
    }
    false
}

fn pools(paths: &'static [&'static str]) -> impl Strategy<Value = Pool> {
    let jobs = [0i64..7, 0i64..7, 0i64..4, 0i64..5, 0i64..5];
    let wants = proptest::collection::vec((1i64..4, jobs), paths.len());
    ([1i64..6, 1i64..6, 1i64..4], wants).prop_map(|(there, wants)| {
        let of = |(path, (weight, jobs)): (&&'static str, (i64, [i64; 5]))| Wants { path, weight, jobs };
        Pool { there, queues: paths.iter().zip(wants).map(of).collect() }
    })
}

proptest! {
    #[test]
    fn what_is_due_all_can_have_at_once_and_nobody_can_have_more_at_the_cost_of_those_with_more(pool in pools(&["a", "b", "c", "d"])) {
        let due = pool.dues()?;
        prop_assert!(pool.has_room_for(&due), "due {due:?}");
        for (poor, wants) in pool.queues.iter().enumerate() {
            let mut more = due.clone();
            more[poor] += 1;
            prop_assert!(!pool.has_room_for(&more), "{} could have more: {due:?}", wants.path);
            for (rich, other) in pool.queues.iter().enumerate() {
                // Whole devices cannot always be divided better than that.
                if (due[rich] - 1) * wants.weight >= (due[poor] + 1) * other.weight && rich != poor {
                    let mut instead = more.clone();
                    instead[rich] -= 1;
                    prop_assert!(!pool.has_room_for(&instead), "{} for {}: {due:?}", wants.path, other.path);
                }
            }
        }
    }

    #[test]
    fn it_is_so_below_other_queues(pool in pools(&["x/a", "x/b", "y/c", "y/d", "e"])) {
        let due = pool.dues()?;
        prop_assert!(pool.has_room_for(&due), "due {due:?}");
    }
}
