//! From places to what happens: stops, promises where others still hold something, and placements where nobody does.

use std::collections::{BTreeMap, BTreeSet};

use super::{Place, Plan};
use crate::event::Event;
use crate::id::{AllocationId, DeviceId, JobId, NodeId};
use crate::model::allocation::Placement;
use crate::model::job::{Cause, JobSpec, StopOrder};
use crate::model::promise::Promise;
use crate::model::queue::lineage;
use crate::state::State;

/// A job that gives way.
pub(super) struct Leaver<'a> {
    pub(super) job: JobId,
    pub(super) queue: &'a str,
    pub(super) live: &'a [AllocationId],
    pub(super) cause: Cause,
    /// For whom, where that is known beforehand; else whoever gets its places.
    pub(super) by: Option<JobId>,
}

/// What the allocations of a job hold.
pub(super) fn held_by<'a, 'b>(
    state: &'a State,
    live: &'b [AllocationId],
) -> impl Iterator<Item = &'a Placement> + use<'a, 'b> {
    live.iter().filter_map(|id| state.allocations.get(id)).map(|held| &held.placement)
}

/// Turns places into events. Whoever gets places that leavers hold, or whom they leave for, gets a promise.
pub(super) fn settle(state: &State, leavers: &[Leaver], places: Vec<Place>, plan: &mut Plan) {
    let holders = Holders::of(state, leavers);
    let mut taker: BTreeMap<JobId, JobId> = BTreeMap::new();
    for place in places {
        let waits_for = holders.of_place(state, &place, leavers);
        if waits_for.is_empty() {
            plan.places.push(place);
            continue;
        }
        for id in &waits_for {
            if let Some(held) = state.allocations.get(id).filter(|held| held.job != place.job) {
                taker.entry(held.job).or_insert(place.job);
            }
        }
        let Place { job, placements, port } = place;
        plan.promises.push(Promise { job, placements, port, waits_for: waits_for.into_iter().collect() });
    }
    plan.ends.extend(leavers.iter().filter_map(|leaver| {
        let spec = &state.jobs.get(&leaver.job.number)?.spec;
        let by = leaver.by.as_ref().or_else(|| taker.get(&leaver.job)).map(ToString::to_string);
        Some(Event::Stopping { job: leaver.job, cause: leaver.cause, by, order: notice(spec), requeue: true })
    }));
}

/// How a job is told that it gives way: as its checkpoint wants it, else as for any stop.
fn notice(spec: &JobSpec) -> StopOrder {
    match &spec.checkpoint {
        Some(checkpoint) => StopOrder { signal: checkpoint.notice.clone(), grace_ms: checkpoint.grace_ms },
        None => spec.stop.clone(),
    }
}

/// What the jobs that give way hold.
#[derive(Default)]
struct Holders {
    devices: BTreeMap<DeviceId, BTreeSet<AllocationId>>,
    hosts: BTreeMap<NodeId, BTreeSet<AllocationId>>,
    /// By queue, where it has a limit: what goes there may need that they let go of it first.
    limited: BTreeMap<String, BTreeSet<AllocationId>>,
}

impl Holders {
    fn of(state: &State, leavers: &[Leaver]) -> Self {
        let mut holders = Self::default();
        let is_limited = |path: &&str| state.queues.get(*path).is_some_and(|queue| !queue.limit.is_empty());
        for leaver in leavers {
            for path in lineage(leaver.queue).filter(is_limited) {
                holders.limited.entry(path.to_owned()).or_default().extend(leaver.live);
            }
        }
        for placement in leavers.iter().flat_map(|leaver| held_by(state, leaver.live)) {
            for (device, _) in &placement.devices {
                holders.devices.entry(*device).or_default().insert(placement.allocation);
            }
            if placement.cpu_milli > 0 || placement.memory_bytes > 0 {
                holders.hosts.entry(placement.node).or_default().insert(placement.allocation);
            }
        }
        holders
    }

    /// The allocations that must end before a place is free: those on its devices, those whose cores or memory it may need,
    /// those that count against the same limits, those that leave for it, and the job's own.
    fn of_place(&self, state: &State, place: &Place, leavers: &[Leaver]) -> BTreeSet<AllocationId> {
        let own = leavers.iter().filter(|leaver| leaver.job == place.job || leaver.by == Some(place.job));
        let mut found: BTreeSet<AllocationId> = own.flat_map(|leaver| leaver.live).copied().collect();
        let queue = state.jobs.get(&place.job.number).map(|job| job.spec.queue.as_str());
        for path in queue.into_iter().flat_map(lineage) {
            found.extend(self.limited.get(path).into_iter().flatten());
        }
        for placement in &place.placements {
            found.extend(
                placement.devices.iter().filter_map(|(device, _)| self.devices.get(device)).flatten(),
            );
            if placement.cpu_milli > 0 || placement.memory_bytes > 0 {
                found.extend(self.hosts.get(&placement.node).into_iter().flatten());
            }
        }
        found
    }
}
