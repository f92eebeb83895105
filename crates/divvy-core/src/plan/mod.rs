//! The planner: a snapshot and a policy give a plan. See `README.md` beside this file.

mod borrowers;
mod calendar;
mod choose;
mod consolidate;
mod diagnose;
mod divide;
mod dominant;
mod expire;
mod fair;
mod filter;
mod islands;
mod leaving;
mod loans;
mod near;
mod order;
mod past;
mod place;
mod preempt;
mod quicken;
mod reclaim;
mod reserve;
mod resize;
mod room;
mod score;
mod seats;
mod settle;
mod share;
mod sooner;
mod spread;
mod starve;
mod stuck;
mod topology;
mod trial;
mod turns;
mod victims;

use std::collections::{BTreeMap, BTreeSet};

use crate::amount::Resource;
use crate::event::Event;
use crate::id::{AllocationId, ClassId, JobId};
use crate::model::allocation::Placement;
use crate::model::job::JobSpec;
use crate::model::parts;
use crate::model::policy::Preempt;
use crate::model::promise::Promise;
use crate::model::queue::Queue;
use crate::reason::Reason;
use crate::snapshot::{ClassView, OrderKey, Snapshot, Waiting};
use crate::state::{State, fingerprint};
use crate::time::Time;

pub use filter::{Funnel, Step};
pub(crate) use place::{UNSAID_CPU_MILLI, UNSAID_MEMORY_BYTES};
pub use score::{Fragmentation, Scores};
pub use seats::Seats;
pub(crate) use share::{Amounts, Shares};

/// What a cycle decides. Nothing in it is left to the engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Attempts that are to stop, and waiting jobs that are over.
    pub ends: Vec<Event>,
    /// Jobs that get devices which others still hold.
    pub promises: Vec<Promise>,
    /// Jobs that get their devices.
    pub places: Vec<Place>,
    /// Gangs that run and get further tasks.
    pub grown: Vec<Place>,
    /// What is due to each queue for which that has changed.
    pub due: Vec<(String, Option<i64>)>,
    /// Classes whose reason has changed.
    pub judged: Vec<(ClassId, Option<Reason>)>,
}

/// A job and what its tasks get.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Which job (or member).
    pub job: JobId,
    /// One per task, by rank.
    pub placements: Vec<Placement>,
    /// Where the gang's tasks meet.
    pub port: u16,
}

/// What a cycle saw, for people and for tests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Classes skipped because nothing has happened that they wait for.
    pub skipped: usize,
    /// Jobs (arrays count once) that were tried.
    pub tried: usize,
    /// From when on capacity is kept for the first jobs that wait for room, as far as that was looked at and can be foretold.
    pub kept_from: Vec<Time>,
    /// The jobs for which room is kept, as far as that was looked at.
    pub rooms: Vec<Room>,
    /// When a job will have waited long enough that others are moved for it that are not now, as far as that was looked at.
    pub moves_at: Option<Time>,
}

/// Room that is kept for a job that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// For which job, or member.
    pub job: JobId,
    /// From when on.
    pub keeps: Keeps,
    /// The job whose end makes the room whole, if that is foretold and it runs already.
    pub awaits: Option<JobId>,
}

/// From when on room is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// From that moment on, by time limits and estimates.
    From(Time),
    /// Piece by piece, as it becomes free: nothing foretells when it is whole.
    AsItComes,
    /// Not at all, since nothing foretells when there is any.
    Nothing,
}

impl Place {
    /// A gang meets at a port that its first allocation gives.
    fn new(job: JobId, placements: Vec<Placement>) -> Self {
        let port = placements.first().map_or(0, |first| FIRST_PORT + (first.allocation.0 % PORTS) as u16);
        Self { job, placements, port }
    }
}

/// Ports for the rendezvous of gangs: a range that Linux hands out to nobody by itself.
const FIRST_PORT: u16 = 20_000;
/// See [`FIRST_PORT`]; allocation ids follow each other, so gangs that run together get different ports.
const PORTS: u64 = 8_000;

