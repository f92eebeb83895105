//! `divvy sim`: the same core in virtual time, a file per verb.

mod chaos;
mod files;
mod form;
mod generate;
mod import;
mod pack;
mod progress;
mod replay;
mod report;
mod run;
mod suite;
mod verify;
mod whatif;

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
    Pack(pack::Pack),
    Replay(Box<replay::Replay>),
    Import(import::Import),
    Generate(generate::Generate),
    Run(run::Run),
    Suite(suite::Suite),
    Chaos(chaos::Chaos),
    Verify(verify::Verify),
    Whatif(whatif::Whatif),
}

impl Sim {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        match &self.verb {
            SimVerb::Pack(pack) => pack.run(),
            SimVerb::Replay(replay) => replay.run(),
            SimVerb::Import(import) => import.run(),
            SimVerb::Generate(generate) => generate.run(),
            SimVerb::Run(run) => run.run(),
            SimVerb::Suite(suite) => suite.run(),
            SimVerb::Chaos(chaos) => chaos.run(),
            SimVerb::Verify(verify) => verify.run(place),
            SimVerb::Whatif(whatif) => whatif.run(place),
        }
    }
}
