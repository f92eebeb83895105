//! Reads a file of cases. Question and expectation are separated here, and never meet before there is an answer.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::expected::{self, Expected};
use super::{kai, kueue};
use crate::trace::quoted;

/// One case.
#[derive(Debug)]
pub struct Case {
    /// Its name.
    pub id: String,
    /// Where in its file it begins, from 1.
    pub line: usize,
    /// Which suite it belongs to; picks the policy where none is given.
    pub suite: String,
    /// What it is about.
    pub topic: String,
    pub(super) question: Question,
    pub(super) expected: Expected,
}

/// What the core is asked.
#[derive(Debug)]
pub(super) enum Question {
    /// In the form of the `kai` suite: nodes, queues, jobs, phases.
    Kai(Box<kai::Asked>),
    /// In the form of the `kueue` suite: flavors, quotas, podsets.
    Kueue(Box<kueue::Asked>),
    /// It speaks of this, which Divvy does not know.
    Unknown(String),
}

/// A file that is no suite, or a case of another form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}{}: {what}", case.as_ref().map(|case| format!(", case {case}")).unwrap_or_default())]
pub struct BadSuite {
    /// From 1.
    pub line: usize,
    /// Which case, where one was begun.
    pub case: Option<String>,
    /// What is wrong, where in the case, and what was expected.
    pub what: String,
}

/// Reads a file of cases: a JSON array of objects, each with an id of its own.
pub fn read(text: &str) -> Result<Vec<Case>, BadSuite> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let raw: Vec<&RawValue> = serde_json::from_str(text).map_err(|error| no_array(text, &error))?;
    let (mut cases, mut lines) = (Vec::new(), BTreeMap::new());
    for (index, raw) in raw.iter().enumerate() {
        let case = case(text, index, raw.get())?;
        if let Some(first) = lines.insert(case.id.clone(), case.line) {
            let what = format!("the id is that of the case in line {first}; expected each only once");
            return Err(BadSuite { line: case.line, case: Some(named(index, &case.id)), what });
        }
        cases.push(case);
    }
    Ok(cases)
}

/// A file of another kind is told by its beginning; one that breaks off, by what is wrong there.
fn no_array(text: &str, error: &serde_json::Error) -> BadSuite {
    let begins = text.trim_start();
    let what = match begins.lines().next() {
        None => "the file is empty; a suite is a JSON array of cases: [{\"id\": …}, …]".to_owned(),
        Some(first) if !first.starts_with('[') => format!(
            "the file begins with {}; a suite is a JSON array of cases: [{{\"id\": …}}, …]",
            quoted(first)
        ),
        Some(_) => format!("a suite is a JSON array of cases: {error}"),
    };
    let line = if begins.starts_with('[') {
        error.line()
    } else {
        1 + text[..text.len() - begins.len()].matches('\n').count()
    };
    BadSuite { line, case: None, what }
}

/// A case by its place and its id, as errors name it.
fn named(index: usize, id: &str) -> String {
    format!("{} ({id})", index + 1)
}

fn case(text: &str, index: usize, raw: &str) -> Result<Case, BadSuite> {
    let offset = raw.as_ptr() as usize - text.as_ptr() as usize;
    let line = 1 + text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count();
    let name = (index + 1).to_string();
    let bad = |case: &str, what: String| BadSuite { line, case: Some(case.to_owned()), what };
    let mut fields: Map<String, Value> =
        serde_json::from_str(raw).map_err(|error| bad(&name, format!("a case is a JSON object: {error}")))?;
    let id: String = text_of(&mut fields, "id").map_err(|what| bad(&name, what))?;
    let name = named(index, &id);
    parts(fields, id, line).map_err(|what| bad(&name, what))
}

/// Parts a case into its name, its question and its expectation.
fn parts(mut fields: Map<String, Value>, id: String, line: usize) -> Result<Case, String> {
    let suite = text_of(&mut fields, "suite")?;
    let topic = text_of(&mut fields, "topic")?;
    let expected = fields.remove("expected").ok_or("the field `expected` is missing")?;
    for remark in ["summary", "tags", "source", "peer"] {
        fields.remove(remark);
    }
    let question = question(&suite, Value::Object(fields))?;
    let expected = match &question {
        Question::Unknown(_) => expected::unread(expected),
        Question::Kai(asked) => expected::read(expected, None, &asked.ranks())?,
        Question::Kueue(asked) => expected::read(expected, asked.incoming(), &asked.ranks())?,
    };
    Ok(Case { id, line, suite, topic, question, expected })
}

fn text_of(fields: &mut Map<String, Value>, name: &str) -> Result<String, String> {
    match fields.remove(name) {
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(format!("`{name}` is {other}; a text is expected")),
        None => Err(format!("the field `{name}` is missing")),
    }
}

/// An amount: a number, none, or several by name.
pub(super) trait Amount {
    fn is_below_zero(&self) -> bool;
}

impl Amount for i64 {
    fn is_below_zero(&self) -> bool {
        *self < 0
    }
}

impl Amount for f64 {
    fn is_below_zero(&self) -> bool {
        *self < 0.0
    }
}

impl<T: Amount> Amount for Option<T> {
    fn is_below_zero(&self) -> bool {
        self.as_ref().is_some_and(T::is_below_zero)
    }
}

impl Amount for BTreeMap<String, i64> {
    fn is_below_zero(&self) -> bool {
        self.values().any(Amount::is_below_zero)
    }
}

