//! What the lines of accounting say together: which of them are runs of one job.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::import::{LeftOut, Record, Records};
use crate::trace::{LONGEST_S, MOST_GPUS};

/// All lines, by the ids of their jobs in the order of their first line.
#[derive(Default)]
pub(super) struct Ledger {
    by_id: HashMap<String, usize>,
    ids: Vec<(String, BTreeMap<Key, Run>)>,
    /// Steps that were read before their job, if they have one: it may be in a later file.
    early_steps: HashSet<String>,
}

/// What is the same in each line about one run: its component (of a heterogeneous job), start, submission and user. Lines that
/// state no start go by submission: a requeued job is submitted anew.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    component: String,
    start: String,
    submit_s: Option<i64>,
    user: String,
}

/// What a line says.
pub(super) struct Run {
    /// Of a heterogeneous job; empty in others.
    pub(super) component: String,
    pub(super) submit_s: Option<i64>,
    /// As it is written; empty where there is no such column.
    pub(super) start: String,
    /// When it had ended or, if it had not, until when it is known to have run; as far as the line tells.
    pub(super) until_s: Option<i64>,
    pub(super) gpus: u32,
    pub(super) elapsed_s: i64,
    pub(super) started: bool,
    pub(super) ended: bool,
    pub(super) queue: String,
    pub(super) user: String,
    pub(super) name: String,
    pub(super) status: String,
}

impl Run {
    fn key(&self) -> Key {
        let Self { component, start, submit_s, user, .. } = self;
        Key { component: component.clone(), start: start.clone(), submit_s: *submit_s, user: user.clone() }
    }

    /// How much it tells of a run. Exports overlap and are read in any order: a line from the end of a run tells more than one from
    /// its middle, and this one more than one from before it.
    fn knowledge(&self) -> impl Ord + '_ {
        let Self { started, ended, elapsed_s, gpus, queue, name, status, .. } = self;
        (*started && *ended, *started, *ended, *elapsed_s, *gpus, (status, queue, name))
    }
}

impl Ledger {
    /// Notes a step, like `7.batch`.
    pub(super) fn note_step(&mut self, id: &str) {
        if !self.by_id.contains_key(job_of(id)) {
            self.early_steps.insert(id.to_owned());
        }
    }

    /// Notes a line of a job.
    pub(super) fn note(&mut self, id: &str, run: Run) {
        let at = *self.by_id.entry(id.to_owned()).or_insert(self.ids.len());
        if at == self.ids.len() {
            self.ids.push((id.to_owned(), BTreeMap::new()));
        }
        let runs = &mut self.ids[at].1;
        let key = run.key();
        if runs.get(&key).is_none_or(|known| known.knowledge() < run.knowledge()) {
            runs.insert(key, run);
        }
    }

    /// Makes the records of all jobs.
    pub(super) fn into_records(self, records: &mut Records) {
        let no_job = |step: &&String| !self.by_id.contains_key(job_of(step));
        records.steps = self.early_steps.iter().filter(no_job).count();
        for (id, runs) in self.ids {
            for runs in jobs(runs.into_values().collect()) {
                match record(&id, &runs) {
                    Ok(record) => records.kept.push(record),
                    Err(why) => records.leave_out(why),
                }
            }
        }
    }
}

/// A requeued job is submitted anew when its run ends; where it is submitted a day later, its id was given out again.
const REQUEUED_WITHIN_S: i64 = 86_400;

/// The runs of one id, job by job, each in the order of time.
fn jobs(mut runs: Vec<Run>) -> Vec<Vec<Run>> {
    runs.sort_by(|one, other| in_time(one).cmp(&in_time(other)));
    let mut jobs: Vec<Vec<Run>> = Vec::new();
    for run in runs {
        match jobs.iter_mut().rev().find(|job| is_of_job(&run, job)) {
            Some(job) => job.push(run),
            None => jobs.push(vec![run]),
        }
    }
    jobs
}

fn in_time(run: &Run) -> (Option<i64>, bool, &str, &str) {
    (run.submit_s, run.started, &run.start, &run.component)
}

/// Whether a run is of the same job as earlier ones: submitted with them, or requeued after them.
fn is_of_job(run: &Run, job: &[Run]) -> bool {
    let until_s = job.iter().filter_map(|earlier| earlier.until_s).max();
    let is_soon = run.submit_s.zip(until_s).is_none_or(|(at_s, until_s)| at_s <= until_s + REQUEUED_WITHIN_S);
    job.iter().any(|earlier| {
        let is_requeued = is_soon && earlier.component == run.component && earlier.name == run.name;
        earlier.user == run.user && (earlier.submit_s == run.submit_s || is_requeued)
    })
}

/// Makes the record of a job: runs of one component follow each other; components run side by side.
fn record(id: &str, runs: &[Run]) -> Result<Record, LeftOut> {
    let mut components: BTreeMap<&str, (u32, i64)> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.started) {
        let (gpus, elapsed_s) = components.entry(&run.component).or_default();
        *gpus = (*gpus).max(run.gpus);
        *elapsed_s = elapsed_s.saturating_add(run.elapsed_s).min(LONGEST_S);
    }
    let gpus = components.values().fold(0u32, |sum, (gpus, _)| sum.saturating_add(*gpus)).min(MOST_GPUS);
    let duration_s = components.values().map(|(_, elapsed_s)| *elapsed_s).max().unwrap_or_default();
    if runs.iter().all(|run| run.gpus == 0) {
        return Err(LeftOut::NoGpu);
    }
    let submit_s = runs.iter().filter_map(|run| run.submit_s).min().ok_or(LeftOut::NoSubmission)?;
    let first = runs.iter().find(|run| run.started).ok_or(LeftOut::NeverStarted)?;
    if runs.iter().any(|run| run.started && !run.ended) {
        return Err(LeftOut::NotEnded);
    }
    if gpus == 0 {
        return Err(LeftOut::NoGpu);
    }
    let (queue, user, name) = (first.queue.clone(), first.user.clone(), first.name.clone());
    let status = runs.last().map(|run| run.status.clone()).unwrap_or_default();
    Ok(Record { id: id.to_owned(), submit_s, gpus, duration_s, queue, user, name, status })
}

/// The job that a line of accounting belongs to: `7` for its step `7.batch` and for `7+1`, a component of it.
fn job_of(id: &str) -> &str {
    id.split(['.', '+']).next().unwrap_or(id)
}
