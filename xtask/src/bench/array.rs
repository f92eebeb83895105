//! Throughput: an array of one-GPU `true`s over 8 and over 64 pretended GPUs, and where its time goes.

use std::time::Instant;

use anyhow::Result;

use super::Bench;
use super::figure::{Bound, Figures};
use super::pool::Pool;
use super::process::{Cpu, cpu_of};
use super::{bare, say};

/// How many GPUs the array is measured over.
pub(super) const GPUS: [u32; 2] = [8, 64];

/// What one run took.
#[derive(Default)]
struct Runs {
    jobs_per_s: Vec<f64>,
    daemon_user_ms: Vec<f64>,
    daemon_system_ms: Vec<f64>,
    tasks_user_ms: Vec<f64>,
    tasks_system_ms: Vec<f64>,
    flushes: Vec<f64>,
}

/// Measures Divvy's throughput.
pub(super) fn measure(bench: &Bench, figures: &mut Figures) -> Result<()> {
    for gpus in GPUS {
        let pool = Pool::start(bench, gpus)?;
        let mut runs = Runs::default();
        for _ in 0..bench.effort.runs {
            runs.take(bench, &pool)?;
        }
        runs.put(figures, bench.effort.jobs, gpus);
        count_fsyncs(bench, &pool, gpus, figures)?;
    }
    Ok(())
}

impl Runs {
    fn take(&mut self, bench: &Bench, pool: &Pool) -> Result<()> {
        let (own, children) = cpu_of(pool.pid())?;
        let flushes = bare::flushes();
        let seconds = array(pool, bench.effort.jobs)?;
        let (own_then, children_then) = cpu_of(pool.pid())?;
        let jobs = bench.effort.jobs as f64;
        self.jobs_per_s.push(jobs / seconds);
        let per_job = |cpu: Cpu| (cpu.user_s * 1000.0 / jobs, cpu.system_s * 1000.0 / jobs);
        let (user, system) = per_job(own_then.since(own));
        self.daemon_user_ms.push(user);
        self.daemon_system_ms.push(system);
        let (user, system) = per_job(children_then.since(children));
        self.tasks_user_ms.push(user);
        self.tasks_system_ms.push(system);
        let flushed = bare::flushes().zip(flushes).map(|(after, before)| after.saturating_sub(before));
        self.flushes.extend(flushed.map(|count| count as f64 / jobs));
        Ok(())
    }

    fn put(&self, figures: &mut Figures, jobs: usize, gpus: u32) {
        let what = |what: &str| format!("array of {jobs} `true` over {gpus} GPUs: {what}");
        let bound = Some(Bound::AtLeast(300.0));
        let name = format!("array_{gpus}_gpus_jobs_per_s");
        figures.add_bound("divvy", &name, &what("jobs per second"), (&self.jobs_per_s, bound));
        let parts = [
            ("daemon_user_ms", "daemon, user CPU per job (ms)", &self.daemon_user_ms),
            ("daemon_system_ms", "daemon, system CPU per job (ms)", &self.daemon_system_ms),
            ("tasks_user_ms", "supervisor and task, user CPU per job (ms)", &self.tasks_user_ms),
            ("tasks_system_ms", "supervisor and task, system CPU per job (ms)", &self.tasks_system_ms),
            ("disk_flushes", "disk flushes per job, by anyone on the machine", &self.flushes),
        ];
        for (name, part, runs) in parts {
            figures.add("divvy", &format!("array_{gpus}_gpus_{name}"), &what(part), runs);
        }
    }
}

/// Submits an array of `true` and waits for its end; returns the seconds from the first exec to the last end.
fn array(pool: &Pool, jobs: usize) -> Result<f64> {
    let begun = Instant::now();
    let members = format!("0-{}", jobs - 1);
    let id = pool.say(&["run", "-d", "-g", "1", "--log", "/dev/null", "--array", &members, "--", "true"])?;
    pool.say(&["wait", "--quiet", &id])?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Counts the daemon's fsyncs in a separate run, since tracing slows the daemon.
fn count_fsyncs(bench: &Bench, pool: &Pool, gpus: u32, figures: &mut Figures) -> Result<()> {
    let jobs = bench.effort.jobs / 4;
    let Some(tracer) = bare::Tracer::attach(bench, pool.pid()) else {
        say("strace is not there or may not trace: fsyncs are not counted");
        return Ok(());
    };
    array(pool, jobs)?;
    let count = tracer.fsyncs()? as f64 / jobs as f64;
    let what = format!("array of {jobs} `true` over {gpus} GPUs, traced: the daemon's fsyncs per job");
    figures.add("divvy", &format!("array_{gpus}_gpus_fsyncs"), &what, &[count]);
    Ok(())
}
