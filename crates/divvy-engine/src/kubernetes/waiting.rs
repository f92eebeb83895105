//! A pod that waits for a node, and its ask, in the core's types.

use divvy_core::model::ask::{Alternative, Ask, DeviceAsk, DeviceClass, DrawAsk};
use divvy_core::time::Span;

use super::demand::Demand;
use super::objects::{Condition, Meta, OwnerReference, Pod};
use super::{affinity, groups, wishes};

/// The label that names a pod's queue.
pub const QUEUE_LABEL: &str = "divvy.dev/queue";
/// The label that says how many pods of one owner, this pod included, start together.
pub const GANG_LABEL: &str = "divvy.dev/gang";
/// The annotation that says whether a pod may be taken back; by default, if a controller recreates it.
pub const PREEMPTIBLE: &str = "divvy.dev/preemptible";
/// The annotation that limits how long a pod may run, such as 2h: the scheduler ends it then.
pub const TIME_LIMIT: &str = "divvy.dev/time-limit";
/// The largest gang that a label can ask for.
const LARGEST_GANG: u32 = 100_000;

/// News about pods of the pool that have no allocation.
#[derive(Clone, Debug)]
pub enum PodNews {
    /// It waits for a node.
    Waits(Box<Waiting>),
    /// The uid of a pod that no longer waits: it is gone, is over, or another scheduler gave it a node.
    Gone(String),
    /// A pod that was on a node already when the term began.
    Runs(Box<Running>),
    /// A group's name, and how many of its pods start together; `None` where it is gone.
    Group(String, Option<u32>),
}

/// A pod that waits for a node.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Unique for ever.
    pub uid: String,
    /// Its namespace, which is its user.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// When it was created, as RFC 3339.
    pub created: String,
    /// Its queue, if it names one.
    pub queue: Option<String>,
    /// Higher goes first.
    pub priority: i32,
    /// Whether it may be taken back.
    pub preemptible: bool,
    /// Whether others may be taken back for it.
    pub preempts: bool,
    /// The pods that it starts with, if it does not start alone.
    pub gang: Option<Gang>,
    /// How long it may take to stop, in milliseconds.
    pub grace_ms: i64,
    /// Its time limit, if it has one.
    pub time_limit: Option<Span>,
    /// Its ask, or why it cannot be met here.
    pub ask: Result<Ask, String>,
    /// The condition that it has about its place so far.
    pub scheduled: Option<Condition>,
    /// The subject of its events: its owner, or itself.
    pub subject: Subject,
}

/// The subject of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The group and version of its kind.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Unique for ever.
    pub uid: String,
}

/// The pods that start together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gang {
    /// The owner's uid, or the group that the pods name.
    pub of: String,
    /// How many pods start together; `None` where the group's own object says it.
    pub minimum: Option<u32>,
}

/// A pod that was on a node already.
#[derive(Clone, Debug)]
pub struct Running {
    /// The pod.
    pub pod: Waiting,
    /// Its node.
    pub node: String,
    /// When it started, as RFC 3339: the kubelet's start time, else its creation.
    pub since: String,
    /// Whether it was told to go.
    pub leaves: bool,
}

/// The usual time that a pod may take to stop, in seconds.
const USUAL_GRACE_S: i64 = 30;

impl Waiting {
    pub(super) fn new(pod: &Pod) -> Self {
        let (meta, spec) = (&pod.metadata, &pod.spec);
        let said = pod.status.conditions.iter().find(|condition| condition.kind == "PodScheduled");
        let grace_s = spec.termination_grace_period_seconds.unwrap_or(USUAL_GRACE_S);
        Self {
            uid: meta.uid.clone(),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            created: meta.creation_timestamp.clone(),
            queue: meta.labels.get(QUEUE_LABEL).cloned(),
            priority: spec.priority.unwrap_or(0),
            preemptible: preemptible(pod),
            preempts: spec.preemption_policy.as_deref() != Some("Never"),
            gang: gang(pod).ok().flatten(),
            grace_ms: grace_s.clamp(0, 86_400).saturating_mul(1000),
            time_limit: time_limit(pod).ok().flatten(),
            ask: understood(pod).and_then(|()| ask(pod)),
            scheduled: said.cloned(),
            subject: subject(meta),
        }
    }
}

impl Running {
    pub(super) fn new(pod: &Pod) -> Self {
        let since = pod.status.start_time.as_ref().unwrap_or(&pod.metadata.creation_timestamp).clone();
        let leaves = pod.metadata.deletion_timestamp.is_some();
        Self { pod: Waiting::new(pod), node: pod.spec.node_name.clone().unwrap_or_default(), since, leaves }
    }
}

