//! What the checker's books count, computed here independently.

use std::collections::BTreeSet;

use crate::amount::{Amount, Limits, Resource};
use crate::id::{DeviceId, JobId, NodeId};
use crate::model::allocation::Placement;
use crate::model::device::{Draw, Health};
use crate::model::node::{NodeSpec, NodeState};
use crate::model::queue::{Nodes, lineage};
use crate::model::reservation::{Part, Purpose, Reservation};
use crate::state::{Device, Job, State};

pub(super) fn mib(draw: &Draw) -> i64 {
    i64::try_from(draw.memory_mib).unwrap_or(i64::MAX)
}

/// What a placement counts against limits, computed here independently.
pub(super) fn counts(state: &State, placement: &Placement) -> Vec<(Resource, i64)> {
    let mut counted = vec![
        (Resource::Any, placement.milli()),
        (Resource::Cpu, placement.cpu_milli),
        (Resource::Memory, placement.memory_bytes),
    ];
    counted.extend(placement.extras.iter().map(|(resource, amount)| (resource.clone(), amount)));
    for (device, draw) in &placement.devices {
        let Some(model) = state.devices.get(device).map(|device| &device.spec.model) else { continue };
        let same = |(resource, _): &&mut (Resource, i64)| matches!(resource, Resource::Model(other) if other == model);
        match counted.iter_mut().find(same) {
            Some((_, sum)) => *sum += i64::from(draw.milli),
            None => counted.push((Resource::Model(model.clone()), i64::from(draw.milli))),
        }
    }
    counted
}

/// Where a job stands: in its queue or, where that is divided among users, at its user's seat there; where there are queues below it, at
/// the seat of all its users.
pub(super) fn stand(state: &State, job: &Job) -> String {
    let queue = &job.spec.queue;
    let is_above = || {
        state
            .queues
            .keys()
            .any(|path| path.strip_prefix(queue.as_str()).is_some_and(|rest| rest.starts_with('/')))
    };
    match state.queues.get(queue).map(|queue| queue.users.is_unsaid()) {
        Some(false) => format!("{queue}/@{}", job.owner.name.replace('/', "%2F")),
        Some(true) if is_above() => format!("{queue}/@"),
        _ => queue.clone(),
    }
}

/// The limits at a path: of a queue, or of a user in one.
pub(super) fn limits_at<'a>(state: &'a State, path: &str) -> Option<&'a Limits> {
    let of_user = || Some(&state.queues.get(path.split("/@").next()?)?.users.0.as_ref()?.limit);
    state.queues.get(path).map(|queue| &queue.limit).or_else(of_user)
}

/// The devices that are guaranteed to a queue, in thousandths: what it says of any device or of models, or what those below it are
/// guaranteed, whichever is more.
pub(super) fn guaranteed_milli(state: &State, path: &str) -> i64 {
    guaranteed_with(state, path, &|path| state.floor_milli(path))
}

/// Likewise, whatever it has used: without what is guaranteed to it because it is behind its pledge.
pub(super) fn always_guaranteed_milli(state: &State, path: &str) -> i64 {
    guaranteed_with(state, path, &|_| 0)
}

fn guaranteed_with(state: &State, path: &str, floor_milli: &dyn Fn(&str) -> i64) -> i64 {
    let milli = |amount: Option<&Amount>| match amount {
        None => 0,
        Some(Amount::Finite(milli)) => *milli,
        Some(Amount::Unlimited) => i64::MAX,
    };
    let said = state.queues.get(path).map_or(0, |queue| {
        let models = queue.guarantee.iter().filter(|(resource, _)| matches!(resource, Resource::Model(_)));
        let named = models.fold(0i64, |sum, (_, amount)| sum.saturating_add(milli(Some(amount))));
        milli(queue.guarantee.get(&Resource::Any)).max(named)
    });
    if state.queues.get(path).is_some_and(|queue| queue.nodes.0.is_some()) {
        return there_milli(state, path);
    }
    // A queue that says nothing is guaranteed what is kept for it alone, and what those below it are guaranteed.
    let said = said.saturating_add(reserved_milli(state, path, (said > 0, None)));
    let said = said.max(floor_milli(path));
    let children = right_below(state, path).map(|queue| guaranteed_with(state, queue, floor_milli));
    said.max(children.fold(0, i64::saturating_add))
}

