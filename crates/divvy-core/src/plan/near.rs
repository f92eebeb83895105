//! Phase 3, place, for tasks that want others near them or apart: which nodes the tasks that lie somewhere
//! already leave them. Nothing is looked at in a pool in which no job ever selected others by labels.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::trial::{Scope, Trial};
use crate::id::{AllocationId, NodeId};
use crate::model::affinity::{Domain, Others};
use crate::model::allocation::Placement;
use crate::model::gang::Role;
use crate::model::job::JobSpec;
use crate::reason::Reason;
use crate::snapshot::NodeView;
use crate::snapshot::neighbours::{Count, Kind, Neighbours, Presence, kind_of};
use crate::state::State;

/// The tasks that a gang has, as others see them: labels and nodes.
pub(super) type Rest = Vec<(BTreeMap<String, String>, NodeId)>;

/// The tasks that a job has, if it wants tasks near it.
pub(super) fn rest(spec: &JobSpec, present: &BTreeMap<u32, Placement>) -> Rest {
    if spec.gang.roles().iter().all(|role| role.ask.affinity().near.is_empty()) {
        return Rest::new();
    }
    let seen = |(rank, placement): (&u32, &Placement)| {
        let (role, _) = spec.gang.role_of(*rank)?;
        Some((spec.labels_of(role.ask.affinity()).into_owned(), placement.node))
    };
    present.iter().filter_map(seen).collect()
}

/// Which tasks lie where as a trial sees it: by the snapshot, without those that it counts as gone, with those that it has placed.
pub(super) struct Around<'a> {
    neighbours: &'a mut Neighbours,
    /// What this cycle has placed.
    placed: BTreeMap<AllocationId, (Arc<Kind>, NodeId)>,
    /// Those of them that want others near them.
    seekers: BTreeMap<AllocationId, (Vec<Others>, NodeId)>,
    /// Running tasks that are told to stop in this cycle for another cause: they are on their way out.
    ending: BTreeSet<AllocationId>,
    /// The tasks that a job has whose gang grows: labels and nodes.
    rest: Rest,
    /// Whether the pool is looked at as if it were empty: tasks that are sought may come later.
    is_empty_pool: bool,
}

impl<'a> Around<'a> {
    pub(super) fn new(neighbours: &'a mut Neighbours) -> Self {
        let (placed, seekers, ending) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { neighbours, placed, seekers, ending, rest: Rest::new(), is_empty_pool: false }
    }

    /// Whether any job selects others by labels.
    pub(super) fn are_told(&self) -> bool {
        self.neighbours.are_told()
    }

    /// Notes that what is placed next belongs to a gang of which these tasks are there, or will be by then; returns what was set before.
    pub(super) fn join(&mut self, rest: Rest) -> Rest {
        std::mem::replace(&mut self.rest, rest)
    }

    /// Looks at the pool as if others came later.
    pub(super) fn expect_others(&mut self) {
        self.is_empty_pool = true;
    }

    /// Notes that a task has got a place.
    pub(super) fn took(&mut self, spec: &JobSpec, placement: &Placement) {
        let Some(kind) = self.neighbours.kind(spec, placement.rank) else { return };
        self.neighbours.add(Some(Arc::clone(&kind)), placement.node, Presence::Passing);
        self.placed.insert(placement.allocation, (kind, placement.node));
        let near = spec.gang.role_of(placement.rank).map(|(role, _)| &role.ask.affinity().near);
        if let Some(near) = near.filter(|near| !near.is_empty()) {
            self.seekers.insert(placement.allocation, (near.clone(), placement.node));
        }
    }

    /// Notes that it has none after all.
    pub(super) fn untook(&mut self, placement: &Placement) {
        if let Some((kind, node)) = self.placed.remove(&placement.allocation) {
            self.neighbours.remove(Some(&kind), node, Presence::Passing);
            self.seekers.remove(&placement.allocation);
        }
    }

