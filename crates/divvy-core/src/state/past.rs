//! What queues used and missed in the past, decayed by half-lives, as of the last tick. The fold computes it from the ledger and from what
//! the planner said was due; nothing here needs the planner.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::State;
use super::digest::{Remembered, fingerprint};
use crate::model::device::WHOLE_MILLI;
use crate::model::policy::{Policy, Preempt, Share};
use crate::model::queue::seat;
use crate::model::recollection::Recollection;
use crate::reason::Reason;
use crate::time::{Span, Time};

/// The past of all queues.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Past {
    /// Up to when it is computed; `None` before the first tick.
    since: Option<Time>,
    /// Whether a tick has come since the planner last said what is due.
    awaited: bool,
    /// When the past last changed what some queue is to hold by a whole device.
    stepped_at: Time,
    queues: BTreeMap<String, Record>,
    #[serde(skip)]
    digest: Remembered,
}

/// The past of one queue's own jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Record {
    /// Device time that was used, decayed, in milli-GPU·ms.
    pub used_milli_ms: i128,
    /// Device time that the queue is to have beyond what it used, bounded; below zero where it had more than its part.
    pub credit_milli_ms: i128,
    /// What the credit was at the last step.
    pub stepped_milli_ms: i128,
    /// Device time that was due while the queue wanted more than that, decayed.
    #[serde(default)]
    owed_milli_ms: i128,
    /// Device time that was used in those times, decayed.
    #[serde(default)]
    given_milli_ms: i128,
    /// What the ledger had charged at the last tick.
    charged_milli_ms: i128,
    /// What is due from the last tick on, in thousandths of devices; `None` for as much as is used, because no more is wanted.
    pub due_milli: Option<i64>,
}

impl Record {
    /// Takes in what the ledger has charged by now; that is less than before if something had ended before its end was seen.
    fn pass(&mut self, charged_milli_ms: i128, passed_ms: i64, left: &Decay) {
        let used = charged_milli_ms - self.charged_milli_ms;
        self.charged_milli_ms = charged_milli_ms;
        // What is taken back has decayed since it was taken in, so the rest could fall below zero.
        self.used_milli_ms = (left.of(self.used_milli_ms) + used).max(0);
        self.owed_milli_ms = left.of(self.owed_milli_ms);
        self.given_milli_ms = left.of(self.given_milli_ms);
        if let Some(due) = self.due_milli {
            self.owed_milli_ms += i128::from(due) * i128::from(passed_ms);
            self.given_milli_ms = (self.given_milli_ms + used).max(0);
        }
    }
}

/// How long the past stands as it is: what is due is looked at this often while jobs wait.
pub const TICK: Span = Span::seconds(60);

/// How often the past may be news within the time in which a queue catches up.
const STEPS: i64 = 4;

impl Past {
    /// When it is to be computed next.
    pub fn next_tick(&self) -> Option<Time> {
        self.since.map(|since| since + TICK)
    }

    /// Whether the planner is to say what is due.
    pub fn is_awaited(&self) -> bool {
        self.awaited
    }

    /// Whether no queue waited for more when the planner last said what is due: then time changes no queue's standing among the others.
    pub fn is_at_rest(&self) -> bool {
        self.queues.values().all(|record| record.due_milli.is_none())
    }

    /// What is known of a queue's own jobs.
    pub fn record(&self, queue: &str) -> Option<&Record> {
        self.queues.get(queue)
    }

    /// All queues of which anything is known.
    pub fn records(&self) -> impl Iterator<Item = (&str, &Record)> {
        self.queues.iter().map(|(queue, record)| (queue.as_str(), record))
    }

    /// When it last was news.
    pub fn stepped_at(&self) -> Time {
        self.stepped_at
    }

