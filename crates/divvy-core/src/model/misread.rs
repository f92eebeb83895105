//! What a YAML reader finds wrong with a text, worded for its author.

use serde_saphyr::Error;

/// Line and column, from 1, and what is wrong there.
pub(super) fn told(error: &Error) -> (u64, u64, String) {
    let (line, column) = error.location().map_or((1, 1), |place| (place.line(), place.column()));
    let what = match error.without_snippet() {
        Error::SerdeUnknownField { field, expected, .. } => unknown_key(field, expected),
        Error::DuplicateMappingKey { .. } => "this key stands twice".into(),
        Error::Eof { .. } => "the text ends here, and more is expected: is the file empty?".into(),
        other => plainly(other.to_string().split(" at line ").next().unwrap_or_default()),
    };
    (line, column, what)
}

fn unknown_key(field: &str, expected: &[&'static str]) -> String {
    // Names in milliseconds are those of the log, which people need not know.
    let known: Vec<&str> = expected.iter().copied().filter(|key| !key.contains("_ms")).collect();
    let nearest = known.iter().max_by_key(|key| (strsim::jaro_winkler(key, field) * 1000.0) as i64);
    let near = nearest.filter(|key| strsim::damerau_levenshtein(key, field) <= 3);
    let hint =
        near.map_or(format!("write one of {}", known.join(", ")), |key| format!("did you mean {key}?"));
    format!("unknown key {field:?}: {hint}")
}

/// The message in the words of users who write such files: the reader speaks of its own types.
fn plainly(what: &str) -> String {
    match what {
        "invalid u32" => format!("a whole number from 0 to {} is expected", u32::MAX),
        "invalid i32" => format!("a whole number from {} to {} is expected", i32::MIN, i32::MAX),
        "expected mapping start" => "keys with their values are expected: {key: value}".into(),
        "expected sequence start" => "a list is expected: [one, another]".into(),
        other => other.to_owned(),
    }
}
