//! The form of the cases: what they may say.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::suite::expected::Ranks;
use crate::suite::read::{Anything, amount};

/// What a case asks.
#[derive(Debug, Deserialize)]
pub(in crate::suite) struct Asked {
    pub(super) kind: Kind,
    #[serde(default)]
    pub(super) flavors: Vec<Flavor>,
    #[serde(default)]
    pub(super) topologies: Vec<Topology>,
    #[serde(default)]
    pub(super) nodes: Vec<Node>,
    #[serde(default)]
    pub(super) foreign_pods: Vec<ForeignPod>,
    pub(super) queues: Vec<QueueText>,
    pub(super) jobs: Vec<Job>,
    #[serde(default)]
    pub(super) usage: Vec<Usage>,
    pub(super) config: Config,
    #[serde(rename = "local_queues")]
    _local_queues: Option<Anything>,
    #[serde(rename = "oracle")]
    _oracle: Option<Anything>,
    /// What is asked for besides what is in use.
    #[serde(default)]
    extra_request: Vec<Extra>,
}

impl Asked {
    /// The job that victims are asked for, if any.
    pub(in crate::suite) fn incoming(&self) -> Option<&str> {
        let mut incoming = self.jobs.iter().filter(|job| job.state == State::Incoming);
        incoming.next().filter(|_| self.kind == Kind::Victims).map(|job| job.name.as_str())
    }

    /// The queue and the priority of each job.
    pub(in crate::suite) fn ranks(&self) -> Ranks {
        let rank = |job: &Job| Some((job.name.clone(), (job.queue.clone()?, job.priority)));
        self.jobs.iter().filter_map(rank).collect()
    }

    /// Gives a cohort a name of its own where a queue is called the same: here both are queues of one tree.
    pub(in crate::suite) fn told_apart(mut self) -> Self {
        let of_queues = self.queues.iter().filter(|queue| queue.kind == QueueKind::Queue);
        let taken: BTreeSet<String> = of_queues.map(|queue| queue.name.clone()).collect();
        let rename = |name: &mut String| {
            if taken.contains(name) {
                name.push_str(" (cohort)");
            }
        };
        for queue in &mut self.queues {
            queue.parent.iter_mut().for_each(rename);
            if queue.kind != QueueKind::Queue {
                rename(&mut queue.name);
            }
        }
        self
    }

    /// Counts the extra request as in use: by the queue that it names, else by the queue that uses something, else by the
    /// first queue.
    pub(in crate::suite) fn with_extra(mut self) -> Self {
        let of_usage = self.usage.first().map(|usage| usage.queue.clone());
        let first = self.queues.iter().find(|queue| queue.kind == QueueKind::Queue);
        let whose = of_usage.or(first.map(|queue| queue.name.clone())).unwrap_or_default();
        self.usage.extend(self.extra_request.drain(..).map(|extra| Usage {
            queue: extra.queue.unwrap_or_else(|| whose.clone()),
            flavor: extra.flavor,
            resource: extra.resource,
            amount: extra.amount,
        }));
        self
    }
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Victims,
    Cycle,
    Placement,
    FlavorChoice,
    Available,
    Shares,
}

#[derive(Debug, Deserialize)]
pub(super) struct Flavor {
    pub(super) name: String,
    #[serde(default)]
    pub(super) node_labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) taints: Vec<TaintText>,
    #[serde(default)]
    pub(super) tolerations: Vec<TolerationText>,
    /// The name of the topology in whose levels its nodes lie.
    pub(super) topology: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Topology {
    pub(super) name: String,
    pub(super) levels: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Node {
    pub(super) name: String,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "amount")]
    pub(super) allocatable: BTreeMap<String, i64>,
    #[serde(default = "yes")]
    pub(super) ready: bool,
    #[serde(default)]
    pub(super) unschedulable: bool,
    #[serde(default)]
    pub(super) taints: Vec<TaintText>,
}

/// A taint, which keeps pods off.
#[derive(Debug, Deserialize)]
pub(super) struct TaintText {
    pub(super) key: String,
    #[serde(default)]
    pub(super) value: String,
    pub(super) effect: Option<String>,
}

/// A taint that a pod tolerates.
#[derive(Debug, Deserialize)]
pub(super) struct TolerationText {
    pub(super) key: Option<String>,
    pub(super) operator: Option<String>,
    pub(super) value: Option<String>,
    #[serde(rename = "effect")]
    _effect: Option<String>,
}

/// Which nodes a pod wants, in the words of Kubernetes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Affinity {
    pub(super) node_affinity: Option<NodeAffinity>,
}