/// Reads an amount, which is never below 0.
pub(super) fn amount<'de, D: serde::Deserializer<'de>, T: Deserialize<'de> + Amount>(
    deserializer: D,
) -> Result<T, D::Error> {
    let amount = T::deserialize(deserializer)?;
    match amount.is_below_zero() {
        true => Err(serde::de::Error::custom("it is below 0; an amount is expected")),
        false => Ok(amount),
    }
}

fn question(suite: &str, fields: Value) -> Result<Question, String> {
    match suite {
        "kai" => Ok(known(strictly(fields)?, |asked| Question::Kai(Box::new(asked)))),
        "kueue" => Ok(known(strictly(fields)?, |asked: kueue::Asked| {
            Question::Kueue(Box::new(asked.told_apart().with_extra()))
        })),
        "dra" => Ok(Question::Unknown("device claims (DRA)".into())),
        other => Err(format!("the suite {other:?} is none of kai, kueue, dra")),
    }
}

/// An unknown field may change the question, which then cannot be answered.
fn known<T>((read, unknown): (T, Option<String>), question: impl FnOnce(T) -> Question) -> Question {
    match unknown {
        None => question(read),
        Some(path) => Question::Unknown(format!("the field {path}")),
    }
}

/// Something whose presence may matter, but not its content. (Unlike `IgnoredAny` it counts as read.)
#[derive(Debug)]
pub(super) struct Anything;

impl<'de> Deserialize<'de> for Anything {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|_| Self)
    }
}

/// Reads a value, with the path of the first unknown field; the error has the path of what is wrong.
pub(super) fn strictly<T: DeserializeOwned>(value: Value) -> Result<(T, Option<String>), String> {
    let mut unknown = None;
    let mut note = |path: serde_ignored::Path<'_>| {
        unknown.get_or_insert_with(|| path.to_string());
    };
    let noting = serde_ignored::Deserializer::new(value, &mut note);
    let read = serde_path_to_error::deserialize(noting).map_err(|error| match error.path().to_string() {
        path if path == "." => error.inner().to_string(),
        path => format!("{path}: {}", error.inner()),
    })?;
    Ok((read, unknown))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_file_of_another_form_names_its_place() {
        let wrong = |text: &str| read(text).unwrap_err().to_string();
        assert_eq!(
            wrong("\nnode,model\nn1,a100\n"),
            "line 2: the file begins with \"node,model\"; a suite is a JSON array of cases: [{\"id\": …}, …]"
        );
        assert!(wrong("").starts_with("line 1: the file is empty; a suite is"));
        assert!(wrong("[\n{},\n").starts_with("line 3: "), "{}", wrong("[\n{},\n"));
        assert_eq!(wrong("[\n {}]"), "line 2, case 1: the field `id` is missing");
        assert_eq!(wrong("[{\"id\": 3}]"), "line 1, case 1: `id` is 3; a text is expected");
        let text = "[\n{\"id\": \"x\", \"suite\": \"moon\", \"topic\": \"t\", \"expected\": {}}]";
        assert_eq!(wrong(text), "line 2, case 1 (x): the suite \"moon\" is none of kai, kueue, dra");
    }

    #[test]
    fn a_mark_of_the_byte_order_is_passed_over() {
        assert_eq!(read("\u{feff}[]").unwrap().len(), 0);
        let wrong = read("\u{feff}\n[{}]").unwrap_err().to_string();
        assert_eq!(wrong, "line 2, case 1: the field `id` is missing");
    }

    #[test]
    fn an_id_that_recurs_is_named_with_both_lines() {
        let case =
            "{\"id\": \"x\", \"suite\": \"dra\", \"topic\": \"t\", \"expected\": {\"strength\": \"plain\"}}";
        assert_eq!(
            read(&format!("[\n{case},\n{case}]")).unwrap_err().to_string(),
            "line 3, case 2 (x): the id is that of the case in line 2; expected each only once"
        );
    }

    #[test]
    fn an_amount_below_zero_is_named_by_its_path() {
        let wrong = |suite: &str, node: &str| {
            let text = format!(
                "[{{\"id\": \"x\", \"suite\": \"{suite}\", \"topic\": \"t\", \"expected\": {{}}, \"nodes\": [{node}]}}]"
            );
            read(&text).unwrap_err().what
        };
        let node = "{\"name\": \"n\", \"gpus\": -4}";
        assert!(wrong("kai", node).starts_with("nodes[0].gpus: invalid value: integer `-4`"));
        let node = "{\"name\": \"n\", \"gpus\": 1, \"cpu_milli\": -4}";
        assert_eq!(wrong("kai", node), "nodes[0].cpu_milli: it is below 0; an amount is expected");
        let node = "{\"name\": \"n\", \"allocatable\": {\"example.com/gpu\": -4}}";
        assert_eq!(wrong("kueue", node), "nodes[0].allocatable: it is below 0; an amount is expected");
    }

    #[test]
    fn a_wrong_value_is_named_by_its_path() {
        let text = r#"[{"id": "x", "suite": "kai", "topic": "t", "nodes": [{"name": "n1", "gpus": "two"}],
            "queues": [], "jobs": [], "config": {"phases": []}, "expected": {"strength": "plain"}}]"#;
        let what = read(text).unwrap_err().what;
        assert!(what.starts_with("nodes[0].gpus: ") && what.contains("\"two\""), "{what}");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in ".{0,200}") {
            let _ = read(&text);
            let _ = read(&format!("[{{\"id\": \"x\", \"suite\": \"kai\", {text}}}]"));
        }
    }
}
