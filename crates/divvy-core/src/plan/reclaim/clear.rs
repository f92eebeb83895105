//! In which order room is made: where a task needs whole devices, node by node, the cheapest to clear first; then, and for all
//! else, one by one. Found one after the other, since most claims need few of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::{Candidates, Claim, Cost};
use crate::model::ask::{DeviceAsk, DrawAsk};
use crate::model::gang::Roles;
use crate::plan::filter;
use crate::plan::settle::held_by;
use crate::plan::spread::Rooms;
use crate::plan::topology;
use crate::plan::trial::{Scope, Trial};
use crate::snapshot::{DeviceView, NodeView};

/// Whom to stop next, and whether the claim may fit after that.
pub(in crate::plan) struct Step {
    pub(in crate::plan) stop: Vec<usize>,
    pub(in crate::plan) slots: bool,
}

/// The order in which candidates are tried.
pub(in crate::plan) struct Steps<'a> {
    clearings: Option<Clearings<'a>>,
    /// The clearings in another order than by their cost alone.
    sorted: std::vec::IntoIter<(Clearing, usize)>,
    /// How many more tasks may lie where, if they are to be spread.
    rooms: Rooms,
    tasks: u32,
    /// For how many tasks there is room on the nodes so far.
    slots: u32,
    /// Who is next of those that are stopped one by one.
    next: usize,
}

impl<'a> Steps<'a> {
    pub(in crate::plan) fn new(trial: &Trial, claim: &Claim<'a>, candidates: &mut Candidates) -> Self {
        let gang = &claim.spec.gang;
        let alternative = gang.roles().first().and_then(|role| role.ask.alternatives.first());
        let ask = alternative.and_then(|alternative| alternative.devices.as_ref());
        let ask = ask.filter(|ask| ask.draw == DrawAsk::Whole);
        let (domains, tasks) = (topology::required_domains(trial, gang), gang.tasks());
        let mut clearings = ask.map(|ask| Clearings::new(trial, (ask, tasks), gang.required_roles()));
        let mut sorted = Vec::new();
        if !domains.is_empty()
            && let Some(mut clearings) = clearings.take()
        {
            let all = std::iter::from_fn(|| clearings.next(trial, candidates)).collect();
            sorted = by_domain(all, &domains, tasks);
        }
        let (sorted, rooms) = (sorted.into_iter(), Rooms::of(gang));
        Self { clearings, sorted, rooms, tasks, slots: 0, next: 0 }
    }

    pub(in crate::plan) fn next(&mut self, trial: &Trial, candidates: &mut Candidates) -> Option<Step> {
        loop {
            let cheapest = self.clearings.as_mut().and_then(|clearings| clearings.next(trial, candidates));
            let Some((clearing, place)) = cheapest.or_else(|| self.sorted.next()) else { break };
            // Where no more of its tasks may lie nobody is stopped for it.
            let slots = self.rooms.take(&trial.capacity().nodes[place], clearing.slots);
            if slots > 0 {
                self.slots += slots;
                return Some(Step { stop: clearing.stop, slots: self.slots >= self.tasks });
            }
        }
        let index = self.next;
        if !candidates.reach(index) {
            return None;
        }
        self.next += 1;
        // One that fits after few is found after few; how often is looked grows with the logarithm of their number.
        let looks = index < 8 || (index + 1).is_power_of_two() || !candidates.reach(index + 1);
        Some(Step { stop: vec![index], slots: looks })
    }
}

/// What it takes to make room on a node: for a task, or for one more.
struct Clearing {
    cost: Cost,
    stop: Vec<usize>,
    slots: u32,
}

/// The clearings of all nodes, the cheapest first: by cost, then by place.
struct Clearings<'a> {
    ask: &'a DeviceAsk,
    /// How many tasks want room.
    tasks: u32,
    roles: Roles<'a>,
    /// By the place of the node: as far as it has come with the candidates so far.
    begun: BTreeMap<usize, Begun>,
    found: Vec<Option<Clearing>>,
    /// The places of those in `found` that nobody has had yet.
    ready: BinaryHeap<Reverse<(Cost, usize, usize)>>,
}

/// A node that is being cleared.
struct Begun {
    /// Devices that are free with all that was stopped so far, and for how many tasks they do.
    room: u32,
    slots: u32,
    /// What the candidates since cost, with those before, if there are any.
    cost: Option<Cost>,
    stop: Vec<usize>,
}