    /// Whether this cycle may have placed a task for the sake of one of these running tasks, to be near it: then that stays.
    pub(super) fn is_relied_on<'p>(
        &self,
        state: &State,
        mut held: impl Iterator<Item = &'p Placement>,
    ) -> bool {
        if self.seekers.is_empty() {
            return false;
        }
        let seeks = |(near, at): &(Vec<Others>, NodeId), kind: &Kind, node: NodeId| {
            near.iter().filter(|others| others.are(&kind.labels)).any(|others| {
                let domain = domain_in(state, others, *at);
                domain.is_some() && domain == domain_in(state, others, node)
            })
        };
        held.any(|placement| {
            let running = self.running(state, placement);
            running.is_some_and(|(kind, _)| self.seekers.values().any(|it| seeks(it, &kind, placement.node)))
        })
    }

    /// Notes that a running task is told to stop, or (`back`) that it is not.
    pub(super) fn ends(&mut self, state: &State, placement: &Placement, back: bool) {
        let Some((kind, was)) = self.running(state, placement) else { return };
        let is_there = was == Presence::There;
        let changes = if back {
            self.ending.remove(&placement.allocation)
        } else {
            is_there && self.ending.insert(placement.allocation)
        };
        if changes {
            let (from, to) = if back {
                (Presence::Passing, Presence::There)
            } else {
                (Presence::There, Presence::Passing)
            };
            self.neighbours.remove(Some(&kind), placement.node, from);
            self.neighbours.add(Some(kind), placement.node, to);
        }
    }

    /// Notes that a running task counts as gone, or (`back`) no longer does.
    pub(super) fn release(&mut self, state: &State, placement: &Placement, back: bool) {
        let Some((kind, was)) = self.running(state, placement) else { return };
        let (from, to) = if back { (Presence::Released, was) } else { (was, Presence::Released) };
        self.neighbours.remove(Some(&kind), placement.node, from);
        self.neighbours.add(Some(kind), placement.node, to);
    }

    /// Notes that a task is over by the time that is looked at, or (`back`) that it is there again.
    pub(super) fn end(&mut self, state: &State, placement: &Placement, back: bool) {
        let placed = self.placed.get(&placement.allocation);
        let placed = placed.map(|(kind, _)| (Arc::clone(kind), Presence::Passing));
        let Some((kind, was)) = placed.or_else(|| self.running(state, placement)) else { return };
        match back {
            false => self.neighbours.remove(Some(&kind), placement.node, was),
            true => self.neighbours.add(Some(kind), placement.node, was),
        }
    }

    fn running(&self, state: &State, placement: &Placement) -> Option<(Arc<Kind>, Presence)> {
        if !self.neighbours.are_told() {
            return None;
        }
        let held = state.allocations.get(&placement.allocation)?;
        let spec = &state.jobs.get(&held.job.number)?.spec;
        let presence = match self.ending.contains(&placement.allocation) {
            true => Presence::Passing,
            false => held.presence(),
        };
        Some((self.neighbours.kind(spec, placement.rank)?, presence))
    }

    /// Whether a running task cannot stay where it is beside what this cycle has placed.
    pub(super) fn is_in_the_way(&self, state: &State, placement: &Placement) -> bool {
        let Some((kind, _)) = self.running(state, placement).filter(|_| !self.placed.is_empty()) else {
            return false;
        };
        let mut placed = self.placed.values();
        placed.any(|(other, node)| clash(state, (&kind, placement.node), (other, *node)))
    }
}

/// The domain of a node, by what the state says of it.
fn domain_in<'s>(state: &'s State, others: &Others, node: NodeId) -> Option<Domain<'s>> {
    let spec = &state.nodes.get(&node)?.spec;
    others.domain(node, &spec.domains, &spec.face)
}

fn domain_of<'n>(node: &'n NodeView, others: &Others) -> Option<Domain<'n>> {
    others.domain(node.id, &node.domains, &node.face)
}

/// Whether one of two tasks does not want the other where it lies.
fn clash(state: &State, (one, here): (&Kind, NodeId), (other, there): (&Kind, NodeId)) -> bool {
    let repels = |one: &Kind, other: &Kind| {
        one.apart.iter().filter(|others| others.are(&other.labels)).any(|others| {
            let domain = domain_in(state, others, here);
            domain.is_some() && domain == domain_in(state, others, there)
        })
    };
    repels(one, other) || repels(other, one)
}

/// Tasks that go, as far as affinity is concerned.
#[derive(Default)]
pub(super) struct Going(Vec<(Arc<Kind>, NodeId, AllocationId)>);

impl Going {
    /// Notes a task that goes.
    pub(super) fn note(&mut self, state: &State, placement: &Placement) {
        let held = state.allocations.get(&placement.allocation).filter(|_| !state.heeded.is_empty());
        let spec = held.and_then(|held| state.jobs.get(&held.job.number)).map(|job| &job.spec);
        let kind = spec.and_then(|spec| kind_of(&state.heeded, spec, placement.rank));
        self.0.extend(kind.map(|kind| (kind, placement.node, placement.allocation)));
    }