#[derive(Debug, Deserialize)]
pub(super) struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(super) required: Option<Terms>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub(super) preferred: Option<Anything>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Terms {
    pub(super) node_selector_terms: Vec<Term>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Term {
    #[serde(default)]
    pub(super) match_expressions: Vec<Expression>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Expression {
    pub(super) key: String,
    pub(super) operator: String,
    #[serde(default)]
    pub(super) values: Vec<String>,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
pub(super) struct ForeignPod {
    pub(super) name: String,
    pub(super) node: Option<String>,
    #[serde(default, deserialize_with = "amount")]
    pub(super) request: BTreeMap<String, i64>,
    pub(super) phase: Option<String>,
}

impl ForeignPod {
    /// Whether it has ended: then it holds nothing.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase.as_deref(), Some("Failed" | "Succeeded"))
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct QueueText {
    pub(super) name: String,
    pub(super) parent: Option<String>,
    #[serde(default)]
    pub(super) quotas: Vec<Quota>,
    pub(super) fair_weight: Option<f64>,
    pub(super) strategy: Option<String>,
    pub(super) kind: QueueKind,
    #[serde(rename = "implicit")]
    _implicit: Option<bool>,
    #[serde(rename = "admission_mode")]
    _admission_mode: Option<String>,
    pub(super) preemption: Option<Knobs>,
    // When the queue looks at the next flavor.
    #[serde(rename = "fungibility")]
    _fungibility: Option<Anything>,
}

/// Which jobs a queue may evict.
#[derive(Debug, Deserialize)]
pub(super) struct Knobs {
    pub(super) within_queue: Option<String>,
    pub(super) reclaim_within_cohort: Option<String>,
    pub(super) borrow_within_cohort: Option<String>,
    pub(super) borrow_max_victim_priority: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum QueueKind {
    Queue,
    Cohort,
}

#[derive(Debug, Deserialize)]
pub(super) struct Quota {
    pub(super) flavor: String,
    pub(super) resource: Option<String>,
    #[serde(default, deserialize_with = "amount")]
    pub(super) nominal: i64,
    #[serde(default, deserialize_with = "amount")]
    pub(super) borrow_limit: Option<i64>,
    #[serde(default, deserialize_with = "amount")]
    pub(super) lend_limit: Option<i64>,
    /// Resources of one group are served from one flavor.
    #[serde(default)]
    pub(super) group: u32,
}

#[derive(Debug, Deserialize)]
pub(super) struct Usage {
    pub(super) queue: String,
    pub(super) flavor: String,
    pub(super) resource: String,
    #[serde(deserialize_with = "amount")]
    pub(super) amount: i64,
}

#[derive(Debug, Deserialize)]
struct Extra {
    queue: Option<String>,
    flavor: String,
    resource: String,
    #[serde(deserialize_with = "amount")]
    amount: i64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) queue: Option<String>,
    pub(super) priority: i32,
    pub(super) state: State,
    pub(super) age_s: Option<f64>,
    pub(super) reserved_age_s: Option<f64>,
    pub(super) podsets: Vec<Podset>,
    #[serde(default)]
    pub(super) assigned: Vec<Assigned>,
    #[serde(rename = "local_queue")]
    _local_queue: Option<Anything>,
    #[serde(rename = "uid")]
    _uid: Option<Anything>,
    /// Only for the incoming job of a case about victims: its flavors are chosen already.
    #[serde(default)]
    pub(super) wanted_flavors: Vec<Wanted>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    pub(super) podset: String,
    /// By resource.
    #[serde(default)]
    pub(super) flavors: BTreeMap<String, String>,
    #[serde(rename = "count")]
    _count: Option<Anything>,
    #[serde(rename = "mode")]
    _mode: Option<Anything>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Admitted,
    Pending,
    Incoming,
    Evicting,
}

#[derive(Debug, Deserialize)]
pub(super) struct Podset {
    pub(super) name: String,
    pub(super) count: u32,
    pub(super) min_count: Option<u32>,
    #[serde(default, deserialize_with = "amount")]
    pub(super) request: BTreeMap<String, i64>,
    pub(super) topology: Option<TopologyText>,
    pub(super) group: Option<String>,
    #[serde(default)]
    pub(super) node_selector: BTreeMap<String, String>,
    pub(super) affinity: Option<Affinity>,
    pub(super) node_affinity: Option<NodeAffinity>,
    #[serde(default)]
    pub(super) tolerations: Vec<TolerationText>,
}

#[derive(Debug, Deserialize)]
pub(super) struct TopologyText {
    pub(super) required_level: Option<String>,
    pub(super) preferred_level: Option<String>,
    #[serde(rename = "unconstrained")]
    _unconstrained: Option<bool>,
    pub(super) slice_size: Option<u32>,
    pub(super) slice_required_level: Option<String>,
    #[serde(default)]
    pub(super) slice_constraints: Vec<SliceText>,
    pub(super) group: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SliceText {
    #[serde(rename = "topology")]
    pub(super) level: String,
    pub(super) size: u32,
}

#[derive(Debug, Deserialize)]
pub(super) struct Assigned {
    pub(super) podset: String,
    #[serde(default)]
    pub(super) flavors: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "amount")]
    pub(super) usage: BTreeMap<String, i64>,
    pub(super) count: Option<u32>,
    pub(super) placement: Option<Placement>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Placement {
    pub(super) levels: Vec<String>,
    pub(super) domains: Vec<Domain>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Domain {
    pub(super) values: Vec<String>,
    pub(super) count: u32,
}

#[derive(Debug, Deserialize)]
pub(super) struct Config {
    #[serde(default)]
    pub(super) fair_sharing: bool,
    #[serde(default)]
    pub(super) usage_fairness: bool,
    pub(super) cycles: Option<u32>,
    #[serde(rename = "strategies")]
    _strategies: Option<Anything>,
    #[serde(rename = "usage_half_life_s")]
    _usage_half_life_s: Option<Anything>,
    #[serde(default)]
    pub(super) peer_gates: BTreeMap<String, bool>,
}