impl Plan {
    /// The plan as events, in their order.
    pub fn into_events(self) -> Vec<Event> {
        let placed =
            |place: Place| Event::Placed { job: place.job, placements: place.placements, port: place.port };
        let due = (!self.due.is_empty()).then_some(Event::Due { queues: self.due });
        let judged = (!self.judged.is_empty()).then_some(Event::Judged { classes: self.judged });
        let grown = |place: Place| Event::Grown { job: place.job, placements: place.placements };
        let promised = |promise: Promise| Event::Promised(Box::new(promise));
        let (more, first): (Vec<_>, Vec<_>) = self.promises.into_iter().partition(|promise| promise.grows);
        let starts = first.into_iter().map(promised).chain(self.places.into_iter().map(placed));
        let grows = self.grown.into_iter().map(grown).chain(more.into_iter().map(promised));
        self.ends.into_iter().chain(starts).chain(grows).chain(due).chain(judged).collect()
    }

    /// The jobs whose tasks the plan tells to stop, and which tasks; not those that were told before and do not end.
    fn told(&self, state: &State) -> BTreeMap<JobId, Vec<AllocationId>> {
        let ends =
            |id: &AllocationId| state.allocations.get(id).is_some_and(|held| held.overdue_since.is_unsaid());
        let of = |live: &[AllocationId]| live.iter().copied().filter(ends).collect();
        let live = |job: JobId| state.run(job).map(|run| of(&run.live)).unwrap_or_default();
        let told = |end: &Event| match end {
            Event::Stopping { job, .. } => Some((*job, live(*job))),
            Event::Shrinking { job, allocations, .. } => Some((*job, of(allocations))),
            _ => None,
        };
        self.ends.iter().filter_map(told).collect()
    }

    /// The jobs that the plan tells to stop, or to go on with less.
    fn ending(&self) -> BTreeSet<JobId> {
        let job = |end: &Event| match end {
            Event::Stopping { job, .. } | Event::Shrinking { job, .. } => Some(*job),
            _ => None,
        };
        self.ends.iter().filter_map(job).collect()
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        let moves = self.promises.is_empty() && self.places.is_empty() && self.grown.is_empty();
        self.ends.is_empty() && moves && self.due.is_empty() && self.judged.is_empty()
    }

    /// The hash of all its decisions.
    pub fn digest(&self) -> u64 {
        let ends: Vec<(&str, JobId)> = self.ends.iter().filter_map(ended_job).collect();
        let digest = fingerprint(&(ends, &self.promises, &self.places, &self.judged));
        // What elastic gangs and the past of queues added counts only where there is any.
        let digest = if self.grown.is_empty() { digest } else { fingerprint(&(digest, &self.grown)) };
        if self.due.is_empty() { digest } else { fingerprint(&(digest, &self.due)) }
    }
}

fn ended_job(event: &Event) -> Option<(&'static str, JobId)> {
    match event {
        Event::Stopping { job, .. }
        | Event::Shrinking { job, .. }
        | Event::Dropped { job, .. }
        | Event::Revoked { job }
        | Event::Relieved { job } => Some((event.kind(), *job)),
        _ => None,
    }
}

/// Plans one cycle. The snapshot is used as a scratch pad and left as it was.
pub fn plan(state: &State, snapshot: &mut Snapshot, now: Time) -> (Plan, Report) {
    planned(state, snapshot, now, false)
}

/// The jobs for which a cycle keeps room, and from when on, whether or not any job asks for what is free. Leaves the snapshot as it was.
pub(crate) fn rooms(state: &State, snapshot: &mut Snapshot, now: Time) -> Vec<Room> {
    planned(state, snapshot, now, true).1.rooms
}

