//! Exact decimal numbers: every machine computes with exactly what a file says.

use std::fmt;
use std::str::FromStr;

/// A positive decimal number, `digits / 10^places`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decimal {
    digits: u64,
    places: u32,
}

/// A text that is no [`Decimal`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a decimal number above zero of at most 15 digits, as in 2.5")]
pub struct NotADecimal(String);

/// A fraction in lowest terms, above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ratio {
    over: u64,
    under: u64,
}

/// More digits than any file holds, and few enough that a quotient of two fits 128 bits with room.
const MOST_DIGITS: usize = 15;

impl Decimal {
    /// This number divided by another; `None` where no fraction of 64 bits is equal to it.
    pub fn per(self, other: Self) -> Option<Ratio> {
        let over = u128::from(self.digits) * 10u128.pow(other.places);
        let under = u128::from(other.digits) * 10u128.pow(self.places);
        let divisor = greatest_common_divisor(over, under);
        let [over, under] = [over, under].map(|side| u64::try_from(side / divisor).ok());
        Some(Ratio { over: over?, under: under? })
    }

    /// A whole number divided by this one, truncated to a whole number.
    pub fn divides(self, whole: i64) -> i128 {
        i128::from(whole) * 10i128.pow(self.places) / i128::from(self.digits)
    }
}

impl Ratio {
    /// One to one.
    pub const ONE: Self = Self { over: 1, under: 1 };

    /// The numerator.
    pub fn over(self) -> u64 {
        self.over
    }

    /// The denominator.
    pub fn under(self) -> u64 {
        self.under
    }
}

fn greatest_common_divisor(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

impl FromStr for Decimal {
    type Err = NotADecimal;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || NotADecimal(text.chars().take(40).collect());
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let both = format!("{whole}{fraction}");
        let plain = !both.is_empty() && both.bytes().all(|byte| byte.is_ascii_digit());
        if !plain || both.len() > MOST_DIGITS {
            return Err(wrong());
        }
        let digits = both.parse().ok().filter(|digits| *digits > 0).ok_or_else(wrong)?;
        Ok(Self { digits, places: fraction.len() as u32 })
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = 10u64.pow(self.places);
        match self.places {
            0 => write!(f, "{}", self.digits),
            places => {
                write!(f, "{}.{:0width$}", self.digits / one, self.digits % one, width = places as usize)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quotients_of_decimals_are_exact_and_in_lowest_terms() {
        let decimal = |text: &str| text.parse::<Decimal>().unwrap();
        assert_eq!(decimal("35.8692").per(decimal("32.3534")), Some(Ratio { over: 179_346, under: 161_767 }));
        assert_eq!(decimal("0.5").per(decimal("2")), Some(Ratio { over: 1, under: 4 }));
        assert_eq!(decimal("0.5").divides(7), 14);
        for text in ["", ".", "0", "0.000", "-1", "1e3", "NaN", "1.2.3", "1234567890123456"] {
            assert!(text.parse::<Decimal>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_decimal_parser_panic(text in ".*") {
            let _ = text.parse::<Decimal>();
        }

        #[test]
        fn decimals_read_back_as_written(digits in 1u64..999_999_999, places in 0u32..6) {
            let decimal = Decimal { digits, places };
            prop_assert_eq!(decimal.to_string().parse(), Ok(decimal));
        }
    }
}
