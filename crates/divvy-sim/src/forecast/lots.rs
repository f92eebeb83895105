//! How much longer each open job runs, drawn by lot.

use std::collections::{BTreeMap, BTreeSet};

use divvy_core::id::JobId;
use divvy_core::model::job::Lifetime;
use divvy_core::state::{Job, Run, Runs, fingerprint};
use divvy_core::time::{Span, Time};
use divvy_insight::{BEFORE_THE_LIMIT, Lengths, Likeness, Said, Spread};

use super::{Basis, Known};
use crate::engine::Course;

/// How many members of arrays get a lot of their own; those beyond share their array's.
const MOST_MEMBERS: usize = 10_000;

/// Longer than any forecast looks ahead, and far below where milliseconds overflow.
const FOR_EVER_MS: i64 = i64::MAX / 4;

/// Which lot is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    /// The future, from 0.
    pub(super) sample: u32,
    /// How many futures there are.
    pub(super) of: u32,
    /// The seed of all lots.
    pub(super) seed: u64,
    /// How much sooner or later than those before all jobs of a future may end, in logarithms of the rate of ends.
    pub(super) doubt: f64,
}

/// What the lots of all open jobs are drawn from.
pub(super) struct Lots {
    hands: Vec<Hand>,
    spreads: Vec<Spread>,
    basis: Basis,
}

/// A job that gets a lot.
struct Hand {
    job: JobId,
    /// How long it has run, in milliseconds, in all attempts that count.
    ran_ms: i64,
    /// How much of that was in earlier attempts.
    before_ms: i64,
    resumes: bool,
    length: Length,
}

/// What is known of a job's length.
#[derive(Clone, Copy)]
enum Length {
    /// It does not end by itself, or nothing is known.
    Endless,
    /// It is stopped after this many milliseconds.
    Limited(i64),
    /// The spread at this index.
    Spread(usize),
}

impl Lots {
    pub(super) fn new(known: &Known<'_>, now: Time) -> Self {
        let lengths = with_running(known, now);
        let known = &Known { lengths: &lengths, ..*known };
        let mut lots = Self { hands: Vec::new(), spreads: Vec::new(), basis: Basis::default() };
        let (mut places, mut seen, mut members) = (BTreeMap::new(), BTreeSet::new(), 0);
        for job in known.state.jobs.values() {
            let likeness = (known.likeness)(job);
            let length = lots.length(known, job, (&likeness, &mut places));
            let mut active = 0;
            if matches!(job.runs, Runs::Array(_)) {
                // This lot holds for the members beyond the bound.
                lots.hands.push(Hand::fresh(job, length));
            }
            for member in job.open_members() {
                let Some(run) = job.run(member) else { continue };
                active += u64::from(run.is_active());
                if members < MOST_MEMBERS || run.is_active() {
                    members += usize::from(member.is_some());
                    lots.hands.push(Hand::of(job, (JobId { number: job.number, member }, &run), length, now));
                }
            }
            lots.count(known, (job, &likeness), (length, active), &mut seen);
        }
        lots
    }

    pub(super) fn basis(&self) -> Basis {
        self.basis
    }

    /// Adds the running members of a job to what the forecast rests on.
    fn count(
        &mut self,
        known: &Known<'_>,
        (job, likeness): (&Job, &Likeness),
        (length, active): (Length, u64),
        seen: &mut BTreeSet<Likeness>,
    ) {
        if active == 0 {
            return;
        }
        let is_said = job.spec.time_limit.or(job.spec.estimate).is_some();
        match length {
            Length::Endless if !is_said => self.basis.unknown += active,
            _ => self.basis.said += if is_said { active } else { 0 },
        }
        if seen.insert(likeness.clone()) {
            self.basis.finished += known.lengths.count_alike(likeness);
        }
    }

    fn length(
        &mut self,
        known: &Known<'_>,
        job: &Job,
        (likeness, places): (&Likeness, &mut BTreeMap<(Likeness, Said), Length>),
    ) -> Length {
        let spec = &job.spec;
        if spec.lifetime == Lifetime::Service {
            return Length::Endless;
        }
        let ms = |span: Option<Span>| span.map(|span| span.0).filter(|ms| *ms > 0);
        let said = Said { estimate_ms: ms(spec.estimate), limit_ms: ms(spec.time_limit) };
        let spreads = &mut self.spreads;
        let spread = |(likeness, said): &(Likeness, Said)| match known.lengths.spread(likeness, *said) {
            None => said.limit_ms.map_or(Length::Endless, Length::Limited),
            // The core stops it at its limit.
            Some(spread) => {
                spreads.push(spread);
                Length::Spread(spreads.len() - 1)
            }
        };
        *places.entry((likeness.clone(), said)).or_insert_with_key(spread)
    }

