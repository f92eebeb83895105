//! Part of phase 1, share: whether what a queue asks for is guaranteed to it.

use super::{ANY, Amounts, POOL, QueueShare, Shares};
use crate::snapshot::ClassView;

impl Shares {
    /// Whether a queue that takes so much stays within its guarantee.
    pub(crate) fn guarantees_it(&self, place: usize, asked: &Amounts) -> bool {
        self.guarantees_to((place, place), asked)
    }

    /// Whether a queue stays within its guarantee if one below it (or it itself) takes so much.
    pub(in crate::plan) fn guarantees_to(&self, (queue, level): (usize, usize), asked: &Amounts) -> bool {
        level != POOL
            && (self.stays_guaranteed((queue, level), asked) || self.guarantees_models((queue, level), asked))
    }

    /// Whether it does so for a job of a class by any of its alternatives.
    pub(in crate::plan) fn guarantees_any(&self, place: usize, class: &ClassView) -> bool {
        let ways = if class.example.gang.has_alternatives() { class.ways().len() } else { 1 };
        let by = |number| self.guarantees_it(place, &self.asked_by(&class.example, number));
        self.guarantees_it(place, &class.asked) || (1..ways).any(by)
    }

    /// Whether it does so by the part of its guarantee that stands whatever it has used.
    pub(crate) fn guarantees_it_always(&self, place: usize, asked: &Amounts) -> bool {
        let steady = |queue: &QueueShare| {
            queue.held[ANY].saturating_add(asked[ANY]) <= queue.steady_milli
                || self.guarantees_models((place, place), asked)
        };
        self.guarantees_it(place, asked) && steady(&self.queues[place])
    }
}
