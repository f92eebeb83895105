//! Suites: cases that other schedulers test themselves with, in a neutral form. The core is given each case as a pool at rest,
//! it plans, and its plan is compared with what must come out.
//!
//! A case is split when it is read: the question goes to the core, and the expectation stays behind until there is an answer.
//! So no path from a case's expectation (or its name) to a decision can exist.

mod answer;
mod compare;
mod expected;
mod kai;
mod kueue;
mod measure;
mod prefer;
mod read;
mod seating;
mod stage;

use serde::Serialize;
use serde_json::Value;

pub use divvy_core::model::policy::{BadPolicy, Policy, parse as read_policy};
pub use read::{BadSuite, Case, read};

use answer::{Answer, Obstacle};
use read::Question;

/// The most devices that a node of a case may have: cases have some dozens.
const MOST_DEVICES: u32 = 10_000;

/// How the core's answer to a case compares with what must come out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Must {
    /// It is as good.
    Pass,
    /// It is not.
    Fail,
    /// The case asks for something that Divvy has no word for.
    Unsupported,
}

/// How many of the peer's choices beyond that are matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Preferred {
    /// Choices that are the same.
    pub matched: usize,
    /// Choices in all.
    pub of: usize,
}

/// What became of one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The case's name.
    pub id: String,
    /// What it is about.
    pub topic: String,
    /// How far any correct scheduler has to agree: `must`, `plain`, `policy`, `peer`.
    pub strength: String,
    /// Whether what must come out did.
    pub must: Must,
    /// How much is the same beyond that.
    pub prefer: Preferred,
    /// What the core did; null where it was not asked.
    pub got: Value,
    /// What must come out, as the case has it.
    pub want: Value,
    /// What differs, or what there is no word for; empty for a case that passed.
    pub text: String,
}

/// What became of all cases.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Cases that passed.
    pub passed: usize,
    /// Cases that did not, the unsupported ones included.
    pub failed: usize,
    /// Of those, the ones that Divvy has no word for.
    pub unsupported: usize,
    /// All, in the order of the file.
    pub cases: Vec<Judged>,
}

/// Puts cases before the core. Without a policy, each case's suite picks its built-in one.
pub fn run(cases: &[Case], policy: Option<&Policy>, over: &dyn Fn()) -> Result<Report, BadPolicy> {
    let judged = cases.iter().map(|case| judge(case, policy)).inspect(|_| over());
    let judged = judged.collect::<Result<Vec<_>, _>>()?;
    let count = |must| judged.iter().filter(|case| case.must == must).count();
    let (passed, unsupported) = (count(Must::Pass), count(Must::Unsupported));
    Ok(Report { passed, failed: judged.len() - passed, unsupported, cases: judged })
}

fn judge(case: &Case, policy: Option<&Policy>) -> Result<Judged, BadPolicy> {
    let policy = policy.map_or_else(|| built_in(&case.suite), |policy| Ok(policy.clone()))?;
    let answer = ask(&case.question, policy);
    let expected = &case.expected;
    let (must, prefer, got, text) = match &answer {
        Ok(answer) => {
            let verdict = compare::must(answer, expected);
            let must = if verdict.is_ok() { Must::Pass } else { Must::Fail };
            (must, prefer::score(answer, expected), answer.shown(), verdict.err().unwrap_or_default())
        }
        Err(Obstacle::NoWord(words)) => {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            (
                Must::Unsupported,
                nothing_of(expected),
                Value::Null,
                format!("no word for {}", words.join(", ")),
            )
        }
        Err(Obstacle::Broken(what)) => (Must::Fail, nothing_of(expected), Value::Null, what.clone()),
    };
    Ok(Judged {
        id: case.id.clone(),
        topic: case.topic.clone(),
        strength: expected.strength.clone(),
        must,
        prefer,
        got,
        want: expected.shown.clone(),
        text,
    })
}

fn nothing_of(expected: &expected::Expected) -> Preferred {
    Preferred { matched: 0, of: expected.prefer.len() }
}

/// Puts a question before the core. Nothing of the expectation can be seen from here.
fn ask(question: &Question, policy: Policy) -> Result<Answer, Obstacle> {
    match question {
        Question::Kai(asked) => kai::answer(asked, policy),
        Question::Kueue(asked) => kueue::answer(asked, policy),
        Question::Unknown(what) => Err(Obstacle::no_word(what)),
    }
}

/// The policy that a suite's cases assume, as far as Divvy has settings for it.
fn built_in(suite: &str) -> Result<Policy, BadPolicy> {
    let text = match suite {
        "kai" => include_str!("../../policies/kai.yaml"),
        "kueue" => include_str!("../../policies/kueue.yaml"),
        _ => "{}",
    };
    read_policy(text)
}
