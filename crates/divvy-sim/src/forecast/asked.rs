//! How accurate forecasts are: a trace is replayed, and some of its jobs are asked about at their submission.

use std::collections::{BTreeMap, BTreeSet};

use divvy_core::controller::Broken;
use divvy_core::id::JobId;
use divvy_core::state::{Job, State};
use divvy_core::time::Time;
use divvy_insight::{Lengths, Likeness};

use super::{Bounds, Expected, Experience, Known, forecast};
use crate::engine::Costs;
use crate::metrics::{Cut, Finished};
use crate::replay::{Onlooker, Replay, ReplayError, replay_before};
use crate::trace::jobs::TraceJob;

/// Which jobs to ask about, and how far to look.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// One in this many jobs is asked about.
    pub every: usize,
    /// How far each forecast looks.
    pub bounds: Bounds,
}

/// What was said at a job's submission, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The job's place in the trace.
    pub row: usize,
    /// When it was submitted.
    pub at: Time,
    /// What was drawn; `None` where the job starts in less than half of the futures.
    pub drawn: Option<Expected>,
    /// What was answered, with what was learned from earlier errors.
    pub said: Option<Expected>,
    /// When it started.
    pub started_at: Time,
}

/// Replays a trace and asks, using only what the pool has shown up to then (class P).
pub fn ask(
    setup: Replay<'_>,
    jobs: &[TraceJob],
    what: Ask,
    progress: impl FnMut(usize),
) -> Result<Vec<Asked>, ReplayError> {
    let costs = Costs { start_ms: 0, restart_ms: setup.restart_ms };
    let mut asker = Asker {
        jobs,
        what,
        costs,
        lengths: Lengths::default(),
        experience: Experience::default(),
        open: BTreeMap::new(),
        new: BTreeSet::new(),
        waiting: BTreeMap::new(),
        asked: Vec::new(),
    };
    replay_before(&mut asker, setup, jobs, progress)?;
    asker.asked.sort_by_key(|asked| (asked.at, asked.row));
    Ok(asker.asked)
}

/// Asks while a trace is replayed.
struct Asker<'a> {
    jobs: &'a [TraceJob],
    what: Ask,
    costs: Costs,
    lengths: Lengths,
    experience: Experience,
    /// The row of each job that has not ended.
    open: BTreeMap<u64, usize>,
    /// Jobs that have just arrived and are to be asked about.
    new: BTreeSet<u64>,
    /// The answers for jobs that have not started.
    waiting: BTreeMap<u64, Asked>,
    asked: Vec<Asked>,
}

impl Asker<'_> {
    fn likeness(&self, row: usize) -> Likeness {
        let job = &self.jobs[row].arrival;
        let (queue, user, name) = (job.queue.clone(), job.user.clone(), job.name.clone());
        Likeness { queue, user, name, devices: job.gpus }
    }
}

impl Onlooker for Asker<'_> {
    fn arrived(&mut self, number: u64, row: usize) {
        self.open.insert(number, row);
        if row.is_multiple_of(self.what.every.max(1)) {
            self.new.insert(number);
        }
    }

    fn started(&mut self, number: u64, at: Time) {
        if let Some(asked) = self.waiting.remove(&number) {
            self.experience.started(JobId::single(number), at);
            self.asked.push(Asked { started_at: at, ..asked });
        }
    }

    fn ended(&mut self, number: u64, finished: Finished) {
        self.open.remove(&number);
        self.lengths.note_end(&self.likeness(finished.row), finished.duration_s * 1000);
    }

    fn cut(&mut self, number: u64, cut: Cut) {
        self.open.remove(&number);
        self.lengths.note_end(&self.likeness(cut.row), cut.worked_s.max(1) * 1000);
    }

    fn about_to_decide(&mut self, state: &State, now: Time) -> Result<(), Broken> {
        let new = std::mem::take(&mut self.new);
        if new.is_empty() {
            return Ok(());
        }
        let row_of = |job: &Job| self.open.get(&job.number).copied().unwrap_or(0);
        let likeness = |job: &Job| self.likeness(row_of(job));
        let known = Known { state, now, lengths: &self.lengths, likeness: &likeness, costs: self.costs };
        let wanted = new.iter().map(|number| JobId::single(*number)).collect();
        let found = forecast(&known, &wanted, &self.what.bounds, &|| false)?;
        for number in new {
            let (Some(row), job) = (self.open.get(&number).copied(), JobId::single(number)) else { continue };
            let waits_ms = found.waits_ms(job);
            let (drawn, said) = (Expected::drawn(&waits_ms), self.experience.expect(now, &waits_ms));
            self.experience.remember(job, now, &waits_ms);
            self.waiting.insert(number, Asked { row, at: now, drawn, said, started_at: now });
        }
        Ok(())
    }
}

impl Asked {
    /// How long it waited, in milliseconds.
    pub fn wait_ms(&self) -> i64 {
        self.started_at.since(self.at).0
    }
}

/// Where a start lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// Before the interval.
    Before,
    /// Inside.
    Inside,
    /// After it.
    After,
}

impl Expected {
    /// Returns where a start after this wait lies, to the second: traces know no less.
    pub fn truth(&self, wait_ms: i64) -> Truth {
        if wait_ms + 999 < self.low_ms {
            Truth::Before
        } else if self.high_ms.is_some_and(|high_ms| wait_ms > high_ms + 999) {
            Truth::After
        } else {
            Truth::Inside
        }
    }
}
