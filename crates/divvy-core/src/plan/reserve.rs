//! Phase 5, reserve and backfill: the first jobs that wait for room get it at the earliest time that limits
//! and estimates allow. Jobs behind them may run if that does not push them back. Computed anew in each
//! cycle, and only once a job behind them would fit.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::calendar;
use super::place;
use super::share::Closed;
use super::trial::Trial;
use super::{Keeps, Room};
use crate::amount::Resource;
use crate::id::{AllocationId, JobId};
use crate::model::allocation::Placement;
use crate::model::extras::Extras;
use crate::model::job::JobSpec;
use crate::reason::Reason;
use crate::snapshot::{Capacity, Hosts, Running};
use crate::state::{Job, State};
use crate::time::Time;

/// How many ends of running jobs are looked at for one reservation at most.
const MOST_ENDS: usize = 4096;

/// Where more classes than these wait, none is tried again because room is kept for later than before.
const MOST_REOPENED: usize = 256;

/// What a cycle knows of ends to come, and what it keeps for which jobs.
#[derive(Default)]
pub(super) struct Reserve<'a> {
    now: Time,
    running: Option<Runs<'a>>,
    /// What is being stopped: it is free next.
    leavers: Option<&'a BTreeSet<AllocationId>>,
    /// The jobs that wait for room, in line, and whether it may be collected for them; the first `looked_at` have been looked at.
    owners: Vec<(JobId, bool)>,
    looked_at: usize,
    kept: Vec<Kept>,
    /// What the looking found, for people.
    rooms: Vec<Room>,
    /// Whether it is asked for which jobs room is kept, whichever would start meanwhile.
    is_asked: bool,
    /// Whether this cycle has placed jobs that stand before any of the owners: their room may be later than it was.
    is_later: bool,
    /// When what this cycle has placed will end, as far as that is known.
    ends: BTreeMap<AllocationId, Time>,
    /// How many ends were looked at to find room elsewhere for the jobs for which it is kept.
    looked_elsewhere: usize,
    leaves: Leaves,
}

/// The running jobs, when they reach their limits, and which tasks run where.
type Runs<'a> = (&'a Running, &'a BTreeSet<(Time, JobId)>, &'a Hosts);

/// What a job leaves to the jobs for which room is kept.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Leaves {
    /// All of it, or what they would have elsewhere instead.
    #[default]
    AllOrElsewhere,
    /// All of it.
    All,
    /// Where others go for it: what they leave, too, as far as their ends are foretold. What is collected as
    /// it becomes free, they would have held for longer.
    WhatIsForetold,
    /// Where others go for what is guaranteed to its queue: only what was free before.
    WhatIsFree,
}

/// What is kept for a waiting job.
struct Kept {
    owner: JobId,
    /// From when the job has all of it; `None` where that cannot be foretold and it is collected as it becomes free.
    from: Option<Time>,
    placements: Vec<Placement>,
    /// What of that was free when the place was looked for.
    free: Vec<Placement>,
}

impl Kept {
    /// What of it is left to its owner.
    fn left(&self, leaves: Leaves) -> &[Placement] {
        match (leaves, self.from) {
            (Leaves::WhatIsFree, _) | (Leaves::WhatIsForetold, None) => &self.free,
            _ => &self.placements,
        }
    }
}

/// What ends together, and when, if that is known.
pub(super) type End = (Option<Time>, Vec<AllocationId>);

impl<'a> Reserve<'a> {
    /// For a cycle: what runs, and what is being stopped.
    pub(super) fn new(now: Time, running: Runs<'a>, leavers: &'a BTreeSet<AllocationId>) -> Self {
        Self { now, running: Some(running), leavers: Some(leavers), ..Self::default() }
    }

    /// Has all owners looked at, even if no job behind them would start.
    pub(super) fn ask(&mut self) {
        self.is_asked = true;
    }

    pub(super) fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// Sets what jobs leave to those for which room is kept, from now on; returns what they left before.
    pub(super) fn leave(&mut self, leaves: Leaves) -> Leaves {
        std::mem::replace(&mut self.leaves, leaves)
    }

    /// Whether the jobs for which room is kept may have it elsewhere.
    pub(super) fn may_make_way(&self) -> bool {
        self.leaves == Leaves::AllOrElsewhere && self.has_owners()
    }

    /// The moment of the cycle; the beginning of time where there is none.
    pub(super) fn now(&self) -> Time {
        self.now
    }

