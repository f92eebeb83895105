//! Part of phase 1, share: models of which more is wanted than there is, by jobs that can run on no other. What is due to queues is no
//! more than they could all have at once.
//!
//! Of a set of scarce models a queue needs what is due to it beyond what its other jobs could use. If of no set more is needed than
//! there is, there are devices for all that is due (the theorem of max-flow and min-cut).

use std::collections::BTreeSet;

use super::{ANY, Amounts, POOL, Shares, quantum};
use crate::amount::Resource;
use crate::model::models::Models;
use crate::model::policy::Share;
use crate::plan::divide::{Claim, fill};
use crate::snapshot::Snapshot;
use crate::state::State;

/// Of up to so many models that jobs are bound to all sets are looked at; of more, those that jobs are bound to, and all together.
const MOST_COMBINED: usize = 4;
/// No more sets are looked at.
const MOST_SETS: usize = 16;

/// Models, as bits: by their places among all that waiting jobs are bound to.
type Bits = u64;

/// What is scarce, and for whom.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scarce {
    /// Sets of models of which more is wanted than there is, the small ones first.
    sets: Vec<Bits>,
    /// By place and set: what the queue and those below it hold or wait for by jobs that can run on no other models.
    bound: Vec<Amounts>,
    /// By place and set: how much of it there is for them.
    there: Vec<Amounts>,
}

/// The models that waiting jobs are bound to.
struct Asked<'a> {
    models: Vec<&'a String>,
    /// The sets of them that jobs are bound to.
    sets: BTreeSet<Bits>,
    /// Sets that were asked for, with their bits.
    known: Vec<(&'a Models, Option<Bits>)>,
}

/// What jobs of a queue that can run on some models only hold or wait for, in thousandths of devices.
#[derive(Clone, Copy)]
struct Bound {
    place: usize,
    models: Bits,
    milli: i64,
}

impl Shares {
    /// Notes which models are scarce in the whole pool, and for whom.
    pub(super) fn note_scarce(&mut self, state: &State, snapshot: &Snapshot) {
        self.scarce = None;
        if state.policy.share == Share::Dominant {
            return;
        }
        // In a pool that is new to the planner every job might start.
        let waits = snapshot.waiting.uses(state.is_changed());
        let waits = waits.filter(|(place, _)| !self.queues[*place].is_spent);
        let waits =
            waits.flat_map(|(place, uses)| uses.bound().map(move |(models, milli)| (place, models, milli)));
        let waits: Vec<(usize, &Models, i64)> = waits.collect();
        let mut asked = Asked::of(waits.iter().map(|(_, models, _)| *models));
        let whole = snapshot.capacity.total(&Resource::Any);
        let total = |model: &Resource| snapshot.capacity.total(model) - self.unwanted_of(model);
        let mut sets = asked.candidates();
        sets.retain(|set| asked.sum(*set, total) < whole);
        if sets.is_empty() {
            return;
        }
        let of = |(place, models, milli)| Some(Bound { place, models: asked.bits_of(models)?, milli });
        let all: Vec<Bound> = self.held_bound().chain(waits).filter_map(of).collect();
        sets.retain(|set| {
            let of_set = all.iter().filter(|bound| bound.models & !set == 0);
            asked.sum(*set, total) < of_set.map(|bound| bound.milli).fold(0, i64::saturating_add)
        });
        if sets.is_empty() {
            return;
        }
        let mut there = vec![Amounts::from_elem(0, sets.len()); self.queues.len()];
        there[POOL] = sets.iter().map(|set| asked.sum(*set, total)).collect();
        for (path, place) in self.paths().filter(|(_, place)| self.queues[*place].has_nodes) {
            let own = |model: &Resource| snapshot.capacity.kept_total(path, model).unwrap_or(0);
            there[place] = sets.iter().map(|set| asked.sum(*set, own)).collect();
        }
        self.scarce = Some(Scarce { bound: self.bound_to(&sets, &all), sets, there });
    }

    /// What tasks hold, or are promised, that can run on some models only: by the place of their queue.
    pub(super) fn held_bound(&self) -> impl Iterator<Item = (usize, &Models, i64)> {
        let held = self.bound.iter().enumerate();
        held.flat_map(|(place, held)| held.iter().map(move |(models, milli)| (place, models, *milli)))
    }

