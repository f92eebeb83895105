//! `divvy sim suite`: puts the test cases of other schedulers before the core.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use divvy_sim::suite::{self, Case, Judged, Must, Policy, Report};

use super::form::FormFlag;
use super::progress;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::plain;

const EXAMPLES: &str = "\
Examples:
  divvy sim suite cases.json                     by topic, and what failed
  divvy sim suite cases-*.json -o json           for programs
  divvy sim suite cases.json --case kai/x/03     one case
  divvy sim suite cases.json --policy mine.yaml  under another policy";

/// Put cases that other schedulers test themselves with before the core
///
/// It ends well when it ran, whatever failed. What Divvy has no word for counts as failed, and is named.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Suite {
    /// Files of cases; `-` reads standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Only the case of this id
    #[arg(long, value_name = "ID")]
    case: Option<String>,
    /// The policy to plan by, as a policy file; else the one that belongs to the case's suite
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    #[command(flatten)]
    form: FormFlag,
}

impl Suite {
    /// The cases of all files. A case that appears twice is an error: it would be counted twice.
    fn cases(&self) -> Result<Vec<Case>, Failure> {
        let (mut cases, mut places) = (Vec::new(), BTreeMap::new());
        for file in &self.files {
            let text = super::super::run::read_text(file)?;
            let bad = |what: String| Failure::new(Exit::BadData, format!("{}: {what}", name_of(file)));
            for case in suite::read(&text).map_err(|error| bad(error.to_string()))? {
                let place = format!("{}, line {}", name_of(file), case.line);
                if let Some(first) = places.insert(case.id.clone(), place) {
                    let what = format!(
                        "line {}, case {:?}: it is in {first}, too; expected each only once",
                        case.line, case.id
                    );
                    return Err(bad(what));
                }
                cases.push(case);
            }
        }
        Ok(cases)
    }

    pub(crate) fn run(&self) -> Result<Exit, Failure> {
        self.reads_standard_input_once()?;
        let policy = self.policy()?;
        let mut cases = self.cases()?;
        if let Some(id) = &self.case {
            let of = cases.len();
            cases.retain(|case| case.id == *id);
            if cases.is_empty() {
                let what = format!("there is no case {id:?} among the {of}");
                return Err(
                    Failure::new(Exit::NotFound, what).fix("`divvy sim suite FILE -o json` lists the ids")
                );
            }
        }
        let bar = progress::bar(cases.len() as u64, "cases");
        let report = suite::run(&cases, policy.as_ref(), &|| bar.inc(1));
        bar.finish_and_clear();
        let report = report.map_err(|error| {
            Failure::new(Exit::Internal, format!("a policy that is built in cannot be read: {error}"))
        })?;
        let text = self.form.text(&report, || render(&report))?;
        io::stdout().lock().write_all(text.as_bytes())?;
        Ok(Exit::Success)
    }

    fn reads_standard_input_once(&self) -> Result<(), Failure> {
        let all = self.files.iter().chain(&self.policy);
        match all.filter(|file| *file == Path::new("-")).count() {
            0 | 1 => Ok(()),
            times => {
                let what = format!("`-` is there {times} times, but standard input can be read only once");
                Err(Failure::usage(what).fix("name the other files by their paths"))
            }
        }
    }

    fn policy(&self) -> Result<Option<Policy>, Failure> {
        let Some(file) = &self.policy else { return Ok(None) };
        let text = super::super::run::read_text(file)?;
        let wrong = |error| Failure::new(Exit::BadData, format!("{}: {error}", name_of(file)));
        suite::read_policy(&text).map(Some).map_err(wrong)
    }
}

fn name_of(file: &Path) -> String {
    if file == Path::new("-") { "standard input".into() } else { file.display().to_string() }
}

/// Passed, failed, and how many of the failed are unsupported.
type Counts = (usize, usize, usize);

fn render(report: &Report) -> String {
    let mut topics: BTreeMap<&str, Counts> = BTreeMap::new();
    for case in &report.cases {
        let counts = topics.entry(&case.topic).or_default();
        match case.must {
            Must::Pass => counts.0 += 1,
            Must::Fail => counts.1 += 1,
            Must::Unsupported => (counts.1, counts.2) = (counts.1 + 1, counts.2 + 1),
        }
    }
    let width = topics.keys().map(|topic| topic.chars().count()).max().unwrap_or(0).max("TOPIC".len());
    let mut text = format!("{:width$}  PASSED  FAILED  OF THESE UNSUPPORTED\n", "TOPIC");
    let all = (report.passed, report.failed, report.unsupported);
    for (topic, (passed, failed, unsupported)) in topics.into_iter().chain([("all", all)]) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:width$}  {passed:>6}  {failed:>6}  {unsupported:>20}", plain(topic));
    }
    let (matched, of) =
        report.cases.iter().fold((0, 0), |sum, case| (sum.0 + case.prefer.matched, sum.1 + case.prefer.of));
    let _ = writeln!(text, "the peer's own choices matched: {matched} of {of}");
    for (title, must) in [("failed", Must::Fail), ("no word for what is asked", Must::Unsupported)] {
        let cases: Vec<&Judged> = report.cases.iter().filter(|case| case.must == must).collect();
        if !cases.is_empty() {
            let _ = writeln!(text, "\n{title}:");
        }
        for case in cases {
            let _ =
                writeln!(text, "  {} ({}): {}", plain(&case.id), plain(&case.strength), plain(&case.text));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_report_counts_by_topic_and_names_what_did_not_pass() {
        let case = |id: &str, must, text: &str| Judged {
            id: id.into(),
            topic: "allocate".into(),
            strength: "plain".into(),
            must,
            prefer: suite::Preferred { matched: 1, of: 2 },
            got: serde_json::Value::Null,
            want: serde_json::Value::Null,
            text: text.into(),
        };
        let cases = vec![
            case("x/1", Must::Pass, ""),
            case("x/2", Must::Fail, "a: got wait, wanted start"),
            case("x/3", Must::Unsupported, "no word for taints"),
        ];
        let report = Report { passed: 1, failed: 2, unsupported: 1, cases };
        expect![[r#"
            TOPIC     PASSED  FAILED  OF THESE UNSUPPORTED
            allocate       1       2                     1
            all            1       2                     1
            the peer's own choices matched: 3 of 6

            failed:
              x/2 (plain): a: got wait, wanted start

            no word for what is asked:
              x/3 (plain): no word for taints
        "#]]
        .assert_eq(&render(&report));
    }
}