    /// Whether it is news: since it last was, what a queue missed has changed by a whole device over the time in which it catches up, so it
    /// is to hold one more or one less. Time is news in this way (L10), but only a bounded number of times.
    fn step(&mut self, now: Time, catch_up_ms: i64) -> bool {
        let device_milli_ms = i128::from(WHOLE_MILLI) * i128::from(catch_up_ms);
        let moved =
            |record: &Record| (record.credit_milli_ms - record.stepped_milli_ms).abs() >= device_milli_ms;
        let waited_ms = now.since(self.stepped_at).0;
        if waited_ms.saturating_mul(STEPS) < catch_up_ms || !self.queues.values().any(moved) {
            return false;
        }
        self.stepped_at = now;
        self.queues.values_mut().for_each(|record| record.stepped_milli_ms = record.credit_milli_ms);
        true
    }

    /// Computes it up to a moment.
    fn tick(&mut self, charged: &Charges, now: Time, memory: Memory) {
        self.awaited = true;
        let Some(since) = self.since.replace(now) else {
            let begin = |(queue, charged): (&Cow<str>, &i128)| {
                (queue.to_string(), Record { charged_milli_ms: *charged, ..Record::default() })
            };
            self.queues = charged.iter().map(begin).collect();
            return;
        };
        for queue in charged.keys() {
            if !self.queues.contains_key(&**queue) {
                self.queues.insert(queue.to_string(), Record::default());
            }
        }
        let passed_ms = now.since(since).0;
        let left = Decay::over(passed_ms, memory.half_life_ms);
        for (queue, record) in &mut self.queues {
            let charged = charged.get(queue.as_str()).copied().unwrap_or(record.charged_milli_ms);
            record.pass(charged, passed_ms, &left);
        }
        self.divide(memory.most_milli_ms);
    }

    /// Divides what all queues got while they wanted more in proportion to what was due to them then, over all that is remembered. What no
    /// queue could use is no queue's credit; all queues that want more bear it alike, whichever of them did so at the time.
    fn divide(&mut self, most_milli_ms: i128) {
        let sum = |of: fn(&Record) -> i128| self.queues.values().map(of).sum::<i128>();
        let (given, owed) = (sum(|record| record.given_milli_ms), sum(|record| record.owed_milli_ms));
        for record in self.queues.values_mut().filter(|_| owed > 0) {
            let credit = part(given, (record.owed_milli_ms, owed)) - record.given_milli_ms;
            record.credit_milli_ms = credit.clamp(-most_milli_ms, most_milli_ms);
            // What is beyond the bound is forgotten.
            if record.credit_milli_ms != credit && given > 0 {
                let own = record.given_milli_ms + record.credit_milli_ms;
                record.owed_milli_ms = part(owed, (own, given));
            }
        }
    }

    fn note_due(&mut self, due: &[(String, Option<i64>)]) {
        for (queue, due_milli) in due {
            self.queues.entry(queue.clone()).or_default().due_milli = *due_milli;
        }
    }

    /// Notes that what is due to queues has been computed, if that was awaited.
    pub(super) fn end_wait(&mut self) {
        if std::mem::take(&mut self.awaited) {
            self.remember_digest();
        }
    }

    fn remember_digest(&mut self) {
        self.digest = Remembered(Some(self.digest_anew()));
    }

    fn digest_anew(&self) -> u64 {
        fingerprint(&(self.since, self.awaited, self.stepped_at, &self.queues))
    }

    /// Its digest; `None` if nothing is remembered.
    pub(crate) fn digest(&self) -> Option<u64> {
        self.since.map(|_| self.digest.0.unwrap_or_else(|| self.digest_anew()))
    }
}

/// What was charged up to a moment, by the queue or seat to which it was charged.
type Charges<'a> = BTreeMap<Cow<'a, str>, i128>;

/// How long and how much is remembered.
#[derive(Clone, Copy)]
struct Memory {
    half_life_ms: i64,
    /// The largest credit, and the largest debt.
    most_milli_ms: i128,
}

impl State {
    /// Whether past use counts: only if several queues or users share the pool, and only devices are divided.
    pub fn remembers(&self) -> bool {
        let Policy { half_life_ms, share, preempt, .. } = self.policy;
        half_life_ms > 0
            && share == Share::Fill
            && preempt != Preempt::Walk
            && (self.queues.len() > 1 || self.has_seats())
    }

