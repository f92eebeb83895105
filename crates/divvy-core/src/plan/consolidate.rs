//! Phase 6, consolidate: where there is room enough for a job, but not in one piece, jobs in the way go on elsewhere.
//! Each of them has its new place before it is told to leave the old one, so no job loses more than a restart.

mod budget;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

pub(super) use budget::Budget;

use super::Place;
use super::fair::{Fair, Victim};
use super::past::Short;
use super::place;
use super::reclaim::{self, Candidate, Candidates, Claim, Cost, Goes, Next, Steps};
use super::resize;
use super::settle::held_by;
use super::share::{Amounts, Closed};
use super::trial::{Mark, Scope};
use super::victims;
use crate::id::{AllocationId, JobId};
use crate::model::allocation::{AllocationState, Placement};
use crate::model::ask::{Alternative, DeviceAsk, DeviceClass};
use crate::model::device::WHOLE_MILLI;
use crate::model::gang::{Group, Role};
use crate::model::job::{Cause, JobSpec};
use crate::snapshot::{NodeView, QueueOf, RunView};
use crate::state::Job;
use crate::time::{Span, Time};

/// How many ways to make room are tried for one job.
const MOST_WAYS: usize = 32;
/// For how many of these ways the jobs in the way may get the places of further jobs, and how many ways are tried for each such job.
const MOST_CHAINS: usize = 4;
/// Of how many jobs that go it is tried, for a gang, whether they need to.
const MOST_LEFT_OUT: usize = 8;

/// A job that goes on elsewhere, or a part of a gang beyond what that needs.
pub(super) struct Move<'a> {
    pub(super) job: JobId,
    queue: &'a QueueOf,
    /// What of it goes.
    pub(super) live: Vec<AllocationId>,
    /// Whether all of the job goes.
    whole: bool,
    /// Where that goes on.
    pub(super) placements: Vec<Placement>,
}

impl<'a> Move<'a> {
    fn of(candidate: &Candidate<'a>, placements: Vec<Placement>) -> Self {
        let (view, whole) = (candidate.view, candidate.within.is_none());
        let live = if whole { view.live.clone() } else { candidate.live.to_vec() };
        Self { job: candidate.job, queue: &view.queue, live, whole, placements }
    }
}

/// The queues of the jobs that go, each job once.
fn queues_of<'q>(goes: impl Iterator<Item = (JobId, &'q str)>) -> impl Iterator<Item = &'q str> {
    goes.collect::<BTreeMap<JobId, &str>>().into_values()
}

/// Lets jobs stay whose places were not needed, once it is known which were.
type Keeps<'a, 'k> = &'k mut dyn FnMut(&mut Fair<'a, '_>, &[Placement]);

/// Finds a place for the claim by moves, beside what was `released` for it before. `keep` lets those of the
/// released jobs stay whose places were not needed. Without success everything is as it was.
pub(super) fn make_room<'a>(
    fair: &mut Fair<'a, '_>,
    claim: &Claim,
    released: &BTreeSet<JobId>,
    keep: Keeps<'a, '_>,
) -> Option<Vec<Placement>> {
    let may = fair.trial.state.policy.moves_any() && fair.budget.has_any();
    if !may || !has_room(fair, claim.spec, 0, claim.owed) || !reclaim::may_have(fair, claim) {
        return None;
    }
    let (movable, later) = movable(fair, claim, released);
    let mut movable = Candidates::in_parts(movable);
    let mark = fair.trial.mark();
    let mut ways_out = ways(fair, claim, &mut movable, false);
    // Jobs of queues that can bear too little are left where they are only if that is what it takes.
    if fair.budget.binds_queues() {
        ways_out.extend(ways(fair, claim, &mut movable, true));
    }
    let straight = ways_out.iter().map(|way| (way, false));
    let chained = ways_out.iter().take(MOST_CHAINS).map(|way| (way, true));
    for (way, in_chains) in straight.chain(chained) {
        if let Some(placements) = clear(fair, claim, (&movable, way, in_chains), (mark, keep)) {
            return Some(placements);
        }
        fair.trial.roll_back_to(mark);
    }
    fair.budget.looks -= 1;
    fair.budget.again = fair.budget.again.into_iter().chain(later).min();
    None
}