    /// Whether a job that had to leave room to others may have it by now, though nothing has become free: theirs may be later.
    pub(super) fn reopens(&self, judged: &Reason) -> bool {
        self.is_later && matches!(judged, Reason::Reserved(_))
    }

    /// Notes a job that waits, whether room may be collected for it, why it waits, and whether this cycle has placed any before it.
    pub(super) fn note(
        &mut self,
        state: &State,
        (job, collects, is_passed): (JobId, bool, bool),
        reason: &Reason,
    ) {
        let is_room = matches!(
            reason,
            Reason::DevicesBusy(_)
                | Reason::HostBusy(..)
                | Reason::NoIdleNode
                | Reason::GangIncomplete(_)
                | Reason::NoDomain(..)
                | Reason::NoIsland(..)
                | Reason::NotSpread(..)
                | Reason::Reserved(_)
        ) || reason.is_of_neighbours()
            || reason.is_of_calendar() && state.reservations.iter().any(|kept| kept.until.is_some());
        if is_room && self.heeds(state) {
            self.owners.push((job, collects));
            // Where the past counts, that is looked at each minute; where many classes wait, an arrival is not to cost a look at all.
            self.is_later |= is_passed && !state.remembers() && state.verdicts.len() <= MOST_REOPENED;
        }
    }

    /// Whether the room of any owner may be later than it was.
    pub(super) fn is_later(&self) -> bool {
        self.is_later
    }

    /// Whether room may be kept for one more job.
    pub(super) fn heeds(&self, state: &State) -> bool {
        self.running.is_some() && self.owners.len() < state.policy.reserve as usize
    }

    /// When what is placed now will have ended, if its limit or its own estimate says so.
    fn until(&self, spec: &JobSpec) -> Option<Time> {
        spec.known_length().map(|length| self.now + length)
    }

    /// Notes what was placed, and when it will be stopped there, if it will.
    pub(super) fn started(&mut self, spec: &JobSpec, placements: &[Placement], stop: Option<Time>) {
        let until = self.until(spec).into_iter().chain(stop).min();
        for placement in placements {
            match until {
                Some(until) => self.ends.insert(placement.allocation, until),
                // A placement that was undone may have had this id.
                None => self.ends.remove(&placement.allocation),
            };
        }
    }

    /// Notes room that a job has from some time on, whose place is not known yet.
    pub(super) fn note_room(&mut self, room: Room) {
        self.rooms.push(room);
    }

    /// What is kept for the jobs that were looked at.
    pub(super) fn rooms(&self) -> &[Room] {
        &self.rooms
    }

    /// From when on something is kept, for each job for which that can be foretold.
    pub(super) fn kept_from(&self) -> impl Iterator<Item = Time> {
        self.rooms.iter().filter_map(|room| match room.keeps {
            Keeps::From(from) => Some(from),
            Keeps::AsItComes | Keeps::Nothing => None,
        })
    }

    /// Whether any waiting job may be pushed back.
    pub(super) fn has_owners(&self) -> bool {
        !self.owners.is_empty()
    }
}

/// Puts aside what a job must leave to those before it. Returns the first of them, if there is any.
pub(super) fn put_aside(trial: &mut Trial, spec: &JobSpec) -> Option<JobId> {
    reserve(trial);
    let (until, leaves) = (trial.reserve.until(spec), trial.reserve.leaves);
    let in_time = |from: &Time| until.is_some_and(|until| until <= *from);
    let pushed = |kept: &&Kept| !kept.from.as_ref().is_some_and(in_time);
    let state = trial.state;
    // What the job will have been stopped on by then is in no other's way.
    let lasting = |kept: &Kept, placement: &Placement| match kept.from {
        Some(from) => calendar::lasting(state, spec, placement, from),
        None => Some(placement.clone()),
    };
    let of = |kept: &Kept| -> Vec<(JobId, Placement)> {
        let left = kept.left(leaves).iter().filter_map(|placement| lasting(kept, placement));
        left.map(|placement| (kept.owner, placement)).collect()
    };
    let kept: Vec<_> = trial.reserve.kept.iter().filter(pushed).flat_map(of).collect();
    let mut first = None;
    for (owner, placement) in kept {
        if let Some(free) = what_is_free(trial.capacity(), &placement) {
            trial.put_aside(free);
            first.get_or_insert(owner);
        }
    }
    first
}

