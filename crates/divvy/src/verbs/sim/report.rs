//! The results of a replay, for people and programs.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::Path;

use divvy_sim::metrics::{Figures, Summary};
use divvy_sim::plot::{Plot, svg};
use divvy_sim::policy::{Chosen, Class};
use divvy_sim::pools::Outcome;
use divvy_sim::refused::{Refused, Stranded};
use divvy_sim::trace::source::Trace;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::files::write_to;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Column, Format, Listing, Table, plain, span, write_json};

/// How many of the jobs that could never run are named to people.
const MOST_NAMED: usize = 3;

/// How many queues people are shown.
const MOST_QUEUES: usize = 100;

/// A finished replay.
pub(super) struct Report<'a> {
    pub(super) policy: &'a Chosen,
    /// The jobs of the trace that are measured, whether they ended or not.
    pub(super) jobs: usize,
    /// All replayed jobs.
    pub(super) all_jobs: usize,
    pub(super) wall_s: f64,
    pub(super) outcome: &'a Outcome,
}

/// The one object of `-o json`.
#[derive(Serialize)]
struct Object<'a> {
    policy: String,
    class: String,
    jobs: usize,
    /// With the number of jobs that could never run.
    #[serde(flatten)]
    summary: &'a Summary,
    refused_ids: Vec<&'a str>,
    stranded_ids: Vec<&'a str>,
    /// What the stranded jobs wait for.
    stranded_by_reason: BTreeMap<&'a str, Strand<'a>>,
    restarts: u64,
    events: u64,
    wall_s: f64,
    peak_rss_mib: Option<u64>,
    digest: String,
}

/// Jobs that wait for ever for one reason.
#[derive(Serialize)]
struct Strand<'a> {
    jobs: usize,
    /// The first of them.
    first: &'a str,
    /// What that one waits for.
    text: &'a str,
    /// The first few.
    #[serde(skip)]
    named: Vec<String>,
}

