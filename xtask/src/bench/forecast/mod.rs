//! `cargo xtask bench forecast`: how accurate the expected start is. Public traces are replayed, and for some jobs the replay is
//! asked at their submission when they will start.

mod table;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use divvy_core::model::policy::Policy;
use divvy_sim::forecast::{Ask, Asked, Bounds, ask};
use divvy_sim::policy::{Class, Named};
use divvy_sim::pools::Pools;
use divvy_sim::reference::{self, Experiment};
use divvy_sim::replay::Replay;
use rustix::time::{ClockId, clock_gettime};

use super::{Output, machine};

/// The policy of a pool that is given none.
const POOL: &str = "pool";

/// What to ask.
#[derive(Args)]
pub(super) struct Forecast {
    /// The folder that holds jct/
    #[arg(long, env = "DIVVY_DATA", value_name = "FOLDER")]
    data: PathBuf,
    /// The traces, separated by commas
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "TRACES",
        default_value = "philly_ee9e8c,philly_2869ce,ipsc_a"
    )]
    traces: Vec<String>,
    /// By which policies: names as in `divvy sim replay`, or `pool` for what a pool does that is told nothing
    #[arg(long, value_delimiter = ',', value_name = "POLICIES", default_value = "pool,fifo,divvy")]
    policies: Vec<String>,
    /// Asks of every so many-th job
    #[arg(long, default_value_t = 4, value_name = "N")]
    every: usize,
    /// By how much all jobs of a future may end sooner or later than those before, in logarithms
    #[arg(long, value_name = "X")]
    doubt: Option<f64>,
    /// Prints a table, or JSON
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

/// The outcome of a trace under a policy.
struct Outcome {
    trace: String,
    policy: String,
    asked: Vec<Asked>,
    /// Processor time, the replay included.
    cpu_s: f64,
}

/// Asks, and prints how accurate the answers were.
pub(super) fn run(options: &Forecast, target: &Path) -> Result<()> {
    let mut outcomes = Vec::new();
    for trace in &options.traces {
        for policy in &options.policies {
            let outcome = run_one(options, trace, policy)?;
            super::say(&format!("{trace} {policy}: {:.0} s", outcome.cpu_s));
            outcomes.push(outcome);
        }
    }
    let table = table::Table::new(machine::describe(target)?, &outcomes);
    match options.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&table)?),
        Output::Table => print!("{}", table.text()),
    }
    Ok(())
}

fn run_one(options: &Forecast, trace: &str, policy: &str) -> Result<Outcome> {
    let named = if policy == POOL { None } else { Some(policy.parse::<Named>()?) };
    // Which policy stands here does not matter: only the files are used.
    let experiment =
        Experiment { trace: trace.into(), pools: Pools::Own, policy: named.unwrap_or(Named::Fifo) };
    let prepared = reference::prepare(&options.data.join("jct"), &experiment)
        .with_context(|| format!("reading the trace {trace}"))?;
    let (nodes, jobs, restart_ms) = prepared.parts();
    let has_jobs = |pool: &str| jobs.iter().any(|job| job.arrival.queue == pool);
    let setup = Replay {
        nodes: nodes.iter().filter(|node| has_jobs(&node.pool)).collect(),
        queues: Vec::new(),
        policy: named.map_or_else(Policy::default, Named::settings),
        class: named.map_or(Class::N, Named::class),
        restart_ms,
        speeds: None,
    };
    ensure!(!setup.nodes.is_empty(), "no node of {trace} is of a pool that has jobs");
    let usual = Bounds::default();
    let bounds = Bounds { doubt: options.doubt.unwrap_or(usual.doubt), ..usual };
    let before = clock_gettime(ClockId::ThreadCPUTime);
    let asked = ask(setup, jobs, Ask { every: options.every, bounds }, |_| ())?;
    let after = clock_gettime(ClockId::ThreadCPUTime);
    let cpu_s = (after.tv_sec - before.tv_sec) as f64 + (after.tv_nsec - before.tv_nsec) as f64 / 1e9;
    Ok(Outcome { trace: trace.into(), policy: policy.into(), asked, cpu_s })
}
