//! Nodes that are kept for one queue: a static pool. Jobs of that queue and of the queues below it lie on these nodes only, and jobs of
//! other queues never do.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Queue, lineage};
use crate::model::node::NodeSpec;

/// Which nodes are kept for a queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Nodes {
    /// These, by name.
    Named(BTreeSet<String>),
    /// All that have these labels.
    Labelled(BTreeMap<String, String>),
}

impl Nodes {
    /// Whether a node is one of them.
    pub fn takes(&self, node: &NodeSpec) -> bool {
        match self {
            Nodes::Named(names) => names.contains(&node.name),
            Nodes::Labelled(labels) => {
                labels.iter().all(|(label, value)| node.face.labels.get(label) == Some(value))
            }
        }
    }

    /// What both could share, if anything. A node that one names and the other describes belongs to the one that names it.
    fn shared_with(&self, other: &Self) -> Option<String> {
        match (self, other) {
            (Nodes::Named(own), Nodes::Named(others)) => {
                own.intersection(others).next().map(|name| format!("node {name}"))
            }
            (Nodes::Labelled(own), Nodes::Labelled(others)) => {
                let differs = |(label, value): (&String, &String)| {
                    others.get(label).is_some_and(|other| other != value)
                };
                (!own.iter().any(differs)).then(|| format!("a node with {self} and {other}"))
            }
            _ => None,
        }
    }
}

/// `n1, n2` or `pool=prod, zone=a`.
impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = match self {
            Nodes::Named(names) => names.iter().cloned().collect(),
            Nodes::Labelled(labels) => {
                labels.iter().map(|(label, value)| format!("{label}={value}")).collect()
            }
        };
        f.write_str(&words.join(", "))
    }
}

/// The queue to whose nodes the jobs of a queue are kept: the queue itself, or one above it.
pub fn kept_to<'q>(queues: &BTreeMap<String, Queue>, path: &'q str) -> Option<&'q str> {
    lineage(path).find(|path| queues.get(*path).is_some_and(|queue| !queue.nodes.is_unsaid()))
}

/// The queue for which a node is kept: a queue that names the node goes before one that describes it.
pub fn keeper<'a>(queues: &'a BTreeMap<String, Queue>, node: &NodeSpec) -> Option<&'a str> {
    let keeps = |queue: &&Queue| queue.nodes.said().is_some_and(|nodes| nodes.takes(node));
    let names = |queue: &Queue| matches!(queue.nodes.said(), Some(Nodes::Named(_)));
    queues.values().filter(keeps).min_by_key(|queue| !names(queue)).map(|queue| queue.path.as_str())
}

/// What is wrong with the nodes that queues keep beside each other, if anything: the queue, and what to write.
pub fn overlap(queues: &[Queue]) -> Option<(&str, String)> {
    let said: Vec<(&str, &Nodes)> =
        queues.iter().filter_map(|queue| Some((queue.path.as_str(), queue.nodes.said()?))).collect();
    said.iter().enumerate().find_map(|(index, (path, nodes))| {
        let above = |(other, _): &&(&str, &Nodes)| lineage(path).skip(1).any(|above| above == *other);
        if let Some((above, _)) = said.iter().find(above) {
            let what = format!(
                "nodes: {path} is below {above}, whose jobs lie on nodes of their own already: divide those by guarantees"
            );
            return Some((*path, what));
        }
        let mut before = said[..index].iter();
        let (other, shared) =
            before.find_map(|(other, others)| Some((other, nodes.shared_with(others)?)))?;
        Some((*path, format!("nodes: {shared} would be kept for {other} and for {path}: a node is kept for one queue")))
    })
}

/// What a queue with nodes may not say in addition, or lacks.
pub(super) fn beside_nodes(queue: &Queue) -> Option<String> {
    let nodes = queue.nodes.said()?;
    let lends_nothing = queue.lend.len() == 1
        && queue.lend.get(&crate::amount::Resource::Any) == Some(&crate::amount::Amount::Finite(0));
    let what = match nodes {
        Nodes::Named(names) if names.is_empty() => "nodes: name at least one node or label",
        Nodes::Labelled(labels) if labels.is_empty() => "nodes: name at least one node or label",
        _ if !queue.guarantee.is_empty() || !queue.pledge.is_unsaid() => {
            "nodes: such a queue is guaranteed what its nodes have: leave its guarantee out"
        }
        _ if !queue.borrow.is_empty() => {
            "nodes: jobs of such a queue lie on its nodes alone: leave borrow out"
        }
        _ if !lends_nothing => {
            "nodes: they lend nothing: write lend: 0 beside them (what others may use while it is idle is a guarantee)"
        }
        _ => return None,
    };
    Some(what.into())
}