/// Whether moves might make room for a job by its alternatives of this number, and whether that may be since it is guaranteed to the job's
/// queue: seen without a look at the running jobs.
pub(super) fn may_make_room(fair: &Fair, (spec, number): (&JobSpec, usize), is_owed: bool) -> bool {
    fair.budget.has_any() && has_room(fair, spec, number, is_owed)
}

/// Whether enough is free in all, wherever it is; by alternatives of this number, or the last where a role has fewer. For a job to which
/// it is guaranteed, devices of other models count, too: jobs that may have these are moved to them.
fn has_room(fair: &Fair, spec: &JobSpec, number: usize, is_owed: bool) -> bool {
    let (shares, shelves) = (fair.trial.state.policy.shares, fair.trial.capacity().shelves());
    let roles = spec.gang.required_roles();
    roles.iter().all(|role| {
        let alternatives = &role.ask.alternatives;
        let one = alternatives.get(number).or(alternatives.last());
        let Some(ask) = one.and_then(|one| one.devices.as_ref()) else { return true };
        let any = is_owed.then(|| DeviceAsk { class: DeviceClass::default(), ..ask.clone() });
        let ask = any.as_ref().unwrap_or(ask);
        let devices = u64::from(role.minimum) * u64::from(ask.count);
        if !shares && (shelves.free() < devices || shelves.of(Some(ask)).free() < devices) {
            return false;
        }
        let asked = i64::from(role.minimum) * ask.milli_of_all();
        let nodes = fair.trial.capacity().nodes.iter().filter(|node| node.takes_tasks);
        nodes.map(|node| free_milli(node, ask)).sum::<i64>() >= asked
    })
}

fn free_milli(node: &NodeView, ask: &DeviceAsk) -> i64 {
    if node.uniform && node.free as usize == node.devices.len() {
        let right = node.devices.first().is_some_and(|device| place::is_right(device, ask, &[]));
        return if right { i64::from(node.free) * i64::from(WHOLE_MILLI) } else { 0 };
    }
    let right = node.devices.iter().filter(|device| place::is_right(device, ask, &[]));
    right.filter(|device| device.unusable.is_none()).map(|device| i64::from(device.free_milli).max(0)).sum()
}

/// What the moves for a claim may cost: what it has waited, device for device; what is guaranteed is not weighed.
struct Gain {
    waited_ms: i64,
    asked_milli: i64,
    owed: bool,
}

impl Gain {
    fn of(fair: &Fair, claim: &Claim) -> Self {
        let (state, asked_milli) = (fair.trial.state, claim.spec.milli_asked().max(1));
        let job = state.jobs.get(&claim.job.number);
        let since = state.run(claim.job).and_then(|run| run.back_since).or(job.map(|job| job.submitted_at));
        let waited_ms = since.map_or(0, |since| fair.now.since(since).0).max(0);
        Self { waited_ms, asked_milli, owed: claim.owed }
    }

    /// How far the loss of a job exceeds it, in thousandths of devices × milliseconds.
    fn lacks(&self, lost_milli_ms: i64) -> i64 {
        lost_milli_ms.saturating_sub(self.asked_milli.saturating_mul(self.waited_ms)).max(0)
    }

    fn bears(&self, lost_milli_ms: i64) -> bool {
        self.owed || self.waited_ms >= reclaim::RESTART_MS && self.lacks(lost_milli_ms) == 0
    }

