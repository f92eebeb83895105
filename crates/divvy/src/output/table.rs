//! Tables for people, and the three ways to write a listing.

use std::io::{self, Write};

use comfy_table::{Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Row, Width};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::{Format, Tone, look, plain, write_csv, write_json_array};
use crate::failure::Failure;

/// How tables look at their destination.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    /// Whether colours may be used.
    pub(crate) colour: bool,
    /// Columns of the terminal; `None` for a file or pipe.
    pub(crate) width: Option<u16>,
    /// Whether all columns are wanted.
    pub(crate) wide: bool,
    /// The moment that ages count from.
    pub(crate) now_ms: i64,
}

/// A column of a table.
#[derive(Debug)]
pub(crate) struct Column<T> {
    /// The heading.
    pub(crate) name: &'static str,
    /// Whether only `-o wide` shows it.
    pub(crate) wide: bool,
    /// Whether it holds numbers.
    pub(crate) right: bool,
    /// Whether its cells are never shortened: a part of a number or an id is another one.
    pub(crate) whole: bool,
    /// Whether a narrow terminal leaves it out first.
    pub(crate) spare: bool,
    /// The text of a cell.
    pub(crate) text: fn(&T, &Look) -> String,
    /// The tone of a cell.
    pub(crate) tone: fn(&T) -> Tone,
    /// Whether it says anything about a row: a table shows it if it does for any row, `-o wide` always.
    pub(crate) says: fn(&T) -> bool,
}

impl<T> Column<T> {
    /// A column of words.
    pub(crate) const fn new(name: &'static str, text: fn(&T, &Look) -> String) -> Self {
        Self {
            name,
            wide: false,
            right: false,
            whole: false,
            spare: false,
            text,
            tone: |_| Tone::Plain,
            says: |_| true,
        }
    }

    /// A column of numbers.
    pub(crate) const fn right(mut self) -> Self {
        self.right = true;
        self.whole = true;
        self
    }

    /// A column of words that are never shortened.
    pub(crate) const fn whole(mut self) -> Self {
        self.whole = true;
        self
    }

    /// A column that a narrow terminal leaves out first.
    pub(crate) const fn spare(mut self) -> Self {
        self.spare = true;
        self
    }

    /// A column that only `-o wide` shows.
    pub(crate) const fn wide(mut self) -> Self {
        self.wide = true;
        self
    }

    /// A column that is left out if it says nothing about any row.
    pub(crate) const fn when(mut self, says: fn(&T) -> bool) -> Self {
        self.says = says;
        self
    }

    /// A coloured column.
    pub(crate) const fn tone(mut self, tone: fn(&T) -> Tone) -> Self {
        self.tone = tone;
        self
    }
}

/// A kind of row that can be listed.
pub(crate) trait Listing: DeserializeOwned + 'static {
    /// The columns for people.
    fn columns() -> Vec<Column<Self>>;
    /// The columns of CSV: the keys of JSON.
    const PATHS: &'static [&'static str];
    /// What a person reads when there are no rows.
    const EMPTY: &'static str;
}

/// Rows of one kind as the daemon sent them.
#[derive(Debug)]
pub(crate) struct Table {
    /// The rows.
    pub(crate) rows: Vec<Box<RawValue>>,
}

impl Table {
    /// Writes the rows to standard output.
    pub(crate) fn print<T: Listing>(&self, format: Format) -> Result<(), Failure> {
        self.print_with(format, T::columns(), T::PATHS)
    }

    /// Writes the rows to standard output, in other columns than the usual ones.
    pub(crate) fn print_with<T: Listing>(
        &self,
        format: Format,
        columns: Vec<Column<T>>,
        paths: &[&str],
    ) -> Result<(), Failure> {
        match format {
            Format::Json => Ok(write_json_array(&self.rows)?),
            Format::Csv => write_csv(&self.rows, paths),
            Format::Table | Format::Wide => {
                let rows = self.rows.iter().map(|row| serde_json::from_str(row.get()));
                let text = laid_out(&rows.collect::<Result<Vec<T>, _>>()?, columns, &look(format));
                Ok(io::stdout().lock().write_all(text.as_bytes())?)
            }
        }
    }
}

/// The table as text, with a line break after each row.
pub(crate) fn render<T: Listing>(rows: &[T], look: &Look) -> String {
    laid_out(rows, T::columns(), look)
}

