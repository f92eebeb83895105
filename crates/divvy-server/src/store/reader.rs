//! Reading the log and history while the daemon writes: over connections that are opened when needed and kept for reuse.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use divvy_core::event::Stamped;
use divvy_core::id::{JobId, Position};
use divvy_core::model::attempt::Attempt;
use divvy_core::model::job::Submission;
use divvy_core::time::Time;
use divvy_insight::Likeness;
use rusqlite::{Connection, OptionalExtension, Row};

use super::attempts::{self, EndedJobs, sql_number};
use super::chain::Link;
use super::error::StoreError;
use super::settings::{Changes, InForce};
use super::usage::{self, Grouping, Sums, Window};
use super::{schema, submissions, walk};

/// How many idle connections are kept: more readers than cores at once gain nothing.
const KEPT: usize = 2;

/// Reads what is durable in the log. Its calls block on the disk.
#[derive(Clone, Debug)]
pub struct Reader {
    state_dir: PathBuf,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Reader {
    /// Makes a reader for a state directory that has a log.
    pub fn new(state_dir: &Path) -> Self {
        Self { state_dir: state_dir.to_owned(), idle: Arc::default() }
    }

    /// Returns the events after a position, with theirs: at least one commit's and about `most`; empty if none.
    pub fn events_after(&self, after: Position, most: usize) -> Result<Vec<(Position, Stamped)>, StoreError> {
        self.with(|db| {
            let sql =
                "SELECT first, last, term, version, body FROM log WHERE last > ?1 ORDER BY last LIMIT ?2";
            let mut statement = db.prepare_cached(sql)?;
            let (after_column, most_column) = (sql_number(after.0), i64::try_from(most).unwrap_or(i64::MAX));
            let mut rows = statement.query([after_column, most_column])?;
            let mut events = Vec::new();
            while let Some(row) = rows.next()? {
                let read = match self.events_of(row)? {
                    Ok(read) => read,
                    Err(error) => return Ok(Err(error)),
                };
                events.extend(read.into_iter().filter(|(position, _)| *position > after));
                if events.len() >= most {
                    break;
                }
            }
            Ok(Ok(events))
        })?
    }

    /// Passes all settings that ever were in force to `see`, oldest first. Reads the whole log.
    pub fn settings(&self, mut see: impl FnMut(InForce)) -> Result<(), StoreError> {
        self.with(|db| {
            // The search finds an event's kind in the text; reading the events drops false hits.
            let sql = "SELECT first, last, term, version, body FROM log
                WHERE instr(body, '\"queues_set\"') OR instr(body, '\"policy_set\"') ORDER BY last";
            let mut statement = db.prepare_cached(sql)?;
            let mut rows = statement.query([])?;
            let mut changes = Changes::default();
            while let Some(row) = rows.next()? {
                match self.events_of(row)? {
                    Ok(read) => read
                        .into_iter()
                        .filter_map(|(position, stamped)| changes.note(position, stamped))
                        .for_each(&mut see),
                    Err(error) => return Ok(Err(error)),
                }
            }
            changes.last().into_iter().for_each(see);
            Ok(Ok(()))
        })?
    }

    /// Returns the events of a row of the log, with their positions.
    fn events_of(&self, row: &Row<'_>) -> rusqlite::Result<Result<Vec<(Position, Stamped)>, StoreError>> {
        let number = |at| row.get::<_, i64>(at).map(|value| u64::try_from(value).unwrap_or(0));
        let commit = walk::RawCommit {
            first: Position(number(0)?),
            last: Position(number(1)?),
            term: divvy_core::id::Term(number(2)?),
            version: row.get(3)?,
            link: Link::default(),
            body: row.get_ref(4)?.as_bytes()?,
        };
        let read = walk::events_of(&commit, &schema::file(&self.state_dir));
        Ok(read.map(|events| (commit.first.0..).map(Position).zip(events).collect()))
    }

    /// Returns the last position in the log.
    pub fn position(&self) -> Result<Position, StoreError> {
        let last = self
            .with(|db| db.query_row("SELECT max(last) FROM log", [], |row| row.get::<_, Option<i64>>(0)))?;
        Ok(Position(last.and_then(|last| u64::try_from(last).ok()).unwrap_or(0)))
    }

    /// Returns jobs that are over, at most `limit`, in the order that is asked for.
    pub fn ended(&self, wanted: &EndedJobs, limit: usize) -> Result<Vec<Attempt>, StoreError> {
        self.with(|db| attempts::ended(db, wanted, limit))
    }

    /// Returns the attempts of a job (or member) that are over, oldest first.
    pub fn attempts(&self, job: JobId) -> Result<Vec<Attempt>, StoreError> {
        self.with(|db| attempts::of(db, job))
    }

    /// Returns the attempts that ended in a window for a job (or member) that got their devices, oldest first.
    pub fn gave_way_to(&self, job: JobId, window: (Time, Time)) -> Result<Vec<Attempt>, StoreError> {
        self.with(|db| attempts::gave_way_to(db, job, window))
    }

    /// Returns how long the jobs took that ended last, at most `limit` of them, oldest first: lost work left out.
    pub fn lengths(&self, limit: usize) -> Result<Vec<(Likeness, i64)>, StoreError> {
        self.with(|db| attempts::lengths(db, limit))
    }

    /// Returns the same for one job (or member), if it has ended and ran.
    pub fn length_of(&self, job: JobId) -> Result<Option<(Likeness, i64)>, StoreError> {
        self.with(|db| attempts::length_of(db, job))
    }

    /// Returns what was submitted under a number, if that is known.
    pub fn submission(&self, number: u64) -> Result<Option<Submission>, StoreError> {
        self.with(|db| submissions::of(db, number))
    }

    /// Returns how many members (or how often a single job) ended for good, and the first that did not complete.
    pub fn summary(&self, number: u64) -> Result<(u64, Option<Attempt>), StoreError> {
        self.with(|db| attempts::summary(db, number))
    }

    /// Returns whether history has a job of this number.
    pub fn knows(&self, number: u64) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM attempts WHERE number = ?1 LIMIT 1";
        self.with(|db| db.query_row(sql, [sql_number(number)], |_| Ok(())).optional())
            .map(|row| row.is_some())
    }

    /// Returns the usage within a window, by groups, of attempts that are over.
    pub fn usage(&self, window: Window, grouping: &Grouping) -> Result<Vec<(Vec<String>, Sums)>, StoreError> {
        self.with(|db| usage::sums(db, window, grouping))
    }

    /// Closes the idle connections: the writer cleans up when it is the last to close.
    pub(crate) fn rest(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn with<T>(&self, ask: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let db = idle.map_or_else(|| schema::open_reader(&self.state_dir), Ok)?;
        let file = schema::file(&self.state_dir);
        let answer = ask(&db).map_err(StoreError::database("read the log", &file, Position(0)))?;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEPT {
            idle.push(db);
        }
        Ok(answer)
    }
}
