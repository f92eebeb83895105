//! Reading what users and programs write: `job.yaml` and JSON bodies, with line, column and the nearest key.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_saphyr::DuplicateKeyPolicy;

use crate::types::{JobFile, Problem, ProblemCode};

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

/// Reads a job file. Unknown and repeated keys are errors.
pub fn job_file(text: &str) -> Result<JobFile, TextError> {
    let plain = |what: String| TextError { what, nearest: None, field: None, line: 0, column: 0 };
    if text.len() > LONGEST_JOB_FILE_BYTES {
        return Err(plain(format!("a job file has at most 1 MiB; this one has {} bytes", text.len())));
    }
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Err(plain("it is empty: write at least `command: …`".into()));
    }
    serde_saphyr::from_str_with_options(text, strict()).map_err(|error| from_yaml(&error))
}

/// Limits that refuse bombs of aliases and of depth long before they cost anything.
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

fn from_yaml(error: &serde_saphyr::Error) -> TextError {
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
        other => read.what = without_place(&other.to_string()),
    }
    read
}

/// The reader's own message, less its place, which is told in front.
fn without_place(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    let cut = [" at line ", ", line "].iter().filter_map(|mark| first.rfind(mark)).min();
    first[..cut.unwrap_or(first.len())].to_owned()
}

/// The word most like one that is not known, if any is like it at all.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let word = word.replace('-', "_").to_lowercase();
    let score = |candidate: &str| {
        // A word that begins like it, or that it begins with, is meant more often than one that merely looks like it.
        let bonus = if candidate.starts_with(&word) || word.starts_with(candidate) { 0.2 } else { 0.0 };
        strsim::jaro_winkler(&word, candidate).max(strsim::normalized_damerau_levenshtein(&word, candidate))
            + bonus
    };
    let best =
        known.into_iter().map(|candidate| (score(candidate), candidate)).max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(score, _)| *score > 0.75).map(|(_, candidate)| candidate.to_owned())
}

/// Reads a JSON body; what is wrong with it has line, column and the nearest key.
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
