//! `cargo xtask bench local`: how fast and how small the product is on this machine, beside what others need here; and the
//! experiments of the literature beside their published results.

mod array;
mod bare;
mod chaos;
mod cycle;
mod effort;
mod explain;
mod fairness;
mod figure;
mod first;
mod footprint;
mod forecast;
mod jct;
mod kube;
mod machine;
mod openb;
mod peers;
mod plan;
mod pool;
mod process;
mod report;
mod start;
mod waiting;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};

use crate::cargo;
use effort::Effort;
use figure::{Figures, Ratio};

/// Where to measure.
#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    place: Place,
}

#[derive(Subcommand)]
enum Place {
    /// Measures the release build on this machine; takes some ten minutes, with peers half an hour
    Local(Local),
    /// Packs the openb traces by every policy and compares with the published curves; takes some minutes
    Openb(openb::Openb),
    /// Replays the traces of the literature under every policy and compares with independent figures; takes some minutes
    Jct(jct::Jct),
    /// Simulates a month of contention among queues in three levels and compares what each had with what it was due
    Fairness(fairness::Fairness),
    /// Tries what is said to start waiting jobs, in pools from seeds; takes some minutes
    Explain(explain::Explain),
    /// Replays traces, asks at submissions when jobs will start, and compares with when they do; takes some minutes
    Forecast(forecast::Forecast),
    /// Measures what a plan costs in large pools; takes some minutes
    Plan(plan::Plan),
    /// Measures how fast pods get nodes on a real Kubernetes API server, beside a bare loop and kube-scheduler; takes some minutes
    Kube(kube::Kube),
    /// Measures how many events of lives with faults are checked in a second
    Chaos(chaos::Chaos),
}

/// What to measure, and how to say it.
#[derive(Args)]
struct Local {
    /// Installs Slurm and pueue below target/ and measures them in the same run
    #[arg(long)]
    peers: bool,
    /// Prints a table and writes JSON to target/bench/local.json, or prints JSON alone
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// Measures once and less, to try the measuring itself
    #[arg(long)]
    quick: bool,
    /// Only these measures, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "MEASURES")]
    only: Vec<Measure>,
    /// Measures this program rather than a release build of the checkout
    #[arg(long, value_name = "DIVVY")]
    program: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

/// A measure, in the order in which they are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Measure {
    Bare,
    Footprint,
    Start,
    Array,
    Waiting,
    Cycle,
}

/// What every measure is given.
struct Bench {
    /// The program that is measured.
    program: PathBuf,
    /// The build directory; whatever a measure leaves behind lies below it.
    target: PathBuf,
    effort: Effort,
}

/// Measures, and prints what was found.
pub(crate) fn run(options: &Options) -> Result<()> {
    if cfg!(debug_assertions) {
        let needs_product = match &options.place {
            Place::Local(local) => local.program.is_none(),
            Place::Kube(kube) => kube.program.is_none(),
            _ => false,
        };
        return again_in_release(needs_product);
    }
    match &options.place {
        Place::Local(local) => run_local(local),
        Place::Openb(openb) => openb::run(openb, &build_directory()?),
        Place::Jct(jct) => jct::run(jct, &build_directory()?),
        Place::Fairness(fairness) => fairness::run(fairness, &build_directory()?),
        Place::Explain(explain) => explain::run(explain),
        Place::Forecast(forecast) => forecast::run(forecast, &build_directory()?),
        Place::Plan(plan) => plan::run(plan, &build_directory()?),
        Place::Kube(kube) => kube::run(kube, &build_directory()?),
        Place::Chaos(lives) => chaos::run(lives, &build_directory()?),
    }
}

fn run_local(local: &Local) -> Result<()> {
    let target = build_directory()?;
    let program = local.program.clone().unwrap_or_else(|| target.join("release/divvy"));
    let program = program.canonicalize().with_context(|| format!("looking for {}", program.display()))?;
    let effort = if local.quick { Effort::QUICK } else { Effort::FULL };
    let bench = Bench { program, target, effort };
    std::fs::create_dir_all(bench.directory()).context("making the directory of the benchmarks")?;
    let machine = machine::describe(&bench.target)?;
    let (figures, ratios, versions) = measure(&bench, local)?;
    let report = report::Report { machine, versions, figures: figures.0, ratios };
    let json = serde_json::to_string_pretty(&report)?;
    match local.output {
        Output::Json => println!("{json}"),
        Output::Table => {
            let file = bench.directory().join("local.json");
            std::fs::write(&file, json).with_context(|| format!("writing {}", file.display()))?;
            println!("{}\nas JSON: {}", report.table(), file.display());
        }
    }
    Ok(())
}

type Versions = Vec<(String, String)>;

fn measure(bench: &Bench, local: &Local) -> Result<(Figures, Vec<Ratio>, Versions)> {
    let mut figures = Figures::default();
    let mut versions = vec![("divvy".to_owned(), process::version_of(&bench.program)?)];
    versions.extend(commit().map(|commit| ("checkout".to_owned(), commit)));
    for measure in chosen(&local.only) {
        say(&format!("{measure:?}: divvy"));
        match measure {
            Measure::Bare => bare::measure(bench, &mut figures)?,
            Measure::Footprint => footprint::measure(bench, &mut figures)?,
            Measure::Start => start::measure(bench, &mut figures)?,
            Measure::Array => array::measure(bench, &mut figures)?,
            Measure::Waiting => waiting::measure(bench, &mut figures)?,
            Measure::Cycle => cycle::measure(bench, &mut figures)?,
        }
    }
    if local.peers {
        versions.extend(peers::measure(bench, &chosen(&local.only), &mut figures)?);
    }
    let ratios = peers::ratios(&figures);
    Ok((figures, ratios, versions))
}

/// The checked-out commit, and whether the checkout differs from it.
fn commit() -> Option<String> {
    let mut git = std::process::Command::new("git");
    git.args(["describe", "--always", "--dirty", "--exclude", "*"]).current_dir(cargo::root());
    process::first_line(&mut git).ok()
}

fn chosen(only: &[Measure]) -> Vec<Measure> {
    let all = Measure::value_variants().iter().copied();
    all.filter(|measure| only.is_empty() || only.contains(measure)).collect()
}

/// Builds the product and this program as users get them, and continues in that build: a debug build would measure itself.
fn again_in_release(needs_product: bool) -> Result<()> {
    let mut build = cargo::cargo();
    build.args(["build", "--release", "--package", "xtask"]);
    if needs_product {
        build.args(["--package", "divvy"]);
    }
    cargo::run(&mut build)?;
    let program = build_directory()?.join("release/xtask");
    let error = std::process::Command::new(&program).args(std::env::args_os().skip(1)).exec();
    Err(error).with_context(|| format!("starting {}", program.display()))
}

/// The directory that cargo has built this program in.
fn build_directory() -> Result<PathBuf> {
    let program = std::env::current_exe().context("looking for this program")?;
    let directory =
        program.parent().and_then(Path::parent).context("this program lies in no build directory")?;
    Ok(directory.to_path_buf())
}

impl Bench {
    /// Where measures keep their files: on the disk of the checkout, so that an fsync is a real one.
    fn directory(&self) -> PathBuf {
        self.target.join("bench")
    }
}

/// Tells a waiting person what happens; never part of the result.
fn say(text: &str) {
    eprintln!("bench: {text}");
}
