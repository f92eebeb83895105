//! Deciding on an observation: what the engine saw becomes events, and the end of a task may end its job.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::others;
use crate::action::{Action, Fence, Stop};
use crate::engine::{EndedHow, LaunchFailure, Observation, TaskEnd, TaskStart, Usage};
use crate::event::Event;
use crate::id::{AllocationId, DeviceId, JobId, NodeId};
use crate::model::allocation::AllocationState;
use crate::model::device::{DeviceSpec, Health, Occupant};
use crate::model::job::{Cause, JobState, LastEnd, RUN_ME_AGAIN, Requeue};
use crate::model::node::{NodeSpec, NodeState};
use crate::model::promise::Promise;
use crate::state::{Allocation, Device, Job, Run, State};
use crate::time::{Span, Time};

/// What follows from an observation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// What goes into the log.
    pub events: Vec<Event>,
    /// What the engine is told at once, since it concerns nothing that the state knows.
    pub actions: Vec<Action>,
    /// Allocations whose launch or stop is to be sent again.
    pub resend: Vec<AllocationId>,
    /// Tasks that are over without word from the engine: to be observed one after the other, since what follows from an end depends on
    /// those before it.
    pub lost: Vec<(AllocationId, TaskEnd)>,
}

impl From<Vec<Event>> for Seen {
    fn from(events: Vec<Event>) -> Self {
        Self { events, ..Self::default() }
    }
}

/// Turns an observation into events. What is known already gives none.
pub fn observe(state: &State, observation: &Observation) -> Seen {
    match observation {
        Observation::Node(spec, devices) => node(state, spec, devices).into(),
        Observation::NodeGone(name) => others::gone(state, name).into(),
        Observation::Others(name, hold) => others::hold(state, name, hold).into(),
        Observation::Device { uuid, health, occupant } => {
            let known =
                state.device_by_uuid(uuid).and_then(|id| state.devices.get(&id).map(|device| (id, device)));
            let changed =
                known.filter(|(_, device)| (&device.health, &device.occupant) != (health, occupant));
            let event = |(device, _)| Event::DeviceChanged {
                device,
                health: health.clone(),
                occupant: occupant.clone(),
            };
            changed.map(event).into_iter().collect::<Vec<_>>().into()
        }
        Observation::Inventory(known) => inventory(state, known),
        Observation::Started(allocation, start) => started(state, *allocation, start),
        Observation::Ended(allocation, end) => ended(state, *allocation, end),
    }
}

fn node(state: &State, spec: &NodeSpec, devices: &[DeviceSpec]) -> Vec<Event> {
    let mut events = Vec::new();
    let next = state.nodes.keys().next_back().map_or(0, |id| id.0 + 1);
    let node = state.node_by_name(&spec.name).unwrap_or(NodeId(next));
    let as_known =
        state.nodes.get(&node).is_some_and(|known| known.spec == *spec && known.state != NodeState::Gone);
    if !as_known {
        let known =
            state.nodes.get(&node).map(|known| known.state).filter(|state| *state == NodeState::Draining);
        events.push(Event::NodeSeen {
            node,
            spec: Box::new(spec.clone()),
            state: known.unwrap_or(NodeState::Ready),
        });
    }
    let mut next = state.devices.keys().next_back().map_or(0, |id| id.0 + 1);
    for spec in devices {
        let known = state.device_by_uuid(&spec.uuid);
        let device = known.unwrap_or_else(|| {
            next += 1;
            DeviceId(next - 1)
        });
        events.extend(device_news(device, known.and_then(|id| state.devices.get(&id)), node, spec));
    }
    let here: BTreeSet<&str> = devices.iter().map(|device| device.uuid.as_str()).collect();
    if !state.nodes.contains_key(&node) {
        return events;
    }
    let away = state
        .devices
        .iter()
        .filter(|(_, device)| device.node == node && !here.contains(device.spec.uuid.as_str()));
    let gone = Health::Down(GONE.into());
    let news = away.filter(|(_, device)| device.health != gone);
    events.extend(news.map(|(id, _)| Event::DeviceChanged {
        device: *id,
        health: gone.clone(),
        occupant: None,
    }));
    events
}

/// What is said of a device that its node no longer shows.
const GONE: &str = "no longer there";

