//! History: a row per attempt that is over, written together with the events that end it and read without folding the log.

use divvy_core::engine::DeviceUsage;
use divvy_core::id::{JobId, Position};
use divvy_core::model::attempt::Attempt;
use divvy_core::model::job::Kind;
use divvy_core::time::Time;
use divvy_insight::Likeness;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use super::body;
use crate::alike::named_alike;

/// The column `member` has this value for a job that is no member of an array: it sorts first and the key has no null.
const NO_MEMBER: i64 = -1;

/// Returns the word for what a job is for.
pub(crate) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Train => "train",
        Kind::Infer => "infer",
        Kind::Interactive => "interactive",
        Kind::Data => "data",
    }
}

/// Writes a row. An attempt can occur twice only through a repeated commit; the later row counts.
pub(crate) fn insert(db: &Connection, position: Position, attempt: &Attempt) -> rusqlite::Result<()> {
    let (sum, body) = body::of(attempt)?;
    let sql = "INSERT OR REPLACE INTO attempts VALUES
        (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24)";
    let row = columns(sql_number(position.0), attempt).into_iter().chain([sum.into(), body.into()]);
    db.prepare_cached(sql)?.execute(params_from_iter(row)).map(|_| ())
}

/// The columns of a row before its checksum and its body, in the order of the table.
fn columns(position: i64, attempt: &Attempt) -> [Value; 22] {
    let usage = &attempt.usage;
    let total = |of: fn(&DeviceUsage) -> i64| usage.iter().map(of).fold(0i64, i64::saturating_add);
    [
        sql_number(attempt.job.number).into(),
        member_column(attempt.job).into(),
        attempt.attempt.into(),
        position.into(),
        attempt.state.is_ended().into(),
        attempt.submitted_at.0.into(),
        attempt.started_at.map(|at| at.0).into(),
        attempt.ended_at.0.into(),
        attempt.user.clone().into(),
        attempt.queue.clone().into(),
        attempt.project.clone().unwrap_or_default().into(),
        kind_name(attempt.kind).to_owned().into(),
        attempt.name.clone().into(),
        attempt.state.name().to_owned().into(),
        attempt.held_milli_ms.into(),
        attempt.ran_ms.into(),
        attempt.cpu_ms.into(),
        attempt.peak_memory_bytes.into(),
        sql_number(usage.iter().map(|device| device.peak_memory_mib).max().unwrap_or(0)).into(),
        total(|device| device.watched_ms).into(),
        total(|device| device.idle_ms).into(),
        total(|device| device.watched_ms.saturating_mul(i64::from(device.mean_utilization_percent))).into(),
    ]
}

/// All rows as [`column_that_differs`] reads them.
pub(crate) const WHOLE_ROWS: &str = "SELECT checksum, body, * FROM attempts";

/// Reads one row; returns the attempt and the name of a column that does not say the same, if there is one. The position stands in no
/// body.
pub(crate) fn column_that_differs(row: &Row<'_>) -> rusqlite::Result<Option<(Attempt, String)>> {
    let attempt = read(row)?;
    let position = row.get("position")?;
    for (at, value) in columns(position, &attempt).into_iter().enumerate() {
        if row.get::<_, Value>(2 + at)? != value {
            let column = row.as_ref().column_name(2 + at)?.to_owned();
            return Ok(Some((attempt, column)));
        }
    }
    Ok(None)
}

/// Which jobs of the past to list: jobs that are over, by rising id, or by falling id with `newest`.
#[derive(Clone, Debug, Default)]
pub struct EndedJobs {
    /// Only jobs after this one in the order of the list.
    pub after: Option<JobId>,
    /// Only this job, or the members of this array.
    pub job: Option<JobId>,
    /// Only jobs of this user.
    pub user: Option<String>,
    /// Only jobs of this queue.
    pub queue: Option<String>,
    /// Only jobs that ended in one of these states; empty for all.
    pub states: Vec<String>,
    /// Whether the newest come first.
    pub newest: bool,
}

/// Reads at most `limit` of these jobs: the last attempt of each.
pub(crate) fn ended(db: &Connection, wanted: &EndedJobs, limit: usize) -> rusqlite::Result<Vec<Attempt>> {
    let mut sql = String::from("SELECT checksum, body FROM attempts WHERE ended = 1");
    let mut values: Vec<Value> = Vec::new();
    let mut only = |condition: &str, with: Vec<Value>| {
        sql.push_str(" AND ");
        sql.push_str(condition);
        values.extend(with);
    };
    if let Some(after) = wanted.after {
        let is_behind = if wanted.newest { "(number, member) < (?, ?)" } else { "(number, member) > (?, ?)" };
        only(is_behind, vec![sql_number(after.number).into(), member_column(after).into()]);
    }
    if let Some(job) = wanted.job {
        only("number = ?", vec![sql_number(job.number).into()]);
        if job.member.is_some() {
            only("member = ?", vec![member_column(job).into()]);
        }
    }
    for (column, value) in [("user = ?", &wanted.user), ("queue = ?", &wanted.queue)] {
        if let Some(value) = value {
            only(column, vec![value.clone().into()]);
        }
    }
    if !wanted.states.is_empty() {
        let marks = vec!["?"; wanted.states.len()].join(", ");
        only(
            &format!("state IN ({marks})"),
            wanted.states.iter().map(|state| state.clone().into()).collect(),
        );
    }
    sql.push_str(match wanted.newest {
        true => " ORDER BY number DESC, member DESC LIMIT ?",
        false => " ORDER BY number, member LIMIT ?",
    });
    values.push(Value::Integer(i64::try_from(limit).unwrap_or(i64::MAX)));
    let mut statement = db.prepare(&sql)?;
    let rows = statement.query_map(params_from_iter(values), read)?;
    rows.collect()
}

