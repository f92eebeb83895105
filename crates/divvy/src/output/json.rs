//! JSON as the daemon sent it: keys that this version does not know are passed on.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use serde_json::value::RawValue;

/// Writes one array of objects, an object a line.
pub(crate) fn write_json_array(rows: &[Box<RawValue>]) -> io::Result<()> {
    let stdout = io::stdout();
    let mut out = io::BufWriter::new(stdout.lock());
    write_array(rows, &mut out, stdout.is_terminal())?;
    out.flush()
}

fn write_array(rows: &[Box<RawValue>], out: &mut impl Write, terminal: bool) -> io::Result<()> {
    if rows.is_empty() {
        return out.write_all(b"[]\n");
    }
    let mut before = "[\n";
    for row in rows {
        out.write_all(before.as_bytes())?;
        out.write_all(safe(row.get(), terminal).as_bytes())?;
        before = ",\n";
    }
    out.write_all(b"\n]\n")
}

/// Writes one object.
pub(crate) fn write_json(object: &RawValue) -> io::Result<()> {
    let stdout = io::stdout();
    let mut out = stdout.lock();
    out.write_all(safe(object.get(), stdout.is_terminal()).as_bytes())?;
    out.write_all(b"\n")
}

/// JSON escapes the control characters below the space. On a terminal, those above the tilde are escaped as well.
fn safe(json: &str, terminal: bool) -> Cow<'_, str> {
    let hostile = |c: char| matches!(c, '\u{7f}'..='\u{9f}');
    if !terminal || !json.contains(hostile) {
        return Cow::Borrowed(json);
    }
    let escaped =
        json.chars().map(|c| if hostile(c) { format!("\\u{:04x}", c as u32) } else { c.to_string() });
    Cow::Owned(escaped.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(rows: &[&str], terminal: bool) -> String {
        let rows: Vec<_> = rows.iter().map(|row| RawValue::from_string((*row).to_owned()).unwrap()).collect();
        let mut out = Vec::new();
        write_array(&rows, &mut out, terminal).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn listings_are_one_array_with_keys_as_they_came() {
        assert_eq!(written(&[], false), "[]\n");
        assert_eq!(
            written(&[r#"{"z":1,"a":2}"#, r#"{"new":null}"#], false),
            "[\n{\"z\":1,\"a\":2},\n{\"new\":null}\n]\n"
        );
    }

    #[test]
    fn on_a_terminal_the_second_row_of_control_characters_is_escaped_too() {
        let text = written(&["{\"name\":\"\u{9b}2J\"}"], true);
        assert!(
            text.contains("\\u009b2J") && serde_json::from_str::<serde_json::Value>(&text).is_ok(),
            "{text}"
        );
    }
}
