//! How small: the program on disk, an idle daemon, a supervisor.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use super::Bench;
use super::bare::size_mib;
use super::figure::{Bound, Figures};
use super::pool::Pool;
use super::process::{memory_mib, parent_of, running_ns, until};

/// What an idle pool takes.
pub(super) fn measure(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let size = [size_mib(&bench.program)?];
    let bound = |most| Some(Bound::AtMost(most));
    figures.add_bound("divvy", "binary_mib", "the program on disk, stripped (MiB)", (&size, bound(30.0)));
    let (mut memory, mut cpu, mut supervisor) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.effort.runs {
        let pool = Pool::start(bench, 8)?;
        cpu.push(idle_cpu_percent(&pool, bench.effort.idle_s)?);
        memory.push(memory_mib(pool.pid(), "VmRSS")?);
        supervisor.push(supervisor_mib(&pool)?);
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
    Ok(())
}

fn idle_cpu_percent(pool: &Pool, seconds: u64) -> Result<f64> {
    // What starting leaves behind is no part of being idle.
    std::thread::sleep(Duration::from_secs(1));
    let (begun, before) = (Instant::now(), running_ns(pool.pid())?);
    std::thread::sleep(Duration::from_secs(seconds));
    let spent_ns = running_ns(pool.pid())?.saturating_sub(before);
    Ok(spent_ns as f64 / begun.elapsed().as_nanos() as f64 * 100.0)
}

/// The memory of the process that started the task of a job that waits.
fn supervisor_mib(pool: &Pool) -> Result<f64> {
    let id = pool.say(&["run", "-d", "-g", "1", "--", "sleep", "1000"])?;
    let task = until("the job's process", Duration::from_secs(10), || task_of(pool, &id).ok())?;
    memory_mib(parent_of(task)?, "VmRSS")
}

fn task_of(pool: &Pool, id: &str) -> Result<u32> {
    let job = pool.get(&format!("/v1/jobs/{id}"))?;
    let pid = job.pointer("/attempts/0/tasks/0/pid").and_then(Value::as_u64);
    let pid = pid.filter(|pid| *pid > 0).with_context(|| format!("job {id} has no process yet"))?;
    Ok(u32::try_from(pid)?)
}
