//! Jobs as `ps` lists them: open jobs from the state, ended jobs from history.

use divvy_api as api;
use divvy_core::explain;
use divvy_core::id::JobId;
use divvy_core::model::allocation::Placement;
use divvy_core::model::attempt::Attempt;
use divvy_core::model::job::{JobState, LastEnd, Work};
use divvy_core::reason::Reason;
use divvy_core::state::{Job, Run, State};

use crate::expected::Answer;
use crate::store::kind_name;

/// Returns a state as the API's word.
pub(crate) fn job_state(state: JobState) -> api::JobState {
    api::JobState::from(state.name())
}

/// Returns a reason as code and text, with what the pool knows beside it.
pub(crate) fn reason(state: &State, reason: &Reason) -> api::Reason {
    api::Reason { code: reason.code().to_owned(), text: explain::text(state, reason) }
}

/// Returns how an attempt ended.
pub(crate) fn last_end(end: &LastEnd) -> api::LastEnd {
    // The core's enum has the API's words: `time_limit`.
    let cause = serde_json::to_value(end.cause).ok().and_then(|word| word.as_str().map(api::Cause::from));
    api::LastEnd {
        cause: cause.unwrap_or(api::Cause::Other("unknown".into())),
        by: end.by.clone(),
        signal: end.signal,
        detail: end.detail.clone(),
    }
}

/// Returns a command line as one text, with each word quoted where a shell needs it.
pub(crate) fn command_line(argv: &[String]) -> String {
    let plain = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./=:,@%+".contains(&b))
    };
    let quoted =
        |word: &String| if plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', r"'\''")) };
    argv.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Returns program and arguments of the first role.
pub(crate) fn argv(job: &Job) -> Vec<String> {
    job.spec
        .gang
        .roles()
        .into_iter()
        .find_map(|role| match &role.work {
            Work::Process(process) => Some(process.argv.clone()),
            Work::External(_) => None,
        })
        .unwrap_or_default()
}

/// Returns a job (or member) that has not ended. `position` is its place among waiting jobs; `private` shows the command.
pub(crate) fn open(
    state: &State,
    job: &Job,
    (id, run): (JobId, &Run),
    position: Option<u64>,
    private: bool,
) -> api::Job {
    let spec = &job.spec;
    let (devices, nodes) = where_it_runs(state, run);
    // A gang that grows and shrinks, or a job that may have different numbers of devices or gets all that its nodes have, shows what it
    // has while it runs.
    let varies = spec.gang.is_elastic() || spec.has_counts() || spec.exclusive;
    let grown = Some(run).filter(|run| varies && run.is_active());
    let milli = grown.map(|run| held(state, run).map(|placement| placement.milli()).sum());
    api::Job {
        id: id.to_string(),
        name: spec.name.clone(),
        user: job.owner.name.clone(),
        queue: spec.queue.clone(),
        project: spec.project.clone(),
        labels: spec.labels.clone(),
        priority: spec.priority,
        state: job_state(run.state),
        gpus: grown.map_or_else(|| u64::from(spec.devices_asked()), |_| devices.len() as u64),
        gpu_milli: u64::try_from(milli.unwrap_or_else(|| spec.milli_asked())).unwrap_or(0),
        devices,
        nodes,
        tasks: grown.map_or_else(|| spec.gang.tasks(), |run| held(state, run).count() as u32),
        attempt: if run.is_active() { run.attempt } else { run.attempt.saturating_sub(1) },
        position,
        submitted_ms: job.submitted_at.0,
        started_ms: run.started_at.map(|at| at.0),
        ended_ms: None,
        time_limit_ms: spec.time_limit.map(|limit| limit.0),
        exit_code: None,
        last_end: run.last_end.as_ref().map(last_end),
        reason: explain::reason(state, job, (id, run)).map(|why| reason(state, &why)),
        kind: kind_name(spec.kind).to_owned(),
        command: private.then(|| command_line(&argv(job))),
        start: api::ExpectedStart::default(),
    }
}

/// The places that a run still has: a task that has ended left its own.
fn held<'a>(state: &'a State, run: &'a Run) -> impl Iterator<Item = &'a Placement> {
    run.placements.iter().filter(|placement| state.allocations.contains_key(&placement.allocation))
}

