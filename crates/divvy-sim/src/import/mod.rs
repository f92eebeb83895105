//! Converts what others record about their clusters to the neutral form of [`crate::trace::jobs`].

mod civil;
mod helios;
mod openb;
mod philly;
mod slurm;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use crate::trace::TraceError;
use crate::trace::jobs::{Arrival, Fate, TraceJob};

pub use slurm::SlurmQueue;

/// The form of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// What `sacct -P` prints, with the column that becomes the queue.
    Slurm(SlurmQueue),
    /// `cluster_job_log` of Microsoft's Philly traces.
    Philly,
    /// `cluster_log.csv` of SenseTime's Helios traces.
    Helios,
    /// A list of pods of Alibaba's cluster-trace-gpu-v2023.
    Openb,
}

/// Why a record became no job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftOut {
    /// It asked for no GPU.
    NoGpu,
    /// The record does not say when it was submitted.
    NoSubmission,
    /// It never started, or the record does not say when.
    NeverStarted,
    /// By its times it ended before it started.
    EndsFirst,
    /// It had not ended when the record was written, so that its duration is unknown.
    NotEnded,
}

/// Words it to follow a number of jobs, as in "3 jobs that never started".
impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoGpu => "that asked for no GPU",
            Self::NoSubmission => "whose time of submission is unknown",
            Self::NeverStarted => "that never started",
            Self::EndsFirst => "with an end before its start",
            Self::NotEnded => "that had not ended",
        })
    }
}

/// What was read: jobs sorted by submission, the first of which is submitted at second 0.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// The jobs.
    pub jobs: Vec<TraceJob>,
    /// How many records became no job, and why.
    pub left_out: BTreeMap<LeftOut, usize>,
    /// How many steps had no job to belong to.
    pub steps: usize,
    /// How many jobs had a part of a GPU, which a trace counts as a whole one.
    pub shares: usize,
    /// How many jobs had the id of an earlier job, and so were given one of their own, like `7#2`.
    pub recurred: usize,
}

/// Reads files of one source as one trace. All jobs are held in memory, because no source is sorted by submission.
pub fn import(source: Source, files: &[PathBuf]) -> Result<Imported, TraceError> {
    let mut records = Records::default();
    match source {
        Source::Slurm(queue) => slurm::read(files, queue, &mut records)?,
        Source::Philly => files.iter().try_for_each(|file| philly::read(file, &mut records))?,
        Source::Helios => files.iter().try_for_each(|file| helios::read(file, &mut records))?,
        Source::Openb => files.iter().try_for_each(|file| openb::read(file, &mut records))?,
    }
    Ok(records.into_trace())
}

/// One job as its source records it, in seconds of the source's own clock.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    id: String,
    submit_s: i64,
    gpus: u32,
    /// Seconds of work; less than a second counts as one.
    duration_s: i64,
    queue: String,
    user: String,
    name: String,
    status: String,
}

impl Record {
    /// Trims the names: readers of a trace ignore space around them.
    fn trim(&mut self) {
        for text in [&mut self.id, &mut self.queue, &mut self.user, &mut self.name] {
            let bare = text.trim();
            if bare.len() < text.len() {
                *text = bare.to_owned();
            }
        }
    }
}

/// The records read so far.
#[derive(Debug, Default)]
struct Records {
    kept: Vec<Record>,
    left_out: BTreeMap<LeftOut, usize>,
    steps: usize,
    shares: usize,
}

impl Records {
    fn leave_out(&mut self, why: LeftOut) {
        *self.left_out.entry(why).or_default() += 1;
    }

    fn into_trace(mut self) -> Imported {
        self.kept.iter_mut().for_each(Record::trim);
        // Stable: jobs of the same second stay in the order of their source.
        self.kept.sort_by_key(|record| record.submit_s);
        let first_s = self.kept.first().map_or(0, |record| record.submit_s);
        let mut names = Names::of(&self.kept);
        let jobs = self.kept.into_iter().map(|record| {
            let id = names.unique(record.id);
            let queue = if record.queue.is_empty() { "all".into() } else { record.queue };
            let Record { gpus, user, name, .. } = record;
            let arrival = Arrival { id, submit_s: record.submit_s - first_s, gpus, queue, user, name };
            TraceJob { arrival, fate: Fate::new(record.duration_s.max(1), record.status) }
        });
        let jobs = jobs.collect();
        let Self { left_out, steps, shares, .. } = self;
        Imported { jobs, left_out, steps, shares, recurred: names.recurred }
    }
}

/// Makes names unique.
struct Names {
    /// How many jobs had each name so far. All names of the source are in it from the start, so that a made-up name
    /// equals none of them.
    times: BTreeMap<String, u32>,
    recurred: usize,
}

impl Names {
    fn of(records: &[Record]) -> Self {
        Self { times: records.iter().map(|record| (record.id.clone(), 0)).collect(), recurred: 0 }
    }

    /// The second `7` becomes `7#2`. It is not `7~2`, because a replay that repeats its jobs calls copies of `7` so.
    fn unique(&mut self, id: String) -> String {
        let mut times = self.times.get(&id).copied().unwrap_or_default() + 1;
        let mut name = id.clone();
        if times > 1 {
            self.recurred += 1;
            name = format!("{id}#{times}");
            while self.times.contains_key(&name) {
                times += 1;
                name = format!("{id}#{times}");
            }
            self.times.insert(name.clone(), 1);
        }
        self.times.insert(id, times);
        name
    }
}

#[cfg(test)]
mod tests;
