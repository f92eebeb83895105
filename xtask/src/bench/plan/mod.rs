//! `cargo xtask bench plan`: what a cycle costs in pools of a thousand to ten thousand nodes.

pub(super) mod site;

use std::path::Path;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use divvy_core::controller::Controller;
use divvy_core::model::policy::{Order, Policy};
use divvy_core::snapshot::Snapshot;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::report::aligned;
use super::{Output, machine, say};
use site::{GUARANTEED_DEVICES, Site, Size};

/// What to measure.
#[derive(Args)]
pub(super) struct Plan {
    /// Pools of so many nodes, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NODES", default_values_t = [1000, 2000, 4000, 5000, 10_000])]
    nodes: Vec<u32>,
    /// By arrival alone, as a pool does where it is told nothing else, or likewise with `order: attained`
    #[arg(long, value_enum, default_value = "arrival")]
    policy: By,
    /// How many events of each kind
    #[arg(long, default_value_t = 1000, value_name = "N")]
    events: usize,
    /// Prints a table, or JSON
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

/// How is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
enum By {
    Arrival,
    Default,
    /// As by default, with time sliced by the least that jobs have had.
    Attained,
}

impl By {
    fn settings(self) -> Policy {
        match self {
            By::Arrival => Policy::one_line(),
            By::Default => Policy::default(),
            By::Attained => Policy { order: Order::Attained, ..Policy::default() },
        }
    }
}

/// What was measured.
#[derive(Serialize)]
struct Figures {
    policy: By,
    machine: machine::Machine,
    pools: Vec<Pool>,
}

/// A pool, and what it costs.
#[derive(Serialize)]
struct Pool {
    nodes: u32,
    devices: usize,
    running: usize,
    waiting: usize,
    queues: usize,
    classes: usize,
    /// From an event until its plan is folded, over all kinds of events.
    event: Spread,
    /// A job has ended: the next one gets what it held.
    ended: Spread,
    /// A job arrives that must wait.
    waits: Spread,
    /// A waiting job is cancelled.
    cancelled: Spread,
    /// A job arrives that fits at once.
    fits: Spread,
    /// Nothing happens, but something is due by time: each minute the past of queues is reckoned, and all that waits is looked at.
    by_time: Spread,
    /// A snapshot built from the state.
    cold_snapshot_ms: f64,
    /// The first plan after a start, with its snapshot: all verdicts are in question.
    cold_plan_ms: f64,
    /// The longest plan in which a gang takes back from others what is guaranteed to it.
    reclaim_ms: Option<f64>,
    /// The memory of the process once this pool is there.
    rss_mib: u64,
}

/// Milliseconds: median, 99th percentile, most.
#[derive(Serialize)]
struct Spread {
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

pub(super) fn run(plan: &Plan, target: &Path) -> Result<()> {
    let machine = machine::describe(target)?;
    let pools = plan.nodes.iter().map(|nodes| measure(*nodes, plan)).collect::<Result<_>>()?;
    let figures = Figures { policy: plan.policy, machine, pools };
    match plan.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&figures)?),
        Output::Table => print!("{}", figures.text()),
    }
    Ok(())
}

fn measure(nodes: u32, plan: &Plan) -> Result<Pool> {
    say(&format!("a pool of {nodes} nodes is filled"));
    let mut site = Site::full(Size::of(nodes), plan.policy.settings())?;
    let rss_mib = resident_mib()?;
    say("events and their plans");
    let (mut ended, mut by_time) = (Vec::new(), Vec::new());
    let (mut waits, mut cancelled, mut fits) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.events.max(1) {
        let due = &mut by_time;
        ended.push(timed(&mut site, due, Site::end_one)?);
        let mut number = 0;
        waits.push(timed(&mut site, due, |site| site.submit_one_more().map(|job| number = job))?);
        cancelled.push(timed(&mut site, due, |site| site.cancel(number))?);
        fits.push(timed(&mut site, due, |site| site.submit_spare().map(|job| number = job))?);
        let job = divvy_core::id::JobId::single(number);
        ensure!(site.state().run(job).is_some_and(|run| run.is_active()), "a job that fits was not started");
        site.end(job)?;
        site.rest()?;
    }
    let all = [&ended, &waits, &cancelled, &fits, &by_time].into_iter().flatten().copied().collect();
    let reclaim_ms = (plan.policy != By::Arrival).then(|| reclaim(&mut site)).transpose()?;
    say("the same from nothing");
    let snapshot = site.controller.snapshot();
    let (devices, state) = (site.state().devices.len(), site.state());
    let (waiting, classes) = (snapshot.waiting.len(), snapshot.waiting.classes.len());
    let (running, queues) = (site.running(), state.queues.len());
    let (cold_snapshot_ms, cold_plan_ms) = cold(&site)?;
    Ok(Pool {
        nodes,
        devices,
        running,
        waiting,
        queues,
        classes,
        event: Spread::of(all),
        ended: Spread::of(ended),
        waits: Spread::of(waits),
        cancelled: Spread::of(cancelled),
        fits: Spread::of(fits),
        by_time: Spread::of(by_time),
        cold_snapshot_ms,
        cold_plan_ms,
        reclaim_ms,
        rss_mib,
    })
}

