//! Time as the core knows it: milliseconds in an argument, never a clock.

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A moment: milliseconds since 1970 (virtual time in the simulator).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub i64);

/// A length of time in milliseconds, never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Span(pub i64);

impl Time {
    /// The time since an earlier moment; zero if that moment is later (clocks step).
    pub fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0).max(0))
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl Sub<Span> for Time {
    type Output = Time;
    fn sub(self, span: Span) -> Time {
        Time(self.0.saturating_sub(span.0))
    }
}

impl Span {
    /// A span of whole seconds.
    pub const fn seconds(seconds: i64) -> Self {
        Self(seconds * 1000)
    }

    /// Writes the span so that it reads back exactly, to the millisecond.
    pub fn written(self) -> String {
        let Self(ms) = self;
        let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)];
        let even = units.iter().find(|(_, unit)| ms > 0 && ms % unit == 0);
        even.map_or_else(|| format!("{ms}ms"), |(name, unit)| format!("{}{name}", ms / unit))
    }
}

/// What is wrong with a text that should have been a span of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotASpan {
    /// A number without a unit could be seconds or minutes.
    #[error("{0:?} has no unit: write 90s, 30m, 2h, 1h30m, 2d or 12:00:00")]
    NoUnit(String),
    /// Anything else that cannot be read.
    #[error("{0:?} is not a length of time: write 90s, 30m, 2h, 1h30m, 2d or 1-12:00:00")]
    Unreadable(String),
    /// More than ten thousand years, or so.
    #[error("{0:?} is too long")]
    TooLong(String),
}

/// The longest span a user can write: 10,000 years, far below where milliseconds overflow.
const LONGEST_MS: i64 = 10_000 * 366 * 86_400_000;

impl FromStr for Span {
    type Err = NotASpan;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let short: String = text.chars().take(40).collect();
        let trimmed = text.trim();
        let total = if trimmed.contains(':') { clock_form(trimmed) } else { unit_form(trimmed) };
        match total {
            Some(ms) if ms <= i128::from(LONGEST_MS) => Ok(Self(ms as i64)),
            Some(_) => Err(NotASpan::TooLong(short)),
            None if !trimmed.is_empty() && trimmed.bytes().all(|b| b.is_ascii_digit()) => {
                Err(NotASpan::NoUnit(short))
            }
            None => Err(NotASpan::Unreadable(short)),
        }
    }
}

/// Reads `1h30m`: whole or decimal numbers, each with a unit, units falling.
fn unit_form(text: &str) -> Option<i128> {
    const UNITS: [(&str, i128); 6] =
        [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
    let (mut rest, mut total, mut next_unit) = (text, 0i128, 0usize);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let number_len = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(number_len);
        let unit_len = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_len);
        let at = UNITS.iter().position(|(name, _)| *name == unit)?;
        if at < next_unit {
            return None;
        }
        total = total.checked_add(decimal_times(number, UNITS[at].1)?)?;
        (rest, next_unit) = (tail, at + 1);
    }
    Some(total)
}

/// Reads Slurm's `[days-]hours:minutes:seconds`.
fn clock_form(text: &str) -> Option<i128> {
    let (days, clock) = match text.split_once('-') {
        None => (0, text),
        Some((days, clock)) => (whole(days)?, clock),
    };
    let parts = clock.split(':').map(whole).collect::<Option<Vec<_>>>()?;
    let [hours, minutes, seconds] = parts[..] else { return None };
    if minutes > 59 || seconds > 59 {
        return None;
    }
    Some(((days * 24 + hours) * 3600 + minutes * 60 + seconds) * 1000)
}

/// At most eighteen digits, so that what is made of it cannot overflow an i128.
fn whole(digits: &str) -> Option<i128> {
    (!digits.is_empty() && digits.len() <= 18 && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| digits.parse().ok())
        .flatten()
}

/// `1.5` times a unit, exact; digits below one unit are cut off.
fn decimal_times(number: &str, unit: i128) -> Option<i128> {
    let (integer, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let scale = 10i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    Some(whole(integer)? * unit + whole(fraction)? * unit / scale)
}

/// Writes the two largest units that matter: `2d4h`, `1h30m`, `45s`, `250ms`.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0;
        let (days, hours, minutes, seconds) =
            (ms / 86_400_000, ms / 3_600_000 % 24, ms / 60_000 % 60, ms / 1000 % 60);
        let pair = |f: &mut fmt::Formatter<'_>, a: i64, unit_a: &str, b: i64, unit_b: &str| match b {
            0 => write!(f, "{a}{unit_a}"),
            _ => write!(f, "{a}{unit_a}{b}{unit_b}"),
        };
        if days > 0 {
            pair(f, days, "d", hours, "h")
        } else if hours > 0 {
            pair(f, hours, "h", minutes, "m")
        } else if minutes > 0 {
            pair(f, minutes, "m", seconds, "s")
        } else if ms >= 1000 || ms == 0 {
            write!(f, "{seconds}s")
        } else {
            write!(f, "{ms}ms")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spans_are_read_in_units_and_in_slurms_form() {
        let cases = [
            ("90s", 90_000),
            ("2h", 7_200_000),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            ("250ms", 250),
            ("1-12:00:00", 129_600_000),
            ("00:00:01", 1000),
            ("2w", 1_209_600_000),
            ("0s", 0),
        ];
        for (text, ms) in cases {
            assert_eq!(text.parse::<Span>(), Ok(Span(ms)), "{text}");
        }
    }

    #[test]
    fn a_bare_number_is_asked_for_its_unit() {
        assert_eq!("60".parse::<Span>(), Err(NotASpan::NoUnit("60".into())));
        for text in ["", "h", "1h1h", "1m1h", "-5m", "1:2", "99:99:99", "1e9s", "..s", "٣s"] {
            assert!(text.parse::<Span>().is_err(), "{text:?}");
        }
        assert!(matches!("99999999999w".parse::<Span>(), Err(NotASpan::TooLong(_))));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_span_parser_panic(text in ".*") {
            let _ = text.parse::<Span>();
        }

        #[test]
        fn whole_seconds_read_back_exactly(seconds in 0i64..1_000_000_000) {
            prop_assert_eq!(format!("{seconds}s").parse::<Span>(), Ok(Span::seconds(seconds)));
        }
    }
}
