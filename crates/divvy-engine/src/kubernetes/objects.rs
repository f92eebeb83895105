//! The parts of Kubernetes' objects that placement needs. What is not named here is not kept: it is passed over while reading.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Amounts by resource name, as written.
pub type Amounts = BTreeMap<String, String>;

/// What all objects have.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Unique in its namespace.
    pub name: String,
    /// Empty for what belongs to none.
    pub namespace: String,
    /// Unique for ever.
    pub uid: String,
    /// Which state of the object this is.
    pub resource_version: String,
    /// Which state of its spec this is.
    pub generation: i64,
    /// When it was made, as RFC 3339.
    pub creation_timestamp: String,
    /// When it was told to go.
    pub deletion_timestamp: Option<String>,
    /// By which others choose it.
    pub labels: BTreeMap<String, String>,
    /// What others say of it.
    pub annotations: BTreeMap<String, String>,
    /// Who made it.
    pub owner_references: Vec<OwnerReference>,
}

/// Who made an object.
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
    /// Whether it makes another when this one goes.
    pub controller: bool,
}

/// A node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Node {
    /// What all objects have.
    pub metadata: Meta,
    /// What is wanted of it.
    pub spec: NodeSpec,
    /// How it is.
    pub status: NodeStatus,
}

/// What is wanted of a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// Whether it takes nothing new.
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
    /// What it says beyond that.
    pub value: String,
    /// NoSchedule, PreferNoSchedule or NoExecute.
    pub effect: String,
}

/// How a node is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// What pods can have of it.
    pub allocatable: Amounts,
}

/// A pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// What all objects have.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: PodSpec,
    /// How it is.
    pub status: PodStatus,
}

/// What is wanted of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Who gives it a node.
    pub scheduler_name: String,
    /// Its node, once it has one.
    pub node_name: Option<String>,
    /// Higher goes first.
    pub priority: Option<i32>,
    /// Whether it may have others evicted: `Never` if not.
    pub preemption_policy: Option<String>,
    /// What it runs.
    pub containers: Vec<Container>,
    /// What it runs before, and beside.
    pub init_containers: Vec<Container>,
    /// What the runtime needs beyond the containers.
    pub overhead: Amounts,
    /// What it asks for as a whole.
    pub resources: Resources,
    /// Labels that its node has.
    pub node_selector: BTreeMap<String, String>,
    /// What else it wants of its place.
    pub affinity: Affinity,
    /// Taints that it puts up with.
    pub tolerations: Vec<Toleration>,
    /// What it waits for before anyone may give it a node.
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

/// What a pod runs.
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

/// What is asked for.
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
    /// Of the node.
    pub node_affinity: NodeAffinity,
    /// Of the pods there.
    pub pod_affinity: PodAffinity,
    /// Of the pods that are not there.
    pub pod_anti_affinity: PodAffinity,
}

/// What a pod wants of its node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// What has to be.
    pub required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
}

/// Terms of which one has to hold.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// The terms.
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// Requirements that hold together.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// Of labels.
    pub match_expressions: Vec<Requirement>,
    /// Of fields: the node's name.
    pub match_fields: Vec<Requirement>,
}

/// What a label or field has to be.
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
    /// What has to be.
    pub required_during_scheduling_ignored_during_execution: Vec<PodAffinityTerm>,
}

/// Other pods, and what nodes have alike that are near each other.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinityTerm {
    /// Which pods: nobody without it, all if it is empty.
    pub label_selector: Option<LabelSelector>,
    /// The label of nodes that says where they lie.
    pub topology_key: String,
    /// Of which namespaces.
    pub namespaces: Vec<String>,
    /// And of which others, by labels; of all if it is empty.
    pub namespace_selector: Option<LabelSelector>,
    /// Labels that the others have as the pod has them.
    pub match_label_keys: Vec<String>,
    /// Labels that they have otherwise.
    pub mismatch_label_keys: Vec<String>,
}

/// What labels have to be, all of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// They have these values.
    pub match_labels: BTreeMap<String, String>,
    /// And are like this.
    pub match_expressions: Vec<Requirement>,
}

/// Taints that a pod puts up with.
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

/// How a pod is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// Pending, Running, Succeeded, Failed or Unknown.
    pub phase: String,
    /// Since when the kubelet has it, as RFC 3339.
    pub start_time: Option<String>,
    /// What is said of it.
    pub conditions: Vec<Condition>,
    /// How its containers are.
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

/// How a container is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerStatus {
    /// What it does.
    pub state: ContainerState,
}

/// What a container does.
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

/// A queue, as its custom resource says it. Its fields are read where queues.yaml is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct QueueObject {
    /// What all objects have.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: serde_json::Value,
    /// What is said of it.
    pub status: QueueStatus,
}

/// What is said of a queue.
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
    /// The GPUs that its jobs and those below it have.
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
    /// As of when it is reckoned: RFC 3339.
    pub as_of: String,
    /// GPU-seconds that its own jobs used, decayed.
    pub gpu_seconds: i64,
    /// GPU-seconds that were due to them and that others had, decayed; below zero where it is the other way round.
    pub credit_gpu_seconds: i64,
    /// What of its budget is used, if it has one.
    pub budget: Option<BudgetUse>,
    /// What of the GPU-hours pledged to it was used, if any were.
    pub pledged: Option<PledgeUse>,
    /// The same of its users, where it is divided among them.
    pub users: Vec<UserUse>,
}

/// What a queue and those below it have used of its budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetUse {
    /// In this period.
    pub used_gpu_seconds: i64,
    /// Carried from the one before.
    pub carried_gpu_seconds: i64,
    /// When it renews: RFC 3339.
    pub renews_at: String,
}

/// What a queue and those below it have used of what was pledged to them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PledgeUse {
    /// In this period.
    pub used_gpu_seconds: i64,
    /// When that ends: RFC 3339.
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
    /// GPU-seconds that were due and that others had, decayed.
    pub credit_gpu_seconds: i64,
}
