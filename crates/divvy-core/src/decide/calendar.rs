//! Reservations: what an administrator keeps, for work on it or for a queue.

use std::collections::{BTreeMap, BTreeSet};

use super::{Person, Rejection};
use crate::amount::{Amount, Resource};
use crate::event::Event;
use crate::id::{DeviceId, NodeId};
use crate::model::device::{Health, WHOLE_MILLI};
use crate::model::node::NodeState;
use crate::model::queue::{lineage, utc};
use crate::model::reservation::{Part, Purpose, Reservation};
use crate::reason::shown;
use crate::state::State;
use crate::time::Time;

/// What is to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// What it is for.
    pub purpose: Purpose,
    /// Which nodes or devices.
    pub what: Wanted,
    /// From when.
    pub from: Time,
    /// Until when; `None` until it is taken back.
    pub until: Option<Time>,
    /// Whether what runs there when it begins is stopped.
    pub evicts: bool,
    /// Why.
    pub note: Option<String>,
}

/// Which nodes or devices a reservation is to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// These: a node (`n1`), a device of a node (`n1:3`), of the only node there is (`3`), or by its uuid.
    Named(Vec<String>),
    /// This many devices of a model, or of any, wherever that costs others least.
    Devices(u32, Option<String>),
}

pub(super) fn reserve(state: &State, asked: &Reserve, by: &Person) -> Result<Vec<Event>, Rejection> {
    if !by.admin {
        return Err(Rejection::NotAdmin);
    }
    if let Purpose::Queue(queue) = &asked.purpose
        && !state.queues.contains_key(queue)
    {
        let known = state.queues.keys().cloned().collect();
        return Err(Rejection::UnknownQueue { queue: queue.clone(), known });
    }
    if asked.until.is_some_and(|until| until <= asked.from.max(state.now)) {
        return Err(bad("until", "it would be over before it begins"));
    }
    let parts = match &asked.what {
        Wanted::Named(names) => useful(state, &asked.purpose, named(state, names)?)?,
        Wanted::Devices(count, model) => chosen(state, asked, (*count, model.as_deref()))?,
    };
    let made = Reservation {
        id: state.next_reservation.max(1),
        purpose: asked.purpose.clone(),
        parts,
        from: asked.from,
        until: asked.until,
        evicts: asked.evicts,
        began: false,
        by: by.name.clone(),
        note: asked.note.clone(),
    };
    Ok(vec![Event::ReservationMade(Box::new(made))])
}

pub(super) fn end(state: &State, id: u64, by: &Person) -> Result<Vec<Event>, Rejection> {
    if !by.admin {
        return Err(Rejection::NotAdmin);
    }
    match state.reservations.iter().any(|kept| kept.id == id) {
        true => Ok(vec![Event::ReservationEnded { id, by: Some(by.name.clone()) }]),
        false => Err(bad("id", format!("there is no reservation {id}: `divvy reserve` lists what there is"))),
    }
}

/// Takes back all drains of a node or device, begun or future.
pub(super) fn undrain(state: &State, target: &str, by: &Person) -> Result<Vec<Event>, Rejection> {
    if !by.admin {
        return Err(Rejection::NotAdmin);
    }
    let part = part(state, target)?;
    // The name of a node stands for its devices, too.
    let is_meant = |other: &Part| *other == part || part.devices.is_empty() && other.node == part.node;
    let drains = || state.reservations.iter().filter(|kept| kept.purpose == Purpose::Maintenance);
    let meant = drains().filter(|kept| kept.parts.iter().all(is_meant));
    let mut events: Vec<Event> =
        meant.map(|kept| Event::ReservationEnded { id: kept.id, by: Some(by.name.clone()) }).collect();
    if part.devices.is_empty()
        && let Some(node) = state.nodes.get(&part.node).filter(|node| node.state == NodeState::Draining)
    {
        let (node, spec) = (part.node, node.spec.clone());
        events.push(Event::NodeSeen { node, spec: Box::new(spec), state: NodeState::Ready });
    }
    if !events.is_empty() {
        return Ok(events);
    }
    let meets = |other: &Part| {
        let whole = other.devices.is_empty() || part.devices.is_empty();
        other.node == part.node && (whole || other.devices.iter().any(|device| part.devices.contains(device)))
    };
    let covers = |kept: &&Reservation| kept.parts.iter().any(meets);
    Err(match drains().find(covers) {
        Some(kept) => bad(
            "target",
            format!(
                "{target} is drained together with others: take back reservation {} as a whole (divvy reserve --cancel {0})",
                kept.id
            ),
        ),
        None => bad("target", format!("{target} is not drained")),
    })
}

