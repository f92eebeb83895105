//! `cargo xtask bench jct`: the traces of the literature under every policy, compared with figures that were computed
//! independently.

mod bare;
mod robust;
mod speed;
mod table;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use divvy_sim::metrics::Summary;
use divvy_sim::policy::Named;
use divvy_sim::pools::Pools;
use divvy_sim::reference::{self, Expected, Experiment};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::time::{ClockId, clock_gettime};

use super::{Output, machine};

/// What to run.
#[derive(Args)]
pub(super) struct Jct {
    /// The folder that holds jct/
    #[arg(long, env = "DIVVY_DATA", value_name = "FOLDER")]
    data: PathBuf,
    /// How many replays run at once
    #[arg(long, default_value_t = 1, value_name = "N")]
    threads: usize,
    /// Only these traces, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "TRACES")]
    traces: Vec<String>,
    /// Only these policies, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "POLICIES")]
    policies: Vec<String>,
    /// Measures instead what the core costs beside a program of plain arrays, on seven copies of itp_c04
    #[arg(long, conflicts_with_all = ["traces", "threads"])]
    speed: bool,
    /// Runs Divvy's own order instead with each of its settings changed by 15 percent, and on jittered copies of the traces (submitted
    /// within 5 minutes of when it was, 10 percent shorter or longer)
    #[arg(long, conflicts_with_all = ["traces", "policies", "speed"])]
    robust: bool,
    /// How often each is measured, with --speed
    #[arg(long, default_value_t = 3, value_name = "N", requires = "speed")]
    runs: usize,
    /// Prints a table, or JSON
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

/// The outcome of a replay.
struct Outcome {
    experiment: Experiment,
    summary: Summary,
    digest: u64,
    /// Processor time, reading of files included.
    cpu_s: f64,
}

/// Runs the replays and prints how they compare.
pub(super) fn run(jct: &Jct, target: &Path) -> Result<()> {
    let folder = jct.data.join("jct");
    if jct.speed {
        return speed::run(jct, &folder, target);
    }
    if jct.robust {
        return robust::run(jct, &folder, target);
    }
    let expected = reference::read(&folder.join("reference.csv"))?;
    let experiments = experiments(jct, &expected);
    ensure!(!experiments.is_empty(), "no trace or policy of that name");
    let outcomes = run_all(&folder, experiments, jct.threads)?;
    let table = table::Table::new(machine::describe(target)?, &outcomes, &expected);
    match jct.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&table)?),
        Output::Table => print!("{}", table.text()),
    }
    ensure!(table.is_faithful(), "some mean, median or 99th percentile is off by more than 0.1 %");
    Ok(())
}

/// Everything that figures exist for, and Divvy's own policies on the same traces.
fn experiments(jct: &Jct, expected: &[Expected]) -> Vec<Experiment> {
    let asked = |names: &[String], name: &str| names.is_empty() || names.iter().any(|asked| asked == name);
    let mut all = reference::experiments(expected);
    let own = |experiment: &Experiment| {
        let on = |policy| Experiment { policy, ..experiment.clone() };
        [on(Named::Divvy), on(Named::DivvyHistory)]
    };
    all.extend(all.iter().flat_map(own).collect::<Vec<_>>());
    let is_asked = |experiment: &Experiment| {
        asked(&jct.traces, &experiment.trace) && asked(&jct.policies, &experiment.policy.to_string())
    };
    all.into_iter().filter(is_asked).collect()
}

fn run_all(folder: &Path, experiments: Vec<Experiment>, threads: usize) -> Result<Vec<Outcome>> {
    let bar = ProgressBar::new(experiments.len() as u64);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} replays, {eta} left  {msg}");
    bar.set_style(style.context("the form of the progress bar")?);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let failed = || anyhow!("a thread has failed");
    let work = || -> Result<()> {
        while let Some(experiment) = experiments.get(next.fetch_add(1, Ordering::Relaxed)) {
            bar.set_message(format!("{} {}", experiment.trace, experiment.policy));
            let outcome = run_one(folder, experiment)?;
            done.lock().map_err(|_| failed())?.push(outcome);
            bar.inc(1);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| failed())?)
    })?;
    bar.finish_and_clear();
    let mut done = done.into_inner().map_err(|_| failed())?;
    done.sort_by(|a, b| a.experiment.cmp(&b.experiment));
    Ok(done)
}

/// Returns the result of some work, and the processor time that this thread spent on it.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let before = clock_gettime(ClockId::ThreadCPUTime);
    let result = work();
    let after = clock_gettime(ClockId::ThreadCPUTime);
    let cpu_s = (after.tv_sec - before.tv_sec) as f64 + (after.tv_nsec - before.tv_nsec) as f64 / 1e9;
    (result, cpu_s)
}

fn run_one(folder: &Path, experiment: &Experiment) -> Result<Outcome> {
    let (outcome, cpu_s) = timed(|| reference::run(folder, experiment));
    let outcome = outcome?;
    let (summary, digest) = (outcome.summary, outcome.digest);
    Ok(Outcome { experiment: experiment.clone(), summary, digest, cpu_s })
}

fn pools(pools: Pools) -> &'static str {
    match pools {
        Pools::Own => "own",
        Pools::Shared => "shared",
    }
}
