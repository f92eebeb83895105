//! How much each queue has of what others lend, as the suite measures it: of the resource of which it has most, in thousandths of
//! all that could be had above the queue, by its weight. The amounts are the core's.

use std::collections::{BTreeMap, BTreeSet};

use divvy_core::amount::Resource;
use divvy_core::controller::Controller;

use super::Scene;
use super::form::QueueText;
use crate::suite::answer::{Permille, Share};
use crate::suite::stage::Stage;

impl Scene<'_> {
    /// The share of each queue, from what is in use and from what there would be if nothing were.
    pub(super) fn shares(&self, empty: Stage, used: Stage) -> BTreeSet<Share> {
        let (empty, used) = (Controller::open(empty.state), Controller::open(used.state));
        let share = |text: &QueueText| {
            let borrowed = self.by_resource(&used.borrowed(&self.paths[&text.name]));
            let above = text.parent.as_ref().and_then(|parent| self.paths.get(parent));
            let offered = above.map(|above| self.by_resource(&empty.available(above))).unwrap_or_default();
            let part = |(resource, amount): (&String, &i64)| {
                let all = offered.get(resource).copied().unwrap_or(0);
                (*amount > 0 && all > 0).then_some((*amount, all))
            };
            let parts = borrowed.iter().filter_map(part);
            let permille = parts.map(|part| permille(part, text.fair_weight)).max();
            Share {
                node: text.name.clone(),
                permille: permille.unwrap_or(Permille::Finite(0)),
                borrowing: permille.is_some(),
            }
        };
        self.asked.queues.iter().map(share).collect()
    }

    /// Converts amounts of the core to those of the case, over all flavors.
    fn by_resource(&self, amounts: &BTreeMap<Resource, i64>) -> BTreeMap<String, i64> {
        let mut of: BTreeMap<String, i64> = BTreeMap::new();
        for line in self.quotas.lines(self.asked) {
            let (counted, unit) = self.quotas.counted(&line);
            let amount = amounts.get(&counted).map_or(0, |amount| unit.of(*amount).max(0));
            let all = of.entry(line.1).or_default();
            *all = all.saturating_add(amount);
        }
        of
    }
}

/// A part of a whole in thousandths per unit of weight, rounded up.
fn permille((part, whole): (i64, i64), weight: Option<f64>) -> Permille {
    // Weights have three decimals at most.
    let weight_milli = (weight.unwrap_or(1.0) * 1000.0).round() as i128;
    if weight_milli <= 0 {
        return Permille::Infinite;
    }
    let (above, below) = (i128::from(part) * 1_000_000, i128::from(whole) * weight_milli);
    Permille::Finite(i64::try_from((above + below - 1) / below).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_up_and_divided_by_the_weight() {
        let of = |part, whole, weight| permille((part, whole), weight);
        assert_eq!(of(1, 1500, None), Permille::Finite(1));
        assert_eq!(of(5, 50, Some(2.0)), Permille::Finite(50));
        assert_eq!(of(5, 50, Some(0.5)), Permille::Finite(200));
        assert_eq!(of(5, 50, Some(0.0)), Permille::Infinite);
    }
}
