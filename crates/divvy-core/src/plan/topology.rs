//! Phase 3, place, for groups that ask to lie together: the domains of a level are tried one by one, the fullest that has room
//! first, and everything of the group goes into one of them or is rolled back.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::diagnose::most_tasks;
use super::filter;
use super::islands;
use super::place::{UNSAID_CPU_MILLI, UNSAID_MEMORY_BYTES, place_role, place_task};
use super::spread;
use super::trial::{Mark, Scope, Trial};
use crate::id::NodeId;
use crate::model::ask::{Alternative, DeviceAsk};
use crate::model::device::WHOLE_MILLI;
use crate::model::gang::{Branch, Group, Role};
use crate::model::job::JobSpec;
use crate::model::topology::{NODE, Slice, TopologyAsk, levels_of};
use crate::reason::Reason;
use crate::snapshot::{DeviceView, NodeView};

/// Domains that are tried for one gang at most, over all its groups: what has room by count nearly always
/// fits, so more are needed only where unlike groups get in each other's way.
const MOST_TRIES: u32 = 256;
/// Further orders in which the parts of a group are tried. Each puts one part before those in its way, so as many as
/// a gang has unlike roles suffice; and a gang of hundreds of them that does not fit costs no more than this.
const MOST_ORDERS: usize = 8;

/// The way through the groups of a gang.
struct Search<'a> {
    spec: &'a JobSpec,
    /// The rank of the next task.
    rank: u32,
    tries_left: u32,
}

/// Places the minimum of a gang; on an error what was placed so far is for the caller to roll back.
pub(super) fn place_gang(trial: &mut Trial, spec: &JobSpec) -> Result<(), Reason> {
    let mut search = Search { spec, rank: 0, tries_left: MOST_TRIES };
    trial.begin_gang();
    place_group(trial, &mut search, &spec.gang)
}

/// Places a group in one domain, as far as it asks for one.
fn place_group(trial: &mut Trial, search: &mut Search, group: &Group) -> Result<(), Reason> {
    let Some(ask) = group.topology() else { return place_parts(trial, search, group) };
    for level in levels_to_try(&levels(trial), ask) {
        let found = candidates(trial, search, group, &level);
        for domain in found.into_iter().flat_map(|domain| kept_within(trial, domain, ask)).collect::<Vec<_>>()
        {
            if search.tries_left == 0 {
                break;
            }
            search.tries_left -= 1;
            if place_in(trial, search, group, domain) {
                return Ok(());
            }
        }
    }
    match ask.required {
        false => place_parts(trial, search, group),
        true if trial.names_reasons() => Err(why_not(trial, search, group, ask)),
        true => Err(Reason::NotPlanned),
    }
}

/// A domain, divided among those of the level in one of which the group has to lie: a node may name a finer level, and not that one.
fn kept_within(trial: &Trial, domain: Scope, ask: &TopologyAsk) -> Vec<Scope> {
    if !ask.required {
        return vec![domain];
    }
    let nodes = &trial.capacity().nodes;
    let of = |place: usize| nodes[place].domain(&ask.within);
    let first = domain.first().and_then(|place| of(*place));
    let in_one = first.is_some() && domain.iter().all(|place| of(*place) == first);
    if in_one || ask.within == NODE {
        return vec![domain];
    }
    let mut parts: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for place in domain.iter().copied() {
        if let Some(name) = of(place) {
            parts.entry(name).or_default().push(place);
        }
    }
    parts.into_values().map(Scope::from).collect()
}

/// Places all parts of a group in these nodes, or leaves everything as it was. The reason is not named.
fn place_in(trial: &mut Trial, search: &mut Search, group: &Group, domain: Scope) -> bool {
    let (mark, first) = (trial.mark(), search.rank);
    let (wider, told) = (trial.keep_to(Some(domain)), trial.name_reasons(false));
    let placed = place_parts(trial, search, group).is_ok();
    trial.keep_to(wider);
    trial.name_reasons(told);
    if !placed {
        trial.roll_back_to(mark);
        search.rank = first;
    }
    placed
}

