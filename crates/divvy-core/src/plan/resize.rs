//! Phase 6, resize: gangs that run with fewer tasks than they may have get more, one after the other: what is due to their
//! queues before what is due to none, and in a queue by priority, then those with the fewest tasks beyond their minimum.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::Place;
use super::consolidate::Move;
use super::fair::Fair;
use super::near;
use super::place;
use super::reclaim::{self, Claim};
use super::spread::Spreading;
use super::topology;
use super::trial::Trial;
use super::turns::Turns;
use crate::id::{AllocationId, JobId, NodeId};
use crate::model::allocation::{AllocationState, Placement};
use crate::model::gang::{Group, Role};
use crate::model::job::JobSpec;
use crate::model::newer::Newer;
use crate::model::policy::Preempt;
use crate::model::topology::TopologyAsk;
use crate::reason::Reason;
use crate::state::{Job, Run, State};

/// How far gangs grow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// As far as it is due to their queues; others give way for it.
    Due,
    /// Into what is free.
    Free,
    /// Beyond that, by what gangs of lower priority in their own queues have beyond their minimum.
    Juniors,
}

/// A further part of a gang: a task of a role, or a group that did not start.
pub(super) struct Unit {
    /// The job, as if it were this part alone.
    spec: JobSpec,
    /// The rank of its first task in the gang.
    rank: u32,
    /// The alternative that the tasks before it in its role have, and that it gets, too.
    alternative: Option<u32>,
    /// The domains in which the rest of it lies: level, and a node there.
    domains: Vec<(String, NodeId)>,
    /// Where the rest of the job lies, if it wants tasks near it.
    rest: near::Rest,
    /// How the groups around are to be spread, and where the rest of each lies.
    spread: Vec<Spreading>,
}

impl Unit {
    /// Places it where it fits now.
    pub(super) fn place(&self, trial: &mut Trial) -> Result<Vec<Placement>, Reason> {
        let scope = topology::around(trial, &self.domains);
        let (wider, rest) = (trial.keep_to(scope), trial.around.join(self.rest.clone()));
        let alone = trial.join_spread(self.spread.clone());
        let placed = place::place_spec(trial, &self.spec);
        trial.join_spread(alone);
        trial.keep_to(wider);
        trial.around.join(rest);
        let mut placements = placed?;
        for placement in &mut placements {
            placement.rank += self.rank;
            placement.alternative = self.alternative.unwrap_or(placement.alternative);
        }
        Ok(placements)
    }
}

/// A gang that may have more.
struct Grower<'a> {
    id: JobId,
    job: &'a Job,
    queue: usize,
    /// What of it runs, or is to, by rank.
    present: BTreeMap<u32, Placement>,
    /// Ranks that others of its tasks still have.
    taken: BTreeSet<u32>,
}

impl<'a> Grower<'a> {
    /// A gang of which nothing is there yet.
    fn of((id, job, queue): (JobId, &'a Job, usize)) -> Self {
        Self { id, job, queue, present: BTreeMap::new(), taken: BTreeSet::new() }
    }

    /// A gang that runs, but for what of it is to go; until that has ended, it has its ranks.
    fn running(of: (JobId, &'a Job, usize), state: &State, run: &Run, goes: &BTreeSet<AllocationId>) -> Self {
        let mut grower = Self::of(of);
        for placement in &run.placements {
            let held = state.allocations.get(&placement.allocation);
            let stays = held.is_some_and(|held| held.state != AllocationState::Stopping);
            match stays && !goes.contains(&placement.allocation) {
                true => grower.join([placement]),
                false => drop(grower.taken.insert(placement.rank)),
            }
        }
        grower
    }

    /// Counts what it is given.
    fn join<'p>(&mut self, placements: impl IntoIterator<Item = &'p Placement>) {
        let by_rank = placements.into_iter().map(|placement| (placement.rank, placement.clone()));
        self.present.extend(by_rank);
    }
}

/// Where a gang stands among those that may grow: lower goes first.
type Standing = (bool, i64, i64, u32, JobId);

/// How often in a cycle gangs that were put off are looked at again between turns: each time costs a look at all that may grow.
const MOST_LOOKS: u32 = 8;

/// The growth of gangs as it goes with the turns of a cycle.
pub(super) struct Growth {
    /// How often gangs may still be looked at.
    looks: u32,
    /// Whether gangs grow by what is due to their queues before the next turn of a job that is due to none.
    is_next: bool,
    /// Queues whose gangs did not grow, since a job that stands before them waits there.
    put_off: BTreeSet<usize>,
}

impl Growth {
    /// For a cycle in which no job has had a turn.
    pub(super) fn new() -> Self {
        Self { looks: MOST_LOOKS, is_next: true, put_off: BTreeSet::new() }
    }