/// The models of which anything is guaranteed to any queue.
pub(super) fn models_guaranteed(state: &State) -> BTreeSet<Resource> {
    let named = state.queues.values().flat_map(|queue| queue.guarantee.keys());
    named.filter(|resource| matches!(resource, Resource::Model(_))).cloned().collect()
}

/// What is guaranteed to a queue of one model, in thousandths.
pub(super) fn guaranteed_of(state: &State, path: &str, model: &Resource) -> i64 {
    let said = state.queues.get(path).and_then(|queue| queue.guarantee.get(model));
    let kept = || reserved_milli(state, path, (true, Some(model)));
    let said = match said {
        None => 0,
        Some(Amount::Finite(milli)) => milli.saturating_add(kept()),
        Some(Amount::Unlimited) => i64::MAX,
    };
    let below = right_below(state, path).map(|queue| guaranteed_of(state, queue, model));
    said.max(below.fold(0, i64::saturating_add))
}

/// The queues right below one.
pub(super) fn right_below<'a>(state: &'a State, path: &'a str) -> impl Iterator<Item = &'a String> {
    let is_next = move |queue: &&String| {
        let mut above = lineage(queue).skip(1);
        above.find(|above| state.queues.contains_key(*above) || *above == path) == Some(path)
    };
    state.queues.keys().filter(is_next)
}

/// The devices that a queue keeps for itself and those below it, in thousandths: what is guaranteed to it, without what those below it
/// keep and what it lends; plus what those below it keep. Nodes that are kept for a queue are lent to no other.
pub(super) fn kept_milli(state: &State, path: &str) -> i64 {
    let below = right_below(state, path).map(|queue| kept_milli(state, queue)).fold(0, i64::saturating_add);
    let own = guaranteed_milli(state, path).saturating_sub(below);
    let known = state.queues.get(path);
    let lent = match known.and_then(|queue| queue.lend.get(&Resource::Any)) {
        _ if known.is_some_and(|queue| queue.nodes.0.is_some()) => 0,
        Some(Amount::Finite(lent)) => *lent,
        Some(Amount::Unlimited) | None => i64::MAX,
    };
    own.saturating_sub(lent).max(0).saturating_add(below)
}

/// Likewise of one model. What it lends of all models it lends of each at most.
pub(super) fn kept_of(state: &State, path: &str, model: &Resource) -> i64 {
    let below =
        right_below(state, path).map(|queue| kept_of(state, queue, model)).fold(0, i64::saturating_add);
    let own = guaranteed_of(state, path, model).saturating_sub(below);
    let lends = |resource: &Resource| match state.queues.get(path).and_then(|queue| queue.lend.get(resource))
    {
        Some(Amount::Finite(lent)) => *lent,
        Some(Amount::Unlimited) | None => i64::MAX,
    };
    let lent = lends(model).min(lends(&Resource::Any));
    own.saturating_sub(lent).max(0).saturating_add(below)
}

/// The devices kept now on the calendar for a queue, and perhaps for those below it, in thousandths: of one model, or of all.
fn reserved_milli(state: &State, path: &str, (with_below, model): (bool, Option<&Resource>)) -> i64 {
    let is_of = |device: &Device| match model {
        Some(Resource::Model(model)) => device.spec.model == *model,
        Some(_) => false,
        None => true,
    };
    let is_meant = |queue: &str| queue == path || with_below && queue.starts_with(&format!("{path}/"));
    let mut milli = 0;
    for kept in state.reservations.iter().filter(|kept| kept.began) {
        let Purpose::Queue(queue) = &kept.purpose else { continue };
        if !is_meant(queue) || home(state, queue).is_some() {
            continue;
        }
        for (id, device) in &state.devices {
            if owner(state, device.node).is_some() || !is_of(device) {
                continue;
            }
            let has = |part: &Part| {
                part.node == device.node && (part.devices.is_empty() || part.devices.contains(id))
            };
            milli += if kept.parts.iter().any(has) { 1000 } else { 0 };
        }
    }
    milli
}

