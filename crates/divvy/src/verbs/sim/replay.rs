//! `divvy sim replay`: a trace through the core, in virtual time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Instant;

use clap::ValueEnum;
use divvy_sim::policy::{Chosen, NoPolicy};
use divvy_sim::pools::{self, Beyond, Outcome, Pools, Request, replay_pools};
use divvy_sim::replay::ReplayError;
use divvy_sim::trace::decimal::Decimal;
use divvy_sim::trace::interval::Interval;
use divvy_sim::trace::jobs::Selection;
use divvy_sim::trace::source::{Survey, Trace};
use divvy_sim::trace::{Span, cluster, speeds};

use super::files::{must_differ, will_be_written};
use super::progress;
use super::report::Report;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::number::whole;
use crate::output::{FormatFlag, say};

const EXAMPLES: &str = "\
Examples:
  divvy sim replay --cluster cluster.csv --trace jobs.csv --policy srtf
  divvy sim replay --cluster cluster.csv --trace a.csv --trace b.csv.gz --pools shared --policy quota-mlfq -o json
  divvy sim replay --cluster cluster.csv --trace jobs.csv --policy divvy --per-job out.csv --plot out.svg
  divvy sim replay --cluster cluster.csv --trace jobs.csv --policy own.yaml
  divvy sim replay --cluster cluster.csv --trace jobs.csv --policy fifo --repeat 7 --shift 60d";

/// Replay a trace of jobs in virtual time
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Replay {
    /// The nodes: node,model,gpus,cpu_milli,memory_mib,pool
    #[arg(long, value_name = "FILE")]
    cluster: PathBuf,
    /// The jobs: job_id,submit_s,gpus,duration_s,queue,user,name,status; several files become one trace
    #[arg(long, value_name = "FILE", required = true)]
    trace: Vec<PathBuf>,
    /// How to decide: a name (a wrong one lists those that exist), or a file with settings of the planner
    #[arg(long, value_name = "POLICY|FILE")]
    policy: Wanted,
    /// Whether a job runs only on the nodes of its queue's pool, or on all
    #[arg(long, value_enum, default_value_t)]
    pools: Where,
    /// What each later start of a job costs, on its GPUs
    #[arg(long, value_name = "SPAN", default_value = "30s", allow_hyphen_values = true, value_parser = penalty)]
    restart_penalty: Span,
    /// Only jobs submitted within: A..B in seconds, both included
    #[arg(long, value_name = "A..B", default_value_t = Interval::ALL, hide_default_value = true, allow_hyphen_values = true)]
    submitted: Interval,
    /// Queues with guarantees and limits; without it each name in the trace is a queue
    #[arg(long, value_name = "FILE")]
    queues: Option<PathBuf>,
    /// Submit the whole trace so many times
    #[arg(long, value_name = "N", default_value_t = 1, requires = "shift", value_parser = whole::<u32>(1..))]
    repeat: u32,
    /// How much later each copy is submitted than the one before
    #[arg(long, value_name = "SPAN", requires = "repeat", allow_hyphen_values = true, value_parser = whole_seconds)]
    shift: Option<Span>,
    /// How fast each kind of job runs on each model: name,gpus,model,steps_per_s; durations are those on a v100
    #[arg(long, value_name = "FILE")]
    speeds: Option<PathBuf>,
    /// Submit a trace made at 2 jobs an hour at another rate
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    rate: Option<Decimal>,
    /// Take means over these rows only, counted from 0, both included
    #[arg(long, value_name = "A..B", default_value_t = Interval::ALL, hide_default_value = true, allow_hyphen_values = true)]
    measure: Interval,
    /// Write job_id,start_s,finish_s,preemptions,rho,policy,class
    #[arg(long, value_name = "FILE")]
    per_job: Option<PathBuf>,
    /// Draw queue, use and completion times as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    format: FormatFlag,
}

/// `0` needs no unit.
fn penalty(text: &str) -> Result<Span, String> {
    if text == "0" { Ok(Span(0)) } else { whole_seconds(text) }
}

