//! How the replays compare: with figures that were computed independently, and policies with each other.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use divvy_sim::policy::Named;
use divvy_sim::reference::{Difference, Expected};
use serde::Serialize;

use super::{Outcome, pools};
use crate::bench::machine::Machine;
use crate::bench::report::aligned;

/// The rows whose geometric mean compares policies.
pub(super) const COMPARED: [&str; 7] =
    ["philly_ee9e8c", "philly_2869ce", "philly64_ee9e8c", "philly64_2869ce", "itp_c02", "itp_c04", "ipsc_a"];

/// Everything that was found.
#[derive(Serialize)]
pub(super) struct Table {
    machine: Machine,
    rows: Vec<Row>,
    /// By policy, the geometric mean over the compared rows of its mean JCT divided by the smaller of las' and mlfq's; where
    /// all of these were run.
    geometric_mean: BTreeMap<String, f64>,
}

/// One replay.
#[derive(Serialize)]
struct Row {
    trace: String,
    pools: &'static str,
    policy: String,
    class: String,
    mean_jct_s: f64,
    p50_jct_s: i64,
    p99_jct_s: i64,
    mean_wait_s: f64,
    worst_rho: f64,
    preemptions: u64,
    cpu_s: f64,
    digest: String,
    /// `equal`, what differs, or nothing where there is nothing to compare with.
    reference: String,
    is_faithful: bool,
}

impl Table {
    pub(super) fn new(machine: Machine, outcomes: &[Outcome], expected: &[Expected]) -> Self {
        let rows = outcomes.iter().map(|outcome| row(outcome, expected)).collect();
        Self { machine, rows, geometric_mean: geometric_means(outcomes) }
    }

    /// Whether every figure is where it should be.
    pub(super) fn is_faithful(&self) -> bool {
        self.rows.iter().all(|row| row.is_faithful)
    }

    pub(super) fn text(&self) -> String {
        let head = [
            "trace",
            "pools",
            "policy",
            "class",
            "mean JCT s",
            "p50",
            "p99",
            "wait s",
            "worst rho",
            "stops",
            "CPU s",
            "reference",
        ];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        lines.extend(self.rows.iter().map(Row::cells));
        let mut text = format!("{}\n\n{}", self.machine, aligned(lines));
        if !self.geometric_mean.is_empty() {
            text += "\nM, the geometric mean of mean JCT over the smaller of las and mlfq:\n";
        }
        for (policy, mean) in &self.geometric_mean {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {policy:14} {mean:.3}");
        }
        text
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        vec![
            self.trace.clone(),
            self.pools.to_owned(),
            self.policy.clone(),
            self.class.clone(),
            format!("{:.1}", self.mean_jct_s),
            self.p50_jct_s.to_string(),
            self.p99_jct_s.to_string(),
            format!("{:.1}", self.mean_wait_s),
            format!("{:.2}", self.worst_rho),
            self.preemptions.to_string(),
            format!("{:.2}", self.cpu_s),
            self.reference.clone(),
        ]
    }
}

fn row(outcome: &Outcome, expected: &[Expected]) -> Row {
    let Outcome { experiment, summary, digest, cpu_s } = outcome;
    let expected: Vec<_> = expected.iter().filter(|expected| expected.experiment == *experiment).collect();
    let differences: Vec<_> = expected.iter().flat_map(|expected| expected.differences(summary)).collect();
    let reference = match &differences[..] {
        _ if expected.is_empty() => String::new(),
        [] => "equal".into(),
        some => some.iter().map(told).collect::<Vec<_>>().join("; "),
    };
    Row {
        trace: experiment.trace.clone(),
        pools: pools(experiment.pools),
        policy: experiment.policy.to_string(),
        class: experiment.policy.class().to_string(),
        mean_jct_s: summary.all.mean_jct_s,
        p50_jct_s: summary.all.p50_jct_s,
        p99_jct_s: summary.all.p99_jct_s,
        mean_wait_s: summary.all.mean_wait_s,
        worst_rho: summary.all.worst_rho,
        preemptions: summary.all.preemptions,
        cpu_s: *cpu_s,
        digest: format!("{digest:016x}"),
        reference,
        is_faithful: !differences.iter().any(Difference::is_too_large),
    }
}

fn told(difference: &Difference) -> String {
    let Difference { figure, got, expected, relative } = difference;
    format!("{figure} {got}, not {expected} ({:.3} %)", 100.0 * relative)
}

fn geometric_means(outcomes: &[Outcome]) -> BTreeMap<String, f64> {
    let mean = |trace: &str, policy: Named| {
        let is_it =
            |outcome: &&Outcome| outcome.experiment.trace == trace && outcome.experiment.policy == policy;
        outcomes.iter().find(is_it).map(|outcome| outcome.summary.all.mean_jct_s)
    };
    let logarithm = |trace: &str, policy| {
        let yardstick = mean(trace, Named::Las)?.min(mean(trace, Named::Mlfq)?);
        Some((mean(trace, policy)? / yardstick).ln())
    };
    let geometric = |policy| {
        let all: Option<Vec<f64>> = COMPARED.iter().map(|trace| logarithm(trace, policy)).collect();
        Some((all?.iter().sum::<f64>() / COMPARED.len() as f64).exp())
    };
    let policies = outcomes.iter().map(|outcome| outcome.experiment.policy);
    policies.filter_map(|policy| Some((policy.to_string(), geometric(policy)?))).collect()
}