fn device_news(id: DeviceId, known: Option<&Device>, node: NodeId, spec: &DeviceSpec) -> Vec<Event> {
    let mut events = Vec::new();
    if known.is_none_or(|known| *known.spec != *spec || known.node != node) {
        events.push(Event::DeviceSeen { device: id, node, spec: Arc::new(spec.clone()) });
    }
    if known.is_some_and(|known| known.health == Health::Down(GONE.into())) {
        events.push(Event::DeviceChanged { device: id, health: Health::Ok, occupant: None });
    }
    events
}

/// After a start: what the engine no longer knows is lost, or was never launched; what the state no longer knows is stopped.
fn inventory(state: &State, known: &[AllocationId]) -> Seen {
    let known: BTreeSet<AllocationId> = known.iter().copied().collect();
    let mut seen = Seen::default();
    for (id, held) in &state.allocations {
        match held.state {
            // The engine does not repeat a launch that it has seen; one that it has not seen is due. The same goes for stops.
            AllocationState::Starting => seen.resend.push(*id),
            AllocationState::Stopping => seen.resend.push(*id),
            _ if known.contains(id) => {}
            _ => {
                let end = TaskEnd { at: state.now, how: EndedHow::SupervisorLost, ..TaskEnd::default() };
                seen.lost.push((*id, end));
            }
        }
    }
    for stranger in known.iter().filter(|id| !state.allocations.contains_key(id)) {
        let fence = last_word(state, *stranger);
        seen.actions.push(Action::Stop(fence, Stop { signal: "KILL".into(), grace_ms: 0 }));
    }
    seen
}

/// The fence of an action that nothing follows.
pub(crate) fn last_word(state: &State, allocation: AllocationId) -> Fence {
    Fence { term: state.term, allocation, seq: u32::MAX }
}

fn started(state: &State, id: AllocationId, start: &TaskStart) -> Seen {
    let news = state.allocations.get(&id).is_some_and(|held| {
        let reported =
            || state.run(held.job).is_some_and(|run| run.outputs.contains_key(&held.placement.rank));
        held.state == AllocationState::Starting
            || (held.state == AllocationState::Stopping && start.output.is_some() && !reported())
    });
    if news {
        vec![Event::TaskStarted { allocation: id, start: start.clone() }].into()
    } else {
        Seen::default()
    }
}

fn ended(state: &State, id: AllocationId, end: &TaskEnd) -> Seen {
    match state.allocations.get(&id) {
        // Its end is in the log already, or its beginning was lost with the log's tail.
        None => Seen { actions: vec![Action::Forget(last_word(state, id))], ..Seen::default() },
        Some(held) => end_events(state, id, held, end).into(),
    }
}

/// The end of a task, and what follows for its job.
fn end_events(state: &State, id: AllocationId, held: &Allocation, end: &TaskEnd) -> Vec<Event> {
    // Most tasks are the last of their job.
    let mut events = Vec::with_capacity(2);
    let ended_at = ended_before(state, held, end);
    events.extend([Event::TaskEnded { allocation: id, end: end.clone(), ended_at }]);
    events.extend(locked_device(state, &end.how));
    let job = state.jobs.get(&held.job.number);
    let Some((job, run)) = job.zip(state.run(held.job)) else { return events };
    let told = held.state == AllocationState::Stopping && run.stopping.is_none();
    let spared = can_do_without(state, job, (run, id), end).filter(|_| !told);
    if let Some(cause) = spared {
        events.insert(0, Event::Shrinking { job: held.job, allocations: vec![id], cause, by: None });
    }
    let goes = told || spared.is_some();
    let others_live = run.live.iter().any(|live| *live != id);
    if !others_live {
        let over = run.over.iter().map(|(_, end)| end).chain((!goes).then_some(end));
        let last = ended_at.map(|last| over.clone().map(|end| end.at).fold(last, Time::max));
        events.push(attempt_end((held.job, job, run), over, last));
    } else if !goes && end.how.is_failure() && run.stopping.is_none() {
        events.push(Event::Stopping {
            job: held.job,
            cause: Cause::BrokenGang,
            by: None,
            order: crate::model::job::StopOrder {
                signal: job.spec.stop.signal.clone(),
                grace_ms: job.spec.stop.grace_ms.min(state.policy.broken_gang_grace_ms),
            },
            requeue: false,
        });
    }
    events.extend(kept_promises(state, (id, end), &events));
    events
}

/// What ended longer ago than this ended while nobody looked.
const LATE: Span = Span::seconds(1);

