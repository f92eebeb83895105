//! Ends: when running jobs can be expected to end.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::{JobId, NodeId};
use crate::model::ask::DeviceAsk;
use crate::model::job::JobSpec;
use crate::snapshot::{DeviceView, NodeView, Snapshot};
use crate::state::{Run, Runs, State};
use crate::time::Time;

/// When a running job (or member) can be expected to end: within its grace if it is being stopped; else by its estimate, once that is past
/// by its time limit; and no later than the calendar stops it. `None` if nobody knows, or if it is overdue.
pub fn expected_end(state: &State, id: JobId) -> Option<Time> {
    let job = state.jobs.get(&id.number)?;
    let run = job.run(id.member)?;
    if run.stopping.is_some() {
        let live = run.live.iter().filter_map(|id| state.allocations.get(id));
        let latest = live.filter_map(|held| held.stops_by).max()?.max(state.now);
        return state.should_have_ended(id).is_none().then_some(latest);
    }
    let started = run.started_at.or(run.placed_at)?;
    let foreseen = job.estimate.as_ref().map(|estimate| estimate.p50_ms);
    let said = job.spec.estimate.map(|span| span.0);
    let before = run.done_before_ms(&job.spec);
    let lengths =
        [foreseen.map(|ms| ms - before), said.map(|ms| ms - before), job.spec.time_limit.map(|span| span.0)];
    let stopped = state.stopped_for(id).map(|kept| kept.from);
    let ends = lengths.into_iter().flatten().map(|ms| Time(started.0.saturating_add(ms))).chain(stopped);
    ends.filter(|at| *at > state.now).min()
}

/// All jobs that hold devices or hosts, in the order in which they can be expected to end: unknown ends come last.
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

/// The ends that make room for the tasks of a job first, node by node: what to look at in a pool where not all sets of ends
/// can be tried. By the first alternative of its first role.
pub(crate) fn clearing(state: &State, snapshot: &Snapshot, spec: &JobSpec) -> BTreeSet<JobId> {
    let roles = spec.gang.roles();
    let ask = roles.first().and_then(|role| role.ask.alternatives.first()?.devices.as_ref());
    let Some(ask) = ask.filter(|ask| ask.count > 0) else { return BTreeSet::new() };
    let mut on_node: BTreeMap<NodeId, Vec<(i64, JobId, u32)>> = BTreeMap::new();
    for held in state.allocations.values().filter(|held| !held.placement.devices.is_empty()) {
        let at = expected_end(state, held.job).map_or(i64::MAX, |at| at.0);
        let count = held.placement.devices.len() as u32;
        on_node.entry(held.placement.node).or_default().push((at, held.job, count));
    }
    let nodes = snapshot.capacity.nodes.iter().filter(|node| node.takes_tasks);
    let mut slots: Vec<(i64, NodeId, u32, Vec<JobId>)> = Vec::new();
    for node in nodes {
        slots.extend(slots_of(node, ask, on_node.remove(&node.id).unwrap_or_default()));
    }
    slots.sort();
    slots.into_iter().take(spec.gang.tasks() as usize).flat_map(|(.., jobs)| jobs).collect()
}

/// When a node has room for the first, second, … task, and which jobs have to end for each.
fn slots_of(
    node: &NodeView,
    ask: &DeviceAsk,
    mut held: Vec<(i64, JobId, u32)>,
) -> Vec<(i64, NodeId, u32, Vec<JobId>)> {
    let is_right = |device: &&DeviceView| device.unusable.is_none() && ask.class.takes(&device.spec);
    let right = node.devices.iter().filter(is_right).count() as u32;
    let mut free = node.devices.iter().filter(is_right).filter(|device| device.is_free()).count() as u32;
    held.sort_unstable();
    let (mut slots, mut jobs, mut number) = (Vec::new(), Vec::new(), 0);
    while free >= ask.count * (number + 1) {
        number += 1;
        slots.push((i64::MIN, node.id, number, Vec::new()));
    }
    for (at, job, count) in held {
        free = (free + count).min(right);
        jobs.push(job);
        while free >= ask.count * (number + 1) {
            number += 1;
            slots.push((at, node.id, number, jobs.clone()));
        }
    }
    slots
}