    /// Lets gangs grow by what is due to them before jobs take what is due to none; but not before jobs of
    /// their own queues that stand before them and could take it from them.
    pub(super) fn before_turn(&mut self, fair: &mut Fair, turns: &mut Turns) {
        if !self.is_next || self.looks == 0 || !turns.is_beyond_due(&fair.shares) {
            return;
        }
        (self.is_next, self.looks) = (false, self.looks - 1);
        let grown = grow(fair, Reach::Due, |fair, grower| {
            let waits = is_behind_any(fair, grower, turns);
            self.put_off.extend(waits.then_some(grower.queue));
            waits
        });
        grown.into_iter().for_each(|queue| turns.refresh(queue, &fair.shares));
    }

    /// Notes that a queue had its turn: gangs that were put off for it may be next.
    pub(super) fn after_turn(&mut self, queue: usize) {
        self.is_next |= self.put_off.remove(&queue);
    }

    /// All turns are over: lets gangs grow by what is still due, into what is free, and by the surplus of their juniors.
    pub(super) fn end(self, fair: &mut Fair) {
        if self.is_next || !self.put_off.is_empty() {
            grow(fair, Reach::Due, |_, _| false);
        }
        grow(fair, Reach::Free, |_, _| false);
        if fair.trial.state.policy.preempt == Preempt::LeastLoss && fair.may_grow {
            grow(fair, Reach::Juniors, |fair, grower| !has_juniors(fair, grower));
        }
    }
}

/// Whether the first in the line of a gang's own queue stands before it, and could take from it what it grows by.
fn is_behind_any(fair: &Fair, grower: &Grower, turns: &Turns) -> bool {
    let Some((waits, view)) = turns.first_of(grower.queue).zip(fair.running.jobs.get(&grower.id)) else {
        return false;
    };
    reclaim::may_take_of_own(fair, waits, (grower.id, view))
}

/// Whether jobs of lower priority run in a gang's queue.
fn has_juniors(fair: &Fair, grower: &Grower) -> bool {
    let spec = &grower.job.spec;
    fair.running.lowest_priority(spec.stand()).is_some_and(|lowest| lowest < spec.priority)
}

/// Lets gangs grow, except those that are to wait; returns the queues whose gangs did.
fn grow(fair: &mut Fair, reach: Reach, mut waits: impl FnMut(&Fair, &Grower) -> bool) -> BTreeSet<usize> {
    let mut line: BTreeSet<(Standing, usize)> = BTreeSet::new();
    let State { draining, policy, .. } = fair.trial.state;
    let mut growers = if *draining || !policy.elastic { Vec::new() } else { growers(fair) };
    for (index, grower) in growers.iter().enumerate() {
        line.extend(standing(fair, grower).map(|standing| (standing, index)));
    }
    let mut grown = BTreeSet::new();
    while let Some((before, index)) = line.pop_first() {
        let grower = &mut growers[index];
        // Another job may have taken its devices since: then it takes no other's.
        if fair.victims.iter().any(|victim| victim.job == grower.id) {
            continue;
        }
        // What others got since may have taken its queue further.
        let Some(now) = standing(fair, grower) else { continue };
        if now > before {
            line.insert((now, index));
            continue;
        }
        if reach == Reach::Due && now.0 {
            break;
        }
        if waits(fair, grower) {
            continue;
        }
        let Some(placements) = more(fair, grower, reach) else { continue };
        grown.insert(grower.queue);
        grower.join(&placements);
        fair.grown.push(Place::new(grower.id, placements));
        line.extend(standing(fair, grower).map(|standing| (standing, index)));
    }
    grown
}

/// Gangs that run and were not just made smaller, if anything has become free; and those that this cycle
/// starts, unless they wait for others to end.
fn growers<'a>(fair: &Fair<'a, '_>) -> Vec<Grower<'a>> {
    let state = fair.trial.state;
    let gives_way: BTreeSet<JobId> = fair.victims.iter().map(|victim| victim.job).collect();
    let waits: BTreeSet<JobId> = fair.victims.iter().map(|victim| victim.by).collect();
    let mut growers: BTreeMap<JobId, Grower<'a>> = BTreeMap::new();
    let running = fair.growing.iter().filter(|_| state.freed);
    for id in running.filter(|id| !gives_way.contains(id) && !fair.ending.contains(id)) {
        let Some((job, run)) = state.jobs.get(&id.number).zip(state.run(*id)) else { continue };
        let queue = fair.shares.place(job.spec.stand());
        let grower = Grower::running((*id, job, queue), state, run, &BTreeSet::new());
        growers.insert(*id, grower);
    }
    for place in fair.places.iter().filter(|place| !waits.contains(&place.job)) {
        let job = state.jobs.get(&place.job.number).filter(|job| job.spec.gang.is_elastic());
        let Some(job) = job else { continue };
        let queue = fair.shares.place(job.spec.stand());
        let mut grower = Grower::of((place.job, job, queue));
        grower.join(&place.placements);
        growers.insert(place.job, grower);
    }
    // What an earlier round of this cycle gave them.
    for place in &fair.grown {
        if let Some(grower) = growers.get_mut(&place.job) {
            grower.join(&place.placements);
        }
    }
    growers.into_values().collect()
}

/// Where a gang stands; `None` if it has all that it may have.
fn standing(fair: &Fair, grower: &Grower) -> Option<Standing> {
    let unit = units(grower).into_iter().next()?;
    let asked = fair.shares.asked(&unit.spec);
    let beyond = |place: usize| {
        let queue = &fair.shares.queues[place];
        (0..asked.len()).any(|index| {
            asked[index] > 0 && queue.held[index].saturating_add(asked[index]) > queue.target[index]
        })
    };
    let queue = &fair.shares.queues[grower.queue];
    let part = |index: usize| match (queue.held[index], queue.due[index]) {
        (..=0, _) => 0,
        (_, ..=0) => i64::MAX,
        (held, due) => i64::try_from(i128::from(held) * 1_000_000 / i128::from(due)).unwrap_or(i64::MAX),
    };
    let part = (0..asked.len()).filter(|index| asked[*index] > 0).map(part).max().unwrap_or(0);
    let spec = &grower.job.spec;
    let surplus = (grower.present.len() as u32).saturating_sub(spec.gang.tasks());
    // What is due to a queue is a part of what is due to those above it.
    let beyond_due = beyond(grower.queue);
    Some((beyond_due, part, -i64::from(spec.priority), surplus, grower.id))
}

/// Places the next part of a gang, where it fits or others give way for it.
fn more(fair: &mut Fair, grower: &Grower, reach: Reach) -> Option<Vec<Placement>> {
    units(grower).iter().find_map(|unit| {
        let asked = fair.shares.asked(&unit.spec);
        let of_juniors = reach == Reach::Juniors;
        let allowed = fair.shares.allows(grower.queue, &asked, &unit.spec);
        // At its limit a queue may still have what its own jobs give.
        if allowed.is_err() && !of_juniors {
            return None;
        }
        if let Ok(closed) = allowed.and_then(|_| fair.shares.closed(grower.queue, &unit.spec)) {
            fair.trial.not_lent = closed;
            if let Ok(placements) = unit.place(fair.trial) {
                let taken = fair.shares.counted(fair.trial.state, placements.iter());
                fair.shares.charge(grower.queue, &taken, (1, !unit.spec.preemptible));
                return Some(placements);
            }
        }
        let state = fair.trial.state;
        if state.policy.preempt != Preempt::LeastLoss || state.was_just_taken(grower.id) {
            return None;
        }
        fair.early.get_or_insert(fair.places.len());
        let claim = Claim::of(grower.id, &unit.spec, (grower.queue, asked.clone()));
        let claim = Claim { part: Some(unit), ..claim };
        if reach == Reach::Free {
            return reclaim::by_moves(fair, &claim);
        }
        let scarce = fair.shares.scarce(grower.queue, &asked, fair.trial.capacity());
        let (owed, always_owed) = fair.owed(grower.queue, &asked);
        let claim = Claim { scarce, owed, always_owed, ..claim };
        reclaim::take_back(fair, &Claim { own_alone: of_juniors, surplus_alone: of_juniors, ..claim })
    })
}

/// Adds to a gang that was just placed anew the parts beyond its minimum, up to as many tasks as it ran with;
/// `None` where not all of them fit.
pub(super) fn at_size(
    trial: &mut Trial,
    job: (JobId, &Job, usize),
    placements: &[Placement],
    tasks: usize,
) -> Option<Vec<Placement>> {
    let mut grower = Grower::of(job);
    grower.join(placements);
    while grower.present.len() < tasks {
        let more = units(&grower).iter().find_map(|unit| unit.place(trial).ok())?;
        grower.join(&more);
    }
    Some(grower.present.into_values().collect())
}

/// Finds another place for a part of a gang that runs, given by its ranks; of a role any of its free ranks will do. Parts of it that
/// move with this one go, and go on where they are placed.
pub(super) fn anew(
    fair: &mut Fair,
    (id, job, queue): (JobId, &Job, usize),
    part: &Range<u32>,
    moves: &[Move],
) -> Option<Vec<Placement>> {
    let state = fair.trial.state;
    let moved: Vec<&Move> = moves.iter().filter(|moved| moved.job == id).collect();
    let told = fair.victims.iter().filter(|victim| victim.job == id).flat_map(|victim| &victim.live);
    let goes = told.chain(moved.iter().flat_map(|moved| &moved.live)).copied().collect();
    let mut grower = Grower::running((id, job, queue), state, state.run(id)?, &goes);
    grower.present.retain(|rank, _| !part.contains(rank));
    let grown = fair.grown.iter().filter(|place| place.job == id).flat_map(|place| &place.placements);
    grower.join(grown.chain(moved.iter().flat_map(|moved| &moved.placements)));
    let gang = &job.spec.gang;
    let is_it = |unit: &Unit| match part.len() {
        1 => gang.role_index(unit.rank) == gang.role_index(part.start),
        _ => unit.rank == part.start,
    };
    units(&grower).into_iter().find(is_it)?.place(fair.trial).ok()
}

/// The parts that could be added to a gang, the best first: at each branch in the group that has the least of what it
/// needs, so that groups that did not start come first, and what they need of each other stays in proportion.
fn units(grower: &Grower) -> Vec<Unit> {
    let mut found = Vec::new();
    let (domains, spread, full) = (Vec::new(), Vec::new(), Vec::new());
    Search { grower, domains, spread, full, found: &mut found }.group(&grower.job.spec.gang, 0);
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found.into_iter().map(|(_, unit)| unit).collect()
}

/// The way through the groups of a gang.
struct Search<'a, 'b> {
    grower: &'b Grower<'a>,
    /// The domains of the groups around.
    domains: Vec<(String, NodeId)>,
    /// How these are spread, and where what they have lies.
    spread: Vec<Spreading>,
    /// What each of them, but the whole gang, has of what it needs, in thousandths, and its first rank.
    full: Vec<(u32, u32)>,
    /// Each with how full the groups around it are.
    found: &'b mut Vec<(Vec<(u32, u32)>, Unit)>,
}

impl Search<'_, '_> {
    fn group(&mut self, group: &Group, first: u32) {
        let depth = (self.domains.len(), self.spread.len());
        let ranks = first..first + group.most_tasks();
        self.domains.extend(self.domain(group.topology(), ranks.clone()));
        let present = self.grower.present.range(ranks).map(|(_, placement)| placement.node);
        self.spread.extend(group.spread().map(|spread| Spreading::of_grower(spread, present.collect())));
        match group {
            Group::Role(role) => self.role(role, first),
            Group::Branch(branch) => {
                let mut first = first;
                for group in &branch.groups {
                    let next = first + group.most_tasks();
                    let here = self.grower.present.range(first..next).count() as u32;
                    self.full.push((here.saturating_mul(1000) / group.tasks().max(1), first));
                    if here > 0 {
                        self.group(group, first);
                    } else if self.grower.taken.range(first..next).next().is_none() {
                        self.note(first, group.clone(), None);
                    }
                    self.full.pop();
                    first = next;
                }
            }
        }
        self.domains.truncate(depth.0);
        self.spread.truncate(depth.1);
    }

