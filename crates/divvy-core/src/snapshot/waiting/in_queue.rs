//! Which classes wait in which queue, and what they could use together: a cycle adds up queues, however many classes wait in them.

use std::collections::{BTreeMap, BTreeSet};

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

/// Which jobs count among those that could use something.
#[derive(Clone, Copy)]
pub(crate) struct Counts {
    /// Those that ask for devices.
    pub(crate) with_devices: bool,
    /// Those that could not start in an idle pool when they were last judged.
    pub(crate) left_out: bool,
}

impl InQueue {
    /// What its jobs could use of each resource.
    pub(crate) fn wanted(&self, who: Counts) -> impl Iterator<Item = i64> {
        let sum = move |wanted: &Wanted| {
            let [without, with] = if who.left_out { wanted.left_out } else { [0, 0] };
            let with = if who.with_devices { wanted.with + with } else { 0 };
            wanted.without + without + with
        };
        self.wanted.iter().map(move |wanted| i64::try_from(sum(wanted)).unwrap_or(i64::MAX))
    }

    /// What its jobs could use for which none but some models will do, in thousandths of devices.
    pub(crate) fn bound(&self, with_left_out: bool) -> impl Iterator<Item = (&Models, i64)> {
        let of =
            move |[counts, left_out]: &[i128; 2]| if with_left_out { counts + left_out } else { *counts };
        self.bound.iter().map(move |(models, sums)| (models, i64::try_from(of(sums)).unwrap_or(i64::MAX)))
    }

    /// The least that any of its jobs asks for, in thousandths of devices; nothing where none counts that asks for devices.
    pub(crate) fn least(&self, who: Counts) -> Option<i64> {
        let counts = |[counts, left_out]: &[i64; 2]| *counts > 0 || who.left_out && *left_out > 0;
        let mut sizes = self.sizes.iter().filter(|(_, runs)| who.with_devices && counts(runs));
        sizes.next().map(|(milli, _)| *milli)
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
