//! Why a job waits, or where it would go.

use divvy_api as api;
use divvy_core::explain::Explanation;
use divvy_core::id::JobId;
use divvy_core::model::allocation::Placement;
use divvy_core::model::job::JobSpec;
use divvy_core::plan::Funnel;
use divvy_core::reason::Reason;
use divvy_core::state::{Job, Run, State};

use super::row;

/// What stands in a job's way.
pub(crate) fn blockers(reasons: &[Reason]) -> Vec<api::Blocker> {
    let blocker = |reason: &Reason| api::Blocker {
        code: reason.code().to_owned(),
        text: reason.to_string(),
        fix: reason.fix(),
    };
    reasons.iter().map(blocker).collect()
}

/// A job's way through the devices.
pub(crate) fn funnel(funnel: &Funnel) -> Vec<api::FunnelStep> {
    let step = |&(step, devices, nodes): &(divvy_core::plan::Step, u32, u32)| api::FunnelStep {
        step: step.name().to_owned(),
        devices: u64::from(devices),
        nodes: u64::from(nodes),
    };
    funnel.0.iter().map(step).collect()
}

/// What is asked for, in words: `4 × h100`, `2 tasks of 4 × any GPU`, `cores only`.
pub(crate) fn ask(spec: &JobSpec) -> String {
    let one = |role: &&divvy_core::model::gang::Role| {
        let devices = role.ask.alternatives.first().and_then(|ask| ask.devices.as_ref());
        let each = devices
            .map_or_else(|| "cores only".into(), |devices| format!("{} × {}", devices.count, devices.class));
        if role.minimum == 1 { each } else { format!("{} tasks of {each}", role.minimum) }
    };
    spec.gang.roles().iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The answer for a job that waits.
pub(crate) fn waiting(
    state: &State,
    job: &Job,
    (id, run): (JobId, &Run),
    found: &Explanation,
) -> api::Explain {
    api::Explain {
        verdict: api::Verdict::from(found.verdict.name()),
        blockers: blockers(&found.blockers),
        funnel: funnel(&found.funnel),
        position: found.position.map(|before| before as u64 + 1),
        ..settled(state, job, (id, run), api::Verdict::Placed)
    }
}

/// The answer for a job that has its devices.
pub(crate) fn settled(
    state: &State,
    job: &Job,
    (id, run): (JobId, &Run),
    verdict: api::Verdict,
) -> api::Explain {
    api::Explain {
        job: id.to_string(),
        verdict,
        blockers: Vec::new(),
        funnel: Vec::new(),
        name: job.spec.name.clone(),
        state: Some(row::job_state(run.state)),
        ask: ask(&job.spec),
        reason: divvy_core::explain::reason(state, job, run).as_ref().map(row::reason),
        position: None,
        submitted_ms: Some(job.submitted_at.0),
        nodes: row::where_it_runs(state, run).1,
        expected_start_ms: None,
        cycle: state.cycles,
        as_of_ms: Some(state.now.0),
    }
}

/// The answer for a job that has ended.
pub(crate) fn ended(state: &State, attempt: &divvy_core::model::attempt::Attempt) -> api::Explain {
    api::Explain {
        job: attempt.job.to_string(),
        verdict: api::Verdict::Ended,
        blockers: Vec::new(),
        funnel: Vec::new(),
        name: attempt.name.clone(),
        state: Some(row::job_state(attempt.state)),
        ask: String::new(),
        reason: None,
        position: None,
        submitted_ms: Some(attempt.submitted_at.0),
        nodes: attempt.nodes.clone(),
        expected_start_ms: None,
        cycle: state.cycles,
        as_of_ms: Some(state.now.0),
    }
}

/// The answer to a dry run.
pub(crate) fn trial(state: &State, found: &Explanation, placed: &[Placement]) -> api::Trial {
    let placement = |placement: &Placement| {
        let specs = placement.devices.iter().filter_map(|(id, _)| Some(&state.devices.get(id)?.spec));
        api::TrialPlacement {
            task: placement.rank,
            node: state.nodes.get(&placement.node).map(|node| node.spec.name.clone()).unwrap_or_default(),
            indices: specs.clone().map(|spec| spec.index).collect(),
            devices: specs.map(|spec| spec.uuid.clone()).collect(),
        }
    };
    api::Trial {
        verdict: api::Verdict::from(found.verdict.name()),
        blockers: blockers(&found.blockers),
        funnel: funnel(&found.funnel),
        placements: placed.iter().map(placement).collect(),
        notices: Vec::new(),
    }
}
