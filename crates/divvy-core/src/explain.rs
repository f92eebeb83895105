//! Explaining: for one job, all that keeps it waiting, in order, and its way through the devices. Pure, computed on demand.

use crate::id::JobId;
use crate::model::job::{JobSpec, JobState};
use crate::plan::{self, Funnel};
use crate::reason::{Reason, Verdict};
use crate::snapshot::Snapshot;
use crate::state::{Job, Run, Runs, State};

/// Why a job waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// What the planner thinks of it.
    pub verdict: Verdict,
    /// All that keeps it waiting; what must go first comes first.
    pub blockers: Vec<Reason>,
    /// Its way through the devices; empty for a job without any.
    pub funnel: Funnel,
    /// How many jobs (arrays count once) go before it; `None` for one that is not in the line.
    pub position: Option<usize>,
}

/// Explains a job (member) that waits. `None` if there is none.
pub fn explain(state: &State, snapshot: &Snapshot, id: JobId) -> Option<Explanation> {
    let job = state.jobs.get(&id.number)?;
    let run = run_of(job, id)?;
    let (capacity, funnel) = plan::blockers(state, snapshot, &job.spec);
    let mut blockers = own(state, job, &run);
    blockers.extend(state.verdicts.get(&job.class).filter(|reason| **reason == Reason::InLine).cloned());
    blockers.extend(capacity);
    let verdict = blockers.iter().map(Reason::verdict).min().unwrap_or(Verdict::Fit);
    Some(Explanation { verdict, blockers, funnel, position: position(snapshot, job) })
}

/// Explains a job that was not submitted.
pub fn explain_spec(state: &State, snapshot: &Snapshot, spec: &JobSpec) -> Explanation {
    let (blockers, funnel) = plan::blockers(state, snapshot, spec);
    let verdict = blockers.iter().map(Reason::verdict).min().unwrap_or(Verdict::Fit);
    Explanation { verdict, blockers, funnel, position: None }
}

fn run_of(job: &Job, id: JobId) -> Option<Run> {
    match (&job.runs, id.member) {
        (Runs::Array(_), None) => {
            job.run(job.waiting_members().next().or_else(|| job.open_members().next())?)
        }
        _ => job.run(id.member),
    }
}

/// What keeps the job back by itself.
fn own(state: &State, job: &Job, run: &Run) -> Vec<Reason> {
    let held = (run.state == JobState::Held).then(|| Reason::Held(run.held_by.clone().unwrap_or_default()));
    let mut own: Vec<Reason> = held.into_iter().chain(job.own_blockers(state, state.now)).collect();
    if let (Some(0), Runs::Array(array)) = (job.members_left(), &job.runs) {
        own.push(Reason::ArrayLimit(array.array.at_most.unwrap_or(0)));
    }
    own
}

/// The current reason of a waiting run, from the state alone (L6). `None` if it does not wait.
pub fn reason(state: &State, job: &Job, run: &Run) -> Option<Reason> {
    if run.is_active() {
        return None;
    }
    let first = own(state, job, run).into_iter().next();
    Some(first.or_else(|| state.verdicts.get(&job.class).cloned()).unwrap_or(Reason::NotPlanned))
}

/// How many jobs go before it, over all classes. Costs the number of waiting jobs.
fn position(snapshot: &Snapshot, job: &Job) -> Option<usize> {
    snapshot.waiting.contains(job.id()).then_some(())?;
    let key = snapshot.waiting.key_of(job.number)?;
    let before = |view: &crate::snapshot::ClassView| view.jobs.range(..key).count();
    Some(snapshot.waiting.classes.values().map(before).sum())
}
