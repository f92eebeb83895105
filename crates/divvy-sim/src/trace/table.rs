//! A comma-separated file, row by row: one row in memory at a time, every error with its place.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use csv::{ErrorKind, ReaderBuilder, StringRecord};

use super::TraceError;
use super::text::{Bounded, open};

/// An open file with a header.
pub(crate) struct Table {
    path: PathBuf,
    reader: csv::Reader<Bounded>,
    header: StringRecord,
    /// Where the header stands: empty lines may precede it.
    header_line: u64,
    row: StringRecord,
    line: u64,
}

/// A column by its place, with its name for errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    at: usize,
    pub(crate) name: &'static str,
}

impl Table {
    /// Opens a file and reads its header.
    pub(crate) fn open(path: &Path) -> Result<Self, TraceError> {
        let reader = ReaderBuilder::new().has_headers(false).from_reader(open(path)?);
        let (header, row) = (StringRecord::new(), StringRecord::new());
        let mut table = Self { path: path.to_owned(), reader, header, header_line: 1, row, line: 1 };
        if table.advance()? {
            table.header = std::mem::take(&mut table.row);
            table.header.trim();
            table.header_line = table.line;
        }
        Ok(table)
    }

    /// The columns of these names, all of which must be there.
    pub(crate) fn columns<const N: usize>(
        &self,
        names: [&'static str; N],
    ) -> Result<[Column; N], TraceError> {
        let mut columns = [Column { at: 0, name: "" }; N];
        for (column, name) in columns.iter_mut().zip(names) {
            *column = self.column(name)?.ok_or_else(|| self.no_column(name, &names))?;
        }
        Ok(columns)
    }

    /// The column of a name, if there is one. Two of one name are an error: it is unclear which is meant.
    pub(crate) fn column(&self, name: &'static str) -> Result<Option<Column>, TraceError> {
        let mut places = self.header.iter().enumerate().filter(|(_, there)| *there == name).map(|(at, _)| at);
        match (places.next(), places.next()) {
            (Some(first), Some(second)) => {
                let (path, line) = (self.path.clone(), self.header_line);
                Err(TraceError::ColumnTwice {
                    path,
                    line,
                    column: name,
                    first: first + 1,
                    second: second + 1,
                })
            }
            (found, _) => Ok(found.map(|at| Column { at, name })),
        }
    }

    fn no_column(&self, column: &'static str, expected: &[&str]) -> TraceError {
        let found = match self.header.is_empty() {
            true => "nothing (the file is empty)".into(),
            false => super::quoted(&self.header.iter().collect::<Vec<_>>().join(",")),
        };
        let (path, expected) = (self.path.clone(), expected.join(","));
        TraceError::NoColumn { path, line: self.header_line, column, found, expected }
    }

    /// Reads the next row; false at the end of the file.
    pub(crate) fn advance(&mut self) -> Result<bool, TraceError> {
        let read = self.reader.read_record(&mut self.row);
        self.reader.get_mut().record_ended();
        let position = match &read {
            Ok(false) => None,
            Ok(true) => self.row.position(),
            Err(error) => error.position(),
        };
        if let Some(line) = position.and_then(|position| self.reader.get_mut().line_of(position.byte())) {
            self.line = line;
        }
        read.map_err(|error| self.wrong(error))
    }

    /// The file and the line of the current row.
    pub(crate) fn place(&self) -> (PathBuf, u64) {
        (self.path.clone(), self.line)
    }

    /// The line of the current row.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// A cell as it stands, without space around it.
    pub(crate) fn text(&self, column: Column) -> &str {
        self.row.get(column.at).unwrap_or_default().trim()
    }

    /// A cell that must not be empty.
    pub(crate) fn name(&self, column: Column) -> Result<String, TraceError> {
        match self.text(column) {
            "" => Err(self.cell(column, "a name")),
            name => Ok(name.to_owned()),
        }
    }

    /// A cell that holds a whole number within bounds; `what` names it, as in "a whole number of seconds".
    pub(crate) fn whole(
        &self,
        column: Column,
        within: RangeInclusive<i64>,
        what: &str,
    ) -> Result<i64, TraceError> {
        let number = self.text(column).parse().ok().filter(|number| within.contains(number));
        let expected = || format!("{what} from {} to {}", within.start(), within.end());
        number.ok_or_else(|| self.cell(column, &expected()))
    }

    /// The error for a cell of the current row that is not what was expected.
    pub(crate) fn cell(&self, column: Column, expected: &str) -> TraceError {
        let (path, line) = self.place();
        let found = self.row.get(column.at).unwrap_or_default().to_owned();
        TraceError::Cell { path, line, column: column.name, found, expected: expected.into() }
    }

    /// The error for a name in the current row that occurred before.
    pub(crate) fn duplicate(&self, column: Column) -> TraceError {
        let (path, line) = self.place();
        TraceError::Duplicate { path, line, column: column.name, found: self.text(column).into() }
    }

    fn wrong(&self, error: csv::Error) -> TraceError {
        let (path, line) = self.place();
        let what = error.to_string();
        match error.into_kind() {
            ErrorKind::Io(source) => TraceError::Read { path, line, source },
            ErrorKind::UnequalLengths { expected_len, len, .. } => {
                // A quote that is never closed takes in everything after it.
                let hint = if self.row.iter().any(|cell| cell.contains('\n')) {
                    ": is a quote opened there that is not closed?"
                } else {
                    ""
                };
                let cells = if len == 1 { "is 1 cell".to_owned() } else { format!("are {len} cells") };
                let what = format!("there {cells}; expected {expected_len}, as in the header{hint}");
                TraceError::Line { path, line, what }
            }
            ErrorKind::Utf8 { .. } => {
                let what = "this is not text in UTF-8; is it a file of another kind?".into();
                TraceError::Line { path, line, what }
            }
            _ => TraceError::Line { path, line, what },
        }
    }
}
