//! What a task is given: an id of its own, and what one of the ways that it asks for says.

use super::{Found, Watch, found};
use crate::id::{AllocationId, JobId};
use crate::model::allocation::Placement;
use crate::state::State;

impl Watch {
    /// No id is given twice (L5).
    pub(super) fn fresh(&mut self, id: AllocationId, wrong: &mut Found) {
        if id <= self.floor || !self.recent.insert(id) {
            wrong.push(found("L5", format!("allocation {id} was given before")));
        }
    }
}

/// Whether a task got as many devices as the alternative says that it got, and of its models (L4). Where an engine does not name
/// devices, none are looked at.
pub(super) fn as_asked(state: &State, (job, placement): (JobId, &Placement), wrong: &mut Found) {
    let asked = state.jobs.get(&job.number).and_then(|job| {
        let (role, _) = job.spec.gang.role_of(placement.rank)?;
        role.ask.alternatives.get(placement.alternative as usize)
    });
    let Some(asked) = asked else {
        wrong.push(found("L4", format!("job {job} got what none of its alternatives says")));
        return;
    };
    let (count, models) =
        asked.devices.as_ref().map_or((0, &[][..]), |ask| (ask.count as usize, &ask.class.models));
    let is_other = |device| {
        let known = state.devices.get(device);
        !models.is_empty() && known.is_some_and(|device| !models.contains(&device.spec.model))
    };
    let others = placement.devices.iter().filter(|(device, _)| is_other(device)).count();
    let held = placement.devices.len();
    if held > 0 && held != count || others > 0 {
        let text = format!("job {job} got {held} devices, {others} of other models, and asked for {count}");
        wrong.push(found("L4", text));
    }
}