fn laid_out<T: Listing>(rows: &[T], columns: Vec<Column<T>>, look: &Look) -> String {
    if rows.is_empty() {
        return format!("{}\n", T::EMPTY);
    }
    let is_shown = |column: &Column<T>| look.wide || !column.wide && rows.iter().any(column.says);
    let mut columns: Vec<_> = columns.into_iter().filter(is_shown).collect();
    let mut table = filled(rows, &columns, look);
    match look.width {
        Some(width) if !look.wide => {
            while !fit(&mut table, &columns, width) && columns.len() > 1 {
                columns.remove(least_wanted(&columns));
                table = filled(rows, &columns, look);
            }
        }
        _ => drop(table.set_content_arrangement(ContentArrangement::Disabled)),
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn filled<T: Listing>(rows: &[T], columns: &[Column<T>], look: &Look) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_truncation_indicator("…");
    if look.colour {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    let names = columns.iter().map(|column| Cell::new(column.name).add_attribute(Attribute::Bold));
    let mut header = Row::from(names.collect::<Vec<_>>());
    header.max_height(1);
    table.set_header(header);
    for row in rows {
        let cells = columns
            .iter()
            .map(|column| painted(plain(&(column.text)(row, look)).as_ref(), (column.tone)(row)));
        let mut row = Row::from(cells.collect::<Vec<_>>());
        row.max_height(1);
        table.add_row(row);
    }
    for (at, column) in columns.iter().enumerate() {
        if let Some(laid) = table.column_mut(at) {
            laid.set_padding((0, GAP));
            if column.right {
                laid.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    table
}

/// The column that a terminal which is too narrow for all does without: the last that is spare, else the last.
fn least_wanted<T>(columns: &[Column<T>]) -> usize {
    columns.iter().rposition(|column| column.spare).unwrap_or(columns.len() - 1)
}

/// The space between two columns.
const GAP: u16 = 2;

/// The least widths of a column of words: enough to recognize a name, and where that is too much, its beginning.
const LEAST_OF_WORDS: [u16; 2] = [8, 5];

/// Fits a table into this many columns of a terminal by shortening words only: half a number is a wrong number. Returns
/// whether that is enough.
fn fit<T>(table: &mut comfy_table::Table, columns: &[Column<T>], width: u16) -> bool {
    LEAST_OF_WORDS.into_iter().any(|words| shorten(table, columns, words) <= width) && {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width.saturating_add(GAP));
        true
    }
}

/// Allows words to be shortened to this width, and returns the width that the table has then.
fn shorten<T>(table: &mut comfy_table::Table, columns: &[Column<T>], words: u16) -> u16 {
    let contents = table.column_max_content_widths();
    let mut least = 0u16;
    for ((at, column), content) in columns.iter().enumerate().zip(contents) {
        let own = if column.whole { content } else { content.min(words) }.saturating_add(GAP);
        least = least.saturating_add(own);
        if let Some(laid) = table.column_mut(at) {
            laid.set_constraint(match column.whole {
                true => ColumnConstraint::ContentWidth,
                false => ColumnConstraint::LowerBoundary(Width::Fixed(own)),
            });
        }
    }
    // Nothing follows the last column.
    least.saturating_sub(GAP)
}

fn painted(text: &str, tone: Tone) -> Cell {
    let cell = Cell::new(text);
    match tone {
        Tone::Good => cell.fg(Color::Green),
        Tone::Pending => cell.fg(Color::Yellow),
        Tone::Bad => cell.fg(Color::Red),
        Tone::Faint => cell.add_attribute(Attribute::Dim),
        Tone::Plain => cell,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[derive(serde::Deserialize)]
    struct Wait {
        queue: String,
        both: String,
        why: String,
    }

    impl Listing for Wait {
        const PATHS: &'static [&'static str] = &[];
        const EMPTY: &'static str = "nothing";

        fn columns() -> Vec<Column<Self>> {
            vec![
                Column::<Self>::new("QUEUE", |row, _| row.queue.clone()),
                Column::<Self>::new("MEAN WAIT", |row, _| row.both.clone()).right(),
                Column::<Self>::new("WHY", |row, _| row.why.clone()),
            ]
        }
    }

    #[test]
    fn a_narrow_terminal_costs_words_and_never_a_figure() {
        let rows =
            [["research/vision/large", "2h50m → 12h07m", "every GPU is taken"], ["nlp", "7.1s → 5.2s", ""]]
                .map(|cells| {
                    let [queue, both, why] = cells.map(str::to_owned);
                    Wait { queue, both, why }
                });
        let at = |width| render(&rows, &Look { width: Some(width), ..Look::default() });
        expect![[r#"
            QUEUE          MEAN WAIT  WHY
            researc…  2h50m → 12h07m  every…
            nlp          7.1s → 5.2s
        "#]]
        .assert_eq(&at(34));
        expect![[r#"
            QUEUE       MEAN WAIT
            rese…  2h50m → 12h07m
            nlp       7.1s → 5.2s
        "#]]
        .assert_eq(&at(21));
        assert!(at(10).lines().all(|line| line.chars().count() <= 10));
        assert!(at(48).contains("2h50m → 12h07m") && at(48).lines().all(|line| line.chars().count() <= 48));
        assert!(at(80).contains("research/vision/large") && at(80).contains("every GPU is taken"));
    }
}
