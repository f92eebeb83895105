//! Edits: what a job asks for once its own changes are made.

use std::sync::Arc;

use super::change::{Change, Raise};
use crate::amount::{Amount, Limits, Resource};
use crate::model::affinity::Affinity;
use crate::model::ask::{Alternative, DeviceClass};
use crate::model::choice::NodeChoice;
use crate::model::gang::{Group, Role};
use crate::model::job::JobSpec;
use crate::model::newer::Newer;
use crate::model::queue::Queue;
use crate::model::topology::Spread;
use crate::snapshot::Snapshot;
use crate::state::State;
use crate::time::Span;

/// A job with the changes that concern it alone.
pub(crate) fn edited(spec: &JobSpec, changes: &[Change]) -> JobSpec {
    let mut spec = spec.clone();
    let gang = Arc::make_mut(&mut spec.gang);
    for change in changes {
        match change {
            Change::DropDependency { job } => spec.after.retain(|dependency| dependency.job != *job),
            Change::StartNow => spec.start_after = None,
            Change::Preemptible => spec.preemptible = true,
            Change::ShareNodes => spec.exclusive = false,
            Change::AnyPlace => lie_anywhere(gang),
            Change::AnyIsland => each_role(gang, &mut |role| role.ask.lie(None)),
            Change::AnyNode => each_role(gang, &mut |role| role.ask.nodes = NodeChoice::default()),
            Change::AnyNeighbours => each_role(gang, &mut |role| {
                let labels = role.ask.affinity().labels.clone();
                role.ask.affinity = Affinity { labels, ..Affinity::nothing() }.into_said();
            }),
            Change::MoreInOne { level, to, .. } => each_spread(gang, &mut |spread| {
                if spread.over == *level {
                    spread.most = spread.most.map(|most| most.max(*to));
                }
            }),
            Change::AnySpread => each_spread(gang, &mut |spread| spread.required = false),
            Change::Prioritise { to } => spec.priority = *to,
            Change::TimeLimit { to_ms, .. } => spec.time_limit = Some(Span(*to_ms)),
            Change::AcceptModel { model } => {
                each_role(gang, &mut |role| role.ask.alternatives.extend(with_model(role, model)));
            }
            Change::AcceptSizes => each_alternative(gang, "", &mut |alternative| {
                if let Some(ask) = &mut alternative.devices {
                    let class = std::mem::take(&mut ask.class);
                    ask.class =
                        DeviceClass { least_gb: None, most_gb: None, least_memory_mib: None, ..class };
                }
            }),
            Change::AcceptSlower => each_alternative(gang, "", &mut |alternative| {
                if let Some(ask) = &mut alternative.devices {
                    ask.class.least_gb_s = Newer::default();
                }
            }),
            Change::FewerDevices { role, to, .. } => each_alternative(gang, role, &mut |alternative| {
                if let Some(ask) = &mut alternative.devices {
                    ask.count = ask.count.min(*to);
                }
            }),
            Change::FewerTasks { role: name, to, .. } => each_role(gang, &mut |role| {
                if role.name == *name {
                    role.maximum = if role.maximum == role.minimum { *to } else { role.maximum };
                    role.minimum = *to;
                }
            }),
            Change::LessHost { role, resource, to, .. } => {
                each_alternative(gang, role, &mut |alternative| match resource {
                    Resource::Cpu => alternative.cpu_milli = Some(*to),
                    _ => alternative.memory_bytes = Some(*to),
                });
            }
            _ => {}
        }
    }
    spec
}

