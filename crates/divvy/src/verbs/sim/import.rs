//! `divvy sim import`: the records of other schedulers as a trace.

use std::path::PathBuf;

use clap::ValueEnum;
use divvy_sim::import::{Imported, SlurmQueue, Source, import};
use divvy_sim::trace::jobs;

use super::files::write_to;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::say;

const EXAMPLES: &str = "\
Examples:
  sacct -aP -S 2026-01-01 -o JobID,User,Account,Partition,JobName,Submit,Start,End,Elapsed,ReqTRES,AllocTRES,State > sacct.txt
  divvy sim import slurm sacct.txt --out jobs.csv
  divvy sim import slurm jan.txt feb.txt.gz --queue account > jobs.csv
  divvy sim import philly cluster_job_log --out jobs.csv
  divvy sim import helios Venus/cluster_log.csv --out jobs.csv";

/// Turn the records of another scheduler into a trace
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Import {
    /// Whose form the files have
    #[arg(value_enum)]
    kind: Kind,
    /// The files, plain or gzipped; several become one trace
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Where to write the trace; standard output without it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// What becomes the queue of a job of Slurm
    #[arg(long, value_enum, default_value_t, value_name = "COLUMN")]
    queue: QueueColumn,
}

/// Whose form a file has.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// What `sacct -P` prints
    Slurm,
    /// cluster_job_log of Microsoft's Philly traces
    Philly,
    /// cluster_log.csv of SenseTime's Helios traces
    Helios,
    /// A list of pods of Alibaba's cluster-trace-gpu-v2023
    Openb,
}

/// What becomes the queue.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum QueueColumn {
    /// The first partition
    #[default]
    Partition,
    /// The account
    Account,
    /// The quality of service
    Qos,
}

impl Import {
    pub(crate) fn run(&self) -> Result<Exit, Failure> {
        let imported = import(self.source(), &self.files)?;
        let out = self.out.as_deref();
        write_to(out, |to| Ok(jobs::write(&imported.jobs, to)?))?;
        said(&imported).iter().for_each(|line| say(line));
        Ok(Exit::Success)
    }

    fn source(&self) -> Source {
        match self.kind {
            Kind::Slurm => Source::Slurm(match self.queue {
                QueueColumn::Partition => SlurmQueue::Partition,
                QueueColumn::Account => SlurmQueue::Account,
                QueueColumn::Qos => SlurmQueue::Qos,
            }),
            Kind::Philly => Source::Philly,
            Kind::Helios => Source::Helios,
            Kind::Openb => Source::Openb,
        }
    }
}

/// What a person is told besides the trace: nothing that was read is dropped unsaid.
fn said(imported: &Imported) -> Vec<String> {
    let jobs = |count: usize| if count == 1 { "1 job".into() } else { format!("{count} jobs") };
    let mut lines = vec![jobs(imported.jobs.len())];
    lines.extend(imported.left_out.iter().map(|(why, count)| format!("left out {count} {why}")));
    if imported.shares > 0 {
        lines.push(format!("{} with a part of a GPU: a trace counts a whole one", jobs(imported.shares)));
    }
    lines
}