/// Whether the jobs for which room is kept have it elsewhere from the same moments on if a job is placed here: then
/// it is kept there. Not where room is collected. No more ends are looked at in a cycle than for one reservation.
pub(super) fn makes_way(trial: &mut Trial, spec: &JobSpec, placements: &[Placement]) -> bool {
    let mark = trial.mark();
    let found = for_others(trial, |trial| elsewhere(trial, trial.reserve.until(spec), placements));
    trial.roll_back_to(mark);
    let Some(found) = found else { return false };
    let found: Vec<_> =
        found.into_iter().map(|placements| (free_of(trial.capacity(), &placements), placements)).collect();
    for (kept, (free, placements)) in trial.reserve.kept.iter_mut().zip(found) {
        (kept.placements, kept.free) = (placements, free);
    }
    true
}

/// Where each job for which room is kept has it, beside placements that last until then.
fn elsewhere(
    trial: &mut Trial,
    until: Option<Time>,
    placements: &[Placement],
) -> Option<Vec<Vec<Placement>>> {
    let state = trial.state;
    let owners: Vec<_> = trial.reserve.kept.iter().map(|kept| (kept.owner, kept.from)).collect();
    let last = owners.iter().map(|(_, from)| *from).collect::<Option<Vec<_>>>()?.into_iter().max();
    let ends = known_ends(trial);
    let by = |from: Time| ends.iter().take_while(move |(at, _)| at.is_some_and(|at| at <= from));
    trial.reserve.looked_elsewhere += owners.len() * last.map_or(0, |last| by(last).count());
    if trial.reserve.looked_elsewhere > MOST_ENDS {
        return None;
    }
    let mut found: Vec<Vec<Placement>> = Vec::new();
    for (owner, from) in owners {
        let (job, from) = (state.jobs.get(&owner.number)?, from?);
        let mark = trial.mark();
        let lasts = until.is_none_or(|until| until > from);
        let beside = placements.iter().filter(|_| lasts).chain(found.iter().flatten());
        beside.for_each(|placement| trial.put_aside(placement.clone()));
        calendar::come_to(trial, &job.spec, from);
        by(from).flat_map(|(_, ids)| ids).for_each(|id| give_back(trial, *id));
        let placed = place::place_now(trial, &job.spec);
        trial.roll_back_to(mark);
        found.push(placed.ok()?);
    }
    Some(found)
}

/// What of placements could be had now.
fn free_of(capacity: &Capacity, placements: &[Placement]) -> Vec<Placement> {
    placements.iter().filter_map(|placement| what_is_free(capacity, placement)).collect()
}

/// What of a placement could be had now.
fn what_is_free(capacity: &Capacity, placement: &Placement) -> Option<Placement> {
    let node = &capacity.nodes[capacity.node_place(placement.node)?];
    let has = |(id, draw): &&(crate::id::DeviceId, crate::model::device::Draw)| {
        let device = node.devices.iter().find(|device| device.id == *id);
        device.is_some_and(|device| device.free_milli >= draw.milli as i32)
    };
    let devices: Vec<_> = placement.devices.iter().filter(has).cloned().collect();
    let cpu_milli = placement.cpu_milli.min(node.cpu_milli.1).max(0);
    let memory_bytes = placement.memory_bytes.min(node.memory_bytes.1).max(0);
    let left = |(resource, amount): (&Resource, i64)| {
        (resource.clone(), amount.min(node.extras.1.of(resource)).max(0))
    };
    let extras: Extras = placement.extras.iter().map(left).collect();
    let any = !devices.is_empty() || cpu_milli > 0 || memory_bytes > 0 || !extras.is_empty();
    any.then(|| Placement { devices, cpu_milli, memory_bytes, extras, ..placement.clone() })
}

/// Looks for the room of other jobs than the one that is being placed. That one may be a part of a gang that grows: its domain and spread
/// do not concern them, nor does what its queue may not have.
fn for_others<T>(trial: &mut Trial, look: impl FnOnce(&mut Trial) -> T) -> T {
    let names_reasons = trial.name_reasons(false);
    let (scope, around) = (trial.keep_to(None), trial.join_spread(Vec::new()));
    let closed = std::mem::take(&mut trial.not_lent);
    let found = look(trial);
    trial.not_lent = closed;
    trial.keep_to(scope);
    trial.join_spread(around);
    trial.name_reasons(names_reasons);
    found
}

