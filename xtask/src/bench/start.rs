//! From the exec of the command line to the first instruction of the job: an idle pool, one job after the other.

use std::process::Command;

use anyhow::Result;

use super::Bench;
use super::figure::{Bound, Figures, percentile};
use super::first::{self, Moment};
use super::pool::Pool;
use super::process::output;

/// One start, in milliseconds.
#[derive(Clone, Copy)]
pub(super) struct Start {
    /// Until the job's first instruction.
    pub(super) first_ms: f64,
    /// Until the command line has ended, with the job's output and exit code; `None` if it ends before that.
    pub(super) whole_ms: Option<f64>,
}

/// Measures Divvy's starts.
pub(super) fn measure(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let job = first::build(bench)?;
    let job = job.to_string_lossy();
    let pool = Pool::start(bench, 8)?;
    let starts = Starts::of(bench, || attached(&mut pool.command(&["run", "-g", "1", "--", &job])))?;
    let bounds = [Some(Bound::AtMost(10.0)), Some(Bound::AtMost(30.0))];
    starts.put(figures, "divvy", "run -g 1", bounds);
    Ok(())
}

/// Starts a program that passes on its job's output, and reads when the job began.
pub(super) fn attached(command: &mut Command) -> Result<Start> {
    // Taken before the fork that precedes the exec: slightly too early, but for all programs alike.
    let begun = Moment::now();
    let output = output(command)?;
    let whole_ms = Some(Moment::now().ms_since(begun));
    Ok(Start { first_ms: Moment::read(&output.stdout)?.ms_since(begun), whole_ms })
}

/// The runs' percentiles.
#[derive(Default)]
pub(super) struct Starts {
    p50: Vec<f64>,
    p99: Vec<f64>,
    whole: Vec<f64>,
}

impl Starts {
    /// Takes as many runs of as many starts as the effort prescribes.
    pub(super) fn of(bench: &Bench, mut start: impl FnMut() -> Result<Start>) -> Result<Self> {
        // The first pulls programs and libraries into memory.
        start()?;
        let mut starts = Self::default();
        for _ in 0..bench.effort.runs {
            let run = (0..bench.effort.starts).map(|_| start()).collect::<Result<Vec<_>>>()?;
            let first: Vec<f64> = run.iter().map(|start| start.first_ms).collect();
            let whole: Vec<f64> = run.iter().filter_map(|start| start.whole_ms).collect();
            starts.p50.push(percentile(&first, 50));
            starts.p99.push(percentile(&first, 99));
            starts.whole.extend((!whole.is_empty()).then(|| percentile(&whole, 50)));
        }
        Ok(starts)
    }

    /// Adds the figures; the bounds are those of p50 and p99.
    pub(super) fn put(
        &self,
        figures: &mut Figures,
        subject: &'static str,
        how: &str,
        bounds: [Option<Bound>; 2],
    ) {
        let what = |which: &str| format!("`{how}`: exec to the job's first instruction, {which} (ms)");
        figures.add_bound(subject, "start_p50_ms", &what("p50"), (&self.p50, bounds[0]));
        figures.add_bound(subject, "start_p99_ms", &what("p99"), (&self.p99, bounds[1]));
        let what = format!("`{how}`: exec to its own end, p50 (ms)");
        figures.add(subject, "start_to_end_p50_ms", &what, &self.whole);
    }
}