    /// After how long the claim bears what a job loses by a move, if nothing else happens; not before it has waited half as long again.
    fn bears_after(&self, view: &RunView, now: Time) -> Option<Span> {
        let more_by_ms = if reclaim::loses_more(view, now) { view.milli } else { 0 };
        let gains_by_ms = self.asked_milli - more_by_ms;
        let lacks = self.lacks(reclaim::lost_by_stopping(view, now));
        if lacks > 0 && gains_by_ms <= 0 {
            return None;
        }
        let least_ms = (reclaim::RESTART_MS - self.waited_ms).max(self.waited_ms / 2);
        Some(Span(least_ms.max(lacks / gains_by_ms.max(1) + 1)))
    }
}

/// The jobs that may go on elsewhere: those that lose no more by it, restart included, than the claim has waited, device for device, and
/// were not moved a short while ago; those that lose least first. And when a further one may, if nothing happens until then.
fn movable<'a>(
    fair: &Fair<'a, '_>,
    claim: &Claim,
    released: &BTreeSet<JobId>,
) -> (Vec<Candidate<'a>>, Option<Time>) {
    let (state, now) = (fair.trial.state, fair.now);
    let (spent, gain) = (fair.spent(), Gain::of(fair, claim));
    let stays = |job: JobId, view: &RunView| {
        view.is_young(now)
            || view.is_cooling(now)
                && (!claim.owed || *view.queue == *claim.spec.stand() || state.is_relieved(job))
            || claim.lets_redo(view, (state, now))
            || view.live.is_empty()
            || fair.budget.left_of(view.queue.path()) == 0
            || fair.trial.around.is_relied_on(state, held_by(state, &view.live))
    };
    let mut later: Option<Span> = None;
    let mut found: Vec<Candidate> = Vec::new();
    for (job, view) in &fair.running.jobs {
        // A gang that grows is not worth the restart of a whole job.
        let is_meant = claim.part.is_none() || view.elastic;
        let is_other = is_meant && *job != claim.job && !released.contains(job) && !spent.contains(job);
        if !is_other || fair.moves(*job) || stays(*job, view) || !fair.taken_of(*job).is_empty() {
            continue;
        }
        let Some(run) = state.run(*job).filter(|_| !state.is_held_up(*job)) else { continue };
        if let Some(until) = run.stays_until(&state.policy, now) {
            let until = (until.0 < i64::MAX && claim.part.is_none()).then(|| until.since(now));
            later = later.into_iter().chain(until).min();
            continue;
        }
        let mut parts = parts_of(fair, *job, view);
        parts.retain(|part| claim.part.is_none() || part.within.is_some());
        let (bearable, other): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|part| gain.bears(part.cost.lost_milli_ms));
        // Gangs grow when something has become free, not as time passes.
        if !other.is_empty() && claim.part.is_none() {
            later = later.into_iter().chain(gain.bears_after(view, now)).min();
        }
        found.extend(bearable);
    }
    let rank = |candidate: &Candidate| candidate.within.as_ref().map(|within| within.start);
    found.sort_by_key(|candidate| (candidate.cost, Reverse(candidate.job), Reverse(rank(candidate))));
    (found, later.map(|later| now + later))
}

/// A job as it may move: as a whole; if it is a gang that runs with more than it needs, also each part beyond that.
fn parts_of<'a>(fair: &Fair<'a, '_>, job: JobId, view: &'a RunView) -> Vec<Candidate<'a>> {
    let lost_milli_ms = reclaim::lost_by_stopping(view, fair.now);
    let seniority = fair.trial.state.policy.moves.said().map_or(0, |moves| moves.seniority(job));
    let cost = Cost { seniority, milli: view.milli, lost_milli_ms, jobs: 1, ..Cost::default() };
    let (queue, live) = (fair.shares.place(&view.queue), Cow::Borrowed(view.live.as_slice()));
    let (draws, within, needs) = (Amounts::new(), None, Vec::new());
    let whole = Candidate { job, view, queue, live, draws, cost, within, needs, goes_before: false };
    if !view.elastic {
        return vec![whole];
    }
    let mut parts = victims::parts_of(fair, whole, |_| Short::default(), |_| true);
    for part in &mut parts {
        part.cost.goes = Goes::default();
        if part.within.is_some() {
            part.cost.lost_milli_ms = part.cost.milli.saturating_mul(reclaim::RESTART_MS);
        }
    }
    parts
}

