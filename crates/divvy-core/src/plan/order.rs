//! Phase 2, order: the waiting jobs of all classes as one line, by their keys; ties end on the submit number.

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::id::ClassId;
use crate::snapshot::{ClassView, OrderKey, Waiting};

/// The heads of all classes, merged: a line from which the first is taken. A class whose head cannot start does not come back.
pub(super) struct Line {
    heads: BTreeSet<(OrderKey, ClassId)>,
}

impl Line {
    pub(super) fn new(waiting: &Waiting) -> Self {
        let head = |(class, view): (&ClassId, &ClassView)| view.jobs.first().map(|key| (*key, *class));
        Self { heads: waiting.classes.iter().filter_map(head).collect() }
    }

    /// Takes the next job and its class out of the line.
    pub(super) fn take(&mut self) -> Option<(OrderKey, ClassId)> {
        self.heads.pop_first()
    }

    /// Lets the job behind this one in its class into the line.
    pub(super) fn admit_next(&mut self, waiting: &Waiting, class: ClassId, behind: OrderKey) {
        let Some(view) = waiting.classes.get(&class) else { return };
        let next = view.jobs.range((Bound::Excluded(behind), Bound::Unbounded)).next();
        self.heads.extend(next.map(|key| (*key, class)));
    }
}