/// Plans one cycle; `reserves` says whether room is looked for even if no job behind those for which it is kept would start.
fn planned(state: &State, snapshot: &mut Snapshot, now: Time, reserves: bool) -> (Plan, Report) {
    let mut plan = Plan { ends: expire::expire(state, snapshot, now), ..Plan::default() };
    let mut report = Report::default();
    let mut verdicts = Verdicts::new();
    let may_grow = (state.freed || state.past.is_awaited()) && !snapshot.growing.is_empty();
    let goes_on = may_grow || sooner::may_be_sooner(state) || snapshot.running.may_quicken(state);
    let anyone = !snapshot.waiting.is_empty() || goes_on;
    let in_turns = state.policy.divides() && anyone;
    if in_turns && state.remembers() {
        snapshot.shares.note_missed(state);
    }
    let shares = in_turns.then(|| share::Shares::at(state, snapshot, now));
    plan.due = past::changed_dues(state, (&snapshot.waiting, shares.as_ref()));
    let to_come = state.reservations.iter().filter(|kept| !kept.began).map(|kept| kept.from);
    if !anyone && state.verdicts.is_empty() {
        report.kept_from = to_come.collect();
        return (plan, report);
    }
    let (mut trial, others) = trial::Trial::split(state, snapshot);
    trial.at(now);
    let told = plan.told(state);
    let held = told.values().flat_map(|live| settle::held_by(state, live));
    held.for_each(|placement| trial.ends(placement));
    let trial::Others { waiting, running, limits, hosts, .. } = others;
    if state.policy.preempt != Preempt::Walk {
        trial.reserve = reserve::Reserve::new(now, (running, limits, hosts), trial.leavers);
    }
    if reserves {
        trial.reserve.ask();
    }
    match (state.policy.preempt, shares) {
        (Preempt::Off | Preempt::LeastLoss, Some(shares)) => {
            let outcome = (&mut plan, &mut report);
            fair::in_turns(&mut trial, (others, shares), now, outcome, &mut verdicts);
        }
        (Preempt::Off | Preempt::LeastLoss, None) => {
            in_order(&mut trial, waiting, now, (&mut plan, &mut report), &mut verdicts)
        }
        (Preempt::Walk, _) => {
            preempt::walk(&mut trial, (waiting, running), now, &mut plan, &mut verdicts);
            // As in order: nothing has become free since a class was judged, so its verdict stands (L10).
            verdicts.retain(|class, reason| {
                state.freed || reason.is_none() || !state.verdicts.contains_key(class)
            });
        }
    }
    if reserves {
        reserve::reserve(&mut trial);
    }
    report.rooms = trial.reserve.rooms().to_vec();
    report.kept_from = trial.reserve.kept_from().chain(to_come).collect();
    trial.roll_back_to(0);
    plan.judged = judge(state, snapshot, verdicts);
    for (class, _) in plan.judged.iter().filter(|(_, reason)| reason.is_none()) {
        snapshot.stuck.remove(class);
    }
    (plan, report)
}

/// What keeps the jobs of classes waiting, as far as they were tried; `None` where nothing does.
type Verdicts = BTreeMap<ClassId, Option<Reason>>;

/// Places waiting jobs in order, each where it fits.
fn in_order(
    trial: &mut trial::Trial,
    waiting: &Waiting,
    now: Time,
    (plan, report): (&mut Plan, &mut Report),
    verdicts: &mut Verdicts,
) {
    let state = trial.state;
    // The jobs that stand first keep back the others, whether their own verdicts stand or not.
    let classes = if state.policy.strict || state.policy.reserve > 0 {
        waiting.classes.iter().map(|(class, view)| (*class, view)).collect()
    } else {
        open_classes(trial, waiting)
    };
    report.skipped = waiting.classes.len() - classes.len();
    let mut line = order::Line::of(waiting, &state.policy, now, classes);
    while let Some(order::Head { class, key, view, .. }) = line.take() {
        let judged = state.verdicts.get(&class).filter(|reason| reason.lasts());
        let is_open = judged.is_some_and(|reason| trial.reserve.reopens(reason));
        let placed = match judged.is_some_and(|reason| !is_open && stands(trial, reason, view)) {
            true => Err(None),
            // It waits for the same reason still, as far as it is told.
            false if is_open && !state.freed => {
                place_job(trial, (key.number, view), &mut plan.places).map_err(|_| None)
            }
            false => place_job(trial, (key.number, view), &mut plan.places).map_err(Some),
        };
        match placed {
            Ok(next) => {
                report.tried += 1;
                verdicts.insert(class, None);
                match next {
                    Some(next) => line.fall_back(class, key, next),
                    None => drop(line.admit_next(class, key)),
                }
            }
            Err(reason) => {
                report.tried += usize::from(reason.is_some());
                report.skipped += usize::from(reason.is_none());
                let keeps_back = reason.as_ref().or(judged).is_some_and(Reason::keeps_back);
                if let Some(reason) = reason.as_ref().or(judged) {
                    let is_passed = !plan.places.is_empty();
                    trial.reserve.note(state, (JobId::single(key.number), true, is_passed), reason);
                }
                match reason {
                    Some(reason) => drop(verdicts.insert(class, Some(reason))),
                    // Some of the class have started; what kept it back before keeps back the rest.
                    None => drop(verdicts.entry(class).and_modify(|verdict| *verdict = judged.cloned())),
                }
                if state.policy.strict && keeps_back {
                    return keep_in_line(state, &line, verdicts);
                }
            }
        }
    }
}

