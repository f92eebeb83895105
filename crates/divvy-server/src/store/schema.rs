//! The database: its tables and how it is opened.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use divvy_core::id::Position;
use rusqlite::{Connection, OpenFlags};

use super::error::StoreError;

/// The version of the tables' form. A program refuses a higher one.
pub(crate) const FORMAT: i64 = 1;

/// "divv" in ASCII: tells tools and `file(1)` which program's database it is.
const APPLICATION_ID: i64 = 0x6469_7676;

/// `log` has a row per commit: its events as lines of JSON, and the checksum of everything up to it. `attempts` is history for
/// reports; like the tables in [`LATER_TABLES`], it is written in the same transaction as the events that it follows from.
const TABLES: &str = "
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID, STRICT;
CREATE TABLE log (
    last INTEGER PRIMARY KEY,
    first INTEGER NOT NULL,
    term INTEGER NOT NULL,
    version INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE TABLE attempts (
    number INTEGER NOT NULL,
    member INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    position INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    submitted_at INTEGER NOT NULL,
    started_at INTEGER,
    ended_at INTEGER NOT NULL,
    user TEXT NOT NULL,
    queue TEXT NOT NULL,
    project TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    held_milli_ms INTEGER NOT NULL,
    ran_ms INTEGER NOT NULL,
    cpu_ms INTEGER NOT NULL,
    peak_memory_bytes INTEGER NOT NULL,
    peak_gpu_memory_mib INTEGER NOT NULL,
    watched_ms INTEGER NOT NULL,
    idle_ms INTEGER NOT NULL,
    busy_percent_ms INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (number, member, attempt)
) STRICT;
CREATE INDEX attempts_by_end ON attempts (ended_at);
CREATE INDEX attempts_by_user ON attempts (user, number, member);
CREATE INDEX attempts_by_queue ON attempts (queue, number, member);
";

/// Tables that the first databases of this form lack; programs that do not know them can ignore them.
/// `submissions` keeps what was asked for, to show jobs that are over.
const LATER_TABLES: &str = "
CREATE TABLE IF NOT EXISTS submissions (
    number INTEGER PRIMARY KEY,
    checksum INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;
";

/// Returns the path of the database in a state directory.
pub(crate) fn file(state: &Path) -> PathBuf {
    state.join("divvy.db")
}

/// Opens the database for writing; makes it if it is not there.
pub(crate) fn open_writer(state: &Path) -> Result<Connection, StoreError> {
    make(&file(state))
}

/// Opens a database for writing at any path.
pub(crate) fn make(file: &Path) -> Result<Connection, StoreError> {
    // Only the daemon may read the database and what SQLite puts beside it (SQLite copies the mode).
    let made = OpenOptions::new().append(true).create(true).mode(0o600).open(file);
    made.map_err(StoreError::io("make the log", file))?;
    let wrong = |doing| StoreError::database(doing, file, Position(0));
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(file, flags).map_err(wrong("open the log"))?;
    db.pragma_update(None, "journal_mode", "WAL").map_err(wrong("open the log"))?;
    // FULL: an fsync of the write-ahead log at each commit. That is what "durable" rests on.
    db.pragma_update(None, "synchronous", "FULL").map_err(wrong("open the log"))?;
    // 4 MiB: after a burst the file shrinks back to this.
    db.pragma_update(None, "journal_size_limit", 4 << 20).map_err(wrong("open the log"))?;
    db.busy_timeout(std::time::Duration::from_secs(5)).map_err(wrong("open the log"))?;
    db.set_prepared_statement_cache_capacity(16);
    make_tables(&db, file)?;
    refuse_newer(&db, file)?;
    db.execute_batch(LATER_TABLES).map_err(wrong("make the tables of"))?;
    Ok(db)
}

/// Opens the database for reading only.
pub(crate) fn open_reader(state: &Path) -> Result<Connection, StoreError> {
    let file = file(state);
    let wrong = |doing| StoreError::database(doing, &file, Position(0));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(&file, flags).map_err(wrong("open the log"))?;
    db.busy_timeout(std::time::Duration::from_secs(5)).map_err(wrong("open the log"))?;
    // 512 KiB: readers walk indexes or the tail; many pages kept would only cost memory.
    db.pragma_update(None, "cache_size", -512).map_err(wrong("open the log"))?;
    Ok(db)
}

fn make_tables(db: &Connection, file: &Path) -> Result<(), StoreError> {
    let wrong = || StoreError::database("make the tables of", file, Position(0));
    let tables: i64 = db
        .query_row("SELECT count(*) FROM sqlite_schema WHERE type = 'table'", [], |row| row.get(0))
        .map_err(wrong())?;
    if tables > 0 {
        return Ok(());
    }
    let pages: i64 = db.query_row("PRAGMA page_count", [], |row| row.get(0)).map_err(wrong())?;
    if pages > 1 {
        let what = "the database has pages, but no tables".into();
        return Err(StoreError::Damaged { file: file.to_owned(), after: Position(0), what });
    }
    let version = env!("CARGO_PKG_VERSION");
    let meta = format!("INSERT INTO meta VALUES ('format', '{FORMAT}'), ('program', '{version}');");
    let all = format!("BEGIN; PRAGMA application_id = {APPLICATION_ID}; {TABLES} {meta} COMMIT;");
    db.execute_batch(&all).map_err(wrong())
}

/// Refuses tables of a newer form, and records the newest program that has used this database.
pub(crate) fn refuse_newer(db: &Connection, file: &Path) -> Result<(), StoreError> {
    let meta = |key: &str| {
        db.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get::<_, String>(0))
    };
    let wrong = || StoreError::database("read the version of", file, Position(0));
    let format = meta("format").map_err(wrong())?;
    if format.parse() == Ok(FORMAT) {
        return Ok(());
    }
    if format.parse::<i64>().is_ok_and(|format| format > FORMAT) {
        let program = meta("program").unwrap_or_else(|_| "of a newer version".into());
        let what = format!("tables of form {format}, this program knows form {FORMAT}");
        return Err(StoreError::Newer { file: file.to_owned(), program, what });
    }
    let what = format!("its form is said to be {format:?}");
    Err(StoreError::Damaged { file: file.to_owned(), after: Position(0), what })
}
