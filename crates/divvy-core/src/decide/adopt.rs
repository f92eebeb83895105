//! Deciding on what already runs when a term begins: it becomes a job that holds what it has.

use super::{Adopt, Rejection, submit, what_there_is};
use crate::amount::Resource;
use crate::event::Event;
use crate::id::{AllocationId, DeviceId, JobId};
use crate::model::allocation::Placement;
use crate::model::ask::{Alternative, DeviceAsk};
use crate::model::device::{Draw, WHOLE_MILLI};
use crate::reason::Reason;
use crate::snapshot::{Capacity, NodeView};
use crate::state::State;

/// Turns what already runs into a job with its devices. If devices have no names, any free ones of its node stand for those that it has.
/// What does not fit beside what is already held is refused: the laws hold from the first event on.
pub(crate) fn adopt(state: &State, capacity: &Capacity, adopt: &Adopt) -> Result<Vec<Event>, Rejection> {
    let submitted = submit::taken_over(state, &adopt.submit)?;
    let gang = &adopt.submit.spec.gang;
    let mut placements: Vec<Placement> = Vec::new();
    for (rank, name) in (0..).zip(&adopt.nodes) {
        let place = state.node_by_name(name).and_then(|id| capacity.node_place(id));
        let node = &capacity.nodes[place.ok_or_else(|| Rejection::NoSuchNode(name.clone()))?];
        let asked = gang.role_of(rank).and_then(|(role, _)| role.ask.alternatives.first());
        let Some(alternative) = asked else {
            let what = format!("it has {} tasks, and no role for the last", adopt.nodes.len());
            return Err(Rejection::BadSpec { field: "tasks", what });
        };
        let allocation = AllocationId(state.next_allocation.0 + u64::from(rank));
        let placement = on(node, alternative, (allocation, rank), &placements);
        let lacks = |reason| Rejection::CannotFit { reason, there: what_there_is(state) };
        placements.push(placement.map_err(lacks)?);
    }
    let job = JobId::single(state.next_job);
    Ok(submitted.into_iter().chain([Event::Adopted { job, placements, since: adopt.since }]).collect())
}

/// What a task holds of its node, beside the tasks before it.
fn on(
    node: &NodeView,
    alternative: &Alternative,
    (allocation, rank): (AllocationId, u32),
    before: &[Placement],
) -> Result<Placement, Reason> {
    let here = || before.iter().filter(|placement| placement.node == node.id);
    let devices = alternative.devices.as_ref().map_or(Ok(Vec::new()), |ask| {
        let taken: Vec<DeviceId> = here().flat_map(|other| &other.devices).map(|(id, _)| *id).collect();
        devices(node, ask, &taken)
    })?;
    let cpu_milli = alternative.cpu_milli.unwrap_or(0);
    let memory_bytes = alternative.memory_bytes.unwrap_or(0);
    let held = |amount: fn(&Placement) -> i64| here().map(amount).sum::<i64>();
    if cpu_milli > 0 && cpu_milli + held(|other| other.cpu_milli) > node.cpu_milli.1 {
        return Err(Reason::HostBusy(Resource::Cpu, cpu_milli));
    }
    if memory_bytes > 0 && memory_bytes + held(|other| other.memory_bytes) > node.memory_bytes.1 {
        return Err(Reason::HostBusy(Resource::Memory, memory_bytes));
    }
    if node.most_tasks.1 <= here().count() as i64 {
        return Err(Reason::HostBusy(Resource::Pods, 1));
    }
    let mut extras = alternative.extras.clone();
    here().for_each(|other| extras.add(&other.extras, 1));
    if let Some((resource, amount)) = extras.beyond(&node.extras.1) {
        return Err(Reason::HostBusy(resource.clone(), amount));
    }
    let extras = alternative.extras.clone();
    Ok(Placement {
        allocation,
        rank,
        node: node.id,
        devices,
        cpu_milli,
        memory_bytes,
        extras,
        alternative: 0,
    })
}

/// The first free devices of a node that are of the class.
fn devices(node: &NodeView, ask: &DeviceAsk, taken: &[DeviceId]) -> Result<Vec<(DeviceId, Draw)>, Reason> {
    let free = node.devices.iter().filter(|device| {
        device.is_free() && ask.class.takes_model(&device.spec) && !taken.contains(&device.id)
    });
    let whole = |memory_mib| Draw { milli: WHOLE_MILLI, memory_mib, partition: None };
    let chosen = free.take(ask.count as usize).map(|device| (device.id, whole(device.spec.memory_mib)));
    let chosen: Vec<_> = chosen.collect();
    if chosen.len() == ask.count as usize { Ok(chosen) } else { Err(Reason::DevicesBusy(ask.count)) }
}