/// The reservation that has begun and keeps a job off what a placement draws on, if there is one.
pub(super) fn keeps_from(state: &State, job: JobId, placement: &Placement) -> Option<u64> {
    let queue = state.jobs.get(&job.number).map(|job| job.spec.queue.as_str()).unwrap_or_default();
    let draws = |part: &Part| match part.devices.is_empty() {
        true => part.node == placement.node,
        false => placement.devices.iter().any(|(device, _)| part.devices.contains(device)),
    };
    let is_for = |kept: &Reservation| match &kept.purpose {
        Purpose::Maintenance => false,
        Purpose::Queue(of) => queue == of || queue.starts_with(&format!("{of}/")),
    };
    let mut begun = state.reservations.iter().filter(|kept| kept.began);
    begun.find(|kept| !is_for(kept) && kept.parts.iter().any(draws)).map(|kept| kept.id)
}

/// The devices, in thousandths, of nodes kept for a queue that can be given out or are held: a drained one still belongs to its holder.
fn there_milli(state: &State, path: &str) -> i64 {
    let is_there = |id| state.nodes.get(&id).is_some_and(|node| node.state != NodeState::Gone);
    let counts = |(id, device): &(&DeviceId, &Device)| {
        let works = device.health == Health::Ok && device.occupant.is_none();
        let takes_none = || state.is_drained(**id) || !state.takes_tasks(device.node);
        let is_idle = || takes_none() && state.draws_on(**id).next().is_none();
        works && is_there(device.node) && owner(state, device.node) == Some(path) && !is_idle()
    };
    state.devices.iter().filter(counts).map(|_| 1000).sum()
}

fn is_of(nodes: &Nodes, node: &NodeSpec) -> bool {
    match nodes {
        Nodes::Named(names) => names.contains(&node.name),
        Nodes::Labelled(labels) => {
            labels.iter().all(|(name, value)| node.face.labels.get(name).is_some_and(|has| has == value))
        }
    }
}

/// The queue for which a node is kept, if it is: by name rather than by its labels.
fn owner(state: &State, node: NodeId) -> Option<&str> {
    let node = &state.nodes.get(&node)?.spec;
    let of = |by_name: bool| {
        let mut says = state.queues.values().filter_map(|queue| Some((queue, queue.nodes.0.as_ref()?)));
        let found = says.find(|(_, nodes)| matches!(nodes, Nodes::Named(_)) == by_name && is_of(nodes, node));
        found.map(|(queue, _)| queue.path.as_str())
    };
    of(true).or_else(|| of(false))
}

/// The queue to whose nodes jobs of a queue are kept, if they are.
fn home<'q>(state: &State, queue: &'q str) -> Option<&'q str> {
    lineage(queue).find(|path| state.queues.get(*path).is_some_and(|queue| queue.nodes.0.is_some()))
}

/// Whether a job lies on nodes that it may use: those of its queue or, where that has none, those kept for no queue.
pub(super) fn lies_at_home(state: &State, job: JobId, placement: &Placement) -> bool {
    let queue = state.jobs.get(&job.number).map(|job| job.spec.queue.as_str()).unwrap_or_default();
    home(state, queue) == owner(state, placement.node)
}

/// Whether a task of a job lies on the nodes to which jobs of a queue are kept, though the job is none of these.
pub(super) fn is_strange(state: &State, job: JobId, to: &str) -> bool {
    let Some(own) = home(state, to) else { return false };
    let queue = state.jobs.get(&job.number).map(|job| job.spec.queue.as_str()).unwrap_or_default();
    let live = state.run(job).map(|run| run.live.as_slice()).unwrap_or_default();
    let held = live.iter().filter_map(|id| state.allocations.get(id));
    home(state, queue) != Some(own)
        && held.into_iter().any(|held| owner(state, held.placement.node) == Some(own))
}
