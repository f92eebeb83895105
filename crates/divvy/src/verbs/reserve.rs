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
            let all: Vec<Reservation> = client.get(paths::RESERVATIONS).await?;
            for note in all.iter().filter_map(|other| overlap(&made, other)) {
                writeln!(std::io::stdout(), "note: {}", plain(&note))?;
            }
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

/// What it means that another reservation keeps some of the same at the same time; nothing where that changes nothing.
fn overlap<'a>(made: &'a Reservation, other: &'a Reservation) -> Option<String> {
    let within = |one: &str, whole: &str| one.strip_prefix(whole).is_some_and(|rest| rest.starts_with(':'));
    // A node as a whole shares with its devices only those.
    let shared = |one: &'a str| {
        let of = move |it: &'a String| match () {
            () if it == one || within(one, it) => Some(one),
            () => within(it, one).then_some(it.as_str()),
        };
        other.on.iter().filter_map(of)
    };
    let shared: Vec<&str> = made.on.iter().flat_map(|one| shared(one)).collect();
    let before = |from: i64, until: Option<i64>| until.is_none_or(|until| from < until);
    let at_once = before(made.from_ms, other.until_ms) && before(other.from_ms, made.until_ms);
    if other.id == made.id || shared.is_empty() || !at_once {
        return None;
    }
    let (on, id) = (shared.join(", "), other.id);
    let Some(queue) = &other.queue else {
        return Some(format!(
            "reservation {id} takes {on} out then, too: as long as it does, nobody gets it"
        ));
    };
    // What is kept for a queue is for those below it, too.
    let is_below = |one: &str, above: &str| one.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'));
    let own = made.queue.as_deref().unwrap_or_default();
    if own == queue || is_below(own, queue) {
        return None;
    }
    let who =
        if is_below(queue, own) { format!("only jobs of {queue} get it") } else { "nobody gets it".into() };
    Some(format!("reservation {id} keeps {on} for {queue} then, too: as long as both last, {who}"))
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

#[cfg(test)]
mod tests {
    use divvy_api::ReservationState;

    use super::*;

    fn made(
        id: u64,
        queue: Option<&str>,
        on: &[&str],
        (from_ms, until_ms): (i64, Option<i64>),
    ) -> Reservation {
        Reservation {
            id,
            state: ReservationState::Planned,
            queue: queue.map(str::to_owned),
            on: on.iter().map(|on| (*on).to_owned()).collect(),
            gpus: 1,
            from_ms,
            until_ms,
            evicts: true,
            jobs: Vec::new(),
            by: "root".into(),
            note: None,
        }
    }

    #[test]
    fn who_keeps_the_same_at_the_same_time_is_named_with_what_that_means() {
        let new = made(2, Some("lab/nlp"), &["n1:0", "n2"], (10, Some(20)));
        let of = |queue, on: &[&str], time| overlap(&new, &made(1, queue, on, time));
        let said = of(Some("other"), &["n1:0", "n1:1"], (0, Some(11))).unwrap();
        assert_eq!(
            said,
            "reservation 1 keeps n1:0 for other then, too: as long as both last, nobody gets it"
        );
        assert!(of(None, &["n2:3"], (0, None)).unwrap().starts_with("reservation 1 takes n2:3 out then"));
        let below = of(Some("lab/nlp/x"), &["n1"], (15, None)).unwrap();
        assert!(below.ends_with("only jobs of lab/nlp/x get it"), "{below}");
        // Its own, or those of a queue above it, take nothing from it.
        assert_eq!(of(Some("lab/nlp"), &["n1:0"], (0, None)), None);
        assert_eq!(of(Some("lab"), &["n1:0"], (0, None)), None);
        // Another node, an earlier and a later time.
        assert_eq!(of(Some("other"), &["n1:1", "n10", "n22:0"], (0, None)), None);
        assert_eq!(of(Some("other"), &["n1:0"], (0, Some(10))), None);
        assert_eq!(of(Some("other"), &["n1:0"], (20, None)), None);
        assert_eq!(overlap(&new, &new), None);
    }
}
