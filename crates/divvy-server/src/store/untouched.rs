//! Opens the database without changing anything: neither the database nor what SQLite keeps beside it.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use divvy_core::id::Position;
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

use super::error::StoreError;
use super::schema;

/// A database that is only read.
pub(super) struct Untouched {
    db: Connection,
    /// The folder of the copy, if a copy is read. Removed after the connection is closed.
    _copy: Option<TempDir>,
}

impl Deref for Untouched {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.db
    }
}

/// Opens a log for reading, even in a place where nothing can be written. A daemon may run on it.
pub(super) fn open(state: &Path) -> Result<Untouched, StoreError> {
    let file = schema::file(state);
    // SQLite would not say why the file cannot be opened.
    File::open(&file).map_err(StoreError::io("open the log", &file))?;
    let [wal, shm] = ["-wal", "-shm"].map(|suffix| beside(&file, suffix));
    let (in_wal, has_index) = (length(&wal)?, length(&shm)?.is_some());
    let untouched = match in_wal {
        // A daemon runs, or was killed: the files beside the database are used as they are.
        Some(_) if has_index => Untouched { db: connect(&file, &file, "")?, _copy: None },
        // SQLite reads a write-ahead log only with its index, and would make the index here.
        Some(1..) => {
            let copy = copied(&file, &wal)?;
            let db = connect(&schema::file(copy.path()), &file, "")?;
            Untouched { db, _copy: Some(copy) }
        }
        // All is in the database. Without `immutable`, SQLite would make an empty write-ahead log beside it.
        _ => Untouched { db: connect(&file, &file, "?immutable=1")?, _copy: None },
    };
    schema::refuse_newer(&untouched, &file)?;
    Ok(untouched)
}

/// Connects to a database; errors call it by the path of the log.
fn connect(database: &Path, log: &Path, how: &str) -> Result<Connection, StoreError> {
    let wrong = || StoreError::database("open the log", log, Position(0));
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let db = Connection::open_with_flags(uri(database) + how, flags).map_err(wrong())?;
    db.busy_timeout(Duration::from_secs(5)).map_err(wrong())?;
    Ok(db)
}

/// Returns a path as a SQLite URI that can have parameters.
fn uri(path: &Path) -> String {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                uri.push(char::from(*byte))
            }
            // Writing to a String cannot fail.
            _ => drop(write!(uri, "%{byte:02x}")),
        }
    }
    uri
}

/// The path of a file beside a database.
pub(super) fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(OsStr::new(suffix));
    PathBuf::from(name)
}

/// Returns the length of a file, if it exists.
fn length(path: &Path) -> Result<Option<u64>, StoreError> {
    match fs::metadata(path) {
        Ok(there) => Ok(Some(there.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::io("look at", path)(error)),
    }
}

/// Copies the database and its write-ahead log into a folder of their own.
fn copied(file: &Path, wal: &Path) -> Result<TempDir, StoreError> {
    let folder = TempDir::new().map_err(StoreError::io("make a folder in", &std::env::temp_dir()))?;
    let to = schema::file(folder.path());
    fs::copy(file, &to).map_err(StoreError::io("copy", file))?;
    fs::copy(wal, beside(&to, "-wal")).map_err(StoreError::io("copy", wal))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_any_bytes_is_a_uri() {
        let path = Path::new(OsStr::from_bytes(b"/a b/%?#\xff/divvy.db"));
        assert_eq!(uri(path), "file:/a%20b/%25%3f%23%ff/divvy.db");
    }
}
