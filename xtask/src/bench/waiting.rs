//! A long line: 100,000 jobs wait in the daemon, submitted as one array.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::Bench;
use super::figure::{Bound, Figures};
use super::pool::Pool;
use super::process::memory_mib;

#[derive(Default)]
struct Runs {
    submit_s: Vec<f64>,
    page_ms: Vec<f64>,
    memory_mib: Vec<f64>,
    peak_mib: Vec<f64>,
    jobs_per_s: Vec<f64>,
}

/// Measures what a long line costs.
pub(super) fn measure(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let mut runs = Runs::default();
    for _ in 0..bench.effort.runs {
        runs.take(bench)?;
    }
    runs.put(figures, bench.effort.waiting);
    Ok(())
}

impl Runs {
    fn take(&mut self, bench: &Bench) -> Result<()> {
        let pool = Pool::start(bench, 8)?;
        let blocker = pool.say(&["run", "-d", "-g", "8", "--", "sleep", "1000"])?;
        pool.until_count("running", |running| running == 1)?;
        let members = format!("0-{}", bench.effort.waiting - 1);
        let begun = Instant::now();
        pool.say(&["run", "-d", "-g", "1", "--log", "/dev/null", "--array", &members, "--", "true"])?;
        self.submit_s.push(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        pool.say(&["ps"])?;
        self.page_ms.push(begun.elapsed().as_secs_f64() * 1000.0);
        self.memory_mib.push(memory_mib(pool.pid(), "VmRSS")?);
        self.peak_mib.push(memory_mib(pool.pid(), "VmHWM")?);
        self.jobs_per_s.push(drain_rate(&pool, &blocker)?);
        Ok(())
    }

    fn put(&self, figures: &mut Figures, waiting: usize) {
        let what = |what: &str| format!("{waiting} waiting: {what}");
        let bound = |most| Some(Bound::AtMost(most));
        figures.add_bound(
            "divvy",
            "submit_s",
            &what("submit as one array (s)"),
            (&self.submit_s, bound(1.0)),
        );
        figures.add_bound(
            "divvy",
            "first_page_ms",
            &what("first page of `ps` (ms)"),
            (&self.page_ms, bound(100.0)),
        );
        let memory = what("daemon's memory (RSS, MiB)");
        figures.add_bound("divvy", "waiting_memory_mib", &memory, (&self.memory_mib, bound(250.0)));
        figures.add("divvy", "waiting_peak_mib", &what("the same at its peak (MiB)"), &self.peak_mib);
        let rate = what("then run over 8 GPUs, jobs per second");
        figures.add("divvy", "waiting_jobs_per_s", &rate, &self.jobs_per_s);
    }
}

/// How long the line is watched while it runs, in seconds.
const WATCHED: Duration = Duration::from_secs(3);

/// Lets the line run, and says how many jobs leave it per second.
fn drain_rate(pool: &Pool, blocker: &str) -> Result<f64> {
    let all = pool.count("waiting")?;
    pool.say(&["cancel", blocker])?;
    let before = pool.until_count("waiting", |waiting| waiting + 20 < all)?;
    let begun = Instant::now();
    std::thread::sleep(WATCHED);
    let after = pool.count("waiting")?;
    Ok(before.saturating_sub(after) as f64 / begun.elapsed().as_secs_f64())
}
