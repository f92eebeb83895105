//! Percentiles of whole seconds: exact, in little memory.

use std::borrow::Borrow;

/// Whole seconds: four bytes each up to 136 years, eight beyond.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seconds {
    short: Vec<u32>,
    long: Vec<i64>,
}

impl Seconds {
    /// Adds one.
    pub fn push(&mut self, seconds: i64) {
        match u32::try_from(seconds) {
            Ok(short) => self.short.push(short),
            Err(_) => self.long.push(seconds),
        }
    }

    /// Adds all of another list.
    pub fn append(&mut self, other: Self) {
        append(&mut self.short, other.short);
        append(&mut self.long, other.long);
    }

    /// Sorts them, so that they can be asked by rank.
    pub fn sort(&mut self) {
        self.short.sort_unstable();
        self.long.sort_unstable();
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.short.len() + self.long.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many are not above a number; for sorted lists only.
    fn not_above(&self, seconds: i64) -> usize {
        let short = self.short.partition_point(|short| i64::from(*short) <= seconds);
        short + self.long.partition_point(|long| *long <= seconds)
    }

    fn largest(&self) -> Option<i64> {
        self.long.last().copied().max(self.short.last().map(|short| i64::from(*short)))
    }
}

/// Adds one list to another where the order does not matter: the shorter one is copied.
pub(crate) fn append<T>(to: &mut Vec<T>, mut from: Vec<T>) {
    if to.len() < from.len() {
        std::mem::swap(to, &mut from);
    }
    to.append(&mut from);
}

/// Returns the number at a rank, from 1, in several sorted lists together; 0 if they are empty. No number may be
/// below zero. Found by bisection, so that the lists need not be copied into one.
pub fn at_rank(lists: &[impl Borrow<Seconds>], rank: usize) -> i64 {
    let lists = || lists.iter().map(Borrow::borrow);
    let (mut least, mut most) = (0, lists().filter_map(Seconds::largest).max().unwrap_or(0));
    while least < most {
        let middle = least + (most - least) / 2;
        match lists().map(|list| list.not_above(middle)).sum::<usize>() < rank {
            true => least = middle + 1,
            false => most = middle,
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranks_over_several_lists_are_those_of_one(
            lists in proptest::collection::vec(proptest::collection::vec(prop_oneof![0i64..50, 0i64..i64::MAX], 0..30), 0..4),
        ) {
            let mut one: Vec<i64> = lists.concat();
            one.sort_unstable();
            let list = |numbers: Vec<i64>| {
                let (mut some, mut others) = (Seconds::default(), Seconds::default());
                for (at, number) in numbers.into_iter().enumerate() {
                    if at % 2 == 0 { some.push(number) } else { others.push(number) }
                }
                some.append(others);
                some.sort();
                some
            };
            let lists: Vec<Seconds> = lists.into_iter().map(list).collect();
            prop_assert_eq!(lists.iter().map(Seconds::len).sum::<usize>(), one.len());
            let ranks: Vec<i64> = (1..=one.len()).map(|rank| at_rank(&lists, rank)).collect();
            prop_assert_eq!(ranks, one);
        }
    }
}
