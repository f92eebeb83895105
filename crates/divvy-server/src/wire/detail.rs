//! One job with all its details.

use divvy_api as api;
use divvy_core::engine::{Isolation, TaskEnd};
use divvy_core::id::JobId;
use divvy_core::model::allocation::{AllocationState, Placement};
use divvy_core::model::ask::{Ask, DrawAsk};
use divvy_core::model::attempt::Attempt;
use divvy_core::model::gang::Role;
use divvy_core::model::job::{DependsOn, JobSpec, Process, Requeue, Submission, Work};
use divvy_core::state::{Allocation, Job, Run, State};
use divvy_core::time::Time;

use super::{row, usage};

/// What keeps a task within its allocation.
pub(crate) fn isolation(isolation: &Isolation) -> api::Isolation {
    match isolation {
        Isolation::Enforced => api::Isolation { level: api::IsolationLevel::Enforced, reason: None },
        Isolation::Advisory(reason) => {
            api::Isolation { level: api::IsolationLevel::Advisory, reason: Some(reason.to_string()) }
        }
    }
}

/// Returns the word for when a job goes back into its queue.
pub(crate) fn requeue(requeue: Requeue) -> &'static str {
    match requeue {
        Requeue::Never => "never",
        Requeue::Lost => "lost",
        Requeue::Failure => "failure",
    }
}

/// A job as listed, without any detail.
pub(crate) fn bare(job: api::Job) -> api::JobDetail {
    api::JobDetail {
        job,
        argv: Vec::new(),
        directory: None,
        roles: Vec::new(),
        estimate_ms: None,
        foreseen_ms: None,
        foreseen_p90_ms: None,
        after: Vec::new(),
        start_after_ms: None,
        deadline_ms: None,
        requeue: String::new(),
        preemptible: false,
        stop: None,
        checkpoint: None,
        resumable: false,
        exclusive: false,
        saved_ms: None,
        stopped_for: None,
        isolation: None,
        output: None,
        attempts: Vec::new(),
        last_lines: Vec::new(),
    }
}

/// Returns the details of a job that has not ended, without its past attempts.
pub(crate) fn open(state: &State, job: &Job, (id, run): (JobId, &Run), private: bool) -> api::JobDetail {
    let mut detail = bare(row::open(state, job, (id, run), None, private));
    put_wanted(&mut detail, &job.spec, private);
    // A length that the user gave is not a forecast.
    if let Some(estimate) = job.estimate.as_ref().filter(|_| job.spec.estimate.is_none()) {
        (detail.foreseen_ms, detail.foreseen_p90_ms) = (Some(estimate.p50_ms), Some(estimate.p90_ms));
    }
    detail.isolation = run.isolation.as_ref().map(isolation);
    detail.saved_ms = run.checkpointed_at.map(|at| at.0);
    detail.stopped_for = super::explain::stopped_for(state, id);
    if private {
        detail.argv = row::argv(job);
        detail.output = run.outputs.get(&0).cloned();
    }
    if run.is_active() {
        detail.attempts.push(running(state, job, run, private));
    }
    detail
}

/// Fills in what the user asked for.
fn put_wanted(detail: &mut api::JobDetail, spec: &JobSpec, private: bool) {
    detail.roles = spec.gang.roles().into_iter().map(role).collect();
    detail.estimate_ms = spec.estimate.map(|span| span.0);
    detail.after =
        spec.after.iter().map(|dependency| format!("{}:{}", dependency.job, on(dependency.on))).collect();
    detail.start_after_ms = spec.start_after.map(|at| at.0);
    detail.deadline_ms = spec.deadline.said().map(|at| at.0);
    detail.requeue = requeue(spec.requeue).to_owned();
    detail.preemptible = spec.preemptible;
    detail.resumable = spec.resumable;
    detail.exclusive = spec.exclusive;
    detail.checkpoint = spec.checkpoint.as_ref().map(|checkpoint| api::CheckpointDetail {
        notice: checkpoint.notice.clone(),
        grace_ms: checkpoint.grace_ms,
        every_ms: checkpoint.every_ms,
    });
    detail.stop =
        Some(api::StopDetail { signal: spec.stop.signal.to_string(), grace_ms: spec.stop.grace_ms });
    detail.directory = first_process(spec).filter(|_| private).map(|process| process.directory.clone());
}

fn first_process(spec: &JobSpec) -> Option<&Process> {
    spec.gang.roles().into_iter().find_map(|role| match &role.work {
        Work::Process(process) => Some(process),
        Work::External(_) => None,
    })
}

