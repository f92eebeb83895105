//! The replays whose figures others have computed independently, and those figures: `reference.csv` beside the traces.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use divvy_core::model::policy::Policy;

use crate::dice::Dice;
use crate::metrics::{Figures, Summary};
use crate::policy::Named;
use crate::pools::{Outcome, Pools, Request, replay_pools};
use crate::replay::ReplayError;
use crate::trace::cluster::{self, ClusterNode};
use crate::trace::interval::Interval;
use crate::trace::jobs::{self, Fate, Selection, TraceJob};
use crate::trace::source::Trace;
use crate::trace::{Table, TraceError};

/// One replay.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Experiment {
    /// Which jobs on which cluster, by the name used in the figures.
    pub trace: String,
    /// Where they may run.
    pub pools: Pools,
    /// The policy that decides.
    pub policy: Named,
}

/// The figures of one queue of a replay, or of all. Decimals are kept as they were written.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The replay.
    pub experiment: Experiment,
    /// A queue, or `all`.
    pub queue: String,
    jobs: String,
    mean_jct_s: String,
    median_jct_s: String,
    p99_jct_s: String,
    mean_wait_s: String,
    makespan_s: String,
    worst_rho: String,
    preemptions: String,
}

/// Why there is nothing to compare.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    /// A file cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The replay broke off.
    #[error("{} under {} breaks off: {source}", experiment.trace, experiment.policy)]
    Replay {
        /// Which.
        experiment: Box<Experiment>,
        /// Why.
        source: ReplayError,
    },
    /// The name belongs to no trace whose files are known.
    #[error("nothing is known of the trace {0:?}")]
    UnknownTrace(String),
}

const COLUMNS: [&str; 12] = [
    "trace",
    "policy",
    "pools",
    "queue",
    "jobs",
    "mean_jct_s",
    "median_jct_s",
    "p99_jct_s",
    "mean_wait_s",
    "makespan_s",
    "worst_rho",
    "preemptions",
];

/// Reads the figures.
pub fn read(path: &Path) -> Result<Vec<Expected>, TraceError> {
    let mut table = Table::open(path)?;
    let columns = table.columns(COLUMNS)?;
    let [_, policy, pools, ..] = columns;
    let mut all = Vec::new();
    while table.advance()? {
        let named = table.text(policy).parse().map_err(|_| table.cell(policy, "the name of a policy"))?;
        let place = table.text(pools).parse().map_err(|_| table.cell(pools, "own or shared"))?;
        let texts = columns.map(|column| table.text(column).to_owned());
        let [
            trace,
            _,
            _,
            queue,
            jobs,
            mean_jct_s,
            median_jct_s,
            p99_jct_s,
            mean_wait_s,
            makespan_s,
            worst_rho,
            preemptions,
        ] = texts;
        let experiment = Experiment { trace, pools: place, policy: named };
        all.push(Expected {
            experiment,
            queue,
            jobs,
            mean_jct_s,
            median_jct_s,
            p99_jct_s,
            mean_wait_s,
            makespan_s,
            worst_rho,
            preemptions,
        });
    }
    Ok(all)
}

/// Returns the replays that there are figures for.
pub fn experiments(expected: &[Expected]) -> BTreeSet<Experiment> {
    expected.iter().map(|expected| expected.experiment.clone()).collect()
}

/// What a later start costs in all of them.
const RESTART_MS: i64 = 30_000;

/// October and November 2017, as the authors of Helios cut them out of the Philly trace.
const PHILLY: Interval = Interval { first: 5_270_400, last: 10_540_740 };

const SHIFT_S: i64 = 60 * 86_400;

/// How much earlier or later a job of a jittered copy is submitted, and by how much shorter or longer it runs, at most.
const JITTER_S: i64 = 300;
const JITTER_THOUSANDTHS: i64 = 100;

/// The files of a trace, its cluster, and what is taken of it.
fn files(trace: &str) -> Option<(Vec<String>, &'static str, Selection)> {
    let (source, virtual_cluster) = trace.split_once('_').unwrap_or((trace, ""));
    let whole = Selection::default();
    let window = Selection { submitted: PHILLY, ..whole };
    let seven = Selection { repeat: 7, shift_s: SHIFT_S, ..whole };
    let (prefix, cluster, selection) = match source {
        "philly" => ("philly", "philly", window),
        "philly64" => ("philly", "64", whole),
        "itp" if virtual_cluster.ends_with("x7") => ("itp", "itp", seven),
        "itp" => ("itp", "itp", whole),
        "ipsc" => ("ipsc", "128", whole),
        _ => return None,
    };
    let parts = match (source, virtual_cluster.trim_end_matches("x7")) {
        ("philly", "both") => vec!["ee9e8c", "2869ce"],
        ("itp", "both") => vec!["c02", "c04"],
        (_, one) => vec![one],
    };
    Some((parts.into_iter().map(|part| format!("jobs_{prefix}_{part}.csv")).collect(), cluster, selection))
}

/// The input of a replay, read into memory.
pub struct Prepared {
    experiment: Experiment,
    settings: Policy,
    nodes: Vec<ClusterNode>,
    jobs: Vec<TraceJob>,
}

