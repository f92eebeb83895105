//! The store: the log and all that depends on it, in one SQLite database in the state directory.
//!
//! [`Store::open`] verifies the whole chain of checksums. [`Store::fold`] returns the state, starting from the newest good
//! snapshot. [`Store::append`] makes a commit durable together with the history rows that it implies. The one writer lives in the
//! control thread; a [`Reader`] serves everybody else.

mod acked;
mod attempts;
mod body;
mod chain;
mod error;
pub mod place;
mod reader;
mod schema;
mod settings;
mod snapshot;
mod submissions;
mod untouched;
mod usage;
mod walk;

pub mod doctor;
#[cfg(test)]
mod small_disk;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use divvy_core::event;
use divvy_core::id::{Position, Term};
use divvy_core::log::{Commit, Log, LogError};
use divvy_core::model::attempt::Attempt;
use divvy_core::state::State;
use rusqlite::{Connection, OptionalExtension, params};

use acked::{Acked, AckedFile};
use attempts::sql_number;
use chain::{Covered, Link};
use walk::Place;

pub use attempts::EndedJobs;
pub(crate) use attempts::kind_name;
pub use error::StoreError;
pub use reader::Reader;
pub use settings::InForce;
pub(crate) use usage::OPEN;
pub use usage::{GroupBy, Grouping, Sums, Window};

/// The writing end of the log.
#[derive(Debug)]
pub struct Store {
    state_dir: PathBuf,
    file: PathBuf,
    db: Connection,
    at: Place,
    acked: AckedFile,
}

/// What was acknowledged once and is no longer in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The tail: these positions.
    Tail {
        /// The first one lost.
        from: Position,
        /// The last one lost.
        to: Position,
    },
    /// Up to this position the log has other events than those acknowledged: it was put there from elsewhere.
    Exchanged(Position),
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Lost::Tail { from, to } => {
                let count = to.0 - from.0 + 1;
                write!(
                    f,
                    "the log has lost {count} events that had been acknowledged: positions {from} to {to} \
                    (a power cut on a disk that does not keep what it says, or a repair); the pool goes on from what is there"
                )
            }
            Lost::Exchanged(position) => {
                write!(
                    f,
                    "the log is another one than before: what it holds up to position {position} is not what had been acknowledged"
                )
            }
        }
    }
}

impl Store {
    /// Opens the log of a state directory, or makes it, and verifies it completely.
    pub fn open(state_dir: &Path) -> Result<(Self, Option<Lost>), StoreError> {
        let file = schema::file(state_dir);
        let db = schema::open_writer(state_dir)?;
        let at = walk::walk(&db, &file, Place::default(), |commit| refuse_newer_events(commit, &file, &db))
            .map_err(|stopped| stopped.error)?;
        let (acked, before) =
            AckedFile::open(state_dir).map_err(StoreError::io("open the file `acked` in", state_dir))?;
        let mut store = Self { state_dir: state_dir.to_owned(), file, db, at, acked };
        let lost = store.lost(before)?;
        store.note_program()?;
        store.note_acked();
        Ok((store, lost))
    }

