//! `divvy sim whatif`: replays the pool's own history, as it was and under a change.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use divvy_server::{doctor, memory_mib_of};
use divvy_sim::policy::NoPolicy;
use divvy_sim::whatif::{Answer, CannotChange, Change, Past, QueueFigures, Recorder, Side, compare};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::progress;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Column, Format, FormatFlag, Listing, Table, count, plain, span, write_json};
use crate::pool::Place;
use crate::verbs::history::moment;

const EXAMPLES: &str = "\
Examples:
  divvy sim whatif --change nodes+1                           one more node like the last one
  divvy sim whatif --change nodes+2xh100:8 --since 90d
  divvy sim whatif --change 'queue vision limit=8' --change 'queue nlp guarantee=16 weight=2'
  divvy sim whatif --change 'policy mlfq' --since 2026-11-01 -o json
  divvy sim whatif --change 'policy my-policy.yaml' --state /var/tmp/pool2";

/// Replay the pool's own history as it was and under a change: waits, GPU use
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Whatif {
    /// What is different: nodes+N, nodes+2xh100:8, nodes-N, nodes-NAME, 'queue PATH limit=8 …', 'policy NAME|FILE'
    #[arg(long = "change", value_name = "CHANGE", required = true)]
    changes: Vec<Change>,
    /// Count jobs submitted since: a time before now (30d, 12h) or a date (2026-11-01)
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true, value_parser = moment, default_value = "30d")]
    since: i64,
    #[command(flatten)]
    format: FormatFlag,
}

impl Whatif {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        let state = place.state_dir();
        let past = past(&state, self.since)?;
        let settings = past.under(&self.changes, &memory_mib_of).map_err(cannot)?;
        if past.is_empty() {
            let what = format!("nothing was submitted to {} in that time", state.display());
            return Err(Failure::new(Exit::BadData, what).fix("look further back with --since"));
        }
        let spinner = progress::spinner("{spinner} replaying, {elapsed}");
        let answer = compare(&past, &self.changes, settings);
        spinner.finish_and_clear();
        let answer = answer.map_err(|error| Failure::new(Exit::Internal, error.to_string()))?;
        print(&answer, self.format.output)?;
        Ok(Exit::Success)
    }
}

/// Folds the log; a daemon may be running on it.
fn past(state: &Path, since_ms: i64) -> Result<Past, Failure> {
    let mut recorder = Recorder::since(since_ms);
    let mut misfit = None;
    let bar = progress::bar(doctor::length(state).map_err(|error| Failure::log(&error))?, "events");
    let walked = doctor::each_commit(state, |events| {
        for event in events {
            if misfit.is_none() {
                misfit = recorder.follow(event).err();
            }
        }
        bar.inc(events.len() as u64);
    });
    bar.finish_and_clear();
    walked.map_err(|error| Failure::log(&error))?;
    match misfit {
        None => Ok(recorder.finish()),
        Some(misfit) => {
            Err(Failure::new(Exit::BadData, format!("the log of {} cannot be folded", state.display()))
                .because(misfit.to_string())
                .fix("look closer with `divvy doctor`"))
        }
    }
}

fn cannot(error: CannotChange) -> Failure {
    let exit = match error {
        CannotChange::NoSuchNode { .. } | CannotChange::NoSuchQueue { .. } => Exit::NotFound,
        CannotChange::NoSuchPolicy(_) | CannotChange::Twice(_) => Exit::Usage,
        CannotChange::PolicyFile(NoPolicy::Missing(_)) => Exit::NotFound,
        CannotChange::PolicyFile(NoPolicy::Unreadable(..)) => Exit::Io,
        _ => Exit::BadData,
    };
    Failure::new(exit, error.to_string())
}

fn print(answer: &Answer, format: Format) -> Result<(), Failure> {
    match format {
        Format::Json => Ok(write_json(&to_raw_value(answer)?)?),
        Format::Csv => Table { rows: rows(answer)? }.print::<Row>(format),
        Format::Table | Format::Wide => {
            Table { rows: rows(answer)? }.print::<Row>(format)?;
            Ok(std::io::stdout().lock().write_all(footer(answer).as_bytes())?)
        }
    }
}

/// The figures of a queue, before and after.
#[derive(Serialize, Deserialize)]
struct Row {
    queue: String,
    before: QueueFigures,
    after: QueueFigures,
}

