//! `cargo xtask bench explain`: whether what is said to start waiting jobs starts them, over pools from seeds; and how long it
//! takes in large ones.

mod large;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, anyhow};
use clap::Args;
use divvy_sim::proof::{Effort, Proof};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::Output;

/// How much to try.
#[derive(Args)]
pub(super) struct Explain {
    /// Jobs to explain in pools of up to 64 GPUs, at least
    #[arg(long, default_value_t = 5000, value_name = "JOBS")]
    jobs: u64,
    /// Jobs to explain in pools of up to 8 GPUs, at least; for these a cheaper fix is sought, too
    #[arg(long, default_value_t = 5000, value_name = "JOBS")]
    small: u64,
    /// Seeks among all sets of at most so many changes
    #[arg(long, default_value_t = 2, value_name = "CHANGES")]
    sets: usize,
    /// The first seed
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    seed: u64,
    /// How many pools are tried at once
    #[arg(long, default_value_t = 1, value_name = "N")]
    threads: usize,
    /// Prints what went wrong, too
    #[arg(long)]
    each: bool,
    /// Instead, explains jobs of a large pool that is full: so many nodes of eight GPUs
    #[arg(long, value_name = "NODES")]
    nodes: Option<u32>,
    /// How many jobs wait in the large pool
    #[arg(long, default_value_t = 100_000, value_name = "JOBS", requires = "nodes")]
    waiting: u32,
    /// How many of them are explained
    #[arg(long, default_value_t = 50, value_name = "JOBS", requires = "nodes")]
    asked: u32,
    /// Prints a table, or JSON
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

/// The figures of one size of pools.
#[derive(Serialize)]
struct Figures {
    pools: &'static str,
    made: u64,
    jobs: u64,
    with_fix_percent: f64,
    start_percent: f64,
    start_when_all_are_lifted_percent: f64,
    all_but_one: u64,
    start_without_one: u64,
    searched: u64,
    sets: u64,
    cheaper: u64,
}

pub(super) fn run(explain: &Explain) -> Result<()> {
    if let Some(nodes) = explain.nodes {
        return large::run(nodes, explain);
    }
    let sizes = [
        ("up to 64 GPUs", explain.jobs, Effort { small: false, set_size: 0 }),
        ("up to 8 GPUs", explain.small, Effort { small: true, set_size: explain.sets }),
    ];
    let mut found = Vec::new();
    for (pools, jobs, effort) in sizes.into_iter().filter(|(_, jobs, _)| *jobs > 0) {
        found.push((pools, prove(explain, jobs, effort)?));
    }
    let figures: Vec<Figures> = found.iter().map(|(pools, proof)| Figures::of(pools, proof)).collect();
    match explain.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&figures)?),
        Output::Table => figures.iter().for_each(Figures::print),
    }
    if explain.each {
        found.iter().flat_map(|(_, proof)| &proof.failures).for_each(|failure| println!("{failure}"));
    }
    Ok(())
}

/// Makes pools until so many jobs were explained.
fn prove(explain: &Explain, jobs: u64, effort: Effort) -> Result<Proof> {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} jobs, {eta} left")?;
    let bar = ProgressBar::new(jobs).with_style(style);
    let (next, proof) = (AtomicU64::new(explain.seed), Mutex::new(Proof::default()));
    let work = || -> Option<()> {
        while proof.lock().ok()?.jobs < jobs {
            let of_pool = Proof::of_pool(next.fetch_add(1, Ordering::Relaxed), effort);
            let mut proof = proof.lock().ok()?;
            proof.add(of_pool);
            bar.set_position(proof.jobs);
        }
        Some(())
    };
    std::thread::scope(|scope| {
        for _ in 0..explain.threads.max(1) {
            scope.spawn(work);
        }
    });
    bar.finish_and_clear();
    proof.into_inner().map_err(|_| anyhow!("a thread that tried pools failed: its message is above"))
}

impl Figures {
    fn of(pools: &'static str, proof: &Proof) -> Self {
        let percent = |part: u64| part as f64 * 100.0 / (proof.jobs.max(1)) as f64;
        Self {
            pools,
            made: proof.pools,
            jobs: proof.jobs,
            with_fix_percent: percent(proof.with_fix),
            start_percent: percent(proof.start),
            start_when_all_are_lifted_percent: percent(proof.start_when_all_are_lifted),
            all_but_one: proof.all_but_one,
            start_without_one: proof.start_without_one,
            searched: proof.searched,
            sets: proof.sets,
            cheaper: proof.cheaper,
        }
    }

    fn print(&self) {
        println!("{} waiting jobs in {} pools of {}", self.jobs, self.made, self.pools);
        println!("  a fix was named                                     {:8.2} %", self.with_fix_percent);
        println!("  the job starts in that cycle once it is made        {:8.2} %", self.start_percent);
        let all = self.start_when_all_are_lifted_percent;
        println!("  and once every blocker is lifted by its own way     {all:8.2} %");
        let (without, sets) = (self.start_without_one, self.all_but_one);
        println!("  it starts though one blocker is left                {without:8} of {sets}");
        if self.searched > 0 {
            let (cheaper, jobs, sets) = (self.cheaper, self.searched, self.sets);
            println!(
                "  a cheaper fix was found                             {cheaper:8} of {jobs} ({sets} sets tried)"
            );
        }
    }
}