/// Refuses to reserve nodes for a queue whose jobs may not use them.
fn useful(state: &State, purpose: &Purpose, parts: Vec<Part>) -> Result<Vec<Part>, Rejection> {
    let useless = parts.iter().find(|part| !is_of_use(state, purpose, part.node));
    let Some(node) = useless.and_then(|part| state.nodes.get(&part.node)) else { return Ok(parts) };
    let name = &node.spec.name;
    Err(bad(
        "target",
        match state.keeper_of(node) {
            Some(keeper) => format!("{name} is kept for queue {keeper}: others cannot use it"),
            None => format!("{name} is none of the nodes to which the jobs of that queue are kept"),
        },
    ))
}

fn named(state: &State, names: &[String]) -> Result<Vec<Part>, Rejection> {
    let mut parts: BTreeMap<NodeId, BTreeSet<DeviceId>> = BTreeMap::new();
    let mut whole: BTreeSet<NodeId> = BTreeSet::new();
    for name in names {
        let part = part(state, name)?;
        if part.devices.is_empty() {
            whole.insert(part.node);
        }
        parts.entry(part.node).or_default().extend(part.devices);
    }
    if parts.is_empty() {
        return Err(bad("target", "name a node or a GPU: `divvy gpus` lists them"));
    }
    let devices = |node: &NodeId, some: BTreeSet<DeviceId>| {
        if whole.contains(node) { Vec::new() } else { some.into_iter().collect() }
    };
    Ok(parts.into_iter().map(|(node, some)| Part { node, devices: devices(&node, some) }).collect())
}

/// The node or device that a name stands for.
fn part(state: &State, name: &str) -> Result<Part, Rejection> {
    let here = |id: &NodeId| state.nodes.get(id).is_some_and(|node| node.state != NodeState::Gone);
    if let Some(node) = state.node_by_name(name).filter(here) {
        return Ok(Part { node, devices: Vec::new() });
    }
    let by_uuid = state.device_by_uuid(name);
    let by_place = || {
        let (node, index) = match name.rsplit_once(':') {
            Some((node, index)) => (state.node_by_name(node)?, index),
            None => (only_node(state)?, name),
        };
        let index: u32 = index.parse().ok()?;
        let mut devices = state.devices.iter();
        devices.find(|(_, device)| device.node == node && device.spec.index == index).map(|(id, _)| *id)
    };
    let device = by_uuid.or_else(by_place).filter(|id| {
        let node = state.devices.get(id).map(|device| device.node);
        node.is_some_and(|node| here(&node))
    });
    let Some((id, known)) = device.and_then(|id| Some((id, state.devices.get(&id)?))) else {
        return Err(bad(
            "target",
            format!(
                "there is no node or GPU {name:?}: `divvy gpus` lists them (node, node:index, index or UUID)"
            ),
        ));
    };
    Ok(Part { node: known.node, devices: vec![id] })
}

/// The node, if there is only one.
fn only_node(state: &State) -> Option<NodeId> {
    let mut here = state.nodes.iter().filter(|(_, node)| node.state != NodeState::Gone);
    let first = here.next().map(|(id, _)| *id);
    first.filter(|_| here.next().is_none())
}

/// Chooses devices where that costs others least: whole nodes before parts of nodes, and among these the nodes on which least runs.
fn chosen(
    state: &State,
    asked: &Reserve,
    (count, model): (u32, Option<&str>),
) -> Result<Vec<Part>, Rejection> {
    let mut nodes: BTreeMap<NodeId, Vec<(bool, DeviceId)>> = BTreeMap::new();
    let held: BTreeSet<DeviceId> = state
        .allocations
        .values()
        .flat_map(|held| held.placement.devices.iter().map(|(id, _)| *id))
        .collect();
    let mut taken: Vec<(DeviceId, NodeId)> = Vec::new();
    for (id, device) in &state.devices {
        let is_there = state.nodes.get(&device.node).is_some_and(|node| node.state != NodeState::Gone);
        let is_right = model.is_none_or(|model| model == device.spec.model) && device.health == Health::Ok;
        if !is_there || !is_right || !is_of_use(state, &asked.purpose, device.node) {
            continue;
        }
        if is_taken(state, asked, (*id, device.node)) {
            taken.push((*id, device.node));
        } else {
            nodes.entry(device.node).or_default().push((held.contains(id), *id));
        }
    }
    let there: usize = nodes.values().map(Vec::len).sum();
    if count == 0 || there < count as usize {
        no_such_model(state, model)?;
        let of = model.map_or(String::new(), |model| format!(" {model}"));
        // If even an empty calendar has too few, taking reservations back does not help.
        let would_do = there + taken.len() >= count as usize;
        let taken = if would_do { in_the_way(state, asked, &taken) } else { String::new() };
        return Err(bad(
            "gpus",
            format!(
                "{there}{of} GPU{} can be reserved for that time{taken}",
                if there == 1 { "" } else { "s" }
            ),
        ));
    }
    let mut order: Vec<(usize, usize, NodeId)> = nodes
        .iter()
        .map(|(node, devices)| {
            let busy = devices.iter().filter(|(is_held, _)| *is_held).count();
            (usize::from(devices.len() > count as usize), busy, *node)
        })
        .collect();
    order.sort_unstable();
    let (mut parts, mut left) = (Vec::new(), count as usize);
    for (_, _, node) in order {
        let mut devices = nodes.remove(&node).unwrap_or_default();
        devices.sort_unstable();
        let taken: Vec<DeviceId> = devices.into_iter().take(left).map(|(_, id)| id).collect();
        left -= taken.len();
        parts.extend((!taken.is_empty()).then_some(Part { node, devices: taken }));
    }
    parts.sort_by_key(|part| part.node);
    Ok(parts)
}

