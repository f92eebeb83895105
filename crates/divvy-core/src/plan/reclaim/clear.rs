//! The order in which room is made: where a task needs whole devices, node by node, the cheapest to clear first;
//! then, and for all else, job by job. The steps are found one at a time, since most claims need few of them.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use smallvec::SmallVec;

use super::{Candidate, Candidates, Claim, Cost};
use crate::id::DeviceId;
use crate::model::allocation::Placement;
use crate::model::ask::{DeviceAsk, DrawAsk};
use crate::model::device::WHOLE_MILLI;
use crate::model::gang::{Group, Role, Roles};
use crate::model::island::IslandLevel;
use crate::model::job::JobSpec;
use crate::plan::filter;
use crate::plan::settle::held_by;
use crate::plan::spread::Rooms;
use crate::plan::topology;
use crate::plan::trial::{Scope, Trial};
use crate::snapshot::{DeviceView, NodeView};

/// Which candidates to stop next, and whether the claim may fit after that.
pub(in crate::plan) struct Step {
    pub(in crate::plan) stop: Vec<usize>,
    pub(in crate::plan) slots: bool,
}

/// What comes next.
pub(in crate::plan) enum Next {
    Step(Step),
    /// Which candidate is the next is known only once further queues have been looked at.
    LookFurther,
    End,
}

/// The order in which candidates are tried.
pub(in crate::plan) struct Steps<'a> {
    clearings: Option<Clearings<'a>>,
    /// The clearings where all tasks must lie in one of these domains: they are put in order once all are known.
    unsorted: Option<(Clearings<'a>, Vec<Scope>)>,
    /// The clearings in another order than by their cost alone.
    sorted: std::vec::IntoIter<(Clearing, usize)>,
    /// How many more tasks may lie where, if they are to be spread.
    rooms: Rooms,
    tasks: u32,
    /// For how many tasks there is room on the nodes so far.
    slots: u32,
    /// Whether its tasks have room only on nodes that were cleared.
    alike: bool,
    /// The next candidate of those that are stopped one by one.
    next: usize,
}

impl<'a> Steps<'a> {
    pub(in crate::plan) fn new(trial: &Trial, claim: &Claim<'a>, candidates: &mut Candidates) -> Self {
        candidates.begin_again();
        let gang = &*claim.spec.gang;
        let alternative = gang.roles().first().and_then(|role| role.ask.alternatives.first());
        let ask = alternative.and_then(|alternative| alternative.devices.as_ref());
        let ask = ask.filter(|ask| ask.draw == DrawAsk::Whole);
        let (domains, tasks) = (topology::required_domains(trial, gang), gang.tasks());
        let mut clearings =
            ask.map(|ask| Clearings::new(trial, (ask, tasks), (claim.spec, gang.required_roles())));
        // Where there is room already, it is a limit or a loan that others have to give: it does not matter where they lie.
        clearings = clearings.filter(|it| it.free_slots() < tasks || !domains.is_empty());
        // Where siblings give first, who else goes depends on who went before.
        clearings.iter_mut().for_each(|it| it.for_one = tasks == 1 && claim.siblings_first.is_none());
        let in_domains = if domains.is_empty() { None } else { clearings.take() };
        let unsorted = in_domains.map(|clearings| (clearings, domains));
        let one_way = |role: &Role| claim.part.is_none() && role.ask.alternatives.len() == 1;
        let alike = clearings.is_some() && matches!(gang, Group::Role(role) if one_way(role));
        let (sorted, rooms) = (Vec::new().into_iter(), Rooms::of(gang));
        Self { clearings, unsorted, sorted, rooms, tasks, slots: 0, alike, next: 0 }
    }

    /// Whether no nodes would have enough devices for its tasks, whichever jobs went: seen without counting any as gone.
    pub(in crate::plan) fn are_in_vain(&self, trial: &Trial, candidates: &Candidates) -> bool {
        let clearings = self.clearings.as_ref().filter(|_| self.alike);
        // Of a job that goes in parts, other parts may have gone before one is counted.
        let Some(clearings) = clearings.filter(|_| candidates.all().all(|it| it.needs.is_empty())) else {
            return false;
        };
        let (capacity, each) = (trial.capacity(), clearings.ask.count.max(1));
        let mut slots = capacity.shelves().of(Some(clearings.ask)).slots(each);
        let mut given: BTreeMap<usize, u32> = BTreeMap::new();
        for placement in candidates.all().flat_map(|candidate| held_by(trial.state, &candidate.live)) {
            if slots >= self.tasks {
                return false;
            }
            let Some(place) = capacity.node_place(placement.node) else { continue };
            let (before, devices) = (given.entry(place).or_default(), placement.devices.len() as u32);
            let free = capacity.nodes[place].free + *before;
            slots += (free + devices) / each - free / each;
            *before += devices;
        }
        slots < self.tasks
    }

