//! Deciding on what tasks from outside the pool hold of a node: it is not given out, and if it is more than the pool left free, the
//! youngest of the pool's own tasks goes.

use std::collections::BTreeSet;

use crate::event::Event;
use crate::id::{AllocationId, DeviceId, JobId, NodeId};
use crate::model::device::{Health, Occupant};
use crate::model::job::Cause;
use crate::model::node::{NodeState, OthersHold};
use crate::state::{Allocation, Device, State};

/// Takes in what tasks from outside the pool hold of a node, as an engine saw it.
pub(super) fn hold(state: &State, name: &str, hold: &OthersHold) -> Vec<Event> {
    let Some((id, node)) = state.node_by_name(name).and_then(|id| Some((id, state.nodes.get(&id)?))) else {
        return Vec::new();
    };
    if node.others == *hold {
        return Vec::new();
    }
    let own = Own::on(state, id);
    let frees = hold.is_less_than(&node.others);
    let mut events = vec![Event::OthersHold { node: id, hold: hold.clone(), frees }];
    let (occupied, news) = occupy(state, id, (hold.devices as usize, &own));
    events.extend(news);
    events.extend(own.too_much(state, id, (hold, &occupied)).into_iter().map(|job| {
        let order = state.jobs.get(&job.number).map(|job| job.spec.notice()).unwrap_or_default();
        Event::Stopping { job, cause: Cause::Crowded, by: None, order, requeue: !is_outside(state, job) }
    }));
    events
}

/// A node that is not there any more.
pub(super) fn gone(state: &State, name: &str) -> Vec<Event> {
    let node = state.node_by_name(name).and_then(|id| Some((id, state.nodes.get(&id)?)));
    let there = node.filter(|(_, node)| node.state != NodeState::Gone);
    let event = |(node, known): (NodeId, &crate::state::Node)| Event::NodeSeen {
        node,
        spec: Box::new(known.spec.clone()),
        state: NodeState::Gone,
    };
    there.map(event).into_iter().collect()
}

/// Whether a job's tasks are run by other means: what is stopped of it comes again by those means, if at all.
fn is_outside(state: &State, job: JobId) -> bool {
    state.jobs.get(&job.number).is_some_and(|job| job.spec.runs_outside())
}

/// What the pool's own tasks hold of a node: the youngest first.
struct Own<'a> {
    tasks: Vec<(AllocationId, &'a Allocation)>,
}

impl<'a> Own<'a> {
    fn on(state: &'a State, node: NodeId) -> Self {
        let here = state.allocations.iter().filter(|(_, held)| held.placement.node == node);
        let mut tasks: Vec<_> = here.map(|(id, held)| (*id, held)).collect();
        tasks.sort_by_key(|(id, held)| std::cmp::Reverse((held.since, *id)));
        Self { tasks }
    }

    fn devices(&self) -> impl Iterator<Item = DeviceId> {
        self.tasks.iter().flat_map(|(_, held)| &held.placement.devices).map(|(device, _)| *device)
    }

    /// The jobs that must go so that the rest fits beside the others: the youngest, and no more than needed. None if the others alone hold
    /// more than there is: then it is not the pool's doing, and stopping jobs would not help.
    fn too_much(
        &self,
        state: &State,
        node: NodeId,
        (others, occupied): (&OthersHold, &BTreeSet<DeviceId>),
    ) -> BTreeSet<JobId> {
        let Some(spec) = state.nodes.get(&node).map(|node| &node.spec) else { return BTreeSet::new() };
        let on_theirs =
            |held: &Allocation| held.placement.devices.iter().any(|(device, _)| occupied.contains(device));
        let mut stays: Vec<&Allocation> = self.tasks.iter().map(|(_, held)| *held).collect();
        let fits = |stays: &[&Allocation]| {
            let sum = |amount: fn(&Allocation) -> i64| stays.iter().map(|held| amount(held)).sum::<i64>();
            let mut extras = others.extras.clone();
            stays.iter().for_each(|held| extras.add(&held.placement.extras, 1));
            sum(|held| held.placement.cpu_milli) + others.cpu_milli <= spec.cpu_milli
                && sum(|held| held.placement.memory_bytes) + others.memory_bytes <= spec.memory_bytes
                && spec
                    .most_tasks
                    .is_none_or(|most| stays.len() as u64 + u64::from(others.tasks) <= most.into())
                && extras.beyond(&spec.extras).is_none()
                && !stays.iter().any(|held| on_theirs(held))
        };
        if !fits(&[]) {
            return BTreeSet::new();
        }
        let mut go = BTreeSet::new();
        // Tasks that are already stopping go before any other has to.
        let leaves = |held: &&Allocation| held.leaves();
        stays.sort_by_key(|held| !leaves(held));
        while !fits(&stays) {
            let held = stays.remove(0);
            if !leaves(&held) {
                go.insert(held.job);
            }
        }
        go
    }
}

/// Chooses the devices that stand for those that others hold: those that did before, then free ones from the last on, then those of the
/// youngest of the pool's own tasks. Returns them, and what is new about any.
fn occupy(state: &State, node: NodeId, (wanted, own): (usize, &Own)) -> (BTreeSet<DeviceId>, Vec<Event>) {
    let works = |device: &Device| device.node == node && device.health == Health::Ok;
    let here = || state.devices.iter().filter(|(_, device)| works(device));
    let theirs = |device: &Device| device.occupant == Some(Occupant::Others);
    let held: Vec<DeviceId> = own.devices().collect();
    let mut order: Vec<(u8, u32, DeviceId)> = Vec::new();
    for (id, device) in here() {
        let rank = match (theirs(device), held.iter().position(|other| other == id)) {
            (true, None) => (0, 0),
            (false, None) => (1, u32::MAX - device.spec.index),
            (_, Some(place)) => (2, place as u32),
        };
        order.push((rank.0, rank.1, *id));
    }
    order.sort_unstable();
    let chosen: BTreeSet<DeviceId> = order.iter().take(wanted).map(|(.., id)| *id).collect();
    let change = |(id, device): (&DeviceId, &Device)| {
        let occupant = chosen.contains(id).then_some(Occupant::Others);
        let news = theirs(device) != occupant.is_some();
        news.then_some(Event::DeviceChanged { device: *id, health: Health::Ok, occupant })
    };
    let news = here().filter_map(change).collect();
    (chosen, news)
}
