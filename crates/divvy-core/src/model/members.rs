//! Sets of array members, kept as ranges: an array of 100,000 that runs in order takes a few numbers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::job::Array;

/// A set of member numbers as ranges (first → last) that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Members(BTreeMap<u32, u32>);

impl Members {
    /// All members of an array.
    pub fn of(array: &Array) -> Self {
        let mut all = Self::default();
        for &(first, last, step) in &array.ranges {
            if step == 1 {
                all.insert_range(first, last);
            } else {
                (first..=last).step_by(step.max(1) as usize).for_each(|member| all.insert(member));
            }
        }
        all
    }

    /// Whether a member is in it.
    pub fn contains(&self, member: u32) -> bool {
        self.0.range(..=member).next_back().is_some_and(|(_, last)| *last >= member)
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The smallest.
    pub fn first(&self) -> Option<u32> {
        self.0.keys().next().copied()
    }

    /// All, rising.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// All from this one on, rising.
    pub fn iter_from(&self, from: u32) -> impl Iterator<Item = u32> {
        let start = self
            .0
            .range(..=from)
            .next_back()
            .filter(|(_, last)| **last >= from)
            .map_or(from, |(first, _)| *first);
        self.0.range(start..).flat_map(move |(first, last)| (*first).max(from)..=*last)
    }

    /// Adds one.
    pub fn insert(&mut self, member: u32) {
        self.insert_range(member, member);
    }

    fn insert_range(&mut self, first: u32, last: u32) {
        let (mut first, mut last) = (first, last);
        while let Some((&left, &right)) = self.0.range(..=last.saturating_add(1)).next_back() {
            if right < first.saturating_sub(1) {
                break;
            }
            self.0.remove(&left);
            (first, last) = (first.min(left), last.max(right));
        }
        self.0.insert(first, last);
    }

    /// Takes one out; says whether it was there.
    pub fn remove(&mut self, member: u32) -> bool {
        let Some((&first, &last)) = self.0.range(..=member).next_back().filter(|(_, last)| **last >= member)
        else {
            return false;
        };
        self.0.remove(&first);
        if first < member {
            self.0.insert(first, member - 1);
        }
        if member < last {
            self.0.insert(member + 1, last);
        }
        true
    }
}

impl FromIterator<u32> for Members {
    fn from_iter<I: IntoIterator<Item = u32>>(members: I) -> Self {
        let mut set = Self::default();
        members.into_iter().for_each(|member| set.insert(member));
        set
    }
}

/// The most members of one array: a million, far above what a pool runs in a year of minutes.
pub const MOST_MEMBERS: u64 = 1_000_000;

/// What is wrong with a text that should have named array members.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAnArray {
    /// It cannot be read.
    #[error("{0:?} is not an array: write 0-99, 1,3,5-9, 0-98:2, or 0-99%8 for at most 8 at once")]
    Unreadable(String),
    /// Too many members.
    #[error("an array of {0} members: at most {MOST_MEMBERS} can be submitted at once")]
    TooLarge(u64),
}

impl std::str::FromStr for Array {
    type Err = NotAnArray;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || NotAnArray::Unreadable(text.chars().take(60).collect());
        let (list, at_most) = match text.trim().split_once('%') {
            None => (text.trim(), None),
            Some((list, most)) => (list, Some(number(most).filter(|most| *most > 0).ok_or_else(wrong)?)),
        };
        let mut ranges = list.split(',').map(range).collect::<Option<Vec<_>>>().ok_or_else(wrong)?;
        ranges.sort_unstable();
        let size = |&(first, last, step): &(u32, u32, u32)| u64::from((last - first) / step) + 1;
        let total: u64 = ranges.iter().map(size).sum();
        if total > MOST_MEMBERS {
            return Err(NotAnArray::TooLarge(total));
        }
        let apart = ranges.windows(2).all(|pair| pair[0].1 < pair[1].0);
        if !apart {
            let all: Members =
                ranges.iter().flat_map(|&(a, b, step)| (a..=b).step_by(step as usize)).collect();
            ranges = all.0.into_iter().map(|(first, last)| (first, last, 1)).collect();
        }
        Ok(Array { ranges, at_most })
    }
}

fn number(text: &str) -> Option<u32> {
    (!text.is_empty() && text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

fn range(text: &str) -> Option<(u32, u32, u32)> {
    let (span, step) = match text.trim().split_once(':') {
        None => (text.trim(), 1),
        Some((span, step)) => (span, number(step).filter(|step| *step > 0)?),
    };
    let (first, last) = match span.split_once('-') {
        None => (number(span)?, number(span)?),
        Some((first, last)) => (number(first)?, number(last)?),
    };
    (first <= last).then_some((first, last, step))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn arrays_are_ranges_lists_and_steps_with_a_bound() {
        let array: Array = "0-99%8".parse().unwrap();
        assert_eq!((array.ranges.clone(), array.at_most), (vec![(0, 99, 1)], Some(8)));
        assert_eq!(
            Members::of(&"1,3,5-9".parse().unwrap()).iter().collect::<Vec<_>>(),
            [1, 3, 5, 6, 7, 8, 9]
        );
        assert_eq!(Members::of(&"0-6:3".parse().unwrap()).iter().collect::<Vec<_>>(), [0, 3, 6]);
        assert_eq!(Members::of(&"5,1-6".parse().unwrap()).len(), 6);
        for text in ["", "a", "3-1", "1-", "-1", "0-9%0", "0-9%", "0-9:0", "1,,2", "9999999999"] {
            assert!(text.parse::<Array>().is_err(), "{text:?}");
        }
        assert!(matches!("0-99999999".parse::<Array>(), Err(NotAnArray::TooLarge(_))));
    }

    proptest! {
        #[test]
        fn members_behave_like_a_set(steps in proptest::collection::vec((0u32..40, any::<bool>()), 0..80)) {
            let (mut members, mut model) = (Members::default(), BTreeSet::new());
            for (member, add) in steps {
                if add {
                    members.insert(member);
                    model.insert(member);
                } else {
                    prop_assert_eq!(members.remove(member), model.remove(&member));
                }
                prop_assert_eq!(members.iter().collect::<Vec<_>>(), model.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(members.len(), model.len() as u64);
                prop_assert_eq!(members.iter_from(20).collect::<Vec<_>>(), model.range(20..).copied().collect::<Vec<_>>());
                prop_assert!(members.0.iter().zip(members.0.iter().skip(1)).all(|(a, b)| *a.1 + 1 < *b.0));
            }
        }

        #[test]
        fn no_text_makes_the_array_parser_panic(text in ".*") {
            let _ = text.parse::<Array>();
        }
    }
}
