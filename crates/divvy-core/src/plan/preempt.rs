//! Phase 4, preempt, by `walk`: jobs are walked in the order of the policy, running and waiting alike, and chosen while the
//! devices of the pool last; running ones that are not chosen give way, but only where others take their places (L8).

use std::collections::{BTreeMap, BTreeSet};

use super::choose::{self, Chosen, Runner};
use super::order::{self, Line};
use super::place;
use super::trial::Trial;
use super::{Place, Plan};
use crate::event::Event;
use crate::id::{AllocationId, ClassId, DeviceId, JobId, NodeId};
use crate::model::allocation::Placement;
use crate::model::job::{Cause, JobSpec, StopOrder};
use crate::model::promise::Promise;
use crate::model::queue::lineage;
use crate::reason::Reason;
use crate::snapshot::{OrderKey, Running, Waiting};
use crate::state::State;
use crate::time::Time;

/// Verdicts of the classes that were tried.
type Verdicts = BTreeMap<ClassId, Option<Reason>>;

/// Chooses, places and stops.
pub(super) fn walk(
    trial: &mut Trial,
    (waiting, running): (&Waiting, &Running),
    now: Time,
    plan: &mut Plan,
    verdicts: &mut Verdicts,
) {
    if waiting.is_empty() {
        return;
    }
    let state = trial.state;
    let Chosen { waiting: chosen, victims } =
        choose::choose(state, trial.capacity(), (waiting, running), now);
    let mut places = Vec::new();
    for victim in &victims {
        held_by(state, &victim.view.live).for_each(|placement| trial.release(placement, &victim.view.queue));
    }
    for (class, key, most) in chosen {
        place_waiting(trial, (class, key.number, most), &mut places, verdicts);
    }
    let keeps = |victim: &Runner, trial: &mut Trial| {
        let held: Vec<&Placement> = held_by(state, &victim.view.live).collect();
        trial.keep(&held, &victim.view.queue)
    };
    let stopped: Vec<Runner> = victims.into_iter().filter(|victim| !keeps(victim, trial)).collect();
    fill(trial, (waiting, &stopped), now, &mut places, verdicts);
    places.iter_mut().flat_map(|place| &mut place.placements).for_each(|placement| trial.refresh(placement));
    settle(state, &stopped, places, plan);
}

fn held_by<'a>(state: &'a State, live: &'a [AllocationId]) -> impl Iterator<Item = &'a Placement> {
    live.iter().filter_map(|id| state.allocations.get(id)).map(|held| &held.placement)
}

/// Places at most so many members of a job, unless its class has been found not to fit.
fn place_waiting(
    trial: &mut Trial,
    (class, number, most): (ClassId, u64, usize),
    places: &mut Vec<Place>,
    verdicts: &mut Verdicts,
) -> bool {
    if matches!(verdicts.get(&class), Some(Some(_))) {
        return false;
    }
    let placed = place::place_members(trial, number, most, places);
    let fits = placed.is_ok();
    verdicts.insert(class, placed.err());
    fits
}

/// Gives what is left to whoever fits, in order: those that wait, and those that are being stopped.
fn fill(
    trial: &mut Trial,
    (waiting, stopped): (&Waiting, &[Runner]),
    now: Time,
    places: &mut Vec<Place>,
    verdicts: &mut Verdicts,
) {
    let state = trial.state;
    let placed: BTreeSet<u64> = places.iter().map(|place| place.job.number).collect();
    let mut line = Line::new(waiting, &state.policy, now);
    let mut moving: Vec<(OrderKey, &Runner)> = stopped
        .iter()
        .map(|runner| (order::of_stopped(&state.policy, runner.job, runner.view, now), runner))
        .collect();
    moving.sort_unstable_by_key(|(key, _)| *key);
    let mut moving = moving.into_iter().peekable();
    loop {
        let waits = line.first();
        if let Some((_, runner)) = moving.next_if(|(key, _)| waits.is_none_or(|first| *key < first)) {
            move_stopped(trial, runner, places, verdicts);
            continue;
        }
        let Some((_, class, key)) = line.take() else { return };
        let most = if placed.contains(&key.number) && !is_array(state, key.number) { 0 } else { usize::MAX };
        if state.verdicts.get(&class).is_some_and(|reason| place::is_still_busy(trial, reason)) {
            verdicts.entry(class).or_insert_with(|| state.verdicts.get(&class).cloned());
        } else if most == 0 || place_waiting(trial, (class, key.number, most), places, verdicts) {
            line.admit_next(class, key);
        }
    }
}

fn is_array(state: &State, number: u64) -> bool {
    state.jobs.get(&number).is_some_and(|job| matches!(job.runs, crate::state::Runs::Array(_)))
}

/// Finds a new place for a job that is being stopped.
fn move_stopped(trial: &mut Trial, runner: &Runner, places: &mut Vec<Place>, verdicts: &Verdicts) {
    if matches!(verdicts.get(&runner.view.class), Some(Some(_))) {
        return;
    }
    let Some(job) = trial.state.jobs.get(&runner.job.number) else { return };
    if let Ok(placements) = place::place_spec(trial, &job.spec) {
        places.push(Place::new(runner.job, placements));
    }
}

/// Turns places into what happens: stops, promises where others still hold something, and placements where nobody does.
fn settle(state: &State, stopped: &[Runner], places: Vec<Place>, plan: &mut Plan) {
    let holders = Holders::of(state, stopped);
    let mut taker: BTreeMap<JobId, JobId> = BTreeMap::new();
    for place in places {
        let waits_for = holders.of_place(state, &place, stopped);
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
    plan.ends.extend(stopped.iter().filter_map(|runner| {
        let spec = &state.jobs.get(&runner.job.number)?.spec;
        let by = taker.get(&runner.job).map(ToString::to_string);
        Some(Event::Stopping { job: runner.job, cause: Cause::Order, by, order: notice(spec), requeue: true })
    }));
}

/// How a job is told that it gives way: as its checkpoint wants it, else as for any stop.
fn notice(spec: &JobSpec) -> StopOrder {
    match &spec.checkpoint {
        Some(checkpoint) => StopOrder { signal: checkpoint.notice.clone(), grace_ms: checkpoint.grace_ms },
        None => spec.stop.clone(),
    }
}

/// What the jobs that are being stopped hold.
#[derive(Default)]
struct Holders {
    devices: BTreeMap<DeviceId, BTreeSet<AllocationId>>,
    hosts: BTreeMap<NodeId, BTreeSet<AllocationId>>,
    /// By queue, where it has a limit: what goes there may need that they let go of it first.
    limited: BTreeMap<String, BTreeSet<AllocationId>>,
}

impl Holders {
    fn of(state: &State, stopped: &[Runner]) -> Self {
        let mut holders = Self::default();
        let is_limited = |path: &&str| state.queues.get(*path).is_some_and(|queue| !queue.limit.is_empty());
        for runner in stopped {
            for path in lineage(&runner.view.queue).filter(is_limited) {
                holders.limited.entry(path.to_owned()).or_default().extend(&runner.view.live);
            }
        }
        for placement in stopped.iter().flat_map(|runner| held_by(state, &runner.view.live)) {
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
    /// those that count against the same limits, and the job's own.
    fn of_place(&self, state: &State, place: &Place, stopped: &[Runner]) -> BTreeSet<AllocationId> {
        let own =
            stopped.iter().filter(|runner| runner.job == place.job).flat_map(|runner| &runner.view.live);
        let mut found: BTreeSet<AllocationId> = own.copied().collect();
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
