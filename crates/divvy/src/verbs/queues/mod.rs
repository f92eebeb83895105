//! `divvy queues`: lists queues with their limits and use, shows earlier states, and changes one queue.

mod history;
mod set;
mod users;

use std::io::Write;

use clap::ValueEnum;
use divvy_api::client::Ask;
use divvy_api::{FileQuery, Queue, paths};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::number::whole;
use crate::output::{Column, Format, FormatFlag, Listing, Table, Written, bytes, cores, gpus, span};
use crate::pool::{self, Place};

const EXAMPLES: &str = "\
Examples:
  divvy queues                                every queue, its limit and its use
  divvy queues vision                         who has what of a queue that is divided among its users
  divvy queues -o json                        for programs
  divvy queues -o yaml > queues.yaml          as a file, for `divvy apply -f queues.yaml`
  divvy queues set vision --limit 8           changes one queue
  divvy queues --history                      who changed what, when and why
  divvy queues -o yaml --as-of 3              as they were after change 3
  divvy queues --kube                         those of a Kubernetes cluster";

/// List queues, their limits and their use; see and make changes
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Queues {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// The users of this queue, where it is divided among its users
    #[arg(value_name = "QUEUE", conflicts_with_all = ["history", "as_of"])]
    queue: Option<String>,
    /// The changes, the newest at the bottom
    #[arg(long)]
    history: bool,
    /// At most so many changes, the newest
    #[arg(short = 'n', long, value_name = "N", requires = "history", value_parser = whole::<u64>(1..))]
    limit: Option<u64>,
    /// As they were after that change (a number) or at that time (3d, 2026-11-01); with -o yaml
    #[arg(long, value_name = "CHANGE|WHEN", value_parser = AsOf::read, conflicts_with = "history")]
    as_of: Option<AsOf>,
    #[command(flatten)]
    format: FormatFlag<Shape>,
    #[cfg(feature = "kubernetes")]
    #[command(flatten)]
    cluster: super::cluster::Cluster,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Set(Box<set::Set>),
}

/// How queues are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Shape {
    /// For people.
    #[default]
    Table,
    /// All columns.
    Wide,
    /// One array of objects.
    Json,
    /// With a line of names on top.
    Csv,
    /// The file that `apply` takes.
    Yaml,
}

impl Shape {
    fn of_rows(self) -> Option<Format> {
        match self {
            Self::Table => Some(Format::Table),
            Self::Wide => Some(Format::Wide),
            Self::Json => Some(Format::Json),
            Self::Csv => Some(Format::Csv),
            Self::Yaml => None,
        }
    }
}

impl Written for Shape {
    const NAMES: &'static str = "table, wide, json, csv or yaml";
    const USUAL: &'static str = "table";
}

/// A state of the queues in the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AsOf {
    /// After that change.
    Change(u64),
    /// At that moment.
    At(i64),
}

impl AsOf {
    /// Reads the number of a change, a time before now, or a date.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(change) => Ok(Self::Change(change)),
            Err(_) => super::history::moment(text)
                .map(Self::At)
                .map_err(|what| format!("{what}, nor the number of a change")),
        }
    }

    /// The path of the file as of then.
    pub(super) fn path(self) -> String {
        let (change, at_ms) = match self {
            Self::Change(change) => (Some(change), None),
            Self::At(at_ms) => (None, Some(at_ms)),
        };
        file_path(&FileQuery { change, at_ms })
    }
}

fn file_path(query: &FileQuery) -> String {
    let FileQuery { change, at_ms } = query;
    let parts = [("change", change.map(|it| it.to_string())), ("at_ms", at_ms.map(|it| it.to_string()))];
    paths::with_query(paths::QUEUES_FILE, &parts)
}

