//! Why a job waits, where it would go, or how it ended.

use std::collections::BTreeSet;

use divvy_api as api;
use divvy_core::controller::Noted;
use divvy_core::explain::{self, Advice, Explanation, Fix, GivesWay, Tier, Tried};
use divvy_core::id::JobId;
use divvy_core::model::allocation::Placement;
use divvy_core::model::ask::Ask;
use divvy_core::model::attempt::Attempt;
use divvy_core::model::job::{Cause, JobSpec, Submission};
use divvy_core::plan::{self, Funnel, Keeps};
use divvy_core::reason::{Reason, Verdict};
use divvy_core::snapshot::Snapshot;
use divvy_core::state::{GaveUp, Job, Run, State};
use divvy_core::time::Time;

use super::{row, safe};
use crate::expected::Answer;

/// Returns what stands in a job's way, each with what removes it.
fn blockers(state: &State, found: &Explanation, advice: Option<&Advice>) -> Vec<api::Blocker> {
    let plain = |reason: &Reason| api::Blocker {
        code: reason.code().to_owned(),
        text: explain::text(state, reason),
        fix: reason.fix(),
        ways: Vec::new(),
    };
    let is_lifted = advice.is_some_and(|advice| advice.remedy.is_some());
    let advised = |blocker: &explain::Blocker| {
        let ways: Vec<api::Way> = blocker.ways.iter().map(way).collect();
        let fix = match (ways.first(), &blocker.lifted_by) {
            (Some(way), _) => way.text.clone(),
            (None, Some(way)) => also(way),
            (None, None) if is_lifted => "what removes the others removes this, too".into(),
            (None, None) => blocker.reason.fix(),
        };
        api::Blocker { fix, ways, ..plain(&blocker.reason) }
    };
    match advice.filter(|advice| !advice.blockers.is_empty()) {
        Some(advice) => advice.blockers.iter().map(advised).collect(),
        None => found.blockers.iter().map(plain).collect(),
    }
}

/// Returns the words for a way that is named for another blocker and removes this one, too.
pub(crate) fn also(way: impl std::fmt::Display) -> String {
    format!("\"{way}\" removes this, too")
}

/// Returns changes that together remove a blocker or start a job.
fn way(fix: &Fix) -> api::Way {
    let who = match fix.who() {
        Tier::Own => "user",
        Tier::Time => "time",
        Tier::Grant => "administrator",
    };
    let change = |change: &explain::Change| serde_json::to_value(change).ok();
    api::Way {
        who: who.to_owned(),
        text: fix.to_string(),
        until_ms: fix.until().map(|at| at.0),
        changes: fix.changes.iter().filter_map(change).collect(),
    }
}

/// Returns how a job lost its devices the last time, if others got them.
pub(crate) fn displaced(attempt: &Attempt, advice: Option<&Advice>) -> Option<api::Displaced> {
    Some(api::Displaced {
        cause: displacement(attempt.end.cause)?.to_owned(),
        by: attempt.end.by.clone(),
        at_ms: Some(attempt.ended_at.0),
        lost_gpu_seconds: attempt.lost_milli_ms as f64 / 1e6,
        back_ms: advice.and_then(Advice::comes_with_time).map(|at| at.0),
    })
}

/// Returns how a job is losing its devices, if others get them.
fn displaced_now(state: &State, (spec, run): (&JobSpec, &Run)) -> Option<api::Displaced> {
    let stopping = run.stopping.as_ref().filter(|stopping| stopping.requeue)?;
    Some(api::Displaced {
        cause: displacement(stopping.cause)?.to_owned(),
        by: stopping.by.clone(),
        at_ms: None,
        lost_gpu_seconds: explain::lost_so_far(state, (spec, run)) as f64 / 1e6,
        back_ms: None,
    })
}

/// Returns the reservation for which a running job is stopped.
pub(crate) fn stopped_for(state: &State, id: JobId) -> Option<api::StoppedFor> {
    let kept = state.stopped_for(id)?;
    Some(api::StoppedFor { reservation: kept.id, at_ms: kept.from.0 })
}

/// Returns the job that lost its devices for another in an attempt that is over.
pub(crate) fn made_room(attempt: &Attempt) -> Option<api::MadeRoom> {
    Some(api::MadeRoom {
        job: attempt.job.to_string(),
        cause: displacement(attempt.end.cause)?.to_owned(),
        at_ms: Some(attempt.ended_at.0),
        tasks: None,
        lost_gpu_seconds: attempt.lost_milli_ms as f64 / 1e6,
    })
}

