//! `divvy sim`: the same core in virtual time, a file per verb.

mod replay;

use clap::Subcommand;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::pool::Place;

const EXAMPLES: &str = "\
Examples:
  divvy sim replay --cluster cluster.csv --trace jobs.csv --policy srtf";

/// Replay traces, answer what-if and look for broken laws, without a pool
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Sim {
    #[command(subcommand)]
    verb: SimVerb,
}

/// What the simulator can do.
#[derive(Debug, Subcommand)]
enum SimVerb {
    Replay(replay::Replay),
}

impl Sim {
    pub(crate) fn run(&self, _place: &Place) -> Result<Exit, Failure> {
        match &self.verb {
            SimVerb::Replay(replay) => replay.run(),
        }
    }
}