/// Places the parts of a group one after the other, wherever it may lie now: as many as it needs, the first that fit. Where
/// they do not fit in their own order, since one has taken what another cannot do without, other orders are tried.
fn place_parts(trial: &mut Trial, search: &mut Search, group: &Group) -> Result<(), Reason> {
    let branch = match group {
        Group::Role(role) => return place_role(trial, search.spec, role, &mut search.rank),
        Group::Branch(branch) => branch,
    };
    let mark = trial.mark();
    let mut parts: Vec<(u32, &Group)> = Vec::new();
    let mut rank = search.rank;
    for group in &branch.groups {
        parts.push((rank, group));
        rank += group.most_tasks();
    }
    let placed = match place_first(trial, search, branch, &parts) {
        Ok(()) => Ok(()),
        Err((missing, reason)) => {
            let told = trial.name_reasons(false);
            let fits = fits_in_other_order(trial, search, (branch, parts, missing), mark);
            trial.name_reasons(told);
            if fits { Ok(()) } else { Err(reason) }
        }
    };
    search.rank = rank;
    placed
}

/// Places the parts of a branch in another order, if they fit in one: the part that had no place behind the
/// others goes before them. A part that has none even when it goes first has none in any order.
fn fits_in_other_order(
    trial: &mut Trial,
    search: &mut Search,
    (branch, mut parts, mut missing): (&Branch, Vec<(u32, &Group)>, usize),
    mark: Mark,
) -> bool {
    for _ in 0..MOST_ORDERS {
        if missing == 0 {
            return false;
        }
        parts[..=missing].rotate_right(1);
        trial.roll_back_to(mark);
        match place_first(trial, search, branch, &parts) {
            Ok(()) => return true,
            Err((place, _)) => missing = place,
        }
    }
    false
}

/// Places as many groups of a branch as it needs, the first that fit. The error is the first group that is
/// missing, and why it does not fit.
fn place_first(
    trial: &mut Trial,
    search: &mut Search,
    branch: &Branch,
    parts: &[(u32, &Group)],
) -> Result<(), (usize, Reason)> {
    let mut needed = branch.minimum;
    let mut spare = (parts.len() as u32).saturating_sub(needed);
    for (place, (rank, group)) in parts.iter().enumerate() {
        if needed == 0 {
            break;
        }
        search.rank = *rank;
        let mark = trial.mark();
        match place_group(trial, search, group) {
            Ok(()) => needed -= 1,
            Err(reason) if spare == 0 => return Err((place, reason)),
            Err(_) => {
                trial.roll_back_to(mark);
                spare -= 1;
            }
        }
    }
    Ok(())
}

/// Why a group that has to lie in one domain fits in none: what would keep it back anywhere comes first.
fn why_not(trial: &mut Trial, search: &mut Search, group: &Group, ask: &TopologyAsk) -> Reason {
    let (mark, first) = (trial.mark(), search.rank);
    let anywhere = place_parts(trial, search, group);
    trial.roll_back_to(mark);
    search.rank = first;
    anywhere.err().unwrap_or_else(|| no_domain(trial, search.spec, (&ask.within, group)))
}

/// The reason that no domain of a level has room for a group.
fn no_domain(trial: &Trial, spec: &JobSpec, (level, group): (&str, &Group)) -> Reason {
    let roles = group.required_roles();
    let tasks = roles.iter().map(|role| role.minimum).sum();
    let holds = |scope: &Scope| -> u32 { roles.iter().map(|role| most_of(trial, scope, (spec, role))).sum() };
    let most = domains(trial, level).iter().map(holds).max().unwrap_or(0);
    Reason::NoDomain(level.to_owned(), tasks, most)
}

/// How many tasks of a role these nodes hold when they are idle, up to its minimum.
pub(super) fn most_of(trial: &Trial, scope: &Scope, (spec, role): (&JobSpec, &Role)) -> u32 {
    let nodes = || scope.iter().map(|place| &trial.capacity().nodes[*place]).filter(|it| it.is_open_to(spec));
    let most = role.ask.alternatives.iter().map(|alternative| most_tasks(nodes(), alternative)).max();
    most.unwrap_or(0).min(role.minimum)
}

/// The levels of the pool, coarse to fine.
fn levels(trial: &Trial) -> Vec<String> {
    levels_of(trial.capacity().nodes.iter().map(|node| &*node.domains))
}

/// The levels at which one domain is sought for a group, the best first.
fn levels_to_try(levels: &[String], ask: &TopologyAsk) -> Vec<String> {
    let place = |level: &str| levels.iter().position(|known| known == level);
    let Some(within) = place(&ask.within) else { return Vec::new() };
    let near = ask.near.as_deref().and_then(place).map_or(within, |near| near.max(within));
    let widest = if ask.required { within } else { 0 };
    levels[widest..=near].iter().rev().cloned().collect()
}