/// A trace counts in seconds.
fn whole_seconds(text: &str) -> Result<Span, String> {
    match text.parse() {
        Ok(Span(ms)) if ms % 1000 != 0 => Err("a replay counts whole seconds: write 2s".to_owned()),
        read => read.map_err(|error| format!("{error}")),
    }
}

/// A policy, or what is wrong with the file that should contain one. An unknown name is an error of the command line.
#[derive(Clone, Debug)]
struct Wanted(Result<Chosen, NoPolicy>);

impl FromStr for Wanted {
    type Err = NoPolicy;

    fn from_str(text: &str) -> Result<Self, NoPolicy> {
        match text.parse() {
            Err(unknown @ NoPolicy::Unknown(_)) => Err(unknown),
            read => Ok(Self(read)),
        }
    }
}

impl Wanted {
    fn chosen(&self) -> Result<&Chosen, Failure> {
        self.0.as_ref().map_err(|wrong| {
            let exit = match wrong {
                NoPolicy::Missing(_) => Exit::NotFound,
                NoPolicy::Unreadable(..) => Exit::Io,
                NoPolicy::Unknown(_) | NoPolicy::Bad(..) | NoPolicy::NoText(..) => Exit::BadData,
            };
            Failure::new(exit, format!("--policy: {wrong}"))
        })
    }
}

/// Where jobs may run.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Where {
    /// On the nodes whose pool is the job's queue
    #[default]
    Own,
    /// On every node; a queue's own nodes are its guarantee
    Shared,
}

impl Replay {
    pub(crate) fn run(&self) -> Result<Exit, Failure> {
        let begun = Instant::now();
        let policy = self.policy.chosen()?;
        self.look_at_files(policy)?;
        let (queues, places) = self.queues.as_deref().map(read_queues).transpose()?.unwrap_or_default();
        let trace = self.trace()?;
        let survey = trace.survey()?;
        let measured_jobs = self.measured(survey.jobs)?;
        let outcome = self.replay(&trace, &survey, policy, (queues, places))?;
        let report = Report {
            policy,
            jobs: measured_jobs,
            all_jobs: survey.jobs,
            wall_s: begun.elapsed().as_secs_f64(),
            outcome: &outcome,
        };
        report.print(self.format.output)?;
        report.told().iter().for_each(|line| say(line));
        if outcome.summary.all.finished + outcome.summary.all.ended_by_limit == 0 {
            let which = if self.measure == Interval::ALL { "jobs" } else { "measured jobs" };
            return Err(
                Failure::new(Exit::BadData, format!("none of the {which} could run")).fix(self.misfit())
            );
        }
        if let Some(path) = &self.per_job {
            report.write_jobs(path, &trace)?;
        }
        if let Some(path) = &self.plot {
            report.draw(path, &self.title(policy))?;
        }
        Ok(Exit::Success)
    }

    /// Checks the files to read and to write before the replay, which may take hours.
    fn look_at_files(&self, policy: &Chosen) -> Result<(), Failure> {
        let written = || [&self.per_job, &self.plot].into_iter().flatten().map(PathBuf::as_path);
        let policy = Path::new(&policy.name);
        let read = self.trace.iter().chain([&self.cluster]).chain(&self.queues).chain(&self.speeds);
        must_differ(read.map(PathBuf::as_path).chain(policy.is_file().then_some(policy)), written())?;
        written().try_for_each(will_be_written)?;
        self.trace.iter().chain([&self.cluster]).try_for_each(|path| is_file(path))
    }

