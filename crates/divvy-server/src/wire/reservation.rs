//! Reservations, as `divvy reserve` lists them.

use divvy_api as api;
use divvy_core::decide::{Reserve, Wanted};
use divvy_core::id::JobId;
use divvy_core::model::reservation::{Part, Purpose, Reservation};
use divvy_core::state::State;
use divvy_core::time::{Span, Time};

use super::incoming::{bad, moment};
use super::lengths::length;

/// Returns all reservations, the first to begin first.
pub(crate) fn all(state: &State) -> Vec<api::Reservation> {
    let mut kept: Vec<&Reservation> = state.reservations.iter().collect();
    kept.sort_by_key(|kept| (kept.from, kept.id));
    kept.into_iter().map(|kept| one(state, kept)).collect()
}

pub(crate) fn one(state: &State, kept: &Reservation) -> api::Reservation {
    let queue = if let Purpose::Queue(queue) = &kept.purpose { Some(queue.clone()) } else { None };
    let gpus = |part: &Part| state.devices.iter().filter(|(id, device)| part.has(device.node, **id)).count();
    api::Reservation {
        id: kept.id,
        state: if kept.began { api::ReservationState::Active } else { api::ReservationState::Planned },
        queue,
        on: kept.parts.iter().flat_map(|part| words(state, part)).collect(),
        gpus: kept.parts.iter().map(|part| gpus(part) as u64).sum(),
        from_ms: kept.from.0,
        until_ms: kept.until.map(|until| until.0),
        evicts: kept.evicts,
        jobs: strangers(state, kept).iter().map(JobId::to_string).collect(),
        by: kept.by.clone(),
        note: kept.note.clone(),
    }
}

/// Says what the reservation does: `drains n1:3`, `keeps n1 for vision`.
pub(super) fn in_words(state: &State, kept: &Reservation) -> String {
    let on: Vec<String> = kept.parts.iter().flat_map(|part| words(state, part)).collect();
    match &kept.purpose {
        Purpose::Maintenance => format!("drains {}", on.join(", ")),
        Purpose::Queue(queue) => format!("keeps {} for {queue}", on.join(", ")),
    }
}

/// Names what is kept of a node, in the form that requests use.
fn words(state: &State, part: &Part) -> Vec<String> {
    let node = state.nodes.get(&part.node).map(|node| node.spec.name.clone()).unwrap_or_default();
    if part.devices.is_empty() {
        return vec![node];
    }
    let devices = part.devices.iter().filter_map(|id| state.devices.get(id));
    devices.map(|device| format!("{node}:{}", device.spec.index)).collect()
}

/// Returns the jobs on kept devices for which these are not kept.
fn strangers(state: &State, kept: &Reservation) -> Vec<JobId> {
    let under = state.allocations.values().filter(|held| kept.is_under(&held.placement));
    let is_for = |job: &JobId| state.jobs.get(&job.number).is_some_and(|job| kept.is_for(&job.spec));
    let mut jobs: Vec<JobId> = under.map(|held| held.job).filter(|job| !is_for(job)).collect();
    jobs.sort_unstable();
    jobs.dedup();
    jobs
}

/// How long a note may be, in characters.
const LONGEST_NOTE: usize = 500;

/// Reads what a request wants to keep.
pub(crate) fn wanted(asked: &api::Reserve, now: Time) -> Result<Reserve, api::Problem> {
    let what = match (asked.on.as_slice(), asked.gpus) {
        ([], Some(gpus)) => Wanted::Devices(gpus, asked.model.clone()),
        ([], None) => return Err(bad("on", "name nodes or GPUs, or say how many GPUs")),
        (_, Some(_)) => return Err(bad("gpus", "name GPUs or say how many, not both")),
        (named, None) => Wanted::Named(named.to_vec()),
    };
    if asked.queue.is_none() && asked.gpus.is_some() {
        return Err(bad("on", "say which nodes or GPUs are to be drained"));
    }
    if asked.note.as_ref().is_some_and(|note| note.chars().count() > LONGEST_NOTE) {
        return Err(bad("note", format!("a note has at most {LONGEST_NOTE} characters")));
    }
    let begins = asked.from.as_ref().map(|text| moment("from", text, now)).transpose()?.unwrap_or(now);
    let length = asked.length.as_ref().map(|text| length("for", text)).transpose()?;
    // Counted from the given moment, even if that has passed.
    let until = length.map(|length| begins + length);
    if begins < now && until.is_some_and(|until| until <= now) {
        let ago = until.map_or(Span(0), |until| now.since(until));
        return Err(bad("for", format!("counted from that moment it is over: it ended {ago} ago")));
    }
    Ok(Reserve {
        evicts: asked.evict || asked.queue.is_some(),
        purpose: asked.queue.clone().map_or(Purpose::Maintenance, Purpose::Queue),
        what,
        from: begins.max(now),
        until,
        note: asked.note.clone().filter(|note| !note.trim().is_empty()),
    })
}