fn on(on: DependsOn) -> &'static str {
    match on {
        DependsOn::Ok => "ok",
        DependsOn::Fail => "fail",
        DependsOn::Any => "any",
    }
}

fn role(role: &Role) -> api::RoleDetail {
    let ask = role.ask.alternatives.first();
    let devices = ask.and_then(|ask| ask.devices.as_ref());
    api::RoleDetail {
        name: role.name.clone(),
        tasks: role.minimum,
        max_tasks: role.maximum,
        gpus: devices.filter(|devices| devices.draw == DrawAsk::Whole).map_or(0, |devices| devices.count),
        devices: super::explain::classes(&role.ask, ","),
        ways: if role.ask.has_counts() { ways(&role.ask) } else { Vec::new() },
        cpu_milli: ask.and_then(|ask| ask.cpu_milli),
        memory_bytes: ask.and_then(|ask| ask.memory_bytes),
    }
}

fn ways(ask: &Ask) -> Vec<api::WayDetail> {
    let devices = ask.alternatives.iter().filter_map(|way| way.devices.as_ref());
    devices.map(|ask| api::WayDetail { gpus: ask.count, devices: ask.class.to_string() }).collect()
}

/// Returns the attempt that runs now.
fn running(state: &State, job: &Job, run: &Run, private: bool) -> api::Attempt {
    let so_far = usage::held_milli_ms(state, run, state.now);
    api::Attempt {
        attempt: run.attempt,
        placed_ms: run.placed_at.map(|at| at.0),
        started_ms: run.started_at.map(|at| at.0),
        ended_ms: None,
        end: None,
        exit_code: None,
        gpu_seconds: so_far as f64 / 1e6,
        lost_gpu_seconds: 0.0,
        peak_gpu_memory_mib: None,
        peak_memory_bytes: None,
        mean_utilization_percent: None,
        tasks: run
            .placements
            .iter()
            .map(|placement| {
                let output = run.outputs.get(&placement.rank).filter(|_| private).cloned();
                api::Task { output, ..task(state, job, run, placement) }
            })
            .collect(),
    }
}

/// Returns a task of the attempt that runs now, without the path of its output.
fn task(state: &State, job: &Job, run: &Run, placement: &Placement) -> api::Task {
    let held = state.allocations.get(&placement.allocation);
    let ended = run.over.iter().find(|(rank, _)| *rank == placement.rank).map(|(_, end)| end);
    let device = |id: &divvy_core::id::DeviceId| {
        let spec = &state.devices.get(id)?.spec;
        Some(api::TaskDevice { index: spec.index, uuid: spec.uuid.clone(), ..api::TaskDevice::default() })
    };
    let word = match held.map(|held| held.state) {
        _ if held.is_some_and(|held| !held.overdue_since.is_unsaid()) => "overdue",
        Some(AllocationState::Promised) => "promised",
        Some(AllocationState::Starting) => "starting",
        Some(AllocationState::Held) => "running",
        Some(AllocationState::Paused) => "paused",
        Some(AllocationState::Stopping) => "stopping",
        None => "ended",
    };
    let (exit_code, signal) = ended.map_or((None, None), |end| match end.how {
        divvy_core::engine::EndedHow::Exited(code) => (Some(code), None),
        divvy_core::engine::EndedHow::Signalled(signal) => (None, Some(signal)),
        _ => (None, None),
    });
    api::Task {
        task: placement.rank,
        role: role_of(job, placement.rank),
        state: word.to_owned(),
        node: state.nodes.get(&placement.node).map(|node| node.spec.name.clone()).unwrap_or_default(),
        devices: placement.devices.iter().filter_map(|(id, _)| device(id)).collect(),
        cpu_milli: placement.cpu_milli,
        memory_bytes: placement.memory_bytes,
        pid: None,
        started_ms: started(job, run, held, ended).map(|at| at.0),
        ended_ms: ended.map(|end| end.at.0),
        exit_code,
        signal,
        output: None,
        isolation: run.isolation.as_ref().map(isolation),
    }
}

/// Returns when a task began: with its gang, or, where it joined the gang later, when it got its devices.
fn started(job: &Job, run: &Run, held: Option<&Allocation>, ended: Option<&TaskEnd>) -> Option<Time> {
    let with_gang = run.started_at?;
    match (held, ended) {
        (Some(held), _) => task_started(job, run, held),
        (None, Some(end)) if job.spec.gang.is_elastic() && end.ran_ms > 0 => {
            Some(with_gang.max(Time(end.at.0 - end.ran_ms)))
        }
        (None, _) => Some(with_gang),
    }
}

