//! The calendar in a plan: what reservations keep from a job, and what has to go when one begins.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::trial::Trial;
use crate::amount::{Amount, Limits, Resource};
use crate::event::Event;
use crate::id::{DeviceId, JobId};
use crate::model::allocation::Placement;
use crate::model::device::{Draw, WHOLE_MILLI};
use crate::model::job::{Cause, JobSpec};
use crate::model::queue::{Queue, lineage};
use crate::model::reservation::{Part, Purpose, Reservation};
use crate::snapshot::{Capacity, DeviceView, NodeView};
use crate::state::{Allocation, Goes, State};
use crate::time::{Span, Time};

/// Puts aside what the calendar keeps from a job now, to be rolled back. Returns from when on the first of it
/// is kept; `None` where nothing is.
pub(super) fn put_aside(trial: &mut Trial, spec: &JobSpec) -> Option<Time> {
    let now = trial.reserve.now().max(trial.state.now);
    put_aside_at(trial, spec, now)
}

/// The pool as the calendar leaves it to a job that would start at a moment to come, to be rolled back: what is drained now takes tasks
/// again if that is over by then.
pub(super) fn come_to(trial: &mut Trial, spec: &JobSpec, at: Time) {
    let state = trial.state;
    let is_over = |kept: &&Reservation| kept.is_drain_now() && kept.until.is_some_and(|until| until <= at);
    for part in state.reservations.iter().filter(is_over).flat_map(|kept| &kept.parts) {
        trial.open(part.node, at);
    }
    put_aside_at(trial, spec, at);
}

/// Puts aside what the calendar keeps from a job that would start at a moment to come.
fn put_aside_at(trial: &mut Trial, spec: &JobSpec, at: Time) -> Option<Time> {
    let closed = trial.state.reservations.iter().filter(|kept| is_closed(kept, spec, at));
    let mut first: Option<Time> = None;
    for kept in closed {
        for part in &kept.parts {
            if let Some(placement) = whole(trial, part) {
                trial.put_aside(placement);
                first = Some(first.map_or(kept.from, |first| first.min(kept.from)));
            }
        }
    }
    first
}

/// The devices that the calendar keeps from a job now, whoever has them.
pub(super) fn kept_from(state: &State, capacity: &Capacity, spec: &JobSpec) -> BTreeSet<DeviceId> {
    let closed = state.reservations.iter().filter(|kept| is_closed(kept, spec, state.now));
    let of_part = |part: &Part| -> Vec<DeviceId> {
        let node = capacity.node_place(part.node).map(|place| &capacity.nodes[place]);
        let devices = node.into_iter().flat_map(|node| &node.devices).map(|device| device.id);
        devices.filter(|device| part.has(part.node, *device)).collect()
    };
    closed.flat_map(|kept| &kept.parts).flat_map(of_part).collect()
}

/// Whether a job that would start at a moment may not be placed on what is kept. Maintenance that has begun shows in what is free. Before
/// a beginning, jobs are kept away that say they would not have ended by then, and jobs that say nothing and may not be stopped.
fn is_closed(kept: &Reservation, spec: &JobSpec, at: Time) -> bool {
    if kept.is_for(spec) || kept.until.is_some_and(|until| until <= at) {
        return false;
    }
    if kept.began {
        return kept.purpose != Purpose::Maintenance;
    }
    let ends_in_time = spec.known_length().map(|length| at + length <= kept.from);
    kept.from <= at || kept.evicts && !ends_in_time.unwrap_or(spec.preemptible)
}

/// The moments to come, rising, from which on the calendar keeps other things from a job that would start then than just before.
pub(super) fn turns(state: &State, spec: &JobSpec, now: Time) -> Vec<Time> {
    let of = |kept: &Reservation| {
        // The last moment at which it would still have ended in time is one of those before.
        let last = spec.known_length().filter(|_| kept.evicts).map(|length| kept.from - length + Span(1));
        [last, Some(kept.from), kept.until]
    };
    let mut turns: Vec<Time> = state.reservations.iter().flat_map(of).flatten().collect();
    turns.retain(|turn| *turn > now);
    turns.sort_unstable();
    turns.dedup();
    turns
}

/// When running jobs will be stopped for what is to come on the calendar.
pub(super) fn stops(state: &State) -> BTreeMap<JobId, Time> {
    let to_come: Vec<&Reservation> =
        state.reservations.iter().filter(|kept| kept.evicts && !kept.began).collect();
    // Asked for each job for which room is kept: without any of them, nobody is to be looked at.
    if to_come.is_empty() {
        return BTreeMap::new();
    }
    let lies_there = |held: &&Allocation| to_come.iter().any(|kept| kept.is_under(&held.placement));
    let jobs: BTreeSet<JobId> = state.allocations.values().filter(lies_there).map(|held| held.job).collect();
    jobs.into_iter().filter_map(|job| Some((job, state.stopped_for(job)?.from))).collect()
}

/// Likewise, when a job that starts on these placements will be stopped.
pub(super) fn stop_of(state: &State, spec: &JobSpec, placements: &[Placement]) -> Option<Time> {
    let stops = |kept: &&Reservation| {
        let lies_there = || placements.iter().any(|placement| kept.is_under(placement));
        kept.evicts && !kept.began && !kept.is_for(spec) && lies_there()
    };
    state.reservations.iter().filter(stops).map(|kept| kept.from).min()
}

