//! `divvy reserve`: what is kept on the calendar, for a queue or for work on it.

use std::io::Write;

use divvy_api::client::Ask;
use divvy_api::{EndReservation, Reservation, paths};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::number::whole;
use crate::output::{Column, FormatFlag, Listing, Table, local, plain};
use crate::pool::{self, Place};
use crate::verbs::gpus::When;

const EXAMPLES: &str = "\
Examples:
  divvy reserve                                         what is kept, drains included
  divvy reserve -g 8 --queue vision --from 20h --for 4h 8 GPUs for one queue, for a course or a deadline
  divvy reserve --on node7 --queue vision --for 2h      a whole node, from now on
  divvy reserve --cancel 3                              takes reservation 3 back

GPUs are taken out for maintenance by `divvy gpus drain`.";

/// List reservations, or keep GPUs for a queue from a moment on
///
/// When it begins, what others run there is stopped as checkpoints and grace periods allow, and goes back into its queue. As long
/// as it lasts, nobody else gets these GPUs, and the queue is guaranteed them.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Reserve {
    /// So many GPUs, wherever that costs others least
    #[arg(short, long, value_name = "N", value_parser = whole::<u32>(1..), requires = "queue", conflicts_with = "on")]
    gpus: Option<u32>,
    /// Of this model: h100
    #[arg(long, requires = "gpus")]
    model: Option<String>,
    /// These: a GPU by its index (where there is one node), node:index or UUID; or a node as a whole
    #[arg(long, value_name = "GPU|NODE", value_delimiter = ',', requires = "queue")]
    on: Vec<String>,
    /// For the jobs of this queue and of those below it
    #[arg(short, long)]
    queue: Option<String>,
    #[command(flatten)]
    when: When,
    /// Take reservations back, by their numbers
    #[arg(long, value_name = "ID", value_delimiter = ',', value_parser = number, conflicts_with_all = ["gpus", "on", "queue"])]
    cancel: Vec<u64>,
    #[command(flatten)]
    format: FormatFlag,
}

impl Reserve {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        if !self.cancel.is_empty() {
            return self.take_back(place);
        }
        if self.queue.is_some() {
            return self.reserve(place);
        }
        if self.when.says_something() {
            let what = "nothing is named that could be kept then";
            return Err(Failure::usage(what)
                .fix("say how many GPUs, or which, and for which queue: -g 8 --queue vision"));
        }
        let rows =
            pool::with_client(place, async |mut client| pool::rows(&mut client, paths::RESERVATIONS).await)?;
        Table { rows }.print::<Reservation>(self.format.output)?;
        Ok(Exit::Success)
    }

    fn reserve(&self, place: &Place) -> Result<Exit, Failure> {
        let reserve = divvy_api::Reserve {
            queue: self.queue.clone(),
            on: self.on.clone(),
            gpus: self.gpus,
            model: self.model.clone(),
            ..divvy_api::Reserve::default()
        };
        pool::with_client(place, async |mut client| {
            let made: Reservation =
                client.ask(&Ask::post(paths::RESERVATIONS, &self.when.of(reserve))).await?;
            writeln!(std::io::stdout(), "{}", kept(&made))?;
            Ok(Exit::Success)
        })
    }

    fn take_back(&self, place: &Place) -> Result<Exit, Failure> {
        pool::with_client(place, async |mut client| {
            let mut worst = Exit::Success;
            for id in &self.cancel {
                let end = EndReservation { id: Some(*id), ..EndReservation::default() };
                match client.ask::<Vec<Reservation>>(&Ask::post(paths::RESERVATIONS_END, &end)).await {
                    Ok(_) => writeln!(std::io::stdout(), "reservation {id} is taken back")?,
                    Err(error) => {
                        let failure = Failure::from(error);
                        failure.report();
                        worst = failure.exit;
                    }
                }
            }
            Ok(worst)
        })
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "reservations have numbers; `divvy reserve` lists them".to_owned())
}

fn kept(made: &Reservation) -> String {
    let (on, queue) = (made.on.join(", "), made.queue.clone().unwrap_or_default());
    let until = made.until_ms.map_or("it is taken back".into(), local);
    format!(
        "reservation {}: {} for {} from {} until {until}",
        made.id,
        plain(&on),
        plain(&queue),
        local(made.from_ms)
    )
}

impl Listing for Reservation {
    const PATHS: &'static [&'static str] =
        &["id", "state", "queue", "on", "gpus", "from_ms", "until_ms", "evicts", "jobs", "by", "note"];
    const EMPTY: &'static str = "nothing is reserved or drained";

    fn columns() -> Vec<Column<Self>> {
        vec![
            Column::<Self>::new("ID", |kept, _| kept.id.to_string()).right(),
            Column::<Self>::new("STATE", |kept, _| kept.state.to_string()),
            Column::<Self>::new("FOR", |kept, _| kept.queue.clone().unwrap_or_else(|| "maintenance".into())),
            Column::<Self>::new("GPUS", |kept, _| kept.gpus.to_string()).right(),
            Column::<Self>::new("ON", |kept, _| kept.on.join(",")),
            Column::<Self>::new("FROM", |kept, _| local(kept.from_ms)).whole(),
            Column::<Self>::new("UNTIL", |kept, _| kept.until_ms.map_or("-".into(), local)).whole(),
            Column::<Self>::new("EVICTS", |kept, _| if kept.evicts { "yes" } else { "no" }.into()).wide(),
            Column::<Self>::new("JOBS", |kept, _| kept.jobs.join(",")).spare(),
            Column::<Self>::new("WHO", |kept, _| kept.by.clone()).spare(),
            Column::<Self>::new("NOTE", |kept, _| kept.note.clone().unwrap_or_default()).spare(),
        ]
    }
}