/// All queues together, then each.
fn rows(answer: &Answer) -> Result<Vec<Box<RawValue>>, Failure> {
    let Answer { before, after, .. } = answer;
    let all = Row { queue: "(all)".into(), before: before.all.clone(), after: after.all.clone() };
    let mut rows = vec![to_raw_value(&all)?];
    // With one queue its figures are those of all.
    for (queue, figures) in before.by_queue.iter().filter(|_| before.by_queue.len() > 1) {
        let after = after.by_queue.get(queue).cloned().unwrap_or_default();
        rows.push(to_raw_value(&Row { queue: queue.clone(), before: figures.clone(), after })?);
    }
    Ok(rows)
}

impl Listing for Row {
    const PATHS: &'static [&'static str] = &[
        "queue",
        "before.started",
        "after.started",
        "before.never",
        "after.never",
        "before.mean_wait_s",
        "after.mean_wait_s",
        "before.p50_wait_s",
        "after.p50_wait_s",
        "before.p90_wait_s",
        "after.p90_wait_s",
        "before.p99_wait_s",
        "after.p99_wait_s",
        "before.gpu_hours",
        "after.gpu_hours",
        "before.preemptions",
        "after.preemptions",
    ];
    const EMPTY: &'static str = "no job started";

    fn columns() -> Vec<Column<Self>> {
        vec![
            Column::<Self>::new("QUEUE", |row, _| row.queue.clone()),
            Column::<Self>::new("STARTED", |row, _| row.both(|side| side.started.to_string())).right(),
            Column::<Self>::new("NEVER", |row, _| row.both(|side| side.never.to_string())).right().wide(),
            Column::<Self>::new("MEAN WAIT", |row, _| row.both(|side| waited(side.mean_wait_s))).right(),
            Column::<Self>::new("P50", |row, _| row.both(|side| waited(side.p50_wait_s))).right(),
            Column::<Self>::new("P90", |row, _| row.both(|side| waited(side.p90_wait_s))).right(),
            Column::<Self>::new("P99", |row, _| row.both(|side| waited(side.p99_wait_s))).right(),
            Column::<Self>::new("GPU HOURS", |row, _| row.both(|side| format!("{:.2}", side.gpu_hours)))
                .right(),
            Column::<Self>::new("STOPPED", |row, _| row.both(|side| side.preemptions.to_string()))
                .right()
                .wide(),
        ]
    }
}

impl Row {
    fn both(&self, text: fn(&QueueFigures) -> String) -> String {
        format!("{} → {}", text(&self.before), text(&self.after))
    }
}

fn seconds(seconds: f64) -> String {
    span((seconds * 1000.0) as i64)
}

/// If no job started, no wait is known.
fn waited(wait_s: Option<f64>) -> String {
    wait_s.map_or_else(|| "-".to_owned(), seconds)
}

/// Says why fewer jobs start than before, if fewer do.
fn never(before: &Side, after: &Side) -> String {
    const MOST_NAMED: usize = 3;
    let mut text = String::new();
    let mut name = |was: &BTreeMap<u64, String>, now: &BTreeMap<u64, String>, what: &str| {
        let newly: Vec<_> = now.iter().filter(|(job, _)| !was.contains_key(job)).collect();
        for (job, why) in newly.iter().take(MOST_NAMED) {
            text += &format!("job {job} would {what}: {}\n", plain(why));
        }
        if newly.len() > MOST_NAMED {
            text += &format!("{} more would {what}\n", newly.len() - MOST_NAMED);
        }
    };
    name(&before.refused, &after.refused, "never run");
    name(&before.stranded, &after.stranded, "wait for ever");
    match &after.beyond {
        Some(what) if before.beyond.as_ref() != Some(what) => {
            text + &format!("such a pool cannot keep what it guarantees: {}\n", plain(what))
        }
        _ => text,
    }
}

fn footer(answer: &Answer) -> String {
    let Answer { before, after, fidelity, .. } = answer;
    let percent = |side: &Side| format!("{:.1} %", 100.0 * side.gpu_use);
    let mut text = format!(
        "\n{} in {}, {} of them still open; as it was → {}\n",
        count(answer.jobs, "job"),
        span(answer.until_ms - answer.since_ms),
        answer.open,
        plain(&answer.changes.join(", ")),
    );
    text += &format!(
        "{} → {}, in use {} → {}\n",
        before.gpus,
        count(after.gpus, "GPU"),
        percent(before),
        percent(after)
    );
    text += &format!(
        "check: {} waited {} in the mean when it happened, {} in the replay as it was\n",
        count(fidelity.jobs, "job"),
        seconds(fidelity.recorded_mean_wait_s),
        seconds(fidelity.replayed_mean_wait_s),
    );
    text += &never(before, after);
    text += "assumed:\n";
    answer.assumptions.iter().for_each(|line| text += &format!("  {line}\n"));
    text
}
