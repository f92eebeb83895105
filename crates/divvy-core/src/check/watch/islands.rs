//! Tasks whose devices must lie within one island of a node get such devices with their places: computed from what the
//! devices say of themselves, link by link.

use std::collections::BTreeSet;

use super::{Found, found};
use crate::event::Event;
use crate::id::{DeviceId, JobId};
use crate::model::allocation::Placement;
use crate::model::island::IslandLevel;
use crate::state::State;

/// Looks at what an event gives.
pub(super) fn look(state: &State, event: &Event, wrong: &mut Found) {
    let (job, placements): (JobId, &[Placement]) = match event {
        Event::Placed { job, placements, .. } | Event::Grown { job, placements } => (*job, placements),
        Event::Promised(promise) => (promise.job, &promise.placements),
        _ => return,
    };
    for placement in placements {
        let Some((level, count)) = level(state, job, placement) else { continue };
        if !are_together(state, level, (placement, count)) {
            let text = format!("the devices of task {} of job {job} lie in several {level}", placement.rank);
            wrong.push(found("topology", text));
        }
    }
}

/// The level that the devices of a task must share, and how many of them: a task that has its node for itself gets others beside those
/// that it asked for, which come first.
fn level(state: &State, job: JobId, placement: &Placement) -> Option<(IslandLevel, usize)> {
    let spec = &state.jobs.get(&job.number)?.spec;
    let (role, _) = spec.gang.role_of(placement.rank)?;
    let ask = role.ask.alternatives.get(placement.alternative as usize)?.devices.as_ref()?;
    Some((ask.required_island()?, if spec.exclusive { ask.count as usize } else { usize::MAX }))
}

fn are_together(state: &State, level: IslandLevel, (placement, count): (&Placement, usize)) -> bool {
    let ids: BTreeSet<DeviceId> = placement.devices.iter().take(count).map(|(id, _)| *id).collect();
    match level {
        IslandLevel::Nvlink => ids.first().is_none_or(|first| ids.is_subset(&reached(state, *first))),
        IslandLevel::Numa => {
            let node = state.nodes.get(&placement.node);
            let only = node.filter(|node| node.spec.numa.len() == 1).map(|_| 0);
            let of = |id: &DeviceId| state.devices.get(id)?.spec.numa.or(only);
            let known: BTreeSet<Option<u32>> = ids.iter().map(of).collect();
            known.len() == 1 && !known.contains(&None)
        }
    }
}

/// All devices that links reach from one, over however many others of its node.
fn reached(state: &State, first: DeviceId) -> BTreeSet<DeviceId> {
    let Some(node) = state.devices.get(&first).map(|device| device.node) else { return BTreeSet::new() };
    let here = || state.devices.iter().filter(|(_, device)| device.node == node);
    let mut reached = BTreeSet::from([first]);
    loop {
        let ends: BTreeSet<&str> = here()
            .filter(|(id, _)| reached.contains(id))
            .flat_map(|(_, device)| &device.spec.links)
            .map(|link| link.uuid.as_str())
            .collect();
        let own: BTreeSet<&str> =
            here().filter(|(id, _)| reached.contains(id)).map(|(_, it)| it.spec.uuid.as_str()).collect();
        let leads = |device: &crate::state::Device| {
            ends.contains(device.spec.uuid.as_str())
                || device.spec.links.iter().any(|link| own.contains(link.uuid.as_str()))
        };
        let more: BTreeSet<DeviceId> =
            here().filter(|(id, device)| !reached.contains(id) && leads(device)).map(|(id, _)| *id).collect();
        if more.is_empty() {
            return reached;
        }
        reached.extend(more);
    }
}
