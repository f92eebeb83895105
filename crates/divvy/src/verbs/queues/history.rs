//! `divvy queues --history`: who changed what, when and why.

use std::io::Write;

use divvy_api::{QueuesChange, paths};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Column, Format, Listing, Table, local, look, plain};
use crate::pool::{self, Place};

/// The default number of changes for people.
const CHANGES_FOR_PEOPLE: u64 = 20;

/// Prints the newest changes, the newest at the bottom.
pub(super) fn print(place: &Place, limit: Option<u64>, format: Format) -> Result<Exit, Failure> {
    let people = matches!(format, Format::Table | Format::Wide);
    let newest = limit.or(people.then_some(CHANGES_FOR_PEOPLE)).map(|most| most.to_string());
    let path = paths::with_query(paths::QUEUES_HISTORY, &[("newest", newest)]);
    let rows = pool::with_client(place, async |mut client| pool::rows(&mut client, &path).await)?;
    if !people {
        Table { rows }.print::<QueuesChange>(format)?;
        return Ok(Exit::Success);
    }
    let changes =
        rows.iter().map(|row| serde_json::from_str(row.get())).collect::<Result<Vec<QueuesChange>, _>>()?;
    let colour = look(format).colour;
    let text: String = changes.iter().map(|change| render(change, colour)).collect();
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Exit::Success)
}

/// One change: who and when, then a line per difference.
fn render(change: &QueuesChange, colour: bool) -> String {
    let note = change.note.as_ref().map(|note| format!("  {}", plain(note))).unwrap_or_default();
    let mut text = format!("{}  {}  {}{note}\n", change.change, local(change.at_ms), plain(&change.by));
    if change.diff.is_empty() {
        text += "   what the pool began with\n";
    }
    for line in &change.diff {
        text += &format!("   {}\n", crate::verbs::apply::painted(line, colour));
    }
    text
}

impl Listing for QueuesChange {
    const PATHS: &'static [&'static str] = &["change", "position", "at_ms", "by", "note", "diff"];
    const EMPTY: &'static str = "no changes";

    fn columns() -> Vec<Column<Self>> {
        vec![
            Column::<Self>::new("CHANGE", |change, _| change.change.to_string()).right(),
            Column::<Self>::new("WHEN", |change, _| local(change.at_ms)),
            Column::<Self>::new("WHO", |change, _| change.by.clone()),
            Column::<Self>::new("WHAT", |change, _| change.diff.join("; ")),
            Column::<Self>::new("NOTE", |change, _| change.note.clone().unwrap_or_default()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_change_says_who_made_it_why_and_what_is_different() {
        let change = QueuesChange {
            change: 3,
            by: "ana".into(),
            note: Some("a \u{1b}[31mdeadline".into()),
            diff: vec!["~ vision limit any: 4 → 8".into(), "- old".into()],
            ..QueuesChange::default()
        };
        let text = render(&change, false).replace(&local(0), "THEN");
        expect![[r#"
            3  THEN  ana  a \u{1b}[31mdeadline
               ~ vision limit any: 4 → 8
               - old
        "#]]
        .assert_eq(&text);
    }
}
