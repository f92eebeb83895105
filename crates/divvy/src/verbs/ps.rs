//! `divvy ps`: what waits, runs and ran.

use divvy_api::{ExpectedStart, Job, JobState, JobsQuery};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::number::whole;
use crate::output::{
    Column, Format, FormatFlag, Listing, Look, Table, Tone, ago, foreseen, gpus, local, say, span, told,
};
use crate::pool::{self, Place};

const EXAMPLES: &str = "\
Examples:
  divvy ps                          what waits and what runs, everyone's
  divvy ps -u ana -q vision         only those
  divvy ps -a --limit 20            the last 20, ended ones too
  divvy ps -t failed,timeout        what went wrong
  divvy ps 12                       the members of array job 12
  divvy ps --start                  when what waits is expected to start
  divvy ps -a -o json               everything, for programs
  divvy ps --kube                   pods of a Kubernetes cluster, gangs as one";

/// List jobs
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Ps {
    /// Only this job, or the members of this array
    job: Option<String>,
    /// Ended jobs, too
    #[arg(short, long)]
    all: bool,
    /// Only this user's; `me` is you
    #[arg(short, long)]
    user: Option<String>,
    /// Only this queue's
    #[arg(short, long)]
    queue: Option<String>,
    /// Only jobs in these states: pending,held,starting,running,stopping,completed,failed,…
    #[arg(short = 't', long, value_name = "STATES")]
    states: Option<String>,
    /// Only jobs that wait, and when each is expected to start
    #[arg(long, conflicts_with_all = ["all", "states"])]
    start: bool,
    /// At most so many; with -a, the newest
    #[arg(short = 'n', long, value_name = "N", value_parser = whole::<u64>(1..))]
    limit: Option<u64>,
    #[command(flatten)]
    format: FormatFlag,
    #[cfg(feature = "kubernetes")]
    #[command(flatten)]
    cluster: super::cluster::Cluster,
}

/// The default number of rows for people: two screens.
const ROWS_FOR_PEOPLE: u64 = 100;

impl Ps {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        let format = self.format.output;
        let people = matches!(format, Format::Table | Format::Wide);
        let limit = self.limit.or(people.then_some(ROWS_FOR_PEOPLE));
        // If only a part is shown, people want the end of the list, with the newest at the bottom.
        let query = self.query()?;
        #[cfg(feature = "kubernetes")]
        if self.cluster.kube {
            if self.start {
                return Err(Failure::usage("--start looks ahead in a pool of its own, not in a cluster")
                    .fix("leave out --start or --kube"));
            }
            return self.of_cluster(&query);
        }
        let (rows, more) = pool::with_client(place, async |mut client| match limit {
            Some(limit) if self.looks_back() => pool::newest_jobs(&mut client, &query, limit).await,
            limit => pool::jobs(&mut client, &query, limit).await,
        })?;
        Table { rows }.print::<Job>(format)?;
        if more && people {
            say("there are more: say --limit N, or -o json for all");
        }
        Ok(Exit::Success)
    }

    /// Lists the pods of a cluster, without those that have ended.
    #[cfg(feature = "kubernetes")]
    fn of_cluster(&self, query: &JobsQuery) -> Result<Exit, Failure> {
        let mut jobs = self.cluster.look()?.jobs();
        let is =
            |wanted: &Option<String>, there: &str| wanted.as_deref().is_none_or(|wanted| wanted == there);
        let states: Vec<&str> = query.state.iter().flat_map(|list| list.split(',')).collect();
        jobs.retain(|job| {
            is(&query.user, &job.user)
                && is(&query.queue, &job.queue)
                && is(&query.job, &job.id)
                && (states.is_empty() || states.contains(&job.state.as_str()))
        });
        jobs.truncate(self.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX)));
        Table { rows: super::cluster::rows(&jobs)? }.print::<Job>(self.format.output)?;
        Ok(Exit::Success)
    }

    fn looks_back(&self) -> bool {
        self.all || self.states.is_some()
    }

    fn query(&self) -> Result<JobsQuery, Failure> {
        let user = match self.user.as_deref() {
            Some("me") => Some(divvy_server::user_name(rustix::process::geteuid().as_raw())),
            other => other.map(str::to_owned),
        };
        let (queue, job) = (self.queue.clone(), self.job.clone());
        // A job or a state that is named is wanted, ended or not.
        let all = self.looks_back() || job.is_some();
        let state = if self.start { Some(JobState::Pending.to_string()) } else { self.wanted_states()? };
        Ok(JobsQuery { all, user, queue, job, state, start: self.start, ..JobsQuery::default() })
    }

    fn wanted_states(&self) -> Result<Option<String>, Failure> {
        let Some(states) = &self.states else { return Ok(None) };
        for state in states.split(',') {
            if matches!(JobState::from(state), JobState::Other(_)) {
                let known = JobState::WORDS.join(", ");
                return Err(
                    Failure::usage(format!("{state:?} is no state of a job")).fix(format!("use: {known}"))
                );
            }
        }
        Ok(Some(states.clone()))
    }
}

