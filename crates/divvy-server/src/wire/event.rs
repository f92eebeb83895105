//! Events for the stream: in words, without command lines or secrets.

use divvy_api as api;
use divvy_core::event::{Event, Stamped};
use divvy_core::id::{AllocationId, JobId, Position};
use divvy_core::model::allocation::Placement;
use divvy_core::model::device::Health;
use divvy_core::model::job::{JobState, priority};
use divvy_core::state::State;

use super::{reservation, row};

/// The job that an event is about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Who {
    pub(crate) name: String,
    pub(crate) user: String,
    pub(crate) queue: String,
}

/// Returns what an event is about, in words. `None` for what only matters inside (ticks, cycles, verdicts).
pub(crate) fn event(
    state: &State,
    position: Position,
    stamped: &Stamped,
    who: impl Fn(JobId) -> Option<Who>,
) -> Option<api::Event> {
    let mut told = api::Event {
        position: position.0,
        at_ms: stamped.at.0,
        kind: "job".into(),
        text: String::new(),
        job: None,
        name: None,
        user: None,
        queue: None,
        state: None,
        reason: None,
        devices: Vec::new(),
    };
    match &stamped.event {
        Event::Tick | Event::Due { .. } | Event::Planned { .. } | Event::Judged { .. } => return None,
        other => describe(state, other, &mut told),
    }
    let known = told.job.as_ref().and_then(|id| who(id.parse().ok()?));
    if let Some(known) = known {
        (told.name, told.user, told.queue) = (Some(known.name), Some(known.user), Some(known.queue));
    }
    Some(told)
}

fn describe(state: &State, event: &Event, told: &mut api::Event) {
    let of_pool = |told: &mut api::Event, kind: &str, text: String| {
        told.kind = kind.to_owned();
        told.text = text;
    };
    match event {
        Event::TermBegan { version, .. } => {
            of_pool(told, "pool", format!("the daemon started (divvy {version})"))
        }
        Event::NodeSeen { spec, state, .. } => {
            of_pool(told, "node", format!("node {} is {state:?}", spec.name).to_lowercase())
        }
        Event::OthersHold { node, hold, .. } => {
            let name = state.nodes.get(node).map_or_else(|| node.to_string(), |node| node.spec.name.clone());
            of_pool(
                told,
                "node",
                format!(
                    "{} of others on node {name}",
                    count(usize::try_from(hold.tasks).unwrap_or(usize::MAX), "task")
                ),
            )
        }
        Event::DeviceSeen { spec, .. } => {
            told.devices = vec![spec.uuid.clone()];
            of_pool(told, "device", format!("GPU {} ({}, {})", spec.index, spec.model, spec.uuid));
        }
        Event::DeviceChanged { device, health, occupant } => {
            let spec = state.devices.get(device).map(|device| &device.spec);
            let name = spec.map_or_else(|| device.to_string(), |spec| spec.index.to_string());
            told.devices = spec.map(|spec| spec.uuid.clone()).into_iter().collect();
            let text = match (health, occupant) {
                (Health::Down(what), _) => format!("GPU {name} is down: {what}"),
                (Health::Ok, Some(_)) => format!("GPU {name} is used from outside the pool"),
                (Health::Ok, None) => format!("GPU {name} can be used"),
            };
            of_pool(told, "device", text);
        }
        Event::QueuesSet { by, note, .. } => {
            of_pool(told, "queue", format!("{by} set the queues{}", noted(note.as_ref())))
        }
        Event::PolicySet { by, note, .. } => {
            of_pool(told, "pool", format!("{by} set the policy{}", noted(note.as_ref())))
        }
        Event::DrainSet { on: true, by } => of_pool(told, "pool", format!("{by} lets nothing new start")),
        Event::DrainSet { on: false, by } => of_pool(told, "pool", format!("{by} lets jobs start")),
        Event::ReservationMade(kept) => {
            let text = format!("{} {}", kept.by, reservation::in_words(state, kept));
            of_pool(told, "reservation", text + &noted(kept.note.as_ref()));
        }
        Event::ReservationBegan { id } => of_pool(told, "reservation", format!("reservation {id} begins")),
        Event::Recalled { known, .. } => {
            of_pool(told, "queues", format!("what {} queues or users used before is known", known.len()))
        }
        Event::ReservationEnded { id, by: None } => {
            of_pool(told, "reservation", format!("reservation {id} is over"))
        }
        Event::ReservationEnded { id, by: Some(by) } => {
            of_pool(told, "reservation", format!("{by} took reservation {id} back"))
        }
        other => describe_job(state, other, told),
    }
}

