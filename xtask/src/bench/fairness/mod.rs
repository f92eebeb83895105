//! `cargo xtask bench fairness`: a month of contention among queues in three levels; what each had compared with what it was due.

mod account;
mod table;
mod water;
mod whole;
mod world;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, anyhow};
use clap::Args;
use divvy_core::model::job::StopOrder;
use divvy_core::model::policy::Policy;
use divvy_sim::policy::{Chosen, Class};
use divvy_sim::replay::{Replay, replay};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::time::{ClockId, clock_gettime};

use super::{Output, machine};
use account::{Account, Measured, Pool, accounts};
use world::{MONTH_S, World, world};

/// What to run.
#[derive(Args)]
pub(super) struct Fairness {
    /// How many queues take jobs, for each world
    #[arg(long, value_delimiter = ',', default_value = "5,20,50", value_name = "COUNTS")]
    queues: Vec<u32>,
    /// What tells one month from another
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "SEEDS")]
    seeds: Vec<u64>,
    /// By which policies: names as in `divvy sim replay`, `pool` for what a pool does that is told nothing, or files
    #[arg(long, value_delimiter = ',', default_value = "fifo,fifo-scan,pool", value_name = "POLICIES")]
    policies: Vec<String>,
    /// How many replays run at once
    #[arg(long, default_value_t = 1, value_name = "N")]
    threads: usize,
    /// Prints every queue, too
    #[arg(long)]
    each: bool,
    /// Prints a table, or JSON
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

/// The time after which past use counts half; measuring starts after two of them.
const HALF_LIFE_S: i64 = 7 * 86_400;

/// What each later start of a job costs.
const RESTART_MS: i64 = 30_000;

/// One month under one policy.
struct Trial<'a> {
    world: &'a World,
    seed: u64,
    policy: String,
    settings: Policy,
}

/// The outcome of a trial.
struct Outcome {
    queues: Vec<(String, Account)>,
    gpus: u32,
    pool: Pool,
    seed: u64,
    policy: String,
    jobs: usize,
    mean_wait_s: f64,
    preemptions: u64,
    cpu_s: f64,
}

/// Runs all months under all policies and prints the outcomes.
pub(super) fn run(fairness: &Fairness, target: &Path) -> Result<()> {
    let worlds: Vec<_> = fairness
        .queues
        .iter()
        .flat_map(|queues| fairness.seeds.iter().map(|seed| (*seed, world(*queues, *seed))))
        .collect();
    let mut trials = Vec::new();
    for (seed, world) in &worlds {
        for policy in &fairness.policies {
            trials.push(Trial { world, seed: *seed, policy: policy.clone(), settings: settings(policy)? });
        }
    }
    let outcomes = run_all(&trials, fairness.threads)?;
    let table = table::Table::new(machine::describe(target)?, &outcomes);
    match fairness.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&table)?),
        Output::Table => print!("{}", table.text(fairness.each)),
    }
    Ok(())
}

fn settings(policy: &str) -> Result<Policy> {
    if policy == "pool" {
        return Ok(Policy::default());
    }
    Ok(policy.parse::<Chosen>()?.settings)
}

fn run_all(trials: &[Trial<'_>], threads: usize) -> Result<Vec<Outcome>> {
    let bar = ProgressBar::new(trials.iter().map(|trial| trial.world.jobs.len() as u64).sum());
    bar.set_style(ProgressStyle::with_template("{bar:40} {human_pos} of {human_len} jobs, {eta} left")?);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let failed = || anyhow!("a thread has failed");
    let work = || -> Result<()> {
        while let Some((at, trial)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, trials.get(at)?)))
        {
            let outcome = run_one(trial, &bar)?;
            done.lock().map_err(|_| failed())?.push((at, outcome));
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| failed())?)
    })?;
    bar.finish_and_clear();
    let mut done = done.into_inner().map_err(|_| failed())?;
    done.sort_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, outcome)| outcome).collect())
}

fn run_one(trial: &Trial<'_>, bar: &ProgressBar) -> Result<Outcome> {
    let Trial { world, seed, policy, settings } = trial;
    let before = clock_gettime(ClockId::ThreadCPUTime);
    let setup = Replay {
        nodes: world.nodes.iter().collect(),
        queues: world.queues.clone(),
        policy: settings.clone(),
        class: Class::N,
        restart_ms: RESTART_MS,
        speeds: None,
    };
    let mut ended = 0;
    let replayed = replay(setup, &world.jobs, |now| {
        bar.inc((now - ended) as u64);
        ended = now;
    })?;
    if let Some(left) = replayed.stranded.first() {
        return Err(anyhow!("job {} would wait for ever: {}: {}", left.id, left.code, left.why));
    }
    let after = clock_gettime(ClockId::ThreadCPUTime);
    let grace_s = StopOrder::default().grace_ms / 1000;
    let measured = Measured { from_s: 2 * HALF_LIFE_S, to_s: MONTH_S, grace_s };
    let (accounts, pool) = accounts(world, &replayed, measured);
    let waits = replayed.finished.iter().map(|job| job.finish_s - job.submit_s - job.duration_s);
    Ok(Outcome {
        queues: world.leaves.iter().map(|(path, _)| path.clone()).zip(accounts).collect(),
        gpus: world.gpus(),
        pool,
        seed: *seed,
        policy: policy.clone(),
        jobs: world.jobs.len(),
        mean_wait_s: waits.sum::<i64>() as f64 / replayed.finished.len().max(1) as f64,
        preemptions: replayed.finished.iter().map(|job| u64::from(job.preemptions)).sum(),
        cpu_s: (after.tv_sec - before.tv_sec) as f64 + (after.tv_nsec - before.tv_nsec) as f64 / 1e9,
    })
}