impl Listing for Job {
    const PATHS: &'static [&'static str] = &[
        "id",
        "name",
        "user",
        "queue",
        "project",
        "labels",
        "priority",
        "state",
        "gpus",
        "gpu_milli",
        "devices",
        "nodes",
        "tasks",
        "attempt",
        "position",
        "submitted_ms",
        "started_ms",
        "ended_ms",
        "time_limit_ms",
        "exit_code",
        "last_end.cause",
        "last_end.by",
        "last_end.signal",
        "reason.code",
        "reason.text",
        "expected_start_ms",
        "expected_start_low_ms",
        "expected_start_high_ms",
        "expected_start_by",
    ];
    const EMPTY: &'static str = "no jobs";

    fn columns() -> Vec<Column<Self>> {
        vec![
            Column::<Self>::new("ID", |job, _| job.id.clone()).whole(),
            Column::<Self>::new("NAME", |job, _| job.name.clone()),
            Column::<Self>::new("USER", |job, _| job.user.clone()).spare(),
            Column::<Self>::new("QUEUE", |job, _| job.queue.clone()).spare(),
            Column::<Self>::new("PROJECT", |job, _| job.project.clone().unwrap_or_default()).wide(),
            Column::<Self>::new("PRIO", |job, _| priority(job.priority)).wide(),
            Column::<Self>::new("STATE", |job, _| job.state.to_string()).tone(|job| Tone::of_job(&job.state)),
            Column::<Self>::new("GPUS", |job, _| gpus(job.gpu_milli)).right(),
            Column::<Self>::new("TASKS", |job, _| job.tasks.to_string()).right().wide(),
            Column::<Self>::new("TIME", elapsed).right(),
            Column::<Self>::new("STARTS", starts).whole().when(|job| job.start != ExpectedStart::default()),
            Column::<Self>::new("LIMIT", |job, _| job.time_limit_ms.map(span).unwrap_or_default())
                .right()
                .wide(),
            Column::<Self>::new("SUBMITTED", |job, _| local(job.submitted_ms)).wide(),
            Column::<Self>::new("ATTEMPT", |job, _| job.attempt.to_string()).right().wide(),
            Column::<Self>::new("EXIT", |job, _| {
                job.exit_code.map(|code| code.to_string()).unwrap_or_default()
            })
            .right()
            .wide(),
            Column::<Self>::new("LABELS", |job, _| labels(job)).wide(),
            Column::<Self>::new("DEVICES", |job, _| job.devices.join(",")).wide(),
            Column::<Self>::new("WHERE / WHY", where_or_why),
        ]
    }
}

/// How long the job has been in its state: the time it has run or, if it waits, has waited.
pub(crate) fn elapsed(job: &Job, look: &Look) -> String {
    match (job.started_ms, job.ended_ms) {
        (Some(started), Some(ended)) => span(ended - started),
        (None, Some(_)) => "-".into(),
        (Some(started), None) if !job.state.is_waiting() => ago(started, look.now_ms),
        _ => ago(job.submitted_ms, look.now_ms),
    }
}

/// When it is expected to start: `≈ 14:20 (13:50–16:10)`, or in short why nobody can say.
fn starts(job: &Job, look: &Look) -> String {
    let start = &job.start;
    match start.expected_start_ms {
        Some(at) => {
            let ends = (start.expected_start_low_ms, start.expected_start_high_ms);
            foreseen(at, ends, look.now_ms)
        }
        None => {
            let by = start.expected_start_by.as_deref().unwrap_or_default();
            by.split([':', ',']).next().unwrap_or_default().to_owned()
        }
    }
}

/// Where it runs, why it waits, or how it ended.
pub(crate) fn where_or_why(job: &Job, _: &Look) -> String {
    if job.state.is_waiting() {
        return job
            .reason
            .as_ref()
            .map(|reason| format!("{}: {}", reason.code, told(&reason.text)))
            .unwrap_or_default();
    }
    if job.state.is_ended() {
        return match (&job.last_end, job.exit_code) {
            (Some(end), code) if job.state != JobState::Completed => over_in_short(end, code),
            (_, Some(code)) => format!("exit {code}"),
            _ => String::new(),
        };
    }
    job.nodes.join(",")
}

/// Why a job is over, in a few words.
pub(crate) fn over_in_short(end: &divvy_api::LastEnd, exit_code: Option<i32>) -> String {
    match end.cause {
        // It asked to be run again, and is over all the same.
        divvy_api::Cause::Checkpointed => "no restarts left".into(),
        _ => end_in_short(end, exit_code),
    }
}

/// How an attempt ended, in a few words: `signal 9`, `cancelled by ana`, `out of memory`.
pub(crate) fn end_in_short(end: &divvy_api::LastEnd, exit_code: Option<i32>) -> String {
    use divvy_api::Cause;
    let by = end.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    match (&end.cause, end.signal, exit_code) {
        (Cause::Exit, Some(signal), _) | (Cause::Signal, Some(signal), _) => format!("signal {signal}{by}"),
        (Cause::Exit, None, Some(code)) => format!("exit {code}"),
        (cause, ..) => format!("{}{by}", cause.as_str().replace('_', " ")),
    }
}

/// A priority by its name, if it has one.
pub(crate) fn priority(priority: i32) -> String {
    match priority {
        -100 => "low".into(),
        0 => "normal".into(),
        100 => "high".into(),
        1000 => "urgent".into(),
        other => other.to_string(),
    }
}

fn labels(job: &Job) -> String {
    job.labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}
