//! Queues of a life that have nodes of their own.

use std::collections::BTreeSet;

use divvy_core::amount::{Amount, Limits};
use divvy_core::model::newer::Newer;
use divvy_core::model::queue::{Nodes, Queue, lineage};

use super::life::node_name;
use crate::dice::Dice;

/// The first seed whose life may have them: earlier lives stay what they were before such queues existed.
const FIRST_SEED: u64 = 150;

/// The dice that give queues of a life nodes of their own, if any get some.
pub(super) fn dice(seed: u64) -> Option<Dice> {
    (seed >= FIRST_SEED && seed.is_multiple_of(3))
        .then(|| Dice::new(seed.wrapping_mul(0x94d0_49bb_1331_11eb)))
}

/// Keeps some of the nodes for one queue or two, side by side; now and then for none. Some do not exist.
pub(super) fn keep(dice: &mut Dice, queues: &mut [Queue], nodes: u32) {
    let mut left: BTreeSet<u32> = (0..=nodes).collect();
    for _ in 0..dice.below(3) {
        let path = dice.one_of(queues).path.clone();
        let part = |dice: &mut Dice| dice.percent(40);
        let names: BTreeSet<u32> = left.iter().copied().filter(|_| part(dice)).collect();
        let is_near = |other: &Queue| {
            let (one, other) = (path.as_str(), other.path.as_str());
            lineage(one).any(|above| above == other) || lineage(other).any(|above| above == one)
        };
        if names.is_empty() || queues.iter().any(|other| is_near(other) && !other.nodes.is_unsaid()) {
            continue;
        }
        left.retain(|node| !names.contains(node));
        let names = names.into_iter().map(node_name).collect();
        if let Some(queue) = queues.iter_mut().find(|queue| queue.path == path) {
            (queue.guarantee, queue.borrow, queue.pledge) = (Limits::new(), Limits::new(), Newer(None));
            queue.lend = Limits::from([("any".into(), Amount::Finite(0))]);
            queue.nodes = Newer(Some(Nodes::Named(names)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::run;

    #[test]
    fn no_law_is_broken_where_queues_have_nodes_of_their_own() {
        let broken: Vec<_> =
            (150..240).step_by(3).flat_map(|seed| run(seed..seed + 1, 1500, 1).violations).collect();
        assert_eq!(broken, []);
    }
}