impl Report<'_> {
    /// Writes the figures to standard output.
    pub(super) fn print(&self, format: Format) -> Result<(), Failure> {
        match format {
            Format::Json => Ok(write_json(&to_raw_value(&self.object())?)?),
            Format::Csv => Table { rows: self.rows()? }.print::<Row>(format),
            Format::Table | Format::Wide => {
                let mut rows = self.rows()?;
                rows.truncate(1 + MOST_QUEUES);
                Table { rows }.print::<Row>(format)?;
                Ok(io::stdout().lock().write_all(self.footer().as_bytes())?)
            }
        }
    }

    fn object(&self) -> Object<'_> {
        Object {
            policy: self.policy.name.clone(),
            class: self.policy.class.to_string(),
            jobs: self.jobs,
            summary: &self.outcome.summary,
            refused_ids: self.outcome.refused.iter().map(|refused| refused.id.as_str()).collect(),
            stranded_ids: self.outcome.stranded.iter().map(|stranded| stranded.id.as_str()).collect(),
            stranded_by_reason: self.strands(),
            // A job that is stopped before its end starts again: a trace does not cancel its jobs.
            restarts: self.outcome.summary.all.preemptions,
            events: self.outcome.events,
            wall_s: self.wall_s,
            peak_rss_mib: peak_rss_mib(),
            digest: digest(self.outcome),
        }
    }

    /// All queues together, then each.
    fn rows(&self) -> Result<Vec<Box<RawValue>>, Failure> {
        let row = |queue: &str, figures: &Figures| Row {
            queue: queue.into(),
            figures: figures.clone(),
            policy: self.policy.name.clone(),
            class: self.policy.class.to_string(),
        };
        let each = self.outcome.summary.by_queue.iter().map(|(queue, figures)| row(queue, figures));
        // With one queue its figures are those of all.
        let each = each.filter(|_| self.outcome.summary.by_queue.len() > 1);
        let rows = std::iter::once(row("(all)", &self.outcome.summary.all)).chain(each);
        Ok(rows.map(|row| to_raw_value(&row)).collect::<Result<_, _>>()?)
    }

    fn footer(&self) -> String {
        let measured = match self.jobs == self.all_jobs {
            true => String::new(),
            false => format!(" that are measured, of {}; all", self.all_jobs),
        };
        format!(
            "\n{policy}, class {class}{oracle}: {finished} of {jobs} jobs{measured} in {makespan}, GPUs used {used:.1} %, digest {digest}\n",
            policy = self.policy.name,
            class = self.policy.class,
            oracle = if self.policy.class == Class::C { " (knows every duration: a bound)" } else { "" },
            finished = self.outcome.summary.all.finished,
            jobs = self.jobs,
            makespan = seconds(self.outcome.summary.makespan_s as f64),
            used = 100.0 * self.outcome.summary.gpu_utilization,
            digest = digest(self.outcome),
        ) + &self.left_lines()
    }

    /// What the table does not show, and how many jobs did not finish.
    fn left_lines(&self) -> String {
        let more = match self.outcome.summary.by_queue.len().saturating_sub(MOST_QUEUES) {
            0 => String::new(),
            more => format!("{more} more queues are not in the table: -o csv has all\n"),
        };
        let cut = match self.outcome.summary.all.ended_by_limit {
            0 => String::new(),
            count => format!("{count} ended by a time limit before their work was done\n"),
        };
        let stranded = match self.outcome.stranded.len() {
            0 => String::new(),
            count => format!("{count} would wait for ever\n"),
        };
        more + &cut + &stranded + &self.refused_line().unwrap_or_default()
    }

    /// The jobs that wait for ever, by the code of what they wait for.
    fn strands(&self) -> BTreeMap<&str, Strand<'_>> {
        let mut strands: BTreeMap<&str, Strand<'_>> = BTreeMap::new();
        for Stranded { id, code, why, .. } in &self.outcome.stranded {
            let new = || Strand { jobs: 0, first: id, text: why, named: Vec::new() };
            let strand = strands.entry(code).or_insert_with(new);
            strand.jobs += 1;
            if strand.named.len() < MOST_NAMED {
                strand.named.push(plain(id).into_owned());
            }
        }
        strands
    }

    /// Which jobs wait for ever, and for what.
    fn stranded_lines(&self) -> impl Iterator<Item = String> {
        self.strands().into_iter().map(|(code, strand)| {
            let named = strand.named.join(", ");
            let more = strand.jobs - strand.named.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let (would, text) = (if strand.jobs == 1 { "job" } else { "jobs" }, strand.text);
            format!("{would} {named}{more} would wait for ever: {code}: {text}")
        })
    }

    /// How many jobs could never run, and the first of them.
    fn refused_line(&self) -> Option<String> {
        let refused = &self.outcome.refused;
        let more = refused.len().checked_sub(MOST_NAMED).filter(|more| *more > 0);
        let named: Vec<_> = refused.iter().take(MOST_NAMED).map(|refused| plain(&refused.id)).collect();
        let more = more.map(|more| format!(" and {more} more; -o json names all")).unwrap_or_default();
        (!refused.is_empty()).then(|| format!("{} refused: {}{more}\n", refused.len(), named.join(", ")))
    }

    /// What a person must know besides the figures: no job is dropped silently.
    pub(super) fn told(&self) -> Vec<String> {
        let refused = &self.outcome.refused;
        let told = |refused: &Refused| format!("job {} never ran: {}", refused.id, refused.why);
        let mut lines: Vec<_> = self.cut_line().into_iter().collect();
        lines.extend(self.stranded_lines());
        lines.extend(refused.iter().take(MOST_NAMED).map(told));
        if refused.len() > MOST_NAMED {
            lines.push(format!("{} jobs never ran; -o json names all of them", refused.len()));
        }
        lines
    }

    /// Names the first job that was ended before its work was done, and what it had done by then.
    fn cut_line(&self) -> Option<String> {
        let first = self.outcome.first_cut.as_ref()?;
        let [did, needs] = [first.worked_s, first.duration_s].map(|s| seconds(s as f64));
        Some(format!(
            "job {} did {did} of {needs} when a time limit of --queues ended it; jobs that end so are counted, and are in no mean",
            plain(&first.id)
        ))
    }

    /// Writes one line for each job that worked to its end, in the order of the trace, which knows the names.
    pub(super) fn write_jobs(&self, path: &Path, trace: &Trace) -> Result<(), Failure> {
        let jobs = trace.jobs()?;
        let mut ends = self.outcome.ends.iter().peekable();
        write_to(Some(path), |to| {
            let mut writer = csv::Writer::from_writer(to);
            let header = ["job_id", "start_s", "finish_s", "preemptions", "rho", "policy", "class"];
            writer.write_record(header)?;
            let (policy, class) = (&self.policy.name, &self.policy.class.to_string());
            for (row, job) in jobs.enumerate() {
                let id = job?.arrival.id;
                let Some(end) = ends.next_if(|end| end.row == row) else { continue };
                let numbers = [end.start_s, end.finish_s, end.preemptions.into()].map(|n| n.to_string());
                let [start_s, finish_s, preemptions] = &numbers;
                let rho = format!("{:.6}", end.rho);
                writer.write_record([&id, start_s, finish_s, preemptions, &rho, policy, class])?;
            }
            Ok(writer.flush()?)
        })
    }

    /// Draws the replay.
    pub(super) fn draw(&self, path: &Path, title: &str) -> Result<(), Failure> {
        let Outcome { gpus, timeline, jct_s, .. } = self.outcome;
        let plot = Plot { title, gpus: *gpus, timeline, jct_s };
        let text = svg(&plot).map_err(|error| Failure::new(Exit::Internal, error.to_string()))?;
        write_to(Some(path), |to| Ok(to.write_all(text.as_bytes())?))
    }
}

