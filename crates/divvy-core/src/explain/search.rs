//! The search for the cheapest fix: changes of the menu are tried in the order of their cost, on a copy of the pool, with the very
//! planner that would start the job. What is found has been seen to work.

use std::collections::BTreeSet;

use super::change::{Change, Raise, Tier, merged};
use super::edit::edited;
use super::ends;
use super::fix::{Fix, cost};
use super::gates::{self, Gate};
use super::menu::{self, Menu, fits_alone};
use super::world::{Outcome, World};
use crate::model::job::JobSpec;
use crate::model::queue::lineage;
use crate::plan;
use crate::snapshot::Snapshot;
use crate::time::Time;

/// What changes are to bring about.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Goal {
    /// That the job starts in the next cycle.
    Starts,
    /// That one gate no longer keeps it back.
    Lifts(Gate),
}

/// How many copies of the pool may still be tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    pub(crate) left: u32,
    /// Whether they are too few to try everything.
    pub(crate) is_scarce: bool,
}

/// Up to so many ends all sets of them are tried; of more, each alone and the first ones together.
const MOST_SETS: usize = 8;

/// Beyond so many ends not every number of the first ones is tried.
const MOST_PREFIXES: usize = 48;

/// Up to so many grants are tried two by two, too.
const MOST_PAIRED: usize = 16;

/// Tries that are left for the last resort.
const SPARED: u32 = 200;

/// One in so many tries is left for sets of few changes that were not looked at in order.
const LEFT_FOR_FEW: u32 = 4;

/// How many ends are tried together with so many grants: three changes that are not the job's own are enough.
fn most_ends(grants: usize) -> usize {
    if grants == 0 { usize::MAX } else { 3usize.saturating_sub(grants) }
}

/// A search in a world.
pub(crate) struct Search<'a> {
    pub(crate) world: &'a World,
    pub(crate) menu: &'a Menu,
    pub(crate) goal: Goal,
    pub(crate) meter: &'a mut Meter,
    /// The pool as it is, to try places in.
    scratch: Option<Snapshot>,
    /// From when on the last cycle that was tried keeps capacity for others.
    kept_from: Vec<Time>,
    /// Sets of changes with which it does not start.
    pub(super) failed: BTreeSet<Vec<Change>>,
}

impl<'a> Search<'a> {
    /// A search that has not begun.
    pub(crate) fn new(world: &'a World, menu: &'a Menu, goal: Goal, meter: &'a mut Meter) -> Self {
        let (kept_from, failed) = (Vec::new(), BTreeSet::new());
        Self { world, menu, goal, meter, scratch: None, kept_from, failed }
    }
}

