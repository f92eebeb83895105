//! Who waits in which queue, and what they could use together: a cycle adds up queues, however many classes wait in them.

use std::collections::BTreeSet;

use super::ClassView;
use crate::id::ClassId;

/// The classes that wait in one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct InQueue {
    pub(crate) classes: BTreeSet<ClassId>,
    /// Of each resource that is divided, what those could use who ask for no devices, and what those could who do. The sums are exact:
    /// what is taken off is what was added.
    wanted: Vec<[i128; 2]>,
}

impl InQueue {
    /// What its jobs could use; where its budget is used up, those of them that ask for no devices.
    pub(crate) fn wanted(&self, is_spent: bool) -> impl Iterator<Item = i64> {
        let sum = move |[without, with]: &[i128; 2]| if is_spent { *without } else { without + with };
        self.wanted.iter().map(move |wanted| i64::try_from(sum(wanted)).unwrap_or(i64::MAX))
    }

    /// Counts so many more runs of a class, or fewer.
    pub(super) fn count(&mut self, class: &ClassView, runs: i64) {
        self.wanted.resize(class.wanted.len(), [0; 2]);
        let of_devices = usize::from(class.milli > 0);
        for (sum, wanted) in self.wanted.iter_mut().zip(&class.wanted) {
            sum[of_devices] += i128::from(*wanted) * i128::from(runs);
        }
    }
}
