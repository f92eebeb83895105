//! Where a pod may run: its node selector, node affinity and tolerations; and which of its wishes are not understood.

use std::collections::BTreeMap;

use divvy_core::model::choice::{Condition, Is, NodeChoice, Toleration};

use super::objects::{NodeSelectorTerm, PodSpec, Requirement, Toleration as Tolerated};

/// The label that stands for a node's name. No real label can have this name.
pub const NODE_NAME: &str = ".metadata.name";

/// The longest text that an error repeats to the user.
const SHORT: usize = 60;

/// A wish of a pod that is not understood: it is refused by name, never ignored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotUnderstood(pub String);

/// Returns the nodes on which a pod may run.
pub fn choice(spec: &PodSpec) -> Result<NodeChoice, NotUnderstood> {
    understood(spec)?;
    let own: Vec<Condition> = spec.node_selector.iter().map(has_label).collect();
    let affinity = &spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution;
    let any_of = match affinity {
        None if own.is_empty() => Vec::new(),
        None => vec![own],
        Some(selector) => {
            // An empty term matches nothing.
            let says = |term: &&NodeSelectorTerm| {
                !term.match_expressions.is_empty() || !term.match_fields.is_empty()
            };
            let terms = selector.node_selector_terms.iter().filter(says).map(term);
            let terms = terms.map(|term| Ok(own.iter().cloned().chain(term?).collect()));
            let terms: Vec<Vec<Condition>> = terms.collect::<Result<_, NotUnderstood>>()?;
            if terms.is_empty() { vec![vec![nowhere()]] } else { terms }
        }
    };
    let tolerates = spec.tolerations.iter().map(toleration).collect::<Result<_, _>>()?;
    Ok(NodeChoice { any_of, tolerates })
}

fn has_label((label, value): (&String, &String)) -> Condition {
    Condition { label: label.clone(), is: Is::In(vec![value.clone()]) }
}

/// A condition that no node meets.
fn nowhere() -> Condition {
    Condition { label: NODE_NAME.into(), is: Is::In(Vec::new()) }
}

fn term(term: &NodeSelectorTerm) -> Result<Vec<Condition>, NotUnderstood> {
    let fields = term.match_fields.iter().map(|field| {
        let known = field.key == "metadata.name" && ["In", "NotIn"].contains(&field.operator.as_str());
        let of_name = || condition(&Requirement { key: NODE_NAME.into(), ..field.clone() });
        if known { of_name() } else { Err(refused("node affinity by the field", &field.key)) }
    });
    term.match_expressions.iter().map(condition).chain(fields).collect()
}

fn condition(requirement: &Requirement) -> Result<Condition, NotUnderstood> {
    let Requirement { key, operator, values } = requirement;
    let bound = || {
        let number = values.first().filter(|_| values.len() == 1).and_then(|value| value.parse().ok());
        number.ok_or_else(|| refused("node affinity that compares numbers, for the label", key))
    };
    let is = match operator.as_str() {
        "In" => Is::In(values.clone()),
        "NotIn" => Is::NotIn(values.clone()),
        "Exists" => Is::There,
        "DoesNotExist" => Is::Absent,
        "Gt" => Is::Above(bound()?),
        "Lt" => Is::Below(bound()?),
        other => return Err(refused("node affinity by the operator", other)),
    };
    Ok(Condition { label: key.clone(), is })
}

fn toleration(tolerated: &Tolerated) -> Result<Toleration, NotUnderstood> {
    let said = |text: &String| (!text.is_empty()).then(|| text.clone());
    let value = match tolerated.operator.as_str() {
        "Exists" => None,
        "" | "Equal" => Some(tolerated.value.clone()),
        other => return Err(refused("a toleration by the operator", other)),
    };
    Ok(Toleration { key: said(&tolerated.key), value, effect: said(&tolerated.effect) })
}

pub(super) fn refused(what: &str, text: &str) -> NotUnderstood {
    NotUnderstood(format!("{what} {:?}", text.chars().take(SHORT).collect::<String>()))
}

/// Volume types that do not restrict where a pod may run.
const PLACELESS: [&str; 7] =
    ["emptyDir", "configMap", "secret", "downwardAPI", "projected", "hostPath", "image"];

