//! Part of phase 6, consolidate: how many jobs a cycle moves.

use std::collections::BTreeMap;

use crate::model::policy::Policy;
use crate::time::Time;

/// How many looks for moves may be in vain in a cycle: each look goes through all that runs.
const MOST_LOOKS: u32 = 2;

/// How many moves a cycle has left, and how many looks for them.
pub(in crate::plan) struct Budget {
    pub(in crate::plan) moves: u32,
    pub(super) looks: u32,
    /// How many jobs of a queue it moves at most, and how many it has moved.
    per_queue: u32,
    of_queues: BTreeMap<String, u32>,
    /// When a job for which none was moved has waited long enough that a further one may be moved.
    pub(in crate::plan) again: Option<Time>,
}

impl Budget {
    pub(in crate::plan) fn new(policy: &Policy) -> Self {
        let per_queue = policy.moves.said().map_or(u32::MAX, |moves| moves.per_queue);
        let (of_queues, again) = (BTreeMap::new(), None);
        Self { moves: policy.most_moves, looks: MOST_LOOKS, per_queue, of_queues, again }
    }

    /// How many jobs of a queue may still be moved.
    pub(super) fn left_of(&self, queue: &str) -> u32 {
        self.per_queue.saturating_sub(self.of_queues.get(queue).copied().unwrap_or(0))
    }

    /// Whether the bound of a queue may be lower than all that is left.
    pub(super) fn binds_queues(&self) -> bool {
        self.per_queue < self.moves
    }

    /// Whether all these jobs, given by their queues, may be moved.
    pub(super) fn bears<'q>(&self, queues: impl Iterator<Item = &'q str>) -> bool {
        let mut more: BTreeMap<&str, u32> = BTreeMap::new();
        queues.for_each(|queue| *more.entry(queue).or_default() += 1);
        more.values().sum::<u32>() <= self.moves
            && more.into_iter().all(|(queue, more)| more <= self.left_of(queue))
    }

    /// Whether any move may be looked for.
    pub(in crate::plan) fn has_any(&self) -> bool {
        self.moves > 0 && self.looks > 0
    }

    pub(super) fn spend(&mut self, queue: &str) {
        self.moves -= 1;
        *self.of_queues.entry(queue.to_owned()).or_default() += 1;
    }
}
