//! CSV: a line of names, then a line per row.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};

use serde_json::Value;
use serde_json::value::RawValue;

use super::plain;
use crate::failure::Failure;

/// Writes rows as CSV. A path such as `reason.code` reaches into an object. Lists of words are joined by spaces, other
/// lists stay JSON, and null is empty.
pub(crate) fn write_csv(rows: &[Box<RawValue>], paths: &[&str]) -> Result<(), Failure> {
    let stdout = io::stdout();
    write(rows, paths, stdout.lock(), stdout.is_terminal())
}

fn write(rows: &[Box<RawValue>], paths: &[&str], out: impl Write, terminal: bool) -> Result<(), Failure> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(paths)?;
    for row in rows {
        let text = row.get();
        let row: Value = serde_json::from_str(text)?;
        let fields = paths
            .iter()
            .map(|path| decimal(text, path).unwrap_or_else(|| field(&row, path)))
            .map(|text| if terminal { plain(&text).into_owned() } else { text });
        writer.write_record(fields)?;
    }
    writer.flush()?;
    Ok(())
}

/// A number with decimals as it was written, so that CSV and JSON agree in the last digit, which parsing might change.
fn decimal(row: &str, path: &str) -> Option<String> {
    let mut text = row;
    for key in path.split('.') {
        let object: BTreeMap<&str, &RawValue> = serde_json::from_str(text).ok()?;
        text = object.get(key)?.get();
    }
    let is_decimal = text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) && text.contains('.');
    is_decimal.then(|| text.to_owned())
}

fn field(row: &Value, path: &str) -> String {
    let value = path.split('.').try_fold(row, |value, key| value.get(key));
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) if items.iter().all(Value::is_string) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
        }
        Some(Value::Object(map)) if map.values().all(Value::is_string) => map
            .iter()
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
            .collect::<Vec<_>>()
            .join(" "),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_number_is_written_as_it_was_sent() {
        let row =
            RawValue::from_string(r#"{"before":{"wait":18.711002609531658},"use":0.10,"n":1}"#.to_owned());
        let mut out = Vec::new();
        write(&[row.unwrap()], &["before.wait", "use", "n", "none.at.all"], &mut out, false).unwrap();
        assert!(String::from_utf8(out).unwrap().ends_with("\n18.711002609531658,0.10,1,\n"));
    }

    #[test]
    fn nested_values_have_paths_and_null_is_empty() {
        let row = r#"{"id":"12_3","name":"a, \"b\"","devices":["GPU-1","GPU-2"],"labels":{"k":"v"},"exit_code":null,
            "reason":{"code":"DV-X","text":"t"},"allocations":[{"job":"1"}]}"#;
        let rows = [RawValue::from_string(row.to_owned()).unwrap()];
        let paths =
            ["id", "name", "devices", "labels", "exit_code", "reason.code", "last_end.cause", "allocations"];
        let mut out = Vec::new();
        write(&rows, &paths, &mut out, false).unwrap();
        expect![[r#"
            id,name,devices,labels,exit_code,reason.code,last_end.cause,allocations
            12_3,"a, ""b""",GPU-1 GPU-2,k=v,,DV-X,,"[{""job"":""1""}]"
        "#]]
        .assert_eq(&String::from_utf8(out).unwrap());
    }
}