/// Returns the jobs that are losing devices for a job, and the gangs that gave it some since it last waited.
fn makes_room(state: &State, (id, waited_from): (JobId, Time)) -> Vec<api::MadeRoom> {
    let by = id.to_string();
    let holders: BTreeSet<JobId> = state.allocations.iter().map(|(_, allocation)| allocation.job).collect();
    let goes = |(job, run): (JobId, &Run)| {
        let spec = &state.jobs.get(&job.number)?.spec;
        let stopping = run.stopping.as_ref().filter(|stopping| stopping.by.as_ref() == Some(&by))?;
        Some(api::MadeRoom {
            job: job.to_string(),
            cause: displacement(stopping.cause)?.to_owned(),
            at_ms: None,
            tasks: None,
            lost_gpu_seconds: explain::lost_so_far(state, (spec, run)) as f64 / 1e6,
        })
    };
    let gives_up = |(job, run): (JobId, &Run)| {
        let gave_up =
            run.gave_up.as_ref().filter(|it| it.by.as_ref() == Some(&by) && it.at >= waited_from)?;
        Some(api::MadeRoom {
            job: job.to_string(),
            cause: displacement(gave_up.cause)?.to_owned(),
            at_ms: Some(gave_up.at.0),
            tasks: Some(gave_up.tasks),
            lost_gpu_seconds: 0.0,
        })
    };
    let runs = holders.into_iter().filter_map(|job| Some((job, state.run(job)?)));
    runs.filter_map(|run| goes(run).or_else(|| gives_up(run))).collect()
}

/// Returns what a gang that runs on gave up last; nothing for a gang that is being stopped.
fn gave_up(run: &Run) -> Option<api::GaveUp> {
    let gave_up = run.gave_up.as_ref().filter(|_| run.stopping.is_none())?;
    let GaveUp { tasks, cause, by, at } = &**gave_up;
    let cause = displacement(*cause)?.to_owned();
    Some(api::GaveUp { tasks: *tasks, cause, by: by.clone(), at_ms: at.0 })
}

fn displacement(cause: Cause) -> Option<&'static str> {
    match cause {
        Cause::Preempted => Some("preempted"),
        Cause::Reclaimed => Some("reclaimed"),
        Cause::Order => Some("order"),
        Cause::Moved => Some("moved"),
        Cause::Crowded => Some("crowded"),
        Cause::Faster => Some("faster"),
        Cause::Starved => Some("starved"),
        Cause::Drain => Some("drain"),
        _ => None,
    }
}

/// Returns the room that is, or was, kept for a job.
pub(crate) fn room(noted: &Noted) -> Option<api::Room> {
    let from_ms = match noted.room.keeps {
        Keeps::From(at) => Some(at.0),
        Keeps::AsItComes => None,
        Keeps::Nothing if noted.moved.is_some() => None,
        Keeps::Nothing => return None,
    };
    let moved = noted.moved.as_ref();
    Some(api::Room {
        from_ms,
        awaits: noted.room.awaits.map(|job| job.to_string()),
        was_from_ms: moved.map(|moved| moved.from.0),
        moved_at_ms: moved.map(|moved| moved.at.0),
        outrun_by: moved.and_then(|moved| moved.outrun_by).map(|job| job.to_string()),
    })
}

/// Returns how many devices pass each filter for a job.
pub(crate) fn funnel(funnel: &Funnel) -> Vec<api::FunnelStep> {
    let step = |&(step, devices, nodes): &(divvy_core::plan::Step, u32, u32)| api::FunnelStep {
        step: step.name().to_owned(),
        devices: u64::from(devices),
        nodes: u64::from(nodes),
    };
    funnel.0.iter().map(step).collect()
}

/// Returns the classes of devices of which any will do, as text.
pub(crate) fn classes(ask: &Ask, between: &str) -> String {
    let classes = ask.alternatives.iter().filter_map(|way| Some(way.devices.as_ref()?.class.to_string()));
    classes.collect::<Vec<_>>().join(between)
}