impl<'a> Clearings<'a> {
    fn new(trial: &Trial, (ask, tasks): (&'a DeviceAsk, u32), roles: Roles<'a>) -> Self {
        let (begun, found, ready) = (BTreeMap::new(), Vec::new(), BinaryHeap::new());
        let mut clearings = Self { ask, tasks, roles, begun, found, ready };
        let shelves = trial.capacity().shelves().of(Some(ask));
        for free in ask.count.max(1)..=shelves.most_free().unwrap_or(0) {
            for place in shelves.with_free(free) {
                let slots =
                    clearings.begin(&trial.capacity().nodes[place], place).map_or(0, |begun| begun.slots);
                if slots > 0 {
                    clearings.add(place, Clearing { cost: Cost::default(), stop: Vec::new(), slots });
                }
            }
        }
        clearings
    }

    fn add(&mut self, place: usize, clearing: Clearing) {
        self.ready.push(Reverse((clearing.cost, place, self.found.len())));
        self.found.push(Some(clearing));
    }

    /// What the candidates to come can clear costs at least as much as each of them alone.
    fn next(&mut self, trial: &Trial, candidates: &mut Candidates) -> Option<(Clearing, usize)> {
        loop {
            let best = self.ready.peek().map(|Reverse((cost, ..))| *cost);
            match (best, candidates.next_cost()) {
                (None, None) => return None,
                (Some(best), next) if next.is_none_or(|next| best < next) => {
                    let Reverse((_, place, index)) = self.ready.pop()?;
                    return Some((self.found[index].take()?, place));
                }
                _ => self.stop_next(trial, candidates),
            }
        }
    }

    /// Counts the next candidate as stopped on the nodes that it is on, as far as more room is wanted there.
    fn stop_next(&mut self, trial: &Trial, candidates: &mut Candidates) {
        let Some(index) = candidates.take() else { return };
        let (capacity, candidate) = (trial.capacity(), candidates.get(index));
        let mut here: BTreeMap<usize, u32> = BTreeMap::new();
        for placement in held_by(trial.state, &candidate.live) {
            if let Some(place) = capacity.node_place(placement.node) {
                *here.entry(place).or_default() += placement.devices.len() as u32;
            }
        }
        for (place, devices) in here {
            let (each, tasks) = (self.ask.count.max(1), self.tasks);
            let Some(begun) = self.begin(&capacity.nodes[place], place) else { continue };
            if begun.slots >= tasks {
                continue;
            }
            let cost = begun.cost.map_or(candidate.cost, |cost| cost.with(candidate.cost));
            begun.cost = Some(cost);
            begun.stop.push(index);
            begun.room += devices;
            let slots = begun.room / each - begun.slots;
            if slots > 0 {
                begun.slots += slots;
                let stop = std::mem::take(&mut begun.stop);
                self.add(place, Clearing { cost, stop, slots });
            }
        }
    }

    /// A node as far as it has come, if it takes such tasks and its devices are right.
    fn begin(&mut self, node: &NodeView, place: usize) -> Option<&mut Begun> {
        if !self.begun.contains_key(&place) {
            let takes = node.takes_tasks && self.roles.iter().any(|role| role.ask.nodes.takes(&node.face));
            let room = room(node, self.ask).filter(|_| takes)?;
            let slots = room / self.ask.count.max(1);
            self.begun.insert(place, Begun { room, slots, cost: None, stop: Vec::new() });
        }
        self.begun.get_mut(&place)
    }
}

/// How many devices of a node a task could have now, if it has any that are right.
fn room(node: &NodeView, ask: &DeviceAsk) -> Option<u32> {
    let is_right = |device: &DeviceView| {
        device.unusable.is_none()
            && ask.class.takes_model(&device.spec)
            && ask.class.takes_memory(&device.spec)
    };
    match node.uniform {
        true => node.devices.first().is_some_and(is_right).then_some(node.free),
        false => Some(node.devices.iter().filter(|device| filter::fits(device, ask)).count() as u32),
    }
}

/// Where all tasks must lie in one domain, the one that is cheapest to make room in comes first.
fn by_domain(mut found: Vec<(Clearing, usize)>, domains: &[Scope], tasks: u32) -> Vec<(Clearing, usize)> {
    if domains.is_empty() {
        return found;
    }
    found.sort_by_key(|(clearing, _)| !clearing.stop.is_empty());
    let cost = |scope: &&Scope| {
        let (mut slots, mut cost) = (0, None);
        for (clearing, _) in found.iter().filter(|(_, place)| scope.binary_search(place).is_ok()) {
            if slots < tasks {
                slots += clearing.slots;
                let more = (!clearing.stop.is_empty()).then_some(clearing.cost);
                cost = cost.map_or(more, |cost: Cost| Some(more.map_or(cost, |more| cost.with(more))));
            }
        }
        // A domain without enough room comes last.
        (slots < tasks, cost)
    };
    let Some(best) = domains.iter().min_by_key(cost) else { return found };
    found.sort_by_key(|(_, place)| best.binary_search(place).is_err());
    found
}