/// Returns UUIDs and nodes of the places that a run has, each node once.
pub(crate) fn where_it_runs(state: &State, run: &Run) -> (Vec<String>, Vec<String>) {
    let drawn = held(state, run).flat_map(|placement| &placement.devices);
    let devices =
        drawn.filter_map(|(device, _)| Some(state.devices.get(device)?.spec.uuid.clone())).collect();
    let node = |placement: &Placement| Some(state.nodes.get(&placement.node)?.spec.name.clone());
    let mut nodes: Vec<String> = held(state, run).filter_map(node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    (devices, nodes)
}

/// A job (or member) that has ended, by its last attempt.
pub(crate) fn ended(attempt: &Attempt, private: bool) -> api::Job {
    let ran = attempt.started_at.is_some() || !attempt.devices.is_empty() || attempt.exit_code.is_some();
    api::Job {
        id: attempt.job.to_string(),
        name: attempt.name.clone(),
        user: attempt.user.clone(),
        queue: attempt.queue.clone(),
        project: attempt.project.clone(),
        labels: attempt.labels.clone(),
        priority: attempt.priority,
        state: job_state(attempt.state),
        gpus: u64::from(attempt.gpus),
        gpu_milli: u64::try_from(attempt.gpu_milli).unwrap_or(0),
        devices: attempt.devices.clone(),
        nodes: attempt.nodes.clone(),
        tasks: attempt.tasks,
        attempt: if ran { attempt.attempt } else { attempt.attempt.saturating_sub(1) },
        position: None,
        submitted_ms: attempt.submitted_at.0,
        started_ms: attempt.started_at.map(|at| at.0),
        ended_ms: Some(attempt.ended_at.0),
        time_limit_ms: attempt.time_limit_ms,
        exit_code: attempt.exit_code,
        last_end: Some(last_end(&attempt.end)),
        reason: None,
        kind: kind_name(attempt.kind).to_owned(),
        command: private.then(|| command_line(&attempt.command)),
        start: api::ExpectedStart::default(),
    }
}

/// When a job that waits is expected to start, or why nobody can say.
pub(crate) fn expected_start(start: Answer) -> api::ExpectedStart {
    api::ExpectedStart {
        expected_start_ms: start.at.map(|at| at.0),
        expected_start_low_ms: start.low.map(|at| at.0),
        expected_start_high_ms: start.high.map(|at| at.0),
        expected_start_by: Some(start.by).filter(|by| !by.is_empty()),
    }
}

/// The answer to a wait for a job that has ended.
pub(crate) fn waited(id: JobId, attempt: &Attempt) -> api::Waited {
    api::Waited {
        id: id.to_string(),
        state: job_state(attempt.state),
        ended: true,
        exit_code: attempt.exit_code,
        signal: attempt.end.signal,
        failed_task: attempt.failed_task,
        last_end: Some(last_end(&attempt.end)),
    }
}

#[cfg(test)]
mod tests {
    use divvy_core::model::job::Cause;

    use super::*;

    #[test]
    fn every_cause_and_state_of_the_core_is_a_word_of_the_api() {
        let causes = [
            Cause::Exit,
            Cause::Signal,
            Cause::Cancelled,
            Cause::TimeLimit,
            Cause::OutOfMemory,
            Cause::OutOfGpuMemory,
            Cause::DeviceFault,
            Cause::NodeReboot,
            Cause::SupervisorLost,
            Cause::LaunchFailed,
            Cause::BrokenGang,
            Cause::Dependency,
            Cause::Policy,
            Cause::Preempted,
            Cause::Reclaimed,
            Cause::Order,
            Cause::Moved,
            Cause::Crowded,
            Cause::Faster,
            Cause::Starved,
            Cause::Checkpointed,
            Cause::Shutdown,
            Cause::Drain,
        ];
        for cause in causes {
            let end = last_end(&LastEnd { cause, by: None, signal: None, detail: None });
            assert!(!matches!(end.cause, api::Cause::Other(_)), "{cause:?}");
        }
        for state in
            [JobState::Pending, JobState::Held, JobState::Lost, JobState::Timeout, JobState::Stopping]
        {
            assert!(!matches!(job_state(state), api::JobState::Other(_)), "{state:?}");
        }
    }

    #[test]
    fn a_command_line_is_quoted_as_a_shell_would_take_it() {
        let argv = ["sh", "-c", "echo 'a b'", ""].map(String::from);
        assert_eq!(command_line(&argv), r"sh -c 'echo '\''a b'\''' ''");
    }
}
