//! What the YAML reader finds wrong with a job file, in the words of people who write job files: it speaks of its own types.

use serde_saphyr::Error;
use serde_saphyr::budget::BudgetBreach;

use super::without_place;

/// Says what is wrong with the value of a key, where the key is known.
pub(super) fn told(error: &Error, key: Option<&str>) -> String {
    let what = match error {
        Error::MultipleDocuments { .. } | Error::Budget { breach: BudgetBreach::Documents { .. }, .. } => {
            return "there are two jobs in it: a file is one job, without `---` in between".into();
        }
        Error::Budget { .. } => return "it is nested, repeated or long beyond what a job file needs".into(),
        Error::NullIntoString { .. } => "there is no value: write '' for an empty text".into(),
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            format!("{variant:?} is not known: write one of {}", expected.join(", "))
        }
        Error::SerdeMissingField { field, .. } => {
            let example = example(field).map(|value| format!(": write it, as in {field}: {value}"));
            format!("{field} is missing{}", example.unwrap_or_default())
        }
        other => {
            let example = key.and_then(|key| Some(format!(", as in {key}: {}", example(key)?)));
            match plainly(&without_place(&other.to_string())) {
                Ok(expected) => format!("{expected}{}", example.unwrap_or_default()),
                Err(own_words) => own_words,
            }
        }
    };
    key.map_or_else(|| what.clone(), |key| format!("{key}: {what}"))
}

/// What was expected; otherwise the reader's words, which are clear enough.
fn plainly(what: &str) -> Result<String, String> {
    Ok(match what {
        "invalid u32" => format!("a whole number from 0 to {} is expected", u32::MAX),
        "invalid u64" => "a whole number from 0 on is expected".into(),
        "invalid boolean" | "invalid bool" => "true or false is expected".into(),
        "expected mapping start" => "keys with their values are expected".into(),
        "expected sequence start" => "a list is expected".into(),
        other => return Err(other.to_owned()),
    })
}

/// What one can write for a key whose value has a form of its own.
fn example(key: &str) -> Option<&'static str> {
    Some(match key {
        "checkpoint" => "{notice: USR1, grace: 60s}",
        "stop" => "{signal: TERM, grace: 30s}",
        "env" => "{NAME: value}",
        "labels" => "{team: vision}",
        "roles" => "[{name: trainer, gpus: 2}]",
        "spread" => "{over: rack, most: 2}",
        "over" => "rack",
        "speed" => "{h100: 1, a100: 0.5}",
        "args" => "[--epochs, \"10\"]",
        "max_restarts" => "3",
        "tasks" | "max_tasks" => "4",
        _ => return None,
    })
}

/// The key whose value begins at this place: `max_restarts` in `max_restarts: -1`. Lines and columns count from 1.
pub(super) fn key_before(text: &str, line: u64, column: u64) -> Option<&str> {
    let (line, column) = (usize::try_from(line).ok()?, usize::try_from(column).ok()?);
    let own = text.lines().nth(line.checked_sub(1)?)?;
    let end = own.char_indices().nth(column.checked_sub(1)?).map_or(own.len(), |(at, _)| at);
    let says_something = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let mut before = own[..end].trim_end();
    if before.trim_start().is_empty() {
        // The value stands below its key.
        let above: Vec<&str> = text.lines().take(line - 1).filter(says_something).collect();
        before = above.last()?.trim_end();
    }
    let before = before.strip_suffix(':')?;
    let key = before.rsplit([' ', '{', ',', '\t']).next()?.trim_matches(['"', '\'']);
    (!key.is_empty()).then_some(key)
}