    /// The past as it would be computed at a moment.
    pub(super) fn past_at(&self, now: Time) -> Past {
        let mut past = self.past.clone();
        if past.since.is_some() {
            past.tick(&self.charges(now), now, self.memory());
        }
        past
    }

    /// Takes in what was used before the log began, as of a moment.
    pub(super) fn recall_past(&mut self, of: Time, known: &BTreeMap<String, Recollection>, now: Time) {
        if !self.remembers() {
            return;
        }
        let left = Decay::over(now.since(of).0, self.policy.half_life_ms);
        let whole = i128::from(WHOLE_MILLI);
        let mut past = std::mem::take(&mut self.past);
        past.since = Some(now);
        let charges = self.charges(now);
        for (path, known) in known {
            let path = &self.stand_of_own(path);
            let used_milli_ms = left.of(i128::from(known.used_gpu_ms) * whole);
            let credit_milli_ms = left.of(i128::from(known.credit_gpu_ms) * whole);
            let record = Record {
                used_milli_ms,
                credit_milli_ms,
                stepped_milli_ms: credit_milli_ms,
                // As if all that was used had been used while more was wanted, and all that was due had been used.
                owed_milli_ms: (used_milli_ms + credit_milli_ms).max(0),
                given_milli_ms: used_milli_ms.max(0),
                charged_milli_ms: charges.get(path.as_str()).copied().unwrap_or(0),
                due_milli: past.queues.get(path).and_then(|record| record.due_milli),
            };
            past.queues.insert(path.clone(), record);
        }
        self.past = past;
        self.past.remember_digest();
    }

    fn memory(&self) -> Memory {
        let whole_milli = i128::from(WHOLE_MILLI) * self.devices.len() as i128;
        Memory {
            half_life_ms: self.policy.half_life_ms,
            most_milli_ms: whole_milli * i128::from(self.policy.catch_up_ms),
        }
    }

    /// Lets time pass. If a waiting queue may now get a whole device more because of what it missed, that is news for all that wait.
    pub(super) fn pass_tick(&mut self, now: Time) {
        if !self.remembers() {
            return;
        }
        let mut past = std::mem::take(&mut self.past);
        past.tick(&self.charges(now), now, self.memory());
        self.past = past;
        if self.past.step(now, self.policy.catch_up_ms) {
            self.freed = true;
            self.news += 1;
        }
        self.past.remember_digest();
    }

    pub(super) fn note_due(&mut self, due: &[(String, Option<i64>)]) {
        self.past.note_due(due);
        self.past.remember_digest();
    }

    /// Whether room is kept from any job.
    pub(super) fn keeps_room(&self) -> bool {
        self.verdicts.values().any(|reason| matches!(reason, Reason::Reserved(_)))
    }

    /// Starts counting anew where jobs now stand elsewhere than before: what is charged there so far was used elsewhere.
    pub(super) fn rebase_past(&mut self, now: Time) {
        if self.past.since.is_none() {
            return;
        }
        let mut past = std::mem::take(&mut self.past);
        // What the jobs of a queue used goes with them where they stand now.
        for queue in self.queues.keys() {
            let (own, together) = (self.stand_of_own(queue), seat(queue, ""));
            let before = if own == *queue { &together } else { queue };
            if let Some(record) = past.queues.remove(before) {
                past.queues.entry(own).or_insert(record);
            }
        }
        for (path, charged) in self.charges(now) {
            past.queues.entry(path.into_owned()).or_default().charged_milli_ms = charged;
        }
        self.past = past;
    }

    /// Begins the past, or drops it, where settings say that it counts or no longer counts.
    pub(super) fn review_past(&mut self, now: Time) {
        if !self.remembers() {
            self.past = Past::default();
        } else if self.past.since.is_none() {
            self.pass_tick(now);
        }
        let mut past = std::mem::take(&mut self.past);
        let gone = past.queues.iter_mut().filter(|(queue, _)| !self.is_stand(queue));
        gone.for_each(|(_, record)| record.due_milli = None);
        self.past = past;
        self.past.remember_digest();
    }
}