/// Returns what is asked for, in words: `4 × h100`, `2 × h100 or 4 × l4`, `2 tasks of 4 × any GPU in one NVLink
/// island`, `2 to 8 tasks of 1 × h100`, `1 × h100, a whole node for each task`, `cores only`.
pub(crate) fn ask(spec: &JobSpec) -> String {
    let one = |role: &&divvy_core::model::gang::Role| {
        let devices = role.ask.alternatives.iter().filter_map(|ask| ask.devices.as_ref());
        let ways = devices.clone().map(|ask| format!("{} × {}", ask.count, ask.class));
        let each = match devices.clone().next() {
            None => "cores only".into(),
            Some(_) if role.ask.has_counts() => ways.collect::<Vec<_>>().join(" or "),
            Some(devices) => format!("{} × {}", devices.count, classes(&role.ask, " or ")),
        };
        let island = role.ask.island().filter(|island| island.required);
        let each = island.map_or(each.clone(), |island| format!("{each} in one {}", island.level.island()));
        match (role.minimum, role.maximum) {
            (1, 1) => each,
            (tasks, most) if most > tasks => format!("{tasks} to {most} tasks of {each}"),
            (tasks, _) => format!("{tasks} tasks of {each}"),
        }
    };
    let alone = if spec.exclusive { ", a whole node for each task" } else { "" };
    spec.gang.roles().iter().map(one).collect::<Vec<_>>().join(", ") + alone
}

/// The answer for a job that waits.
pub(crate) fn waiting(
    state: &State,
    job: &Job,
    (id, run): (JobId, &Run),
    (found, advice): (&Explanation, Option<&Advice>),
) -> api::Explain {
    let verdict = advice.map_or(found.verdict, |advice| advice.verdict);
    api::Explain {
        verdict: api::Verdict::from(verdict.name()),
        blockers: blockers(state, found, advice),
        remedy: advice.and_then(|advice| advice.remedy.as_ref()).map(way),
        funnel: funnel(&found.funnel),
        position: found.position.map(|before| before as u64 + 1),
        members_before: found.ahead.map_or(0, |ahead| ahead.members as u64),
        next_member: found.ahead.map(|ahead| ahead.next.to_string()),
        ..settled(state, job, (id, run), api::Verdict::Placed)
    }
}

/// Adds when the job is expected to start.
pub(crate) fn with_start(explained: api::Explain, start: Answer) -> api::Explain {
    api::Explain {
        expected_end_ms: start
            .at
            .zip(explained.length_ms)
            .map(|(at, length_ms)| at.0.saturating_add(length_ms)),
        start: row::expected_start(start),
        ..explained
    }
}

/// The answer for a job that has its devices.
pub(crate) fn placed(
    state: &State,
    snapshot: &Snapshot,
    job: &Job,
    (id, run): (JobId, &Run),
) -> api::Explain {
    let seats = plan::seats(snapshot, &job.spec, &run.placements);
    api::Explain {
        why_here: seats.map(|seats| seats.to_string()),
        why_safe: safe::why_safe(state, job, (id, run)),
        stopped_for: stopped_for(state, id),
        overdue_ms: state.should_have_ended(id).map(|by| by.0),
        displaced: displaced_now(state, (&job.spec, run)),
        gave_up: gave_up(run),
        made_room: makes_room(state, (id, run.back_since.unwrap_or(job.submitted_at))),
        ..settled(state, job, (id, run), api::Verdict::Placed)
    }
}

fn settled(state: &State, job: &Job, (id, run): (JobId, &Run), verdict: api::Verdict) -> api::Explain {
    api::Explain {
        job: id.to_string(),
        verdict,
        blockers: Vec::new(),
        remedy: None,
        displaced: None,
        gave_up: None,
        made_room: Vec::new(),
        room: None,
        why_here: None,
        why_safe: None,
        stopped_for: None,
        overdue_ms: None,
        ended: None,
        funnel: Vec::new(),
        name: job.spec.name.clone(),
        state: Some(row::job_state(run.state)),
        ask: ask(&job.spec),
        reason: divvy_core::explain::reason(state, job, (id, run)).map(|why| row::reason(state, &why)),
        position: None,
        members_before: 0,
        next_member: None,
        submitted_ms: Some(job.submitted_at.0),
        nodes: row::where_it_runs(state, run).1,
        start: api::ExpectedStart::default(),
        deadline_ms: job.spec.deadline.said().map(|at| at.0),
        length_ms: job.spec.known_length().map(|length| length.0),
        expected_end_ms: run.started_at.zip(job.spec.known_length()).map(|(at, length)| (at + length).0),
        cycle: state.cycles,
        as_of_ms: Some(state.now.0),
    }
}