/// The longest of some plans in which a gang takes what is guaranteed to it from those that have borrowed it, in milliseconds.
fn reclaim(site: &mut Site) -> Result<f64> {
    say("a gang takes what is guaranteed to it");
    let mut longest_ms: f64 = 0.0;
    for _ in 0..RECLAIMS {
        let mut number = 0;
        let event = |site: &mut Site| site.submit_guaranteed().map(|job| number = job);
        longest_ms = longest_ms.max(timed(site, &mut Vec::new(), event)?);
        let job = divvy_core::id::JobId::single(number);
        ensure!(site.state().run(job).is_some_and(|run| run.is_active()), "nobody gave way for a guarantee");
        site.end(job)?;
        site.rest()?;
    }
    Ok(longest_ms)
}

/// How many such plans are measured.
const RECLAIMS: usize = 5;

/// Milliseconds of processor time from an event to its plan. What the engine reports about the plan comes after. A second passes before;
/// what is due by then is planned first, and `due` gets what that took.
fn timed(site: &mut Site, due: &mut Vec<f64>, event: impl FnOnce(&mut Site) -> Result<()>) -> Result<f64> {
    if site.pass_a_second() {
        let begun = processor_ms();
        let batch = site.cycle()?;
        due.push(ms_since(begun));
        site.settle(batch)?;
        site.rest()?;
    }
    let begun = processor_ms();
    event(site)?;
    let batch = site.cycle()?;
    let took_ms = ms_since(begun);
    site.settle(batch)?;
    site.rest()?;
    Ok(took_ms)
}

/// A snapshot of the pool, and a first plan with all caches cold; the least of three each.
fn cold(site: &Site) -> Result<(f64, f64)> {
    let (mut snapshots, mut plans) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let begun = processor_ms();
        let snapshot = Snapshot::new(site.state());
        snapshots.push(ms_since(begun));
        drop(snapshot);
        let mut state = site.state().clone();
        state.freed = true;
        let now = state.now;
        let begun = processor_ms();
        let mut controller = Controller::open(state);
        controller.check_every(0);
        controller.cycle(now)?;
        plans.push(ms_since(begun));
    }
    let least = |values: Vec<f64>| values.into_iter().fold(f64::INFINITY, f64::min);
    Ok((least(snapshots), least(plans)))
}

/// The processor time of this thread: the core has one, and neither waits nor sleeps. On a shared machine, the wall clock would
/// measure the other users, too.
fn processor_ms() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1000.0 + now.tv_nsec as f64 / 1e6
}

fn ms_since(begun_ms: f64) -> f64 {
    processor_ms() - begun_ms
}

/// The memory of this process.
fn resident_mib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.unwrap_or(0) / 1024)
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |percent: usize| {
            values.get((values.len() * percent).div_ceil(100).max(1) - 1).copied().unwrap_or(f64::NAN)
        };
        Self { p50_ms: at(50), p99_ms: at(99), max_ms: at(100) }
    }

    fn cell(&self) -> String {
        format!("{:.2}  {:.2}", self.p50_ms, self.p99_ms)
    }
}

impl Figures {
    fn text(&self) -> String {
        let head = [
            "nodes",
            "running",
            "waiting",
            "classes",
            "event p50  p99 ms",
            "ended",
            "waits",
            "cancelled",
            "fits",
            "by time",
            "cold snapshot ms",
            "cold plan ms",
            &format!("{GUARANTEED_DEVICES} taken back ms"),
            "RSS MiB",
        ];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        lines.extend(self.pools.iter().map(Pool::cells));
        format!("{}\n\n{}", self.machine, aligned(lines))
    }
}

impl Pool {
    fn cells(&self) -> Vec<String> {
        vec![
            self.nodes.to_string(),
            self.running.to_string(),
            self.waiting.to_string(),
            self.classes.to_string(),
            self.event.cell(),
            self.ended.cell(),
            self.waits.cell(),
            self.cancelled.cell(),
            self.fits.cell(),
            self.by_time.cell(),
            format!("{:.0}", self.cold_snapshot_ms),
            format!("{:.0}", self.cold_plan_ms),
            self.reclaim_ms.map_or_else(String::new, |reclaim_ms| format!("{reclaim_ms:.0}")),
            self.rss_mib.to_string(),
        ]
    }
}
