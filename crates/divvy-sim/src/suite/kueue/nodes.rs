//! The nodes that pods choose: selectors, affinities and tolerations as conditions on labels and taints.

use std::collections::BTreeMap;

use super::form::{Asked, Expression, Flavor, Node, Podset, TaintText, TolerationText};
use crate::suite::answer::Obstacle;
use crate::suite::stage::{Actor, Host};
use divvy_core::model::choice::{Condition, Face, Is, NodeChoice, Taint, Toleration};

/// What a node or a flavor says. A taint that only makes other nodes preferable keeps no pod off.
pub(super) fn face(labels: &BTreeMap<String, String>, taints: &[TaintText]) -> Face {
    let binds = |taint: &&TaintText| taint.effect.as_deref() != Some("PreferNoSchedule");
    let taint = |taint: &TaintText| Taint {
        key: taint.key.clone(),
        value: taint.value.clone(),
        effect: String::new(),
    };
    Face { labels: labels.clone(), taints: taints.iter().filter(binds).map(taint).collect() }
}

/// Which nodes the pods of a set choose. Tolerations that flavors add count for all.
pub(super) fn choice(podset: &Podset, flavors: &[Flavor]) -> Result<NodeChoice, Obstacle> {
    let affinities = podset.affinity.iter().filter_map(|affinity| affinity.node_affinity.as_ref());
    let required = affinities.chain(&podset.node_affinity).filter_map(|affinity| affinity.required.as_ref());
    let mut any_of: Vec<Vec<Condition>> = Vec::new();
    for term in required.flat_map(|terms| &terms.node_selector_terms) {
        any_of.push(term.match_expressions.iter().map(condition).collect::<Result<_, _>>()?);
    }
    let selector = podset.node_selector.iter();
    let selector =
        selector.map(|(label, value)| Condition { label: label.clone(), is: Is::In(vec![value.clone()]) });
    let selector: Vec<Condition> = selector.collect();
    if any_of.is_empty() && !selector.is_empty() {
        any_of.push(Vec::new());
    }
    any_of.iter_mut().for_each(|set| set.extend(selector.iter().cloned()));
    let tolerations = podset.tolerations.iter().chain(flavors.iter().flat_map(|flavor| &flavor.tolerations));
    Ok(NodeChoice { any_of, tolerates: tolerations.map(toleration).collect() })
}

fn condition(expression: &Expression) -> Result<Condition, Obstacle> {
    let is = match expression.operator.as_str() {
        "In" => Is::In(expression.values.clone()),
        "NotIn" => Is::NotIn(expression.values.clone()),
        "Exists" => Is::There,
        "DoesNotExist" => Is::Absent,
        _ => return Err(Obstacle::no_word("labels that are compared as numbers")),
    };
    Ok(Condition { label: expression.key.clone(), is })
}

fn toleration(text: &TolerationText) -> Toleration {
    let any = text.operator.as_deref() == Some("Exists");
    let value = if any { None } else { Some(text.value.clone().unwrap_or_default()) };
    Toleration { key: text.key.clone().filter(|key| !key.is_empty()), value, effect: None }
}

/// Whether pods may have a flavor: of the labels that they want, only those that the flavor speaks of count.
pub(super) fn may_have(choice: &NodeChoice, flavor: &Flavor) -> bool {
    let spoken_of = |condition: &Condition| flavor.node_labels.contains_key(&condition.label);
    let sets = choice.any_of.iter();
    let any_of = sets.map(|set| set.iter().filter(|condition| spoken_of(condition)).cloned().collect());
    let choice = NodeChoice { any_of: any_of.collect(), tolerates: choice.tolerates.clone() };
    choice.takes(&face(&flavor.node_labels, &flavor.taints))
}

/// The flavors that a node belongs to.
pub(super) fn flavors<'a>(asked: &'a Asked, node: &'a Node) -> impl Iterator<Item = &'a Flavor> {
    let says = |(key, value): (&String, &String)| node.labels.get(key) == Some(value);
    asked.flavors.iter().filter(move |flavor| flavor.node_labels.iter().all(says))
}

/// Whether jobs may run on a node: it is up, and belongs to a flavor.
pub(super) fn is_offered(asked: &Asked, node: &Node) -> bool {
    node.ready && !node.unschedulable && flavors(asked, node).next().is_some()
}

/// Gives nodes the cores and the memory that is held on them, where a case holds more than there is.
pub(super) fn make_room(hosts: &mut [Host], actors: &[Actor]) {
    let mut held: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for actor in actors {
        let seats = actor.running.iter().flat_map(|running| running.seats.iter().enumerate());
        for (rank, seat) in seats {
            let role = u32::try_from(rank).ok().and_then(|rank| actor.spec.gang.role_of(rank));
            let Some((seat, (role, _))) = seat.as_ref().zip(role) else { continue };
            let Some(draws) = role.ask.alternatives.get(seat.alternative as usize) else { continue };
            let of_node = held.entry(&seat.node).or_default();
            of_node.0 += draws.cpu_milli.unwrap_or(0);
            of_node.1 += draws.memory_bytes.unwrap_or(0);
        }
    }
    for (spec, _) in hosts {
        let (cpu_milli, memory_bytes) = held.get(&*spec.name).copied().unwrap_or_default();
        spec.cpu_milli = spec.cpu_milli.max(cpu_milli);
        spec.memory_bytes = spec.memory_bytes.max(memory_bytes);
    }
}

/// Whether a node belongs to several flavors.
pub(super) fn are_shared(asked: &Asked) -> bool {
    asked.nodes.iter().any(|node| flavors(asked, node).count() > 1)
}

/// Whether a flavor's nodes lie in the levels that a podset asks for.
pub(super) fn has_level(asked: &Asked, flavor: &Flavor, podset: &Podset) -> bool {
    let topology =
        flavor.topology.as_ref().and_then(|name| asked.topologies.iter().find(|it| it.name == *name));
    let level = podset.topology.as_ref().and_then(|text| text.required_level.as_ref());
    topology.zip(level).is_none_or(|(topology, level)| topology.levels.contains(level))
}
