//! The project's own commands, run as `cargo xtask VERB`; a file per verb.

mod bench;
mod cargo;
mod ci;
mod deny;
mod kill;
mod kube;
mod metadata;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's own commands.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Everything that a change must pass: fmt, tidy, deny, clippy, doc, test
    Ci(ci::Options),
    /// Checks the project's own rules: crate edges, names, sizes, reasons, links
    Tidy,
    /// Checks licences, bans and sources of every dependency against deny.toml
    Deny,
    /// Measures how fast and how small the product is, beside others
    Bench(bench::Options),
    /// Kills the daemon at random moments under load, and compares what is there with what it promised
    Kill(kill::Options),
    /// Builds, starts and ends the test cluster: a Kubernetes control plane with fake kubelets
    Kube(kube::Options),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().verb {
        Verb::Ci(options) => ci::run(&options),
        Verb::Tidy => tidy::run(),
        Verb::Deny => deny::run(),
        Verb::Bench(options) => bench::run(&options),
        Verb::Kill(options) => kill::run(&options),
        Verb::Kube(options) => kube::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
