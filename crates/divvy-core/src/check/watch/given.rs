//! What a task is given: an id of its own, and what one of its alternatives says.

use super::{Found, Watch, found};
use crate::id::{AllocationId, DeviceId, JobId};
use crate::model::allocation::Placement;
use crate::model::ask::{DeviceAsk, DeviceClass};
use crate::model::device::{DeviceSpec, Health};
use crate::state::{Device, State};

impl Watch {
    /// No id is given twice (L5).
    pub(super) fn fresh(&mut self, id: AllocationId, wrong: &mut Found) {
        if id <= self.floor || !self.recent.insert(id) {
            wrong.push(found("L5", format!("allocation {id} was given before")));
        }
    }
}

/// Checks that a task got as many devices as the alternative says that it got, of its models and with such memory (L4). Where an
/// engine does not name devices, none are looked at.
pub(super) fn as_asked(
    state: &State,
    (job, placement): (JobId, &Placement),
    promised: bool,
    wrong: &mut Found,
) {
    let asked = state.jobs.get(&job.number).and_then(|job| {
        let (role, _) = job.spec.gang.role_of(placement.rank)?;
        role.ask.alternatives.get(placement.alternative as usize)
    });
    let Some(asked) = asked else {
        wrong.push(found("L4", format!("job {job} got what none of its alternatives says")));
        return;
    };
    if state.jobs.get(&job.number).is_some_and(|job| job.spec.exclusive) {
        return all_of_the_node(state, (job, placement), (asked.devices.as_ref(), promised), wrong);
    }
    let count = asked.devices.as_ref().map_or(0, |ask| ask.count as usize);
    let is_other = |device| {
        let known = asked.devices.as_ref().zip(state.devices.get(device));
        known.is_some_and(|(ask, device)| is_other(&ask.class, &device.spec))
    };
    let others = placement.devices.iter().filter(|(device, _)| is_other(device)).count();
    let held = placement.devices.len();
    if held > 0 && held != count || others > 0 {
        let text = format!(
            "job {job} got {held} devices, {others} of them others than it takes, and asked for {count}"
        );
        wrong.push(found("L4", text));
    }
}

/// Checks that a task that wants its node for itself got as many devices as it asked for, and was charged for all that work (L4).
fn all_of_the_node(
    state: &State,
    (job, placement): (JobId, &Placement),
    (ask, promised): (Option<&DeviceAsk>, bool),
    wrong: &mut Found,
) {
    let has = |id: &DeviceId| placement.devices.iter().any(|(device, _)| device == id);
    let of_node = || state.devices.iter().filter(|(_, device)| device.node == placement.node);
    let will_do = ask.map_or(0, |ask| {
        let own = of_node().filter(|(id, device)| has(id) && !is_other(&ask.class, &device.spec));
        own.count()
    });
    let count = ask.map_or(0, |ask| ask.count as usize);
    let works = |(id, device): &(&DeviceId, &Device)| {
        device.health == Health::Ok && device.occupant.is_none() && !state.is_drained(**id)
    };
    // What was repaired since a promise was made is no part of it.
    let left_out = of_node().filter(|of| !promised && works(of) && !has(of.0)).count();
    if will_do < count || left_out > 0 {
        let text = format!(
            "job {job} wants its node for itself, got {will_do} of the {count} devices that it asked for, and {left_out} are charged to nobody"
        );
        wrong.push(found("L4", text));
    }
}

/// Whether a device is not of a class.
pub(super) fn is_other(class: &DeviceClass, device: &DeviceSpec) -> bool {
    let gb = device.nominal_gb.map_or(device.memory_mib.div_ceil(1024), u64::from);
    let gb_s = device.bandwidth_gb_s.0.unwrap_or(0);
    !class.models.is_empty() && !class.models.contains(&device.model)
        || class.least_gb.is_some_and(|least| gb < u64::from(least))
        || class.most_gb.is_some_and(|most| gb > u64::from(most))
        || class.least_memory_mib.is_some_and(|least| device.memory_mib < least)
        || class.least_gb_s.0.is_some_and(|least| gb_s < least)
}