    /// Those that must be gone before tasks of a job may lie at these placements.
    pub(super) fn in_the_way(
        &self,
        state: &State,
        spec: &JobSpec,
        placements: &[Placement],
    ) -> Vec<AllocationId> {
        let mut found = Vec::new();
        for placement in placements.iter().filter(|_| !self.0.is_empty()) {
            let Some(kind) = kind_of(&state.heeded, spec, placement.rank) else { continue };
            let clashes = |going: &&(Arc<Kind>, NodeId, AllocationId)| {
                clash(state, (&kind, placement.node), (&going.0, going.1))
            };
            found.extend(self.0.iter().filter(clashes).map(|going| going.2));
        }
        found
    }
}

/// What one wish, of the task itself or of others, leaves of the nodes.
enum Wish<'s, 'n> {
    /// Only these domains, for the sake of others near it.
    Near(&'s Others, BTreeSet<Domain<'n>>),
    /// It is the first of its kind: any domain will do.
    First(&'s Others),
    /// Not these domains: tasks are there that it does not want near it.
    Apart(&'s Others, BTreeSet<Domain<'n>>),
    /// Not these domains: a task there does not want it.
    Repelled(&'s Others, BTreeSet<Domain<'n>>),
}

impl Wish<'_, '_> {
    fn takes(&self, node: &NodeView) -> bool {
        match self {
            Wish::Near(others, domains) => domain_of(node, others).is_some_and(|it| domains.contains(&it)),
            Wish::First(others) => domain_of(node, others).is_some(),
            Wish::Apart(others, domains) | Wish::Repelled(others, domains) => {
                !domain_of(node, others).is_some_and(|it| domains.contains(&it))
            }
        }
    }

    fn reason(&self) -> Reason {
        match self {
            Wish::Near(others, _) | Wish::First(others) => {
                Reason::NotNear(others.to_string(), others.within.clone())
            }
            Wish::Apart(others, _) => Reason::NotApart(others.to_string(), others.within.clone()),
            Wish::Repelled(others, _) => Reason::Repelled(others.to_string(), others.within.clone()),
        }
    }
}

/// The nodes that are left to the task of a rank, of those that it may lie on; `None` where that is all of
/// them. The error says whose wish leaves none.
pub(super) fn left(trial: &Trial, spec: &JobSpec, rank: u32) -> Result<Option<Scope>, Reason> {
    if !trial.around.neighbours.are_told() {
        return Ok(None);
    }
    let Some((role, _)) = spec.gang.role_of(rank) else { return Ok(None) };
    let affinity = role.ask.affinity();
    let labels = spec.labels_of(affinity);
    let nodes = &trial.capacity().nodes;
    let repellers = repellers(trial, &labels);
    let wishes = affinity.near.iter().map(|others| near(trial, spec, &labels, others));
    let apart = affinity.apart.iter().map(|others| Wish::Apart(others, repelling(trial, others)));
    let wishes: Vec<Wish> = wishes.chain(apart).chain(repellers).collect();
    if wishes.is_empty() {
        return Ok(None);
    }
    let mut left: Vec<usize> = match trial.scope() {
        Some(scope) => scope.to_vec(),
        None => (0..nodes.len()).collect(),
    };
    for wish in wishes {
        let before = left.len();
        left.retain(|place| wish.takes(&nodes[*place]));
        if left.is_empty() && before > 0 {
            return Err(wish.reason());
        }
    }
    Ok(Some(left.into()))
}

/// Why the tasks of a role have no place, if they would have one but for a wish: the first wish that leaves out any node.
pub(super) fn why(trial: &Trial, spec: &JobSpec, rank: u32) -> Option<Reason> {
    let (role, _) = spec.gang.role_of(rank).filter(|_| trial.around.neighbours.are_told())?;
    let affinity = role.ask.affinity();
    let labels = spec.labels_of(affinity);
    let nodes = &trial.capacity().nodes;
    let wishes = affinity.near.iter().map(|others| near(trial, spec, &labels, others));
    let apart = affinity.apart.iter().map(|others| Wish::Apart(others, repelling(trial, others)));
    let mut wishes = wishes.chain(apart).chain(repellers(trial, &labels));
    let leaves_out = |wish: &Wish| nodes.iter().any(|node| !wish.takes(node));
    Some(wishes.find(leaves_out)?.reason())
}

/// What a wish to be near others leaves. A task that is one of those that it seeks is the first if there is none of them.
fn near<'s, 'n>(
    trial: &'n Trial,
    spec: &JobSpec,
    labels: &BTreeMap<String, String>,
    others: &'s Others,
) -> Wish<'s, 'n> {
    let mut is_anywhere = false;
    let mut domains = domains_of(trial, others, |kind, count| {
        let is_meant = others.are(&kind.labels);
        is_anywhere |= is_meant;
        is_meant && count.there > 0
    });
    // Its own gang starts with it, so the gang's tasks are there when it is.
    let own = trial.gang_tasks().filter_map(|placement| {
        let role = spec.gang.role_of(placement.rank)?.0;
        others.are(&spec.labels_of(role.ask.affinity())).then_some(placement.node)
    });
    let rest = trial.around.rest.iter().filter(|(labels, _)| others.are(labels)).map(|(_, node)| *node);
    domains.extend(own.chain(rest).filter_map(|node| {
        let place = trial.capacity().node_place(node)?;
        domain_of(&trial.capacity().nodes[place], others)
    }));
    let may_be_first = others.are(labels) || trial.around.is_empty_pool;
    if !is_anywhere && may_be_first { Wish::First(others) } else { Wish::Near(others, domains) }
}

/// The domains in which tasks lie, or will lie, from which a task wants to lie apart.
fn repelling<'n>(trial: &'n Trial, others: &Others) -> BTreeSet<Domain<'n>> {
    domains_of(trial, others, |kind, count| count.there + count.passing > 0 && others.are(&kind.labels))
}

