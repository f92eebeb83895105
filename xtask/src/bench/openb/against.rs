//! Divvy's own policy against the fragmentation gradient, on the same orders.

use std::collections::BTreeMap;

use divvy_sim::pack::{Packing, PlacedByClass};
use serde::Serialize;

use super::Outcome;

/// For each class of tasks, the part of what the gradient places that has to be placed at least.
const LEAST_OF_CLASS: f64 = 0.9;
/// Classes of tasks with GPUs, by their number of GPUs.
const CLASSES: [&str; 5] = ["share", "1", "2", "4", "8"];

/// What was found on the orders of one trace.
#[derive(Serialize)]
pub(super) struct Against {
    pub(super) trace: String,
    pub(super) orders: usize,
    /// Allocated at the end, in percent: the mean over the orders.
    pub(super) allocated_percent: f64,
    /// Percentage points above the gradient, on average and on the worst order.
    pub(super) mean_gain: f64,
    pub(super) least_gain: f64,
    /// Placed over all orders by class, here and by the gradient.
    pub(super) placed: [(u64, u64); 5],
    /// The smallest part of what the gradient places of a class, on any order, and that class.
    pub(super) least_of_class: f64,
    pub(super) of_class: String,
}

/// One row per trace with orders on which both were run.
pub(super) fn by_trace(outcomes: &[Outcome]) -> Vec<Against> {
    let mut pairs: BTreeMap<&str, Vec<(&Outcome, &Outcome)>> = BTreeMap::new();
    for own in outcomes.iter().filter(|outcome| outcome.experiment.packing == Packing::Divvy) {
        let same = |other: &&Outcome| {
            let (own, other) = (&own.experiment, &other.experiment);
            (&own.trace, own.seed, Packing::Fgd) == (&other.trace, other.seed, other.packing)
        };
        if let Some(gradient) = outcomes.iter().find(same) {
            pairs.entry(&own.experiment.trace).or_default().push((own, gradient));
        }
    }
    pairs.into_iter().map(|(trace, pairs)| against(trace, &pairs)).collect()
}

impl Against {
    /// Whether it is better on every order, and no class pays for that.
    pub(super) fn is_better(&self) -> bool {
        self.least_gain > 0.0 && self.least_of_class >= LEAST_OF_CLASS
    }

    /// The headings of [`Self::cells`].
    pub(super) fn head() -> Vec<String> {
        let first = ["trace", "orders", "allocated", "gain", "least gain", "least of a class"];
        let classes = CLASSES.map(|class| format!("{class} GPU"));
        first.map(String::from).into_iter().chain(classes).collect()
    }

    /// As a row of a table.
    pub(super) fn cells(&self) -> Vec<String> {
        let first = [
            self.trace.clone(),
            self.orders.to_string(),
            format!("{:.2}", self.allocated_percent),
            format!("{:+.2}", self.mean_gain),
            format!("{:+.2}", self.least_gain),
            format!("{:.2} ({})", self.least_of_class, self.of_class),
        ];
        first.into_iter().chain(self.placed.map(|(own, gradient)| format!("{own}/{gradient}"))).collect()
    }
}

fn against(trace: &str, pairs: &[(&Outcome, &Outcome)]) -> Against {
    let end = |outcome: &Outcome| {
        outcome.packed.allocated_percent.iter().rev().flatten().next().copied().unwrap_or(0.0)
    };
    let gains: Vec<f64> = pairs.iter().map(|(own, gradient)| end(own) - end(gradient)).collect();
    let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / pairs.len() as f64;
    let mut placed = [(0, 0); 5];
    let mut least = (f64::INFINITY, "");
    for (own, gradient) in pairs {
        let counts =
            counts(&own.packed.placed_by_class).into_iter().zip(counts(&gradient.packed.placed_by_class));
        for (class, (own, gradient)) in counts.enumerate() {
            placed[class] = (placed[class].0 + own, placed[class].1 + gradient);
            let part = own as f64 / gradient as f64;
            if gradient > 0 && part < least.0 {
                least = (part, CLASSES[class]);
            }
        }
    }
    Against {
        trace: trace.into(),
        orders: pairs.len(),
        allocated_percent: mean(&mut pairs.iter().map(|(own, _)| end(own))),
        mean_gain: mean(&mut gains.iter().copied()),
        least_gain: gains.iter().copied().fold(f64::INFINITY, f64::min),
        placed,
        least_of_class: least.0,
        of_class: least.1.into(),
    }
}

fn counts(placed: &PlacedByClass) -> [u64; 5] {
    [placed.share, placed.one, placed.two, placed.four, placed.eight]
}
