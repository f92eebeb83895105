//! Which classes wait in which queue, and what they could use together: a cycle adds up queues, however many classes wait in them.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use super::ClassView;
use crate::id::ClassId;
use crate::model::models::{ByModels, Models};

/// The classes that wait in one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct InQueue {
    pub(crate) classes: BTreeSet<ClassId>,
    /// Of each resource that is divided, what its jobs could use. The sums are exact: what is taken off is what was added.
    wanted: Vec<Wanted>,
    /// The part of that of devices for which none but some models will do. The second is that of jobs that could not start in an idle pool.
    bound: ByModels<[i128; 2]>,
    /// How many runs ask for so many thousandths of devices at least. The second is that of jobs that could not start in an idle pool.
    sizes: BTreeMap<i64, [i64; 2]>,
}

/// What jobs could use of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Wanted {
    /// By jobs that ask for no devices.
    without: i128,
    /// By jobs that do.
    with: i128,
    /// By jobs of both kinds that could not start in an idle pool when they were last judged.
    left_out: [i128; 2],
}

impl Wanted {
    fn without_devices(&self, with_left_out: bool) -> i64 {
        bounded(self.without + if with_left_out { self.left_out[0] } else { 0 })
    }

    fn of_all(&self, with_left_out: bool) -> i64 {
        let left_out = if with_left_out { self.left_out[0] + self.left_out[1] } else { 0 };
        bounded(self.without + self.with + left_out)
    }
}

fn bounded(sum: i128) -> i64 {
    i64::try_from(sum).unwrap_or(i64::MAX)
}

/// What the jobs that wait in a queue could use together, with or without those that could not start in an idle pool when they were last
/// judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Uses {
    /// Of each resource that is divided.
    pub(crate) wanted: SmallVec<[i64; 3]>,
    /// What of devices, in thousandths, none but some models will do for.
    pub(crate) bound: ByModels<i64>,
    /// The least that any of them asks for, in thousandths of devices; without bound where none asks for devices.
    pub(crate) least_milli: i64,
}

impl Default for Uses {
    fn default() -> Self {
        Self { wanted: SmallVec::new(), bound: ByModels::default(), least_milli: i64::MAX }
    }
}

impl Uses {
    /// What of each set of models only its jobs could use, in thousandths of devices.
    pub(crate) fn bound(&self) -> impl Iterator<Item = (&Models, i64)> {
        self.bound.iter().map(|(models, milli)| (models, *milli))
    }
}

impl InQueue {
    /// What its jobs could use.
    pub(super) fn uses(&self, with_left_out: bool) -> Uses {
        let least =
            self.sizes.iter().find(|(_, [counts, left_out])| *counts > 0 || with_left_out && *left_out > 0);
        let mut bound = ByModels::default();
        for (models, [counts, left_out]) in self.bound.iter() {
            let sum = if with_left_out { counts + left_out } else { *counts };
            bound.change(models, |milli| *milli = bounded(sum));
        }
        Uses {
            wanted: self.wanted.iter().map(|wanted| wanted.of_all(with_left_out)).collect(),
            bound,
            least_milli: least.map_or(i64::MAX, |(milli, _)| *milli),
        }
    }

    /// What its jobs could use of each resource that ask for no devices.
    pub(crate) fn wanted_without_devices(&self, with_left_out: bool) -> impl Iterator<Item = i64> {
        self.wanted.iter().map(move |wanted| wanted.without_devices(with_left_out))
    }

    /// Counts so many more runs of a class, or fewer.
    pub(super) fn count(&mut self, class: &ClassView, runs: i64) {
        self.wanted.resize_with(class.wanted.len(), Wanted::default);
        for (sum, wanted) in self.wanted.iter_mut().zip(&class.wanted) {
            let sum = match (class.is_left_out, class.milli > 0) {
                (false, false) => &mut sum.without,
                (false, true) => &mut sum.with,
                (true, with) => &mut sum.left_out[usize::from(with)],
            };
            *sum += i128::from(*wanted) * i128::from(runs);
        }
        if class.milli > 0 {
            let least_milli = class.example.least_milli();
            let sizes = self.sizes.entry(least_milli).or_default();
            sizes[usize::from(class.is_left_out)] += runs;
            if *sizes == [0, 0] {
                self.sizes.remove(&least_milli);
            }
        }
        for (models, milli) in &class.bound {
            let more = i128::from(*milli) * i128::from(runs);
            self.bound.change(models, |sums| sums[usize::from(class.is_left_out)] += more);
        }
    }
}
