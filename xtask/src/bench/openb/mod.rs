//! `cargo xtask bench openb`: the packing experiments of the literature, all of them, beside the published curves.

mod against;
mod expected;
mod table;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

use anyhow::{Context, Result, ensure};
use clap::Args;
use divvy_sim::pack::{self, Packed, Packing};
use divvy_sim::trace::openb::{Workload, workload};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::time::{ClockId, clock_gettime};

use super::{Output, machine};
use expected::Expected;

/// What to run.
#[derive(Args)]
pub(super) struct Openb {
    /// The folder that holds openb/
    #[arg(long, env = "DIVVY_DATA", value_name = "FOLDER")]
    data: PathBuf,
    /// How many experiments run at once; by default as many as there are processors
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Only these traces, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "TRACES")]
    traces: Vec<String>,
    /// Only these policies, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "POLICIES")]
    policies: Vec<String>,
    /// Prints a table, or JSON
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

/// One experiment to be run.
pub(super) struct Experiment {
    pub(super) trace: String,
    pub(super) seed: u64,
    pub(super) packing: Packing,
}

/// The outcome of an experiment.
pub(super) struct Outcome {
    pub(super) experiment: Experiment,
    pub(super) packed: Packed,
    /// Processor time, reading of files included.
    pub(super) cpu_s: f64,
}

/// Runs the experiments and prints how they compare.
pub(super) fn run(openb: &Openb, target: &Path) -> Result<()> {
    let folder = openb.data.join("openb");
    let expected = Expected::read(&folder.join("expected_curves.csv"))?;
    let experiments = experiments(openb, &expected);
    ensure!(!experiments.is_empty(), "no trace or policy of that name");
    let threads = openb.threads.or_else(|| Some(available_parallelism().ok()?.get())).unwrap_or(1);
    let outcomes = run_all(&folder, experiments, threads)?;
    let table = table::Table::new(machine::describe(target)?, &outcomes, &expected);
    match openb.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&table)?),
        Output::Table => print!("{}", table.text()),
    }
    ensure!(table.is_faithful(), "some curve is not within its bound");
    ensure!(table.is_better(), "divvy is not better than fgd everywhere");
    Ok(())
}

/// All traces, seeds and policies that are asked for; the slowest policy first, so that threads end together.
fn experiments(openb: &Openb, expected: &Expected) -> Vec<Experiment> {
    let asked = |names: &[String], name: &str| names.is_empty() || names.iter().any(|asked| asked == name);
    let mut experiments = Vec::new();
    for (trace, seed) in expected.experiments().filter(|(trace, _)| asked(&openb.traces, trace)) {
        let policies =
            Packing::all(seed).into_iter().filter(|packing| asked(&openb.policies, packing.name()));
        experiments.extend(policies.map(|packing| Experiment { trace: trace.clone(), seed, packing }));
    }
    experiments.sort_by_key(|experiment| experiment.packing != Packing::Fgd);
    experiments
}

fn run_all(folder: &Path, experiments: Vec<Experiment>, threads: usize) -> Result<Vec<Outcome>> {
    let bar = ProgressBar::new(experiments.len() as u64);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} experiments, {eta} left  {msg}");
    bar.set_style(style.context("the form of the progress bar")?);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> Result<()> {
        while let Some(experiment) = experiments.get(next.fetch_add(1, Ordering::Relaxed)) {
            bar.set_message(format!("{} {}", experiment.trace, experiment.packing.name()));
            let outcome = run_one(folder, experiment)?;
            done.lock().map_err(|_| anyhow::anyhow!("a thread has failed"))?.push(outcome);
            bar.inc(1);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| anyhow::anyhow!("a thread has failed"))?)
    })?;
    bar.finish_and_clear();
    done.into_inner().map_err(|_| anyhow::anyhow!("a thread has failed"))
}

fn run_one(folder: &Path, experiment: &Experiment) -> Result<Outcome> {
    let Experiment { trace, seed, packing } = experiment;
    let before = clock_gettime(ClockId::ThreadCPUTime);
    let workload: Workload = workload(
        &folder.join("nodes.csv"),
        &folder.join(format!("pods_{trace}.csv")),
        &folder.join(format!("orders/{trace}_{seed}.bin")),
    )?;
    let packed = pack::run(&workload, *packing, |_| ())?;
    let after = clock_gettime(ClockId::ThreadCPUTime);
    let cpu_s = (after.tv_sec - before.tv_sec) as f64 + (after.tv_nsec - before.tv_nsec) as f64 / 1e9;
    let experiment = Experiment { trace: trace.clone(), seed: *seed, packing: *packing };
    Ok(Outcome { experiment, packed, cpu_s })
}
