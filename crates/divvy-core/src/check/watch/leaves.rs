//! The books of what is on its way out.

use super::*;

impl Watch {
    /// Notes in the books which models a job that moves has no longer, once.
    pub(super) fn move_out(&mut self, live: &[AllocationId]) {
        for id in live.iter().filter(|id| !self.leaving.contains(*id) && !self.moving_out.contains(*id)) {
            let Some(hold) = self.holds.get(id) else { continue };
            count(&mut self.leaves, &hold.stand, &of_models(&hold.counted), 1);
        }
        self.moving_out.extend(live.iter().filter(|id| !self.leaving.contains(*id)));
    }

    /// Takes that back.
    pub(super) fn moved_out(&mut self, id: AllocationId) {
        let was_noted = self.moving_out.remove(&id);
        if let Some(hold) = self.holds.get(&id).filter(|_| was_noted) {
            count(&mut self.leaves, &hold.stand, &of_models(&hold.counted), -1);
        }
    }

    /// Notes that a job which was to move has no other place any more: what it is being stopped on, its queue loses.
    pub(super) fn moves_no_more(&mut self, state: &State, job: JobId) {
        let live = state.run(job).map(|run| run.live.as_slice()).unwrap_or_default();
        let moves: Vec<_> = live.iter().filter(|id| self.moving_out.contains(*id)).copied().collect();
        self.leave(&moves);
    }

    /// Notes in the books of the queues what is on its way out, once.
    pub(super) fn leave(&mut self, live: &[AllocationId]) {
        for id in live.iter().filter(|id| !self.leaving.contains(*id)).copied().collect::<Vec<_>>() {
            self.moved_out(id);
            let Some(hold) = self.holds.get(&id) else { continue };
            count(&mut self.leaves, &hold.stand, &hold.counted, 1);
        }
        self.leaving.extend(live);
    }
}

fn of_models(counted: &[(Resource, i64)]) -> Vec<(Resource, i64)> {
    counted.iter().filter(|(resource, _)| matches!(resource, Resource::Model(_))).cloned().collect()
}
