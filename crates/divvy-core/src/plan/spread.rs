//! Phase 3, place, for groups whose tasks are to be spread over the domains of a level. Where a task may lie is computed anew
//! for each task, since each placement changes it. Nothing is looked at for a gang that does not ask for that.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use super::place::place_one;
use super::topology;
use super::trial::{Scope, Trial};
use crate::id::NodeId;
use crate::model::affinity::Domain;
use crate::model::ask::Alternative;
use crate::model::gang::{Group, Role};
use crate::model::job::JobSpec;
use crate::model::topology::{NODE, Spread};
use crate::reason::Reason;
use crate::snapshot::NodeView;

/// A group whose tasks are to be spread.
#[derive(Clone)]
pub(super) struct Spreading {
    spread: Spread,
    /// The ranks of its tasks, by which the gang that is placed counts them.
    ranks: Range<u32>,
    /// The nodes of the tasks that it has already.
    present: Vec<NodeId>,
}

impl Spreading {
    /// A group that grows and of which a part is placed: all its ranks count, beside the tasks that it has.
    pub(super) fn of_grower(spread: &Spread, present: Vec<NodeId>) -> Self {
        Self { spread: spread.clone(), ranks: 0..u32::MAX, present }
    }

    /// How many of its tasks lie in each domain so far.
    fn counts<'t>(&self, trial: &'t Trial) -> BTreeMap<Domain<'t>, u32> {
        let own = trial.gang_tasks().filter(|task| self.ranks.contains(&task.rank)).map(|task| task.node);
        let mut counts = BTreeMap::new();
        for node in own.chain(self.present.iter().copied()) {
            let place = trial.capacity().node_place(node);
            let domain = place.and_then(|place| domain(&trial.capacity().nodes[place], &self.spread));
            domain.into_iter().for_each(|domain| *counts.entry(domain).or_insert(0) += 1);
        }
        counts
    }
}

/// The domain in which a task on a node counts.
fn domain<'n>(node: &'n NodeView, spread: &Spread) -> Option<Domain<'n>> {
    let alone = || (spread.over == NODE).then_some(Domain::Node(node.id));
    node.domain(&spread.over).map(Domain::Named).or_else(alone)
}

/// Places the minimum of a gang, spread as its groups ask; a wish is kept if the gang has a place that way.
/// On an error the caller rolls back what was placed so far.
pub(super) fn place_gang(trial: &mut Trial, spec: &JobSpec) -> Result<(), Reason> {
    let groups = spec.gang.spreads();
    if groups.is_empty() && trial.spread_around().is_empty() {
        return topology::place_gang(trial, spec);
    }
    let own = groups.into_iter().map(|(ranks, spread, _)| {
        let (spread, present) = (spread.clone(), Vec::new());
        Spreading { spread, ranks, present }
    });
    let all: Rc<[Spreading]> = trial.spread_around().iter().cloned().chain(own).collect();
    let is_required = |one: &&Spreading| one.spread.bound().is_some();
    let required: Rc<[Spreading]> = all.iter().filter(is_required).cloned().collect();
    let mark = trial.mark();
    if fits_so(trial, spec, &all) {
        return Ok(());
    }
    trial.roll_back_to(mark);
    if required.is_empty() {
        return topology::place_gang(trial, spec);
    }
    if required.len() < all.len() {
        if fits_so(trial, spec, &required) {
            return Ok(());
        }
        trial.roll_back_to(mark);
    }
    match trial.names_reasons() {
        true => Err(why_not(trial, spec, &required)),
        false => Err(Reason::NotPlanned),
    }
}

/// Places a gang spread in this way, if it fits; the reason why not is not named.
fn fits_so(trial: &mut Trial, spec: &JobSpec, spreadings: &Rc<[Spreading]>) -> bool {
    let told = trial.name_reasons(false);
    let before = trial.spread_by(Rc::clone(spreadings));
    let placed = topology::place_gang(trial, spec);
    trial.spread_by(before);
    trial.name_reasons(told);
    placed.is_ok()
}

