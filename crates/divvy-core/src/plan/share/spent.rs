//! Part of phase 1, share: queues that have used up their budgets. Jobs that wait in them want no devices
//! until the budgets renew, so they take none from what is due to others.

use super::Shares;
use crate::state::State;
use crate::time::Time;

impl Shares {
    /// Marks the queues whose budgets are used up at a moment.
    pub(super) fn note_spent(&mut self, state: &State, now: Time) {
        if state.spending.is_empty() {
            return;
        }
        for queue in state.spent_out(now).into_keys() {
            let place = self.place(queue);
            self.queues[place].is_spent = true;
        }
        // Parents come before their children.
        for place in 1..self.queues.len() {
            self.queues[place].is_spent |= self.queues[self.queues[place].parent].is_spent;
        }
    }
}