    /// The domain in which a group has to stay.
    fn domain(&self, ask: Option<&TopologyAsk>, ranks: std::ops::Range<u32>) -> Option<(String, NodeId)> {
        let ask = ask.filter(|ask| ask.required)?;
        let (_, placement) = self.grower.present.range(ranks).next()?;
        Some((ask.within.clone(), placement.node))
    }

    fn role(&mut self, role: &Role, first: u32) {
        let ranks = first..first + role.maximum;
        let here = self.grower.present.range(ranks.clone()).count() as u32;
        let is_free =
            |rank: &u32| !self.grower.present.contains_key(rank) && !self.grower.taken.contains(rank);
        let Some(rank) = ranks.clone().find(is_free).filter(|_| here >= role.minimum) else { return };
        let alternative = self.grower.present.range(ranks).next().map(|(_, placement)| placement.alternative);
        let mut one =
            Role { minimum: 1, maximum: 1, topology: None, spread: Newer::default(), ..role.clone() };
        if let Some(same) = alternative.and_then(|index| role.ask.alternatives.get(index as usize)) {
            one.ask.alternatives = vec![same.clone()];
        }
        self.note(rank, Group::Role(one), alternative);
    }

    fn note(&mut self, rank: u32, gang: Group, alternative: Option<u32>) {
        let spec = JobSpec { gang: gang.into(), ..(*self.grower.job.spec).clone() };
        let (domains, rest) = (self.domains.clone(), near::rest(&self.grower.job.spec, &self.grower.present));
        let spread = self.spread.clone();
        self.found.push((self.full.clone(), Unit { spec, rank, alternative, domains, rest, spread }));
    }
}
