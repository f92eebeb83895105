//! The pods of a Kubernetes cluster, shown like the jobs of a pool.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use divvy_server::kube::{Looked, Site};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::kube::{failure, policy_of};
use crate::exit::Exit;
use crate::failure::Failure;

/// Which cluster is meant, if one is.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Cluster {
    /// Look at a Kubernetes cluster, as its scheduler does
    #[arg(long, help_heading = "Kubernetes")]
    pub(crate) kube: bool,
    /// How the cluster is reached [default: as kubectl: $KUBECONFIG, ~/.kube/config, or from inside the cluster]
    #[arg(long, value_name = "FILE", requires = "kube", help_heading = "Kubernetes")]
    kubeconfig: Option<PathBuf>,
    /// The schedulerName of the pods that are meant
    #[arg(
        long,
        value_name = "NAME",
        default_value = "divvy",
        requires = "kube",
        help_heading = "Kubernetes"
    )]
    scheduler_name: String,
    /// Only nodes with these labels are the pool's, as its scheduler was told
    #[arg(long, value_name = "LABELS", requires = "kube", help_heading = "Kubernetes")]
    nodes: Option<String>,
    /// Only queues with these labels are the pool's, as its scheduler was told
    #[arg(long, value_name = "LABELS", requires = "kube", help_heading = "Kubernetes")]
    queues: Option<String>,
    /// How its scheduler decides: the file that it was given
    #[arg(long, value_name = "FILE", requires = "kube", help_heading = "Kubernetes")]
    policy: Option<PathBuf>,
}

/// Looking takes no lease.
const NO_LEASE: Duration = Duration::from_secs(15);

impl Cluster {
    /// Lists the cluster.
    pub(crate) fn look(&self) -> Result<Looked, Failure> {
        let site = Site {
            kubeconfig: self.kubeconfig.clone(),
            scheduler: self.scheduler_name.clone(),
            nodes: self.nodes.clone().unwrap_or_default(),
            queues: self.queues.clone().unwrap_or_default(),
            lease: NO_LEASE,
        };
        Looked::at(&site, &policy_of(self.policy.as_deref())?).map_err(failure)
    }

    /// Why a pod waits, or runs where it runs.
    pub(crate) fn explain(&self, name: &str) -> Result<Box<RawValue>, Failure> {
        let explained = self.look()?.explain(name);
        let none = || {
            let what = format!("no pod of scheduler {:?} is called {name:?}", self.scheduler_name);
            Failure::new(Exit::NotFound, what).fix("list them: divvy ps --kube")
        };
        Ok(to_raw_value(&explained.ok_or_else(none)?)?)
    }
}

/// Converts rows to the form that a table takes.
pub(crate) fn rows<T: Serialize>(rows: &[T]) -> Result<Vec<Box<RawValue>>, Failure> {
    Ok(rows.iter().map(to_raw_value).collect::<Result<_, _>>()?)
}