    /// Which files to check if nothing could run.
    fn misfit(&self) -> &'static str {
        match (&self.speeds, &self.queues) {
            (Some(_), _) => "do --speeds name the jobs of --trace, by their names and GPUs, on a v100, too?",
            (None, Some(_)) => "do --queues and --cluster belong to --trace?",
            (None, None) => {
                "does --cluster belong to --trace? --pools shared lets every job run on every node"
            }
        }
    }

    /// How many of the jobs are measured: at least one.
    fn measured(&self, jobs: usize) -> Result<usize, Failure> {
        if jobs == 0 {
            let fix = "look at --submitted, and at the times in the trace";
            return Err(Failure::new(Exit::BadData, "there are no jobs to replay").fix(fix));
        }
        match (0..jobs).filter(|row| self.measure.has_row(*row)).count() {
            0 => {
                let last = jobs.saturating_sub(1);
                let what =
                    format!("there is no job to measure in the rows {}: they are 0..{last}", self.measure);
                Err(Failure::new(Exit::BadData, what)
                    .fix("--measure counts from 0, after --submitted and --repeat"))
            }
            count => Ok(count),
        }
    }

    fn trace(&self) -> Result<Trace, Failure> {
        let shift_s = self.shift.map_or(0, |shift| shift.0 / 1000);
        let selection =
            Selection { submitted: self.submitted, rate: self.rate, repeat: self.repeat, shift_s };
        Ok(Trace::of_files(&self.trace, selection)?)
    }

    fn replay(
        &self,
        trace: &Trace,
        survey: &Survey,
        policy: &Chosen,
        (queues, places): (Vec<pools::Queue>, Places),
    ) -> Result<Outcome, Failure> {
        let nodes = cluster::read(&self.cluster)?;
        let speeds = self.speeds.as_deref().map(speeds::read).transpose()?;
        let bar = progress::bar(survey.jobs as u64, "jobs");
        let request = Request {
            nodes: &nodes,
            trace,
            survey,
            pools: match self.pools {
                Where::Own => Pools::Own,
                Where::Shared => Pools::Shared,
            },
            queues,
            policy: policy.settings.clone(),
            class: policy.class,
            restart_ms: self.restart_penalty.0,
            speeds: speeds.as_ref(),
            measured: self.measure,
            keeps_ends: self.per_job.is_some(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        };
        let outcome = replay_pools(request, &|ended| bar.inc(ended as u64));
        bar.finish_and_clear();
        outcome.map_err(|error| match error {
            ReplayError::EndOfTime(..) => Failure::new(Exit::BadData, error.to_string())
                .fix("look at duration_s in the trace: it is in seconds"),
            ReplayError::Queues(beyond) => self.beyond(&beyond, &places),
            ReplayError::Trace(error) => Failure::from(error),
            ReplayError::Changed { .. } => Failure::new(Exit::BadData, error.to_string())
                .fix("replay it again when nobody writes to its files any more"),
            ReplayError::Broken { .. } => Failure::new(Exit::Internal, error.to_string()),
        })
    }

    /// Says where the queues are guaranteed more than the nodes have, as `divvy apply` does.
    fn beyond(&self, beyond: &Beyond, places: &Places) -> Failure {
        let file = self.queues.as_deref().unwrap_or(Path::new("")).display();
        let last = beyond.queues.iter().filter_map(|path| places.get(path)).max();
        let at = last.map(|(line, column)| format!("line {line}, column {column}: ")).unwrap_or_default();
        Failure::new(Exit::BadData, format!("{file}: {at}{}", beyond.what))
    }

    /// The title of the drawing: the names of the files and the policy.
    fn title(&self, policy: &Chosen) -> String {
        let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let files: Vec<_> = self.trace.iter().map(name).collect();
        format!("{}: {} (class {})", files.join(" + "), policy.name, policy.class)
    }
}

/// Refuses standard input: a trace is read more than once.
fn is_file(path: &Path) -> Result<(), Failure> {
    if path != Path::new("-") {
        return Ok(());
    }
    Err(Failure::usage(
        "a trace and its nodes are not read from standard input: they are read more than once",
    )
    .fix("write them to files first"))
}

/// The line and column of each queue's guarantee in a queues.yaml.
type Places = BTreeMap<String, (u64, u64)>;

fn read_queues(path: &Path) -> Result<(Vec<pools::Queue>, Places), Failure> {
    let bytes = std::fs::read(path).map_err(|error| Failure::file("read", path, &error))?;
    let text = String::from_utf8(bytes).map_err(|error| Failure::not_utf8(path, &error))?;
    let wrong = |what| Failure::new(Exit::BadData, format!("{}: {what}", path.display()));
    let (queues, says_more) = pools::queues(&text).map_err(wrong)?;
    if says_more {
        say(&format!("{}: only its queues are used: --policy says how to decide", path.display()));
    }
    Ok((queues, pools::places(&text)))
}