/// How a job ended, by all its attempts, of which this is the last.
fn how_it_ended(past: &[Attempt], last: &Attempt) -> api::Ended {
    let mut waited_ms = 0;
    let mut waits_from = last.submitted_at;
    for attempt in past {
        waited_ms += attempt.started_at.unwrap_or(attempt.ended_at).since(waits_from).0.max(0);
        waits_from = attempt.ended_at;
    }
    api::Ended {
        end: row::last_end(&last.end),
        exit_code: last.exit_code,
        failed_task: last.failed_task.filter(|_| last.tasks > 1),
        attempts: past.iter().filter(|attempt| attempt.started_at.is_some()).count() as u32,
        started_ms: last.started_at.map(|at| at.0),
        ended_ms: last.ended_at.0,
        waited_ms,
    }
}

/// The answer for a job that has ended, by all its attempts; nothing if there are none.
pub(crate) fn ended(
    state: &State,
    past: &[Attempt],
    submission: Option<&Submission>,
) -> Option<api::Explain> {
    let attempt = past.last()?;
    Some(api::Explain {
        ended: Some(how_it_ended(past, attempt)),
        job: attempt.job.to_string(),
        verdict: api::Verdict::Ended,
        blockers: Vec::new(),
        remedy: None,
        displaced: None,
        gave_up: None,
        made_room: Vec::new(),
        room: None,
        why_here: None,
        why_safe: None,
        stopped_for: None,
        overdue_ms: None,
        funnel: Vec::new(),
        name: attempt.name.clone(),
        state: Some(row::job_state(attempt.state)),
        ask: submission.map(|submission| ask(&submission.spec)).unwrap_or_default(),
        reason: None,
        position: None,
        members_before: 0,
        next_member: None,
        submitted_ms: Some(attempt.submitted_at.0),
        nodes: attempt.nodes.clone(),
        start: api::ExpectedStart::default(),
        deadline_ms: None,
        length_ms: None,
        expected_end_ms: None,
        cycle: state.cycles,
        as_of_ms: Some(state.now.0),
    })
}

/// The answer for something that is in no queue's line, with the reason.
#[cfg(feature = "kubernetes")]
pub(crate) fn refused(state: &State, row: &api::Job) -> api::Explain {
    let blocker = |reason: &api::Reason| api::Blocker {
        code: reason.code.clone(),
        text: reason.text.clone(),
        ..api::Blocker::default()
    };
    api::Explain {
        job: row.id.clone(),
        verdict: api::Verdict::NoFit,
        blockers: row.reason.iter().map(blocker).collect(),
        remedy: None,
        displaced: None,
        gave_up: None,
        made_room: Vec::new(),
        room: None,
        why_here: None,
        why_safe: None,
        stopped_for: None,
        overdue_ms: None,
        ended: None,
        funnel: Vec::new(),
        name: row.name.clone(),
        state: Some(row.state.clone()),
        ask: String::new(),
        reason: row.reason.clone(),
        position: None,
        members_before: 0,
        next_member: None,
        submitted_ms: Some(row.submitted_ms),
        nodes: Vec::new(),
        start: api::ExpectedStart::default(),
        deadline_ms: None,
        length_ms: None,
        expected_end_ms: None,
        cycle: state.cycles,
        as_of_ms: Some(state.now.0),
    }
}

/// The answer to a dry run.
pub(crate) fn trial(
    state: &State,
    (found, advice): (&Explanation, Option<&Advice>),
    tried: &Tried,
) -> api::Trial {
    let placement = |placement: &Placement| {
        let specs = placement.devices.iter().filter_map(|(id, _)| Some(&state.devices.get(id)?.spec));
        api::TrialPlacement {
            task: placement.rank,
            node: state.nodes.get(&placement.node).map(|node| node.spec.name.clone()).unwrap_or_default(),
            indices: specs.clone().map(|spec| spec.index).collect(),
            devices: specs.map(|spec| spec.uuid.clone()).collect(),
        }
    };
    let verdict = match advice {
        _ if tried.starts && tried.gives_way.is_empty() => Verdict::Fit,
        _ if tried.starts => Verdict::Preempt,
        Some(advice) => advice.verdict,
        None => found.verdict,
    };
    let gives_way = |it: &GivesWay| {
        let (job, cause) = (it.job.to_string(), displacement(it.cause)?.to_owned());
        let lost_gpu_seconds = it.lost_milli_ms as f64 / 1e6;
        Some(api::MadeRoom { job, cause, at_ms: None, tasks: it.tasks, lost_gpu_seconds })
    };
    api::Trial {
        verdict: api::Verdict::from(verdict.name()),
        blockers: if tried.starts { Vec::new() } else { blockers(state, found, advice) },
        funnel: funnel(&found.funnel),
        placements: tried.placements.iter().map(placement).collect(),
        made_room: tried.gives_way.iter().filter_map(gives_way).collect(),
        notices: Vec::new(),
    }
}
