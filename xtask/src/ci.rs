//! `cargo xtask ci`: everything that a change must pass, cheap steps first; stops at the first failure.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use clap::{Args, ValueEnum};

use crate::{cargo, deny, kube, tidy};

/// What to run.
#[derive(Args)]
pub(crate) struct Options {
    /// Only these steps, separated by commas; they run in the usual order
    #[arg(long, value_enum, value_delimiter = ',', value_name = "STEPS")]
    only: Vec<Step>,
}

/// A step, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Step {
    Fmt,
    Tidy,
    Deny,
    Clippy,
    Doc,
    // Last, so that the tests' closing lines end the output.
    Test,
}

/// How a step ended.
#[derive(Debug)]
enum Outcome {
    Passed(Duration),
    Failed(Duration),
    NotRun,
}

/// Runs the steps and prints a summary.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut summary = Vec::new();
    let mut failure = None;
    let steps = chosen(&options.only);
    // Built beside the steps that do not need it: the first build takes longer than any of them.
    let mut cluster = match steps.contains(&Step::Test) {
        true => kube::Building::start()?,
        false => kube::Building::Done,
    };
    for step in steps {
        let outcome = match failure {
            None => timed(step, &mut cluster, &mut failure),
            Some(_) => Outcome::NotRun,
        };
        summary.push((step, outcome));
    }
    print!("\n{}", table(&summary));
    failure.map_or(Ok(()), Err)
}

fn chosen(only: &[Step]) -> Vec<Step> {
    let all = Step::value_variants().iter().copied();
    all.filter(|step| only.is_empty() || only.contains(step)).collect()
}

/// Runs one step, says how it ended, and leaves its error in `failure`.
fn timed(step: Step, cluster: &mut kube::Building, failure: &mut Option<anyhow::Error>) -> Outcome {
    println!("\n==> {}: {}", name(step), title(step));
    let started = Instant::now();
    let result = perform(step, cluster);
    let took = started.elapsed();
    let outcome = match result {
        Ok(()) => Outcome::Passed(took),
        Err(error) => {
            *failure = Some(anyhow!(
                "step {0} failed: {error:#}\n       run it alone: cargo xtask ci --only {0}",
                name(step)
            ));
            Outcome::Failed(took)
        }
    };
    println!("==> {}: {}", name(step), said(&outcome));
    // Standard output may be a pipe, and the next step's programs write to it past this program's buffer.
    let _ = std::io::stdout().flush();
    outcome
}

fn perform(step: Step, cluster: &mut kube::Building) -> Result<()> {
    match step {
        Step::Tidy => tidy::run(),
        Step::Deny => deny::run(),
        Step::Test => {
            // Compiled first, so that the cluster is built meanwhile, too.
            cargo::run(command(step).arg("--no-run"))?;
            cluster.beside(|| cargo::run(&mut command(step)))
        }
        Step::Fmt | Step::Clippy | Step::Doc => cargo::run(&mut command(step)),
    }
}

/// Returns the cargo command of a step; for the two steps that are verbs of their own, that verb.
fn command(step: Step) -> Command {
    let mut cargo = cargo::cargo();
    match step {
        Step::Fmt => cargo.args(["fmt", "--all", "--check"]),
        Step::Tidy => cargo.args(["xtask", "tidy"]),
        Step::Deny => cargo.args(["xtask", "deny"]),
        Step::Clippy => cargo.args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        Step::Doc => cargo.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"),
        Step::Test => cargo.args(["test", "--workspace"]).env(kube::VARIABLE, kube::shared_state()),
    };
    cargo
}

fn title(step: Step) -> String {
    cargo::shown(&command(step))
}

fn name(step: Step) -> String {
    step.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn said(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Passed(took) => format!("passed in {:.1} s", took.as_secs_f64()),
        Outcome::Failed(took) => format!("FAILED after {:.1} s", took.as_secs_f64()),
        Outcome::NotRun => "not run".to_owned(),
    }
}

fn table(summary: &[(Step, Outcome)]) -> String {
    let mut text = String::new();
    for (step, outcome) in summary {
        let _ = writeln!(text, "  {:<8}{}", name(*step), said(outcome));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_choice_every_step_runs_cheap_first() {
        let all = [Step::Fmt, Step::Tidy, Step::Deny, Step::Clippy, Step::Doc, Step::Test];
        assert_eq!(chosen(&[]), all);
    }

    #[test]
    fn chosen_steps_run_in_the_usual_order_and_once() {
        assert_eq!(chosen(&[Step::Deny, Step::Tidy, Step::Deny]), [Step::Tidy, Step::Deny]);
    }

    #[test]
    fn the_summary_names_every_step_with_its_end() {
        let summary = [
            (Step::Fmt, Outcome::Passed(Duration::from_millis(1500))),
            (Step::Tidy, Outcome::Failed(Duration::from_millis(40))),
            (Step::Deny, Outcome::NotRun),
        ];
        assert_eq!(
            table(&summary),
            "  fmt     passed in 1.5 s\n  tidy    FAILED after 0.0 s\n  deny    not run\n"
        );
    }
}