/// A change that goes as far, but starts from what the job asks for and what its queues have.
pub(crate) fn from_now(state: &State, spec: &JobSpec, mut change: Change) -> Change {
    let role = |name: &str| spec.gang.roles().into_iter().find(|role| role.name == *name);
    let of_queue = |raise: &Raise, limits: fn(&Queue) -> &Limits| {
        let said = state.queues.get(&raise.queue).and_then(|queue| limits(queue).get(&raise.resource));
        said.and_then(|amount| if let Amount::Finite(amount) = amount { Some(*amount) } else { None })
    };
    match &mut change {
        Change::FewerDevices { role: name, from, .. } => {
            *from = role(name).map_or(*from, |role| role.ask.most_devices());
        }
        Change::FewerTasks { role: name, from, .. } => *from = role(name).map_or(*from, |role| role.minimum),
        Change::LessHost { role: name, resource, from, .. } => {
            let first = role(name).and_then(|role| role.ask.alternatives.first());
            let said =
                first.and_then(|it| if *resource == Resource::Cpu { it.cpu_milli } else { it.memory_bytes });
            *from = said.unwrap_or(*from);
        }
        Change::TimeLimit { from_ms, .. } => *from_ms = spec.time_limit.map(|limit| limit.0),
        Change::RaiseLimit(raise) => raise.from = of_queue(raise, |queue| &queue.limit).unwrap_or(raise.from),
        Change::RaiseBorrow(raise) => {
            raise.from = of_queue(raise, |queue| &queue.borrow).unwrap_or(raise.from)
        }
        Change::RaiseLend(raise) => raise.from = of_queue(raise, |queue| &queue.lend).unwrap_or(raise.from),
        Change::RaiseGuarantee(raise) => {
            raise.from = of_queue(raise, |queue| &queue.guarantee).unwrap_or(0);
        }
        _ => {}
    }
    change
}

/// The first alternative of a role with another model, if it names models and none of its alternatives takes that one.
pub(super) fn with_model(role: &Role, model: &str) -> Option<Alternative> {
    let asks = || role.ask.alternatives.iter().filter_map(|alternative| alternative.devices.as_ref());
    let takes = |models: &Vec<String>| models.is_empty() || models.iter().any(|known| known == model);
    let mut other = role.ask.alternatives.first()?.clone();
    other.devices.as_mut()?.class.models = vec![model.to_owned()];
    (!asks().any(|ask| takes(&ask.class.models))).then_some(other)
}

fn lie_anywhere(group: &mut Group) {
    match group {
        Group::Role(role) => role.topology = None,
        Group::Branch(branch) => {
            branch.topology = None;
            branch.groups.iter_mut().for_each(lie_anywhere);
        }
    }
}

fn each_spread(group: &mut Group, act: &mut dyn FnMut(&mut Spread)) {
    let spread = match group {
        Group::Role(role) => &mut role.spread.0,
        Group::Branch(branch) => {
            branch.groups.iter_mut().for_each(|group| each_spread(group, act));
            &mut branch.spread.0
        }
    };
    spread.iter_mut().for_each(act);
}

fn each_role(group: &mut Group, act: &mut dyn FnMut(&mut Role)) {
    match group {
        Group::Role(role) => act(role),
        Group::Branch(branch) => branch.groups.iter_mut().for_each(|group| each_role(group, act)),
    }
}

/// Changes each alternative of a role; of all roles where it is not named.
fn each_alternative(group: &mut Group, name: &str, act: &mut dyn FnMut(&mut Alternative)) {
    each_role(group, &mut |role| {
        if name.is_empty() || role.name == name {
            role.ask.alternatives.iter_mut().for_each(&mut *act);
        }
    });
}

/// The most memory that a task of an alternative gets when it does not say: the share that goes with its devices.
pub(super) fn unsaid_memory(snapshot: &Snapshot, alternative: &Alternative) -> i64 {
    let Some(ask) = &alternative.devices else { return 1 << 30 };
    let devices = snapshot.capacity.nodes.iter().flat_map(|node| &node.devices);
    let right = devices.filter(|device| ask.class.takes(&device.spec));
    right.map(|device| device.host_share.1).max().unwrap_or(0).saturating_mul(i64::from(ask.count))
}

/// The memory that a task gets at least when it does not say: the share of the devices that have the least.
pub(super) fn least_memory(snapshot: &Snapshot, alternative: &Alternative) -> i64 {
    let Some(ask) = &alternative.devices else { return 0 };
    let devices = snapshot.capacity.nodes.iter().flat_map(|node| &node.devices);
    let right = devices.filter(|device| ask.class.takes(&device.spec));
    let share = right.map(|device| device.host_share.1).min().unwrap_or(0);
    let milli = i64::from(ask.milli());
    let each = if milli == 1000 { share } else { share / 1000 * milli };
    each.saturating_mul(i64::from(ask.count))
}
