//! How the curves compare with the published ones: one row per policy.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::Outcome;
use super::against::{self, Against};
use super::expected::{Expected, Point};
use crate::bench::machine::Machine;
use crate::bench::report::aligned;

/// How far every bin may be from the published value.
const BOUND: f64 = 0.01;
/// The same for the mean over seeds of a random policy.
const RANDOM_BOUND: f64 = 0.5;

/// Everything that was found.
#[derive(Serialize)]
pub(super) struct Table {
    machine: Machine,
    rows: Vec<Row>,
    /// Divvy's own policy beside the fragmentation gradient.
    against_fgd: Vec<Against>,
}

/// The results of one policy.
#[derive(Serialize)]
struct Row {
    policy: String,
    knowledge: String,
    experiments: usize,
    /// The largest distance from the published curves, in any bin: allocated, fragmented of idle, fragmented of capacity.
    /// Between means over the seeds of a trace where the policy is random; `None` where nothing is published.
    distance: Option<Point>,
    bound: f64,
    /// Allocated when 130 percent have arrived, mean over the experiments of each trace.
    allocated_percent: BTreeMap<String, f64>,
    mean_cpu_s: f64,
    most_cpu_s: f64,
}

impl Table {
    pub(super) fn new(machine: Machine, outcomes: &[Outcome], expected: &Expected) -> Self {
        let mut by_policy: BTreeMap<&str, Vec<&Outcome>> = BTreeMap::new();
        for outcome in outcomes {
            by_policy.entry(&outcome.packed.policy).or_default().push(outcome);
        }
        let rows = by_policy.into_values().map(|outcomes| row(&outcomes, expected)).collect();
        Self { machine, rows, against_fgd: against::by_trace(outcomes) }
    }

    /// Whether every curve is where it should be.
    pub(super) fn is_faithful(&self) -> bool {
        self.rows.iter().all(|row| row.distance.is_none_or(|distance| distance[0] <= row.bound + 1e-9))
    }

    /// Whether Divvy's own policy is better than the fragmentation gradient, wherever both were run.
    pub(super) fn is_better(&self) -> bool {
        self.against_fgd.iter().all(Against::is_better)
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n\n", self.machine);
        let head = [
            "policy",
            "knows",
            "runs",
            "allocated off by",
            "of idle",
            "of capacity",
            "bound",
            "CPU s",
            "most",
        ];
        let cells = |row: &Row| {
            let distance =
                |index: usize| row.distance.map(|all| format!("{:.4}", all[index])).unwrap_or_default();
            let cpu = [row.mean_cpu_s, row.most_cpu_s].map(|seconds| format!("{seconds:.3}"));
            let named = [row.policy.clone(), row.knowledge.clone(), row.experiments.to_string()];
            let bound = [row.distance.map(|_| row.bound.to_string()).unwrap_or_default()];
            [named.to_vec(), (0..3).map(distance).collect(), bound.to_vec(), cpu.to_vec()].concat()
        };
        text.push_str(&aligned(
            std::iter::once(head.map(String::from).to_vec()).chain(self.rows.iter().map(cells)).collect(),
        ));
        for row in &self.rows {
            let ends: Vec<String> =
                row.allocated_percent.iter().map(|(trace, end)| format!("{trace} {end:.2}")).collect();
            let _ = writeln!(text, "{} allocates at 130 %: {}", row.policy, ends.join(", "));
        }
        if !self.against_fgd.is_empty() {
            text.push_str("\ndivvy beside fgd, paired by order; tasks placed, by GPUs of each\n");
            let rows = self.against_fgd.iter().map(Against::cells);
            text.push_str(&aligned(std::iter::once(Against::head()).chain(rows).collect()));
        }
        text
    }
}

fn row(outcomes: &[&Outcome], expected: &Expected) -> Row {
    let first = &outcomes[0].packed;
    let is_random = first.policy == "random";
    let mut ends: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for outcome in outcomes {
        let end = outcome.packed.allocated_percent.iter().rev().flatten().next();
        ends.entry(outcome.experiment.trace.clone()).or_default().extend(end);
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let cpu: Vec<f64> = outcomes.iter().map(|outcome| outcome.cpu_s).collect();
    Row {
        policy: first.policy.clone(),
        knowledge: first.knowledge.clone(),
        experiments: outcomes.len(),
        distance: if is_random { of_means(outcomes, expected) } else { of_each(outcomes, expected) },
        bound: if is_random { RANDOM_BOUND } else { BOUND },
        allocated_percent: ends.iter().map(|(trace, ends)| (trace.clone(), mean(ends))).collect(),
        mean_cpu_s: mean(&cpu),
        most_cpu_s: cpu.iter().copied().fold(0.0, f64::max),
    }
}

/// What was measured in one bin.
fn point(outcome: &Outcome, bin: usize) -> Option<Point> {
    let packed = &outcome.packed;
    let at = |values: &[Option<f64>]| values.get(bin).copied().flatten();
    Some([at(&packed.allocated_percent)?, at(&packed.frag_of_idle)?, at(&packed.frag_of_capacity)?])
}

fn farther(so_far: Point, ours: Point, theirs: Point) -> Point {
    [0, 1, 2].map(|index| so_far[index].max((ours[index] - theirs[index]).abs()))
}

/// The largest distance of any bin of any experiment; a bin that only one side has is infinitely far.
fn of_each(outcomes: &[&Outcome], expected: &Expected) -> Option<Point> {
    let mut most: Option<Point> = None;
    for outcome in outcomes {
        let experiment = &outcome.experiment;
        let Some(curve) = expected.curve(&experiment.trace, &outcome.packed.policy, experiment.seed) else {
            continue;
        };
        for (bin, theirs) in curve {
            let ours = point(outcome, *bin).unwrap_or([f64::INFINITY; 3]);
            most = Some(farther(most.unwrap_or_default(), ours, *theirs));
        }
    }
    most
}

/// The same between means over the seeds of a trace.
fn of_means(outcomes: &[&Outcome], expected: &Expected) -> Option<Point> {
    let mut sums: BTreeMap<(&str, usize), (Point, Point, f64)> = BTreeMap::new();
    for outcome in outcomes {
        let experiment = &outcome.experiment;
        let Some(curve) = expected.curve(&experiment.trace, &outcome.packed.policy, experiment.seed) else {
            continue;
        };
        for (bin, theirs) in curve {
            let ours = point(outcome, *bin).unwrap_or([f64::INFINITY; 3]);
            let sum = sums.entry((&experiment.trace, *bin)).or_default();
            let add = |a: Point, b: Point| [0, 1, 2].map(|index| a[index] + b[index]);
            *sum = (add(sum.0, ours), add(sum.1, *theirs), sum.2 + 1.0);
        }
    }
    let means = sums
        .into_values()
        .map(|(ours, theirs, count)| (ours.map(|sum| sum / count), theirs.map(|sum| sum / count)));
    means.fold(None, |most, (ours, theirs)| Some(farther(most.unwrap_or_default(), ours, theirs)))
}
