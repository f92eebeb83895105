//! The parts of Kubernetes objects that placement needs. Other fields are skipped while reading.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Amounts by resource name, as written.
pub type Amounts = BTreeMap<String, String>;

/// The metadata of every object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Unique in its namespace.
    pub name: String,
    /// Empty for objects without a namespace.
    pub namespace: String,
    /// Unique for ever.
    pub uid: String,
    /// The version of the object.
    pub resource_version: String,
    /// The version of its spec.
    pub generation: i64,
    /// When it was made, as RFC 3339.
    pub creation_timestamp: String,
    /// When it was told to go.
    pub deletion_timestamp: Option<String>,
    /// The labels by which it is selected.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its owners.
    pub owner_references: Vec<OwnerReference>,
}

/// The owner of an object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// The group and version of its kind.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Whether it replaces the object when that is gone.
    pub controller: bool,
}

/// A node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Node {
    /// The metadata.
    pub metadata: Meta,
    /// The wanted state.
    pub spec: NodeSpec,
    /// The actual state.
    pub status: NodeStatus,
}

/// The wanted state of a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// Whether it takes no new pods.
    pub unschedulable: bool,
    /// What keeps pods off.
    pub taints: Vec<Taint>,
}

/// What keeps pods off a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// Its name.
    pub key: String,
    /// The taint's value.
    pub value: String,
    /// NoSchedule, PreferNoSchedule or NoExecute.
    pub effect: String,
}

/// The actual state of a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// What pods can use of it.
    pub allocatable: Amounts,
}

/// A pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// The metadata.
    pub metadata: Meta,
    /// The wanted state.
    pub spec: PodSpec,
    /// The actual state.
    pub status: PodStatus,
}

/// The wanted state of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The scheduler that gives it a node.
    pub scheduler_name: String,
    /// Its node, once it has one.
    pub node_name: Option<String>,
    /// Higher goes first.
    pub priority: Option<i32>,
    /// Whether it may have others evicted: `Never` if not.
    pub preemption_policy: Option<String>,
    /// What it runs.
    pub containers: Vec<Container>,
    /// What it runs before the containers, and beside them.
    pub init_containers: Vec<Container>,
    /// What the runtime needs beyond the containers.
    pub overhead: Amounts,
    /// What it asks for as a whole.
    pub resources: Resources,
    /// Labels that its node has.
    pub node_selector: BTreeMap<String, String>,
    /// What else it wants of its place.
    pub affinity: Affinity,
    /// Taints that it tolerates.
    pub tolerations: Vec<Toleration>,
    /// What must be lifted before a scheduler may give it a node.
    pub scheduling_gates: Vec<Gate>,
    /// How its pods are spread.
    pub topology_spread_constraints: Vec<Spread>,
    /// Its volumes.
    pub volumes: Vec<BTreeMap<String, serde::de::IgnoredAny>>,
    /// Claims of devices.
    pub resource_claims: Vec<Gate>,
    /// The group of pods that it starts with.
    pub scheduling_group: Option<serde::de::IgnoredAny>,
    /// How long it may take to stop.
    pub termination_grace_period_seconds: Option<i64>,
    /// How long it may run: the kubelet ends it then.
    pub active_deadline_seconds: Option<i64>,
}

/// A container of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// What it asks for.
    pub resources: Resources,
    /// The ports that it opens.
    pub ports: Vec<Port>,
    /// `Always` for an init container that runs beside the others.
    pub restart_policy: Option<String>,
}

/// The resources asked for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// At least.
    pub requests: Amounts,
    /// At most.
    pub limits: Amounts,
}

/// A port that a container opens.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    /// On the node itself; 0 for none.
    pub host_port: u32,
}

/// Something with a name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Gate {
    /// The name.
    pub name: String,
}

/// How pods are spread over domains.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spread {
    /// DoNotSchedule or ScheduleAnyway.
    pub when_unsatisfiable: String,
}

/// What a pod wants of its place.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// Conditions on the node.
    pub node_affinity: NodeAffinity,
    /// Pods that must be near.
    pub pod_affinity: PodAffinity,
    /// Pods that must not be near.
    pub pod_anti_affinity: PodAffinity,
}

/// What a pod wants of its node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// Conditions that must hold.
    pub required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
}

/// Terms of which at least one must hold.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// The terms.
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// Requirements that must all hold.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// On labels.
    pub match_expressions: Vec<Requirement>,
    /// On fields: the node's name.
    pub match_fields: Vec<Requirement>,
}

