//! What is wrong with a file that was to be read.

use std::io;
use std::path::PathBuf;

/// Why a file could not be read, with the place and with what was expected there.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file is missing, or may not be read.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Reading stopped in the middle.
    #[error("{}, after line {line}: {}", path.display(), why_reading_stopped(source))]
    Read {
        /// Which file.
        path: PathBuf,
        /// The last line that was read whole.
        line: u64,
        /// What the system, or the decompression, said.
        source: io::Error,
    },
    /// The header lacks a column.
    #[error("{}, line {line}: there is no column {column:?} among {found}; expected at least {expected}", path.display())]
    NoColumn {
        /// Which file.
        path: PathBuf,
        /// The line of the header.
        line: u64,
        /// The column that is missing.
        column: &'static str,
        /// The columns that are there.
        found: String,
        /// All that are needed.
        expected: String,
    },
    /// Two columns of the header have one name.
    #[error("{}, line {line}, column {column}: it is there twice, as number {first} and {second}; expected each only once", path.display())]
    ColumnTwice {
        /// Which file.
        path: PathBuf,
        /// The line of the header.
        line: u64,
        /// The name of both.
        column: &'static str,
        /// Where the first of them is, from 1.
        first: usize,
        /// Where the second is.
        second: usize,
    },
    /// A cell holds something other than it should.
    #[error("{}, line {line}, column {column}: {} is not {expected}", path.display(), quoted(found))]
    Cell {
        /// Which file.
        path: PathBuf,
        /// Where the row begins.
        line: u64,
        /// The column's name in the header.
        column: &'static str,
        /// What the cell holds.
        found: String,
        /// What was expected instead.
        expected: String,
    },
    /// A whole line or entry has another form than it should.
    #[error("{}, line {line}: {what}", path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Which line.
        line: u64,
        /// What is wrong, and what was expected.
        what: String,
    },
    /// A job comes before the one above it.
    #[error("{}, line {line}, column submit_s: {submit_s} comes after {before_s} in the line above it; expected jobs sorted by submit_s", path.display())]
    Unsorted {
        /// Which file.
        path: PathBuf,
        /// Which line.
        line: u64,
        /// When the job was submitted.
        submit_s: i64,
        /// When the job before it was.
        before_s: i64,
    },
    /// Two jobs, nodes or speeds go by the same name.
    #[error("{}, line {line}, column {column}: {} was there before; expected each only once", path.display(), quoted(found))]
    Duplicate {
        /// Which file.
        path: PathBuf,
        /// The line of the second.
        line: u64,
        /// Which column.
        column: &'static str,
        /// The name that recurs.
        found: String,
    },
    /// A name equals that of a copy of another job.
    #[error("{}, line {line}, column job_id: {} was there before: copies that --repeat makes are called like that; expected no name that ends in ~ and a number", path.display(), quoted(found))]
    NamedAsACopy {
        /// Which file.
        path: PathBuf,
        /// The line of the second.
        line: u64,
        /// The name of both.
        found: String,
    },
    /// More copies are to be read side by side than files may be open.
    #[error("{}: with copy {copy} too many files would be open at once; expected a larger shift or fewer repeats, so that earlier copies have ended", path.display())]
    TooManyCopies {
        /// Which file.
        path: PathBuf,
        /// The first copy that could not be opened.
        copy: u32,
    },
    /// A shift or a rate moved a job out of time.
    #[error("{}, line {line}: shifted, the job would be submitted after second {LAST}; expected a smaller shift, fewer repeats or a higher rate", path.display(), LAST = super::LAST_SECOND)]
    OutOfTime {
        /// Which file.
        path: PathBuf,
        /// Which line.
        line: u64,
    },
}

/// Names the frequent causes in words.
fn why_reading_stopped(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::UnexpectedEof => {
            "the gzip data ends early, or something else follows it: the file is cut off or damaged".into()
        }
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            format!("the gzip data is damaged: {source}")
        }
        _ => source.to_string(),
    }
}

/// Puts what was found in quotes, cut to a length that fits a line of text.
pub(crate) fn quoted(found: &str) -> String {
    const LONGEST: usize = 60;
    let mut short: String = found.chars().take(LONGEST).collect();
    if short.len() < found.len() {
        short.push('…');
    }
    format!("{short:?}")
}
