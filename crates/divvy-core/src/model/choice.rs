//! The choice of nodes: what a task requires of the labels of its node, and which taints it tolerates.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Which nodes a task may lie on. The default is every node without taints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeChoice {
    /// Sets of conditions, at least one of which must hold as a whole; if there are none, all nodes will do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub any_of: Vec<Vec<Condition>>,
    /// The taints that it tolerates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerates: Vec<Toleration>,
}

/// A condition on one label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// The label's name.
    pub label: String,
    /// What it must be like.
    pub is: Is,
}

/// What a label must be like.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Is {
    /// Has one of these values.
    In(Vec<String>),
    /// Is present with none of these values, or is absent.
    NotIn(Vec<String>),
    /// Is present.
    There,
    /// Is absent.
    Absent,
    /// Is a whole number above this one.
    Above(i64),
    /// Is a whole number below this one.
    Below(i64),
}

/// Keeps tasks off a node that do not tolerate it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Taint {
    /// Its name.
    pub key: String,
    /// What it says in addition.
    #[serde(default)]
    pub value: String,
    /// Its effect, where there are several.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub effect: String,
}

/// The taints that a task tolerates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Toleration {
    /// Their name; all taints if unsaid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Their value; any if unsaid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Their effect; any if unsaid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
}

impl NodeChoice {
    /// Whether it takes every node without taints.
    pub fn is_any(&self) -> bool {
        self.any_of.is_empty()
    }

    /// Whether a node with this face will do.
    pub fn takes(&self, face: &Face) -> bool {
        let all_hold = |set: &Vec<Condition>| set.iter().all(|condition| condition.holds(&face.labels));
        (self.any_of.is_empty() || self.any_of.iter().any(all_hold))
            && face.taints.iter().all(|taint| self.tolerates.iter().any(|it| it.covers(taint)))
    }
}

impl Condition {
    /// Whether it holds for a node, or a task, with these labels.
    pub fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.label);
        match &self.is {
            Is::In(values) => value.is_some_and(|value| values.contains(value)),
            Is::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Is::There => value.is_some(),
            Is::Absent => value.is_none(),
            Is::Above(bound) => whole(value).is_some_and(|value| value > *bound),
            Is::Below(bound) => whole(value).is_some_and(|value| value < *bound),
        }
    }
}

fn whole(value: Option<&String>) -> Option<i64> {
    value?.parse().ok()
}

impl Toleration {
    /// Whether it tolerates a taint.
    pub fn covers(&self, taint: &Taint) -> bool {
        self.key.as_ref().is_none_or(|key| *key == taint.key)
            && self.value.as_ref().is_none_or(|value| *value == taint.value)
            && self.effect.as_ref().is_none_or(|effect| *effect == taint.effect)
    }
}

/// What a node shows to tasks that choose nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Face {
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
}

impl Face {
    /// Whether it has neither labels nor taints.
    pub fn is_plain(&self) -> bool {
        self.labels.is_empty() && self.taints.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn condition(label: &str, is: Is) -> Condition {
        Condition { label: label.into(), is }
    }

    #[test]
    fn one_whole_set_of_conditions_has_to_hold() {
        let fast = condition("disk", Is::In(vec!["nvme".into(), "ssd".into()]));
        let new = condition("age", Is::NotIn(vec!["old".into()]));
        let (marked, bare) = (condition("pool", Is::There), condition("pool", Is::Absent));
        let choice = NodeChoice { any_of: vec![vec![fast, new], vec![marked]], tolerates: Vec::new() };
        let takes = |pairs| choice.takes(&Face { labels: labels(pairs), taints: Vec::new() });
        assert!(takes(&[("disk", "ssd")]) && takes(&[("pool", "x")]));
        assert!(!takes(&[("disk", "ssd"), ("age", "old")]) && !takes(&[]));
        assert!(bare.holds(&labels(&[])) && !bare.holds(&labels(&[("pool", "x")])));
    }

    #[test]
    fn a_taint_keeps_off_whom_does_not_put_up_with_it() {
        let taint = Taint { key: "spot".into(), value: "yes".into(), effect: "NoSchedule".into() };
        let face = Face { labels: labels(&[]), taints: vec![taint] };
        let tolerates = |key: Option<&str>, value: Option<&str>| {
            let (key, value) = (key.map(Into::into), value.map(Into::into));
            let one = Toleration { key, value, effect: None };
            NodeChoice { any_of: Vec::new(), tolerates: vec![one] }.takes(&face)
        };
        assert!(
            tolerates(None, None) && tolerates(Some("spot"), None) && tolerates(Some("spot"), Some("yes"))
        );
        assert!(!tolerates(Some("spot"), Some("no")) && !tolerates(Some("other"), None));
        assert!(!NodeChoice::default().takes(&face));
    }
}
