//! `divvy kube`: the scheduler of a Kubernetes cluster.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use divvy_server::kube::{self, KubeError, Options};

use crate::exit::Exit;
use crate::failure::Failure;

/// Schedules the GPU pods of a Kubernetes cluster
#[derive(Debug, Args)]
pub(crate) struct Kube {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Runs the scheduler: gives nodes to pods whose schedulerName is divvy, until it is ended by a signal
    Run(Run),
    /// Prints what the scheduler adds to a cluster (the kind Queue, its rights), for `kubectl apply -f -`
    Manifests,
}

#[derive(Debug, Args)]
struct Run {
    /// How the cluster is reached
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: PathBuf,
    /// The schedulerName of the pods that are its own
    #[arg(long, value_name = "NAME", default_value = "divvy")]
    scheduler_name: String,
}

impl Kube {
    /// Does it.
    pub(crate) fn run(&self) -> Result<Exit, Failure> {
        match &self.verb {
            Verb::Manifests => std::io::stdout().lock().write_all(kube::manifests().as_bytes())?,
            Verb::Run(run) => {
                let options =
                    Options { kubeconfig: run.kubeconfig.clone(), scheduler: run.scheduler_name.clone() };
                kube::run(&options).map_err(failure)?;
            }
        }
        Ok(Exit::Success)
    }
}

fn failure(error: KubeError) -> Failure {
    let exit = match &error {
        KubeError::Connect(_) => Exit::NotFound,
        KubeError::Silent(_) => Exit::NoDaemon,
        KubeError::Broken(_) | KubeError::Signals(_) => Exit::Internal,
    };
    Failure::new(exit, error.to_string())
}