/// Places as many members of a job as may start and stand in one place in line; returns where the next one that may start stands.
fn place_job(
    trial: &mut trial::Trial,
    (number, view): (u64, &ClassView),
    places: &mut Vec<Place>,
) -> Result<Option<OrderKey>, Reason> {
    let job = trial.state.jobs.get(&number);
    job.map_or(Ok(None), |job| place::place_equals(trial, (job, view.shape), usize::MAX, places))
}

/// Whether nothing has become free since a class was judged, as far as it is concerned: the verdict stands (L10).
fn stands(trial: &trial::Trial, judged: &Reason, view: &ClassView) -> bool {
    judged.lasts() && (!trial.state.freed || place::is_still_busy(trial, judged, &view.example))
}

/// The classes whose verdict does not stand, by id.
fn open_classes<'a>(trial: &trial::Trial, waiting: &'a Waiting) -> Vec<(ClassId, &'a ClassView)> {
    if !trial.state.freed {
        return waiting.untold().collect();
    }
    // Both are in the order of their ids.
    let mut judged = trial.state.verdicts.iter().peekable();
    let is_open = |(class, view): &(&ClassId, &ClassView)| {
        while judged.next_if(|(other, _)| other < class).is_some() {}
        judged.peek().is_none_or(|(other, reason)| other != class || !stands(trial, reason, view))
    };
    waiting.classes.iter().filter(is_open).map(|(class, view)| (*class, view)).collect()
}

/// In a strict order, all that stand behind a job that does not fit wait.
fn keep_in_line(state: &State, line: &order::Line, verdicts: &mut Verdicts) {
    for class in line.classes() {
        // Most were told so before.
        if state.verdicts.get(&class) != Some(&Reason::InLine) || verdicts.contains_key(&class) {
            verdicts.insert(class, Some(Reason::InLine));
        }
    }
}

/// The reasons that have changed: of classes that were tried, and of those in which no job waits any more.
fn judge(state: &State, snapshot: &Snapshot, verdicts: Verdicts) -> Vec<(ClassId, Option<Reason>)> {
    let left = snapshot.waiting.left().map(|class| (class, None));
    let changed = verdicts.into_iter().filter(|(class, reason)| state.verdicts.get(class) != reason.as_ref());
    let mut judged: Vec<_> = left.chain(changed).collect();
    judged.sort_unstable_by_key(|(class, _)| *class);
    judged
}

/// Whether a job fits an empty pool (the snapshot must be an emptied one), or why not.
pub fn fits_empty(empty: &Snapshot, spec: &JobSpec) -> Result<(), Reason> {
    diagnose::fits_empty(empty, spec)
}

/// What a queue is entitled to at a moment, in thousandths of devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entitlement {
    /// What it gets whenever it wants it, its children's guarantees included.
    pub guarantee_milli: i64,
    /// What is due to it: its guarantee as far as it wants it, and its part of the surplus.
    pub due_milli: i64,
    /// What it and those below it hold or wait for, within its limit.
    pub wanted_milli: i64,
    /// What of its guarantee others hold now.
    pub lent_milli: i64,
}

/// What each queue is entitled to, by path; empty where the pool is not divided.
pub fn entitlements(state: &State, snapshot: &Snapshot) -> BTreeMap<String, Entitlement> {
    match state.policy.divides() {
        true => share::Shares::of(state, snapshot).entitlements(snapshot).collect(),
        false => BTreeMap::new(),
    }
}

/// Whether a queue may have what a job asks for beside what it holds in the snapshot, whatever is free.
pub fn allows(state: &State, snapshot: &Snapshot, spec: &JobSpec) -> Result<(), Reason> {
    if spec.preemptible || !state.policy.divides() {
        return Ok(());
    }
    let shares = share::Shares::of(state, snapshot);
    shares.allows(shares.place(spec.stand()), &shares.asked(spec), spec)
}

