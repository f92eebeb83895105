//! What if: replays a pool's own history, as it was and under a change. The caller hands over its events.

mod change;
mod figures;
mod record;
mod rerun;

use std::collections::BTreeSet;

use divvy_core::controller::Broken;
use divvy_core::model::device::{DeviceSpec, Link};
use divvy_core::model::node::NodeSpec;
use divvy_core::model::policy::Policy;
use divvy_core::model::queue::{Queue, unkeepable};

use crate::policy::{Chosen, Class, NoPolicy, names_of_class_n};
use crate::pool::beyond;

pub use change::{Change, FORMS, NotAChange, Setting};
pub use figures::{Answer, Fidelity, QueueFigures, Side};
pub use record::{Deed, Life, Past, Recorder, Settings, What};

/// A change that this pool cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotChange {
    /// It takes away more than there is.
    #[error("nodes-{wanted}: the pool has {there}, and one must be left")]
    TooFew {
        /// As written: how many, or which.
        wanted: String,
        /// What there is.
        there: usize,
    },
    /// There is no node for new nodes to be like.
    #[error("the pool has no node that others could be like: write nodes+1xh100:8")]
    NoNode,
    /// No node has this name.
    #[error("there is no node {name:?}; {hint}")]
    NoSuchNode {
        /// As written.
        name: String,
        /// The nearest name.
        hint: String,
    },
    /// No queue has this path.
    #[error("there is no queue {path:?}; {hint}")]
    NoSuchQueue {
        /// As written.
        path: String,
        /// The nearest path.
        hint: String,
    },
    /// Queues are guaranteed more than the pool has.
    #[error("{0}")]
    Queues(String),
    /// The policy cannot be had.
    #[error("{0}")]
    Policy(String),
    /// No policy has this name.
    #[error("{0}")]
    NoSuchPolicy(String),
    /// The file of a policy says none.
    #[error("{0}")]
    PolicyFile(NoPolicy),
    /// Two of the changes made together set the same thing.
    #[error("{0} is set twice: all changes are made together")]
    Twice(String),
}

/// Returns how much memory GPUs of a model have, in MiB, where that is known.
pub type Memory<'a> = &'a dyn Fn(&str) -> Option<u64>;

/// The memory of GPUs of an unknown model: as much as most have.
const USUAL_MEMORY_MIB: u64 = 80 << 10;

impl Past {
    /// Returns what the pool is under changes, all made together. Queues that the pool would refuse are refused in the same words; if
    /// it is the nodes that become too few for them, the answer says so instead. `memory_mib` gives the memory of GPU models that the
    /// pool does not have.
    pub fn under(&self, changes: &[Change], memory_mib: Memory) -> Result<Settings, CannotChange> {
        let settings = self.settings.under(changes, memory_mib)?;
        let is_changed = settings.queues != self.settings.queues;
        if let Some((_, what)) = unkeepable(&settings.queues).filter(|_| is_changed) {
            return Err(CannotChange::Queues(what));
        }
        let beyond = |queues: &[Queue]| beyond(settings.nodes.clone(), queues, self.until).ok().flatten();
        match beyond(&settings.queues).filter(|_| is_changed && beyond(&self.settings.queues).is_none()) {
            Some(beyond) => Err(CannotChange::Queues(beyond.what)),
            None => Ok(settings),
        }
    }
}