/// One way to make room.
#[derive(Debug, PartialEq)]
struct Way {
    /// The jobs that go.
    goes: Vec<usize>,
    /// Whether all of the claim is to lie where they are now, so that what is free elsewhere is left to them.
    there_alone: bool,
}

/// Which jobs to move, in different ways. For one task: the cheapest node to clear, and so on; for a gang: as many
/// nodes as it needs; for a gang of unlike roles, then: one node for a task of the widest role, with the others there
/// or anywhere. `spares` leaves out jobs with which their queues, or the cycle, would have to bear too much.
fn ways(fair: &Fair, claim: &Claim, movable: &mut Candidates, spares: bool) -> Vec<Way> {
    let way = |there_alone| move |goes| Way { goes, there_alone };
    let mut ways: Vec<Way> = nodes(fair, claim, movable, spares).into_iter().map(way(false)).collect();
    if let Some(widest) = widest_task(claim.spec) {
        let of_one = Claim::of(claim.job, &widest, (claim.queue, Amounts::new()));
        for goes in nodes(fair, &of_one, movable, spares) {
            let both = [way(true)(goes.clone()), way(false)(goes)];
            let new = both.into_iter().filter(|way| !ways.contains(way)).collect::<Vec<_>>();
            ways.extend(new);
        }
        ways.truncate(MOST_WAYS);
    }
    ways
}

/// A job of one task of the role whose tasks ask for the most devices; `None` where all roles of the gang ask for as many.
fn widest_task(spec: &JobSpec) -> Option<JobSpec> {
    let roles = spec.gang.required_roles();
    let milli = |role: &&Role| role.ask.alternatives.first().map_or(0, Alternative::milli);
    let least = roles.iter().map(milli).min()?;
    let widest = roles.iter().copied().max_by_key(milli).filter(|widest| milli(widest) > least)?;
    let one = Group::Role(Role { minimum: 1, maximum: 1, ..widest.clone() });
    Some(JobSpec { gang: one.into(), ..spec.clone() })
}

/// The jobs on the nodes to clear, the cheapest nodes first: each node alone for one task, with all before it for more.
fn nodes(fair: &Fair, claim: &Claim, movable: &mut Candidates, spares: bool) -> Vec<Vec<usize>> {
    let mut steps = Steps::new(fair.trial, claim, movable);
    let one = claim.spec.gang.tasks() == 1;
    let (mut ways, mut before): (Vec<Vec<usize>>, Vec<usize>) = (Vec::new(), Vec::new());
    while let Next::Step(step) = steps.next(fair.trial, movable) {
        let mut way = if one { Vec::new() } else { before.clone() };
        for index in step.stop {
            // With what a gang needs all of it goes.
            let all = movable.get(index).needs.iter().copied().chain([index]);
            let more: Vec<usize> = all.filter(|index| !way.contains(index)).collect();
            way.extend(more);
        }
        let jobs = way.iter().map(|index| movable.get(*index)).map(|it| (it.job, it.view.queue.path()));
        if spares && !fair.budget.bears(queues_of(jobs)) {
            continue;
        }
        before.clone_from(&way);
        if step.slots && !way.is_empty() && !ways.contains(&way) {
            ways.push(way);
        }
        if ways.len() >= MOST_WAYS {
            break;
        }
    }
    ways
}

