//! From places to events: stops, promises where others still hold something, and placements where none do.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::near::Going;
use super::room::Room;
use super::trial::Trial;
use super::{Place, Plan};
use crate::event::Event;
use crate::id::{AllocationId, DeviceId, JobId};
use crate::model::allocation::Placement;
use crate::model::job::Cause;
use crate::model::promise::Promise;
use crate::model::queue::lineage;
use crate::state::State;

/// A job that gives way.
#[derive(Clone, Copy)]
pub(super) struct Leaver<'a> {
    pub(super) job: JobId,
    pub(super) queue: &'a str,
    /// What goes with it.
    pub(super) live: &'a [AllocationId],
    /// Whether all of it goes; else it runs on without these.
    pub(super) whole: bool,
    pub(super) cause: Cause,
    /// The job for which it goes, where that is known beforehand; else the job that gets its places.
    pub(super) by: Option<JobId>,
    /// Whether that job grows by it, instead of starting.
    pub(super) grows: bool,
}

/// What the allocations of a job hold.
pub(super) fn held_by<'a, 'b>(
    state: &'a State,
    live: &'b [AllocationId],
) -> impl Iterator<Item = &'a Placement> + use<'a, 'b> {
    live.iter().filter_map(|id| state.allocations.get(id)).map(|held| &held.placement)
}

/// What a place waits for.
type Awaited = (BTreeSet<AllocationId>, Place);

/// Turns places, and further parts of gangs, into events. A job that gets places that leavers hold, or for
/// which they leave, gets a promise. The jobs in `anyway` go whatever is planned. The `early` places were
/// given before any job was told to make room for the growth of others.
pub(super) fn settle(
    trial: &Trial,
    (leavers, anyway): (&[Leaver], &[Leaver]),
    (places, early, grown): (Vec<Place>, usize, Vec<Place>),
    plan: &mut Plan,
) {
    if leavers.is_empty() && anyway.is_empty() && grown.is_empty() {
        plan.places.extend(places);
        return;
    }
    let state = trial.state;
    let all: Vec<Leaver> = leavers.iter().chain(anyway).copied().collect();
    let (places, grown) = awaited(trial, (leavers, &all), (places, early, grown));
    let mut taker: BTreeMap<JobId, JobId> = BTreeMap::new();
    let (mut later, mut now): (Vec<_>, Vec<_>) =
        grown.into_iter().partition(|(waits_for, _)| !waits_for.is_empty());
    for (mut waits_for, mut place) in places {
        if waits_for.is_empty() {
            plan.places.push(place);
            continue;
        }
        for id in &waits_for {
            if let Some(held) = state.allocations.get(id).filter(|held| held.job != place.job) {
                taker.entry(held.job).or_insert(place.job);
            }
        }
        // A job that starts later starts with all that it got.
        let of_job = |(_, more): &mut Awaited| more.job == place.job;
        let more: Vec<_> = now.extract_if(.., of_job).chain(later.extract_if(.., of_job)).collect();
        for (awaited, more) in more {
            waits_for.extend(awaited);
            place.placements.extend(more.placements);
        }
        place.placements.sort_by_key(|placement| placement.rank);
        plan.promises.push(promise(place, waits_for, false));
    }
    plan.grown = by_job(now).into_iter().map(|(_, place)| place).collect();
    plan.promises.extend(by_job(later).into_iter().map(|(waits_for, place)| promise(place, waits_for, true)));
    // By the order, jobs go for whichever job waits for them. Where none does, all have room beside them once those end that end anyway.
    let awaited: BTreeSet<AllocationId> =
        plan.promises.iter().flat_map(|promise| &promise.waits_for).copied().collect();
    let goes = |leaver: &&Leaver| leaver.by.is_some() || leaver.live.iter().any(|id| awaited.contains(id));
    plan.ends.extend(leavers.iter().filter(goes).filter_map(|leaver| {
        // A job that goes on faster elsewhere does so for its own sake, whichever job waits for its places.
        let taker = taker.get(&leaver.job).filter(|_| leaver.cause != Cause::Faster);
        let by = leaver.by.as_ref().or(taker).map(ToString::to_string);
        end(state, leaver, by)
    }));
}

/// What places, and further parts of gangs, wait for. On hosts they share what is left beside the leavers.
/// The early places come first where any job goes for the growth of others, since what is left beside these
/// is their own; then come places that wait for nothing else; growth comes last.
fn awaited(
    trial: &Trial,
    (leavers, all): (&[Leaver], &[Leaver]),
    (places, early, grown): (Vec<Place>, usize, Vec<Place>),
) -> (Vec<Awaited>, Vec<Awaited>) {
    let state = trial.state;
    let mut room = Room::beside(trial, all, places.iter().chain(&grown).flat_map(|place| &place.placements));
    let before: Vec<Leaver> = all.iter().filter(|leaver| !leaver.grows).copied().collect();
    let (holders, holders_before) = (Holders::of(state, all), Holders::of(state, &before));
    let alone = |place: &Place| state.jobs.get(&place.job.number).is_some_and(|job| job.spec.exclusive);
    let of_place = |(index, place): (usize, Place)| {
        let then = if index < early { &holders_before } else { &holders };
        let mut waits_for = then.of_place(state, &place, (leavers, false));
        // Places may have been exchanged since.
        waits_for.extend(holders.of_devices(&place));
        (waits_for, place)
    };
    let mut places: Vec<Awaited> = places.into_iter().enumerate().map(of_place).collect();
    let is_early = |index: usize| index < early && before.len() < all.len();
    let mut turns: Vec<usize> = (0..places.len()).collect();
    turns.sort_by_key(|index| (!is_early(*index), !places[*index].0.is_empty()));
    for index in turns {
        let (waits_for, place) = &mut places[index];
        let alone = alone(place);
        room.take(place.placements.iter(), waits_for, (is_early(index), alone));
    }
    let of_growth = |place: Place| {
        let mut waits_for = holders.of_place(state, &place, (leavers, true));
        room.take(place.placements.iter(), &mut waits_for, (false, alone(&place)));
        (waits_for, place)
    };
    (places, grown.into_iter().map(of_growth).collect())
}

