//! Advice: all that keeps a job waiting with what lifts each, and the cheapest fix that starts it now.

use super::change::{Change, Tier};
use super::edit::from_now;
use super::fix::Fix;
use super::gates::{self, Gate};
use super::menu::{self, Menu};
use super::promised;
use super::search::{Goal, Meter, Search};
use super::world::{Outcome, World};
use crate::decide::{Command, Submit};
use crate::id::JobId;
use crate::reason::{Reason, Verdict};
use crate::snapshot::Snapshot;
use crate::state::State;
use crate::time::Time;

/// What keeps a job waiting, and what to do about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// What the planner thinks of it.
    pub verdict: Verdict,
    /// All that keeps it waiting; what must go first comes first.
    pub blockers: Vec<Blocker>,
    /// The cheapest changes with which it starts in the next cycle; `None` where none were found.
    pub remedy: Option<Fix>,
}

impl Advice {
    /// When the job can be expected to start without anyone's doing: if all that keeps it waiting goes away with time, and it is
    /// known when.
    pub fn comes_with_time(&self) -> Option<Time> {
        let is_time = |way: &&Fix| way.changes.iter().all(|change| change.tier() == Tier::Time);
        let with_time = |blocker: &Blocker| blocker.ways.iter().find(is_time)?.until();
        let lifted = self.blockers.iter().filter(|blocker| !blocker.ways.is_empty());
        let moments: Option<Vec<Time>> = lifted.map(with_time).collect();
        moments?.into_iter().max()
    }
}

/// Something that keeps a job waiting.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocker {
    /// What.
    pub reason: Reason,
    /// What lifts it, the cheapest first: at most one way for each party that can bring it about. Empty where what lifts another
    /// blocker lifts it, too, or where nothing was found.
    pub ways: Vec<Fix>,
    /// Where it has no way of its own, and not all ways of another blocker lift it: a way that does.
    pub lifted_by: Option<Fix>,
}

/// Gates that are lifted one after the other, at most: more than a job can have.
const MOST_GATES: usize = 12;

/// How many nodes, devices, jobs and allocations are looked at for one piece of advice, over all copies of the pool: about a second.
const MOST_LOOKS: u64 = 2_000_000;

/// The fewest copies that are tried, in the largest pools, and the most, in the smallest.
const TRIES: (u64, u64) = (6, 6000);

/// Advises on a job (or member, or array as a whole) that waits. `None` if there is none.
pub fn advise(state: &State, snapshot: &Snapshot, id: JobId) -> Option<Advice> {
    let advised = advised(state, id)?;
    let world = World::of(state, snapshot, advised);
    let (_, run) = gates::run_of(world.job()?, advised)?;
    match (run.is_active(), run.promised) {
        (true, _) => None,
        (_, true) => of_promised(&world),
        _ => of_world(&world),
    }
}

/// What is looked at when a job is advised: of an array whose next member is promised its devices, that member.
pub(super) fn advised(state: &State, id: JobId) -> Option<JobId> {
    let (member, run) = gates::run_of(state.jobs.get(&id.number)?, id)?;
    Some(if run.promised { member } else { id })
}

/// Advises on a job that was not submitted; `None` if the pool refuses it.
pub fn advise_spec(state: &State, snapshot: &Snapshot, submit: &Submit) -> Option<Advice> {
    let world = World::submitted(state, snapshot, &Command::Submit(Box::new(submit.clone())))?;
    of_world(&world)
}

fn of_promised(world: &World) -> Option<Advice> {
    let left = tries(world.state());
    let mut meter = Meter { left, is_scarce: left < FEW_TRIES };
    // A promise that cannot be kept is about to be withdrawn.
    promised::advise(world, &mut meter).or_else(|| of_world(&world.without_promise()?))
}

fn of_world(world: &World) -> Option<Advice> {
    let pool = (world.state(), world.snapshot());
    let spec = &world.job()?.spec;
    let left = tries(world.state());
    let is_scarce = left < FEW_TRIES;
    // Where there are tries enough, half of them are for all that lifts one thing alone.
    let spared = if is_scarce { 0 } else { left / 2 };
    let mut meter = Meter { left: left - spared, is_scarce };
    let mut ladder = Ladder::default();
    let whole = ladder.climb(world, &mut meter);
    meter.left += spared;
    let verdict = gates::verdict(pool, spec, ladder.blockers.iter().map(|blocker| &blocker.reason));
    let remedy = remedy(world, &mut ladder, whole, &mut meter);
    if let Some(remedy) = &remedy {
        ladder.tell_what_lifts_others(world, remedy, &mut meter);
    }
    Some(Advice { verdict, blockers: ladder.blockers, remedy })
}

/// Below so many tries not all that might help is looked at.
const FEW_TRIES: u32 = 500;

