//! Submissions: a row per job (the members of an array share one), written with the event and read without folding the log, so
//! that a job that is over still shows what it asked for.

use divvy_core::event::{Event, Stamped};
use divvy_core::model::job::Submission;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::attempts::sql_number;
use super::body;

/// Writes a row for each submission among the events.
pub(crate) fn insert_from(db: &Connection, events: &[Stamped]) -> rusqlite::Result<()> {
    for stamped in events {
        if let Event::Submitted(submission) = &stamped.event {
            insert(db, submission)?;
        }
    }
    Ok(())
}

fn insert(db: &Connection, submission: &Submission) -> rusqlite::Result<()> {
    let (sum, body) = body::of(submission)?;
    let sql = "INSERT OR REPLACE INTO submissions (number, checksum, body) VALUES (?1, ?2, ?3)";
    db.prepare_cached(sql)?.execute(params![sql_number(submission.number), sum, body]).map(|_| ())
}

/// Returns what was submitted under a number; `None` if nothing was, or if it was before such rows were kept.
pub(crate) fn of(db: &Connection, number: u64) -> rusqlite::Result<Option<Submission>> {
    let sql = "SELECT checksum, body FROM submissions WHERE number = ?1";
    db.prepare_cached(sql)?.query_row([sql_number(number)], read).optional()
}

/// Reads one row whose first columns are checksum and body.
pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<Submission> {
    body::read(row, "a submission")
}