impl Search<'_> {
    /// The cheapest fix, if there is one.
    pub(crate) fn cheapest(&mut self) -> Option<Fix> {
        let relaxed = self.relaxed();
        let mut best = None;
        for waivers in self.waiver_sets() {
            best = self.in_order(&waivers, &relaxed, best);
        }
        best.or_else(|| self.all_that_can_be_granted(&relaxed))
    }

    /// The cheapest fix of all: where there are tries enough, it is certain that no set of few changes costs less.
    pub(crate) fn cheapest_of_all(&mut self) -> Option<Fix> {
        let spared = if self.meter.is_scarce { 0 } else { self.meter.left / LEFT_FOR_FEW };
        self.meter.left -= spared;
        let best = self.cheapest();
        self.meter.left += spared;
        self.few(best)
    }

    /// The cheapest fix with these own conditions given up: grants, ends and edits, each in the order of their cost.
    fn in_order(&mut self, waivers: &[Change], relaxed: &Relaxed, mut best: Option<Fix>) -> Option<Fix> {
        let end_sets = self.end_sets();
        for grants in self.grant_sets() {
            // Sets of grants come in the order of their cost: what follows is dearer.
            if self.is_beaten(&grants, best.as_ref()) || self.meter.left == 0 {
                break;
            }
            if !self.could(&grants, relaxed) {
                continue;
            }
            let most = most_ends(grants.len());
            for ends in end_sets.iter().filter(|ends| ends.len() <= most) {
                let base = [waivers, &grants, ends].concat();
                if self.is_beaten(&base, best.as_ref()) || self.meter.left == 0 {
                    break;
                }
                if let Some(found) = self.with_edits(&base, relaxed) {
                    let found = self.pruned(found);
                    best = cheaper(best, self.fix(&found));
                }
            }
        }
        best
    }

    /// The sets of its own conditions that are given up: all, or only those that do not go with time.
    pub(super) fn waiver_sets(&self) -> Vec<Vec<Change>> {
        let all = self.menu.waivers.clone();
        let lasting: Vec<Change> = all.iter().filter(|waiver| **waiver == Change::Release).cloned().collect();
        let goes_with_time = lasting.len() < all.len() && !self.menu.ends.is_empty();
        let others = (goes_with_time && !self.meter.is_scarce).then_some(lasting);
        std::iter::once(all).chain(others).collect()
    }

    /// All edits at once, in sets of which one does it if any edits do. A job that asks for fewer devices gets less memory with them, so
    /// that to name an amount of memory may then be to ask for more.
    fn relaxed(&self) -> Relaxed {
        let edits = &self.menu.edits;
        let unsaid = |edit: &&Change| !matches!(edit, Change::LessHost { .. });
        let plain: Vec<Change> = edits.iter().filter(unsaid).cloned().collect();
        let both = !self.meter.is_scarce && plain.len() < edits.len();
        std::iter::once(furthest(edits)).chain(both.then(|| furthest(&plain))).collect()
    }

    /// Whether nothing that has these changes can cost less than what was found.
    fn is_beaten(&self, changes: &[Change], best: Option<&Fix>) -> bool {
        best.is_some_and(|best| self.fix(changes).is_some_and(|least| least.cost >= best.cost))
    }

    /// Where no few grants do it, because others take what they bring: all grants, and all ends, without those that are not needed.
    /// Where these do not do it, either, limits are raised by what all ask for that wait behind them.
    fn all_that_can_be_granted(&mut self, relaxed: &Relaxed) -> Option<Fix> {
        let all = self.all_grants();
        if all.is_empty() {
            return None;
        }
        self.granted(&all, relaxed).or_else(|| {
            let for_all = self.with_limits_for_all(&all)?;
            self.granted(&for_all, relaxed)
        })
    }

    /// These grants, with all ends and edits that it takes, without what is not needed of them.
    fn granted(&mut self, all: &[Change], relaxed: &Relaxed) -> Option<Fix> {
        // The few tries that this takes are spared for it.
        if !self.meter.is_scarce {
            self.meter.left = self.meter.left.max(SPARED);
        }
        let ends = if self.meter.is_scarce { Vec::new() } else { self.menu.ends.clone() };
        let base = [&self.menu.waivers[..], all].concat();
        let edits: Vec<&[Change]> =
            std::iter::once(&[][..]).chain(relaxed.iter().map(Vec::as_slice)).collect();
        let with_ends = [&[][..], &ends].into_iter().take(1 + usize::from(!ends.is_empty()));
        let mut sets = with_ends.flat_map(|ends| edits.iter().map(move |edits| (ends, *edits)));
        let found = sets.find_map(|(ends, edits)| {
            let changes = [&base, ends, edits].concat();
            self.does(&changes).then_some(changes)
        })?;
        let found = self.pruned(found);
        self.fix(&found)
    }

    /// All grants, each as far as it goes; guarantees only as far as the pool has what they are of.
    fn all_grants(&self) -> Vec<Change> {
        let all = furthest(&self.menu.grants);
        if self.meter.is_scarce || self.world.after(&all).is_some() {
            return all;
        }
        let is_guarantee = |change: &&Change| matches!(change, Change::RaiseGuarantee(_));
        let mut taken: Vec<Change> = all.into_iter().filter(|change| !is_guarantee(&change)).collect();
        for raise in self.menu.grants.iter().rev().filter(is_guarantee) {
            let with = [&taken[..], std::slice::from_ref(raise)].concat();
            if taken.iter().all(|other| raise.goes_with(other)) && self.world.after(&with).is_some() {
                taken = with;
            }
        }
        taken
    }

    /// The same grants, with limits under which all that wait behind them could run; `None` where that is nothing else, or where tries
    /// are few.
    fn with_limits_for_all(&self, grants: &[Change]) -> Option<Vec<Change>> {
        let snapshot = self.world.snapshot();
        let further = |grant: &Change| match grant {
            Change::RaiseLimit(raise) => {
                let more = menu::asked_below(snapshot, &raise.queue, &raise.resource);
                Change::RaiseLimit(Raise { to: raise.to.saturating_add(more), ..raise.clone() })
            }
            other => other.clone(),
        };
        let further: Vec<Change> = grants.iter().filter(|_| !self.meter.is_scarce).map(further).collect();
        (!further.is_empty() && further != grants).then_some(further)
    }

    pub(super) fn fix(&self, changes: &[Change]) -> Option<Fix> {
        Some(Fix::of(self.world.state(), &self.world.job()?.spec, changes))
    }

    /// Whether these changes do it.
    pub(crate) fn does(&mut self, changes: &[Change]) -> bool {
        if self.meter.left == 0 || !self.may_do(changes) {
            return false;
        }
        if let Some(lifts) = self.lifts_by_itself(changes) {
            return lifts;
        }
        self.meter.left -= 1;
        let Some(world) = self.world.after(changes) else { return false };
        match &self.goal {
            Goal::Starts => {
                let (then, outcome) = world.cycle();
                self.kept_from = then.kept_from().to_vec();
                if outcome != Outcome::Starts {
                    self.failed.insert(merged(changes));
                }
                outcome == Outcome::Starts
            }
            Goal::Lifts(gate) => {
                // Only the place in the line takes a cycle to tell.
                let in_line = *gate == Gate::InLine;
                let verdict = in_line.then(|| world.after(&[])?.cycle().1.verdict()).flatten();
                let reasons = gates::of_world(&world, verdict.as_ref());
                reasons.iter().all(|reason| Gate::of(reason) != *gate)
            }
        }
    }

    /// Whether a gate of limits or capacity lets the job pass once it asks for something else; that takes no other pool. `None` otherwise.
    fn lifts_by_itself(&mut self, changes: &[Change]) -> Option<bool> {
        let Goal::Lifts(gate) = self.goal.clone() else { return None };
        let is_edit = |change: &Change| change.tier() == Tier::Own && !change.is_waiver();
        let is_asked =
            matches!(gate, Gate::Limit(..) | Gate::Guarantee | Gate::Loans | Gate::Size | Gate::Capacity);
        let job = self.world.job().filter(|_| is_asked && changes.iter().all(is_edit))?;
        let (state, spec) = (self.world.state(), edited(&job.spec, changes));
        if self.meter.is_scarce && gate == Gate::Capacity {
            let unlimited = JobSpec { preemptible: true, ..spec.without_limits() };
            return Some(self.fits(&unlimited));
        }
        self.meter.left -= u32::from(self.meter.is_scarce);
        let (reasons, _) = gates::of_pool(state, self.world.snapshot(), &spec);
        Some(reasons.iter().all(|reason| Gate::of(reason) != gate))
    }

    /// Whether a job that asks for this fits what is free.
    fn fits(&mut self, spec: &JobSpec) -> bool {
        let (state, snapshot) = (self.world.state(), self.world.snapshot());
        let scratch = self.scratch.get_or_insert_with(|| snapshot.scratch());
        plan::would_place_in(state, (snapshot, scratch), spec).is_ok()
    }

    /// Whether these changes are worth a try. In a pool that allows few tries, a job that asks for something else has to fit what is free.
    fn may_do(&mut self, changes: &[Change]) -> bool {
        let is_edit = |change: &Change| change.tier() == Tier::Own;
        if !self.meter.is_scarce || self.goal != Goal::Starts || !changes.iter().all(is_edit) {
            return true;
        }
        let Some(job) = self.world.job() else { return false };
        let spec = edited(&job.spec, changes);
        self.fits(&spec)
    }

    /// Whether anything but more grants could still help: if the job does not fit even alone, asking for as little as it can, no
    /// end of other jobs helps.
    fn could(&mut self, grants: &[Change], relaxed: &Relaxed) -> bool {
        if self.goal != Goal::Starts {
            return true;
        }
        let Some(job) = self.world.job() else { return false };
        let mut specs = relaxed.iter().map(|edits| edited(&job.spec, &[&edits[..], grants].concat()));
        if grants.is_empty() {
            return specs.any(|spec| fits_alone(self.world, &spec));
        }
        let world = self.world.after(grants).filter(|_| self.meter.left > 0);
        self.meter.left = self.meter.left.saturating_sub(1);
        world.is_some_and(|world| specs.any(|spec| fits_alone(&world, &spec)))
    }

    /// What is changed already, with the least that the job has to ask for otherwise beside it.
    fn with_edits(&mut self, base: &[Change], relaxed: &Relaxed) -> Option<Vec<Change>> {
        if !base.is_empty() && self.does(base) {
            return Some(base.to_vec());
        }
        let in_time = if base.is_empty() || !self.menu.in_time { Vec::new() } else { self.in_time() };
        let most = relaxed.iter().filter(|edits| !edits.is_empty()).map(|edits| [base, edits].concat());
        let most = most.into_iter().find(|most| self.does(most));
        let any_help = most.is_some();
        let waits_for_none = base.iter().all(|change| change.tier() != Tier::Time);
        // One edit may do it where all together do not: what the job no longer asks for may go to others.
        let mut sets = if any_help || waits_for_none { self.edit_sets() } else { Vec::new() };
        sets.retain(|edits| any_help || edits.len() == 1);
        sets.extend(in_time.into_iter().map(|limit| vec![limit]));
        for edits in self.by_cost(sets) {
            let changes = [base, &edits].concat();
            if self.does(&changes) {
                return Some(changes);
            }
        }
        most.or_else(|| self.with_edits_in_time(base, relaxed))
    }

    /// Edits together with a time limit, where it takes both: what is free for a job that asks for less may be kept for others.
    fn with_edits_in_time(&mut self, base: &[Change], relaxed: &Relaxed) -> Option<Vec<Change>> {
        let is_own = base.iter().all(|change| change.tier() == Tier::Own);
        if !is_own || !self.menu.in_time || self.meter.is_scarce || self.goal != Goal::Starts {
            return None;
        }
        let all = relaxed.iter().filter(|edits| !edits.is_empty());
        let (edits, limits) = all.into_iter().find_map(|edits| {
            // The cycle that is tried last tells from when on something is kept from the job that asks for this.
            self.does(&[base, edits].concat());
            let limits = self.in_time();
            let shortest = limits.first().filter(|limit| edits.iter().all(|edit| edit.goes_with(limit)))?;
            let most = [base, edits, std::slice::from_ref(shortest)].concat();
            self.does(&most).then_some((most, limits))
        })?;
        let with = |edit: &Change| {
            let beside = limits.iter().filter(|limit| edit.goes_with(limit));
            beside.map(|limit| vec![edit.clone(), limit.clone()]).collect::<Vec<_>>()
        };
        let sets = self.by_cost(self.menu.edits.iter().flat_map(with).collect());
        let mut changes = sets.into_iter().map(|set| [base, &set].concat());
        changes.find(|changes| self.does(changes)).or(Some(edits))
    }

    /// Time limits with which the job is over before others need what was kept for them in the cycle that was tried last.
    fn in_time(&self) -> Vec<Change> {
        let Some(job) = self.world.job() else { return Vec::new() };
        let limits = menu::shorter(self.world.state(), &self.kept_from, &job.spec);
        limits.into_iter().filter(|limit| !self.menu.edits.contains(limit)).collect()
    }

    /// One or two edits.
    fn edit_sets(&self) -> Vec<Vec<Change>> {
        sets_up_to(if self.meter.is_scarce { 1 } else { 2 }, &self.menu.edits)
    }

    /// Nothing, one or two grants, the cheapest first.
    fn grant_sets(&self) -> Vec<Vec<Change>> {
        let grants = &self.menu.grants;
        let are_paired = grants.len() <= MOST_PAIRED && !self.meter.is_scarce;
        let mut sets = sets_up_to(if are_paired { 2 } else { 1 }, grants);
        sets.push(Vec::new());
        self.by_cost(sets)
    }

    /// Nothing, or ends to wait for, the first to come first.
    fn end_sets(&self) -> Vec<Vec<Change>> {
        let ends = &self.menu.ends;
        let mut sets = vec![Vec::new()];
        if ends.len() <= MOST_SETS {
            let chosen = |bits: u32| {
                let is_in = |index: &usize| bits & (1 << index) != 0;
                (0..ends.len()).filter(is_in).map(|index| ends[index].clone()).collect::<Vec<_>>()
            };
            sets.extend((1..1u32 << ends.len()).map(chosen));
            return self.by_cost(sets);
        }
        if self.meter.is_scarce {
            sets.extend(self.likely_ends());
        }
        let step = |count: &usize| *count <= MOST_PREFIXES || count.is_power_of_two() || *count == ends.len();
        for count in (1..=ends.len()).filter(step) {
            sets.push(vec![ends[count - 1].clone()]);
            sets.extend((count > 1).then(|| ends[..count].to_vec()));
        }
        sets
    }

    /// Ends that make room on nodes, and ends in queues at their limits: the first that would do, by count.
    fn likely_ends(&self) -> Vec<Vec<Change>> {
        let Some(job) = self.world.job() else { return Vec::new() };
        let cleared = ends::clearing(self.world.state(), self.world.snapshot(), &job.spec);
        let (mut of_queue, mut left) = (Vec::new(), job.spec.milli_asked());
        for change in &self.menu.ends {
            let Change::End { job: id } = change else { continue };
            let Some(other) = self.world.state().jobs.get(&id.number).filter(|_| left > 0) else { continue };
            if lineage(other.spec.stand()).any(|path| path == job.spec.stand()) {
                left -= other.spec.milli_asked();
                of_queue.push(change.clone());
            }
        }
        let cleared: Vec<Change> = cleared.into_iter().map(|job| Change::End { job }).collect();
        let both = merged(&[cleared.clone(), of_queue.clone()].concat());
        [cleared, of_queue, both].into_iter().filter(|set| !set.is_empty()).collect()
    }

    fn by_cost(&self, mut sets: Vec<Vec<Change>>) -> Vec<Vec<Change>> {
        let Some(job) = self.world.job() else { return sets };
        let state = self.world.state();
        sets.sort_by_cached_key(|set| {
            set.iter()
                .map(|change| cost(state, &job.spec, change))
                .fold(super::Cost::default(), super::Cost::with)
        });
        sets
    }

    /// Leaves out what is not needed after all, the dearest first, and makes what is needed as small as possible.
    pub(crate) fn pruned(&mut self, mut changes: Vec<Change>) -> Vec<Change> {
        let Some(spec) = self.world.job().map(|job| job.spec.clone()) else { return changes };
        let state = self.world.state();
        let mut dearest = changes.clone();
        dearest.sort_by_cached_key(|change| std::cmp::Reverse(cost(state, &spec, change)));
        for change in dearest {
            if self.meter.left == 0 {
                break;
            }
            let without: Vec<Change> = changes.iter().filter(|other| **other != change).cloned().collect();
            if !without.is_empty() && self.does(&without) {
                changes = without;
                continue;
            }
            let instead = self.instead_of(&change).into_iter();
            let with = instead.map(|other| [without.clone(), vec![other]].concat());
            let before = self.fix(&changes).map(|fix| fix.cost);
            let mut less: Vec<Vec<Change>> = with.collect();
            less.retain(|with| self.fix(with).map(|fix| fix.cost) < before);
            if let Some(with) = less.into_iter().find(|with| self.does(with)) {
                changes = with;
            }
        }
        self.lowered(changes)
    }

    /// What may do instead, the cheapest first: a change that asks for less of the same, or grants less of it; or, in place of a waiver,
    /// to wait for what it would not, as long as that comes no later than what is waited for anyway.
    fn instead_of(&self, change: &Change) -> Vec<Change> {
        let waits_for = |end: &&Change| match (change, end) {
            (Change::StartNow, Change::Wait { .. }) => true,
            (Change::DropDependency { job: on }, Change::End { job }) => on == job,
            _ => false,
        };
        if change.is_waiver() {
            return self.menu.ends.iter().filter(waits_for).cloned().collect();
        }
        let grants = if self.meter.is_scarce { &[][..] } else { &self.menu.grants };
        let same = self.menu.edits.iter().chain(grants).filter(|other| !other.goes_with(change));
        same.take_while(|other| *other != change).cloned().collect()
    }
}

/// All sets of one to so many changes that go together.
fn sets_up_to(most: usize, changes: &[Change]) -> Vec<Vec<Change>> {
    let mut sets: Vec<Vec<Change>> = Vec::new();
    for (index, one) in changes.iter().enumerate() {
        sets.push(vec![one.clone()]);
        if most > 1 {
            let others: Vec<Change> =
                changes[index + 1..].iter().filter(|other| one.goes_with(other)).cloned().collect();
            let larger = sets_up_to(most - 1, &others).into_iter();
            sets.extend(larger.map(|set| [std::slice::from_ref(one), &set].concat()));
        }
    }
    sets
}

/// Sets of edits of which one does it if any do.
type Relaxed = Vec<Vec<Change>>;

fn cheaper(best: Option<Fix>, other: Option<Fix>) -> Option<Fix> {
    best.into_iter().chain(other).min_by_key(|fix| fix.cost)
}

/// All changes at once, of each subject the one that goes furthest: what does it if any of them do.
fn furthest(changes: &[Change]) -> Vec<Change> {
    let mut furthest: Vec<Change> = Vec::new();
    for change in changes.iter().rev() {
        if furthest.iter().all(|other| change.goes_with(other)) {
            furthest.push(change.clone());
        }
    }
    furthest
}