/// Refuses wishes of a pod that placement would have to check and does not.
fn understood(spec: &PodSpec) -> Result<(), NotUnderstood> {
    let refused = |what: &str| Err(NotUnderstood(what.to_owned()));
    // If it is only preferred (ScheduleAnyway), it excludes no node.
    if spec.topology_spread_constraints.iter().any(|it| it.when_unsatisfiable != "ScheduleAnyway") {
        return refused("topology spread constraints");
    }
    let containers = spec.containers.iter().chain(&spec.init_containers);
    if containers.flat_map(|container| &container.ports).any(|port| port.host_port != 0) {
        return refused("ports of the host");
    }
    if !spec.resource_claims.is_empty() {
        return refused("resource claims");
    }
    if spec.scheduling_group.is_some() {
        return refused("scheduling groups");
    }
    let placeless = |volume: &BTreeMap<String, serde::de::IgnoredAny>| {
        volume.keys().all(|key| key == "name" || PLACELESS.contains(&key.as_str()))
    };
    match spec.volumes.iter().find(|volume| !placeless(volume)) {
        Some(volume) => {
            let kind = volume.keys().find(|key| *key != "name").cloned().unwrap_or_default();
            Err(NotUnderstood(format!(
                "volumes of the kind {:?}",
                kind.chars().take(SHORT).collect::<String>()
            )))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_core::model::choice::{Face, Taint};
    use serde_json::json;

    fn takes(spec: serde_json::Value, labels: &[(&str, &str)], taints: &[(&str, &str, &str)]) -> bool {
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let labels = labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let taint = |(key, value, effect): &(&str, &str, &str)| Taint {
            key: (*key).into(),
            value: (*value).into(),
            effect: (*effect).into(),
        };
        choice(&spec).unwrap().takes(&Face { labels, taints: taints.iter().map(taint).collect() })
    }

    fn affinity(terms: serde_json::Value) -> serde_json::Value {
        let required = json!({"nodeSelectorTerms": terms});
        json!({"nodeSelector": {"pool": "a"}, "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
    }

    #[test]
    fn node_selector_and_one_term_of_the_affinity_hold_together() {
        let spec = affinity(json!([
            {"matchExpressions": [{"key": "age", "operator": "Gt", "values": ["3"]}]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        ]));
        assert!(takes(spec.clone(), &[("pool", "a"), ("age", "4")], &[]));
        assert!(takes(spec.clone(), &[("pool", "a"), (NODE_NAME, "n1")], &[]));
        assert!(!takes(spec.clone(), &[("pool", "a"), ("age", "3")], &[]));
        assert!(!takes(spec, &[("age", "4"), (NODE_NAME, "n1")], &[]));
    }

    #[test]
    fn an_affinity_whose_terms_say_nothing_matches_nothing() {
        assert!(!takes(affinity(json!([{}])), &[("pool", "a")], &[]));
        assert!(!takes(affinity(json!([])), &[("pool", "a")], &[]));
    }

    #[test]
    fn a_toleration_covers_its_effect_and_no_other() {
        let spec = |toleration| json!({"tolerations": [toleration]});
        let taint = [("gpu", "yes", "NoSchedule")];
        assert!(takes(spec(json!({"operator": "Exists"})), &[], &taint));
        assert!(takes(spec(json!({"key": "gpu", "value": "yes", "effect": "NoSchedule"})), &[], &taint));
        assert!(!takes(spec(json!({"key": "gpu", "value": "yes", "effect": "NoExecute"})), &[], &taint));
        assert!(!takes(spec(json!({"key": "gpu", "value": "no"})), &[], &taint));
    }

    #[test]
    fn what_is_not_understood_is_refused_by_name() {
        for (spec, what) in [
            (json!({"volumes": [{"name": "x", "persistentVolumeClaim": {}}]}), "persistentVolumeClaim"),
            (json!({"containers": [{"ports": [{"hostPort": 80}]}]}), "ports"),
            (json!({"resourceClaims": [{"name": "gpu"}]}), "claims"),
            (json!({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}), "spread"),
            (json!({"tolerations": [{"key": "x", "operator": "Gt", "value": "3"}]}), "Gt"),
        ] {
            let spec: PodSpec = serde_json::from_value(spec).unwrap();
            assert!(choice(&spec).unwrap_err().0.contains(what), "{what}");
        }
    }

    #[test]
    fn volumes_without_a_place_and_soft_wishes_leave_out_no_node() {
        let spec = json!({
            "volumes": [{"name": "x", "emptyDir": {}}, {"name": "y", "projected": {}}],
            "topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}],
        });
        assert!(takes(spec, &[], &[]));
    }
}
