//! Affinity: which other tasks a task wants to lie near, and which it wants to lie apart from. Tasks are selected by their labels, places
//! by what nodes declare.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::choice::{Condition, Face, Is};
use super::gang::Group;
use super::job::JobSpec;
use super::newer::Newer;
use super::topology::NODE;
use crate::id::NodeId;

/// What a task wants of the tasks around it. The default is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Affinity {
    /// Labels of these tasks beyond their job's, for gangs whose tasks are told apart: affinities of other tasks select by both.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Each of these needs a task in the domain in which this task lies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub near: Vec<Others>,
    /// None of these may have a task in the domain in which this task lies, nor may one come there later.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub apart: Vec<Others>,
}

/// A selection of other tasks, and what counts as a domain for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Others {
    /// Conditions on their labels, all of which must hold.
    pub who: Vec<Condition>,
    /// What the nodes of a domain have in common: a level of the topology, a label, or `node` for each node by itself. Nodes that say
    /// nothing of it are in no domain.
    pub within: String,
}

/// The domain of a node, as an affinity divides the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Domain<'a> {
    /// The node alone.
    Node(NodeId),
    /// All nodes that say the same.
    Named(&'a str),
}

impl Affinity {
    /// Nothing at all.
    pub const fn nothing() -> Self {
        Self { labels: BTreeMap::new(), near: Vec::new(), apart: Vec::new() }
    }

    /// Returns it as an ask stores it: unsaid if it says nothing.
    pub fn into_said(self) -> Newer<Arc<Self>> {
        Newer((!self.is_unsaid()).then(|| Arc::new(self)))
    }

    /// Whether it wants nothing of other tasks; affinities of other tasks may still select by its labels.
    pub fn wants_nothing(&self) -> bool {
        self.near.is_empty() && self.apart.is_empty()
    }

    /// Whether it says nothing at all.
    pub fn is_unsaid(&self) -> bool {
        self.labels.is_empty() && self.wants_nothing()
    }

    /// The names of the labels by which it selects other tasks.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let all = self.near.iter().chain(&self.apart);
        all.flat_map(|others| &others.who).map(|condition| condition.label.as_str())
    }
}

impl Others {
    /// Whether a task with these labels is one of them.
    pub fn are(&self, labels: &BTreeMap<String, String>) -> bool {
        self.who.iter().all(|condition| condition.holds(labels))
    }

    /// The domain of a node that lies in these topology domains and has this face; `None` if it is in no domain.
    pub fn domain<'a>(
        &self,
        node: NodeId,
        domains: &'a [(String, String)],
        face: &'a Face,
    ) -> Option<Domain<'a>> {
        let of_level = domains.iter().find(|(level, _)| *level == self.within).map(|(_, name)| name);
        match of_level.or_else(|| face.labels.get(&self.within)) {
            Some(name) => Some(Domain::Named(name)),
            None => (self.within == NODE).then_some(Domain::Node(node)),
        }
    }
}

/// `app=db`, `app in (db, cache) and tier`.
impl fmt::Display for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.who.is_empty() {
            return f.write_str("any labels");
        }
        for (index, Condition { label, is }) in self.who.iter().enumerate() {
            f.write_str(if index > 0 { " and " } else { "" })?;
            match is {
                Is::In(values) if values.len() == 1 => write!(f, "{label}={}", values[0])?,
                Is::In(values) => write!(f, "{label} in ({})", values.join(", "))?,
                Is::NotIn(values) => write!(f, "{label} not in ({})", values.join(", "))?,
                Is::There => f.write_str(label)?,
                Is::Absent => write!(f, "no {label}")?,
                Is::Above(bound) => write!(f, "{label} > {bound}")?,
                Is::Below(bound) => write!(f, "{label} < {bound}")?,
            }
        }
        Ok(())
    }
}

impl JobSpec {
    /// The labels by which affinities of other tasks select a task: its job's and its own.
    pub fn labels_of<'a>(&'a self, affinity: &'a Affinity) -> Cow<'a, BTreeMap<String, String>> {
        if affinity.labels.is_empty() {
            return Cow::Borrowed(&self.labels);
        }
        let mut labels = self.labels.clone();
        labels.extend(affinity.labels.clone());
        Cow::Owned(labels)
    }

    /// The names of the labels by which its tasks select other tasks.
    pub fn heeded_labels(&self) -> BTreeSet<&str> {
        let mut keys = BTreeSet::new();
        note_keys(&self.gang, &mut keys);
        keys
    }

    /// Whether any of its tasks wants to lie near other tasks or apart from them.
    pub fn has_affinity(&self) -> bool {
        self.gang.roles().iter().any(|role| !role.ask.affinity().wants_nothing())
    }
}

fn note_keys<'a>(group: &'a Group, keys: &mut BTreeSet<&'a str>) {
    match group {
        Group::Role(role) => keys.extend(role.ask.affinity().keys()),
        Group::Branch(branch) => branch.groups.iter().for_each(|group| note_keys(group, keys)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn others(within: &str, who: Vec<Condition>) -> Others {
        Others { who, within: within.into() }
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_domain_is_a_level_a_label_or_the_node_itself() {
        let domains = [("rack".to_owned(), "r1".to_owned())];
        let face = Face { labels: labels(&[("disk", "ssd")]), taints: Vec::new() };
        let domain = |within| others(within, Vec::new()).domain(NodeId(3), &domains, &face);
        assert_eq!(domain("rack"), Some(Domain::Named("r1")));
        assert_eq!(domain("disk"), Some(Domain::Named("ssd")));
        assert_eq!(domain("node"), Some(Domain::Node(NodeId(3))));
        assert_eq!(domain("zone"), None);
    }

    #[test]
    fn all_conditions_hold_of_those_who_are_meant_and_are_named_in_order() {
        let is = |label: &str, is| Condition { label: label.into(), is };
        let both = others(
            "node",
            vec![is("app", Is::In(vec!["db".into()])), is("tier", Is::NotIn(vec!["a".into(), "b".into()]))],
        );
        assert!(both.are(&labels(&[("app", "db")])) && both.are(&labels(&[("app", "db"), ("tier", "c")])));
        assert!(!both.are(&labels(&[("app", "db"), ("tier", "a")])) && !both.are(&labels(&[])));
        assert_eq!(both.to_string(), "app=db and tier not in (a, b)");
        assert_eq!(others("node", Vec::new()).to_string(), "any labels");
    }
}