impl Queues {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        if let Some(Verb::Set(set)) = &self.verb {
            return set.run(place);
        }
        #[cfg(feature = "kubernetes")]
        if self.cluster.kube {
            return self.of_cluster();
        }
        match (self.format.output.of_rows(), self.history) {
            (Some(format), true) => history::print(place, self.limit, format),
            (Some(_), false) if self.as_of.is_some() => {
                Err(Failure::usage("what queues held in the past is not kept, only what they were allowed")
                    .fix("say -o yaml, too"))
            }
            (Some(format), false) if self.queue.is_some() => {
                users::print(place, self.queue.as_deref().unwrap_or_default(), format)
            }
            (Some(format), false) => {
                let rows = pool::with_client(place, async |mut client| {
                    pool::rows(&mut client, paths::QUEUES).await
                })?;
                Table { rows }.print::<Queue>(format)?;
                Ok(Exit::Success)
            }
            (None, true) => Err(Failure::usage("changes are no file").fix("say -o table, json or csv")),
            (None, false) if self.queue.is_some() => {
                let fix = "leave the name out, or say -o json";
                Err(Failure::usage("a file for `divvy apply` has all queues, not one").fix(fix))
            }
            (None, false) => {
                let path = self.as_of.map_or_else(|| file_path(&FileQuery::default()), AsOf::path);
                std::io::stdout().lock().write_all(&file(place, path)?)?;
                Ok(Exit::Success)
            }
        }
    }
}

impl Queues {
    /// The queues of a cluster: what is due to them and what they hold now.
    #[cfg(feature = "kubernetes")]
    fn of_cluster(&self) -> Result<Exit, Failure> {
        let is_plain = self.queue.is_none() && !self.history && self.as_of.is_none();
        let Some(format) = self.format.output.of_rows().filter(|_| is_plain) else {
            return Err(Failure::usage("of a cluster's queues there is the listing alone")
                .fix("say divvy queues --kube; the objects are there by kubectl get queues -o yaml"));
        };
        Table { rows: super::cluster::rows(&self.cluster.look()?.queues())? }.print::<Queue>(format)?;
        Ok(Exit::Success)
    }
}

/// A queues.yaml as the daemon writes it.
fn file(place: &Place, path: String) -> Result<Vec<u8>, Failure> {
    let ask = Ask::get(path);
    pool::with_client(place, async |mut client| Ok(client.ask_bytes(&ask).await?.to_vec()))
}

/// The queues.yaml of a time in the past.
pub(super) fn file_as_of(place: &Place, as_of: AsOf) -> Result<Vec<u8>, Failure> {
    file(place, as_of.path())
}

