//! Which places find room on hosts beside those that leave: these wait for nobody there.

use std::collections::BTreeMap;

use super::trial::{Left, Trial};
use crate::id::NodeId;
use crate::model::allocation::Placement;

/// What hosts from which somebody goes have left for the places of a cycle as long as he is there. Where more is kept aside it is less.
pub(super) struct Room(BTreeMap<NodeId, Left>);

impl Room {
    /// The room beside those that leave, before any of these places takes of it.
    pub(super) fn beside<'a>(
        trial: &Trial,
        leaving: impl Iterator<Item = &'a Placement>,
        places: impl Iterator<Item = &'a Placement>,
    ) -> Self {
        let mut left: BTreeMap<NodeId, Left> = BTreeMap::new();
        for held in leaving {
            let now = || trial.left_on(held.node);
            left.entry(held.node).or_insert_with(now).draw(held, 1);
        }
        for placement in places {
            if let Some(left) = left.get_mut(&placement.node) {
                left.draw(placement, -1);
            }
        }
        Self(left)
    }

    /// Takes what a place needs of these hosts, if all of it is left.
    pub(super) fn take(&mut self, placements: &[Placement]) -> bool {
        let mut needs: BTreeMap<NodeId, Left> = BTreeMap::new();
        for placement in placements.iter().filter(|placement| self.0.contains_key(&placement.node)) {
            if !placement.extras.is_empty() {
                return false;
            }
            needs.entry(placement.node).or_default().draw(placement, -1);
        }
        let fits = needs.iter().all(|(node, need)| self.0.get(node).is_some_and(|left| left.holds(need)));
        if fits {
            for placement in placements {
                self.0.entry(placement.node).and_modify(|left| left.draw(placement, 1));
            }
        }
        fits
    }
}