/// Why a gang that has to be spread does not fit: what would keep it back anywhere comes first.
fn why_not(trial: &mut Trial, spec: &JobSpec, required: &[Spreading]) -> Reason {
    let mark = trial.mark();
    let anywhere = topology::place_gang(trial, spec);
    trial.roll_back_to(mark);
    if let Err(reason) = anywhere {
        return reason;
    }
    let mut alone = required.iter().filter(|_| required.len() > 1);
    let binds = alone.find(|one| {
        let fits = fits_so(trial, spec, &Rc::from([Spreading::clone(one)]));
        trial.roll_back_to(mark);
        !fits
    });
    binds.or(required.first()).map_or(Reason::NotPlanned, |one| not_spread(trial, spec, one))
}

/// The reason: how many tasks may lie in one domain, of how many, and how many of them the idle pool holds that way at most.
fn not_spread(trial: &mut Trial, spec: &JobSpec, spreading: &Spreading) -> Reason {
    let Spreading { spread, ranks, .. } = spreading;
    let most = spread.bound().unwrap_or(u32::MAX);
    let (mut tasks, mut roles): (u32, Vec<&Role>) = (0, Vec::new());
    spec.gang.visit(0, &mut |own, group| {
        let is_within = ranks.start <= own.start && own.end <= ranks.end;
        tasks = tasks.max(if is_within { group.tasks() } else { 0 });
        roles.extend(if let (Group::Role(role), true) = (group, is_within) { Some(role) } else { None });
    });
    let mut scopes: Vec<Option<Scope>> =
        topology::required_domains(trial, &spec.gang).into_iter().map(Some).collect();
    if scopes.is_empty() {
        scopes.push(None);
    }
    let mut held = 0;
    for scope in scopes {
        let wider = trial.keep_to(scope);
        let of = |domain: &Scope| {
            roles.iter().map(|role| topology::most_of(trial, domain, (spec, role))).sum::<u32>()
        };
        let here = topology::domains(trial, &spread.over).iter().map(|domain| of(domain).min(most)).sum();
        held = held.max(here);
        trial.keep_to(wider);
    }
    Reason::NotSpread(spread.over.clone(), most, tasks, held)
}

/// How many tasks fit these nodes at most, by the room for a rank there and by how the rank is to be spread.
pub(super) fn room(trial: &Trial, rank: u32, scope: &Scope, room: impl Fn(&Scope) -> u64) -> u64 {
    let within = |(spreading, most): (&Spreading, u32)| {
        let counts = spreading.counts(trial);
        let mut domains: BTreeMap<Domain, Vec<usize>> = BTreeMap::new();
        for place in scope.iter().copied() {
            let domain = domain(&trial.capacity().nodes[place], &spreading.spread);
            domain.into_iter().for_each(|domain| domains.entry(domain).or_default().push(place));
        }
        let left = |domain: &Domain| u64::from(most.saturating_sub(counts.get(domain).copied().unwrap_or(0)));
        let fits = domains.into_iter().map(|(domain, places)| left(&domain).min(room(&places.into())));
        fits.fold(0, u64::saturating_add)
    };
    bounds(trial, rank).map(within).min().unwrap_or_else(|| room(scope))
}

/// The spread groups to which a rank belongs.
fn of_rank<'t>(trial: &'t Trial, rank: u32) -> impl Iterator<Item = &'t Spreading> {
    trial.spreadings().iter().filter(move |one| one.ranks.contains(&rank))
}

/// Likewise those with a bound, and how many tasks may lie in one domain.
fn bounds<'t>(trial: &'t Trial, rank: u32) -> impl Iterator<Item = (&'t Spreading, u32)> {
    of_rank(trial, rank).filter_map(|one| Some((one, one.spread.most?)))
}

