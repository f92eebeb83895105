//! Errors of a state directory or its log.

use std::io;
use std::path::{Path, PathBuf};

use divvy_core::id::Position;

/// Why a state directory or its log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no log.
    #[error("there is no log {}: is that the state directory of a pool?", .0.display())]
    NoLog(PathBuf),
    /// The place is unfit for a state directory.
    #[error("{0}")]
    Place(#[from] super::place::PlaceError),
    /// The bytes of the log are not those that were written.
    #[error(
        "the log {} is damaged after position {after}: {what}. Nothing was changed. Look closer with \
         `divvy doctor --state {}`; `divvy doctor --state {} --repair` cuts the log there and keeps a copy of the file",
        file.display(), parent(file), parent(file)
    )]
    Damaged {
        /// The database.
        file: PathBuf,
        /// The last position that is good.
        after: Position,
        /// What was found.
        what: String,
    },
    /// A newer program wrote it.
    #[error("the log {} was written by divvy {program} ({what}): use that version or a newer one", file.display())]
    Newer {
        /// The database.
        file: PathBuf,
        /// The version of the program that wrote it.
        program: String,
        /// What this program does not know.
        what: String,
    },
    /// A system call failed.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The path concerned.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The database reported an error.
    #[error("cannot {doing} {}: {source}", file.display())]
    Database {
        /// What was being done.
        doing: &'static str,
        /// The database.
        file: PathBuf,
        /// The database's error.
        source: rusqlite::Error,
    },
}

fn parent(file: &Path) -> String {
    file.parent().unwrap_or(Path::new(".")).display().to_string()
}

impl StoreError {
    /// Makes the error of a system call, for `map_err`.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { doing, path, source }
    }

    /// Makes the error of a database call, for `map_err`; what it calls corrupt is damage after that
    /// position.
    pub(crate) fn database(
        doing: &'static str,
        file: &Path,
        after: Position,
    ) -> impl FnOnce(rusqlite::Error) -> Self {
        let file = file.to_owned();
        move |source| {
            if is_corrupt(&source) {
                Self::Damaged { file, after, what: format!("the database says: {source}") }
            } else {
                Self::Database { doing, file, source }
            }
        }
    }
}

/// Returns whether the database finds its file broken, or finds content in it that it never wrote.
pub(crate) fn is_corrupt(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode as C;
    match error {
        rusqlite::Error::SqliteFailure(failure, message) => {
            let schema = message.as_deref().is_some_and(|text| {
                ["no such table", "no such column", "malformed", "unsupported file format"]
                    .iter()
                    .any(|mark| text.contains(mark))
            });
            matches!(failure.code, C::DatabaseCorrupt | C::NotADatabase | C::SchemaChanged) || schema
        }
        rusqlite::Error::SqlInputError { .. }
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::Utf8Error(..) => true,
        _ => false,
    }
}