    /// What queues keep of a model for jobs of theirs that do not want it.
    fn unwanted_of(&self, model: &Resource) -> i64 {
        let Some(index) = self.resources.iter().position(|other| other == model) else { return 0 };
        let tops = self.queues[POOL].children.iter();
        tops.map(|child| self.queues[*child].unwanted[index]).fold(0, i64::saturating_add)
    }

    /// By place and set: what a queue and those below it hold or wait for by jobs that can run on no other models, as far as the queue
    /// above it may want that.
    fn bound_to(&self, sets: &[Bits], all: &[Bound]) -> Vec<Amounts> {
        let mut bound = vec![Amounts::from_elem(0, sets.len()); self.queues.len()];
        for Bound { place, models, milli } in all {
            let sums = bound[*place].iter_mut().zip(sets).filter(|(_, set)| models & !**set == 0);
            sums.for_each(|(sum, _)| *sum = sum.saturating_add(*milli));
        }
        for place in (1..self.queues.len()).rev() {
            let queue = &self.queues[place];
            let most = queue.wants_above(ANY);
            let more: Amounts = bound[place].iter().map(|milli| (*milli).min(most)).collect();
            let above = bound[queue.parent].iter_mut();
            above.zip(more).for_each(|(above, more)| *above = above.saturating_add(more));
        }
        bound
    }

    /// Lets no child want more than it gets if all are given no more of the scarce models than there is for the queue above them.
    pub(super) fn narrow(&self, (queue, whole): (usize, i64), claims: &mut [Claim], quantum: i64) {
        let Some(scarce) = &self.scarce else { return };
        let children = &self.queues[queue].children;
        // What is divided of one set stays within it whatever comes later, so each needs no more than one turn.
        for _ in 0..scarce.sets.len() {
            let parts = fill(whole, claims, quantum);
            let free = |set| -> Amounts { children.iter().map(|child| self.free_of(set, *child)).collect() };
            let exceeds = |set: &usize| {
                let needs = parts.iter().zip(free(*set)).map(|(part, free)| (part - free).max(0));
                needs.fold(0, i64::saturating_add) > self.shared_of(*set, queue)
            };
            let Some(set) = (0..scarce.sets.len()).find(exceeds) else { return };
            divide_set(self.shared_of(set, queue), claims, &free(set), quantum);
        }
    }

    /// What a queue could use by jobs that can run on models outside a set.
    fn free_of(&self, set: usize, place: usize) -> i64 {
        let queue = &self.queues[place];
        let bound = self.scarce.as_ref().map_or(0, |scarce| scarce.bound[place][set]);
        match self.is_apart(place, ANY) {
            true => 0,
            false => queue.asked_milli.saturating_sub(bound).clamp(0, queue.wanted[ANY].max(0)),
        }
    }

    /// What there is of a set for a queue and its children, but for those with nodes of their own.
    fn shared_of(&self, set: usize, queue: usize) -> i64 {
        let Some(scarce) = &self.scarce else { return i64::MAX };
        let apart = self.queues[queue].children.iter().filter(|child| self.is_apart(**child, ANY));
        let apart = apart.map(|child| scarce.there[*child][set]).fold(0, i64::saturating_add);
        scarce.there[queue][set].saturating_sub(apart).max(0)
    }

    /// Notes how much of each set there is for each child: what is due to it of that alone, and a part of what nobody needs.
    pub(super) fn pass_down(&mut self, queue: usize) {
        let sets = self.scarce.as_ref().map_or(0, |scarce| scarce.sets.len());
        let shared = self.queues[queue].children.iter().copied().filter(|child| !self.is_apart(*child, ANY));
        let shared: Vec<usize> = shared.collect();
        for set in 0..sets {
            let need = |child: &usize| (self.queues[*child].due[ANY] - self.free_of(set, *child)).max(0);
            let needs: Vec<i64> = shared.iter().map(need).collect();
            let left = needs.iter().fold(self.shared_of(set, queue), |left, need| left.saturating_sub(*need));
            let Some(scarce) = &mut self.scarce else { return };
            let claim = |(child, need): (&usize, &i64)| {
                let queue = &self.queues[*child];
                let wanted = scarce.bound[*child][set].min(queue.due[ANY]).saturating_sub(*need).max(0);
                Claim { guaranteed: 0, wanted, weight: queue.weight.max(1), priority: 0 }
            };
            let claims: Vec<Claim> = shared.iter().zip(&needs).map(claim).collect();
            let more = fill(left.max(0), &claims, quantum(&Resource::Any));
            for ((child, need), more) in shared.iter().zip(needs).zip(more) {
                scarce.there[*child][set] = need + more;
            }
        }
    }
}