/// The domains of a level among the nodes that may be used now, by name. A node that does not name the level is in none.
pub(super) fn domains(trial: &Trial, level: &str) -> Vec<Scope> {
    let nodes = &trial.capacity().nodes;
    let all: Vec<usize> = match trial.scope() {
        Some(scope) => scope.to_vec(),
        None => (0..nodes.len()).collect(),
    };
    let mut named: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut alone: Vec<Scope> = Vec::new();
    for place in all {
        match nodes[place].domain(level) {
            Some(domain) => named.entry(domain).or_default().push(place),
            None if level == NODE => alone.push(Rc::from([place])),
            None => {}
        }
    }
    named.into_values().map(Scope::from).chain(alone).collect()
}

/// The nodes that lie in the same domains as these: level, and a node there. `None` where nothing is asked.
pub(super) fn around(trial: &Trial, domains: &[(String, NodeId)]) -> Option<Scope> {
    let mut scope: Option<Vec<usize>> = None;
    for (level, node) in domains {
        let nodes = &trial.capacity().nodes;
        let Some(own) = trial.capacity().node_place(*node) else { return Some(Rc::from([])) };
        let domain = nodes[own].domain(level);
        let is_near = |place: &usize| match domain {
            Some(domain) => nodes[*place].domain(level) == Some(domain),
            None => *place == own,
        };
        scope = Some(match scope {
            Some(scope) => scope.into_iter().filter(is_near).collect(),
            None => (0..nodes.len()).filter(is_near).collect(),
        });
    }
    scope.map(Scope::from)
}

/// The domains one of which must hold all of a gang, where it asks for that.
pub(super) fn required_domains(trial: &Trial, gang: &Group) -> Vec<Scope> {
    let ask = gang.topology().filter(|ask| ask.required);
    ask.map(|ask| domains(trial, &ask.within)).unwrap_or_default()
}

/// The domains that may hold a group: each of its roles has room there, by count, by one of its alternatives. Those where more
/// roles get what they prefer come first, then those in which it can grow as far as it may, then the fullest, then by name.
fn candidates(trial: &Trial, search: &Search, group: &Group, level: &str) -> Vec<Scope> {
    let roles = group.required_roles();
    let rank = |scope: &Scope| -> Option<(usize, bool, u64)> {
        let (mut settled_for, mut left, mut cramped, mut first) = (0, 0u64, false, search.rank);
        for role in &roles {
            let needed = u64::from(role.minimum);
            let chosen = scope.iter().copied();
            let takes = |place: &usize| trial.capacity().nodes[*place].takes(search.spec, &role.ask.nodes);
            let chosen: Scope = chosen.filter(takes).collect();
            let room = |alternative| room(trial, &chosen, (search.spec, first), alternative);
            let rooms = role.ask.alternatives.iter().map(room);
            let (index, found) = rooms.enumerate().find(|(_, room)| *room >= needed)?;
            cramped |= found < u64::from(role.maximum);
            (settled_for, left) = (settled_for + index, left.saturating_add(found));
            first += role.maximum;
        }
        Some((settled_for, cramped, left))
    };
    let ranked = domains(trial, level).into_iter().filter_map(|scope| Some((rank(&scope)?, scope)));
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, scope)| scope).collect()
}

/// How many tasks of an alternative, from a rank on, fit these nodes now, at most.
fn room(trial: &Trial, scope: &Scope, (spec, rank): (&JobSpec, u32), alternative: &Alternative) -> u64 {
    spread::room(trial, rank, scope, |scope| {
        let nodes = scope.iter().map(|place| &trial.capacity().nodes[*place]);
        nodes.fold(0u64, |sum, node| sum.saturating_add(room_on(node, spec, alternative)))
    })
}

