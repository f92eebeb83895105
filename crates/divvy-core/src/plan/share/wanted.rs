//! Part of phase 1, share: what queues could use by what waits in them.

use smallvec::smallvec;

use super::{ANY, Amounts, POOL, Shares};
use crate::amount::Resource;
use crate::snapshot::Snapshot;
use crate::state::State;

impl Shares {
    /// Adds what waits, from the leaves up: a parent wants what its children want and may get, each within its limit.
    pub(super) fn note_wanted(&mut self, state: &State, snapshot: &Snapshot) {
        let mut waiting: Vec<Amounts> = vec![smallvec![0; self.resources.len()]; self.queues.len()];
        // In a pool that is new to the planner every job might start.
        let with_left_out = state.is_changed();
        for (place, uses) in snapshot.waiting.uses(with_left_out) {
            let (queue, sums) = (&mut self.queues[place], waiting[place].iter_mut());
            if queue.is_spent {
                let waits = snapshot.waiting.in_queue(place).into_iter();
                let wanted = waits.flat_map(|waits| waits.wanted_without_devices(with_left_out));
                sums.zip(wanted).for_each(|(sum, wanted)| *sum = wanted);
            } else {
                sums.zip(&uses.wanted).for_each(|(sum, wanted)| *sum = *wanted);
                queue.least_wanted_milli = uses.least_milli;
            }
        }
        // Gangs that run want what they may have beyond what they have.
        for id in &snapshot.growing {
            let Some((job, run)) = state.jobs.get(&id.number).zip(state.run(*id)) else { continue };
            let held = self.counted(state, run.placements.iter());
            let place = self.place(job.spec.stand());
            if self.queues[place].is_spent {
                continue;
            }
            // It takes any part of that.
            self.queues[place].least_wanted_milli = 0;
            let more = self.asked_at_most(&job.spec).into_iter().zip(held);
            for (sum, (most, held)) in waiting[place].iter_mut().zip(more) {
                *sum = sum.saturating_add(most.saturating_sub(held).max(0));
            }
        }
        for place in (0..self.queues.len()).rev() {
            let wait = std::mem::take(&mut waiting[place]);
            let queue = &mut self.queues[place];
            let (least, above) = (queue.least_wanted_milli, queue.parent);
            for (resource, wait) in wait.into_iter().enumerate() {
                let (held, mut limit) = (queue.wanted[resource], queue.limit[resource]);
                if let Some(loans) = &self.loans {
                    limit =
                        limit.min(queue.guarantee[resource].saturating_add(loans.borrow(place)[resource]));
                }
                // Less than it holds, where it holds more than it may.
                queue.wanted[resource] = held.saturating_add(wait.min(limit.saturating_sub(held)));
                if resource == ANY {
                    queue.asked_milli = held.saturating_add(wait);
                }
                if place != POOL {
                    let more = queue.wants_above(resource).saturating_sub(held);
                    let parent = &mut waiting[queue.parent][resource];
                    *parent = parent.saturating_add(more);
                }
            }
            let above = &mut self.queues[above].least_wanted_milli;
            *above = least.min(*above);
        }
    }

    /// Counts for its parent what a queue leaves; with −1 takes it out.
    pub(super) fn count_left(&mut self, place: usize, sign: i64) {
        let parent = self.queues[place].parent;
        for index in 0..self.resources.len() {
            let leaves = self.left_idle(place, index);
            self.queues[parent].left_by_children[index] += sign * leaves;
        }
    }

    /// What a queue leaves of the devices that it is to hold, since each job that waits in it asks for more: nobody below it would have
    /// these.
    fn left_idle(&self, place: usize, index: usize) -> i64 {
        let queue = &self.queues[place];
        let is_of_devices = matches!(self.resources[index], Resource::Any | Resource::Model(_));
        let has_room = || queue.held[ANY].saturating_add(queue.least_wanted_milli) <= queue.target[ANY];
        match is_of_devices && queue.target[index] > queue.held[index] && !has_room() {
            true => queue.target[index] - queue.held[index],
            false => 0,
        }
    }

    /// What other children of the queue above leave.
    pub(in crate::plan) fn left_by_siblings(&self, place: usize, index: usize) -> i64 {
        let above = &self.queues[self.queues[place].parent];
        debug_assert_eq!(
            above.left_by_children[index],
            above.children.iter().map(|child| self.left_idle(*child, index)).sum::<i64>()
        );
        above.left_by_children[index] - self.left_idle(place, index)
    }
}