/// Moves these jobs out of the way of the claim, as far as needed; where one has no place, into that of a further one, if `in_chains`.
/// Before, all is as `mark` says.
fn clear<'a>(
    fair: &mut Fair<'a, '_>,
    claim: &Claim,
    (movable, way, in_chains): (&Candidates<'a>, &Way, bool),
    (mark, keep): (Mark, Keeps<'a, '_>),
) -> Option<Vec<Placement>> {
    let goes: Vec<&Candidate<'a>> = way.goes.iter().map(|index| movable.get(*index)).collect();
    let (placements, goes) = put_before(fair, claim, (&goes, way.there_alone))?;
    let (placements, goes) = with_fewer(fair, claim, (placements, goes), (way.there_alone, mark))?;
    if !bears(fair, &goes) {
        return None;
    }
    // If all may stay, though the claim had no place before, its place is one kept for a job that waits for room.
    if goes.is_empty() && fair.trial.reserve.has_owners() {
        return None;
    }
    let closed = std::mem::take(&mut fair.trial.not_lent);
    let further = in_chains.then_some((movable, way.goes.as_slice()));
    let moves = elsewhere(fair, &goes, further);
    fair.trial.not_lent = closed;
    let moves = moves.filter(|moves| {
        let jobs = moves.iter().map(|moved| (moved.job, moved.queue.path()));
        fair.budget.bears(queues_of(jobs)) && !moves.iter().any(|moved| leaves_short(fair, moved))
    })?;
    keep(fair, &placements);
    queues_of(moves.iter().map(|moved| (moved.job, moved.queue.path())))
        .for_each(|queue| fair.budget.spend(queue));
    for Move { job, queue, live, whole, placements } in moves {
        let (by, grows, cause) = (claim.job, claim.part.is_some(), Cause::Moved);
        fair.victims.push(Victim { job, queue, live, whole, by, grows, cause });
        let places = if whole { &mut fair.places } else { &mut fair.grown };
        places.push(Place::new(job, placements));
    }
    Some(placements)
}

/// Whether all these may be moved in this cycle.
fn bears(fair: &Fair, goes: &[&Candidate]) -> bool {
    fair.budget.bears(queues_of(goes.iter().map(|candidate| (candidate.job, candidate.view.queue.path()))))
}

/// Whether a queue, or one above it, would have less of a model than is guaranteed to it by name, since a job goes on on another.
fn leaves_short(fair: &Fair, moved: &Move) -> bool {
    let state = fair.trial.state;
    let before = fair.shares.counted(state, held_by(state, &moved.live));
    let after = fair.shares.counted(state, moved.placements.iter());
    let gone: Amounts = before.iter().zip(&after).map(|(before, after)| before - after).collect();
    let mut places = fair.shares.upwards(fair.shares.place(moved.queue));
    places.any(|place| fair.shares.falls_short(place, &gone).is_some())
}

/// Whether a candidate is a part of a gang all of which goes.
fn goes_with_all(candidate: &Candidate, goes: &[&Candidate]) -> bool {
    candidate.within.is_some()
        && goes.iter().any(|other| other.job == candidate.job && other.within.is_none())
}

/// A claim's place, and the jobs that go for it, the dearest first.
type Cleared<'a, 'c> = (Vec<Placement>, Vec<&'c Candidate<'a>>);

/// Leaves out those of the jobs without whose going the claim fits as well. Nodes are cleared one after the other, so
/// that of a gang's jobs one may be there for a node that the claim does not need. From `mark` on only these are gone.
fn with_fewer<'a, 'c>(
    fair: &mut Fair<'a, '_>,
    claim: &Claim,
    (mut placements, mut goes): Cleared<'a, 'c>,
    (there_alone, mark): (bool, Mark),
) -> Option<Cleared<'a, 'c>> {
    if claim.spec.gang.tasks() == 1 || goes.len() > MOST_LEFT_OUT {
        return Some((placements, goes));
    }
    let (mut tried, mut index) = (false, 0);
    while goes.len() > 1 && index < goes.len() {
        if goes_with_all(goes[index], &goes) {
            index += 1;
            continue;
        }
        let others = goes.iter().enumerate().rev().filter(|(other, _)| *other != index);
        let fewer: Vec<&'c Candidate<'a>> = others.map(|(_, candidate)| *candidate).collect();
        fair.trial.roll_back_to(mark);
        match put_before(fair, claim, (&fewer, there_alone)) {
            Some(found) => ((placements, goes), tried) = (found, false),
            None => (index, tried) = (index + 1, true),
        }
    }
    if tried {
        fair.trial.roll_back_to(mark);
        let all: Vec<&'c Candidate<'a>> = goes.iter().rev().copied().collect();
        (placements, goes) = put_before(fair, claim, (&all, there_alone))?;
    }
    Some((placements, goes))
}