/// The wishes of tasks that do not want a task with these labels around them.
fn repellers<'n>(trial: &'n Trial, labels: &BTreeMap<String, String>) -> Vec<Wish<'n, 'n>> {
    let mut wishes = Vec::new();
    let kinds = trial.around.neighbours.kinds();
    let terms = kinds.flat_map(|(kind, _)| &kind.apart).filter(|others| others.are(labels));
    for others in terms.collect::<BTreeSet<_>>() {
        let domains = domains_of(trial, others, |kind, count| {
            count.there + count.passing > 0 && kind.apart.contains(others)
        });
        wishes.push(Wish::Repelled(others, domains));
    }
    wishes
}

/// The domains of the nodes on which there are tasks that count.
fn domains_of<'n>(
    trial: &'n Trial,
    others: &Others,
    mut counts: impl FnMut(&Kind, &Count) -> bool,
) -> BTreeSet<Domain<'n>> {
    let capacity = trial.capacity();
    let mut domains = BTreeSet::new();
    for (kind, nodes) in trial.around.neighbours.kinds() {
        for (node, count) in nodes {
            let place = capacity.node_place(*node).filter(|_| counts(kind, count));
            domains.extend(place.and_then(|place| domain_of(&capacity.nodes[place], others)));
        }
    }
    domains
}

/// How many domains are tried for the first of the tasks that want their like near them.
const MOST_FIRST_TRIES: usize = 64;

/// The domains one of which takes all tasks of a role, where they want their like near them and are the first. Those with the fewest free
/// devices come first: a larger gang would have little use for them. `None` where it does not matter where the first lies.
pub(super) fn homes(trial: &Trial, spec: &JobSpec, (role, rank): (&Role, u32)) -> Option<Vec<Scope>> {
    if role.minimum <= 1 || role.ask.affinity().near.is_empty() {
        return None;
    }
    let labels = spec.labels_of(role.ask.affinity());
    let wishes = role.ask.affinity().near.iter().map(|others| near(trial, spec, &labels, others));
    let first = |wish: Wish<'_, '_>| if let Wish::First(others) = wish { Some(others.clone()) } else { None };
    let others = wishes.filter_map(first).next()?;
    let nodes = &trial.capacity().nodes;
    let left = left(trial, spec, rank).ok().flatten()?;
    let mut domains: BTreeMap<Domain, Vec<usize>> = BTreeMap::new();
    for place in left.iter().copied() {
        if let Some(domain) = domain_of(&nodes[place], &others) {
            domains.entry(domain).or_default().push(place);
        }
    }
    let mut homes: Vec<Scope> = domains.into_values().map(Scope::from).collect();
    homes.sort_by_key(|home| home.iter().map(|place| u64::from(nodes[*place].free)).sum::<u64>());
    homes.truncate(MOST_FIRST_TRIES);
    Some(homes)
}
