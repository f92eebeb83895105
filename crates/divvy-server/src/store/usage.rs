//! Sums over history: who used how much, grouped as wanted.

use divvy_core::time::Time;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

/// What history can be grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// The user.
    User,
    /// The queue.
    Queue,
    /// The project; empty for jobs without one.
    Project,
    /// What the job was for.
    Kind,
    /// The job's name.
    Name,
    /// The state that the job ended in, or `OPEN`.
    State,
    /// The day on which the attempt started.
    Day,
}

impl GroupBy {
    /// All of them.
    pub const ALL: [GroupBy; 7] =
        [Self::User, Self::Queue, Self::Project, Self::Kind, Self::Name, Self::State, Self::Day];

    /// Returns the word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Queue => "queue",
            Self::Project => "project",
            Self::Kind => "kind",
            Self::Name => "name",
            Self::State => "state",
            Self::Day => "day",
        }
    }

    fn expression(self, utc_offset_ms: i64) -> String {
        match self {
            Self::State => format!(
                "coalesce((SELECT last.state FROM attempts AS last WHERE last.number = inside.number
                    AND last.member = inside.member AND last.ended = 1), '{OPEN}')"
            ),
            Self::Day => {
                format!("date((coalesce(started_at, ended_at) + {utc_offset_ms}) / 1000, 'unixepoch')")
            }
            column => column.name().to_owned(),
        }
    }
}

/// The group of jobs that are not over, where the groups are states.
pub(crate) const OPEN: &str = "open";

/// How history is grouped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grouping {
    /// The keys, in the order asked for.
    pub by: Vec<GroupBy>,
    /// By how much the clock that days go by is ahead of UTC, in ms.
    pub utc_offset_ms: i64,
}

/// What a group used within a window of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sums {
    /// Jobs (members) whose first attempt in the window is in the group: each job counts once, however attempts are grouped.
    pub jobs: u64,
    /// Their attempts.
    pub attempts: u64,
    /// Attempts that ended badly.
    pub failed: u64,
    /// Device time held, in milli-GPU·ms.
    pub held_milli_ms: f64,
    /// Device time watched by telemetry, in ms.
    pub watched_ms: f64,
    /// Of the watched time, idle, in ms.
    pub idle_ms: f64,
    /// Percent × ms watched.
    pub busy_percent_ms: f64,
    /// Processor time, in ms.
    pub cpu_ms: f64,
    /// Most device memory of any device, in MiB.
    pub peak_gpu_memory_mib: u64,
    /// Most host memory of any task, in bytes.
    pub peak_memory_bytes: u64,
    /// Time from submission to the first start, summed, in ms.
    pub waited_ms: f64,
    /// The number of first starts in that sum.
    pub waits: u64,
}

impl Sums {
    /// Adds the sums of another group.
    pub fn add(&mut self, other: &Sums) {
        self.jobs += other.jobs;
        self.attempts += other.attempts;
        self.failed += other.failed;
        self.held_milli_ms += other.held_milli_ms;
        self.watched_ms += other.watched_ms;
        self.idle_ms += other.idle_ms;
        self.busy_percent_ms += other.busy_percent_ms;
        self.cpu_ms += other.cpu_ms;
        self.peak_gpu_memory_mib = self.peak_gpu_memory_mib.max(other.peak_gpu_memory_mib);
        self.peak_memory_bytes = self.peak_memory_bytes.max(other.peak_memory_bytes);
        self.waited_ms += other.waited_ms;
        self.waits += other.waits;
    }
}

/// A window of time: from the first moment up to, not including, the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first moment.
    pub since: Time,
    /// The moment after the last.
    pub until: Time,
}

impl Window {
    /// Returns the part of an interval that lies in the window, from 0 to 1. A moment counts as a whole.
    pub fn part(&self, from: Time, to: Time) -> f64 {
        if to <= from {
            return f64::from(u8::from(self.since <= from && from < self.until));
        }
        let inside = to.0.min(self.until.0).saturating_sub(from.0.max(self.since.0)).max(0);
        inside as f64 / (to.0 - from.0) as f64
    }
}

/// Sums up attempts that are over. Of an attempt that extends beyond the window, only the part inside counts.
pub(crate) fn sums(
    db: &Connection,
    window: Window,
    grouping: &Grouping,
) -> rusqlite::Result<Vec<(Vec<String>, Sums)>> {
    let by = &grouping.by;
    let keys: Vec<String> = by.iter().map(|key| key.expression(grouping.utc_offset_ms)).collect();
    let places: Vec<String> = (1..=by.len()).map(|place| place.to_string()).collect();
    let listed = if keys.is_empty() { String::new() } else { format!("{}, ", keys.join(", ")) };
    let grouped =
        if keys.is_empty() { String::new() } else { format!("GROUP BY {0} ORDER BY {0}", places.join(", ")) };
    // `part` is the share of the attempt that lies in the window; an attempt that never ran has no length and counts as a whole.
    let sql = format!(
        "WITH inside AS (
            SELECT *, CASE WHEN started_at IS NULL OR ended_at <= started_at THEN 1.0 ELSE
                max(0, min(ended_at, ?2) - max(started_at, ?1)) * 1.0 / (ended_at - started_at) END AS part,
                row_number() OVER (PARTITION BY number, member ORDER BY attempt) = 1 AS is_first
            FROM attempts WHERE ended_at >= ?1 AND coalesce(started_at, ended_at) < ?2)
        SELECT {listed} coalesce(sum(is_first), 0), count(*), coalesce(sum(state IN ('failed', 'timeout', 'lost')), 0),
            total(held_milli_ms * part), total(watched_ms * part), total(idle_ms * part), total(busy_percent_ms * part),
            total(cpu_ms * part), coalesce(max(peak_gpu_memory_mib), 0), coalesce(max(peak_memory_bytes), 0),
            total(CASE WHEN attempt = 1 AND started_at IS NOT NULL THEN started_at - submitted_at ELSE 0 END),
            coalesce(sum(attempt = 1 AND started_at IS NOT NULL), 0)
        FROM inside {grouped}"
    );
    let mut statement = db.prepare(&sql)?;
    let values = [Value::Integer(window.since.0), Value::Integer(window.until.0)];
    let rows = statement.query_map(params_from_iter(values), |row| {
        let group = (0..by.len()).map(|at| row.get::<_, String>(at)).collect::<Result<_, _>>()?;
        let count =
            |at: usize| row.get::<_, i64>(by.len() + at).map(|value| u64::try_from(value).unwrap_or(0));
        let real = |at: usize| row.get::<_, f64>(by.len() + at);
        let sums = Sums {
            jobs: count(0)?,
            attempts: count(1)?,
            failed: count(2)?,
            held_milli_ms: real(3)?,
            watched_ms: real(4)?,
            idle_ms: real(5)?,
            busy_percent_ms: real(6)?,
            cpu_ms: real(7)?,
            peak_gpu_memory_mib: count(8)?,
            peak_memory_bytes: count(9)?,
            waited_ms: real(10)?,
            waits: count(11)?,
        };
        Ok((group, sums))
    })?;
    rows.collect()
}