/// Places the claim as if these jobs had left; returns those that cannot stay.
fn put_before<'a, 'c>(
    fair: &mut Fair<'a, '_>,
    claim: &Claim,
    (way, there_alone): (&[&'c Candidate<'a>], bool),
) -> Option<Cleared<'a, 'c>> {
    let state = fair.trial.state;
    for candidate in way {
        held_by(state, &candidate.live).for_each(|held| fair.trial.release(held, &candidate.view.queue));
    }
    let wider = there_alone.then(|| {
        let held = way.iter().flat_map(|candidate| held_by(state, &candidate.live));
        let nodes = held.filter_map(|held| fair.trial.capacity().node_place(held.node));
        let there: Scope = nodes.collect::<BTreeSet<usize>>().into_iter().collect();
        fair.trial.keep_to(Some(there))
    });
    let placed = claim.place(fair.trial);
    wider.into_iter().for_each(|wider| drop(fair.trial.keep_to(wider)));
    let placements = placed.ok()?;
    // The dearest, which were released last, are the first who may stay.
    let mut goes: Vec<&'c Candidate<'a>> = Vec::new();
    let (wholes, parts): (Vec<_>, Vec<_>) =
        way.iter().rev().partition(|candidate| candidate.within.is_none());
    for candidate in wholes.into_iter().chain(parts) {
        if goes_with_all(candidate, &goes) {
            goes.push(candidate);
            continue;
        }
        let held: Vec<&Placement> = held_by(state, &candidate.live).collect();
        if !fair.trial.keep(&held, &candidate.view.queue) {
            goes.push(candidate);
        }
    }
    Some((placements, goes))
}

/// Finds places for all of these, the largest first; a job that has none gets that of one of `further` that goes on elsewhere itself.
fn elsewhere<'a>(
    fair: &mut Fair<'a, '_>,
    goes: &[&Candidate<'a>],
    further: Option<(&Candidates<'a>, &[usize])>,
) -> Option<Vec<Move<'a>>> {
    let state = fair.trial.state;
    let mut moves = Vec::new();
    for candidate in goes.iter().filter(|candidate| !goes_with_all(candidate, goes)) {
        let job = state.jobs.get(&candidate.job.number)?;
        let mark = fair.trial.mark();
        fair.trial.not_lent = closed_to_moved(fair, candidate, &job.spec);
        let placements = match &candidate.within {
            None => place::place_spec(fair.trial, &job.spec).ok(),
            Some(part) => resize::anew(fair, (candidate.job, job, candidate.queue), part, &moves),
        };
        fair.trial.not_lent = Closed::default();
        if candidate.within.is_some() {
            moves.push(Move::of(candidate, placements?));
            continue;
        }
        match placements.and_then(|placements| at_size(fair, (candidate, job), placements)) {
            Some(placements) => moves.push(Move::of(candidate, placements)),
            None => {
                fair.trial.roll_back_to(mark);
                moves.extend(into_anothers(fair, (candidate, job), further?, &moves)?);
            }
        }
    }
    Some(moves)
}

/// The models of which its queue may not have more than it has with what the job holds now.
fn closed_to_moved(fair: &mut Fair, candidate: &Candidate, spec: &JobSpec) -> Closed {
    let own = match candidate.within {
        None => fair.shares.drawn_by(fair.trial.state, candidate.view),
        Some(_) => candidate.draws.clone(),
    };
    fair.shares.charge(candidate.queue, &own, (-1, false));
    let closed = fair.shares.closed_models(candidate.queue, spec);
    fair.shares.charge(candidate.queue, &own, (1, false));
    closed
}

