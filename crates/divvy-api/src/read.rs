//! Reading what users and programs write: `job.yaml` and JSON bodies, with line, column and the nearest key.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_saphyr::DuplicateKeyPolicy;

use crate::types::{JobFile, Problem, ProblemCode};

mod misread;

/// The longest job file, in bytes: far above what people write, far below what hurts.
pub const LONGEST_JOB_FILE_BYTES: usize = 1 << 20;

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct TextError {
    /// What is wrong.
    pub what: String,
    /// The key that was probably meant.
    pub nearest: Option<String>,
    /// The key that is not known.
    pub field: Option<String>,
    /// From 1; 0 where it cannot be said.
    pub line: u64,
    /// From 1; 0 where it cannot be said.
    pub column: u64,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}, column {}: ", self.line, self.column)?;
        }
        f.write_str(&self.what)?;
        if let Some(nearest) = &self.nearest {
            write!(f, " (did you mean {nearest}?)")?;
        }
        Ok(())
    }
}

impl From<TextError> for Problem {
    fn from(error: TextError) -> Self {
        let mut problem = Problem::new(ProblemCode::BadRequest, error.to_string());
        problem.fix = error.nearest.map(|nearest| format!("write {nearest}"));
        problem.field = error.field;
        (problem.line, problem.column) = (Some(error.line), Some(error.column));
        problem
    }
}

/// Parses a job file. Unknown and repeated keys are errors.
pub fn job_file(text: &str) -> Result<JobFile, TextError> {
    let plain = |what: String| TextError { what, nearest: None, field: None, line: 0, column: 0 };
    if text.len() > LONGEST_JOB_FILE_BYTES {
        return Err(plain(format!("a job file has at most 1 MiB; this one has {} bytes", text.len())));
    }
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Err(plain("it is empty: write at least `command: …`".into()));
    }
    serde_saphyr::from_str_with_options(text, strict()).map_err(|error| from_yaml(&error, text))
}

/// Limits that refuse alias bombs and deep nesting long before they cost anything.
fn strict() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 200_000,
            max_nodes: 100_000,
            max_depth: 32,
            max_aliases: 100,
            max_anchors: 100,
            max_documents: 1,
            max_total_scalar_bytes: LONGEST_JOB_FILE_BYTES,
            max_merge_keys: 100,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        with_snippet: false,
    }
}

fn from_yaml(error: &serde_saphyr::Error, text: &str) -> TextError {
    use serde_saphyr::Error as E;
    let (line, column) = error.location().map_or((0, 0), |at| (at.line(), at.column()));
    let mut read = TextError { what: String::new(), nearest: None, field: None, line, column };
    match error.without_snippet() {
        E::SerdeUnknownField { field, expected, .. } => {
            read.what = format!("unknown key {field:?}");
            read.nearest = nearest(field, expected.iter().copied());
            read.field = Some(field.clone());
        }
        E::DuplicateMappingKey { key: Some(key), .. } => {
            read.what = format!("the key {key:?} is there twice")
        }
        other => read.what = misread::told(other, misread::key_before(text, line, column)),
    }
    read
}

/// Returns the reader's own message without its place, which is shown in front.
fn without_place(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    let cut = [" at line ", ", line "].iter().filter_map(|mark| first.rfind(mark)).min();
    first[..cut.unwrap_or(first.len())].to_owned()
}

/// Returns the known word that is most like a given one, if any is like it at all.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let word = word.replace('-', "_").to_lowercase();
    let score = |candidate: &str| {
        // A word that begins like it, or is its beginning, is meant more often than one that merely looks like it.
        let bonus = if candidate.starts_with(&word) || word.starts_with(candidate) { 0.2 } else { 0.0 };
        strsim::jaro_winkler(&word, candidate).max(strsim::normalized_damerau_levenshtein(&word, candidate))
            + bonus
    };
    let best =
        known.into_iter().map(|candidate| (score(candidate), candidate)).max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(score, _)| *score > 0.75).map(|(_, candidate)| candidate.to_owned())
}

/// Parses a JSON body; errors have line, column and the nearest key.
pub fn json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, TextError> {
    serde_json::from_slice(bytes).map_err(|error| from_json(&error))
}