/// Whether a reservation for this purpose could use a node, given the nodes that queues keep.
fn is_of_use(state: &State, purpose: &Purpose, node: NodeId) -> bool {
    let Purpose::Queue(queue) = purpose else { return true };
    let keeper = state.nodes.get(&node).and_then(|node| state.keeper_of(node));
    keeper == state.kept_to(queue).said().map(|queue| &**queue)
}

/// The other reservations on the calendar that overlap it in time.
fn others<'a>(state: &'a State, asked: &'a Reserve) -> impl Iterator<Item = &'a Reservation> {
    state.reservations.iter().filter(|kept| {
        kept.until.is_none_or(|until| until > asked.from) && asked.until.is_none_or(|until| kept.from < until)
    })
}

/// Refuses a model of which the pool has no devices, and names those that it has.
fn no_such_model(state: &State, model: Option<&str>) -> Result<(), Rejection> {
    let is_there = |id: &NodeId| state.nodes.get(id).is_some_and(|node| node.state != NodeState::Gone);
    let here = state.devices.values().filter(|device| is_there(&device.node));
    let models: BTreeSet<&str> = here.map(|device| device.spec.model.as_str()).collect();
    match model.filter(|model| !models.contains(model)) {
        None => Ok(()),
        Some(model) if models.is_empty() => Err(bad("model", format!("the pool has no {model}"))),
        Some(model) => {
            let has: Vec<&str> = models.into_iter().collect();
            Err(bad("model", format!("the pool has no {model}; it has {}", has.join(", "))))
        }
    }
}

/// Which reservations keep what was to be reserved, and what to do about it.
fn in_the_way(state: &State, asked: &Reserve, taken: &[(DeviceId, NodeId)]) -> String {
    let keeps = |kept: &&Reservation| {
        taken.iter().any(|(id, node)| kept.parts.iter().any(|part| part.has(*node, *id)))
    };
    let mut kept: Vec<&Reservation> = others(state, asked).filter(keeps).collect();
    kept.sort_by_key(|kept| (kept.from, kept.id));
    let Some(first) = kept.first() else { return String::new() };
    let ids: Vec<String> = kept.iter().take(6).map(|kept| kept.id.to_string()).collect();
    let ends = if first.from > asked.from { "say --for so that it is over by then, or " } else { "" };
    let from = utc(first.from);
    format!(
        "; others are kept on the calendar by {}, the first of them from {from} on: {ends}take one back (divvy reserve --cancel)",
        ids.join(", ")
    )
}

/// Whether another reservation has a device for any of that time.
fn is_taken(state: &State, asked: &Reserve, (id, node): (DeviceId, NodeId)) -> bool {
    others(state, asked).any(|kept| kept.parts.iter().any(|part| part.has(node, id)))
}

/// What a reservation keeps for a queue beyond a limit of it or of a queue above it, if anything: that would stand idle.
pub fn kept_beyond_limit(state: &State, kept: &Reservation) -> Option<String> {
    let Purpose::Queue(queue) = &kept.purpose else { return None };
    let is_kept = |id: &DeviceId, node: NodeId| kept.parts.iter().any(|part| part.has(node, *id));
    let mut there: BTreeMap<Resource, i64> = BTreeMap::new();
    for (_, device) in state.devices.iter().filter(|(id, device)| is_kept(id, device.node)) {
        for resource in [Resource::Any, Resource::Model(device.spec.model.clone())] {
            *there.entry(resource).or_default() += i64::from(WHOLE_MILLI);
        }
    }
    let limits = lineage(queue).filter_map(|path| state.queues.get(path));
    let mut limits = limits.flat_map(|queue| queue.limit.iter().map(|(it, limit)| (&queue.path, it, *limit)));
    let (path, resource, limit) = limits
        .find(|(_, resource, limit)| there.get(*resource).is_some_and(|there| !limit.allows(*there)))?;
    let Amount::Finite(most) = limit else { return None };
    let (most, there) = (shown(resource, most), shown(resource, there[resource]));
    Some(format!(
        "{there} of {resource} would be kept for {queue}, and the limit of {path} is {most}: the rest would stand idle; reserve no more, or raise the limit"
    ))
}

fn bad(field: &'static str, what: impl Into<String>) -> Rejection {
    Rejection::BadSpec { field, what: what.into() }
}