/// Returns the alternatives of a job that its queue may not have, by what is guaranteed to it, what the
/// others lend and what it may borrow; an error if none is left.
fn closed(state: &State, snapshot: &Snapshot, spec: &JobSpec) -> Result<share::Closed, Reason> {
    let binds = !spec.preemptible && spec.gang.has_alternatives();
    if !state.policy.divides() || !binds && !state.queues.values().any(Queue::has_loans) {
        return Ok(share::Closed::default());
    }
    let shares = share::Shares::of(state, snapshot);
    shares.closed(shares.place(spec.stand()), spec)
}

/// Why a queue may not have a job even in the whole pool while nobody uses it, by what is guaranteed to it, what the others lend and
/// what it may borrow.
pub(crate) fn refused_while_idle(state: &State, spec: &JobSpec) -> Option<Reason> {
    let is_fixed = !spec.preemptible;
    if !state.policy.divides() || !is_fixed && !state.queues.values().any(Queue::has_loans) {
        return None;
    }
    let (idle, spec) = (Snapshot::emptied(state), state.at_home(spec));
    let refused = allows(state, &idle, &spec).err().or_else(|| closed(state, &idle, &spec).err())?;
    match refused {
        Reason::BeyondGuarantee(..) => Some(refused),
        // What is reserved for a queue for a time it need not lend, but only until then.
        Reason::BorrowLimit(..) | Reason::NotLent(..) => {
            state.reserved_now().next().is_none().then_some(refused)
        }
        _ => None,
    }
}

/// Returns what a queue could still take of each resource that queues name, by guarantees, limits, loans and
/// what all hold; below zero where more is held than there is.
pub fn available(state: &State, snapshot: &Snapshot, queue: &str) -> BTreeMap<Resource, i64> {
    let shares = share::Shares::of(state, snapshot);
    shares.available(shares.place(queue)).into_iter().collect()
}

/// Returns what a queue uses of what others lend it, by resource: what it and those below it use beyond what
/// is kept below it and beyond its own.
pub fn borrowed(state: &State, snapshot: &Snapshot, queue: &str) -> BTreeMap<Resource, i64> {
    let shares = share::Shares::of(state, snapshot);
    shares.borrowed(shares.place(queue)).into_iter().collect()
}

/// All that keeps a job of this shape from starting now, by capacity and by limits, and its way through the devices.
pub fn blockers(state: &State, snapshot: &Snapshot, spec: &JobSpec) -> (Vec<Reason>, Funnel) {
    diagnose::blockers(state, snapshot, &state.at_home(spec))
}

/// A job's way through the devices; empty for one without any.
pub fn funnel(state: &State, snapshot: &Snapshot, spec: &JobSpec) -> Funnel {
    diagnose::funnel((state, snapshot), spec)
}

/// How a job with these devices lies, and what else there would be for it now.
pub fn seats(snapshot: &Snapshot, spec: &JobSpec, placements: &[Placement]) -> Option<Seats> {
    seats::seats(snapshot, spec, placements)
}

/// Where a job of this shape would start now; nothing is changed.
pub fn would_place(state: &State, snapshot: &mut Snapshot, spec: &JobSpec) -> Result<Vec<Placement>, Reason> {
    let spec = &*state.at_home(spec);
    allows(state, snapshot, spec)?;
    let not_lent = closed(state, snapshot, spec)?;
    place_in(state, snapshot, spec, not_lent)
}

/// Like [`would_place`], tried in a scratch pad of the snapshot.
pub(crate) fn would_place_in(
    state: &State,
    (snapshot, scratch): (&Snapshot, &mut Snapshot),
    spec: &JobSpec,
) -> Result<Vec<Placement>, Reason> {
    let spec = &*state.at_home(spec);
    allows(state, snapshot, spec)?;
    let not_lent = closed(state, snapshot, spec)?;
    place_in(state, scratch, spec, not_lent)
}

fn place_in(
    state: &State,
    snapshot: &mut Snapshot,
    spec: &JobSpec,
    not_lent: share::Closed,
) -> Result<Vec<Placement>, Reason> {
    let before = snapshot.neighbours.heed(state, spec);
    let mut trial = trial::Trial::new(state, snapshot);
    trial.not_lent = not_lent;
    let placed = place::place_spec(&mut trial, spec);
    trial.roll_back_to(0);
    if let Some(before) = before {
        snapshot.neighbours = before;
    }
    placed
}
