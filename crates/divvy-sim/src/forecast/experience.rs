//! An interval for a start, from the futures that were drawn and from the errors of earlier ones: split conformal prediction
//! (Vovk and others, 2005; for quantiles, Romano and others, 2019), on a logarithmic scale and with the latest errors alone.

use std::collections::{BTreeMap, VecDeque};

use divvy_core::id::JobId;
use divvy_core::time::Time;

/// The part of all starts that should lie before the interval, and the part that should lie after it.
const OUTSIDE: f64 = 0.1;

/// How many errors are remembered. Waits in one jam are wrong together, so a few hundred errors show only a few jams.
const REMEMBERED: usize = 500;

/// With fewer errors than this, the futures are taken as they are.
const LEAST: usize = 10;

/// An interval is narrowed as if this many errors of nothing were known, too: after a calm time the next jam still comes.
const CAUTION: f64 = 200.0;

/// How many answers are remembered for jobs that have not started.
const MOST_WAITING: usize = 10_000;

/// Errors of less than a minute do not matter: a minute is added to every wait before its logarithm is taken.
const UNIMPORTANT_MS: f64 = 60_000.0;

/// When a job starts, in milliseconds from the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The lower end: in four cases of five the start is between the two.
    pub low_ms: i64,
    /// The middle: the start is as often before as after.
    pub middle_ms: i64,
    /// The upper end; `None` if it is beyond what was looked ahead.
    pub high_ms: Option<i64>,
}

impl Expected {
    /// The same for a job that may not start for so long: the starts of other jobs do not bring its own moment forward.
    #[must_use]
    pub fn no_sooner_than(self, least_ms: i64) -> Self {
        Self {
            low_ms: self.low_ms.max(least_ms),
            middle_ms: self.middle_ms.max(least_ms),
            high_ms: self.high_ms.map(|high_ms| high_ms.max(least_ms)),
        }
    }
}

/// What was answered about starts, and how wrong it was.
#[derive(Clone, Debug, Default)]
pub struct Experience {
    waiting: BTreeMap<JobId, Told>,
    errors: VecDeque<Error>,
}

/// The answer for a job that has not started.
#[derive(Clone, Copy, Debug)]
struct Told {
    as_of: Time,
    drawn: Expected,
}

/// How wrong an answer was, in logarithms.
#[derive(Clone, Copy, Debug)]
struct Error {
    /// How much wider the interval should have been at its lower end; negative where it was too wide.
    low: f64,
    /// How much later the job started than in the middle of the futures.
    middle: f64,
    /// As `low`, at the upper end.
    high: f64,
}

impl Experience {
    /// Returns when a job starts, from its wait in each future (ascending; `None`, at the end, where it does not start). `None`
    /// if it starts in less than half of them.
    pub fn expect(&self, now: Time, waits_ms: &[Option<i64>]) -> Option<Expected> {
        let drawn = Expected::drawn(waits_ms)?;
        let errors = self.errors(now);
        if drawn.is_now() || errors.len() < LEAST {
            return Some(drawn);
        }
        let by = |part, of: fn(&Error) -> f64| quantile(errors.iter().map(of), part);
        let low_ms = moved_ms(drawn.low_ms, -cautious(by(1.0 - OUTSIDE, |error| error.low), errors.len()));
        let middle_ms = moved_ms(drawn.middle_ms, by(0.5, |error| error.middle)).max(low_ms);
        let Some(high_ms) = drawn.high_ms else { return Some(Expected { low_ms, middle_ms, high_ms: None }) };
        let wider = cautious(by(1.0 - OUTSIDE, |error| error.high), errors.len());
        let high_ms = moved_ms(high_ms, wider).max(low_ms);
        Some(Expected { low_ms, middle_ms: middle_ms.min(high_ms), high_ms: Some(high_ms) })
    }

    /// Remembers what was drawn for a waiting job, so that its start can teach something.
    pub fn remember(&mut self, job: JobId, as_of: Time, waits_ms: &[Option<i64>]) {
        let drawn = Expected::drawn(waits_ms).filter(|drawn| !drawn.is_now());
        if let Some(drawn) = drawn.filter(|_| self.waiting.len() < MOST_WAITING) {
            self.waiting.entry(job).or_insert(Told { as_of, drawn });
        }
    }

    /// Records that a job has started.
    pub fn started(&mut self, job: JobId, at: Time) {
        if let Some(told) = self.waiting.remove(&job) {
            self.errors.push_back(told.error(at));
            if self.errors.len() > REMEMBERED {
                self.errors.pop_front();
            }
        }
    }

    /// Records that a job will never start.
    pub fn forget(&mut self, job: JobId) {
        self.waiting.remove(&job);
    }

    /// Returns the jobs with an answer that have not started.
    pub fn waiting(&self) -> impl Iterator<Item = JobId> + '_ {
        self.waiting.keys().copied()
    }

    /// All known errors, with those of jobs that should have started by now.
    fn errors(&self, now: Time) -> Vec<Error> {
        let overdue = self.waiting.values().filter(|told| told.is_overdue(now));
        self.errors.iter().copied().chain(overdue.map(|told| told.error(now))).collect()
    }
}

impl Told {
    fn is_overdue(&self, now: Time) -> bool {
        self.drawn.high_ms.is_some_and(|high_ms| now.since(self.as_of).0 > high_ms)
    }

    fn error(&self, started_at: Time) -> Error {
        let wait = logarithm(started_at.since(self.as_of).0);
        let high = self.drawn.high_ms.map_or(f64::NEG_INFINITY, |high_ms| wait - logarithm(high_ms));
        let (low, middle) = (logarithm(self.drawn.low_ms) - wait, wait - logarithm(self.drawn.middle_ms));
        Error { low, middle, high }
    }
}