/// Whether a job would fit once all of these have ended, but for what its queue may not have.
pub(super) fn fits_after(
    trial: &mut Trial,
    (spec, closed): (&JobSpec, Closed),
    ended: &BTreeSet<AllocationId>,
) -> bool {
    let mark = trial.mark();
    let released: BTreeSet<AllocationId> = trial.released().collect();
    ended.difference(&released).for_each(|id| give_back(trial, *id));
    let fits = for_others(trial, |trial| {
        trial.not_lent = closed;
        place::place_now(trial, spec).is_ok()
    });
    trial.roll_back_to(mark);
    fits
}

/// Looks for the earliest start of the waiting jobs that have not been looked at.
pub(super) fn reserve(trial: &mut Trial) {
    while let Some((owner, collects)) = trial.reserve.owners.get(trial.reserve.looked_at).copied() {
        trial.reserve.looked_at += 1;
        let state = trial.state;
        let Some(job) = state.jobs.get(&owner.number) else { continue };
        let mark = trial.mark();
        let others = trial.reserve.kept.iter().flat_map(|kept| kept.placements.clone()).collect::<Vec<_>>();
        others.into_iter().for_each(|placement| trial.put_aside(placement));
        let found = for_others(trial, |trial| earliest(trial, (job, collects)));
        trial.roll_back_to(mark);
        let run = job.waiting_members().next().flatten();
        let (keeps, awaits) = match &found {
            None => (Keeps::Nothing, None),
            Some(Found { from: None, .. }) => (Keeps::AsItComes, None),
            Some(Found { from: Some(from), awaits, .. }) => (Keeps::From(*from), *awaits),
        };
        trial.reserve.rooms.push(Room { job: JobId { member: run, ..owner }, keeps, awaits });
        if let Some(Found { from, placements, .. }) = found {
            let free = free_of(trial.capacity(), &placements);
            trial.reserve.kept.push(Kept { owner, from, placements, free });
        }
    }
}

/// Where and when there is room for a job.
struct Found {
    /// `None` where nothing foretells it.
    from: Option<Time>,
    placements: Vec<Placement>,
    /// The job whose end makes the room whole, if it runs already.
    awaits: Option<JobId>,
}

/// The earliest start of a job, and where. First the known ends are waited for. Then, if the job has waited
/// long enough and no other does so, what runs without a known end is waited for, node by node.
fn earliest(trial: &mut Trial, (job, may_collect): (&Job, bool)) -> Option<Found> {
    let known = with_calendar(trial.state, known_ends(trial));
    let mut gone: BTreeSet<AllocationId> = known.iter().flat_map(|(_, ids)| ids).copied().collect();
    if let Some(found) = first_fit(trial, &job.spec, &known) {
        return Some(found);
    }
    let state = trial.state;
    let policy = &state.policy;
    let now = trial.reserve.now;
    let waited_ms = now.since(job.idle_since().unwrap_or(now)).0;
    let collects = |kept: &Kept| kept.from.is_none();
    if !may_collect
        || waited_ms < policy.collect_after_ms
        || job.spec.milli_asked() > i64::from(policy.collect_devices) * 1000
        || trial.reserve.kept.iter().any(collects)
    {
        return None;
    }
    for id in known.iter().flat_map(|(_, ids)| ids) {
        give_back(trial, *id);
    }
    gone.extend(trial.released());
    let (_, _, hosts) = trial.reserve.running?;
    let gone = gone.iter().filter_map(|id| Some(&state.allocations.get(id)?.placement));
    let mut unknown = Steps::as_they_come(hosts.least_first(gone).map(|ids| (None, ids)));
    let begin = trial.mark();
    let found = first_of(trial, &job.spec, &mut unknown);
    trial.roll_back_to(begin);
    found
}

/// Adds the ends of what is on the calendar, at which no job ends.
fn with_calendar(state: &State, mut ends: Vec<End>) -> Vec<End> {
    let over = state.reservations.iter().filter_map(|kept| kept.until);
    ends.extend(over.map(|until| (Some(until), Vec::new())));
    ends.sort_unstable();
    ends
}

/// Lets what runs end in these steps; returns where the job is placed after the first step that makes room
/// for it. As long as the calendar keeps the same from the job, room that is there once is there after each
/// further step, so many steps are passed at once. Without success everything is as it was.
fn first_fit(trial: &mut Trial, spec: &JobSpec, ends: &[End]) -> Option<Found> {
    let begin = trial.mark();
    let turns = calendar::turns(trial.state, spec, trial.reserve.now);
    let interval = |(at, _): &End| at.map(|at| turns.partition_point(|turn| *turn <= at));
    for alike in ends.chunk_by(|one, next| interval(one) == interval(next)) {
        if let Some(found) = first_of(trial, spec, &mut Steps::known(alike)) {
            trial.roll_back_to(begin);
            return Some(found);
        }
    }
    trial.roll_back_to(begin);
    None
}

