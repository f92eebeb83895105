//! Events after which a part of the snapshot is made anew: the tree of the queues, and where jobs stand in it.

use super::{Snapshot, runs};
use crate::plan::Shares;
use crate::state::State;

impl Snapshot {
    /// Follows a change of the queues: what they hold is counted anew by their tree. The waiting jobs enter it anew where they have
    /// other places there, or ask for other amounts: not where only what is guaranteed has changed.
    pub(super) fn divide_anew(&mut self, state: &State) {
        let before = std::mem::replace(&mut self.shares, Shares::tree(state, &self.capacity));
        self.shares.note(&self.held, &self.leaving, &self.pinned);
        for (path, held) in &self.bound {
            held.iter().for_each(|(models, milli)| self.shares.bind(path, (models, *milli)));
        }
        if !self.shares.seats_alike(&before) {
            self.waiting.rebuild(state, &self.shares);
        }
    }

    /// Follows a change of a job's priority: it waits, and its runs go on, in another place.
    pub(super) fn stand_anew(&mut self, state: &State, number: u64) {
        self.waiting.consider(state, &self.shares, number);
        let runs = state.jobs.get(&number).into_iter().flat_map(runs);
        runs.for_each(|(id, _)| self.running.stand_anew(state, id));
    }

    /// Gives a user who is new to a queue a seat there.
    pub(super) fn seat(&mut self, state: &State, number: u64) {
        let seat = state.jobs.get(&number).and_then(|job| job.spec.seat.said());
        let new = seat.filter(|seat| !self.shares.has(seat));
        if new.is_some_and(|seat| !self.shares.seat_newcomer(state, seat)) {
            self.divide_anew(state);
        }
    }
}