/// Returns the same for a task that has its devices; `None` while it is starting.
pub(crate) fn task_started(job: &Job, run: &Run, held: &Allocation) -> Option<Time> {
    let with_gang = run.started_at.filter(|_| held.state != AllocationState::Starting)?;
    // An adopted job ran before it was held here, and a gang that grows is never adopted.
    Some(if job.spec.gang.is_elastic() { with_gang.max(held.since) } else { with_gang })
}

fn role_of(job: &Job, rank: u32) -> String {
    job.spec.gang.role_of(rank).map(|(role, _)| role.name.clone()).unwrap_or_default()
}

/// Returns the details of a job that has ended, from its last attempt and its submission, if known.
pub(crate) fn ended(attempt: &Attempt, submission: Option<&Submission>, private: bool) -> api::JobDetail {
    let mut detail = bare(row::ended(attempt, private));
    if let Some(submission) = submission {
        put_wanted(&mut detail, &submission.spec, private);
    }
    detail.isolation = attempt.isolation.as_ref().map(isolation);
    if private {
        detail.argv = attempt.command.clone();
        detail.output = attempt.outputs.first().cloned().flatten();
    }
    detail
}

/// An attempt that is over.
pub(crate) fn over(attempt: &Attempt) -> api::Attempt {
    let watched: i64 = attempt.usage.iter().map(|device| device.watched_ms).sum();
    let busy: i64 = attempt
        .usage
        .iter()
        .map(|device| device.watched_ms * i64::from(device.mean_utilization_percent))
        .sum();
    api::Attempt {
        attempt: attempt.attempt,
        placed_ms: None,
        started_ms: attempt.started_at.map(|at| at.0),
        ended_ms: Some(attempt.ended_at.0),
        end: Some(row::last_end(&attempt.end)),
        exit_code: attempt.exit_code,
        gpu_seconds: attempt.held_milli_ms as f64 / 1e6,
        lost_gpu_seconds: attempt.lost_milli_ms as f64 / 1e6,
        peak_gpu_memory_mib: attempt.usage.iter().map(|device| device.peak_memory_mib).max(),
        peak_memory_bytes: u64::try_from(attempt.peak_memory_bytes).ok().filter(|bytes| *bytes > 0),
        mean_utilization_percent: (watched > 0).then(|| busy as f64 / watched as f64),
        tasks: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use divvy_core::scenario::Scenario;

    use super::*;

    const HOUR_S: f64 = 3600.0;

    /// A gang that has run with one task for ten hours, and with three for the last two hours.
    fn grown() -> Scenario {
        let mut pool = Scenario::new();
        let before = ["policy {elastic: true, half_life: none}", "node n1 3xh100", "submit other default 2"];
        let then = [
            "plan",
            "submit gang default 1 tasks=1..3",
            "plan",
            "pass 10h",
            "end other",
            "plan",
            "pass 2h",
            "submit later default 1",
        ];
        before.iter().chain(&then).for_each(|line| pool.line(line).unwrap());
        pool
    }

    #[test]
    fn a_gang_that_grew_has_held_what_its_tasks_held() {
        let pool = grown();
        let (state, id) = (pool.state(), JobId::single(2));
        let (job, run) = (&state.jobs[&2], state.run(id).unwrap());
        let shown = running(state, job, run, true);
        assert_eq!(shown.gpu_seconds, 16.0 * HOUR_S);
        let started: Vec<_> = shown.tasks.iter().map(|task| task.started_ms.unwrap() as f64 / 1e3).collect();
        assert_eq!(started, [0.0, 10.0 * HOUR_S, 10.0 * HOUR_S]);
        let lost = divvy_core::explain::lost_so_far(state, (&job.spec, run));
        assert_eq!(lost as f64 / 1e6, 16.0 * HOUR_S);
    }

    #[test]
    fn a_task_that_starts_has_not_started() {
        let pool = grown();
        let (job, mut state) = (&pool.state().jobs[&2], pool.state().clone());
        let run = state.run(JobId::single(2)).unwrap().clone();
        let last = *run.live.last().unwrap();
        state.allocations.get_mut(&last).unwrap().state = AllocationState::Starting;
        let shown = running(&state, job, &run, true);
        let started: Vec<bool> = shown.tasks.iter().map(|task| task.started_ms.is_some()).collect();
        assert_eq!(started, [true, true, false]);
    }
}
