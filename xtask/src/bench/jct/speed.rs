//! `cargo xtask bench jct --speed`: the processor time of a replay through the whole core (events, state, digests, reasons,
//! plans; checker off) compared with a program of plain arrays that does the same job by job.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use divvy_sim::policy::Named;
use divvy_sim::pools::Pools;
use divvy_sim::reference::{self, Experiment};
use divvy_sim::trace::interval::Interval;
use serde::Serialize;

use super::bare::{self, Order};
use super::{Jct, Output, timed};
use crate::bench::report::aligned;
use crate::bench::{machine, say};

/// The trace, how often it is repeated, and how much later each copy is submitted.
const TRACE: &str = "itp_c04";
const COPIES: i64 = 7;
const SHIFT_S: i64 = 60 * 86_400;

/// Policies by their names in both programs, and how many times as long the core may take.
const POLICIES: [(Named, Order, f64); 3] =
    [(Named::Fifo, Order::Fifo, 10.0), (Named::Srtf, Order::Srtf, 3.0), (Named::Mlfq, Order::Mlfq, 3.0)];

/// What was measured.
#[derive(Serialize)]
struct Speed {
    machine: machine::Machine,
    rows: Vec<Row>,
}

/// One policy: processor seconds of both programs (medians), and how jobs fared in both.
#[derive(Serialize)]
struct Row {
    policy: String,
    jobs: usize,
    core_s: f64,
    bare_s: f64,
    ratio: f64,
    at_most: f64,
    mean_jct_s: f64,
    /// The mean of one copy alone.
    mean_of_one_s: f64,
    /// Jobs that end in another second than in the program of plain arrays.
    differing: usize,
}

pub(super) fn run(jct: &Jct, folder: &Path, target: &Path) -> Result<()> {
    let asked = |policy: &Named| {
        jct.policies.is_empty() || jct.policies.iter().any(|name| *name == policy.to_string())
    };
    let chosen = POLICIES.iter().filter(|(policy, ..)| asked(policy));
    let rows = chosen.map(|policy| measure(folder, policy, jct.runs.max(1))).collect::<Result<Vec<_>>>()?;
    ensure!(!rows.is_empty(), "no policy of that name is measured");
    let speed = Speed { machine: machine::describe(target)?, rows };
    match jct.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&speed)?),
        Output::Table => print!("{}", speed.text()),
    }
    ensure!(speed.rows.iter().all(|row| row.differing == 0), "the programs do not agree on when jobs end");
    Ok(())
}

/// Measures both programs in turn.
fn measure(folder: &Path, (policy, order, at_most): &(Named, Order, f64), runs: usize) -> Result<Row> {
    let file = folder.join(format!("jobs_{TRACE}.csv"));
    let nodes = nodes_of(&folder.join("cluster_itp.csv"))?;
    let (one, many) = (bare::Jobs::read(&file, 1, 0)?, bare::Jobs::read(&file, COPIES, SHIFT_S)?);
    let mean_of_one_s = mean(&one.submit_s, &bare::replay(&one, nodes, *order));
    let experiment = Experiment { trace: format!("{TRACE}x{COPIES}"), pools: Pools::Own, policy: *policy };
    let (mut core_s, mut bare_s, mut core, mut plain) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..runs {
        say(&format!("{policy}: plain arrays, then the core"));
        let cost;
        (plain, cost) = timed(|| bare::replay(&many, nodes, *order));
        bare_s.push(cost);
        let prepared = reference::prepare(folder, &experiment)?;
        let (outcome, cost) = timed(|| prepared.run(Interval::ALL));
        core_s.push(cost);
        core = vec![-1; plain.len()];
        for job in outcome?.ends {
            *core.get_mut(job.row).context("a job of no row")? = job.finish_s;
        }
    }
    let (core_s, bare_s) = (median(core_s), median(bare_s));
    Ok(Row {
        policy: policy.to_string(),
        jobs: core.len(),
        core_s,
        bare_s,
        ratio: core_s / bare_s,
        at_most: *at_most,
        mean_jct_s: mean(&many.submit_s, &core),
        mean_of_one_s,
        differing: core.iter().zip(&plain).filter(|(core, plain)| core != plain).count(),
    })
}

/// How many nodes the trace has of its own.
fn nodes_of(cluster: &Path) -> Result<usize> {
    let text = std::fs::read_to_string(cluster).with_context(|| format!("reading {}", cluster.display()))?;
    let pool = TRACE.rsplit('_').next().unwrap_or_default();
    Ok(text.lines().filter(|line| line.rsplit(',').next() == Some(pool)).count())
}

fn mean(submit_s: &[i64], finish_s: &[i64]) -> f64 {
    let sum: i64 = finish_s.iter().zip(submit_s).map(|(finish, submit)| finish - submit).sum();
    sum as f64 / submit_s.len().max(1) as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

impl Speed {
    fn text(&self) -> String {
        let head = [
            "policy",
            "jobs",
            "core s",
            "arrays s",
            "ratio",
            "at most",
            "mean JCT s",
            "of one copy",
            "differ",
        ];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        lines.extend(self.rows.iter().map(Row::cells));
        format!("{}\n\n{}", self.machine, aligned(lines))
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        vec![
            self.policy.clone(),
            self.jobs.to_string(),
            format!("{:.2}", self.core_s),
            format!("{:.2}", self.bare_s),
            format!("{:.1}", self.ratio),
            format!("{:.0}", self.at_most),
            format!("{:.1}", self.mean_jct_s),
            format!("{:.1}", self.mean_of_one_s),
            self.differing.to_string(),
        ]
    }
}