    pub(in crate::plan) fn next(&mut self, trial: &Trial, candidates: &mut Candidates) -> Next {
        if self.unsorted.is_some() && candidates.has_unseen() {
            return Next::LookFurther;
        }
        if let Some((mut clearings, domains)) = self.unsorted.take() {
            let all = std::iter::from_fn(|| clearings.next(trial, candidates)).collect();
            self.sorted = by_domain(all, &domains, self.tasks).into_iter();
        }
        loop {
            let cheapest = self.clearings.as_mut().and_then(|clearings| clearings.next(trial, candidates));
            if cheapest.is_none() && self.clearings.is_some() && candidates.is_next_open() {
                return Next::LookFurther;
            }
            let Some((clearing, place)) = cheapest.or_else(|| self.sorted.next()) else { break };
            // On a node that may take no more of its tasks, no job is stopped.
            let slots = self.rooms.take(&trial.capacity().nodes[place], clearing.slots);
            if slots > 0 {
                self.slots += slots;
                return Next::Step(Step { stop: clearing.stop, slots: self.slots >= self.tasks });
            }
        }
        let index = self.next;
        if candidates.is_open(index) {
            return Next::LookFurther;
        }
        if !candidates.reach(index) {
            return Next::End;
        }
        // A claim that fits after few stops is found after few; the number of looks grows with the logarithm
        // of their number. Where no node would have enough devices, whichever jobs went, there is no look.
        let may_fit = !self.alike || self.slots >= self.tasks;
        let looks = may_fit && (index < 8 || (index + 1).is_power_of_two());
        if may_fit && !looks && candidates.is_open(index + 1) {
            return Next::LookFurther;
        }
        self.next += 1;
        let looks = looks || may_fit && !candidates.reach(index + 1);
        Next::Step(Step { stop: vec![index], slots: looks })
    }
}

/// What it takes to make room on a node for a task, or for one more.
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
    /// Whether of all sets of jobs on a node that make room for the one task the cheapest is looked for.
    for_one: bool,
    spec: &'a JobSpec,
    roles: Roles<'a>,
    /// By the place of the node, and the island where a task must lie in one: how far clearing has come with the candidates so far.
    begun: BTreeMap<Spot, Begun>,
    /// What is free of each shared device with the candidates so far, in thousandths.
    shared: BTreeMap<DeviceId, i32>,
    found: Vec<Option<Clearing>>,
    /// The entries of `found` that have not been returned yet.
    ready: BinaryHeap<Reverse<(Cost, usize, usize)>>,
}

/// The place of a node, and the number of an island there; no island where it makes no difference.
type Spot = (usize, Option<u32>);

/// A node that is being cleared, or an island of one.
struct Begun {
    /// Devices that are free with all that was stopped so far, and for how many tasks they do.
    room: u32,
    slots: u32,
    /// What all candidates counted here cost together, if there are any.
    cost: Option<Cost>,
    stop: Vec<usize>,
    /// Where one task wants room: for each number of devices up to what is lacking, the cheapest candidates that have as many.
    covers: Vec<Option<(Cost, Vec<usize>)>>,
    /// The place of the clearing among those that were found.
    found: Option<usize>,
}

impl Begun {
    fn new(room: u32, each: u32) -> Self {
        let lacking = each.saturating_sub(room) as usize;
        let covers = std::iter::once(Some((Cost::default(), Vec::new())));
        let covers = covers.chain(std::iter::repeat_n(None, lacking)).collect();
        Self { room, slots: room / each, cost: None, stop: Vec::new(), covers, found: None }
    }

    /// Takes in a candidate with so many devices here; returns whether fewer or cheaper candidates than before make room for a task.
    fn cover(&mut self, (index, devices): (usize, u32), cost: Cost) -> bool {
        let lacking = self.covers.len() - 1;
        let mut is_better = false;
        for covered in (1..=lacking).rev() {
            let beside = &self.covers[covered.saturating_sub(devices as usize)];
            let Some((others, stop)) = beside else { continue };
            let all = if stop.is_empty() { cost } else { others.with(cost) };
            if self.covers[covered].as_ref().is_none_or(|(known, _)| all < *known) {
                let stop = stop.iter().copied().chain([index]).collect();
                self.covers[covered] = Some((all, stop));
                is_better |= covered == lacking;
            }
        }
        is_better
    }
}

