//! `divvy sim run`: runs a text scenario of a few lines.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use divvy_sim::scenario::{self, BadScenario, Ran, Standing};

use super::form::{Form, FormFlag};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::plain;

const EXAMPLES: &str = "\
Examples:
  divvy sim run scenario.dvy                what is placed, stopped and kept waiting, and how all stands at the end
  divvy sim run scenario.dvy --trace-plan   and what each plan saw
  divvy doctor --export-scenario pool.dvy   a scenario of a real pool, names replaced

A scenario is lines such as these; docs/scenarios.md has them all:
  node   n1  8xh100
  queue  a   limit=4
  submit j1  a  2
  plan";

/// Run a text scenario: the very core, a few lines, no daemon
///
/// Where the scenario says behind a line `----` what it prints, it is compared, and what differs ends with 1. So does a
/// command that is refused where it does not say.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Run {
    /// The scenario; `-` reads standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Say what each plan saw: position, digests, and of each job that waits its place, its reasons and its way through the GPUs
    #[arg(long)]
    trace_plan: bool,
    #[command(flatten)]
    form: FormFlag,
}

impl Run {
    pub(crate) fn run(&self) -> Result<Exit, Failure> {
        let text = read(&self.file)?;
        let ran = scenario::run(&text, self.trace_plan).map_err(|bad| {
            // The output of the lines before it helps to find the mistake; programs want one object or none.
            if self.form.output == Form::Table {
                let _ = std::io::stdout().lock().write_all(told(&bad.before).as_bytes());
            }
            bad_line(&self.file, &bad)
        })?;
        let text = self.form.text(&ran, || render(&ran))?;
        std::io::stdout().lock().write_all(text.as_bytes())?;
        Ok(if ran.is_as_expected() { Exit::Success } else { Exit::Unwell })
    }
}

/// More than any scenario has; an input that goes on beyond that has no end.
const MOST_BYTES: u64 = 64 << 20;

fn read(path: &Path) -> Result<String, Failure> {
    let (mut bytes, failed) = (Vec::new(), |error| Failure::file("read", path, &error));
    let read = if path == Path::new("-") {
        std::io::stdin().take(MOST_BYTES + 1).read_to_end(&mut bytes)
    } else {
        File::open(path).map_err(failed)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)
    };
    if read.map_err(failed)? as u64 > MOST_BYTES {
        let what = format!("{} is larger than {} MiB, as no scenario is", path.display(), MOST_BYTES >> 20);
        return Err(Failure::new(Exit::BadData, what).fix("name a file of lines as in docs/scenarios.md"));
    }
    String::from_utf8(bytes).map_err(|error| Failure::not_utf8(path, &error))
}

fn bad_line(file: &Path, bad: &BadScenario) -> Failure {
    let name = if file == Path::new("-") { "standard input".into() } else { file.display().to_string() };
    Failure::new(Exit::BadData, format!("{name}, line {}: {}", bad.line, bad.what))
        .because(format!("{} | {}", bad.line, bad.text))
}

fn told(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{}\n", plain(line))).collect()
}

fn render(ran: &Ran) -> String {
    let mut text = told(&ran.told);
    let width = |of: fn(&Standing) -> &str, least: usize| {
        ran.jobs.iter().map(|job| of(job).chars().count()).max().unwrap_or(0).max(least)
    };
    let (name, state) = (width(|job| &job.name, 3), width(|job| job.state, 5));
    if !ran.jobs.is_empty() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n{:name$}  {:state$}  WHERE, OR WHY NOT", "JOB", "STATE");
    }
    for job in &ran.jobs {
        let where_or_why = match (job.code, &job.reason) {
            (Some(code), Some(reason)) => format!("{code}: {reason}"),
            _ => job.on.join(" "),
        };
        let _ = writeln!(text, "{:name$}  {:state$}  {}", plain(&job.name), job.state, plain(&where_or_why));
    }
    text + &refusals(ran) + &difference(ran).unwrap_or_default()
}

/// The lines that were refused, if the scenario does not say what to expect.
fn refusals(ran: &Ran) -> String {
    let refused = ran.refused.iter().filter(|_| ran.expected.is_none());
    let lines: String = refused
        .map(|refused| format!("  line {}: {}: {}\n", refused.line, refused.code, plain(&refused.why)))
        .collect();
    if lines.is_empty() { lines } else { format!("\nrefused:\n{lines}") }
}

/// The first difference between what was printed and what the scenario says.
fn difference(ran: &Ran) -> Option<String> {
    let expected = ran.expected.as_ref()?;
    let at =
        (0..expected.len().max(ran.printed.len())).find(|at| expected.get(*at) != ran.printed.get(*at))?;
    let line = |lines: &[String]| lines.get(at).map_or("nothing more".to_owned(), |line| plain(line).into());
    Some(format!(
        "\nit prints other things than it says: in the place of line {}, `{}`, there is `{}`\n",
        ran.expected_from + at,
        line(expected),
        line(&ran.printed)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    const LINES: &str = "node n1 2xh100\nsubmit a default 2\nsubmit b default 1\nplan\n";

    #[test]
    fn a_scenario_ends_with_how_all_stands() {
        let ran = scenario::run(LINES, false).unwrap();
        expect![[r#"
            place a n1:0+n1:1
            wait DV-GPUS-BUSY: every GPU that would do is taken

            JOB  STATE    WHERE, OR WHY NOT
            a    running  n1:0+n1:1
            b    pending  DV-GPUS-BUSY: every GPU that would do is taken
        "#]]
        .assert_eq(&render(&ran));
    }

    #[test]
    fn what_is_printed_otherwise_than_expected_is_said() {
        let ran = scenario::run(&format!("{LINES}----\nplace a n1:0+n1:1\n"), false).unwrap();
        let told = render(&ran);
        assert!(
            told.contains("in the place of line 7, `nothing more`, there is `wait DV-GPUS-BUSY"),
            "{told}"
        );
        assert!(!ran.is_as_expected());
    }

    #[test]
    fn a_refusal_that_nobody_expects_is_told_with_its_line() {
        let lines = "node n1 2xh100\nsubmit a nowhere 1\n";
        let ran = scenario::run(lines, false).unwrap();
        let told = render(&ran);
        assert!(told.contains("\nrefused:\n  line 2: unknown-queue: "), "{told}");
        let golden = scenario::run(&format!("{lines}----\n{}\n", ran.printed[0]), false).unwrap();
        assert!(golden.is_as_expected() && !render(&golden).contains("refused:"));
    }

    #[test]
    fn a_bad_line_is_told_with_file_line_and_what_was_expected() {
        let bad = scenario::run("node n1 2xh100\nsubmit a default 1 exclusiv", false).unwrap_err();
        let told = bad_line(Path::new("full.dvy"), &bad).render();
        assert!(
            told.starts_with("divvy: full.dvy, line 2: submit does not know \"exclusiv\"; it knows: held"),
            "{told}"
        );
        assert!(told.contains("\n  2 | submit a default 1 exclusiv\n"), "{told}");
    }
}