    /// Returns the state of the log: the newest good snapshot with the events after it.
    pub fn fold(&self) -> Result<State, StoreError> {
        let fits = |position: Position| {
            self.link_at(position).ok().flatten().filter(|_| position <= self.at.position)
        };
        let (mut state, from) = match snapshot::newest(&self.state_dir, fits) {
            Some((state, link)) => {
                let from = Place { position: state.position, link, term: Term(0) };
                (state, from)
            }
            None => (State::default(), Place::default()),
        };
        let fold = |commit: &walk::RawCommit<'_>| {
            for (at, event) in (commit.first.0..).zip(walk::events_of(commit, &self.file)?) {
                state.apply(&event).map_err(|misfit| StoreError::Damaged {
                    file: self.file.clone(),
                    after: Position(at.saturating_sub(1)),
                    what: format!("event {at} does not fit: {misfit}"),
                })?;
            }
            Ok(())
        };
        walk::walk(&self.db, &self.file, from, fold).map_err(|stopped| stopped.error)?;
        Ok(state)
    }

    /// Appends a commit, the submissions in it and the attempts that ended with it, durably and atomically.
    pub fn append_with(&mut self, commit: &Commit, attempts: &[Attempt]) -> Result<Position, LogError> {
        let next = self.write(commit, attempts)?;
        self.at = next;
        self.note_acked();
        Ok(next.position)
    }

    fn write(&mut self, commit: &Commit, attempts: &[Attempt]) -> Result<Place, LogError> {
        if commit.after != self.at.position || commit.term < self.at.term {
            let (at, term) = (self.at.position, self.at.term);
            return Err(LogError::Overtaken(format!(
                "it is at position {at} of term {term}, the commit follows {} of term {}",
                commit.after, commit.term
            )));
        }
        let body = walk::body_of(&commit.events).map_err(|error| LogError::Failed(error.to_string()))?;
        let (first, last) =
            (Position(commit.after.0 + 1), Position(commit.after.0 + commit.events.len() as u64));
        let (term, version) = (commit.term, event::VERSION);
        let link = self.at.link.next(&Covered { first, last, term, version, body: body.as_bytes() });
        let transaction = self.db.transaction().map_err(log_error)?;
        {
            let sql = "INSERT INTO log (last, first, term, version, checksum, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            let mut insert = transaction.prepare_cached(sql).map_err(log_error)?;
            let row = params![
                sql_number(last.0),
                sql_number(first.0),
                sql_number(term.0),
                version,
                link.to_sql(),
                body
            ];
            insert.execute(row).map_err(log_error)?;
            submissions::insert_from(&transaction, &commit.events).map_err(log_error)?;
            for attempt in attempts {
                attempts::insert(&transaction, last, attempt).map_err(log_error)?;
            }
        }
        transaction.commit().map_err(log_error)?;
        Ok(Place { position: last, link, term })
    }

    /// Returns the position of the last event in the log.
    pub fn position(&self) -> Position {
        self.at.position
    }

    /// Returns the term of the last commit.
    pub fn term(&self) -> Term {
        self.at.term
    }

    /// Returns a closure that writes the given state as a snapshot; it can run on any thread.
    pub fn snapshot(&self, state: State) -> impl FnOnce() -> std::io::Result<()> + Send + 'static {
        let (dir, link) = (self.state_dir.clone(), self.at.link);
        move || snapshot::write(&dir, link, &state)
    }

    fn lost(&self, acked: Option<Acked>) -> Result<Option<Lost>, StoreError> {
        let Some(acked) = acked else { return Ok(None) };
        if acked.position > self.at.position {
            return Ok(Some(Lost::Tail { from: Position(self.at.position.0 + 1), to: acked.position }));
        }
        let there = self.link_at(acked.position)?;
        Ok((there != Some(acked.link)).then_some(Lost::Exchanged(acked.position)))
    }

    fn link_at(&self, position: Position) -> Result<Option<Link>, StoreError> {
        if position == Position(0) {
            return Ok(Some(Link::default()));
        }
        let sql = "SELECT checksum FROM log WHERE last = ?1";
        let link = self.db.query_row(sql, [sql_number(position.0)], |row| row.get(0)).optional();
        let link = link.map_err(StoreError::database("read the log", &self.file, self.at.position))?;
        Ok(link.map(Link::from_sql))
    }

    /// Notes that this program's version has written here, so that an older program can name it.
    fn note_program(&mut self) -> Result<(), StoreError> {
        let sql = "UPDATE meta SET value = ?1 WHERE key = 'program' AND value <> ?1";
        let noted = self.db.execute(sql, [env!("CARGO_PKG_VERSION")]);
        noted.map(|_| ()).map_err(StoreError::database("write to the log", &self.file, self.at.position))
    }

    fn note_acked(&self) {
        let acked = Acked { position: self.at.position, link: self.at.link };
        if let Err(error) = self.acked.note(acked) {
            tracing::warn!("cannot note the acknowledged position: {error}");
        }
    }
}

impl Log for Store {
    fn append(&mut self, commit: &Commit) -> Result<Position, LogError> {
        self.append_with(commit, &[])
    }
}

fn refuse_newer_events(commit: &walk::RawCommit<'_>, file: &Path, db: &Connection) -> Result<(), StoreError> {
    if commit.version <= event::VERSION {
        return Ok(());
    }
    let program = db.query_row("SELECT value FROM meta WHERE key = 'program'", [], |row| row.get(0));
    let what = format!("events of version {}, this program knows version {}", commit.version, event::VERSION);
    let program = program.unwrap_or_else(|_| "of a newer version".into());
    Err(StoreError::Newer { file: file.to_owned(), program, what })
}

/// A full disk may have room again later; any other failure needs a person.
fn log_error(error: rusqlite::Error) -> LogError {
    use rusqlite::ErrorCode as C;
    match &error {
        rusqlite::Error::SqliteFailure(failure, _)
            if matches!(failure.code, C::DiskFull | C::SystemIoFailure) =>
        {
            LogError::Full(error.to_string())
        }
        _ => LogError::Failed(error.to_string()),
    }
}