impl Listing for Queue {
    const PATHS: &'static [&'static str] = &[
        "queue",
        "limit",
        "guarantee",
        "borrow",
        "lend",
        "weight",
        "priority",
        "gpu_milli_due",
        "gpu_milli_borrowed",
        "gpu_milli_lent",
        "gpu_hours_used",
        "gpu_hours_credit",
        "requeue",
        "max_priority",
        "max_time_ms",
        "default_time_ms",
        "max_jobs",
        "budget_gpu_hours",
        "budget_every",
        "budget_left_gpu_hours",
        "budget_renews_at_ms",
        "pledge_behind_gpu_hours",
        "user_limit",
        "users",
        "submit",
        "admins",
        "default_for",
        "nodes",
        "may_submit",
        "running",
        "waiting",
        "held",
        "gpu_milli",
        "gpu_milli_waiting",
        "cpu_milli",
        "memory_bytes",
        "longest_wait_ms",
    ];
    const EMPTY: &'static str = "no queues";

    fn columns() -> Vec<Column<Self>> {
        vec![
            Column::<Self>::new("QUEUE", |queue, _| queue.queue.clone()),
            Column::<Self>::new("GPUS", |queue, _| gpus(queue.gpu_milli)).right(),
            Column::<Self>::new("LIMIT", |queue, _| amounts(&queue.limit)).spare(),
            Column::<Self>::new("GUARANTEE", |queue, _| amounts(&queue.guarantee)).spare(),
            Column::<Self>::new("DUE", |queue, _| queue.gpu_milli_due.map(share).unwrap_or_default()).right(),
            Column::<Self>::new("BORROWED", |queue, _| share(queue.gpu_milli_borrowed)).right().spare(),
            Column::<Self>::new("LENT", |queue, _| share(queue.gpu_milli_lent)).right().wide(),
            Column::<Self>::new("CREDIT", |queue, _| hours(queue.gpu_hours_credit)).right().spare(),
            Column::<Self>::new("BUDGET LEFT", budget).right().when(|queue| queue.budget_gpu_hours.is_some()),
            Column::<Self>::new("BEHIND", |queue, _| hours(queue.pledge_behind_gpu_hours)).right().wide(),
            Column::<Self>::new("USED", |queue, _| hours(queue.gpu_hours_used)).right().wide(),
            Column::<Self>::new("WEIGHT", |queue, _| queue.weight.to_string()).right().wide(),
            Column::<Self>::new("PRIORITY", |queue, _| queue.priority.to_string()).right().wide(),
            Column::<Self>::new("RUNNING", |queue, _| queue.running.to_string()).right(),
            Column::<Self>::new("WAITING", |queue, _| queue.waiting.to_string()).right(),
            Column::<Self>::new("HELD", |queue, _| queue.held.to_string()).right().wide(),
            Column::<Self>::new("WANTED", |queue, _| gpus(queue.gpu_milli_waiting)).right().wide(),
            Column::<Self>::new("LONGEST WAIT", |queue, _| {
                queue.longest_wait_ms.map(span).unwrap_or_default()
            })
            .right()
            .wide(),
            Column::<Self>::new("CORES", |queue, _| cores(queue.cpu_milli)).right().wide(),
            Column::<Self>::new("MEMORY", |queue, _| bytes(queue.memory_bytes)).right().wide(),
            Column::<Self>::new("REQUEUE", |queue, _| queue.requeue.clone().unwrap_or_default()).wide(),
            Column::<Self>::new("SUBMIT", submitters).wide(),
            Column::<Self>::new("ADMINS", |queue, _| members(&queue.admins)).wide(),
            Column::<Self>::new("DEFAULT FOR", |queue, _| members(&queue.default_for)).wide(),
            Column::<Self>::new("NODES", |queue, _| members(&queue.nodes)).wide(),
        ]
    }
}

/// What is left of the budget: `120.5h of 2000h/week`.
fn budget(queue: &Queue, _: &crate::output::Look) -> String {
    let Queue { budget_gpu_hours, budget_left_gpu_hours, budget_every, .. } = queue;
    match (budget_left_gpu_hours, budget_gpu_hours, budget_every) {
        // Of a small budget a tenth of an hour says nothing.
        (Some(left), Some(whole), Some(every)) if *whole > 0.0 && *whole < 10.0 => {
            let left = if left.abs() < 0.0005 { 0.0 } else { *left };
            format!("{}h of {whole}h/{every}", (left * 1000.0).round() / 1000.0)
        }
        (Some(left), Some(whole), Some(every)) => format!("{} of {whole}h/{every}", hours(Some(*left))),
        _ => "-".into(),
    }
}

fn hours(hours: Option<f64>) -> String {
    // A credit that rounds to zero is not shown as a debt.
    hours.map_or_else(|| "-".into(), |hours| format!("{:.1}h", if hours.abs() < 0.05 { 0.0 } else { hours }))
}

fn share(milli: i64) -> String {
    u64::try_from(milli).map_or_else(|_| "-".into(), gpus)
}

fn amounts(amounts: &std::collections::BTreeMap<String, String>) -> String {
    if amounts.is_empty() {
        return "-".into();
    }
    amounts.iter().map(|(resource, amount)| format!("{resource}={amount}")).collect::<Vec<_>>().join(" ")
}

fn members(names: &[String]) -> String {
    if names.is_empty() { "-".into() } else { names.join(" ") }
}

fn submitters(queue: &Queue, _: &crate::output::Look) -> String {
    if queue.submit.is_empty() { "everyone".into() } else { queue.submit.join(" ") }
}
