//! The form of the cases: what they may say.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::suite::expected::Ranks;
use crate::suite::read::{Anything, amount};

/// What a case asks.
#[derive(Debug, Deserialize)]
pub(in crate::suite) struct Asked {
    pub(super) nodes: Vec<Node>,
    #[serde(default)]
    pub(super) topologies: Vec<Topology>,
    pub(super) queues: Vec<QueueText>,
    pub(super) jobs: Vec<Job>,
    pub(super) config: Config,
    pub(super) dra: Option<Anything>,
}

impl Asked {
    /// The queue and the priority of each job.
    pub(in crate::suite) fn ranks(&self) -> Ranks {
        self.jobs.iter().map(|job| (job.name.clone(), (job.queue.clone(), job.priority))).collect()
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) gpus: u32,
    pub(super) gpus_allocatable: Option<u32>,
    pub(super) gpu_memory_mib: Option<u64>,
    #[serde(deserialize_with = "amount")]
    pub(super) cpu_milli: i64,
    #[serde(deserialize_with = "amount")]
    pub(super) memory_bytes: i64,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    pub(super) max_pods: Option<u32>,
    pub(super) mig: Option<Anything>,
    #[serde(rename = "mig_strategy")]
    _mig_strategy: Option<Anything>,
    pub(super) numa: Option<Anything>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Topology {
    pub(super) levels: Vec<String>,
    #[serde(rename = "name")]
    _name: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct QueueText {
    pub(super) name: String,
    pub(super) parent: Option<String>,
    pub(super) gpu: Entitlement,
    pub(super) cpu_milli: Option<Entitlement>,
    pub(super) memory_bytes: Option<Entitlement>,
    pub(super) priority: Option<i32>,
    pub(super) reclaim_min_runtime_s: Option<f64>,
    /// Older queues have lower numbers.
    #[serde(default)]
    pub(super) order: u32,
    // The peer's own division, for comparing divisions. Cases ask what follows from it.
    #[serde(rename = "peer_share")]
    _peer_share: Option<Anything>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Entitlement {
    pub(super) deserved: Option<f64>,
    pub(super) limit: Option<f64>,
    pub(super) over_quota_weight: Option<f64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) queue: String,
    pub(super) priority: i32,
    pub(super) preemptible: bool,
    pub(super) age_min: f64,
    pub(super) min_members: Option<u32>,
    pub(super) gang: Option<Tree>,
    pub(super) topology: Option<Within>,
    pub(super) tasks: Vec<TaskText>,
    pub(super) stale_s: Option<f64>,
    #[serde(rename = "stale_grace_s")]
    _stale_grace_s: Option<f64>,
    #[serde(default)]
    pub(super) deleted_during_test: bool,
    pub(super) preemption_delay: Option<Anything>,
    #[serde(rename = "best_effort")]
    _best_effort: Option<Anything>,
    #[serde(rename = "qos")]
    _qos: Option<Anything>,
    #[serde(rename = "namespace")]
    _namespace: Option<Anything>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Tree {
    #[serde(default)]
    pub(super) name: String,
    pub(super) min_members: Option<u32>,
    pub(super) min_groups: Option<u32>,
    #[serde(default)]
    pub(super) groups: Vec<Tree>,
    pub(super) topology: Option<Within>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Within {
    pub(super) topology: String,
    pub(super) required_level: Option<String>,
    pub(super) preferred_level: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct TaskText {
    pub(super) id: String,
    pub(super) state: State,
    pub(super) node: Option<String>,
    pub(super) request: Request,
    #[serde(default)]
    pub(super) gpu_groups: Vec<String>,
    pub(super) group: Option<String>,
    pub(super) allowed_nodes: Option<Vec<String>>,
    pub(super) pod_affinity: Option<PodAffinity>,
    pub(super) task_priority: Option<i64>,
    pub(super) claims: Option<Anything>,
    pub(super) legacy_mig: Option<Anything>,
    pub(super) numa_placement: Option<Anything>,
}

impl TaskText {
    /// Whether it runs, or has run.
    pub(super) fn is_seated(&self) -> bool {
        self.state != State::Pending
    }

    /// Whether it is being stopped.
    pub(super) fn leaves(&self) -> bool {
        matches!(self.state, State::Releasing | State::StuckReleasing)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Pending,
    Running,
    Releasing,
    StuckReleasing,
    Pipelined,
    Failed,
    Succeeded,
}

/// A pod's labels, which also say near or apart from which pods it wants to lie: those with the same.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PodAffinity {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) same_domain_key: Option<String>,
    pub(super) different_domain_key: Option<String>,
}

#[derive(Debug, PartialEq, Deserialize)]
pub(super) struct Request {
    pub(super) gpus: Option<u32>,
    #[serde(default, deserialize_with = "amount")]
    pub(super) gpu_fraction: Option<f64>,
    pub(super) gpu_memory_mib: Option<u64>,
    pub(super) gpu_devices: Option<u32>,
    pub(super) mig: Option<BTreeMap<String, u64>>,
    pub(super) dra_gpus: Option<BTreeMap<String, u64>>,
    #[serde(deserialize_with = "amount")]
    pub(super) cpu_milli: i64,
    #[serde(deserialize_with = "amount")]
    pub(super) memory_bytes: i64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Config {
    pub(super) phases: Vec<String>,
    #[serde(default)]
    pub(super) placement: Placement,
    pub(super) max_moved_jobs: Option<u32>,
    pub(super) rounds_until: Option<u32>,
    #[serde(rename = "rounds_after")]
    _rounds_after: Option<Anything>,
    #[serde(rename = "reclaim_may_move")]
    _reclaim_may_move: Option<Anything>,
    #[serde(rename = "stale_grace_s")]
    _stale_grace_s: Option<Anything>,
    #[serde(rename = "peer_plugins")]
    _peer_plugins: Option<Anything>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Placement {
    pub(super) node_gpu: String,
    pub(super) node_cpu: String,
    pub(super) device: String,
}
