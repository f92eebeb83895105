//! `cargo xtask kill`: kills the daemon with SIGKILL again and again at random moments, under load, and after each restart
//! compares everything it ever promised with what is there.
//!
//! Every second life also loses supervisors: then attempts are lost, and what each job's policy says must follow.
//!
//! A *life* is one state directory that survives up to [`ROUNDS_OF_A_LIFE`] kills. It has a seed of its own, from which
//! all choices are drawn. The choices repeat with the seed; their interleaving on the machine does not.

mod book;
mod draw;
mod hunt;
mod journal;
mod life;
mod load;
mod site;
mod wire;

use std::path::PathBuf;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::cargo;
use life::Tally;

/// How often the daemon of one state directory is killed. The comparison looks at every job of the life, and so takes
/// longer with each round.
const ROUNDS_OF_A_LIFE: u32 = 20;

/// How often, with which choices, and what.
#[derive(Args)]
pub(crate) struct Options {
    /// How often the daemon is killed
    #[arg(long, value_name = "N", default_value_t = 1000)]
    rounds: u32,
    /// Where the random choices start; drawn and printed if unsaid
    #[arg(long)]
    seed: Option<u64>,
    /// The program to test; built from this checkout if unsaid
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// The form of the summary
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    output: Form,
}

/// How the summary is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    Text,
    Json,
}

/// The outcome of all lives.
#[derive(Debug, Serialize)]
struct Summary {
    seed: u64,
    seconds: u64,
    #[serde(flatten)]
    tally: Tally,
}

/// Runs as many lives as the rounds take; fails at the first life that does not hold, with its seed.
pub(crate) fn run(options: &Options) -> Result<()> {
    let program = match &options.program {
        Some(program) => program.canonicalize().with_context(|| format!("finding {}", program.display()))?,
        None => build()?,
    };
    let seed = options.seed.unwrap_or_else(seed_of_the_moment);
    eprintln!("killing {} times, seed {seed}", options.rounds);
    let begun = Instant::now();
    let mut tally = Tally::default();
    for (seed, rounds) in lives(seed, options.rounds) {
        let lived = life::live(&program, seed, rounds);
        tally += lived.with_context(|| format!("again: cargo xtask kill --rounds {rounds} --seed {seed}"))?;
        eprintln!("{:>6} kills  {tally}  (life of seed {seed} held)", tally.kills);
    }
    let summary = Summary { seed, seconds: begun.elapsed().as_secs(), tally };
    match options.output {
        Form::Text => println!("held: {} in {} s, seed {}", summary.tally, summary.seconds, summary.seed),
        Form::Json => println!("{}", serde_json::to_string_pretty(&summary)?),
    }
    Ok(())
}

/// Each life's seed and rounds.
fn lives(seed: u64, rounds: u32) -> impl Iterator<Item = (u64, u32)> {
    let starts = (0..rounds).step_by(ROUNDS_OF_A_LIFE as usize);
    (seed..).zip(starts).map(move |(seed, start)| (seed, ROUNDS_OF_A_LIFE.min(rounds - start)))
}

fn seed_of_the_moment() -> u64 {
    // Any number will do; small ones are easier to type again.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(since.subsec_nanos()) % 1_000_000
}

fn build() -> Result<PathBuf> {
    cargo::run(cargo::cargo().args(["build", "--quiet", "--package", "divvy"]))?;
    // This program lies in the same profile folder.
    let me = std::env::current_exe().context("finding this program")?;
    let program = me.with_file_name("divvy");
    if !program.exists() {
        bail!("divvy was built, but not to {}: name it with --program", program.display());
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rounds_are_cut_into_lives_with_seeds_of_their_own() {
        assert_eq!(lives(7, 50).collect::<Vec<_>>(), [(7, 20), (8, 20), (9, 10)]);
        assert_eq!(lives(7, 20).collect::<Vec<_>>(), [(7, 20)]);
    }
}
