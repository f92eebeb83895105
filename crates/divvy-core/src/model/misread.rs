//! What a YAML reader finds wrong with a text, worded for its author.

use serde_saphyr::Error;

/// Line and column, from 1, and what is wrong there in this text.
pub(super) fn told(error: &Error, text: &str) -> (u64, u64, String) {
    let (line, column) = error.location().map_or((1, 1), |place| (place.line(), place.column()));
    let key = key_before(text, line, column);
    let what = match error.without_snippet() {
        Error::SerdeUnknownField { field, expected, .. } => unknown_key(field, expected),
        Error::DuplicateMappingKey { .. } => "this key stands twice".into(),
        Error::Eof { .. } => "the text ends here, and more is expected: is the file empty?".into(),
        Error::MultipleDocuments { .. } => {
            "a second document begins here: a file is one, without `---`".into()
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            of_key(key, &format!("{variant:?} is not known: write one of {}", expected.join(", ")))
        }
        Error::SerdeMissingField { field, .. } => {
            let example = example(field).map(|value| format!(": write it, as in {field}: {value}"));
            of_key(key, &format!("{field} is missing{}", example.unwrap_or_default()))
        }
        Error::NullIntoString { .. } => of_key(key, "there is no value: write '' for an empty text"),
        other => {
            let what = other.to_string();
            let example = key.and_then(|key| Some(format!(", as in {key}: {}", example(key)?)));
            let what = plainly(what.split(" at line ").next().unwrap_or_default());
            of_key(key, &format!("{what}{}", example.unwrap_or_default()))
        }
    };
    (line, column, what)
}

fn of_key(key: Option<&str>, what: &str) -> String {
    key.map_or_else(|| what.to_owned(), |key| format!("{key}: {what}"))
}

/// What one can write for a key whose value has a form of its own.
fn example(key: &str) -> Option<&'static str> {
    Some(match key {
        "budget" => "{gpu_hours: 2000, every: week}",
        "gpu_hours" => "2000",
        "every" => "week",
        "guarantee" | "limit" | "borrow" | "lend" => "{h100: 4, cpu: 64, memory: 512Gi}",
        "weight" | "max_jobs" => "2",
        "submit" | "admins" => "[user:ana, group:asr]",
        "default_for" => "[group:asr]",
        "queues" => "{vision: {weight: 1}, speech: {guarantee: 4}}",
        "policy" => "{ageing: 1d}",
        _ => return None,
    })
}

/// The key whose value begins at this place: `max_restarts` in `max_restarts: -1`. Lines and columns count from 1.
fn key_before(text: &str, line: u64, column: u64) -> Option<&str> {
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
        "expected mapping start" => "keys with their values are expected".into(),
        "expected sequence start" => "a list is expected".into(),
        "invalid u64" => "a whole number from 0 on is expected".into(),
        "invalid boolean" => "true or false is expected".into(),
        _ if what.starts_with("data did not match any variant") => {
            "a value of another form is expected".into()
        }
        other => other.to_owned(),
    }
}
