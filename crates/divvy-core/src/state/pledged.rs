//! What pledges of device time come to: the fold computes from the ledger which queues are behind the pace of their period, and what is
//! guaranteed to them for it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::State;
use super::past::TICK;
use crate::model::queue::{Pledge, lineage, whole_devices};
use crate::time::{Span, Time};

/// The pledges of all queues that have one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pledges {
    /// The moment as of which they are computed.
    at: Time,
    /// How often any of what they come to has changed.
    changes: u64,
    queues: BTreeMap<String, Pledged>,
}

/// A queue's pledge in the current period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Pledged {
    /// What had been charged to the queue and those below it when it began to count, in milli-GPU·ms.
    pub(super) charged_milli_ms: i128,
    /// Since when it counts: the period's beginning, or when it was set.
    pub(super) since: Time,
    /// When the period ends.
    pub(super) until: Time,
    /// Whether the queue is behind its pace, or was until a moment ago.
    is_behind: bool,
    /// What is guaranteed to it because of that, in thousandths of devices.
    floor_milli: i64,
}

/// How far a queue may get ahead of its pace before nothing is guaranteed to it any more: this long at that pace, and at one device at
/// least. Otherwise a queue just on its pace would be given GPUs and lose them again and again.
const AHEAD: Span = Span::seconds(3600);
/// A queue that is behind gets at most this many times its pace; what it cannot make up with that by the end of the period is lost to it.
const FASTEST: i128 = 2;

impl Pledges {
    /// Whether no queue has one.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// How often any of what they come to has changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// When they are to be computed next.
    pub(crate) fn next_tick(&self) -> Option<Time> {
        (!self.is_empty()).then_some(self.at + TICK)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Pledged)> {
        self.queues.iter()
    }
}

impl State {
    /// What is guaranteed to a queue because it is behind its pledge, in thousandths of devices.
    pub fn floor_milli(&self, queue: &str) -> i64 {
        self.pledges.queues.get(queue).map_or(0, |pledged| pledged.floor_milli)
    }

    /// How much device time a queue is behind the pace of its pledge at a moment, in milli-GPU·ms; below zero where it is ahead.
    /// `None` without a pledge.
    pub fn behind_pledge(&self, queue: &str, now: Time) -> Option<i128> {
        let pledge = self.queues.get(queue)?.pledge.said()?;
        let pledged = self.pledges.queues.get(queue)?;
        let used = self.charged_below(queue, now) - pledged.charged_milli_ms;
        let passed = i128::from(now.min(pledged.until).since(pledged.since).0);
        Some(pledge.milli_ms() * passed / i128::from(pledge.length(pledged.since).0.max(1)) - used)
    }

    /// Computes what pledges come to, from time to time; returns whether that has changed.
    pub(super) fn keep_pledges(&mut self, now: Time) -> bool {
        let is_due = |next: Time| next <= now || self.pledges.queues.values().any(|it| it.until <= now);
        if !self.pledges.next_tick().is_some_and(is_due) {
            return false;
        }
        self.reckon_pledges(now)
    }

    /// Begins pledges that are new, and forgets those that are no more.
    pub(super) fn review_pledges(&mut self, now: Time) {
        let mut queues = BTreeMap::new();
        for (path, queue) in &self.queues {
            let Some(pledge) = queue.pledge.said() else { continue };
            let until = pledge.every.ends_after(now);
            let begin = || Pledged {
                charged_milli_ms: self.charged_below(path, now),
                since: now,
                until,
                is_behind: true,
                floor_milli: 0,
            };
            let known = self.pledges.queues.get(path).map(|known| Pledged { until, ..*known });
            queues.insert(path.clone(), known.unwrap_or_else(begin));
        }
        self.pledges.queues = queues;
        self.reckon_pledges(now);
    }

    /// Takes in what is remembered of a queue's pledge in its period.
    pub(super) fn recall_pledge(&mut self, path: &str, used_milli_ms: i128, until: Time, now: Time) {
        let Some(pledge) = self.queues.get(path).and_then(|queue| queue.pledge.said()) else { return };
        if pledge.every.ends_after(now) != until {
            return;
        }
        let (charged, since) = (self.charged_below(path, now), pledge.every.begins_before(now));
        if let Some(pledged) = self.pledges.queues.get_mut(path) {
            (pledged.charged_milli_ms, pledged.since) = (charged - used_milli_ms, since);
        }
        self.reckon_pledges(now);
    }

    /// Corrects a pledge when a queue held less from a moment on than was charged: the part before its period is no loss in it.
    pub(super) fn gave_less(&mut self, queue: &str, milli: i64, from: Time) {
        for path in lineage(queue) {
            if let Some(pledged) = self.pledges.queues.get_mut(path) {
                pledged.charged_milli_ms -= i128::from(milli) * i128::from(pledged.since.since(from).0);
            }
        }
    }

    fn reckon_pledges(&mut self, now: Time) -> bool {
        let reckoned = |(path, known): (&String, &Pledged)| {
            let pledge = self.queues.get(path)?.pledge.said()?;
            Some((path.clone(), self.reckoned(path, (pledge, *known), now)))
        };
        let queues: BTreeMap<String, Pledged> = self.pledges.queues.iter().filter_map(reckoned).collect();
        let floors = |queues: &BTreeMap<String, Pledged>| -> Vec<i64> {
            queues.values().map(|pledged| pledged.floor_milli).collect()
        };
        let changed = floors(&queues) != floors(&self.pledges.queues);
        let changes = self.pledges.changes + u64::from(changed);
        self.pledges = Pledges { at: now, changes, queues };
        changed
    }

    fn reckoned(&self, path: &str, (pledge, known): (&Pledge, Pledged), now: Time) -> Pledged {
        let mut pledged = known;
        if pledged.until <= now {
            let since = pledge.every.begins_before(now).max(pledged.until);
            pledged.charged_milli_ms = self.charged_below(path, since);
            (pledged.since, pledged.until) = (since, pledge.every.ends_after(now));
            pledged.is_behind = true;
        }
        let length = i128::from(pledge.length(pledged.since).0.max(1));
        let used = self.charged_below(path, now) - pledged.charged_milli_ms;
        let at_pace = |passed: Span| pledge.milli_ms() * i128::from(passed.0) / length;
        let behind = at_pace(now.since(pledged.since)) - used;
        let device_ms = i128::from(crate::model::device::WHOLE_MILLI) * i128::from(AHEAD.0);
        let ahead = at_pace(AHEAD).max(device_ms).min(pledge.milli_ms() / 2);
        pledged.is_behind = if pledged.is_behind { behind > -ahead } else { behind > 0 };
        let pace = pledge.milli_ms() / length;
        let rest_ms = i128::from(pledged.until.since(now).0.max(1));
        let needed = (at_pace(pledged.until.since(pledged.since)) - used) / rest_ms;
        let floor = if pledged.is_behind { needed.clamp(pace, pace * FASTEST) } else { 0 };
        Pledged { floor_milli: whole_devices(floor), ..pledged }
    }
}
