//! `cargo xtask kube`: a real Kubernetes control plane with fake kubelets, for tests: plain processes on loopback.

mod beside;
mod build;
mod cluster;
mod health;
mod parts;
mod pki;
mod process;
mod up;

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};

use crate::cargo;
pub(crate) use beside::Building;
pub(crate) use cluster::Cluster;

/// What to do with the test cluster.
#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Builds its programs from Go modules, once per version, into the user's cache folder
    Build(build::Options),
    /// Starts it, or what of it is not running, and prints the exports that make kubectl use it
    Up(up::Options),
    /// Ends its processes; its data stays, and `up` goes on with it
    Down(Down),
}

/// Which cluster to end.
#[derive(Args)]
struct Down {
    /// Its folder; by default the one that the tests share
    state: Option<PathBuf>,
}

/// The variable that tells tests where to find the cluster that they may use.
pub(crate) const VARIABLE: &str = "DIVVY_KUBE";

/// Runs the verb.
pub(crate) fn run(options: &Options) -> Result<()> {
    match &options.verb {
        Verb::Build(options) => build::run(options),
        Verb::Up(options) => up::run(options),
        Verb::Down(options) => down(&options.state.clone().unwrap_or_else(shared_state)),
    }
}

/// Where the cluster lives that all tests of this checkout share.
pub(crate) fn shared_state() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| cargo::root().join("target"), PathBuf::from);
    target.join("kube")
}

/// Ends the processes of a cluster, clients first, so that none spends its last seconds asking for a server that is gone.
pub(crate) fn down(state: &Path) -> Result<()> {
    for part in parts::STARTED.iter().rev() {
        process::end(state, part).with_context(|| format!("ending {part} of {}", state.display()))?;
    }
    Ok(())
}