/// `amount` times `some` over `whole`, to 62 bits.
fn part(amount: i128, (some, whole): (i128, i128)) -> i128 {
    let most = amount.max(some).max(whole).max(1);
    let shift = 66u32.saturating_sub(most.leading_zeros());
    ((amount >> shift) * (some >> shift) / (whole >> shift).max(1)) << shift
}

/// What is left of something after a time: a fraction of 2^32.
struct Decay(i128);

/// 2^(−1/2^i), for i from 1, as fractions of 2^62; each the root of the one before.
const ROOTS: [u128; 32] = {
    let mut roots = [0; 32];
    let mut at = 0;
    let mut last: u128 = 1 << 61;
    while at < 32 {
        last = (last << 62).isqrt();
        roots[at] = last;
        at += 1;
    }
    roots
};

impl Decay {
    fn over(passed_ms: i64, half_life_ms: i64) -> Self {
        let (passed, half_life) = (passed_ms.max(0) as u128, half_life_ms.max(1) as u128);
        let (whole, rest) = (passed / half_life, passed % half_life);
        // The fraction of a half-life, bit by bit; each bit stands for half of the one before.
        let bits = (rest << 32) / half_life;
        let mut left: u128 = 1 << 62;
        for (at, root) in ROOTS.iter().enumerate() {
            if bits & (1 << (31 - at)) != 0 {
                left = (left * root) >> 62;
            }
        }
        Self(i128::try_from((left >> 30) >> whole.min(100)).unwrap_or(0))
    }