/// Reads the input of a replay from the files of a folder.
pub fn prepare(folder: &Path, experiment: &Experiment) -> Result<Prepared, ReferenceError> {
    let trace = &experiment.trace;
    let (files, cluster, selection) =
        files(trace).ok_or_else(|| ReferenceError::UnknownTrace(trace.clone()))?;
    let files: Vec<PathBuf> = files.iter().map(|file| folder.join(file)).collect();
    let nodes = cluster::read(&folder.join(format!("cluster_{cluster}.csv")))?;
    let jobs = jobs::merge(&files, selection)?.collect::<Result<_, _>>()?;
    Ok(Prepared { experiment: experiment.clone(), settings: experiment.policy.settings(), nodes, jobs })
}

impl Prepared {
    /// Returns the nodes, the jobs and what a later start costs, for callers that replay them in another way.
    pub fn parts(&self) -> (&[ClusterNode], &[TraceJob], i64) {
        (&self.nodes, &self.jobs, RESTART_MS)
    }

    /// The same replay with other settings of the planner.
    pub fn with(self, settings: Policy) -> Self {
        Self { settings, ..self }
    }

    /// The same replay with jobs as they might have been: each is submitted up to five minutes earlier or later, and runs up to a
    /// tenth shorter or longer, as a seed says.
    pub fn jittered(self, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mut jitter = |mut job: TraceJob| {
            job.arrival.submit_s = (job.arrival.submit_s + dice.between(-JITTER_S, JITTER_S)).max(0);
            let thousandths = 1000 + dice.between(-JITTER_THOUSANDTHS, JITTER_THOUSANDTHS);
            let duration_s = (job.fate.duration_s() * thousandths / 1000).max(1);
            job.fate = Fate::new(duration_s, job.fate.status().to_owned());
            job
        };
        let mut jobs: Vec<TraceJob> = self.jobs.into_iter().map(&mut jitter).collect();
        jobs.sort_by_key(|job| job.arrival.submit_s);
        Self { jobs, ..self }
    }

    /// Runs it. `measured` are the rows that means and percentiles are taken over.
    pub fn run(self, measured: Interval) -> Result<Outcome, ReferenceError> {
        let Self { experiment, settings, nodes, jobs } = self;
        let trace = Trace::Jobs(jobs);
        let request = Request {
            nodes: &nodes,
            trace: &trace,
            survey: &trace.survey()?,
            pools: experiment.pools,
            queues: Vec::new(),
            policy: settings,
            class: experiment.policy.class(),
            restart_ms: RESTART_MS,
            speeds: None,
            measured,
            keeps_ends: true,
            threads: 1,
        };
        let broken = |source| ReferenceError::Replay { experiment: Box::new(experiment.clone()), source };
        replay_pools(request, &|_| ()).map_err(broken)
    }
}

/// Runs one replay on the files of a folder, and takes means over all of its jobs.
pub fn run(folder: &Path, experiment: &Experiment) -> Result<Outcome, ReferenceError> {
    prepare(folder, experiment)?.run(Interval::ALL)
}

/// A figure that is not what was expected.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Which figure.
    pub figure: &'static str,
    /// What the replay gives, written as the figure is.
    pub got: String,
    /// What was expected.
    pub expected: String,
    /// How far it is off, relative to what was expected.
    pub relative: f64,
}

/// By how much mean, median and 99th percentile may differ.
pub const BOUND: f64 = 0.001;

impl Expected {
    /// Whether these are the figures of all queues together.
    pub fn is_of_all(&self) -> bool {
        self.queue == "all"
    }

    /// Returns what differs, in any digit that was written down. The share of unfair jobs is left out: figures
    /// computed in floats have some jobs above 1 whose fairness is exactly 1.
    pub fn differences(&self, summary: &Summary) -> Vec<Difference> {
        let none = Figures::default();
        let figures = match self.is_of_all() {
            true => &summary.all,
            false => summary.by_queue.get(&self.queue).unwrap_or(&none),
        };
        let mut pairs = vec![
            ("jobs", figures.finished.to_string(), &self.jobs),
            ("mean_jct_s", format!("{:.1}", figures.mean_jct_s), &self.mean_jct_s),
            ("median_jct_s", figures.p50_jct_s.to_string(), &self.median_jct_s),
            ("p99_jct_s", figures.p99_jct_s.to_string(), &self.p99_jct_s),
            ("mean_wait_s", format!("{:.1}", figures.mean_wait_s), &self.mean_wait_s),
            ("worst_rho", format!("{:.2}", figures.worst_rho), &self.worst_rho),
            ("preemptions", figures.preemptions.to_string(), &self.preemptions),
        ];
        if self.is_of_all() {
            pairs.push(("makespan_s", summary.makespan_s.to_string(), &self.makespan_s));
        }
        let differing = pairs.into_iter().filter(|(_, got, expected)| got != *expected);
        differing.map(|(figure, got, expected)| Difference::new(figure, got, expected)).collect()
    }
}

impl Difference {
    fn new(figure: &'static str, got: String, expected: &str) -> Self {
        let number = |text: &str| text.parse().unwrap_or(f64::NAN);
        let relative = (number(&got) / number(expected) - 1.0).abs();
        Self { figure, got, expected: expected.to_owned(), relative }
    }

    /// Whether the figure is one that must be within [`BOUND`], and is not.
    pub fn is_too_large(&self) -> bool {
        let bound = matches!(self.figure, "jobs" | "mean_jct_s" | "median_jct_s" | "p99_jct_s");
        // A figure that is no number is too far off as well.
        bound && (self.relative.is_nan() || self.relative > BOUND)
    }
}
