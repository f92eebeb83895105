//! How often jobs and queues may be moved elsewhere, so that others have room in one piece.

use serde::{Deserialize, Serialize};

use super::newer::Newer;
use super::policy::span_ms;
use crate::id::JobId;
use crate::time::Time;

/// A disruption budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Moves {
    /// How often a job is moved at most in a period, which begins with the first move in it; 0 for never.
    pub per_job: u32,
    /// The period, in milliseconds.
    #[serde(alias = "every", deserialize_with = "span_ms")]
    pub every_ms: i64,
    /// How many jobs of a queue a cycle moves at most.
    pub per_queue: u32,
    /// Which of the jobs in the way go first; unsaid for those that lose least.
    #[serde(skip_serializing_if = "Newer::is_unsaid")]
    pub first: Newer<First>,
}

/// Which jobs move before others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum First {
    /// Those that lose the least work.
    Cheapest,
    /// Those that were submitted last.
    Newest,
}

/// An hour: the restart that a move costs is a small part of it.
const EVERY_MS: i64 = 3_600_000;

/// As many as a cycle moves in all.
const PER_QUEUE: u32 = 4;

impl Default for Moves {
    fn default() -> Self {
        Self { per_job: 1, every_ms: EVERY_MS, per_queue: PER_QUEUE, first: Newer(None) }
    }
}

impl Moves {
    /// Until when a job has been moved as often as it may be; without end if it may never be.
    pub fn are_used_up_until(&self, moved: Option<&Moved>, now: Time) -> Option<Time> {
        let moved = moved.filter(|moved| self.is_in_period(moved, now));
        match moved.filter(|moved| moved.count >= self.per_job) {
            Some(moved) if self.per_job > 0 => Some(Time(moved.since.0.saturating_add(self.every_ms))),
            _ => (self.per_job == 0).then_some(Time(i64::MAX)),
        }
    }

    /// A job's move count after one more move.
    pub fn one_more(&self, moved: Option<&Moved>, now: Time) -> Moved {
        match moved.filter(|moved| self.is_in_period(moved, now)) {
            Some(moved) => Moved { count: moved.count.saturating_add(1), ..*moved },
            None => Moved { since: now, count: 1 },
        }
    }

    /// How early a job was submitted, where those with less of it move first; the same for all where those do that lose least.
    pub fn seniority(&self, job: JobId) -> u64 {
        match self.first.said() {
            Some(First::Newest) => u64::MAX - job.number,
            Some(First::Cheapest) | None => 0,
        }
    }

    fn is_in_period(&self, moved: &Moved, now: Time) -> bool {
        now.since(moved.since).0 < self.every_ms
    }
}

/// How often a job was moved in its latest period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Moved {
    /// When the first of these moves was.
    pub since: Time,
    /// How many there were.
    pub count: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_begins_with_the_first_move_in_it() {
        let moves = Moves { per_job: 2, every_ms: 100, per_queue: 1, first: Newer(None) };
        let until = |moved: Option<&Moved>, now: i64| moves.are_used_up_until(moved, Time(now));
        assert_eq!(until(None, 0), None);
        let once = moves.one_more(None, Time(10));
        let twice = moves.one_more(Some(&once), Time(60));
        assert_eq!((once, twice), (Moved { since: Time(10), count: 1 }, Moved { since: Time(10), count: 2 }));
        assert_eq!([until(Some(&once), 109), until(Some(&twice), 109)], [None, Some(Time(110))]);
        assert_eq!(until(Some(&twice), 110), None);
        assert_eq!(moves.one_more(Some(&twice), Time(110)), Moved { since: Time(110), count: 1 });
        assert_eq!(Moves { per_job: 0, ..moves }.are_used_up_until(None, Time(0)), Some(Time(i64::MAX)));
    }
}
