//! Ranges as users write them.

use std::fmt;
use std::str::FromStr;

/// `A..B`: the whole numbers from A to B, both included; a side that is left out is unbounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The first that is inside.
    pub first: i64,
    /// The last that is inside.
    pub last: i64,
}

/// A text that is no [`Interval`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no range: write A..B, as in 4000..4999 (both included), A.. or ..B")]
pub struct NotAnInterval(String);

impl Interval {
    /// Every number there is.
    pub const ALL: Self = Self { first: i64::MIN, last: i64::MAX };

    /// Whether a number is inside.
    pub fn contains(self, number: i64) -> bool {
        (self.first..=self.last).contains(&number)
    }

    /// Whether the row of that number, counted from 0, is inside.
    pub fn has_row(self, row: usize) -> bool {
        i64::try_from(row).is_ok_and(|row| self.contains(row))
    }
}

impl FromStr for Interval {
    type Err = NotAnInterval;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || NotAnInterval(text.chars().take(40).collect());
        let (first, last) = text.trim().split_once("..").ok_or_else(wrong)?;
        let side = |side: &str, open: i64| match side.trim() {
            "" => Ok(open),
            number => number.parse().map_err(|_| wrong()),
        };
        let (first, last) = (side(first, i64::MIN)?, side(last, i64::MAX)?);
        if first <= last { Ok(Self { first, last }) } else { Err(wrong()) }
    }
}

/// Writes what [`Interval::from_str`] reads.
impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first != i64::MIN {
            write!(f, "{}", self.first)?;
        }
        f.write_str("..")?;
        if self.last != i64::MAX {
            write!(f, "{}", self.last)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_ends_of_a_range_are_inside_and_either_may_be_open() {
        let rows: Interval = "4000..4999".parse().unwrap();
        assert!(rows.has_row(4000) && rows.has_row(4999) && !rows.has_row(5000));
        assert_eq!("..7".parse(), Ok(Interval { first: i64::MIN, last: 7 }));
        assert_eq!(" 3 .. ".parse(), Ok(Interval { first: 3, last: i64::MAX }));
        for text in ["", "5", "9..3", "a..b", "1...3", "1..2..3"] {
            assert!(text.parse::<Interval>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_range_parser_panic(text in ".*") {
            let _ = text.parse::<Interval>();
        }

        #[test]
        fn ranges_read_back_as_written(first in any::<i64>(), length in 0i64..1_000_000) {
            let range = Interval { first, last: first.saturating_add(length) };
            prop_assert_eq!(range.to_string().parse(), Ok(range));
        }
    }
}