/// When a task ended, if that is seen late, as after a time without a daemon. It ran for as long as it says from when it was given its
/// devices: a clock that has been set back does not make that shorter.
fn ended_before(state: &State, held: &Allocation, end: &TaskEnd) -> Option<Time> {
    let ended = end.at.max(held.since + Span(end.ran_ms.max(0)));
    (state.now.since(ended) >= LATE).then_some(ended)
}

/// The cause for which a gang loses a task without which it may run on: only bad luck, and only if it still has its minimum.
fn can_do_without(state: &State, job: &Job, (run, id): (&Run, AllocationId), end: &TaskEnd) -> Option<Cause> {
    if !job.spec.gang.is_elastic() || run.stopping.is_some() {
        return None;
    }
    let (cause, ..) = cause_of(&end.how, &end.usage);
    let goes = |id| {
        state.allocations.get(&id).is_some_and(|held: &Allocation| held.state == AllocationState::Stopping)
    };
    let others = run.placements.iter().map(|placement| (placement.allocation, placement));
    let others = others.filter(|(other, _)| *other != id && !goes(*other)).map(|(_, placement)| placement);
    let ranks: BTreeSet<u32> = others.map(|placement| placement.rank).collect();
    let others_live = run.live.iter().any(|live| *live != id);
    (cause.is_bad_luck() && others_live && job.spec.gang.is_whole(&ranks)).then_some(cause)
}

/// Settles the promises for which this task's end was the last one awaited: what was promised is given, or taken back if it is no longer
/// good.
fn kept_promises(state: &State, (ended, end): (AllocationId, &TaskEnd), events: &[Event]) -> Vec<Event> {
    let over = |id: &AllocationId| *id == ended || !state.allocations.contains_key(id);
    let due = |promise: &&Promise| promise.waits_for.contains(&ended) && promise.waits_for.iter().all(over);
    // A job's promise goes with the job; a promise of growth goes with the attempt.
    let leaves = |promise: &&Promise| {
        events.iter().any(|event| matches!(event, Event::AttemptEnded { job, state, .. } if *job == promise.job && (promise.grows || state.is_ended())))
    };
    let told =
        |id: JobId| events.iter().any(|event| matches!(event, Event::Stopping { job, .. } if *job == id));
    let stops = |job: JobId| state.run(job).is_none_or(|run| run.stopping.is_some()) || told(job);
    let now = state.now.max(end.at);
    let become_of = |promise: &Promise| match (state.is_good_at(promise, now), promise.grows) {
        (true, false) => {
            Event::Placed { job: promise.job, placements: promise.placements.clone(), port: promise.port }
        }
        (true, true) if !stops(promise.job) => {
            Event::Grown { job: promise.job, placements: promise.placements.clone() }
        }
        _ => Event::Revoked { job: promise.job },
    };
    state.promises.values().filter(due).filter(|promise| !leaves(promise)).map(become_of).collect()
}

/// A device that another pool holds is that pool's until discovery says otherwise, or the job would get it again at once.
fn locked_device(state: &State, how: &EndedHow) -> Option<Event> {
    let EndedHow::LaunchFailed(LaunchFailure::DeviceLocked(uuid, user, pool)) = how else { return None };
    let device = state.device_by_uuid(uuid)?;
    let health = state.devices.get(&device)?.health.clone();
    Some(Event::DeviceChanged {
        device,
        health,
        occupant: Some(Occupant::Pool { user: user.clone(), state: pool.clone() }),
    })
}

/// The exit code that a shell would show for it.
fn exit_code(how: &EndedHow) -> i32 {
    match how {
        EndedHow::Exited(code) => *code,
        EndedHow::Signalled(signal) => 128 + signal,
        EndedHow::OutOfMemory(..) | EndedHow::SupervisorLost | EndedHow::NodeReboot => 137,
        EndedHow::LaunchFailed(failure) => failure.exit_code(),
        EndedHow::NeverStarted => 143,
    }
}