/// What a job can still hold of a placement at a moment to come: nothing of what it will have been stopped on by then.
pub(super) fn lasting(state: &State, spec: &JobSpec, placement: &Placement, at: Time) -> Option<Placement> {
    let stops = |kept: &&Reservation| kept.evicts && !kept.began && kept.from <= at && !kept.is_for(spec);
    let kept = state.reservations.iter().filter(stops).flat_map(|kept| &kept.parts);
    let mut lasts = placement.clone();
    for part in kept.filter(|part| part.node == placement.node) {
        if part.devices.is_empty() {
            return None;
        }
        lasts.devices.retain(|(device, _)| !part.devices.contains(device));
    }
    Some(lasts)
}

/// All that a part has, whichever job holds it now: what its holders leave is kept, too.
fn whole(trial: &mut Trial, part: &Part) -> Option<Placement> {
    let allocation = trial.next_id();
    let capacity = trial.capacity();
    let node: &NodeView = &capacity.nodes[capacity.node_place(part.node)?];
    let all = part.devices.is_empty();
    let of_part = |device: &&DeviceView| all || part.devices.contains(&device.id);
    let draw = |device: &DeviceView| -> (DeviceId, Draw) {
        (device.id, Draw { milli: WHOLE_MILLI, memory_mib: device.spec.memory_mib, partition: None })
    };
    Some(Placement {
        allocation,
        rank: 0,
        node: part.node,
        devices: node.devices.iter().filter(of_part).map(draw).collect(),
        cpu_milli: if all { node.cpu_milli.0 } else { 0 },
        memory_bytes: if all { node.memory_bytes.0 } else { 0 },
        extras: if all { node.extras.0.clone() } else { Default::default() },
        alternative: 0,
    })
}

/// What has to make room for what has begun on the calendar: attempts, and surplus tasks of gangs that run on.
pub(super) fn evicted(state: &State) -> Vec<Event> {
    let begun: Vec<&Reservation> =
        state.reservations.iter().filter(|kept| kept.began && kept.evicts).collect();
    if begun.is_empty() {
        return Vec::new();
    }
    let mut jobs: BTreeMap<JobId, &Reservation> = BTreeMap::new();
    for held in state.allocations.values() {
        if let Some(kept) = begun.iter().find(|kept| is_meant(state, kept, (held.job, &held.placement))) {
            jobs.entry(held.job).or_insert(kept);
        }
    }
    let evicted = |(job, kept): (JobId, &Reservation)| {
        let lies_there = |held: &Placement| begun.iter().any(|kept| is_meant(state, kept, (job, held)));
        let by = Some(format!("reservation {}", kept.id));
        match state.goes_of(job, lies_there) {
            Goes::Nothing => None,
            Goes::Tasks(allocations) => Some(Event::Shrinking { job, allocations, cause: Cause::Drain, by }),
            Goes::All => {
                let order = state.jobs.get(&job.number)?.spec.notice();
                Some(Event::Stopping { job, cause: Cause::Drain, by, order, requeue: true })
            }
        }
    };
    jobs.into_iter().filter_map(evicted).collect()
}

/// Whether something is kept from a job that runs on it.
fn is_meant(state: &State, kept: &Reservation, (job, held): (JobId, &Placement)) -> bool {
    kept.is_under(held) && !state.jobs.get(&job.number).is_some_and(|job| kept.is_for(&job.spec))
}

/// Adds to a queue's guarantee the devices that are kept now for it, or for a queue below it if it states a guarantee.
pub(super) fn with_reserved<'a>(state: &State, queue: &'a Queue) -> Cow<'a, Queue> {
    let mut raised = Cow::Borrowed(queue);
    for (of, _, device) in state.reserved_now() {
        let is_above = lineage(of).any(|path| path == queue.path) && !queue.guarantee.is_empty();
        // Where nodes are kept for queues, these are guaranteed them anyway, and other queues cannot use them.
        let is_kept = || state.nodes.get(&device.node).is_some_and(|node| state.keeper_of(node).is_some());
        let is_moot = || state.keeps_nodes() && (is_kept() || !state.kept_to(of).is_unsaid());
        if (of == queue.path || is_above) && !is_moot() {
            raise(&mut raised.to_mut().guarantee, &device.spec.model);
        }
    }
    raised
}

/// Adds a device to what is guaranteed: to all, and to its model where that is named.
fn raise(guarantee: &mut Limits, model: &str) {
    let finite = |amount: &Amount| if let Amount::Finite(milli) = amount { *milli } else { i64::MAX };
    let models = guarantee.iter().filter(|(resource, _)| matches!(resource, Resource::Model(_)));
    let named = models.fold(0i64, |sum, (_, amount)| sum.saturating_add(finite(amount)));
    let any = guarantee.entry(Resource::Any).or_insert(Amount::Finite(0));
    *any = Amount::Finite(finite(any).max(named).saturating_add(i64::from(WHOLE_MILLI)));
    if let Some(amount) = guarantee.get_mut(&Resource::Model(model.to_owned())) {
        *amount = Amount::Finite(finite(amount).saturating_add(i64::from(WHOLE_MILLI)));
    }
}
