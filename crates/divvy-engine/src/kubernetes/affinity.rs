//! A pod's required affinity and anti-affinity: which other pods it wants near it, and which not.

use divvy_core::model::affinity::{Affinity, Others};
use divvy_core::model::choice::{Condition, Is};

use super::objects::{LabelSelector, Pod, PodAffinity, PodAffinityTerm, Requirement};
use super::wishes::{NotUnderstood, refused};

/// The label that stands for a pod's namespace. No real label can have this name.
pub const NAMESPACE_NAME: &str = ".metadata.namespace";

/// Returns what a pod wants of other pods, and the labels by which other pods find it.
pub(super) fn affinity(pod: &Pod) -> Result<Affinity, NotUnderstood> {
    let namespace = &pod.metadata.namespace;
    let all = |affinity: &PodAffinity, what: &str| {
        let terms = &affinity.required_during_scheduling_ignored_during_execution;
        terms.iter().map(|term| others(term, namespace, what)).collect::<Result<Vec<_>, _>>()
    };
    let own = &pod.spec.affinity;
    let near = all(&own.pod_affinity, "pod affinity")?;
    let apart = all(&own.pod_anti_affinity, "pod anti-affinity")?;
    let mut labels = pod.metadata.labels.clone();
    labels.insert(NAMESPACE_NAME.to_owned(), namespace.clone());
    Ok(Affinity { labels, near, apart })
}

fn others(term: &PodAffinityTerm, own: &str, what: &str) -> Result<Others, NotUnderstood> {
    let PodAffinityTerm { label_selector, topology_key, namespaces, namespace_selector, .. } = term;
    if !term.match_label_keys.is_empty() || !term.mismatch_label_keys.is_empty() {
        return Err(NotUnderstood(format!("{what} with matchLabelKeys or mismatchLabelKeys")));
    }
    if topology_key.is_empty() {
        return Err(NotUnderstood(format!("{what} without a topologyKey")));
    }
    let mut who = match label_selector {
        Some(selector) => conditions(selector, what)?,
        // A missing selector selects no pod; an empty one selects every pod.
        None => vec![Condition { label: NAMESPACE_NAME.into(), is: Is::In(Vec::new()) }],
    };
    let of = |names: Vec<String>| Condition { label: NAMESPACE_NAME.into(), is: Is::In(names) };
    match namespace_selector {
        Some(selector) if !selector.match_labels.is_empty() || !selector.match_expressions.is_empty() => {
            return Err(NotUnderstood(format!("{what} with a namespaceSelector that chooses by labels")));
        }
        // All namespaces, whatever else is named.
        Some(_) => who.push(Condition { label: NAMESPACE_NAME.into(), is: Is::There }),
        None if namespaces.is_empty() => who.push(of(vec![own.to_owned()])),
        None => who.push(of(namespaces.clone())),
    }
    Ok(Others { who, within: topology_key.clone() })
}

fn conditions(selector: &LabelSelector, what: &str) -> Result<Vec<Condition>, NotUnderstood> {
    let has = |(label, value): (&String, &String)| {
        Ok(Condition { label: label.clone(), is: Is::In(vec![value.clone()]) })
    };
    let is = |Requirement { key, operator, values }: &Requirement| {
        let is = match operator.as_str() {
            "In" => Is::In(values.clone()),
            "NotIn" => Is::NotIn(values.clone()),
            "Exists" => Is::There,
            "DoesNotExist" => Is::Absent,
            other => return Err(refused(&format!("{what} by the operator"), other)),
        };
        Ok(Condition { label: key.clone(), is })
    };
    selector.match_labels.iter().map(has).chain(selector.match_expressions.iter().map(is)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    fn read(affinity: Value) -> Result<Affinity, NotUnderstood> {
        let metadata = json!({"namespace": "ml", "labels": {"app": "trainer"}});
        let pod = json!({"metadata": metadata, "spec": {"affinity": affinity}});
        super::affinity(&serde_json::from_value(pod).unwrap())
    }

    fn apart(term: Value) -> Result<Affinity, NotUnderstood> {
        read(json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}))
    }

    fn tells(others: &Others, labels: &[(&str, &str)]) -> bool {
        let labels = labels.iter().map(|(key, value)| ((*key).into(), (*value).into()));
        others.are(&labels.collect::<BTreeMap<String, String>>())
    }

    #[test]
    fn a_term_means_pods_of_its_own_namespace_that_have_all_of_its_labels() {
        let expressions = json!([{"key": "tier", "operator": "NotIn", "values": ["old"]}]);
        let selector = json!({"matchLabels": {"app": "db"}, "matchExpressions": expressions});
        let terms = json!([{"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}]);
        let read =
            read(json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})).unwrap();
        assert_eq!(read.labels["app"], "trainer");
        assert_eq!(read.labels[NAMESPACE_NAME], "ml");
        let near = &read.near[0];
        assert_eq!(near.within, "kubernetes.io/hostname");
        assert!(tells(near, &[(NAMESPACE_NAME, "ml"), ("app", "db")]));
        assert!(!tells(near, &[(NAMESPACE_NAME, "other"), ("app", "db")]));
        assert!(!tells(near, &[(NAMESPACE_NAME, "ml"), ("app", "db"), ("tier", "old")]));
    }

    #[test]
    fn namespaces_may_be_named_or_be_all() {
        let term = |more: Value| {
            let mut term = json!({"labelSelector": {}, "topologyKey": "zone"});
            term.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            apart(term).unwrap().apart.remove(0)
        };
        let of = |others: &Others, namespace| tells(others, &[(NAMESPACE_NAME, namespace)]);
        let named = term(json!({"namespaces": ["a", "b"]}));
        assert!(of(&named, "a") && of(&named, "b") && !of(&named, "ml"));
        assert!(of(&term(json!({"namespaceSelector": {}})), "anywhere"));
        let nobody = apart(json!({"topologyKey": "zone"})).unwrap().apart.remove(0);
        assert!(!of(&nobody, "ml"));
    }

    #[test]
    fn what_is_not_understood_is_refused_by_name() {
        let key = json!({"key": "a", "operator": "Gt", "values": ["3"]});
        for (more, what) in [
            (
                json!({"namespaceSelector": {"matchLabels": {"team": "a"}}, "topologyKey": "z"}),
                "namespaceSelector",
            ),
            (json!({"matchLabelKeys": ["pod-template-hash"], "topologyKey": "z"}), "matchLabelKeys"),
            (json!({"labelSelector": {"matchExpressions": [key]}, "topologyKey": "z"}), "Gt"),
            (json!({"labelSelector": {}}), "topologyKey"),
        ] {
            assert!(apart(more).unwrap_err().0.contains(what), "{what}");
        }
    }

    #[test]
    fn what_is_only_preferred_keeps_nobody_away() {
        let soft = json!([{"weight": 1, "podAffinityTerm": {"topologyKey": "z"}}]);
        let read = read(json!({"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": soft}}));
        assert!(read.unwrap().wants_nothing());
    }
}
