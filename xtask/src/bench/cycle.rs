//! One planning cycle after one job has ended, in the core itself: neither log nor engine are part of it.

use std::time::Instant;

use anyhow::{Result, anyhow};
use divvy_core::event::Event;
use divvy_core::id::JobId;
use divvy_core::scenario::Scenario;

use super::Bench;
use super::figure::{Bound, Figures};

/// Measures a cycle behind an array, and behind as many jobs of a thousand kinds.
pub(super) fn measure(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let waiting = bench.effort.waiting;
    let bound = Some(Bound::AtMost(5.0));
    let array = runs(bench, &|| line_of(&[format!("submit j1 default 1 array=0-{}", waiting - 1)]))?;
    let what = format!("{waiting} waiting as an array: planning cycle after one job ends (ms)");
    figures.add_bound("divvy", "cycle_array_ms", &what, (&array, bound));
    let kinds: Vec<String> = (1..=waiting).map(one_of_many_kinds).collect();
    let mixed = runs(bench, &|| line_of(&kinds))?;
    let what = format!("{waiting} waiting, jobs of 1,000 kinds: the same (ms)");
    figures.add_bound("divvy", "cycle_mixed_ms", &what, (&mixed, bound));
    Ok(())
}

/// A job of one of 10 queues, 20 priorities and 5 sizes.
fn one_of_many_kinds(number: usize) -> String {
    let (queue, priority, gpus) = (number % 10, number / 10 % 20, number / 200 % 5 + 1);
    format!("submit j{number} q{queue} {gpus} prio={priority}")
}

/// A pool of 8 GPUs and a long line before it.
fn line_of(submits: &[String]) -> Result<Scenario> {
    let mut pool = Scenario::new();
    let queues = (0..10).map(|queue| format!("queue q{queue} limit=8"));
    let lines = std::iter::once("node n1 8xh100".to_owned()).chain(queues);
    for line in lines.chain(submits.iter().cloned()).chain(["plan".to_owned()]) {
        pool.line(&line).map_err(|error| anyhow!("{line}: {error}"))?;
    }
    Ok(pool)
}

/// The mean of some cycles, for each run.
fn runs(bench: &Bench, line: &dyn Fn() -> Result<Scenario>) -> Result<Vec<f64>> {
    let mut pool = line()?;
    let mut read = 0;
    let mut running = Vec::new();
    let mut means = Vec::new();
    for _ in 0..bench.effort.runs {
        let mut sum_ms = 0.0;
        for _ in 0..bench.effort.cycles {
            let placed = pool.log[read..].iter().filter_map(|stamped| placed(&stamped.event));
            running.splice(0..0, placed);
            read = pool.log.len();
            sum_ms += cycle_ms(&mut pool, running.pop())?;
        }
        means.push(sum_ms / bench.effort.cycles as f64);
    }
    Ok(means)
}

fn placed(event: &Event) -> Option<JobId> {
    if let Event::Placed { job, .. } = event { Some(*job) } else { None }
}

/// Ends a job, plans, and starts what was placed; only the planning is timed.
fn cycle_ms(pool: &mut Scenario, ends: Option<JobId>) -> Result<f64> {
    let job = ends.ok_or_else(|| anyhow!("nothing runs in front of the line"))?;
    let member = job.member.map(|member| format!("_{member}")).unwrap_or_default();
    let say = |pool: &mut Scenario, line: &str| pool.line(line).map_err(|error| anyhow!("{line}: {error}"));
    say(pool, &format!("end j{}{member} exit=0", job.number))?;
    let now = pool.now();
    let begun = Instant::now();
    pool.controller().cycle(now)?;
    let took = begun.elapsed().as_secs_f64() * 1000.0;
    say(pool, "plan")?;
    Ok(took)
}
