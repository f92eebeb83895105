//! How long an explanation takes in a large pool, and how much of it is found there.

use anyhow::{Context, Result};
use divvy_core::explain;
use divvy_core::id::JobId;
use divvy_core::model::policy::Policy;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::Explain;
use crate::bench::plan::site::{Dice, Site, Size};
use crate::bench::{Output, say};

/// What was measured.
#[derive(Serialize)]
struct Figures {
    nodes: u32,
    running: usize,
    waiting: usize,
    explained: usize,
    with_fix: usize,
    start: usize,
    p50_ms: f64,
    max_ms: f64,
}

pub(super) fn run(nodes: u32, asked: &Explain) -> Result<()> {
    say(&format!("a pool of {nodes} nodes is filled"));
    let size = Size { waiting: asked.waiting, queues: 1000.min(nodes), ..Size::of(nodes) };
    let site = Site::full(size, Policy::default())?;
    let (state, snapshot) = (site.state(), site.controller.snapshot());
    let waiting: Vec<JobId> =
        state.jobs.values().map(|job| job.id()).filter(|id| snapshot.waiting.contains(*id)).collect();
    let (mut dice, mut taken_ms) = (Dice(asked.seed), Vec::new());
    let (mut with_fix, mut start) = (0, 0);
    say("jobs are explained");
    for _ in 0..asked.asked {
        let job = waiting[dice.below(waiting.len())];
        let begun_ms = processor_ms();
        let advice =
            explain::advise(state, snapshot, job).with_context(|| format!("job {job} is not there"))?;
        taken_ms.push(processor_ms() - begun_ms);
        let Some(fix) = advice.remedy else { continue };
        with_fix += 1;
        start += usize::from(explain::starts_after(state, snapshot, job, &fix.changes));
    }
    taken_ms.sort_by(f64::total_cmp);
    let figures = Figures {
        nodes,
        running: site.running(),
        waiting: waiting.len(),
        explained: taken_ms.len(),
        with_fix,
        start,
        p50_ms: taken_ms.get(taken_ms.len() / 2).copied().unwrap_or_default(),
        max_ms: taken_ms.last().copied().unwrap_or_default(),
    };
    match asked.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&figures)?),
        Output::Table => figures.print(),
    }
    Ok(())
}

/// Processor time of this thread: others on the machine do not count.
fn processor_ms() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1000.0 + time.tv_nsec as f64 / 1e6
}

impl Figures {
    fn print(&self) {
        println!(
            "{} of {} waiting jobs, {} nodes, {} running jobs",
            self.explained, self.waiting, self.nodes, self.running
        );
        println!("  processor time of an explanation, in the median     {:8.0} ms", self.p50_ms);
        println!("  at most                                             {:8.0} ms", self.max_ms);
        println!(
            "  a fix was named                                     {:8} of {}",
            self.with_fix, self.explained
        );
        println!(
            "  the job starts in that cycle once it is made        {:8} of {}",
            self.start, self.with_fix
        );
    }
}