    /// Rounded towards zero, so that a credit and a debt fade alike.
    fn of(&self, amount: i128) -> i128 {
        amount * self.0 / (1 << 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What queues that always hold these amounts are charged up to a moment.
    fn charged<'a>(rates: &[(&'a str, i64)], now: Time) -> Charges<'a> {
        let of = |(queue, milli): &(&'a str, i64)| (Cow::Borrowed(*queue), i128::from(milli * now.0));
        rates.iter().map(of).collect()
    }

    const MEMORY: Memory = Memory { half_life_ms: 3_600_000, most_milli_ms: i128::MAX / 4 };

    #[test]
    fn after_a_half_life_half_is_left() {
        for (passed_ms, half_life_ms, left) in [
            (0, 1000, 1_000_000),
            (1000, 1000, 500_000),
            (3000, 1000, 125_000),
            (500, 1000, 707_106),
            (1, 10, 933_032),
        ] {
            assert_eq!(
                Decay::over(passed_ms, half_life_ms).of(1_000_000),
                left,
                "{passed_ms} of {half_life_ms}"
            );
            assert_eq!(Decay::over(passed_ms, half_life_ms).of(-1_000_000), -left);
        }
        assert_eq!(Decay::over(i64::MAX, 1).of(1_000_000), 0);
    }

    #[test]
    fn who_waits_for_nothing_is_owed_nothing() {
        let (mut past, rates) = (Past::default(), [("a", 4000)]);
        past.tick(&charged(&rates, Time(0)), Time(0), MEMORY);
        past.tick(&charged(&rates, Time(60_000)), Time(60_000), MEMORY);
        let record = past.record("a").copied().unwrap_or_default();
        assert_eq!((record.used_milli_ms, record.credit_milli_ms), (4000 * 60_000, 0));
    }

    #[test]
    fn what_is_taken_back_was_not_used_and_nobody_used_less_than_nothing() {
        let mut past = Past::default();
        for (minute, charged) in [(0, 0), (1, 60_000), (2, 90_000), (3, 1000)] {
            let now = Time(minute * 60_000);
            past.tick(&[("a".into(), charged), ("b".into(), 0)].into(), now, MEMORY);
            past.note_due(&[("a".into(), Some(1000)), ("b".into(), Some(1000))]);
        }
        let record = past.record("a").copied().unwrap_or_default();
        assert_eq!((record.used_milli_ms, record.given_milli_ms), (0, 0));
        past.tick(&[("a".into(), 31_000), ("b".into(), 0)].into(), Time(240_000), MEMORY);
        assert_eq!(past.record("a").map(|record| record.used_milli_ms), Some(30_000));
    }

    #[test]
    fn what_was_given_to_those_who_waited_is_divided_by_what_was_due_to_them() {
        let (mut past, rates) = (Past::default(), [("a", 6000), ("b", 0)]);
        past.tick(&charged(&rates, Time(0)), Time(0), MEMORY);
        past.note_due(&[("a".into(), Some(4000)), ("b".into(), Some(4000))]);
        past.tick(&charged(&rates, Time(60_000)), Time(60_000), MEMORY);
        let credit = |queue| past.record(queue).map(|record| record.credit_milli_ms);
        assert_eq!((credit("a"), credit("b")), (Some(-3000 * 60_000), Some(3000 * 60_000)));
    }

    #[test]
    fn time_is_news_where_a_queue_is_to_hold_another_device_and_four_times_an_hour_at_most() {
        let (mut past, rates) = (Past::default(), [("a", 8000), ("b", 0)]);
        past.tick(&charged(&rates, Time(0)), Time(0), MEMORY);
        past.note_due(&[("a".into(), Some(4000)), ("b".into(), Some(4000))]);
        let minute = |minute: i64| Time(minute * 60_000);
        let mut news = Vec::new();
        for now in 1..60 {
            past.tick(
                &charged(&rates, minute(now)),
                minute(now),
                Memory { half_life_ms: i64::MAX, ..MEMORY },
            );
            news.extend(past.step(minute(now), 3_600_000).then_some(now));
        }
        assert_eq!(news, [15, 30, 45]);
        past.note_due(&[("a".into(), Some(8000)), ("b".into(), Some(0))]);
        past.tick(&charged(&rates, minute(600)), minute(600), Memory { half_life_ms: i64::MAX, ..MEMORY });
        assert!(!past.step(minute(600), 3_600_000));
    }

    #[test]
    fn what_nobody_could_use_is_borne_by_all_who_want_more_whoever_did_so_at_the_time() {
        let mut past = Past::default();
        let memory = Memory { half_life_ms: i64::MAX, ..MEMORY };
        let hour = |hour: i64| Time(hour * 3_600_000);
        past.tick(&charged(&[("a", 0), ("b", 0)], hour(0)), hour(0), memory);
        // In the first hour a alone wants more, and a quarter of what is due to it stands idle; in the second both do, and all is used.
        past.note_due(&[("a".into(), Some(8000)), ("b".into(), None)]);
        past.tick(&charged(&[("a", 6000), ("b", 0)], hour(1)), hour(1), memory);
        let credit = |past: &Past, queue| past.record(queue).map(|record| record.credit_milli_ms / 3_600_000);
        assert_eq!((credit(&past, "a"), credit(&past, "b")), (Some(0), Some(0)));
        past.note_due(&[("a".into(), Some(4000)), ("b".into(), Some(4000))]);
        let second = |before: i64| i128::from(before + 4000) * 3_600_000;
        past.tick(&[("a".into(), second(6000)), ("b".into(), second(0))].into(), hour(2), memory);
        assert_eq!((credit(&past, "a"), credit(&past, "b")), (Some(500), Some(-500)));
    }

    #[test]
    fn what_was_for_longer_than_anybody_lives_is_reckoned_too() {
        let most = i128::from(i64::MAX) * 80_000_000;
        assert_eq!(part(most, (most / 2, most)) >> 40, (most / 2) >> 40);
        assert_eq!(part(100, (1, 3)), 33);
    }

    #[test]
    fn a_credit_is_bounded() {
        let (mut past, rates) = (Past::default(), [("a", 8000)]);
        let memory = Memory { most_milli_ms: 1000, ..MEMORY };
        past.tick(&charged(&rates, Time(0)), Time(0), memory);
        past.note_due(&[("a".into(), Some(0)), ("b".into(), Some(8000))]);
        past.tick(&charged(&rates, Time(60_000)), Time(60_000), memory);
        let credit = |queue| past.record(queue).map(|record| record.credit_milli_ms);
        assert_eq!((credit("a"), credit("b")), (Some(-1000), Some(1000)));
    }
}