/// Returns the note of a change.
/// `1 task`, `2 tasks`.
fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn noted(note: Option<&String>) -> String {
    note.map(|note| format!(": {note}")).unwrap_or_default()
}

/// Returns the UUIDs of the devices in placements.
fn uuids(state: &State, placements: &[Placement]) -> Vec<String> {
    let devices = placements.iter().flat_map(|placement| &placement.devices);
    devices.filter_map(|(id, _)| Some(state.devices.get(id)?.spec.uuid.clone())).collect()
}

fn about(told: &mut api::Event, job: JobId, becomes: Option<JobState>, text: String) {
    told.job = Some(job.to_string());
    told.state = becomes.map(row::job_state);
    told.text = text;
}

fn describe_job(state: &State, event: &Event, told: &mut api::Event) {
    match event {
        Event::Submitted(submission) => {
            let job = JobId::single(submission.number);
            let becomes = if submission.held { JobState::Held } else { JobState::Pending };
            about(told, job, Some(becomes), format!("{job} was submitted by {}", submission.owner.name));
        }
        Event::Held { job, by } => about(told, *job, Some(JobState::Held), format!("{job} is held by {by}")),
        Event::Released { job, by } => {
            about(told, *job, Some(JobState::Pending), format!("{job} was released by {by}"))
        }
        Event::Prioritised { job, priority, by } => {
            about(
                told,
                *job,
                None,
                format!("{job} has priority {}, set by {by}", priority::named(*priority)),
            );
        }
        Event::Checkpointed { job, .. } => about(told, *job, None, format!("{job} has saved its work")),
        Event::Adopted { job, .. } => {
            about(told, *job, Some(JobState::Running), format!("{job} runs already"))
        }
        Event::Relieved { job } => {
            about(told, *job, None, format!("{job} has not run for long, and goes before all others"));
        }
        Event::Placed { job, placements, .. } => {
            told.devices = uuids(state, placements);
            let text = format!(
                "{job} got {} for {}",
                count(told.devices.len(), "GPU"),
                count(placements.len(), "task")
            );
            about(told, *job, Some(JobState::Starting), text);
        }
        Event::Grown { job, placements } => {
            told.devices = uuids(state, placements);
            let text = format!(
                "{job} got {} for {}",
                count(told.devices.len(), "GPU"),
                count(placements.len(), "more task")
            );
            about(told, *job, None, text);
        }
        Event::Shrinking { job, allocations, by, .. } => {
            let by = by.as_ref().map(|by| format!(" for {by}")).unwrap_or_default();
            about(
                told,
                *job,
                None,
                format!("{job} goes on without {}{by}", count(allocations.len(), "task")),
            );
        }
        _ => describe_run(state, event, told),
    }
}

/// What happens to a job that has its places, and how it ends.
fn describe_run(state: &State, event: &Event, told: &mut api::Event) {
    match event {
        Event::TaskStarted { allocation, start } => {
            let Some((job, rank)) = task_of(state, *allocation) else {
                told.text = format!("a task started (pid {})", start.pid);
                return;
            };
            about(
                told,
                job,
                Some(JobState::Running),
                format!("task {rank} of {job} started (pid {})", start.pid),
            );
        }
        Event::TaskEnded { allocation, .. } => match task_of(state, *allocation) {
            Some((job, rank)) => about(told, job, None, format!("task {rank} of {job} ended")),
            None => told.text = "a task ended".into(),
        },
        Event::Stopping { job, by, .. } => {
            let by = by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
            about(told, *job, Some(JobState::Stopping), format!("{job} is being stopped{by}"));
        }
        Event::Overdue { allocation } => match task_of(state, *allocation) {
            Some((job, rank)) => {
                let text = format!("task {rank} of {job} was told to stop and has not ended in time");
                about(told, job, None, text);
            }
            None => told.text = "a task was told to stop and had not ended in time".into(),
        },
        Event::AttemptEnded { job, state, exit_code, .. } => {
            about(told, *job, Some(*state), format!("{job} is {} (exit code {exit_code})", state.name()));
        }
        Event::Dropped { job, state, .. } => {
            about(told, *job, Some(*state), format!("{job} is {} without having run", state.name()))
        }
        _ => {}
    }
}

fn task_of(state: &State, allocation: AllocationId) -> Option<(JobId, u32)> {
    state.allocations.get(&allocation).map(|held| (held.job, held.placement.rank))
}