impl<'a> Clearings<'a> {
    fn new(
        trial: &Trial,
        (ask, tasks): (&'a DeviceAsk, u32),
        (spec, roles): (&'a JobSpec, Roles<'a>),
    ) -> Self {
        let (begun, shared) = (BTreeMap::new(), BTreeMap::new());
        let (found, ready) = (Vec::new(), BinaryHeap::new());
        let for_one = false;
        let mut clearings = Self { ask, tasks, for_one, spec, roles, begun, shared, found, ready };
        let shelves = trial.capacity().shelves().of(Some(ask));
        for free in ask.count.max(1)..=shelves.most_free().unwrap_or(0) {
            for place in shelves.with_free(free) {
                let node = &trial.capacity().nodes[place];
                for island in islands(node, ask) {
                    let slots = clearings.begin(node, (place, island)).map_or(0, |begun| begun.slots);
                    if slots > 0 {
                        clearings.add(place, Clearing { cost: Cost::default(), stop: Vec::new(), slots });
                    }
                }
            }
        }
        clearings
    }

    /// For how many tasks there is room before any job is stopped.
    fn free_slots(&self) -> u32 {
        let free = self.found.iter().flatten().filter(|clearing| clearing.stop.is_empty());
        free.map(|clearing| clearing.slots).fold(0, u32::saturating_add)
    }

    fn add(&mut self, place: usize, clearing: Clearing) {
        self.ready.push(Reverse((clearing.cost, place, self.found.len())));
        self.found.push(Some(clearing));
    }

    /// Returns the cheapest clearing, as far as it is known which one is. What later candidates can clear costs at least as much as each of
    /// these alone. Of equals it is the first that is found, if the candidates come by their costs: many may cost the same.
    fn next(&mut self, trial: &Trial, candidates: &mut Candidates) -> Option<(Clearing, usize)> {
        loop {
            while self.ready.peek().is_some_and(|Reverse((.., index))| self.found[*index].is_none()) {
                self.ready.pop();
            }
            let best = self.ready.peek().map(|Reverse((cost, ..))| *cost);
            match (best, candidates.next_cost()) {
                (None, None) => return None,
                (Some(best), next)
                    if next.is_none_or(|next| best < next || best == next && candidates.by_cost()) =>
                {
                    let Reverse((_, place, index)) = self.ready.pop()?;
                    return Some((self.found[index].take()?, place));
                }
                _ if candidates.is_next_open() => return None,
                _ => self.stop_next(trial, candidates),
            }
        }
    }

    /// Counts the next candidate as stopped on the nodes that it is on, as far as more room is wanted there.
    fn stop_next(&mut self, trial: &Trial, candidates: &mut Candidates) {
        let Some(index) = candidates.take() else { return };
        let for_one = self.for_one && !candidates.has_parts();
        let (capacity, candidate) = (trial.capacity(), candidates.get(index));
        let here = match self.ask.required_island() {
            _ if trial.state.policy.shares => self.whole_with(trial, candidate),
            None => on_nodes(trial, candidate),
            Some(level) => on_islands(trial, candidate, level),
        };
        for (spot, devices) in here {
            let (place, _) = spot;
            let (each, tasks) = (self.ask.count.max(1), self.tasks);
            let Some(begun) = self.begin(&capacity.nodes[place], spot) else { continue };
            if for_one {
                self.stop_for_one(spot, (index, candidate), (devices, trial.state.policy.shares));
                continue;
            }
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

    /// Likewise where one task wants room: of all sets of candidates there that make it, the cheapest is kept. Where devices are
    /// shared, what becomes free by one job depends on others: then all are counted together, too.
    fn stop_for_one(
        &mut self,
        spot: Spot,
        (index, candidate): (usize, &Candidate),
        (devices, shares): (u32, bool),
    ) {
        let (each, cost) = (self.ask.count.max(1), candidate.cost);
        let Some(begun) = self.begun.get_mut(&spot).filter(|begun| begun.slots == 0) else { return };
        let mut found = Vec::new();
        if is_whole(candidate) && begun.cover((index, devices), cost) {
            found.extend(begun.covers.last().cloned().flatten());
        }
        if shares && begun.room < each {
            let all = begun.cost.map_or(cost, |all| all.with(cost));
            (begun.cost, begun.room) = (Some(all), begun.room + devices);
            begun.stop.push(index);
            found.extend((begun.room >= each).then(|| (all, begun.stop.clone())));
        }
        let Some((cost, stop)) = found.into_iter().min() else { return };
        let before = begun.found.and_then(|before| self.found[before].as_ref());
        if before.is_some_and(|before| before.cost <= cost) {
            return;
        }
        if let Some(before) = begun.found.replace(self.found.len()) {
            self.found[before] = None;
        }
        self.add(spot.0, Clearing { cost, stop, slots: 1 });
    }

    /// How many devices become wholly free with a candidate, by node; devices that others still use do not count.
    fn whole_with(&mut self, trial: &Trial, candidate: &Candidate) -> SmallVec<[(Spot, u32); 1]> {
        let (capacity, level) = (trial.capacity(), self.ask.required_island());
        let mut here: BTreeMap<Spot, u32> = BTreeMap::new();
        for (device, draw) in held_by(trial.state, &candidate.live).flat_map(|placement| &placement.devices) {
            let Some((place, index)) = capacity.place_of(*device) else { continue };
            let view = &capacity.nodes[place].devices[index];
            let free = self.shared.entry(*device).or_insert(view.free_milli);
            *free += draw.milli as i32;
            let is_whole = view.unusable.is_none() && *free >= WHOLE_MILLI as i32;
            let island = level.map(|level| view.site.island(level));
            *here.entry((place, island)).or_default() += u32::from(is_whole);
        }
        here.into_iter().collect()
    }

    /// A node, or an island of it, as far as it has been cleared, if it takes such tasks and has the right devices.
    fn begin(&mut self, node: &NodeView, spot: Spot) -> Option<&mut Begun> {
        match self.begun.entry(spot) {
            Entry::Occupied(begun) => Some(begun.into_mut()),
            Entry::Vacant(new) => {
                let chosen = |role: &&Role| node.takes(self.spec, &role.ask.nodes);
                let takes = node.takes_tasks && self.roles.iter().any(chosen);
                let room = room(node, (self.ask, spot.1)).filter(|_| takes)?;
                Some(new.insert(Begun::new(room, self.ask.count.max(1))))
            }
        }
    }
}

/// Whether a candidate shares none of its devices with others.
fn is_whole(candidate: &Candidate) -> bool {
    candidate.view.spots.iter().all(|spot| spot.milli == i64::from(spot.devices) * i64::from(WHOLE_MILLI))
}

/// How many devices a candidate has on which nodes, by place.
fn on_nodes(trial: &Trial, candidate: &Candidate) -> SmallVec<[(Spot, u32); 1]> {
    let capacity = trial.capacity();
    let mut here: SmallVec<[(Spot, u32); 1]> = match candidate.live {
        // Where all of the job goes, the known totals spare a look at each task.
        Cow::Borrowed(_) => {
            let spots = candidate.view.spots.iter();
            spots.filter_map(|spot| Some(((capacity.node_place(spot.node)?, None), spot.devices))).collect()
        }
        Cow::Owned(_) => {
            let placements = held_by(trial.state, &candidate.live);
            let devices = |placement: &Placement| placement.devices.len() as u32;
            placements.filter_map(|it| Some(((capacity.node_place(it.node)?, None), devices(it)))).collect()
        }
    };
    here.sort_unstable();
    here.dedup_by(|(spot, devices), (before, sum)| {
        let same = spot == before;
        *sum += if same { *devices } else { 0 };
        same
    });
    here
}

/// Likewise by island.
fn on_islands(trial: &Trial, candidate: &Candidate, level: IslandLevel) -> SmallVec<[(Spot, u32); 1]> {
    let capacity = trial.capacity();
    let mut here: BTreeMap<Spot, u32> = BTreeMap::new();
    let devices = held_by(trial.state, &candidate.live).flat_map(|placement| &placement.devices);
    for (place, index) in devices.filter_map(|(device, _)| capacity.place_of(*device)) {
        let island = capacity.nodes[place].devices[index].site.island(level);
        *here.entry((place, Some(island))).or_default() += 1;
    }
    here.into_iter().collect()
}

/// The islands of a node one of which must hold a task; the whole node where that is not required.
fn islands(node: &NodeView, ask: &DeviceAsk) -> Vec<Option<u32>> {
    let Some(level) = ask.required_island() else { return vec![None] };
    let islands: BTreeSet<u32> = node.devices.iter().map(|device| device.site.island(level)).collect();
    islands.into_iter().map(Some).collect()
}

/// How many devices of a node, or of an island there, a task could have now; `None` if none are of the right kind.
pub(super) fn room(node: &NodeView, (ask, island): (&DeviceAsk, Option<u32>)) -> Option<u32> {
    if let Some((level, island)) = ask.required_island().zip(island) {
        let here = node.devices.iter().filter(|device| device.site.island(level) == island);
        return Some(here.filter(|device| filter::fits(device, ask)).count() as u32);
    }
    // The first device stands for the kind of all, but not for whether they can be given out.
    let is_right = |device: &DeviceView| ask.class.takes(&device.spec);
    match node.uniform {
        true => node.devices.first().is_some_and(|it| node.usable > 0 && is_right(it)).then_some(node.free),
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