impl<'a> Asked<'a> {
    fn of(bound: impl Iterator<Item = &'a Models>) -> Self {
        let mut all: Vec<&'a Models> = Vec::new();
        for models in bound {
            if !all.contains(&models) {
                all.push(models);
            }
        }
        let mut models: Vec<&String> = Vec::new();
        for model in all.iter().flat_map(|models| models.iter()) {
            if !models.contains(&model) && models.len() < Bits::BITS as usize {
                models.push(model);
            }
        }
        models.sort_unstable();
        let mut asked = Self { models, sets: BTreeSet::new(), known: Vec::new() };
        asked.sets = all.into_iter().filter_map(|models| asked.bits_of(models)).collect();
        asked
    }

    /// The bits of models, if jobs are bound to all of them.
    fn bits_of(&mut self, models: &'a Models) -> Option<Bits> {
        if let Some((_, bits)) = self.known.iter().find(|(known, _)| *known == models) {
            return *bits;
        }
        let bit = |model| Some(1 << self.models.iter().position(|known| *known == model)?);
        let bits = models.iter().map(bit).try_fold(0, |bits, bit: Option<Bits>| Some(bits | bit?));
        self.known.push((models, bits));
        bits
    }

    /// An amount of all models of a set.
    fn sum(&self, set: Bits, of: impl Fn(&Resource) -> i64) -> i64 {
        let models = self.models.iter().enumerate().filter(|(place, _)| set & (1 << place) != 0);
        models.map(|(_, model)| of(&Resource::Model((*model).clone()))).fold(0, i64::saturating_add)
    }

    /// The sets that are looked at, the small ones first.
    fn candidates(&self) -> Vec<Bits> {
        let bound = || self.sets.iter().copied();
        let mut sets: BTreeSet<Bits> = match self.models.len() <= MOST_COMBINED {
            true => (1..1 << self.models.len()).collect(),
            false => bound().take(MOST_SETS - 1).collect(),
        };
        sets.extend(bound().reduce(|one, other| one | other));
        let mut sets: Vec<Bits> = sets.into_iter().collect();
        sets.sort_by_key(|set| set.count_ones());
        sets
    }
}

/// Divides what there is of a set, and what each could use beside it, among those who get more than that: the others get no more than
/// what they could use beside it either.
fn divide_set(there: i64, claims: &mut [Claim], free: &[i64], quantum: i64) {
    let mut needy: Vec<usize> =
        (0..claims.len()).filter(|index| claims[*index].wanted > free[*index]).collect();
    let parts = loop {
        let whole = needy.iter().fold(there, |whole, index| whole.saturating_add(free[*index]));
        let asked: Vec<Claim> = needy.iter().map(|index| claims[*index]).collect();
        let parts = fill(whole, &guaranteed_within(whole, &asked, quantum), quantum);
        let before = needy.len();
        let needs = |(index, part): (&usize, &i64)| (*part >= free[*index]).then_some(*index);
        needy = needy.iter().zip(&parts).filter_map(needs).collect();
        if needy.len() == before {
            break parts;
        }
    };
    let mut most = free.to_vec();
    needy.into_iter().zip(parts).for_each(|(index, part)| most[index] = part);
    for (claim, part) in claims.iter_mut().zip(most) {
        claim.wanted = claim.wanted.min(part);
        claim.guaranteed = claim.guaranteed.min(claim.wanted);
    }
}

/// The claims with guarantees that can all be had: where they cannot, they are divided by weight.
fn guaranteed_within(whole: i64, claims: &[Claim], quantum: i64) -> Vec<Claim> {
    if claims.iter().map(|claim| claim.guaranteed).fold(0, i64::saturating_add) <= whole {
        return claims.to_vec();
    }
    let of = |claim: &Claim| Claim {
        guaranteed: 0,
        wanted: claim.guaranteed,
        weight: claim.weight.max(1),
        priority: 0,
    };
    let parts = fill(whole, &claims.iter().map(of).collect::<Vec<_>>(), quantum);
    claims.iter().zip(parts).map(|(claim, guaranteed)| Claim { guaranteed, ..*claim }).collect()
}
