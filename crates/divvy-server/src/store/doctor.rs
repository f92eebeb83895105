//! Checks a log that may be damaged, and cuts it where it stops being good. To repair one, no daemon may be running.

use std::fs;
use std::path::{Path, PathBuf};

use divvy_core::check;
use divvy_core::event::{self, Stamped};
use divvy_core::id::Position;
use divvy_core::state::State;
use rusqlite::{Connection, params};

use super::attempts::{self, sql_number};
use super::error::StoreError;
use super::walk::{self, Place, RawCommit};
use super::{acked, place, schema, submissions, untouched};
use crate::clock;

/// What the check of a state directory found.
#[derive(Debug, Default)]
pub struct Report {
    /// The database.
    pub file: PathBuf,
    /// The last good position.
    pub position: Position,
    /// Good commits.
    pub commits: u64,
    /// Rows of history.
    pub attempts: u64,
    /// Jobs that have not ended.
    pub open_jobs: u64,
    /// What is wrong with the log: it cannot be opened until this is repaired.
    pub damage: Option<String>,
    /// What is wrong with what is kept beside the log and follows from it: a repair writes it anew.
    pub beside: Vec<String>,
    /// Laws that the state breaks.
    pub broken: Vec<String>,
    /// What else there is to know.
    pub remarks: Vec<String>,
}

impl Report {
    /// Returns whether a daemon would start on it.
    pub fn is_good(&self) -> bool {
        self.damage.is_none()
    }

    /// Returns whether nothing at all is wrong.
    pub fn is_whole(&self) -> bool {
        self.is_good() && self.beside.is_empty() && self.broken.is_empty()
    }
}

/// What a repair did.
#[derive(Debug)]
pub struct Repair {
    /// The last position that the log has now.
    pub position: Position,
    /// What was wrong with the log; `None` if it was not cut.
    pub damage: Option<String>,
    /// What was wrong beside it and was written anew.
    pub beside: Vec<String>,
    /// The copy of the log as it was.
    pub copy: Option<PathBuf>,
}