impl Settings {
    /// Returns these settings under changes, all made together: nodes go first, and those that come are like the old ones.
    fn under(&self, changes: &[Change], memory_mib: Memory) -> Result<Settings, CannotChange> {
        if let Some(what) = change::contradiction(changes) {
            return Err(CannotChange::Twice(what));
        }
        let mut settings = self.clone();
        let (gone, more_gone) = settings.take_nodes(changes)?;
        let mut names: BTreeSet<String> = self.nodes.iter().map(|(node, _)| node.name.clone()).collect();
        for change in changes {
            match change {
                Change::MoreNodes(count) => {
                    let (spec, devices) = self.nodes.last().ok_or(CannotChange::NoNode)?;
                    (0..*count).for_each(|_| settings.add_node(spec.clone(), devices.clone(), &mut names));
                }
                Change::AddNodes(group) => {
                    let devices = self.devices_like(&group.model, group.gpus, memory_mib);
                    let host = self.host_like(group.gpus);
                    for _ in 0..group.count {
                        settings.add_node(host.clone(), devices.clone(), &mut names);
                    }
                }
                Change::FewerNodes(_) | Change::RemoveNode(_) => {}
                Change::Queue(path, changed) => settings.change_queue(path, changed)?,
                Change::Policy(name) => settings.policy = policy(name)?,
            }
        }
        let left = settings.nodes.len().saturating_sub(more_gone);
        settings.nodes.truncate(left);
        match gone.filter(|_| left == 0) {
            Some(wanted) => Err(CannotChange::TooFew { wanted, there: self.nodes.len() }),
            None => Ok(settings),
        }
    }

    /// Takes nodes away: the named ones, then the last. Returns what was taken, as it is written, and how many of the nodes to be
    /// added are still to go.
    fn take_nodes(&mut self, changes: &[Change]) -> Result<(Option<String>, usize), CannotChange> {
        let mut gone = None;
        let mut count = 0;
        for change in changes {
            match change {
                Change::RemoveNode(name) => {
                    self.remove_node(name)?;
                    gone = Some(name.clone());
                }
                Change::FewerNodes(fewer) => count += *fewer as usize,
                _ => {}
            }
        }
        let there = self.nodes.len();
        self.nodes.truncate(there.saturating_sub(count));
        let fewer = (count > 0).then(|| count.to_string());
        Ok((fewer.or(gone), count.saturating_sub(there)))
    }

    /// Adds a node under a name and with uuids that nothing else has; `names` are those of all nodes that ever existed.
    fn add_node(&mut self, spec: NodeSpec, mut devices: Vec<DeviceSpec>, names: &mut BTreeSet<String>) {
        let mut number = self.nodes.len() + 1;
        while names.contains(&format!("new-{number}")) {
            number += 1;
        }
        let name = format!("new-{number}");
        names.insert(name.clone());
        let before: Vec<String> = devices.iter().map(|device| device.uuid.clone()).collect();
        for (index, device) in (0..).zip(&mut devices) {
            (device.index, device.uuid) = (index, format!("{name}:{index}"));
            let to = |link: Link| {
                let place = before.iter().position(|uuid| *uuid == link.uuid)?;
                Some(Link { uuid: format!("{name}:{place}"), ..link })
            };
            device.links = std::mem::take(&mut device.links).into_iter().filter_map(to).collect();
        }
        self.nodes.push((NodeSpec { name, ..spec }, devices));
    }

    /// Devices of a model: like the pool's own devices of it, or else with as much memory as it has.
    fn devices_like(&self, model: &str, count: u32, memory_mib: Memory) -> Vec<DeviceSpec> {
        let known = self.nodes.iter().flat_map(|(_, devices)| devices).find(|device| device.model == model);
        let memory_mib = memory_mib(model).unwrap_or(USUAL_MEMORY_MIB);
        let unknown = || DeviceSpec { model: model.to_owned(), memory_mib, ..DeviceSpec::default() };
        // If the pool's device is joined to others, these are all joined alike.
        let lanes = known.and_then(|known| known.links.first()).map(|link| link.lanes);
        let uuid = |index: u32| format!("{model}:{index}");
        let links = |index: u32| {
            let others = (0..count).filter(|other| *other != index);
            others.filter_map(|other| Some(Link { uuid: uuid(other), lanes: lanes? })).collect()
        };
        let one = |index: u32| DeviceSpec {
            uuid: uuid(index),
            links: links(index),
            ..known.cloned().unwrap_or_else(unknown)
        };
        (0..count).map(one).collect()
    }

