//! `divvy kube`: the scheduler of a Kubernetes cluster.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use divvy_server::kube::{self, Inside, KubeError, Policy, Site};

use super::run::read_text;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::number::whole;

const EXAMPLES: &str = "\
Examples:
  divvy kube manifests | kubectl apply -f -       the kind Queue, an account and its rights
  divvy kube manifests --image REGISTRY/divvy:1   the scheduler inside the cluster, too
  divvy kube run                                  the scheduler, until Ctrl-C; several replicas elect a leader
  divvy kube run --nodes nvidia.com/gpu.present=true   only these nodes are the pool
  divvy kube run --policy policy.yaml             how it decides: policy: {strict: true}

Pods name it: schedulerName: divvy. The label divvy.dev/queue is their queue.";

/// Schedules the GPU pods of a Kubernetes cluster
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Kube {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Runs the scheduler: gives nodes to pods whose schedulerName is divvy, until it is ended by a signal
    Run(Run),
    /// Prints what the scheduler adds to a cluster (the kind Queue, its rights), for `kubectl apply -f -`
    Manifests(Manifests),
}

#[derive(Debug, Args)]
struct Manifests {
    /// With a Deployment of the scheduler, from this image; `divvy` is in its path
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// How many schedulers there are, of which one leads
    #[arg(long, value_name = "N", default_value_t = 2, requires = "image", value_parser = whole::<u32>(1..=9))]
    replicas: u32,
    /// The schedulerName of the pods that are its own
    #[arg(long, value_name = "NAME", default_value = "divvy", requires = "image")]
    scheduler_name: String,
    /// Only nodes with these labels are the pool's, such as nvidia.com/gpu.present=true
    #[arg(long, value_name = "LABELS", requires = "image")]
    nodes: Option<String>,
    /// Only queues with these labels are the pool's, where a cluster has several pools
    #[arg(long, value_name = "LABELS", requires = "image")]
    queues: Option<String>,
    /// How it decides: a file with the sections policy and prices of a queues.yaml, kept in a ConfigMap
    #[arg(long, value_name = "FILE", requires = "image")]
    policy: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Run {
    /// How the cluster is reached [default: as kubectl: $KUBECONFIG, ~/.kube/config, or from inside the cluster]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The schedulerName of the pods that are its own
    #[arg(long, value_name = "NAME", default_value = "divvy")]
    scheduler_name: String,
    /// Only nodes with these labels are the pool's, such as nvidia.com/gpu.present=true
    #[arg(long, value_name = "LABELS")]
    nodes: Option<String>,
    /// Only queues with these labels are the pool's, where a cluster has several pools
    #[arg(long, value_name = "LABELS")]
    queues: Option<String>,
    /// How it decides: a file with the sections policy and prices of a queues.yaml, read at the start
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// How long a leader leads without a word; another replica takes over after that and a third of it
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = whole::<u64>(3..=3600))]
    lease_s: u64,
}

impl Kube {
    /// Runs the verb.
    pub(crate) fn run(&self) -> Result<Exit, Failure> {
        match &self.verb {
            Verb::Manifests(wanted) => {
                let text = kube::manifests(wanted.inside()?.as_ref());
                std::io::stdout().lock().write_all(text.as_bytes())?;
            }
            Verb::Run(run) => {
                let (kubeconfig, scheduler) = (run.kubeconfig.clone(), run.scheduler_name.clone());
                let site = Site {
                    kubeconfig,
                    scheduler,
                    nodes: run.nodes.clone().unwrap_or_default(),
                    queues: run.queues.clone().unwrap_or_default(),
                    lease: Duration::from_secs(run.lease_s),
                };
                kube::run(&site, &policy_of(run.policy.as_deref())?).map_err(failure)?;
            }
        }
        Ok(Exit::Success)
    }
}

impl Manifests {
    fn inside(&self) -> Result<Option<Inside>, Failure> {
        // A policy that no scheduler could read is not put into a cluster.
        let policy = self.policy.as_deref().map(read_policy).transpose()?.map(|(text, _)| text);
        let inside = |image: &String| Inside {
            image: image.clone(),
            replicas: self.replicas,
            scheduler: self.scheduler_name.clone(),
            nodes: self.nodes.clone().unwrap_or_default(),
            queues: self.queues.clone().unwrap_or_default(),
            policy,
        };
        Ok(self.image.as_ref().map(inside))
    }
}

/// The policy in a file; without a file, the policy of a pool that is given none.
pub(super) fn policy_of(file: Option<&Path>) -> Result<Policy, Failure> {
    file.map_or_else(|| Ok(Policy::default()), |file| Ok(read_policy(file)?.1))
}

/// Reads a policy file: its text, and the policy that it means.
fn read_policy(file: &Path) -> Result<(String, Policy), Failure> {
    let text = read_text(file)?;
    let policy = kube::parse_policy(&text).map_err(|wrong| {
        let place = format!("{}:{}:{}", file.display(), wrong.line, wrong.column);
        Failure::new(Exit::Usage, format!("{place}: {}", wrong.what))
    })?;
    Ok((text, policy))
}

/// Turns a failure of the scheduler into one with an exit code.
pub(super) fn failure(error: KubeError) -> Failure {
    let exit = match &error {
        KubeError::Connect(_) => Exit::NotFound,
        KubeError::Silent(_) => Exit::NoDaemon,
        KubeError::Deposed => Exit::TryAgain,
        KubeError::Broken(_) | KubeError::Signals(_) => Exit::Internal,
    };
    Failure::new(exit, error.to_string())
}