/// Checks everything: the chain, each event, the fold, the laws, history, the acknowledged position. Changes nothing.
pub fn check(state_dir: &Path) -> Result<Report, StoreError> {
    let file = there(state_dir)?;
    let mut report = Report { file: file.clone(), ..Report::default() };
    let db = match untouched::open(state_dir) {
        Ok(db) => db,
        Err(error @ (StoreError::Damaged { .. } | StoreError::Newer { .. })) => {
            report.damage = Some(error.to_string());
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    let mut state = State::default();
    let walked = walk::walk(&db, &file, Place::default(), |commit| {
        fold(&mut state, commit, &file)?;
        report.commits += 1;
        Ok(())
    });
    let at = walked.unwrap_or_else(|stopped| {
        report.damage = Some(stopped.error.to_string());
        stopped.at
    });
    report.position = at.position;
    report.open_jobs = state.jobs.len() as u64;
    report.broken = check::check(&state).iter().map(ToString::to_string).collect();
    report.remarks.extend(acknowledged(state_dir, at));
    match history(&db) {
        Ok(count) => report.attempts = count,
        Err(error) => report.beside.push(format!("history cannot be read as a whole: {error}")),
    }
    if let Err(error) = submitted(&db) {
        report.beside.push(format!("what was submitted cannot be read as a whole: {error}"));
    }
    if report.damage.is_none() {
        report.beside.extend(quick_check(&db));
    }
    Ok(report)
}

/// How many events the log has, by its last commit.
pub fn length(state_dir: &Path) -> Result<u64, StoreError> {
    let file = there(state_dir)?;
    let db = untouched::open(state_dir)?;
    let last = db.query_row("SELECT max(last) FROM log", [], |row| row.get::<_, Option<i64>>(0));
    let last = last.map_err(StoreError::database("read the log", &file, Position(0)))?;
    Ok(last.and_then(|last| u64::try_from(last).ok()).unwrap_or(0))
}

/// Passes the verified events of each commit to `see`, from the first on. A daemon may run; nothing is changed.
pub fn each_commit(state_dir: &Path, mut see: impl FnMut(&[Stamped])) -> Result<Position, StoreError> {
    let file = there(state_dir)?;
    let db = untouched::open(state_dir)?;
    let walked = walk::walk(&db, &file, Place::default(), |commit| {
        see(&walk::events_of(commit, &file)?);
        Ok(())
    });
    walked.map(|at| at.position).map_err(|stopped| stopped.error)
}

/// Cuts the log after its last good commit, if it is damaged, and writes anew what is kept beside it, if that is. Keeps a copy of the
/// file as it was.
pub fn repair(state_dir: &Path) -> Result<Repair, StoreError> {
    let _claim = place::claim_as_is(state_dir)?;
    let file = schema::file(state_dir);
    let Report { position, damage, beside, .. } = check(state_dir)?;
    if damage.is_none() && beside.is_empty() {
        return Ok(Repair { position, damage, beside, copy: None });
    }
    let db = open(state_dir)?;
    let made = state_dir.join("divvy.db.repaired");
    let position = rebuild(&db, &file, &made)?;
    drop(db);
    let copy = keep(state_dir, &file)?;
    fs::rename(&made, &file).map_err(StoreError::io("put the repaired log at", &file))?;
    let _ = fs::remove_dir_all(state_dir.join("snapshots"));
    let dir = fs::File::open(state_dir).map_err(StoreError::io("open", state_dir))?;
    dir.sync_all().map_err(StoreError::io("make durable", state_dir))?;
    Ok(Repair { position, damage, beside, copy: Some(copy) })
}

/// Returns the log of a state directory, if it exists and can be read.
fn there(state_dir: &Path) -> Result<PathBuf, StoreError> {
    let file = schema::file(state_dir);
    match file.try_exists().map_err(StoreError::io("look at", &file))? {
        true => Ok(file),
        false => Err(StoreError::NoLog(file)),
    }
}

/// Opened for writing, so that the kept copy includes the write-ahead log.
fn open(state_dir: &Path) -> Result<Connection, StoreError> {
    let file = schema::file(state_dir);
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let wrong = || StoreError::database("open the log", &file, Position(0));
    let db = Connection::open_with_flags(&file, flags).map_err(wrong())?;
    db.busy_timeout(std::time::Duration::from_secs(5)).map_err(wrong())?;
    schema::refuse_newer(&db, &file)?;
    Ok(db)
}

/// Folds a commit into the state, and returns its events.
fn fold(state: &mut State, commit: &RawCommit<'_>, file: &Path) -> Result<Vec<Stamped>, StoreError> {
    if commit.version > event::VERSION {
        let what =
            format!("events of version {}, this program knows version {}", commit.version, event::VERSION);
        return Err(StoreError::Newer { file: file.to_owned(), program: "of a newer version".into(), what });
    }
    let events = walk::events_of(commit, file)?;
    for stamped in &events {
        state.apply(stamped).map_err(|misfit| {
            let after = Position(commit.first.0.saturating_sub(1));
            StoreError::Damaged { file: file.to_owned(), after, what: misfit.to_string() }
        })?;
    }
    Ok(events)
}

fn acknowledged(state_dir: &Path, at: Place) -> Option<String> {
    let acked = acked::held(state_dir)?;
    (acked.position > at.position).then(|| {
        format!(
            "positions {} to {} had been acknowledged and are not there",
            at.position.0 + 1,
            acked.position
        )
    })
}

/// Reads all rows of history, and returns how many there are. What is searched for must be what the rows say.
fn history(db: &Connection) -> Result<u64, String> {
    let read = |error: rusqlite::Error| error.to_string();
    let mut statement = db.prepare(attempts::WHOLE_ROWS).map_err(read)?;
    let mut rows = statement.query([]).map_err(read)?;
    let mut count = 0;
    while let Some(row) = rows.next().map_err(read)? {
        if let Some((attempt, column)) = attempts::column_that_differs(row).map_err(read)? {
            let (job, number) = (attempt.job, attempt.attempt);
            return Err(format!(
                "the column {column} of job {job}, attempt {number} is not what was written"
            ));
        }
        count += 1;
    }
    Ok(count)
}

/// An older database has no such rows.
fn submitted(db: &Connection) -> rusqlite::Result<()> {
    if !db.table_exists(None, "submissions")? {
        return Ok(());
    }
    let mut statement = db.prepare("SELECT checksum, body FROM submissions")?;
    let mut rows = statement.query_map([], submissions::read)?;
    rows.try_for_each(|row| row.map(|_| ()))
}

fn quick_check(db: &Connection) -> Vec<String> {
    let lines = db.prepare("PRAGMA quick_check(10)").and_then(|mut statement| {
        let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
        rows.collect::<Result<Vec<_>, _>>()
    });
    match lines {
        Ok(lines) => lines
            .into_iter()
            .filter(|line| line != "ok")
            .map(|line| format!("the database says: {line}"))
            .collect(),
        Err(error) => vec![format!("the database says: {error}")],
    }
}

/// Writes the good commits, up to the first bad one, and the history that follows from them into a new database.
fn rebuild(damaged: &Connection, file: &Path, made: &Path) -> Result<Position, StoreError> {
    let _ = fs::remove_file(made);
    let good = schema::make(made)?;
    let wrong = || StoreError::database("write", made, Position(0));
    good.execute_batch("BEGIN").map_err(wrong())?;
    let mut state = State::default();
    let walked = walk::walk(damaged, file, Place::default(), |commit| {
        let events = fold(&mut state, commit, file)?;
        submissions::insert_from(&good, &events).map_err(wrong())?;
        let body = String::from_utf8_lossy(commit.body);
        let sql =
            "INSERT INTO log (last, first, term, version, checksum, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let (last, first, term) =
            (sql_number(commit.last.0), sql_number(commit.first.0), sql_number(commit.term.0));
        let row = params![last, first, term, commit.version, commit.link.to_sql(), body];
        good.prepare_cached(sql).and_then(|mut insert| insert.execute(row)).map(|_| ()).map_err(wrong())
    });
    let at = match walked {
        Ok(at) => at,
        Err(stopped) => match stopped.error {
            StoreError::Damaged { .. } => stopped.at,
            error => return Err(error),
        },
    };
    copy_history(damaged, &good, at.position).map_err(wrong())?;
    good.execute_batch("COMMIT").map_err(wrong())?;
    good.close().map_err(|(_, error)| wrong()(error))?;
    Ok(at.position)
}

/// Copies the readable rows of history that follow from kept commits.
fn copy_history(damaged: &Connection, good: &Connection, up_to: Position) -> rusqlite::Result<()> {
    let Ok(mut statement) =
        damaged.prepare("SELECT checksum, body, position FROM attempts WHERE position <= ?1")
    else {
        return Ok(());
    };
    let Ok(mut rows) = statement.query([sql_number(up_to.0)]) else { return Ok(()) };
    while let Ok(Some(row)) = rows.next() {
        if let (Ok(attempt), Ok(position)) = (attempts::read(row), row.get::<_, i64>(2)) {
            attempts::insert(good, Position(u64::try_from(position).unwrap_or(0)), &attempt)?;
        }
    }
    Ok(())
}

/// Moves the damaged database, and what SQLite keeps beside it, out of the way.
fn keep(state_dir: &Path, file: &Path) -> Result<PathBuf, StoreError> {
    let copy = state_dir.join(format!("divvy.db.damaged-{}", clock::now().0));
    fs::rename(file, &copy).map_err(StoreError::io("keep a copy of", file))?;
    for suffix in ["-wal", "-shm"] {
        let beside = |path: &Path| untouched::beside(path, suffix);
        if beside(file).exists() {
            fs::rename(beside(file), beside(&copy)).map_err(StoreError::io("keep a copy of", file))?;
        }
    }
    Ok(copy)
}