    /// A host with as many cores and as much memory per GPU as the pool's last node with GPUs; else with the usual amounts.
    fn host_like(&self, gpus: u32) -> NodeSpec {
        const CPU_MILLI_PER_GPU: i64 = 12_000;
        const MEMORY_BYTES_PER_GPU: i64 = 64 << 30;
        let each = |of: i64, devices: &[DeviceSpec]| of / i64::try_from(devices.len()).unwrap_or(i64::MAX);
        let last = self.nodes.iter().rev().find(|(_, devices)| !devices.is_empty());
        let (cpu_milli, memory_bytes) = last
            .map_or((CPU_MILLI_PER_GPU, MEMORY_BYTES_PER_GPU), |(spec, devices)| {
                (each(spec.cpu_milli, devices), each(spec.memory_bytes, devices))
            });
        let gpus = i64::from(gpus);
        NodeSpec { cpu_milli: cpu_milli * gpus, memory_bytes: memory_bytes * gpus, ..NodeSpec::default() }
    }

    fn remove_node(&mut self, name: &str) -> Result<(), CannotChange> {
        let names: Vec<&str> = self.nodes.iter().map(|(node, _)| node.name.as_str()).collect();
        let Some(at) = names.iter().position(|there| *there == name) else {
            return Err(CannotChange::NoSuchNode { name: name.to_owned(), hint: change::hint(name, &names) });
        };
        self.nodes.remove(at);
        Ok(())
    }

    fn change_queue(&mut self, path: &str, changed: &[Setting]) -> Result<(), CannotChange> {
        let paths: Vec<String> = self.queues.iter().map(|queue| queue.path.clone()).collect();
        let Some(queue) = self.queues.iter_mut().find(|queue| queue.path == path) else {
            return Err(CannotChange::NoSuchQueue {
                path: path.to_owned(),
                hint: change::hint(path, &paths),
            });
        };
        changed.iter().for_each(|setting| setting.apply(queue));
        Ok(())
    }
}

/// A policy by its name, or else from a file.
fn policy(name: &str) -> Result<Policy, CannotChange> {
    let cannot = |what: String| Err(CannotChange::Policy(what));
    match name.parse::<Chosen>() {
        Ok(chosen) if chosen.class == Class::N => Ok(chosen.settings),
        Ok(chosen) if chosen.class == Class::P => cannot(format!(
            "policy {name}: it goes by estimates (class P), which the replay of a pool's past does not make"
        )),
        Ok(_) => cannot(format!("policy {name}: it knows how long jobs will be (class C), as no pool does")),
        Err(NoPolicy::Unknown(_)) => Err(CannotChange::NoSuchPolicy(format!(
            "there is no policy {name:?}; here there are: {}; a path to a file that says one would do, too",
            names_of_class_n().collect::<Vec<_>>().join(", ")
        ))),
        Err(error) => Err(CannotChange::PolicyFile(error)),
    }
}

impl Setting {
    fn apply(&self, queue: &mut Queue) {
        match self {
            Setting::Guarantee(limits) => queue.guarantee.clone_from(limits),
            Setting::Limit(limits) => queue.limit.clone_from(limits),
            Setting::Borrow(limits) => queue.borrow.clone_from(limits),
            Setting::Lend(limits) => queue.lend.clone_from(limits),
            Setting::Weight(weight) => queue.weight = *weight,
            Setting::Priority(priority) => queue.priority = *priority,
        }
    }
}

/// Why a replay of the past broke off.
#[derive(Debug, thiserror::Error)]
#[error("the replay of the past stops: {0}. This is a mistake of this program; keep the log")]
pub struct Stopped(#[from] Broken);

/// Replays the past twice, as it was and under other settings, side by side, and compares.
pub fn compare(past: &Past, changes: &[Change], under: Settings) -> Result<Answer, Stopped> {
    let (before, after) = std::thread::scope(|scope| {
        let other = scope.spawn(|| rerun::rerun(past, under));
        let before = rerun::rerun(past, past.settings.clone());
        (before, other.join())
    });
    // A panic in that thread is a panic here.
    let after = after.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    Ok(figures::answer(past, changes, &before?, &after?))
}

#[cfg(test)]
mod tests;