/// How many tasks of an alternative fit a node now, at most; without bound for one that asks for nothing.
fn room_on(node: &NodeView, spec: &JobSpec, alternative: &Alternative) -> u64 {
    if !node.takes_tasks || spec.exclusive && !node.is_idle() {
        return 0;
    }
    let ask = alternative.devices.as_ref();
    let alone = ask.is_none();
    let times = |left: i64, each: Option<i64>| match each {
        Some(each) if each > 0 => (left.max(0) / each) as u64,
        _ => u64::MAX,
    };
    let cpu = alternative.cpu_milli.or(alone.then_some(UNSAID_CPU_MILLI.min(node.cpu_milli.0)));
    let memory = alternative.memory_bytes.or(alone.then_some(UNSAID_MEMORY_BYTES.min(node.memory_bytes.0)));
    let by_host = times(node.cpu_milli.1, cpu).min(times(node.memory_bytes.1, memory));
    let by_devices = ask.map_or(u64::MAX, |ask| islands::tasks(node, ask, |device| draws_of(device, ask)));
    let most = if spec.exclusive { 1 } else { u64::MAX };
    let by_extras = alternative.extras.times_in(&node.extras.1);
    by_host.min(by_devices).min(by_extras).min(most).min(u64::try_from(node.most_tasks.1).unwrap_or(0))
}

/// How many draws of this size a device allows now.
fn draws_of(device: &DeviceView, ask: &DeviceAsk) -> u64 {
    match filter::fits(device, ask) {
        true => u64::from(device.free_milli.unsigned_abs() / ask.milli().clamp(1, WHOLE_MILLI)),
        false => 0,
    }
}

/// Tasks of a role, all by one alternative, that are to be placed.
#[derive(Clone, Copy)]
struct Batch<'a> {
    spec: &'a JobSpec,
    alternative: (u32, &'a Alternative),
    rank: u32,
    tasks: u32,
}

/// Places all tasks of a role by one of its alternatives: in blocks or close together, if it asks for that.
pub(super) fn place_tasks(
    trial: &mut Trial,
    spec: &JobSpec,
    (role, index): (&Role, usize),
    rank: u32,
) -> Result<(), Reason> {
    let Some(alternative) = role.ask.alternatives.get(index) else { return Err(Reason::NotPlanned) };
    let batch = Batch { spec, alternative: (index as u32, alternative), rank, tasks: role.minimum };
    match &role.topology {
        None => anywhere(trial, batch),
        Some(ask) if ask.slices.is_empty() => {
            let levels = spread::wider(trial, levels(trial), rank);
            packed(trial, batch, &levels)
        }
        Some(ask) => {
            let levels = levels(trial);
            let place = |level: &str| levels.iter().position(|known| known == level);
            let wider = |slice: &&Slice| place(&slice.within) < place(&ask.within);
            match ask.slices.iter().find(wider) {
                // A block cannot be spread wider than all of them.
                Some(slice) => Err(Reason::NoDomain(slice.within.clone(), slice.tasks, 0)),
                None => in_slices(trial, batch, &ask.slices),
            }
        }
    }
}

/// Places tasks one after the other, wherever they may lie now.
fn anywhere(trial: &mut Trial, batch: Batch) -> Result<(), Reason> {
    let Batch { spec, alternative, rank, tasks } = batch;
    (0..tasks).try_for_each(|task| place_task(trial, spec, alternative, (rank + task, tasks - task)))
}

/// Places tasks in these nodes.
fn place_batch(
    trial: &mut Trial,
    scope: Scope,
    place: impl FnOnce(&mut Trial) -> Result<(), Reason>,
) -> Result<(), Reason> {
    let wider = trial.keep_to(Some(scope));
    let placed = place(trial);
    trial.keep_to(wider);
    placed
}

/// Places tasks in as few domains of each level as possible, from the widest level down; where that fails, anywhere.
fn packed(trial: &mut Trial, batch: Batch, levels: &[String]) -> Result<(), Reason> {
    let Some((level, finer)) = levels.split_first().filter(|_| batch.tasks > 1) else {
        return anywhere(trial, batch);
    };
    let mark = trial.mark();
    let mut left = batch;
    let mut rooms = rooms(trial, batch, level, 1);
    while left.tasks > 0 {
        let Some((room, scope)) = take_best(&mut rooms, u64::from(left.tasks)) else { break };
        let here = Batch { tasks: left.tasks.min(u32::try_from(room).unwrap_or(u32::MAX)), ..left };
        if place_batch(trial, scope, |trial| packed(trial, here, finer)).is_err() {
            trial.roll_back_to(mark);
            return anywhere(trial, batch);
        }
        (left.rank, left.tasks) = (left.rank + here.tasks, left.tasks - here.tasks);
    }
    anywhere(trial, left)
}