fn tries(state: &State) -> u32 {
    let size = state.nodes.len() + state.devices.len() + state.jobs.len() + state.allocations.len();
    let (least, most) = TRIES;
    (MOST_LOOKS / (size as u64).max(1)).clamp(least, most) as u32
}

/// The gates of a job, lifted one after the other until it starts.
#[derive(Default)]
struct Ladder {
    blockers: Vec<Blocker>,
    /// From when on cycles keep capacity for others.
    kept_from: Vec<Time>,
}

impl Ladder {
    /// Lifts gate by gate; returns all changes that this took, if the job starts with them.
    fn climb(&mut self, world: &World, meter: &mut Meter) -> Option<Vec<Change>> {
        let mut changes: Vec<Change> = Vec::new();
        for _ in 0..MOST_GATES {
            let changed = if changes.is_empty() { None } else { Some(world.after(&changes)?) };
            let here = changed.as_ref().unwrap_or(world);
            let (then, outcome) = here.after(&[])?.cycle();
            let Outcome::Waits(verdict) = outcome else { return Some(changes) };
            match &verdict {
                Some(Reason::Reserved(_)) => self.kept_from.extend(here.kept_anew()),
                // Verdicts that stand do not tell what is kept, and in large pools it is too dear to look at all jobs again.
                _ if !meter.is_scarce => self.kept_from.extend(here.kept_anew()),
                _ => self.kept_from.extend(then.kept_from()),
            }
            let mut reasons = gates::of_world(here, verdict.as_ref());
            if reasons.is_empty() {
                reasons.push(verdict?);
            }
            let first = reasons[0].clone();
            reasons.iter().for_each(|reason| self.note(reason));
            let (menu, lifted) = (menu::menu(here, &self.kept_from), Goal::Lifts(Gate::of(&first)));
            let is_last = reasons.len() == 1;
            let goal = if is_last { Goal::Starts } else { lifted.clone() };
            let mut ways = ways_of(here, &menu, (&first, goal), meter);
            if ways.is_empty() && is_last && !meter.is_scarce {
                // What stands behind it may be seen once it is lifted.
                ways = ways_of(here, &menu, (&first, lifted), meter);
            }
            changes.extend(ways.first()?.changes.clone());
            self.blocker(&first).lift(world, ways);
        }
        None
    }

    /// Adds a blocker for a reason, unless its gate is known.
    fn note(&mut self, reason: &Reason) {
        if self.blockers.iter().all(|known| Gate::of(&known.reason) != Gate::of(reason)) {
            self.blockers.push(Blocker { reason: reason.clone(), ways: Vec::new(), lifted_by: None });
        }
    }

    fn blocker(&mut self, reason: &Reason) -> &mut Blocker {
        let known = self.blockers.iter().position(|known| Gate::of(&known.reason) == Gate::of(reason));
        let place = known.unwrap_or(0);
        &mut self.blockers[place]
    }

    /// Removes the ways of each blocker that is lifted by what lifts the others.
    fn drop_needless(&mut self, world: &World, meter: &mut Meter) {
        let menu = Menu::default();
        let mut needless = |place: &usize, ladder: &Self| {
            let others = ladder.first_ways(Some(*place));
            let mut search = Search::new(world, &menu, Goal::Starts, meter);
            !ladder.blockers[*place].ways.is_empty() && !others.is_empty() && search.does(&others)
        };
        // What was removed may have been all that made another one needed.
        while let Some(place) = (0..self.blockers.len()).find(|place| needless(place, self)) {
            self.blockers[place].ways.clear();
        }
    }

    /// Notes what lifts the blockers that have no way of their own, unless all ways of another blocker do.
    fn tell_what_lifts_others(&mut self, world: &World, remedy: &Fix, meter: &mut Meter) {
        let menu = Menu::default();
        let ways: Vec<Vec<Fix>> = self.blockers.iter().map(|blocker| blocker.ways.clone()).collect();
        let ways: Vec<&Vec<Fix>> = ways.iter().filter(|ways| !ways.is_empty()).collect();
        for blocker in self.blockers.iter_mut().filter(|blocker| blocker.ways.is_empty()) {
            let mut search = Search::new(world, &menu, Goal::Lifts(Gate::of(&blocker.reason)), meter);
            let mut lifts = |way: &Fix| search.does(&way.changes);
            if ways.iter().any(|ways| ways.iter().all(&mut lifts)) {
                continue;
            }
            let one = ways.iter().copied().flatten().find(|way| lifts(way));
            // What starts the job lifts all.
            blocker.lifted_by = Some(one.unwrap_or(remedy).clone());
        }
    }

