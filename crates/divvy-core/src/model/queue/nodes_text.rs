//! The text in queues.yaml for the nodes that are kept for a queue.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::Nodes;
use super::text::{BadQueues, Scalar};

/// `nodes: {pool: prod}`, `nodes: [n1, n2]` or `nodes: n1`.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum NodesText {
    One(Scalar),
    Named(Vec<Scalar>),
    Labelled(BTreeMap<String, Scalar>),
}

/// Which nodes are kept for a queue.
pub(super) fn nodes(text: Spanned<NodesText>) -> Result<Nodes, BadQueues> {
    let (line, column) = (text.referenced.line(), text.referenced.column());
    let wrong = |what: &str| BadQueues { line, column, what: format!("nodes: {what}") };
    match text.value {
        NodesText::One(name) => named([name]).ok_or_else(|| wrong("a node's name is missing")),
        NodesText::Named(names) => named(names).ok_or_else(|| wrong("name at least one node or label")),
        NodesText::Labelled(labels) if labels.is_empty() => Err(wrong("name at least one node or label")),
        NodesText::Labelled(labels) => {
            Ok(Nodes::Labelled(labels.into_iter().map(|(label, value)| (label, value.0)).collect()))
        }
    }
}

fn named(names: impl IntoIterator<Item = Scalar>) -> Option<Nodes> {
    let names: std::collections::BTreeSet<String> = names.into_iter().map(|name| name.0).collect();
    (!names.is_empty() && names.iter().all(|name| !name.is_empty())).then_some(Nodes::Named(names))
}