/// A job that moves goes on with as many tasks as before.
fn at_size(
    fair: &mut Fair,
    (candidate, job): (&Candidate, &Job),
    placements: Vec<Placement>,
) -> Option<Vec<Placement>> {
    if !candidate.view.elastic {
        return Some(placements);
    }
    let state = fair.trial.state;
    let held = candidate.view.live.iter().filter_map(|id| state.allocations.get(id));
    let tasks = held.filter(|held| held.state != AllocationState::Stopping).count();
    resize::at_size(fair.trial, (candidate.job, job, candidate.queue), &placements, tasks)
}

/// Places a job that has to move where others lie that have a place elsewhere: none of those that have to move already.
fn into_anothers<'a>(
    fair: &mut Fair<'a, '_>,
    (candidate, job): (&Candidate<'a>, &Job),
    (movable, way): (&Candidates<'a>, &[usize]),
    moves: &[Move<'a>],
) -> Option<Vec<Move<'a>>> {
    let leaves = |job: JobId| {
        way.iter().any(|index| movable.get(*index).job == job) || moves.iter().any(|moved| moved.job == job)
    };
    // Jobs stay if another job of this cycle lies near them because they are there.
    let (state, around) = (fair.trial.state, &fair.trial.around);
    let stays = |other: &&Candidate<'a>| {
        other.view.elastic || leaves(other.job) || around.is_relied_on(state, held_by(state, &other.live))
    };
    let others = movable.all().filter(|other| !stays(other)).cloned().collect();
    let mut others = Candidates::in_order(others);
    let claim = Claim::of(candidate.job, &job.spec, (candidate.queue, Amounts::new()));
    let mark = fair.trial.mark();
    for way in ways(fair, &claim, &mut others, false).iter().take(MOST_CHAINS) {
        let stands: Vec<&Candidate<'a>> = way.goes.iter().map(|index| others.get(*index)).collect();
        let found = put_before(fair, &claim, (&stands, way.there_alone)).and_then(|(placements, goes)| {
            let bears = bears(fair, &goes);
            let placements = at_size(fair, (candidate, job), placements).filter(|_| bears)?;
            let moves = elsewhere(fair, &goes, None)?;
            Some(std::iter::once(Move::of(candidate, placements)).chain(moves).collect())
        });
        if found.is_some() {
            return found;
        }
        fair.trial.roll_back_to(mark);
    }
    None
}

/// Gives jobs that give way a place elsewhere, if one is left when all others have had their turn: the dearest first.
pub(super) fn resettle(fair: &mut Fair) {
    let state = fair.trial.state;
    let gives_way = fair.victims.iter().filter(|victim| victim.whole && victim.cause != Cause::Moved);
    let mut jobs: Vec<JobId> =
        gives_way.map(|victim| victim.job).filter(|job| !state.is_held_up(*job)).collect();
    jobs.sort_by_key(|job| {
        let view = fair.running.jobs.get(job);
        Reverse((view.map_or(0, |view| view.priority), view.map_or(0, |view| view.milli), Reverse(*job)))
    });
    for id in jobs {
        let Some(job) = state.jobs.get(&id.number).filter(|_| fair.budget.moves > 0) else { continue };
        let queue = fair.shares.place(job.spec.stand());
        let Ok(closed) = fair.shares.closed(queue, &job.spec) else { continue };
        fair.trial.not_lent = closed;
        let Ok(placements) = place::place_spec(fair.trial, &job.spec) else { continue };
        let taken = fair.shares.counted(state, placements.iter());
        fair.shares.charge(queue, &taken, (1, !job.spec.preemptible));
        fair.budget.moves -= 1;
        fair.places.push(Place::new(id, placements));
    }
}