fn digest(outcome: &Outcome) -> String {
    format!("{:016x}", outcome.digest)
}

/// The most memory that the program has held so far, as the kernel counts it.
fn peak_rss_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.div_ceil(1024))
}

/// The figures of a queue.
#[derive(Serialize, Deserialize)]
struct Row {
    queue: String,
    #[serde(flatten)]
    figures: Figures,
    policy: String,
    class: String,
}

impl Listing for Row {
    const PATHS: &'static [&'static str] = &[
        "queue",
        "finished",
        "mean_jct_s",
        "p50_jct_s",
        "p90_jct_s",
        "p99_jct_s",
        "mean_wait_s",
        "preemptions",
        "worst_rho",
        "unfair_fraction",
        "ended_by_limit",
        "stranded",
        "refused",
        "policy",
        "class",
    ];
    const EMPTY: &'static str = "no job ended";

    fn columns() -> Vec<Column<Self>> {
        vec![
            Column::<Self>::new("QUEUE", |row, _| row.queue.clone()),
            Column::<Self>::new("FINISHED", |row, _| row.figures.finished.to_string()).right(),
            Column::<Self>::new("MEAN JCT", |row, _| seconds(row.figures.mean_jct_s)).right(),
            Column::<Self>::new("P50", |row, _| seconds(row.figures.p50_jct_s as f64)).right(),
            Column::<Self>::new("P90", |row, _| seconds(row.figures.p90_jct_s as f64)).right(),
            Column::<Self>::new("P99", |row, _| seconds(row.figures.p99_jct_s as f64)).right(),
            Column::<Self>::new("MEAN WAIT", |row, _| seconds(row.figures.mean_wait_s)).right(),
            Column::<Self>::new("STOPPED", |row, _| row.figures.preemptions.to_string()).right(),
            Column::<Self>::new("WORST RHO", |row, _| format!("{:.2}", row.figures.worst_rho)).right(),
            Column::<Self>::new("UNFAIR", |row, _| format!("{:.1} %", 100.0 * row.figures.unfair_fraction))
                .right(),
            Column::<Self>::new("ENDED BY LIMIT", |row, _| row.figures.ended_by_limit.to_string())
                .right()
                .when(|row| row.figures.ended_by_limit > 0),
            Column::<Self>::new("FOR EVER", |row, _| row.figures.stranded.to_string())
                .right()
                .when(|row| row.figures.stranded > 0),
            Column::<Self>::new("REFUSED", |row, _| row.figures.refused.to_string()).right().wide(),
        ]
    }
}

fn seconds(seconds: f64) -> String {
    span((seconds * 1000.0) as i64)
}
