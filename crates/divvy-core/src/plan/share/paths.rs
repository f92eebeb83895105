//! Part of phase 1, share: where queues stand, by their paths.

use std::cmp::Ordering;
use std::collections::btree_map;
use std::iter::Peekable;

use super::{POOL, Shares};
use crate::model::queue::{lineage, user_at};

impl Shares {
    /// The place of a queue, or of the nearest one above it.
    pub(crate) fn place(&self, path: &str) -> usize {
        lineage(path).find_map(|path| self.by_path.get(path).copied()).unwrap_or(POOL)
    }

    /// Whether every queue has the same place as in another tree, and jobs ask for the same amounts.
    pub(crate) fn seats_alike(&self, other: &Self) -> bool {
        (&self.resources, &self.by_path, &self.sizes) == (&other.resources, &other.by_path, &other.sizes)
    }

    /// All queues, by path, with their places.
    pub(in crate::plan) fn paths(&self) -> impl Iterator<Item = (&str, usize)> {
        self.by_path.iter().map(|(path, place)| (path.as_str(), *place))
    }

    /// The places of paths that are asked for in their order.
    pub(in crate::plan) fn in_order(&self) -> InOrder<'_> {
        InOrder { paths: self.by_path.iter().peekable() }
    }

    /// The path of a queue, or of the one that a user's seat is in.
    pub(super) fn path(&self, place: usize) -> &str {
        let path = self.by_path.iter().find(|(_, other)| **other == place).map_or("", |(path, _)| path);
        user_at(path).map_or(path, |(queue, _)| queue)
    }
}

/// Finds the places of paths that come in their order: in one walk for all of them.
pub(in crate::plan) struct InOrder<'a> {
    paths: Peekable<btree_map::Iter<'a, String, usize>>,
}

impl InOrder<'_> {
    /// The place of the next path, if there is one.
    pub(in crate::plan) fn place(&mut self, path: &str) -> Option<usize> {
        loop {
            let (known, place) = self.paths.peek()?;
            match known.as_str().cmp(path) {
                Ordering::Less => drop(self.paths.next()),
                Ordering::Equal => return Some(**place),
                Ordering::Greater => return None,
            }
        }
    }
}
