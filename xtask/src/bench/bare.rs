//! The bare bound: a loop that only forks, execs, waits and fsyncs once per job, and nothing else that a pool does.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::Bench;
use super::figure::Figures;
use super::process::until;

/// What a job's record takes in a log, in bytes.
const RECORD: [u8; 1024] = [b'.'; 1024];

/// The bound, and its parts.
pub(super) fn measure(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let rounds = bench.effort.rounds;
    let file = bench.directory().join("fsync");
    let (mut spawn, mut sync, mut one, mut all) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.effort.runs {
        spawn.push(ms_each(rounds, run_true)?);
        let mut log = File::create(&file)?;
        sync.push(ms_each(rounds, || append(&mut log))?);
        one.push(1000.0 / ms_each(rounds, || job(&mut log))?);
        all.push(on_every_cpu(bench, rounds)?);
    }
    std::fs::remove_file(&file)?;
    figures.add("bare", "bare_fork_exec_wait_ms", "fork, exec and wait of `true` (ms)", &spawn);
    figures.add("bare", "bare_fsync_ms", "append of 1 KiB and fsync (ms)", &sync);
    figures.add("bare", "bare_loop_jobs_per_s", "fork, exec, wait, fsync in one loop: jobs per second", &one);
    let what = "the same in one loop per CPU, each with its file: jobs per second";
    figures.add("bare", "bare_loops_jobs_per_s", what, &all);
    Ok(())
}

fn ms_each(rounds: usize, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let begun = Instant::now();
    (0..rounds).try_for_each(|_| work())?;
    Ok(begun.elapsed().as_secs_f64() * 1000.0 / rounds as f64)
}

fn run_true() -> Result<()> {
    Command::new("true").status().context("running `true`")?;
    Ok(())
}

fn append(log: &mut File) -> Result<()> {
    log.write_all(&RECORD)?;
    log.sync_all().context("fsync")
}

fn job(log: &mut File) -> Result<()> {
    append(log)?;
    run_true()
}

/// Jobs per second of as many loops as there are CPUs.
fn on_every_cpu(bench: &Bench, rounds: usize) -> Result<f64> {
    let loops = std::thread::available_parallelism()?.get();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let one = |number| {
            let file = bench.directory().join(format!("fsync-{number}"));
            let mut log = File::create(&file)?;
            (0..rounds).try_for_each(|_| job(&mut log))?;
            std::fs::remove_file(&file).context("removing the loop's file")
        };
        let threads: Vec<_> = (0..loops).map(|number| scope.spawn(move || one(number))).collect();
        let ended =
            threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a loop panicked")));
        ended.collect::<Result<Vec<Result<()>>>>()?.into_iter().collect::<Result<()>>()
    })?;
    Ok((loops * rounds) as f64 / begun.elapsed().as_secs_f64())
}

/// How many flushes the busiest disk of this machine has done since it started; `None` where the kernel does not say.
pub(super) fn flushes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/diskstats").ok()?;
    let counts = text.lines().filter_map(|line| line.split_whitespace().nth(18)?.parse::<u64>().ok());
    counts.max()
}

/// strace, counting the fsyncs of a process.
pub(super) struct Tracer {
    strace: Child,
    counts: PathBuf,
}

impl Tracer {
    /// Attaches to a process and all its threads; `None` where that cannot be.
    pub(super) fn attach(bench: &Bench, pid: u32) -> Option<Self> {
        let counts = bench.directory().join("strace");
        let _ = std::fs::remove_file(&counts);
        let mut command = Command::new("strace");
        command.args(["-f", "-c", "-e", "trace=fsync,fdatasync", "-p", &pid.to_string(), "-o"]).arg(&counts);
        let mut strace =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        let traced = until("strace", Duration::from_secs(5), || is_traced(pid).then_some(()));
        if traced.is_err() {
            let _ = strace.kill();
            let _ = strace.wait();
            return None;
        }
        Some(Self { strace, counts })
    }

    /// Detaches from the process, and returns the number of fsyncs.
    pub(super) fn fsyncs(mut self) -> Result<u64> {
        let pid = rustix::process::Pid::from_child(&self.strace);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).context("ending strace")?;
        self.strace.wait()?;
        let text = std::fs::read_to_string(&self.counts).context("reading what strace counted")?;
        std::fs::remove_file(&self.counts)?;
        Ok(calls(&text))
    }
}

/// Whether every thread of a process is being traced.
fn is_traced(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.filter_map(Result::ok).all(|thread| {
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
    })
}

/// The calls in the table of `strace -c`: the fourth column of the lines that end in a name.
fn calls(table: &str) -> u64 {
    let of = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_sync = matches!(words.last(), Some(&"fsync" | &"fdatasync"));
        is_sync.then(|| words.get(3)?.parse::<u64>().ok()).flatten()
    };
    table.lines().filter_map(of).sum()
}

/// The size of a file, in MiB.
pub(super) fn size_mib(path: &Path) -> Result<f64> {
    let size = path.metadata().with_context(|| format!("looking at {}", path.display()))?.size();
    Ok(size as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_from_straces_table() {
        let table = "% time     seconds  usecs/call     calls    errors syscall\n\
                     ------ ----------- ----------- --------- --------- ----------------\n\
                     90.00    0.100000         100      1000           fdatasync\n\
                     10.00    0.010000         100        20         2 fsync\n\
                     ------ ----------- ----------- --------- --------- ----------------\n\
                     100.00    0.110000         107      1020         2 total\n";
        assert_eq!(calls(table), 1020);
    }
}
