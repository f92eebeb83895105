//! Never: what a job takes at least, and the settings that this alone exceeds. No end of other jobs lifts these.

use std::collections::BTreeSet;

use super::edit::least_memory;
use crate::amount::{Amount, Resource};
use crate::model::ask::{Alternative, DeviceAsk};
use crate::model::device::{DeviceSpec, WHOLE_MILLI};
use crate::model::job::JobSpec;
use crate::model::queue::lineage;
use crate::plan::{self, UNSAID_CPU_MILLI, UNSAID_MEMORY_BYTES};
use crate::reason::Reason;
use crate::snapshot::{NodeView, Snapshot};
use crate::state::State;

/// What a job exceeds by itself, whatever it gets of what it accepts: limits of its user, its queue and those above it, what is
/// guaranteed to these, what they may borrow, and what the others lend.
pub fn as_set(state: &State, snapshot: &Snapshot, spec: &JobSpec) -> Vec<Reason> {
    let mut found = Vec::new();
    for path in lineage(spec.stand()) {
        for (resource, limit) in state.limit_at(path).into_iter().flatten() {
            let Amount::Finite(most) = *limit else { continue };
            let asked = least(snapshot, spec, resource);
            if asked <= most {
                continue;
            }
            let (path, resource) = (path.to_owned(), resource.clone());
            found.push(match state.queues.contains_key(&path) {
                true => Reason::QueueLimit(path, resource, most, asked),
                false => Reason::UserLimit(path, resource, most, asked),
            });
        }
    }
    found.extend(plan::refused_while_idle(state, spec));
    found
}

/// The least of a resource that a job takes, by whichever of its alternatives.
fn least(snapshot: &Snapshot, spec: &JobSpec, resource: &Resource) -> i64 {
    let roles = spec.gang.roles().into_iter();
    let of = roles.map(|role| {
        let each = role.ask.alternatives.iter().map(|one| match spec.exclusive {
            true => drawn(snapshot, one, resource).max(least_whole(snapshot, one, resource)),
            false => drawn(snapshot, one, resource),
        });
        let each = each.min();
        each.unwrap_or(0).saturating_mul(i64::from(role.minimum))
    });
    of.fold(0, i64::saturating_add)
}

/// What a task gets that gets all of a node, on the node that would do and has least of it.
fn least_whole(snapshot: &Snapshot, one: &Alternative, resource: &Resource) -> i64 {
    let devices = |node: &NodeView, counts: &dyn Fn(&DeviceSpec) -> bool| {
        let usable = node.devices.iter().filter(|device| device.unusable.is_none());
        usable.filter(|device| counts(&device.spec)).count() as i64
    };
    let will_do = |node: &&NodeView| {
        let good = |ask: &DeviceAsk| devices(node, &|spec| ask.class.takes(spec)) >= i64::from(ask.count);
        one.devices.as_ref().is_none_or(good)
            && one.cpu_milli <= Some(node.cpu_milli.0)
            && one.memory_bytes <= Some(node.memory_bytes.0)
    };
    let has = |node: &NodeView| match resource {
        Resource::Any => devices(node, &|_| true) * i64::from(WHOLE_MILLI),
        Resource::Model(model) => devices(node, &|spec| spec.model == *model) * i64::from(WHOLE_MILLI),
        Resource::Cpu => node.cpu_milli.0,
        Resource::Memory => node.memory_bytes.0,
        _ => 0,
    };
    snapshot.capacity.nodes.iter().filter(will_do).map(has).min().unwrap_or(0)
}

/// What a task without devices gets on the node where it gets the least, if it does not say how much.
fn unsaid(snapshot: &Snapshot, of: impl Fn(&NodeView) -> i64) -> i64 {
    snapshot.capacity.nodes.iter().map(of).min().unwrap_or(0)
}

fn drawn(snapshot: &Snapshot, one: &Alternative, resource: &Resource) -> i64 {
    let devices = one.devices.as_ref();
    match resource {
        Resource::Any => one.milli(),
        Resource::Model(model) => {
            let right = snapshot.capacity.nodes.iter().flat_map(|node| &node.devices);
            let right = right.filter(|device| devices.is_some_and(|ask| ask.class.takes(&device.spec)));
            let models: BTreeSet<&str> = right.map(|device| device.spec.model.as_str()).collect();
            if models.len() == 1 && models.contains(model.as_str()) { one.milli() } else { 0 }
        }
        Resource::Cpu => one.cpu_milli.unwrap_or_else(|| match devices {
            Some(_) => 0,
            None => unsaid(snapshot, |node| UNSAID_CPU_MILLI.min(node.cpu_milli.0)),
        }),
        Resource::Memory => one.memory_bytes.unwrap_or_else(|| match devices {
            Some(_) => least_memory(snapshot, one),
            None => unsaid(snapshot, |node| UNSAID_MEMORY_BYTES.min(node.memory_bytes.0)),
        }),
        _ => 0,
    }
}