/// Likewise among steps at which the calendar keeps the same from the job. What was looked at stays given back.
fn first_of(trial: &mut Trial, spec: &JobSpec, steps: &mut Steps) -> Option<Found> {
    let (mut ended, mut step, mut grows) = (0, 1, true);
    loop {
        let mark = trial.mark();
        let ends = steps.first(ended + step);
        let next = ends.len();
        if ended == next {
            return None;
        }
        for id in ends[ended..].iter().flat_map(|(_, ids)| ids) {
            give_back(trial, *id);
        }
        let given_back = trial.mark();
        calendar::come_to(trial, spec, ends[ended].0.unwrap_or(trial.reserve.now));
        let placed = place::place_now(trial, spec);
        trial.roll_back_to(given_back);
        match placed {
            Ok(placements) if next == ended + 1 => {
                let (from, ids) = &ends[ended];
                let awaits = ids.first().and_then(|id| Some(trial.state.allocations.get(id)?.job));
                return Some(Found { from: *from, placements, awaits });
            }
            Ok(_) => {
                trial.roll_back_to(mark);
                (step, grows) = (((next - ended) / 2).max(1), false);
            }
            Err(_) => {
                ended = next;
                step = if grows { step * 2 } else { (step / 2).max(1) };
            }
        }
    }
}

/// Ends, one after the other: those that are known, or more of them as they are asked for.
struct Steps<'a> {
    ends: Cow<'a, [End]>,
    more: Option<Box<dyn Iterator<Item = End> + 'a>>,
}

impl<'a> Steps<'a> {
    fn known(ends: &'a [End]) -> Self {
        Self { ends: Cow::Borrowed(ends), more: None }
    }

    fn as_they_come(more: impl Iterator<Item = End> + 'a) -> Self {
        Self { ends: Cow::Owned(Vec::new()), more: Some(Box::new(more)) }
    }

    /// The first so many, or all if there are fewer.
    fn first(&mut self, many: usize) -> &[End] {
        if let Some(more) = &mut self.more {
            let ends = self.ends.to_mut();
            ends.extend(more.take(many.saturating_sub(ends.len())));
        }
        &self.ends[..many.min(self.ends.len())]
    }
}

fn give_back(trial: &mut Trial, id: AllocationId) {
    let state = trial.state;
    let running = state.allocations.get(&id).map(|held| Cow::Borrowed(&held.placement));
    let placed = running.or_else(|| trial.taken(id).cloned().map(Cow::Owned));
    if let Some(placement) = placed {
        trial.put_back(placement);
    }
}

/// The known ends, the earliest first: of what is being stopped, limits, estimates that have not been outrun,
/// what the calendar will have stopped, and what this cycle placed.
pub(super) fn known_ends(trial: &Trial) -> Vec<End> {
    let (state, reserve) = (trial.state, &trial.reserve);
    let Some((running, limits, _)) = reserve.running else { return Vec::new() };
    let released: BTreeSet<AllocationId> = trial.released().collect();
    let mut ends: BTreeMap<JobId, Time> =
        limits.iter().take(MOST_ENDS).map(|(at, job)| (*job, *at)).collect();
    let stops = calendar::stops(state).into_iter().map(|(job, at)| (at, job));
    for (end, job) in running.ends_after(reserve.now).take(MOST_ENDS).chain(stops) {
        let known = ends.entry(job).or_insert(end);
        *known = end.min(*known);
    }
    let leaves = |id: &AllocationId| reserve.leavers.is_some_and(|leavers| leavers.contains(id));
    let live = |job: &JobId| {
        let live = state.run(*job).map(|run| run.live.clone()).unwrap_or_default();
        live.into_iter().filter(|id| !released.contains(id) && !leaves(id)).collect::<Vec<_>>()
    };
    let left = reserve.leavers.into_iter().flatten().filter(|id| !released.contains(id)).copied();
    let left: Vec<AllocationId> = left.take(MOST_ENDS).collect();
    let mut all: Vec<End> = ends.iter().map(|(job, at)| (Some(*at), live(job))).collect();
    all.extend(reserve.ends.iter().map(|(id, at)| (Some(*at), vec![*id])));
    all.extend((!left.is_empty()).then_some((Some(reserve.now), left)));
    all.sort_unstable();
    all.truncate(MOST_ENDS);
    all
}