fn subject(meta: &Meta) -> Subject {
    let namespace = meta.namespace.clone();
    match meta.owner_references.iter().find(|owner| owner.controller).cloned() {
        Some(OwnerReference { api_version, kind, name, uid, .. }) => {
            Subject { api_version, kind, namespace, name, uid }
        }
        None => {
            let (name, uid) = (meta.name.clone(), meta.uid.clone());
            Subject { api_version: "v1".into(), kind: "Pod".into(), namespace, name, uid }
        }
    }
}

/// Without an annotation, only a pod that a controller recreates may be taken back.
fn preemptible(pod: &Pod) -> bool {
    match pod.metadata.annotations.get(PREEMPTIBLE).map(String::as_str) {
        Some("true") => true,
        Some("false") => false,
        _ => pod.metadata.owner_references.iter().any(|owner| owner.controller),
    }
}

/// Checks a waiting pod's own labels and annotations. A pod that has a node runs on, whatever is written on it later.
fn understood(pod: &Pod) -> Result<(), String> {
    if pod.spec.node_name.is_some() {
        return Ok(());
    }
    gang(pod)?;
    time_limit(pod).map(drop)
}

/// Returns how long a pod may run: the lower of the kubelet's limit and its annotation; or what is wrong.
fn time_limit(pod: &Pod) -> Result<Option<Span>, String> {
    let text = pod.metadata.annotations.get(TIME_LIMIT);
    let said = text.map(|text| text.parse::<Span>().map_err(|error| error.to_string())).transpose();
    let said = said.map_err(|error| format!("its annotation {TIME_LIMIT}: {error}"))?;
    if said.is_some_and(|limit| limit.0 <= 0) {
        return Err(format!("its annotation {TIME_LIMIT} leaves it no time: write 90s, 2h or 1d"));
    }
    let deadline = pod.spec.active_deadline_seconds;
    let deadline = deadline.map(|seconds| Span(seconds.clamp(1, i64::from(i32::MAX)) * 1000));
    Ok(said.into_iter().chain(deadline).min())
}

/// Returns the gang of a pod, or what is wrong with its label.
fn gang(pod: &Pod) -> Result<Option<Gang>, String> {
    let Some(text) = pod.metadata.labels.get(GANG_LABEL) else {
        return Ok(groups::of(pod).map(|of| Gang { of, minimum: None }));
    };
    let number = text.parse().ok().filter(|number| (1..=LARGEST_GANG).contains(number));
    let wrong = || format!("its label {GANG_LABEL} is {text:?}: write a number from 1 to {LARGEST_GANG}");
    let minimum = number.ok_or_else(wrong)?;
    let owner = pod.metadata.owner_references.iter().find(|owner| owner.controller);
    let alone =
        || format!("its label {GANG_LABEL} asks for a gang, and it has no owner whose pods that could be");
    let of = owner.ok_or_else(alone)?.uid.clone();
    Ok(Some(Gang { of, minimum: Some(minimum) }))
}

/// Returns the ask of a pod. Nothing is left open: a pod does not get what it does not ask for.
fn ask(pod: &Pod) -> Result<Ask, String> {
    let demand = Demand::of(pod).map_err(|error| error.to_string())?;
    let nodes = wishes::choice(&pod.spec).map_err(|error| error.to_string())?;
    let (class, draw) = (DeviceClass::default(), DrawAsk::Whole);
    let alternative = Alternative {
        devices: (demand.devices > 0).then_some(DeviceAsk::of(class, demand.devices, draw)),
        cpu_milli: Some(demand.cpu_milli),
        memory_bytes: Some(demand.memory_bytes),
        extras: demand.extras,
        speed_percent: 100,
    };
    let affinity = affinity::affinity(pod).map_err(|error| error.to_string())?;
    Ok(Ask { alternatives: vec![alternative], nodes, affinity: affinity.into_said() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ask_of(spec: serde_json::Value) -> Result<Ask, String> {
        let metadata = json!({"annotations": {TIME_LIMIT: "soon"}, "labels": {GANG_LABEL: "many"}});
        Waiting::new(&serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()).ask
    }

    #[test]
    fn nonsense_keeps_a_pod_waiting_and_is_no_matter_once_it_has_its_node() {
        assert!(ask_of(json!({})).unwrap_err().contains("many"));
        assert!(ask_of(json!({"nodeName": "n1"})).is_ok());
    }
}