/// The event that ends an attempt whose tasks are all over.
fn attempt_end<'a>(
    (id, job, run): (JobId, &Job, &Run),
    mut over: impl Iterator<Item = &'a TaskEnd>,
    ended_at: Option<Time>,
) -> Event {
    // The first to fail, in time; what was stopped only because of it comes later.
    let first = over.find(|end| end.how.is_failure());
    let code = first.map_or(0, |end| exit_code(&end.how));
    let saved = job.spec.checkpoint.is_some() && code == RUN_ME_AGAIN;
    let own = match first {
        Some(_) if saved => (Cause::Checkpointed, None, None),
        Some(end) => cause_of(&end.how, &end.usage),
        None => (Cause::Exit, None, None),
    };
    let stopping = run.stopping.as_ref().filter(|stopping| stopping.cause != Cause::BrokenGang);
    let end = match stopping {
        Some(stopping) => {
            let signal = first
                .and_then(|end| if let EndedHow::Signalled(signal) = end.how { Some(signal) } else { None });
            LastEnd { cause: stopping.cause, by: stopping.by.clone(), signal, detail: None }
        }
        None => LastEnd { cause: own.0, by: None, signal: own.1, detail: own.2 },
    };
    let state = match stopping {
        Some(stopping) if stopping.requeue => JobState::Pending,
        // A job that saves its work and does something in between may go on like this for ever: that is no restart.
        None if saved && first.is_some_and(|end| run.has_done_something(end.at)) => JobState::Pending,
        None if saved && run.restarts < job.spec.most_restarts => JobState::Pending,
        _ if goes_back(job, run, end.cause, code, first) => JobState::Pending,
        Some(_) if end.cause == Cause::TimeLimit => JobState::Timeout,
        Some(_) => JobState::Cancelled,
        None if code == 0 => JobState::Completed,
        None if end.cause.is_bad_luck() && end.cause != Cause::DeviceFault => JobState::Lost,
        None => JobState::Failed,
    };
    Event::AttemptEnded { job: id, end, exit_code: code, state, ended_at }
}

/// Cause, signal and further details.
fn cause_of(how: &EndedHow, usage: &Usage) -> (Cause, Option<i32>, Option<String>) {
    let words = |bytes: i64| crate::amount::Bytes(bytes).to_string();
    match how {
        _ if how.is_failure() && usage.xid.is_some() => {
            (Cause::DeviceFault, None, usage.xid.map(|xid| format!("Xid {xid}")))
        }
        EndedHow::Exited(code) if *code != 0 && usage.out_of_gpu_memory => {
            (Cause::OutOfGpuMemory, None, Some("its last lines speak of exhausted GPU memory".into()))
        }
        EndedHow::Exited(_) => (Cause::Exit, None, None),
        EndedHow::Signalled(signal) => (Cause::Signal, Some(*signal), None),
        EndedHow::OutOfMemory(peak, limit) => (
            Cause::OutOfMemory,
            Some(9),
            Some(format!("peak {} of host memory, limit {}", words(*peak), words(*limit))),
        ),
        EndedHow::LaunchFailed(failure) => (Cause::LaunchFailed, None, Some(failure_text(failure))),
        EndedHow::NeverStarted => (Cause::Cancelled, None, None),
        EndedHow::SupervisorLost => (Cause::SupervisorLost, None, None),
        EndedHow::NodeReboot => (Cause::NodeReboot, None, None),
    }
}

fn failure_text(failure: &LaunchFailure) -> String {
    match failure {
        LaunchFailure::CommandNotFound(what) => format!("command not found: {what}"),
        LaunchFailure::NotExecutable(what) => format!("not executable: {what}"),
        LaunchFailure::Directory(what) => format!("working directory: {what}"),
        LaunchFailure::Output(what) => format!("output: {what}"),
        LaunchFailure::DeviceLocked(uuid, user, _) => format!("GPU {uuid} is held by the pool of {user}"),
        LaunchFailure::Environment(what) => format!("environment: {what}"),
        LaunchFailure::Other(what) => what.clone(),
    }
}

fn goes_back(job: &Job, run: &Run, cause: Cause, code: i32, first: Option<&TaskEnd>) -> bool {
    let stopped = run.stopping.as_ref().is_some_and(|stopping| stopping.cause != Cause::BrokenGang);
    if stopped || run.restarts >= job.spec.most_restarts {
        return false;
    }
    match (first.map(|end| &end.how), job.spec.requeue) {
        // Nothing of it ever ran, and the device now belongs to another pool: whatever the policy, it was not an attempt.
        (Some(EndedHow::LaunchFailed(LaunchFailure::DeviceLocked(..))), _) => true,
        (_, Requeue::Never) => false,
        (Some(EndedHow::LaunchFailed(LaunchFailure::Other(_))), Requeue::Lost) => true,
        (_, Requeue::Lost) => cause.is_bad_luck(),
        (_, Requeue::Failure) => code != 0,
    }
}
