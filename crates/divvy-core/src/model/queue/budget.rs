//! Budgets: how much device time a queue may use in a period.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::{Span, Time};

/// How many GPU-hours a queue and the queues below it may use in a period. A ceiling: nothing starts beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Budget {
    /// In thousandths of GPU-hours.
    pub milli_gpu_hours: i64,
    /// The period.
    pub every: Period,
    /// How much of what is left at the end of a period may be used in the next, in thousandths of GPU-hours; `None` for all of it.
    pub carry_milli: Option<i64>,
}

/// A thousandth of a GPU-hour in milli-GPU·ms.
pub(super) const UNIT: i128 = 3_600_000;

impl Budget {
    /// What may be used in a period, in milli-GPU·ms.
    pub fn milli_ms(&self) -> i128 {
        i128::from(self.milli_gpu_hours) * UNIT
    }

    /// What is carried into the next period, given what is left of this one, in milli-GPU·ms. An overdraft is carried in full.
    pub fn carried(&self, left_milli_ms: i128) -> i128 {
        match self.carry_milli {
            Some(most) => left_milli_ms.min(i128::from(most) * UNIT),
            None => left_milli_ms,
        }
    }
}

/// Device time in thousandths of GPU-hours, rounded down.
pub fn milli_gpu_hours(milli_ms: i128) -> i64 {
    i64::try_from(milli_ms.div_euclid(UNIT)).unwrap_or(i64::MAX)
}

/// A length of time with fixed starting points. Days are UTC days, weeks begin on Mondays and months on their first days; other lengths are
/// counted from 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    /// From midnight to midnight.
    Day,
    /// From Monday to Monday.
    Week,
    /// From the first of a month to the first of the next.
    Month,
    /// Of this length.
    Span(Span),
}

const DAY_MS: i64 = 86_400_000;

impl Period {
    /// The length of each period; `None` if lengths differ.
    pub(crate) fn length(self) -> Option<Span> {
        match self {
            Period::Day => Some(Span(DAY_MS)),
            Period::Week => Some(Span(7 * DAY_MS)),
            Period::Month => None,
            Period::Span(Span(length_ms)) => Some(Span(length_ms.max(1))),
        }
    }

    /// The beginning of the period that contains a moment.
    pub fn begins_before(self, now: Time) -> Time {
        match self {
            Period::Month => {
                let (year, month, _) = civil(now.0.div_euclid(DAY_MS));
                Time(days_before(year, month) * DAY_MS)
            }
            Period::Day => self.ends_after(now) - Span(DAY_MS),
            Period::Week => self.ends_after(now) - Span(7 * DAY_MS),
            Period::Span(Span(length_ms)) => self.ends_after(now) - Span(length_ms.max(1)),
        }
    }

    /// The end of the period that contains a moment.
    pub fn ends_after(self, now: Time) -> Time {
        let next = |length_ms: i64, first_ms: i64| {
            let whole = (now.0 - first_ms).div_euclid(length_ms) + 1;
            Time(whole.saturating_mul(length_ms).saturating_add(first_ms))
        };
        match self {
            Period::Day => next(DAY_MS, 0),
            // The first Monday of 1970 was the fifth of January.
            Period::Week => next(7 * DAY_MS, 4 * DAY_MS),
            Period::Month => {
                let (year, month, _) = civil(now.0.div_euclid(DAY_MS));
                let (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
                Time(days_before(year, month) * DAY_MS)
            }
            Period::Span(Span(length_ms)) => next(length_ms.max(1), 0),
        }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Period::Day => f.write_str("day"),
            Period::Week => f.write_str("week"),
            Period::Month => f.write_str("month"),
            Period::Span(span) => write!(f, "{span}"),
        }
    }
}

/// Year, month and day of a day since 1970 (Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`).
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// The number of days from 1970 to the first of a month (`days_from_civil`).
fn days_before(year: i64, month: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// A moment as people write it, to the minute, in UTC.
pub fn utc(at: Time) -> String {
    let (days, minutes) = (at.0.div_euclid(DAY_MS), at.0.rem_euclid(DAY_MS) / 60_000);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_end_at_midnight_on_mondays_and_on_the_first_of_months() {
        // Thursday, 29 February 2024, 12:00.
        let now = Time(1_709_208_000_000);
        let ends = [Period::Day, Period::Week, Period::Month, Period::Span(Span::seconds(7200))];
        let ends: Vec<String> = ends.into_iter().map(|period| utc(period.ends_after(now))).collect();
        assert_eq!(
            ends,
            ["2024-03-01 00:00 UTC", "2024-03-04 00:00 UTC", "2024-03-01 00:00 UTC", "2024-02-29 14:00 UTC"]
        );
        let all = [Period::Day, Period::Week, Period::Month, Period::Span(Span::seconds(7200))];
        let begins: Vec<String> = all.into_iter().map(|period| utc(period.begins_before(now))).collect();
        assert_eq!(
            begins,
            ["2024-02-29 00:00 UTC", "2024-02-26 00:00 UTC", "2024-02-01 00:00 UTC", "2024-02-29 12:00 UTC"]
        );
        assert_eq!(utc(Period::Month.ends_after(Time(-1))), "1970-01-01 00:00 UTC");
        assert_eq!(utc(Period::Month.ends_after(Time(1_734_000_000_000))), "2025-01-01 00:00 UTC");
    }

    #[test]
    fn what_is_left_is_carried_as_far_as_it_may_be_and_what_is_owed_always() {
        let budget = |carry_milli| Budget { milli_gpu_hours: 5000, every: Period::Day, carry_milli };
        assert_eq!(budget(Some(0)).carried(7), 0);
        assert_eq!(budget(None).carried(7), 7);
        assert_eq!(budget(Some(1)).carried(9_000_000), 3_600_000);
        assert_eq!(budget(Some(0)).carried(-7), -7);
        assert_eq!(milli_gpu_hours(budget(None).milli_ms()), 5000);
    }
}
