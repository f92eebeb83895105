//! How small: the program on disk, an idle daemon, a supervisor.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::Bench;
use super::bare::size_mib;
use super::figure::{Bound, Figures};
use super::pool::Pool;
use super::process::{children_of, memory_mib, running_ns, until};

/// What an idle pool takes.
pub(super) fn measure(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let size = [size_mib(&bench.program)?];
    let bound = |most| Some(Bound::AtMost(most));
    figures.add_bound("divvy", "binary_mib", "the program on disk, stripped (MiB)", (&size, bound(30.0)));
    let (mut memory, mut cpu, mut supervisor, mut peak) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.effort.runs {
        let pool = Pool::start(bench, 8)?;
        cpu.push(idle_cpu_percent(&pool, bench.effort.idle_s)?);
        memory.push(memory_mib(pool.pid(), "VmRSS")?);
        let waits = supervisor_of_a_sleep(&pool)?;
        supervisor.push(memory_mib(waits, "VmRSS")?);
        peak.push(memory_mib(waits, "VmHWM")?);
    }
    figures.add_bound(
        "divvy",
        "idle_memory_mib",
        "daemon, idle and empty: memory (RSS, MiB)",
        (&memory, bound(30.0)),
    );
    let what = format!("daemon, idle for {} s: CPU (percent of one)", bench.effort.idle_s);
    figures.add("divvy", "idle_cpu_percent", &what, &cpu);
    figures.add_bound(
        "divvy",
        "supervisor_mib",
        "supervisor of a task: memory (RSS, MiB)",
        (&supervisor, bound(3.0)),
    );
    figures.add("divvy", "supervisor_peak_mib", "the same at its peak, while it starts (MiB)", &peak);
    Ok(())
}

fn idle_cpu_percent(pool: &Pool, seconds: u64) -> Result<f64> {
    // The aftermath of the start is not part of being idle.
    std::thread::sleep(Duration::from_secs(1));
    let (begun, before) = (Instant::now(), running_ns(pool.pid())?);
    std::thread::sleep(Duration::from_secs(seconds));
    let spent_ns = running_ns(pool.pid())?.saturating_sub(before);
    Ok(spent_ns as f64 / begun.elapsed().as_nanos() as f64 * 100.0)
}

/// The supervisor of a job that does nothing: the one child that the daemon has.
fn supervisor_of_a_sleep(pool: &Pool) -> Result<u32> {
    pool.say(&["run", "-d", "-g", "1", "--", "sleep", "1000"])?;
    pool.until_job_runs()?;
    // It gives back what it needed to start; after that it only waits, for days.
    std::thread::sleep(Duration::from_secs(1));
    until("the supervisor", Duration::from_secs(10), || children_of(pool.pid()).first().copied())
}
