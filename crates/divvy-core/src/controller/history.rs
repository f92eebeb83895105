//! What history keeps of an attempt, gathered when its end is folded.

use crate::engine::TaskEnd;
use crate::event::{Event, seen_end};
use crate::id::JobId;
use crate::model::allocation::Placement;
use crate::model::attempt::Attempt;
use crate::model::job::{Cause, JobSpec, JobState, LastEnd, RUN_ME_AGAIN, Work};
use crate::state::{Job, Run, State};
use crate::time::{Span, Time};

/// The attempts that an event ends; the state is as it was before.
pub(super) fn attempt_of(state: &State, event: &Event, now: Time) -> Option<Vec<Attempt>> {
    match event {
        Event::AttemptEnded { job, end, exit_code, state: becomes, ended_at } => {
            let now = seen_end(*ended_at, now);
            let (owner, run) = (state.jobs.get(&job.number)?, state.run(*job)?);
            Some(vec![attempt(
                state,
                owner,
                (*job, run),
                Ending { end, exit_code: Some(*exit_code), becomes: *becomes, now },
            )])
        }
        Event::Dropped { job, end, state: becomes } => {
            let owner = state.jobs.get(&job.number)?;
            let members = match job.member {
                Some(member) => vec![Some(member)],
                None => owner.open_members().collect(),
            };
            let dropped = members
                .into_iter()
                .filter_map(|member| Some((JobId { number: job.number, member }, owner.run(member)?)));
            let waiting = dropped.filter(|(_, run)| !run.is_active());
            let ending = || Ending { end, exit_code: None, becomes: *becomes, now };
            Some(waiting.map(|(id, run)| attempt(state, owner, (id, &run), ending())).collect())
        }
        _ => None,
    }
}

/// How the attempt ends.
struct Ending<'a> {
    end: &'a LastEnd,
    exit_code: Option<i32>,
    becomes: JobState,
    now: Time,
}

fn attempt(state: &State, job: &Job, (id, run): (JobId, &Run), ending: Ending) -> Attempt {
    let spec = &job.spec;
    let ends = || run.over.iter().map(|(_, end)| end);
    let node = |id| state.nodes.get(&id).map(|node| node.spec.name.clone());
    let mut nodes: Vec<String> = run.placements.iter().filter_map(|placement| node(placement.node)).collect();
    nodes.dedup();
    let devices = run.placements.iter().flat_map(|placement| &placement.devices);
    // A job whose alternatives have different numbers of devices is recorded with the one that it got; a gang that grows and
    // shrinks, with what it had in the end.
    let varies = spec.has_counts() || spec.gang.is_elastic();
    let (gpus, gpu_milli, tasks) = match varies && !run.placements.is_empty() {
        true => {
            let milli = run.placements.iter().map(Placement::milli).sum();
            (devices.clone().count() as u32, milli, run.placements.len() as u32)
        }
        false => (spec.devices_asked(), spec.milli_asked(), spec.gang.tasks()),
    };
    Attempt {
        job: id,
        attempt: run.attempt,
        name: spec.name.clone(),
        user: job.owner.name.clone(),
        uid: job.owner.uid,
        queue: spec.queue.clone(),
        project: spec.project.clone(),
        kind: spec.kind,
        labels: spec.labels.clone(),
        priority: spec.priority,
        command: command(spec),
        submitted_at: job.submitted_at,
        started_at: began(run, ending.now),
        ended_at: ending.now,
        time_limit_ms: spec.time_limit.map(|limit| limit.0),
        state: ending.becomes,
        exit_code: ending.exit_code,
        failed_task: failed_task(run),
        end: ending.end.clone(),
        gpus,
        gpu_milli,
        tasks,
        nodes,
        devices: devices
            .filter_map(|(device, _)| Some(state.devices.get(device)?.spec.uuid.clone()))
            .collect(),
        held_milli_ms: run.held_milli_ms,
        lost_milli_ms: lost((spec, run), &ending),
        ran_ms: ends().map(|end| end.ran_ms).max().unwrap_or(0),
        cpu_ms: ends().map(|end| end.usage.cpu_ms).sum(),
        peak_memory_bytes: ends().map(|end| end.usage.peak_memory_bytes).max().unwrap_or(0),
        usage: ends().flat_map(|end: &TaskEnd| end.usage.devices.iter().cloned()).collect(),
        outputs: outputs(spec, run),
        isolation: run.isolation.clone(),
    }
}

/// The task whose failure ended the attempt: ends are kept in the order in which they were seen.
fn failed_task(run: &Run) -> Option<u32> {
    let told_to_stop = run.stopping.as_ref().is_some_and(|stopping| stopping.cause != Cause::BrokenGang);
    let mut failed = run.over.iter().filter(|(_, end)| !told_to_stop && end.how.is_failure());
    failed.next().map(|(rank, _)| *rank)
}

/// When an attempt began: if that was seen only once it was over, as long before its end as it ran.
fn began(run: &Run, ended: Time) -> Option<Time> {
    let seen = run.started_at?;
    let ran_ms = run.over.iter().map(|(_, end)| end.ran_ms).max().unwrap_or(0);
    let ran_from = || (ended - Span(ran_ms)).max(run.placed_at.unwrap_or(ended));
    Some(if seen > ended { ran_from() } else { seen })
}

/// Where the output of each task is, by rank: of a gang that grows, up to the last that had any.
fn outputs(spec: &JobSpec, run: &Run) -> Vec<Option<String>> {
    let ranks = run.outputs.last_key_value().map_or(0, |(last, _)| last + 1);
    (0..ranks.max(spec.gang.tasks())).map(|rank| run.outputs.get(&rank).cloned()).collect()
}

/// The work that has to be done again: none where the job does not come back, or has saved it at the end.
fn lost((spec, run): (&JobSpec, &Run), ending: &Ending) -> i64 {
    let comes_back = ending.becomes == JobState::Pending && run.started_at.is_some();
    if !comes_back || ending.end.cause == Cause::Checkpointed || ending.exit_code == Some(RUN_ME_AGAIN) {
        return 0;
    }
    let milli: i64 = run.placements.iter().map(Placement::milli).sum();
    let since = run.checkpointed_at.or(run.started_at);
    let unsaved_ms = since.map_or(0, |since| ending.now.since(since).0);
    let lost = unsaved_ms.min(spec.loses_at_most_ms().unwrap_or(i64::MAX)).saturating_mul(milli);
    // Tasks that joined their gang later have not run for as long: no more is lost than was held.
    if spec.gang.is_elastic() { lost.min(run.held_milli_ms) } else { lost }
}

fn command(spec: &JobSpec) -> Vec<String> {
    let roles = spec.gang.roles();
    match roles.first().map(|role| &role.work) {
        Some(Work::Process(process)) => process.argv.clone(),
        _ => Vec::new(),
    }
}
