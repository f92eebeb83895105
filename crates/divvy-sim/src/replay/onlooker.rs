//! Onlookers, who watch while a trace is replayed.

use divvy_core::controller::Broken;
use divvy_core::state::State;
use divvy_core::time::Time;

use super::Stretch;
use crate::metrics::{Cut, Finished};

/// Watches while a trace is replayed. It is told what happens, when it happens.
pub trait Onlooker {
    /// A job was submitted under a number; nothing was decided about it yet.
    fn arrived(&mut self, _number: u64, _row: usize) {}

    /// A job got its GPUs, for the first time or again.
    fn started(&mut self, _number: u64, _at: Time) {}

    /// A job held its GPUs for a while, and no longer does.
    fn held(&mut self, _stretch: Stretch) {}

    /// A job has ended.
    fn ended(&mut self, _number: u64, _finished: Finished) {}

    /// A job was ended by a time limit before its work was done.
    fn cut(&mut self, _number: u64, _cut: Cut) {}

    /// Everything that has happened by now is known; the decision that follows from it is about to be made.
    fn about_to_decide(&mut self, _state: &State, _now: Time) -> Result<(), Broken> {
        Ok(())
    }
}

/// Ignores everything.
pub(super) struct Nobody;

impl Onlooker for Nobody {}

/// Keeps what has happened, for looking at it afterwards.
pub(super) struct Kept<'o, P> {
    pub(super) onlooker: &'o mut dyn Onlooker,
    pub(super) progress: P,
    pub(super) finished: Vec<Finished>,
    pub(super) cut: Vec<Cut>,
    pub(super) stretches: Vec<Stretch>,
}

impl<P: FnMut(usize)> Onlooker for Kept<'_, P> {
    fn arrived(&mut self, number: u64, row: usize) {
        self.onlooker.arrived(number, row);
    }

    fn started(&mut self, number: u64, at: Time) {
        self.onlooker.started(number, at);
    }

    fn held(&mut self, stretch: Stretch) {
        self.stretches.push(stretch);
    }

    fn ended(&mut self, number: u64, finished: Finished) {
        self.finished.push(finished.clone());
        self.onlooker.ended(number, finished);
        (self.progress)(self.finished.len() + self.cut.len());
    }

    fn cut(&mut self, number: u64, cut: Cut) {
        self.cut.push(cut.clone());
        self.onlooker.cut(number, cut);
        (self.progress)(self.finished.len() + self.cut.len());
    }

    fn about_to_decide(&mut self, state: &State, now: Time) -> Result<(), Broken> {
        self.onlooker.about_to_decide(state, now)
    }
}
