//! What is printed: a table for people, JSON for programs.

use std::fmt::Write as _;

use serde::Serialize;

use super::figure::{Bound, Figure, Ratio};
use super::machine::Machine;

/// Everything that a run has found.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) machine: Machine,
    /// The versions of the measured programs.
    pub(super) versions: Vec<(String, String)>,
    pub(super) figures: Vec<Figure>,
    pub(super) ratios: Vec<Ratio>,
}

impl Report {
    /// The table.
    pub(super) fn table(&self) -> String {
        let mut text = format!("{}\n", self.machine);
        for (program, version) in &self.versions {
            let _ = writeln!(text, "{program}: {version}");
        }
        let head =
            ["of", "what", "median", "min–max", "runs", "bound", "of bound"].map(String::from).to_vec();
        let rows = self.figures.iter().map(figure_row);
        let _ = write!(text, "\n{}", aligned(std::iter::once(head).chain(rows).collect()));
        if !self.ratios.is_empty() {
            let head = ["ratio", "", "bound", "of bound"].map(String::from).to_vec();
            let rows = self.ratios.iter().map(ratio_row);
            let _ = write!(text, "\n{}", aligned(std::iter::once(head).chain(rows).collect()));
        }
        text
    }
}

fn figure_row(figure: &Figure) -> Vec<String> {
    vec![
        figure.subject.to_owned(),
        figure.what.clone(),
        number(figure.median),
        format!("{}–{}", number(figure.least), number(figure.most)),
        figure.runs.to_string(),
        bound(figure.bound),
        share(figure.share_of_bound),
    ]
}

fn ratio_row(ratio: &Ratio) -> Vec<String> {
    vec![ratio.what.clone(), number(ratio.ratio), bound(ratio.bound), share(ratio.share_of_bound)]
}

fn bound(bound: Option<Bound>) -> String {
    match bound {
        Some(Bound::AtMost(most)) => format!("≤ {}", number(most)),
        Some(Bound::AtLeast(least)) => format!("≥ {}", number(least)),
        None => String::new(),
    }
}

fn share(share: Option<f64>) -> String {
    share.map(|share| format!("{share:.2}")).unwrap_or_default()
}

/// A number with three significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Columns of the same width in every row: texts to the left, the rest to the right.
pub(super) fn aligned(rows: Vec<Vec<String>>) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let is_text = |column: usize| {
        let numeric = |cell: &String| {
            cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit() || "≤≥-".contains(c))
        };
        !rows.iter().skip(1).filter_map(|row| row.get(column)).all(numeric)
    };
    let mut text = String::new();
    for row in &rows {
        let cell = |(column, cell): (usize, &String)| {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            if is_text(column) { format!("{cell}{pad}") } else { format!("{pad}{cell}") }
        };
        let line = row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_show_three_digits_that_count() {
        let shown = [0.0, 0.0421, 1.5, 12.345, 1234.5].map(number);
        assert_eq!(shown, ["0", "0.042", "1.50", "12.3", "1234"]);
    }

    #[test]
    fn texts_stand_to_the_left_and_numbers_to_the_right() {
        let rows = [["what", "median"], ["a", "1.50"], ["longer", "12.3"]];
        let rows = rows.map(|row| row.map(String::from).to_vec()).to_vec();
        assert_eq!(aligned(rows), "what    median\na         1.50\nlonger    12.3\n");
    }
}
