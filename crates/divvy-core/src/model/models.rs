//! Sets of models, compared by their hash first: the planner compares them many times in each cycle.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::state::fingerprint;

/// Some models, by name. They stand in the order of their hashes.
#[derive(Clone, Debug)]
pub struct Models {
    hash: u64,
    names: Arc<BTreeSet<String>>,
}

impl PartialEq for Models {
    fn eq(&self, other: &Self) -> bool {
        debug_assert_eq!(self.hash == other.hash, self.names == other.names);
        self.hash == other.hash
    }
}

impl Eq for Models {}

impl PartialOrd for Models {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Models {
    fn cmp(&self, other: &Self) -> Ordering {
        self.hash.cmp(&other.hash)
    }
}

impl From<BTreeSet<String>> for Models {
    fn from(names: BTreeSet<String>) -> Self {
        Self { hash: fingerprint(&names), names: Arc::new(names) }
    }
}

impl Deref for Models {
    type Target = BTreeSet<String>;

    fn deref(&self) -> &Self::Target {
        &self.names
    }
}

/// Amounts of sets of models, in the order of their hashes; nearly always of one or two sets. None is nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ByModels<T>(SmallVec<[(Models, T); 1]>);

impl<T> Default for ByModels<T> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

impl<T: Default + PartialEq> ByModels<T> {
    /// Changes the amount of a set.
    pub(crate) fn change(&mut self, models: &Models, change: impl FnOnce(&mut T)) {
        let place = match self.0.binary_search_by(|(other, _)| other.cmp(models)) {
            Ok(place) => place,
            Err(place) => {
                self.0.insert(place, (models.clone(), T::default()));
                place
            }
        };
        change(&mut self.0[place].1);
        if self.0[place].1 == T::default() {
            self.0.remove(place);
        }
    }

    /// All sets with their amounts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Models, &T)> {
        self.0.iter().map(|(models, amount)| (models, amount))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_kept_by_set_and_gone_when_they_are_nothing() {
        let set =
            |names: &[&str]| Models::from(names.iter().map(|it| it.to_string()).collect::<BTreeSet<_>>());
        let (one, two) = (set(&["h100"]), set(&["h100", "a100"]));
        let (mut there, mut back): (ByModels<i64>, ByModels<i64>) = Default::default();
        for (models, amount) in [(&one, 3), (&two, 5), (&set(&["h100"]), 4)] {
            there.change(models, |sum| *sum += amount);
        }
        for (models, amount) in [(&two, 5), (&one, 7)] {
            back.change(models, |sum| *sum += amount);
        }
        assert_eq!(there, back);
        assert_eq!(there.iter().find(|(models, _)| **models == one), Some((&one, &7)));
        there.change(&one, |sum| *sum -= 7);
        there.change(&two, |sum| *sum -= 5);
        assert!(there.is_empty());
    }
}