fn from_json(error: &serde_json::Error) -> TextError {
    let (line, column) = (error.line() as u64, error.column() as u64);
    let what = without_place(&error.to_string());
    let mut read = TextError { what, nearest: None, field: None, line, column };
    // serde_json has no typed errors: "unknown field `gpu`, expected one of `name`, `gpus`".
    if let Some(rest) = read.what.strip_prefix("unknown field `") {
        let mut words = rest.split('`').step_by(2);
        let field = words.next().unwrap_or_default().to_owned();
        read.nearest = nearest(&field, rest.split('`').skip(2).step_by(2));
        read.what = format!("unknown key {field:?}");
        read.field = Some(field);
    }
    read
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::types::{Command, Submit};

    fn wrong(text: &str) -> String {
        job_file(text).unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_key_is_told_with_line_column_and_the_nearest_key() {
        assert_eq!(
            wrong("name: x\ngpu: 2\ncommand: true\n"),
            "line 2, column 1: unknown key \"gpu\" (did you mean gpus?)"
        );
        assert_eq!(
            wrong("command: a\ntime-limit: 2h\n"),
            "line 2, column 1: unknown key \"time-limit\" (did you mean time_limit?)"
        );
        assert_eq!(
            wrong("command: a\nroles:\n  - name: x\n    gpuz: 1\n"),
            "line 4, column 5: unknown key \"gpuz\" (did you mean gpus?)"
        );
        assert_eq!(wrong("command: a\nzebra: 1\n"), "line 2, column 1: unknown key \"zebra\"");
    }

    #[test]
    fn keys_given_twice_empty_files_and_second_documents_are_refused() {
        assert_eq!(
            wrong("command: a\nname: x\nname: y\n"),
            "line 3, column 1: the key \"name\" is there twice"
        );
        assert!(wrong("# nothing\n\n").contains("it is empty"));
        assert!(job_file("command: a\n---\ncommand: b\n").is_err());
        assert!(job_file("- a\n- b\n").is_err());
        assert!(job_file("just text").is_err());
    }

    #[test]
    fn a_value_of_the_wrong_form_is_told_with_its_key_and_an_example() {
        for (text, said) in [
            ("env: {C: null}", "line 2, column 10: C: there is no value: write '' for an empty text"),
            (
                "max_restarts: -1",
                "line 2, column 15: max_restarts: a whole number from 0 to 4294967295 is expected, as in max_restarts: 3",
            ),
            (
                "checkpoint: USR1",
                "checkpoint: keys with their values are expected, as in checkpoint: {notice: USR1, grace: 60s}",
            ),
            (
                "stop:\n  TERM",
                "stop: keys with their values are expected, as in stop: {signal: TERM, grace: 30s}",
            ),
            ("hold: maybe", "hold: true or false is expected"),
            ("args: hi", "args: a list is expected, as in args: [--epochs, \"10\"]"),
            ("---\ncommand: b", "there are two jobs in it"),
        ] {
            let error = wrong(&format!("command: a\n{text}\n"));
            assert!(error.contains(said), "{text:?}: {error}");
        }
    }

    #[test]
    fn commands_are_lists_or_lines_for_the_shell() {
        let argv = |text| {
            let file = job_file(text).unwrap();
            file.command.map(|command| command.argv(&file.args)).unwrap_or_default()
        };
        assert_eq!(argv("command: [python, -u, train.py, 1.50]"), ["python", "-u", "train.py", "1.50"]);
        assert_eq!(argv("command: echo $1\nargs: [hi]"), ["sh", "-c", "echo $1", "sh", "hi"]);
        assert_eq!(argv("command: |\n  set -e\n  make\n"), ["sh", "-c", "set -e\nmake\n"]);
        assert!(job_file("command: {a: b}").is_err());
    }

    #[test]
    fn numbers_may_be_written_with_or_without_quotes() {
        let file =
            job_file("command: a\ngpus: 2\ncpus: 0.5\nmemory: 64G\npriority: -5\narray: 0-9%2\nafter: 12\n");
        let file = file.unwrap();
        let text =
            |value: &Option<crate::Scalar>| value.as_ref().map(|value| value.0.clone()).unwrap_or_default();
        assert_eq!([text(&file.cpus), text(&file.memory)], ["0.5", "64G"]);
        assert_eq!(file.gpus, Some("2".into()));
        assert_eq!([text(&file.priority), text(&file.array)], ["-5", "0-9%2"]);
        assert_eq!(file.after, ["12".into()]);
        assert_eq!(job_file("command: a\nafter: [12:ok, 13]").unwrap().after.len(), 2);
        let json: JobFile = json(br#"{"command":["a"],"gpus":2,"after":["12:ok",13]}"#).unwrap();
        assert_eq!((json.gpus, json.after.len()), (Some("2".into()), 2));
    }

    #[test]
    fn gpus_are_one_way_or_a_list_of_ways() {
        let ways = Some(crate::Gpus::Ways(vec!["h100:2".into(), "4".into()]));
        assert_eq!(job_file("command: a\ngpus: [h100:2, 4]").unwrap().gpus, ways);
        assert_eq!(json::<JobFile>(br#"{"gpus":["h100:2",4]}"#).unwrap().gpus, ways);
        assert_eq!(job_file("command: a\ngpus:\n  - h100:2\n  - 4").unwrap().gpus, ways);
        let error = job_file("command: a\ngpus: {h100: 2}").unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("in order of preference"), "{error}");
    }

    #[test]
    fn variables_keep_the_text_that_was_written() {
        let file = job_file("command: a\nenv: {A: 1.50, B: yes, C: '007', D: 0x10}").unwrap();
        assert_eq!(file.env.values().collect::<Vec<_>>(), ["1.50", "yes", "007", "0x10"]);
    }

    #[test]
    fn bombs_of_aliases_and_of_depth_are_refused() {
        let mut bomb = String::from("a: &a [x,x,x,x,x,x,x,x,x]\n");
        for (last, next) in "abcdefghij".chars().zip("bcdefghijk".chars()) {
            bomb.push_str(&format!(
                "{next}: &{next} [*{last},*{last},*{last},*{last},*{last},*{last},*{last}]\n"
            ));
        }
        assert!(job_file(&bomb).is_err());
        assert!(job_file(&format!("command: {}", "[".repeat(100_000))).is_err());
        assert!(job_file(&"x".repeat(LONGEST_JOB_FILE_BYTES + 1)).is_err());
    }

    #[test]
    fn a_json_body_with_an_unknown_key_says_where_and_which_was_meant() {
        let error = json::<Submit>(b"{\"job\":\n {\"comand\":\"x\"}}").unwrap_err();
        assert_eq!((error.line, error.nearest.as_deref()), (2, Some("command")));
        let problem = Problem::from(error);
        assert_eq!((problem.status, problem.field.as_deref()), (400, Some("comand")));
        assert!(json::<Submit>(b"{\"job\":{\"name\":\"a\",\"name\":\"b\"}}").is_err());
    }

    fn any_job_file() -> impl Strategy<Value = JobFile> {
        let text = "[ -~äπ\\n]{0,12}";
        let scalar = proptest::option::of("[a-z0-9:.%-]{1,8}".prop_map(crate::Scalar));
        let map = proptest::collection::btree_map("[A-Z]{1,4}", text, 0..3);
        let command = prop_oneof![
            proptest::collection::vec(text, 1..4).prop_map(Command::Argv),
            text.prop_map(Command::Shell),
        ];
        (
            proptest::option::of(text),
            command,
            scalar.clone(),
            scalar,
            map,
            any::<bool>(),
            any::<Option<bool>>(),
        )
            .prop_map(|(name, command, gpus, time_limit, env, hold, preemptible)| JobFile {
                name,
                command: Some(command),
                gpus: gpus.map(crate::Gpus::One),
                time_limit,
                env,
                hold,
                preemptible,
                ..JobFile::default()
            })
    }

    proptest! {
        #[test]
        fn no_text_makes_the_job_file_reader_panic(text in "(?s).{0,200}") {
            let _ = job_file(&text);
        }

        #[test]
        fn no_text_like_a_job_file_makes_the_reader_panic(
            lines in proptest::collection::vec("( |  |- )?(name|command|gpus|env|roles|after|<<|&a|\\*a|\\{|\\[|!!x)(: ?)?[a-z0-9,\\[\\]{}|>&*'\"-]{0,6}", 0..12),
        ) {
            let _ = job_file(&lines.join("\n"));
        }

        #[test]
        fn a_job_travels_as_json_unchanged(file in any_job_file()) {
            let bytes = serde_json::to_vec(&file).unwrap();
            prop_assert_eq!(json::<JobFile>(&bytes).unwrap(), file);
        }
    }
}
