//! `divvy sim replay`: a trace through the core, in virtual time.

use crate::exit::Exit;
use crate::failure::Failure;

/// Replay a trace of jobs
#[derive(Debug, clap::Args)]
pub(crate) struct Replay {}

impl Replay {
    pub(crate) fn run(&self) -> Result<Exit, Failure> {
        Ok(Exit::Success)
    }
}
