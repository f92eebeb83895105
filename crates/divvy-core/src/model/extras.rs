//! Host amounts besides cores and memory: local storage, huge pages, whatever a node counts under a name of its own.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

use crate::amount::Resource;

/// Amounts by resource, each in its own unit: what a node has, what a task asks for, or what it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Extras(BTreeMap<Resource, i64>);

/// Hashes only where there are any amounts, so that digests of all else stay as they were.
impl Hash for Extras {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        if !self.0.is_empty() {
            self.0.hash(hasher);
        }
    }
}

impl FromIterator<(Resource, i64)> for Extras {
    fn from_iter<I: IntoIterator<Item = (Resource, i64)>>(amounts: I) -> Self {
        Self(amounts.into_iter().filter(|(_, amount)| *amount != 0).collect())
    }
}

impl Extras {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The amount of a resource.
    pub fn of(&self, resource: &Resource) -> i64 {
        self.0.get(resource).copied().unwrap_or(0)
    }

    /// All of them, in the order of the resources.
    pub fn iter(&self) -> impl Iterator<Item = (&Resource, i64)> {
        self.0.iter().map(|(resource, amount)| (resource, *amount))
    }

    /// The first resource of which there is more here than in `there`, with its amount here.
    pub fn beyond<'a>(&'a self, there: &Extras) -> Option<(&'a Resource, i64)> {
        self.iter().find(|(resource, amount)| *amount > there.of(resource))
    }

    /// Adds the amounts of another, `times` times; they may fall below zero.
    pub fn add(&mut self, other: &Extras, times: i64) {
        for (resource, amount) in other.iter() {
            let change = amount.saturating_mul(times);
            match self.0.get_mut(resource) {
                Some(sum) => *sum = sum.saturating_add(change),
                None => drop(self.0.insert(resource.clone(), change)),
            }
        }
        self.0.retain(|_, amount| *amount != 0);
    }

    /// How many times these amounts fit into `there`.
    pub fn times_in(&self, there: &Extras) -> u64 {
        let times = |(resource, each): (&Resource, i64)| (there.of(resource).max(0) / each.max(1)) as u64;
        self.iter().map(times).min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::fingerprint;

    fn extras(pairs: &[(&str, i64)]) -> Extras {
        pairs.iter().map(|(name, amount)| (Resource::from(*name), *amount)).collect()
    }

    #[test]
    fn what_is_taken_and_given_back_leaves_what_there_was() {
        let (all, some) = (extras(&[("storage", 10), ("example.com/nic", 2)]), extras(&[("storage", 4)]));
        let mut left = all.clone();
        left.add(&some, -1);
        assert_eq!(left, extras(&[("storage", 6), ("example.com/nic", 2)]));
        assert_eq!(
            (some.times_in(&left), some.times_in(&all), extras(&[]).times_in(&left)),
            (1, 2, u64::MAX)
        );
        left.add(&some, 1);
        assert_eq!(left, all);
    }

    #[test]
    fn what_a_node_does_not_count_it_does_not_have() {
        let asked = extras(&[("example.com/nic", 1)]);
        assert_eq!(asked.beyond(&extras(&[("storage", 9)])), Some((&Resource::from("example.com/nic"), 1)));
        assert_eq!(asked.beyond(&asked), None);
    }

    #[test]
    fn nothing_has_the_hash_of_not_being_there() {
        assert_eq!(fingerprint(&(7u32, Extras::default())), fingerprint(&7u32));
        assert_ne!(fingerprint(&extras(&[("storage", 1)])), fingerprint(&extras(&[("storage", 2)])));
    }
}
