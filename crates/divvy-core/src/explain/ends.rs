//! Ends: when what runs can be expected to end.

use crate::id::JobId;
use crate::state::{Run, Runs, State};
use crate::time::Time;

/// When a running job (or member) can be expected to end: at once if it is being stopped; else by its estimate, once that is past
/// by its time limit. `None` if nobody knows.
pub fn expected_end(state: &State, id: JobId) -> Option<Time> {
    let job = state.jobs.get(&id.number)?;
    let run = job.run(id.member)?;
    if let Some(stopping) = &run.stopping {
        return Some(Time(state.now.0.saturating_add(stopping.order.grace_ms)));
    }
    let started = run.started_at.or(run.placed_at)?;
    let foreseen = job.estimate.as_ref().map(|estimate| estimate.p50_ms);
    let said = job.spec.estimate.map(|span| span.0);
    let before = run.attained_ms;
    let lengths =
        [foreseen.map(|ms| ms - before), said.map(|ms| ms - before), job.spec.time_limit.map(|span| span.0)];
    let ends = lengths.into_iter().flatten().map(|ms| Time(started.0.saturating_add(ms)));
    ends.filter(|at| *at > state.now).min()
}

/// All that hold devices or hosts, as they can be expected to end: those of which nobody knows come last.
pub(crate) fn in_order(state: &State) -> Vec<JobId> {
    let mut active: Vec<JobId> =
        state.jobs.values().flat_map(|job| active_runs(job.number, &job.runs)).collect();
    active.sort_by_cached_key(|job| (expected_end(state, *job).map_or(i64::MAX, |at| at.0), *job));
    active
}

fn active_runs(number: u64, runs: &Runs) -> Vec<JobId> {
    let holds = |run: &Run| run.is_active() && !run.live.is_empty();
    match runs {
        Runs::Single(run) => holds(run).then_some(JobId::single(number)).into_iter().collect(),
        Runs::Array(array) => {
            let touched = array.touched.iter().filter(|(_, run)| holds(run));
            touched.map(|(member, _)| JobId::member(number, *member)).collect()
        }
    }
}
