//! `divvy gpus drain` and `undrain`: GPUs and nodes that take no new jobs, now or from a moment on.

use std::io::Write;

use divvy_api::client::Ask;
use divvy_api::{EndReservation, Reservation, ReservationState, Reserve, paths};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::number::time;
use crate::output::{local, plain};
use crate::pool::{self, Place};

const DRAIN_EXAMPLES: &str = "\
Examples:
  divvy gpus drain 3                               GPU 3 takes no new jobs; who has it runs on
  divvy gpus drain 3 --evict --note 'ECC errors'   jobs on it go back into their queue now
  divvy gpus drain node7 --at 2h --for 4h --evict  a maintenance window of a whole node
  divvy gpus undrain node7                         it takes jobs again";

/// Let GPUs or whole nodes take no new jobs, now or from a moment on
///
/// What runs there goes on to its end, unless --evict says otherwise: then it is stopped as checkpoints and grace
/// periods allow, and goes back into its queue. Before such a drain begins, a job with a time limit starts there only if it ends
/// in time.
#[derive(Debug, clap::Args)]
#[command(after_help = DRAIN_EXAMPLES)]
pub(crate) struct Drain {
    /// A GPU by its index (where there is one node), node:index or UUID; or a node as a whole
    #[arg(required = true, value_name = "GPU|NODE")]
    targets: Vec<String>,
    #[command(flatten)]
    when: When,
    /// Stop what runs there when it begins; jobs go back into their queue
    #[arg(long)]
    evict: bool,
}

/// When something is kept, and why.
#[derive(Debug, clap::Args)]
pub(crate) struct When {
    /// From when on: a moment (2026-11-21T18:00:00+01:00) or a time from now (2h); unsaid, from now on
    #[arg(long, visible_alias = "from", value_name = "WHEN", allow_hyphen_values = true, value_parser = time)]
    at: Option<String>,
    /// For how long, counted from --at: 4h; unsaid, until it is taken back
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true, value_parser = time)]
    length: Option<String>,
    /// Why, for everybody to see
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

impl When {
    /// Whether a time or a reason was given.
    pub(crate) fn says_something(&self) -> bool {
        self.at.is_some() || self.length.is_some() || self.note.is_some()
    }

    /// Adds these settings to a request.
    pub(crate) fn of(&self, reserve: Reserve) -> Reserve {
        Reserve { from: self.at.clone(), length: self.length.clone(), note: self.note.clone(), ..reserve }
    }
}

/// Let drained GPUs or nodes take jobs again
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  divvy gpus undrain 3\n  divvy gpus undrain node7")]
pub(crate) struct Undrain {
    /// What was drained, named as then
    #[arg(required = true, value_name = "GPU|NODE")]
    targets: Vec<String>,
}

impl Drain {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        each(place, &self.targets, async |client, target| {
            let reserve = Reserve { on: vec![target], evict: self.evict, ..Reserve::default() };
            let made: Reservation =
                client.ask(&Ask::post(paths::RESERVATIONS, &self.when.of(reserve))).await?;
            writeln!(std::io::stdout(), "{}", drained(&made))?;
            Ok(())
        })
    }
}

impl Undrain {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        each(place, &self.targets, async |client, target| {
            let end = EndReservation { drained: Some(target.clone()), ..EndReservation::default() };
            let _: Vec<Reservation> = client.ask(&Ask::post(paths::RESERVATIONS_END, &end)).await?;
            writeln!(std::io::stdout(), "{} takes jobs", plain(&target))?;
            Ok(())
        })
    }
}

/// Acts on one target after the other; a refusal does not keep the others from it.
async fn one_by_one(
    client: &mut divvy_api::Client,
    targets: &[String],
    act: impl AsyncFn(&mut divvy_api::Client, String) -> Result<(), Failure>,
) -> Exit {
    let mut worst = Exit::Success;
    for target in targets {
        if let Err(failure) = act(client, target.clone()).await {
            failure.report();
            worst = failure.exit;
        }
    }
    worst
}

fn each(
    place: &Place,
    targets: &[String],
    act: impl AsyncFn(&mut divvy_api::Client, String) -> Result<(), Failure>,
) -> Result<Exit, Failure> {
    pool::with_client(place, async |mut client| Ok(one_by_one(&mut client, targets, &act).await))
}

fn drained(made: &Reservation) -> String {
    let on = made.on.join(", ");
    let on = plain(&on);
    let until = made.until_ms.map(|until| format!(" until {}", local(until))).unwrap_or_default();
    if made.state == ReservationState::Planned {
        return format!("{on} takes no new jobs from {}{until}", local(made.from_ms));
    }
    let there = match made.jobs.as_slice() {
        [] => String::new(),
        // A gang may give up its tasks there alone.
        [job] if made.evicts => format!("; {job} has to leave"),
        jobs if made.evicts => format!("; {} have to leave", jobs.join(", ")),
        [job] => format!("; {job} runs on there"),
        jobs => format!("; {} run on there", jobs.join(", ")),
    };
    format!("{on} takes no new jobs{until}{there}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_drain_means_for_those_who_run_is_said() {
        let made = |jobs: &[&str], evicts| Reservation {
            id: 1,
            state: ReservationState::Active,
            queue: None,
            on: vec!["n1:3".into()],
            gpus: 1,
            from_ms: 0,
            until_ms: None,
            evicts,
            jobs: jobs.iter().map(|job| (*job).to_owned()).collect(),
            by: "root".into(),
            note: None,
        };
        assert_eq!(drained(&made(&[], false)), "n1:3 takes no new jobs");
        assert_eq!(drained(&made(&["12"], false)), "n1:3 takes no new jobs; 12 runs on there");
        assert_eq!(drained(&made(&["12", "13_1"], true)), "n1:3 takes no new jobs; 12, 13_1 have to leave");
        let planned = Reservation { state: ReservationState::Planned, ..made(&["12"], true) };
        assert!(drained(&planned).starts_with("n1:3 takes no new jobs from "));
    }
}