/// Reads all attempts of one job (or member), oldest first.
pub(crate) fn of(db: &Connection, job: JobId) -> rusqlite::Result<Vec<Attempt>> {
    let sql = "SELECT checksum, body FROM attempts WHERE number = ?1 AND member = ?2 ORDER BY attempt";
    let mut statement = db.prepare(sql)?;
    let rows = statement.query_map(params![sql_number(job.number), member_column(job)], read)?;
    rows.collect()
}

/// Reads the attempts that ended in a window of time for a job (or member) that got their devices, oldest first.
pub(crate) fn gave_way_to(
    db: &Connection,
    job: JobId,
    (from, to): (Time, Time),
) -> rusqlite::Result<Vec<Attempt>> {
    let sql = "SELECT checksum, body FROM attempts WHERE ended_at BETWEEN ?1 AND ?2
        AND json_extract(body, '$.end.by') = ?3 ORDER BY ended_at, number, member";
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement.query_map(params![from.0, to.0, job.to_string()], read)?;
    rows.collect()
}

/// Likeness and length of the jobs that have ended; of earlier attempts only the work that was not lost counts.
const LENGTHS: &str = "SELECT queue, user, name, json_extract(body, '$.gpus'), ran_ms + CASE attempt WHEN 1 THEN 0 ELSE (
        SELECT coalesce(sum(max(earlier.ran_ms - coalesce(json_extract(earlier.body, '$.lost_milli_ms'), 0)
            / max(json_extract(earlier.body, '$.gpu_milli'), 1), 0)), 0)
        FROM attempts AS earlier
        WHERE earlier.number = last.number AND earlier.member = last.member AND earlier.attempt < last.attempt) END
    FROM attempts AS last WHERE ended = 1 AND started_at IS NOT NULL";

/// Reads likeness and length of the jobs that ended last, at most `limit` of them, oldest first.
pub(crate) fn lengths(db: &Connection, limit: usize) -> rusqlite::Result<Vec<(Likeness, i64)>> {
    let mut statement = db.prepare_cached(&format!("{LENGTHS} ORDER BY ended_at DESC LIMIT ?1"))?;
    let rows = statement.query_map([i64::try_from(limit).unwrap_or(i64::MAX)], length)?;
    let mut lengths = rows.collect::<Result<Vec<_>, _>>()?;
    lengths.reverse();
    Ok(lengths)
}

/// Reads likeness and length of one job (or member), if it has ended and ran.
pub(crate) fn length_of(db: &Connection, job: JobId) -> rusqlite::Result<Option<(Likeness, i64)>> {
    let sql = format!("{LENGTHS} AND number = ?1 AND member = ?2 ORDER BY attempt DESC LIMIT 1");
    let mut statement = db.prepare_cached(&sql)?;
    statement.query_row(params![sql_number(job.number), member_column(job)], length).optional()
}

fn length(row: &Row<'_>) -> rusqlite::Result<(Likeness, i64)> {
    let devices = row.get::<_, Option<u32>>(3)?.unwrap_or(0);
    let job = Likeness { queue: row.get(0)?, user: row.get(1)?, name: row.get(2)?, devices };
    Ok((named_alike(job), row.get(4)?))
}

/// Returns how many members of an ended job there are, and the first of them (by index) that did not complete.
pub(crate) fn summary(db: &Connection, number: u64) -> rusqlite::Result<(u64, Option<Attempt>)> {
    let count = "SELECT count(*) FROM attempts WHERE number = ?1 AND ended = 1";
    let count: i64 = db.query_row(count, [sql_number(number)], |row| row.get(0))?;
    let sql = "SELECT checksum, body FROM attempts WHERE number = ?1 AND ended = 1 AND state <> 'completed' ORDER BY member LIMIT 1";
    let mut statement = db.prepare(sql)?;
    let mut rows = statement.query_map([sql_number(number)], read)?;
    Ok((u64::try_from(count).unwrap_or(0), rows.next().transpose()?))
}

/// Reads one row whose first columns are checksum and body.
pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<Attempt> {
    body::read(row, "an attempt")
}

fn member_column(job: JobId) -> i64 {
    job.member.map_or(NO_MEMBER, i64::from)
}

/// Converts to the database's signed numbers; none of ours comes near their end.
pub(crate) fn sql_number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