    /// Lets one fix lift all gates, where what lifts them one after the other does not start the job.
    fn lift_at_once(&mut self, fix: &Fix) {
        self.blockers.iter_mut().skip(1).for_each(|blocker| blocker.ways.clear());
        if let Some(first) = self.blockers.first_mut() {
            first.ways.retain(|way| way != fix);
            first.ways.insert(0, fix.clone());
        }
    }

    /// The cheapest ways of all blockers but one.
    fn first_ways(&self, without: Option<usize>) -> Vec<Change> {
        let others = self.blockers.iter().enumerate().filter(|(place, _)| Some(*place) != without);
        others.filter_map(|(_, blocker)| blocker.ways.first()).flat_map(|way| way.changes.clone()).collect()
    }
}

impl Blocker {
    /// Takes in what lifts it; if it had been lifted before and has come back, in addition to what lifted it then.
    fn lift(&mut self, world: &World, ways: Vec<Fix>) {
        let before = self.ways.first().map(|way| way.changes.clone()).unwrap_or_default();
        let Some(job) = world.job() else { return };
        let with = |way: Fix| {
            // The ways were found after other changes: they are restated from what the job and its queues have now.
            let changes = way.changes.into_iter().map(|change| from_now(world.state(), &job.spec, change));
            Fix::of(world.state(), &job.spec, &before.iter().cloned().chain(changes).collect::<Vec<_>>())
        };
        self.ways = ways.into_iter().map(with).collect();
    }
}

/// What lifts one gate, by the party that can bring it about, the cheapest first; else whatever does it together.
fn ways_of(world: &World, menu: &Menu, (reason, goal): (&Reason, Goal), meter: &mut Meter) -> Vec<Fix> {
    let waiver = |change: &&Change| match (reason, change) {
        (Reason::Held(_), Change::Release) | (Reason::StartAfter(_), Change::StartNow) => true,
        (Reason::Dependency(on, _), Change::DropDependency { job }) => on == job,
        (Reason::ArrayLimit(_), Change::ArrayBound { .. }) => true,
        _ => false,
    };
    let waiver: Vec<Change> = menu.waivers.iter().filter(waiver).cloned().collect();
    let own = Menu { waivers: waiver, edits: menu.edits.clone(), in_time: true, ..Menu::default() };
    let time = Menu { ends: menu.ends.clone(), ..Menu::default() };
    let gate = Gate::of(reason);
    let grants = menu.grants.iter().filter(|grant| gate.is_opened_by(grant)).cloned().collect();
    let grant = Menu { grants, ..Menu::default() };
    let is_waiver = !own.waivers.is_empty();
    let mut find = |menu: &Menu| Search::new(world, menu, goal.clone(), meter).cheapest();
    let mut ways: Vec<Fix> = match reason {
        Reason::Held(_) => find(&own).into_iter().collect(),
        _ if is_waiver => [&own, &time].into_iter().filter_map(&mut find).collect(),
        _ => [&own, &time, &grant].into_iter().filter_map(&mut find).collect(),
    };
    if ways.is_empty() {
        ways.extend(find(menu));
    }
    ways
}

/// The cheapest fix of all: what the gates took one after the other, or something that does it at once.
fn remedy(world: &World, ladder: &mut Ladder, whole: Option<Vec<Change>>, meter: &mut Meter) -> Option<Fix> {
    let spec = world.job()?.spec.clone();
    let gates = ladder.blockers.iter().filter(|blocker| !blocker.ways.is_empty()).count();
    if gates > 1 {
        ladder.drop_needless(world, meter);
    }
    let menu = menu::menu(world, &ladder.kept_from);
    let mut search = Search::new(world, &menu, Goal::Starts, meter);
    let whole = whole.filter(|whole| !whole.is_empty()).map(|_| ladder.first_ways(None));
    let is_climbed = whole.is_some();
    let whole = whole.map(|whole| if gates > 1 { search.pruned(whole) } else { whole });
    let whole = whole.map(|whole| Fix::of(world.state(), &spec, &whole));
    let at_once = search.cheapest_of_all();
    let best = whole.into_iter().chain(at_once).min_by_key(|fix| fix.cost)?;
    if !is_climbed {
        ladder.lift_at_once(&best);
        return Some(best);
    }
    let [only] = &mut ladder.blockers[..] else { return Some(best) };
    // Where only one thing keeps it back, what starts it is what lifts that.
    if only.ways.first().is_none_or(|first| best.cost < first.cost) {
        only.ways.insert(0, best.clone());
    }
    Some(best)
}

/// A world with the job that advice is sought for, where that is not there yet.
impl World {
    fn submitted(state: &State, snapshot: &Snapshot, submit: &Command) -> Option<Self> {
        let target = JobId::single(state.next_job);
        let mut world = Self::of(state, snapshot, target);
        world.command(submit).then_some(world)
    }
}
