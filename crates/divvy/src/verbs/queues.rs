//! `divvy queues`: who may have how much, and has.

use divvy_api::{Queue, paths};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Column, FormatFlag, Listing, Table, bytes, cores, gpus, span};
use crate::pool::{self, Place};

const EXAMPLES: &str = "\
Examples:
  divvy queues               every queue, its limit and its use
  divvy queues -o json       for programs
  divvy apply -f queues.yaml changes them";

/// List queues, their limits and their use
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Queues {
    #[command(flatten)]
    format: FormatFlag,
}

impl Queues {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        let rows = pool::with_client(place, async |mut client| pool::rows(&mut client, paths::QUEUES).await)?;
        Table { rows }.print::<Queue>(self.format.output)?;
        Ok(Exit::Success)
    }
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
        "requeue",
        "submit",
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
            Column::<Self>::new("LIMIT", |queue, _| amounts(&queue.limit)),
            Column::<Self>::new("GUARANTEE", |queue, _| amounts(&queue.guarantee)),
            Column::<Self>::new("DUE", |queue, _| queue.gpu_milli_due.map(share).unwrap_or_default()).right(),
            Column::<Self>::new("BORROWED", |queue, _| share(queue.gpu_milli_borrowed)).right(),
            Column::<Self>::new("WEIGHT", |queue, _| queue.weight.to_string()).right().wide(),
            Column::<Self>::new("PRIORITY", |queue, _| queue.priority.to_string()).right().wide(),
            Column::<Self>::new("RUNNING", |queue, _| queue.running.to_string()).right(),
            Column::<Self>::new("WAITING", |queue, _| queue.waiting.to_string()).right(),
            Column::<Self>::new("HELD", |queue, _| queue.held.to_string()).right().wide(),
            Column::<Self>::new("WANTED", |queue, _| gpus(queue.gpu_milli_waiting)).right(),
            Column::<Self>::new("LONGEST WAIT", |queue, _| {
                queue.longest_wait_ms.map(span).unwrap_or_default()
            })
            .right(),
            Column::<Self>::new("CORES", |queue, _| cores(queue.cpu_milli)).right().wide(),
            Column::<Self>::new("MEMORY", |queue, _| bytes(queue.memory_bytes)).right().wide(),
            Column::<Self>::new("REQUEUE", |queue, _| queue.requeue.clone().unwrap_or_default()).wide(),
            Column::<Self>::new("SUBMIT", submitters),
        ]
    }
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

fn submitters(queue: &Queue, _: &crate::output::Look) -> String {
    if queue.submit.is_empty() { "everyone".into() } else { queue.submit.join(" ") }
}