/// The levels on which the tasks of a role may be packed, coarse to fine: those that are wider than what they are spread over.
pub(super) fn wider(trial: &Trial, mut levels: Vec<String>, rank: u32) -> Vec<String> {
    let over = |level: &String| of_rank(trial, rank).any(|one| one.spread.over == *level);
    let first = levels.iter().position(over).unwrap_or(levels.len());
    levels.truncate(first);
    levels
}

/// Places one task out of `remaining`, by one alternative, in a domain that may take one more; where tasks
/// are to lie as evenly as possible, in a domain that has the fewest.
pub(super) fn place_task(
    trial: &mut Trial,
    spec: &JobSpec,
    alternative: (u32, &Alternative),
    (rank, remaining): (u32, u32),
) -> Result<(), Reason> {
    if of_rank(trial, rank).next().is_none() {
        return place_one(trial, spec, alternative, (rank, remaining));
    }
    let mut refused = Err(Reason::NotPlanned);
    for places in in_turn(trial, rank) {
        let wider = trial.keep_to(Some(places));
        refused = place_one(trial, spec, alternative, (rank, remaining));
        trial.keep_to(wider);
        if refused.is_ok() {
            break;
        }
    }
    refused
}

/// The nodes that may take one more task of a rank, first those that are to have the next.
fn in_turn(trial: &Trial, rank: u32) -> Vec<Scope> {
    let nodes = &trial.capacity().nodes;
    let mut left: Vec<usize> = match trial.scope() {
        Some(scope) => scope.to_vec(),
        None => (0..nodes.len()).collect(),
    };
    for (spreading, most) in bounds(trial, rank) {
        let counts = spreading.counts(trial);
        let has_room = |domain: Domain| counts.get(&domain).is_none_or(|count| *count < most);
        left.retain(|place| domain(&nodes[*place], &spreading.spread).is_some_and(has_room));
    }
    let even = of_rank(trial, rank).filter(|one| one.spread.most.is_none());
    let even: Vec<_> = even.map(|one| (&one.spread, one.counts(trial))).collect();
    if even.is_empty() {
        return vec![left.into()];
    }
    let mut in_turn: BTreeMap<Vec<u32>, Vec<usize>> = BTreeMap::new();
    for place in left {
        // Nodes whose domain is not known come last.
        let lie_there = |(spread, counts): &(&Spread, BTreeMap<Domain, u32>)| {
            let domain = domain(&nodes[place], spread);
            domain.map_or(u32::MAX, |domain| counts.get(&domain).copied().unwrap_or(0))
        };
        in_turn.entry(even.iter().map(lie_there).collect()).or_default().push(place);
    }
    in_turn.into_values().map(Scope::from).collect()
}

/// How many more tasks of a gang the domains in which room is made may take.
pub(super) struct Rooms {
    /// What the gang asks for, and how many may lie in one domain; nothing where there is no bound.
    bound: Option<(Spread, u32)>,
    /// How many places were used in each domain: by its name, or by the node that is one.
    used: BTreeMap<(Option<NodeId>, String), u32>,
}

impl Rooms {
    /// For a gang for which no room has been made yet.
    pub(super) fn of(gang: &Group) -> Self {
        let bound = gang.spread().and_then(|spread| Some((spread.clone(), spread.bound()?)));
        Self { bound, used: BTreeMap::new() }
    }

    /// How many of these places on a node the gang may use, beside those that it was given before.
    pub(super) fn take(&mut self, node: &NodeView, places: u32) -> u32 {
        let Some((spread, most)) = &self.bound else { return places };
        let domain = match domain(node, spread) {
            None => return 0,
            Some(Domain::Node(id)) => (Some(id), String::new()),
            Some(Domain::Named(name)) => (None, name.to_owned()),
        };
        let used = self.used.entry(domain).or_insert(0);
        let more = places.min(*most - *used);
        *used += more;
        more
    }
}