    /// What becomes of each job in one future.
    pub(super) fn draw(&self, draw: Draw) -> BTreeMap<JobId, Course> {
        let pace = pace(draw);
        let course = |hand: &Hand| {
            let part = slowed(part(hand.job, draw), pace);
            let length_ms = match hand.length {
                Length::Endless => FOR_EVER_MS,
                Length::Limited(limit_ms) => limited_ms(hand.ran_ms, limit_ms, part),
                Length::Spread(at) => self.spreads[at].draw_ms(hand.ran_ms, part),
            };
            // The engine knows nothing of earlier attempts.
            let work_ms = (length_ms - hand.before_ms).max(1);
            (hand.job, Course { resumes: hand.resumes, ..Course::of_length(work_ms) })
        };
        self.hands.iter().map(course).collect()
    }
}

/// The known lengths, with what running jobs show of theirs.
fn with_running(known: &Known<'_>, now: Time) -> Lengths {
    let mut lengths = known.lengths.clone();
    for job in known.state.jobs.values() {
        let ran_ms =
            |run: &Run| if run.is_active() || run.attained_ms > 0 { run.progress_ms(now) } else { 0 };
        let runs: Vec<i64> = match &job.runs {
            Runs::Single(run) => vec![ran_ms(run)],
            Runs::Array(array) => array.touched.values().map(ran_ms).collect(),
        };
        let mut ran = runs.into_iter().filter(|ran_ms| *ran_ms > 0).peekable();
        if ran.peek().is_some() {
            let likeness = (known.likeness)(job);
            ran.for_each(|ran_ms| lengths.note_running(&likeness, ran_ms));
        }
    }
    lengths
}

impl Hand {
    /// For any member of an array that has not run.
    fn fresh(job: &Job, length: Length) -> Self {
        Self { job: job.id(), ran_ms: 0, before_ms: 0, resumes: job.spec.resumable, length }
    }

    fn of(job: &Job, (id, run): (JobId, &Run), length: Length, now: Time) -> Self {
        let resumes = job.spec.resumable;
        let before_ms = if resumes { run.attained_ms } else { 0 };
        let ran_ms = before_ms + run.started_at.map_or(0, |started| now.since(started).0);
        Self { job: id, ran_ms, before_ms, resumes, length }
    }
}

/// The length of a job of which only the limit is known.
fn limited_ms(ran_ms: i64, limit_ms: i64, part: f64) -> i64 {
    let left = limit_ms.saturating_sub(ran_ms).max(0) as f64;
    ran_ms
        .saturating_add(libm::round(left * (part / BEFORE_THE_LIMIT).min(1.0)) as i64)
        .max(ran_ms.saturating_add(1))
}

/// A number from 0 to 1. The numbers of one job are spread evenly over all futures, in an order of its own (Latin hypercube:
/// McKay, Beckman and Conover, 1979), so that few futures show everything that may happen.
fn part(job: JobId, draw: Draw) -> f64 {
    let of = u64::from(draw.of.max(1));
    let mixed = fingerprint(&(draw.seed, job.number, job.member));
    let step = (1 + mixed % of..).find(|step| is_coprime(*step, of)).unwrap_or(1);
    let stratum = (step * u64::from(draw.sample) + (mixed >> 32)) % of;
    let within = fingerprint(&(mixed, draw.sample)) >> 11;
    (stratum as f64 + within as f64 / (1u64 << 53) as f64) / of as f64
}

/// How fast jobs end in a future, compared with those before: what is unknown of one job is often unknown of all.
fn pace(draw: Draw) -> f64 {
    let of_all = part(JobId::single(u64::MAX), draw);
    libm::exp(draw.doubt * (2.0 * of_all - 1.0))
}

/// The part of lengths below the drawn one, if jobs end at another pace throughout their lives.
fn slowed(part: f64, pace: f64) -> f64 {
    1.0 - libm::pow(1.0 - part, 1.0 / pace)
}

fn is_coprime(a: u64, b: u64) -> bool {
    let (mut a, mut b) = (a, b);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lots_of_a_job_are_spread_evenly() {
        for number in 0..50 {
            let strata: BTreeSet<u32> = (0..15)
                .map(|sample| {
                    (part(JobId::single(number), Draw { sample, of: 15, seed: 7, doubt: 0.0 }) * 15.0) as u32
                })
                .collect();
            assert_eq!(strata.len(), 15, "job {number}");
        }
    }

    #[test]
    fn a_faster_pace_makes_all_jobs_shorter() {
        assert!(slowed(0.5, 2.0) < 0.5 && slowed(0.5, 0.5) > 0.5);
        assert_eq!([slowed(0.0, 2.0), slowed(1.0, 2.0), slowed(0.25, 1.0)], [0.0, 1.0, 0.25]);
    }

    #[test]
    fn most_jobs_that_only_have_a_limit_run_into_it() {
        assert_eq!([0.0, 0.2, 0.4, 0.9].map(|part| limited_ms(0, 1000, part)), [1, 500, 1000, 1000]);
        assert_eq!([0.0, 0.2, 0.9].map(|part| limited_ms(800, 1000, part)), [801, 900, 1000]);
        assert_eq!(limited_ms(2000, 1000, 0.5), 2001, "past its limit it is about to be stopped");
    }
}