/// How a job, or a part of it, is told to go.
fn end(state: &State, leaver: &Leaver, by: Option<String>) -> Option<Event> {
    let Leaver { job, cause, .. } = *leaver;
    if !leaver.whole {
        return Some(Event::Shrinking { job, allocations: leaver.live.to_vec(), cause, by });
    }
    let spec = &state.jobs.get(&job.number)?.spec;
    Some(Event::Stopping { job, cause, by, order: spec.notice(), requeue: !spec.runs_outside() })
}

fn promise(place: Place, waits_for: BTreeSet<AllocationId>, grows: bool) -> Promise {
    let Place { job, placements, port } = place;
    Promise { job, placements, port, waits_for: waits_for.into_iter().collect(), grows }
}

/// Joins all further parts of a gang, with all that they wait for.
fn by_job(parts: Vec<Awaited>) -> Vec<Awaited> {
    let mut all: BTreeMap<JobId, Awaited> = BTreeMap::new();
    for (waits_for, place) in parts {
        match all.entry(place.job) {
            Entry::Vacant(entry) => drop(entry.insert((waits_for, place))),
            Entry::Occupied(mut entry) => {
                let (awaited, gang) = entry.get_mut();
                awaited.extend(waits_for);
                gang.placements.extend(place.placements);
            }
        }
    }
    let mut all: Vec<_> = all.into_values().collect();
    all.iter_mut().for_each(|(_, place)| place.placements.sort_by_key(|placement| placement.rank));
    all
}

/// What the jobs that give way hold.
#[derive(Default)]
struct Holders {
    devices: BTreeMap<DeviceId, BTreeSet<AllocationId>>,
    /// By queue, where it has a limit: a place there may have to wait until they let go of it.
    limited: BTreeMap<String, BTreeSet<AllocationId>>,
    /// Filled as far as it is asked near which jobs they lie.
    going: Going,
}

impl Holders {
    fn of(state: &State, leavers: &[Leaver]) -> Self {
        let mut holders = Self::default();
        let is_limited = |path: &&str| state.limit_at(path).is_some_and(|limit| !limit.is_empty());
        for leaver in leavers {
            for path in lineage(leaver.queue).filter(is_limited) {
                holders.limited.entry(path.to_owned()).or_default().extend(leaver.live);
            }
        }
        for placement in leavers.iter().flat_map(|leaver| held_by(state, leaver.live)) {
            holders.going.note(state, placement);
            for (device, _) in &placement.devices {
                holders.devices.entry(*device).or_default().insert(placement.allocation);
            }
        }
        holders
    }

    /// The allocations on the devices of a place.
    fn of_devices(&self, place: &Place) -> impl Iterator<Item = AllocationId> {
        let devices = place.placements.iter().flat_map(|placement| &placement.devices);
        devices.filter_map(|(device, _)| self.devices.get(device)).flatten().copied()
    }

    /// The allocations that must end before a place is free, whatever hosts have left: those on its devices, those that count
    /// against the same limits, those beside which it may not lie, those that leave for it, and the job's own.
    fn of_place(
        &self,
        state: &State,
        place: &Place,
        (leavers, grows): (&[Leaver], bool),
    ) -> BTreeSet<AllocationId> {
        let for_it = |leaver: &&Leaver| leaver.by == Some(place.job) && leaver.grows == grows;
        let own = leavers.iter().filter(|leaver| leaver.job == place.job || for_it(leaver));
        let mut found: BTreeSet<AllocationId> = own.flat_map(|leaver| leaver.live).copied().collect();
        // A job that goes on elsewhere does so once all of it is gone, including what was told to go before.
        let goes_on = leavers.iter().any(|leaver| leaver.whole && leaver.job == place.job);
        let run = state.run(place.job).filter(|_| goes_on);
        found.extend(run.map(|run| run.live.clone()).unwrap_or_default());
        let spec = state.jobs.get(&place.job.number).map(|job| &job.spec);
        found.extend(
            spec.map(|spec| self.going.in_the_way(state, spec, &place.placements)).unwrap_or_default(),
        );
        for path in spec.into_iter().flat_map(|spec| lineage(spec.stand())) {
            found.extend(self.limited.get(path).into_iter().flatten());
        }
        found.extend(self.of_devices(place));
        found
    }
}