/// The domains of a level with room for a block of so many tasks, each with the number of such blocks, by name.
fn rooms(trial: &Trial, batch: Batch, level: &str, block: u32) -> Vec<(u64, Scope)> {
    let blocks = |scope: Scope| {
        let room = room(trial, &scope, (batch.spec, batch.rank), batch.alternative.1);
        (room / u64::from(block.max(1)), scope)
    };
    domains(trial, level).into_iter().map(blocks).filter(|(room, _)| *room > 0).collect()
}

/// Takes out the smallest room that is large enough; if none is, the largest. Of equals the first.
fn take_best(rooms: &mut Vec<(u64, Scope)>, needed: u64) -> Option<(u64, Scope)> {
    let best = rooms
        .iter()
        .enumerate()
        .min_by_key(|(_, (room, _))| if *room >= needed { (false, *room) } else { (true, u64::MAX - room) });
    let (best, _) = best?;
    Some(rooms.remove(best))
}

/// Places tasks block by block, each within one domain of the block's level; in as few of these domains as possible.
fn in_slices(trial: &mut Trial, batch: Batch, slices: &[Slice]) -> Result<(), Reason> {
    let Some((slice, finer)) = slices.split_first() else { return anywhere(trial, batch) };
    let size = slice.tasks.clamp(1, batch.tasks.max(1));
    let mark = trial.mark();
    let mut left = batch;
    let mut rooms = rooms(trial, batch, &slice.within, size);
    while left.tasks > 0 {
        let best = take_best(&mut rooms, u64::from(left.tasks / size));
        let Some((room, scope)) = best else {
            trial.roll_back_to(mark);
            return Err(no_block(trial, batch, slice));
        };
        for _ in 0..room.min(u64::from(left.tasks / size)) {
            let block = Batch { tasks: size, ..left };
            let (mark, told) = (trial.mark(), trial.name_reasons(false));
            let placed = place_batch(trial, Rc::clone(&scope), |trial| in_slices(trial, block, finer));
            trial.name_reasons(told);
            if placed.is_err() {
                trial.roll_back_to(mark);
                break;
            }
            (left.rank, left.tasks) = (left.rank + size, left.tasks - size);
        }
    }
    Ok(())
}

/// The reason that not every block has found a domain with room for it: what would keep the tasks back anywhere comes first.
fn no_block(trial: &mut Trial, batch: Batch, slice: &Slice) -> Reason {
    if !trial.names_reasons() {
        return Reason::NotPlanned;
    }
    let mark = trial.mark();
    let anywhere = anywhere(trial, batch);
    trial.roll_back_to(mark);
    if let Err(reason) = anywhere {
        return reason;
    }
    let nodes = |scope: &Scope| -> u32 {
        let nodes = scope.iter().map(|place| &trial.capacity().nodes[*place]);
        most_tasks(nodes, batch.alternative.1).min(slice.tasks)
    };
    let most = domains(trial, &slice.within).iter().map(nodes).max().unwrap_or(0);
    Reason::NoDomain(slice.within.clone(), slice.tasks, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(within: &str, required: bool, near: Option<&str>) -> TopologyAsk {
        TopologyAsk { near: near.map(String::from), ..TopologyAsk::within(within, required) }
    }

    #[test]
    fn a_required_level_is_the_widest_that_is_tried_and_a_preferred_one_the_narrowest() {
        let levels = ["zone", "block", "rack", "node"].map(String::from);
        let tried = |ask: TopologyAsk| levels_to_try(&levels, &ask).join(" ");
        assert_eq!(tried(ask("block", true, None)), "block");
        assert_eq!(tried(ask("block", true, Some("node"))), "node rack block");
        assert_eq!(tried(ask("rack", false, None)), "rack block zone");
        assert_eq!(tried(ask("block", true, Some("zone"))), "block");
        assert_eq!(tried(ask("moon", true, None)), "");
    }

    #[test]
    fn the_smallest_room_that_is_enough_is_taken_and_else_the_largest() {
        let mut rooms: Vec<(u64, Scope)> =
            [3, 8, 5, 5].iter().enumerate().map(|(place, room)| (*room, Scope::from([place]))).collect();
        let mut taken = |needed| take_best(&mut rooms, needed).map(|(room, scope)| (room, scope[0]));
        assert_eq!(taken(4), Some((5, 2)));
        assert_eq!(taken(9), Some((8, 1)));
        assert_eq!(taken(1), Some((3, 0)));
        assert_eq!((taken(1), taken(1)), (Some((5, 3)), None));
    }
}