impl Expected {
    /// Returns the tenth, fiftieth and ninetieth percentile of what was drawn.
    pub fn drawn(waits_ms: &[Option<i64>]) -> Option<Self> {
        let last = waits_ms.len().checked_sub(1)?;
        let at = |percent: usize| waits_ms[(last * percent + 50) / 100];
        Some(Self { low_ms: at(10)?, middle_ms: at(50)?, high_ms: at(90) })
    }

    /// Whether it starts at once: that needs no luck.
    pub fn is_now(&self) -> bool {
        self.high_ms == Some(0)
    }
}

fn logarithm(wait_ms: i64) -> f64 {
    libm::log(wait_ms.max(0) as f64 + UNIMPORTANT_MS)
}

fn moved_ms(wait_ms: i64, by: f64) -> i64 {
    libm::round((libm::exp(logarithm(wait_ms) + by) - UNIMPORTANT_MS).max(0.0)) as i64
}

/// How far to move an end: outwards at once, inwards by and by.
fn cautious(by: f64, errors: usize) -> f64 {
    let errors = errors as f64;
    if by < 0.0 { by * errors / (errors + CAUTION) } else { by }
}

/// The value that this part of the errors does not exceed; with few errors, a little more than that.
fn quantile(errors: impl Iterator<Item = f64>, part: f64) -> f64 {
    let mut errors: Vec<f64> = errors.collect();
    errors.sort_unstable_by(f64::total_cmp);
    let rank = libm::ceil(part * (errors.len() + 1) as f64) as usize;
    errors.get(rank.min(errors.len()).saturating_sub(1)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 3_600_000;

    fn hours(waits: [i64; 5]) -> Vec<Option<i64>> {
        waits.into_iter().map(|hours| Some(hours * HOUR_MS)).collect()
    }

    /// Experience from jobs that all got the same answer, and waited these numbers of hours.
    fn taught(waits: &[Option<i64>], truths: &[i64]) -> Experience {
        let mut experience = Experience::default();
        for (number, truth) in (1..).zip(truths) {
            experience.remember(JobId::single(number), Time(0), waits);
            experience.started(JobId::single(number), Time(truth * HOUR_MS));
        }
        experience
    }

    #[test]
    fn no_start_is_expected_before_the_jobs_own_start_time() {
        let expected = Expected { low_ms: 10, middle_ms: 40, high_ms: Some(70) };
        let floored = Expected { low_ms: 55, middle_ms: 55, high_ms: Some(70) };
        assert_eq!(expected.no_sooner_than(55), floored);
        assert_eq!(expected.no_sooner_than(0), expected);
    }

    #[test]
    fn without_experience_the_futures_are_taken_as_they_are() {
        let expected = Experience::default().expect(Time(0), &hours([1, 2, 3, 4, 5])).unwrap();
        let (low_ms, middle_ms, high_ms) = (HOUR_MS, 3 * HOUR_MS, Some(5 * HOUR_MS));
        assert_eq!(expected, Expected { low_ms, middle_ms, high_ms });
        assert_eq!(Experience::default().expect(Time(0), &[]), None);
        assert_eq!(Experience::default().expect(Time(0), &[Some(0), None, None]), None);
    }

    #[test]
    fn who_was_always_too_early_expects_later() {
        let waits = hours([1, 2, 3, 4, 5]);
        let expected = taught(&waits, &[10; 40]).expect(Time(0), &waits).unwrap();
        assert!((HOUR_MS + 1..2 * HOUR_MS).contains(&expected.low_ms), "inwards by and by: {expected:?}");
        assert_eq!(
            [expected.middle_ms, expected.high_ms.unwrap()].map(|ms| (ms + 30_000) / HOUR_MS),
            [10; 2]
        );
    }

    #[test]
    fn an_interval_that_always_held_becomes_narrower() {
        let waits = hours([1, 2, 3, 4, 100]);
        let high_hours = |truths: i64| {
            let truths: Vec<i64> = (0..truths).map(|at| 2 + at % 3).collect();
            let expected = taught(&waits, &truths).expect(Time(0), &waits).unwrap();
            assert!(expected.low_ms > HOUR_MS, "{expected:?}");
            expected.high_ms.unwrap() / HOUR_MS
        };
        assert!((50..100).contains(&high_hours(20)), "a calm time is no proof");
        assert!(high_hours(500) < 20);
    }

    #[test]
    fn jobs_that_should_have_started_by_now_count_although_they_have_not() {
        let (waits, mut experience) = (hours([1, 2, 3, 4, 5]), taught(&hours([1, 2, 3, 4, 5]), &[3; 20]));
        let before = experience.expect(Time(0), &waits).unwrap();
        (100..110).for_each(|number| experience.remember(JobId::single(number), Time(0), &waits));
        assert_eq!(experience.expect(Time(4 * HOUR_MS), &waits), Some(before));
        let after = experience.expect(Time(20 * HOUR_MS), &waits).unwrap();
        assert!(after.high_ms > before.high_ms.map(|ms| 4 * ms), "{before:?} {after:?}");
        (100..110).for_each(|number| experience.forget(JobId::single(number)));
        assert_eq!(experience.waiting().count(), 0);
    }

    #[test]
    fn what_starts_at_once_teaches_nothing_and_is_left_as_it_is() {
        let now = vec![Some(0); 15];
        let mut experience = taught(&hours([1, 2, 3, 4, 5]), &[50; 40]);
        assert!(experience.expect(Time(0), &now).unwrap().is_now());
        experience.remember(JobId::single(99), Time(0), &now);
        assert_eq!(experience.waiting().count(), 0);
    }
}