/// What a label or field must be.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Requirement {
    /// Its name.
    pub key: String,
    /// In, NotIn, Exists, DoesNotExist, Gt or Lt.
    pub operator: String,
    /// What it is compared with.
    pub values: Vec<String>,
}

/// What a pod wants of other pods.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinity {
    /// Conditions that must hold.
    pub required_during_scheduling_ignored_during_execution: Vec<PodAffinityTerm>,
}

/// Other pods, and the node label by which nodes are near each other.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinityTerm {
    /// Which pods: none if absent, all if empty.
    pub label_selector: Option<LabelSelector>,
    /// The node label that says where nodes lie.
    pub topology_key: String,
    /// The pods' namespaces.
    pub namespaces: Vec<String>,
    /// Further namespaces, by labels; all if empty.
    pub namespace_selector: Option<LabelSelector>,
    /// Labels that the other pods share with the pod.
    pub match_label_keys: Vec<String>,
    /// Labels in which the other pods differ from the pod.
    pub mismatch_label_keys: Vec<String>,
}

/// What labels must be: all conditions hold.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// They have these values.
    pub match_labels: BTreeMap<String, String>,
    /// They meet these requirements.
    pub match_expressions: Vec<Requirement>,
}

/// Taints that a pod tolerates.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Toleration {
    /// Their name; empty for all.
    pub key: String,
    /// Exists, Equal (also if empty), or one that compares numbers.
    pub operator: String,
    /// Their value.
    pub value: String,
    /// Their effect; empty for all.
    pub effect: String,
}

/// The actual state of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// Pending, Running, Succeeded, Failed or Unknown.
    pub phase: String,
    /// When the kubelet accepted it, as RFC 3339.
    pub start_time: Option<String>,
    /// What is said of it.
    pub conditions: Vec<Condition>,
    /// The state of its containers.
    pub container_statuses: Vec<ContainerStatus>,
}

/// Something said of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: String,
    /// True, False or Unknown.
    pub status: String,
    /// Why, in one word.
    pub reason: String,
    /// Why, in words.
    pub message: String,
}

/// The status of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerStatus {
    /// Its state.
    pub state: ContainerState,
}

/// The state of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// Set once it has ended.
    pub terminated: Option<Terminated>,
}

/// How a container ended.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    /// Its exit code.
    pub exit_code: i32,
}

/// A queue as a custom resource. Its spec is read like queues.yaml.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct QueueObject {
    /// The metadata.
    pub metadata: Meta,
    /// The wanted state.
    pub spec: serde_json::Value,
    /// The actual state.
    pub status: QueueStatus,
}

/// The status of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueStatus {
    /// Whether it is in force.
    #[serde(skip_serializing)]
    pub conditions: Vec<Condition>,
    /// Jobs that run.
    pub running: u64,
    /// Jobs that wait.
    pub waiting: u64,
    /// The GPUs held by its jobs and by those below it.
    pub gpus: u64,
    /// The GPUs that are due to them.
    pub gpus_due: Option<i64>,
    /// What was used in the past.
    pub usage: Option<Usage>,
}

/// What a queue used in the past, kept for the next scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// The time for which the numbers hold: RFC 3339.
    pub as_of: String,
    /// GPU-seconds that its own jobs used, decayed.
    pub gpu_seconds: i64,
    /// GPU-seconds that were due to them but held by others, decayed; negative where it is the other way round.
    pub credit_gpu_seconds: i64,
    /// The used part of its budget, if it has one.
    pub budget: Option<BudgetUse>,
    /// The used part of the GPU-hours pledged to it, if any were.
    pub pledged: Option<PledgeUse>,
    /// The usage of its users, where it is divided among them.
    pub users: Vec<UserUse>,
}

/// The budget that a queue and those below it have used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetUse {
    /// In this period.
    pub used_gpu_seconds: i64,
    /// Carried over from the last period.
    pub carried_gpu_seconds: i64,
    /// When it renews: RFC 3339.
    pub renews_at: String,
}

/// The pledged GPU-hours that a queue and those below it have used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PledgeUse {
    /// In this period.
    pub used_gpu_seconds: i64,
    /// When the period ends: RFC 3339.
    pub ends_at: String,
}

/// What a user of a queue used in the past.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UserUse {
    /// The namespace.
    pub name: String,
    /// GPU-seconds, decayed.
    pub gpu_seconds: i64,
    /// GPU-seconds that were due but held by others, decayed.
    pub credit_gpu_seconds: i64,
}
