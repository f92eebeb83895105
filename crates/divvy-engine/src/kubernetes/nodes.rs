//! What a node has, in the core's types.

use std::collections::BTreeMap;

use divvy_core::model::choice::{Face, Taint};
use divvy_core::model::device::DeviceSpec;
use divvy_core::model::newer::Newer;
use divvy_core::model::node::NodeSpec;
use divvy_gpu::catalogue;

use super::demand::{GPU, resource};
use super::objects::{Amounts, Node};
use super::quantity::{milli_down, whole_down};
use super::wishes::NODE_NAME;

/// The taint of a cordoned node: tolerated like any other.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// The effects that keep a pod off; the others only make the node less preferred.
const HARD: [&str; 2] = ["NoSchedule", "NoExecute"];
/// The most devices of a node; a larger number is a mistake in the node's status.
const MOST_DEVICES: i64 = 4096;

/// Labels of GPU feature discovery.
const PRODUCT: &str = "nvidia.com/gpu.product";
const MEMORY: &str = "nvidia.com/gpu.memory";

/// Returns a node and its devices. Devices have no names here: they are numbered, and stand for any.
pub(super) fn read(node: &Node) -> (NodeSpec, Vec<DeviceSpec>) {
    let (meta, allocatable) = (&node.metadata, &node.status.allocatable);
    let extras = allocatable.iter().filter(|(name, _)| !COUNTED.contains(&name.as_str()));
    let spec = NodeSpec {
        name: meta.name.clone(),
        cpu_milli: allocatable.get("cpu").and_then(|text| milli_down(text)).unwrap_or(0),
        memory_bytes: amount(allocatable, "memory"),
        most_tasks: Some(u32::try_from(amount(allocatable, "pods")).unwrap_or(u32::MAX)),
        extras: extras.map(|(name, _)| (resource(name), amount(allocatable, name))).collect(),
        face: Face { labels: labels(node), taints: taints(node) },
        domains: domains(&meta.labels),
        ..NodeSpec::default()
    };
    (spec, devices(node))
}

/// Resources that have fields of their own.
const COUNTED: [&str; 4] = ["cpu", "memory", "pods", GPU];

/// Returns an amount; one that cannot be read counts as 0.
fn amount(allocatable: &Amounts, name: &str) -> i64 {
    allocatable.get(name).and_then(|text| whole_down(text)).unwrap_or(0)
}

fn labels(node: &Node) -> BTreeMap<String, String> {
    let name = (NODE_NAME.to_owned(), node.metadata.name.clone());
    node.metadata.labels.clone().into_iter().chain([name]).collect()
}

fn taints(node: &Node) -> Vec<Taint> {
    let hard = node.spec.taints.iter().filter(|taint| HARD.contains(&taint.effect.as_str()));
    let mut taints: Vec<Taint> = hard
        .map(|taint| Taint {
            key: taint.key.clone(),
            value: taint.value.clone(),
            effect: taint.effect.clone(),
        })
        .collect();
    // The controller writes this taint a moment after the field is set.
    if node.spec.unschedulable && !taints.iter().any(|taint| taint.key == UNSCHEDULABLE) {
        let (key, effect) = (UNSCHEDULABLE.into(), "NoSchedule".into());
        taints.push(Taint { key, value: String::new(), effect });
    }
    taints
}

/// The domains of a node, coarse to fine.
fn domains(labels: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let level = |(level, label): &(&str, &str)| Some(((*level).to_owned(), labels.get(*label)?.clone()));
    LEVELS.iter().filter_map(level).collect()
}

/// The core's levels and the labels that say where a node lies in them.
const LEVELS: [(&str, &str); 2] =
    [("zone", "topology.kubernetes.io/zone"), ("rack", "topology.kubernetes.io/rack")];

fn devices(node: &Node) -> Vec<DeviceSpec> {
    let labels = &node.metadata.labels;
    let product = labels.get(PRODUCT).map_or("", String::as_str);
    let memory_mib = labels.get(MEMORY).and_then(|text| text.parse().ok()).unwrap_or(0);
    let known = catalogue::lookup(product, Some(memory_mib));
    let device = |index: u32| DeviceSpec {
        uuid: format!("{}/{index}", node.metadata.name),
        index,
        model: if product.is_empty() { "gpu".into() } else { catalogue::key(product) },
        product: product.to_owned(),
        memory_mib,
        nominal_gb: known.map(|known| known.variant.memory_gb),
        bandwidth_gb_s: Newer(known.map(|known| known.bandwidth_gb_s())),
        // No links and no NUMA node: the scheduler does not choose a pod's devices, so it must never count on several in one island (L4).
        ..DeviceSpec::default()
    };
    let count = amount(&node.status.allocatable, GPU).min(MOST_DEVICES) as u32;
    (0..count).map(device).collect()
}
