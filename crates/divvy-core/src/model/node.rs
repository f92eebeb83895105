//! A node: a host with devices, scoped by its engine.

use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

use super::choice::Face;
use super::extras::Extras;

/// Where a node is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Wanted, not yet ordered.
    Planned,
    /// Ordered, not yet there.
    Provisioning,
    /// Takes tasks.
    #[default]
    Ready,
    /// Keeps its tasks, takes no new ones.
    Draining,
    /// Not there any more.
    Gone,
}

/// How capacity is paid for and may vanish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Bought.
    #[default]
    Owned,
    /// Rented for a term.
    Reserved,
    /// Rented by the hour.
    OnDemand,
    /// Rented cheaply, and taken back at will.
    Spot,
}

/// One NUMA node of a host: the cores and memory close to its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NumaNode {
    /// Cores, in milli.
    pub cpu_milli: i64,
    /// Memory in bytes.
    pub memory_bytes: i64,
}

/// What tasks from outside the pool hold of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OthersHold {
    /// Cores, in milli.
    #[serde(default)]
    pub cpu_milli: i64,
    /// Memory in bytes.
    #[serde(default)]
    pub memory_bytes: i64,
    /// Whole devices, where these have no names.
    #[serde(default)]
    pub devices: u32,
    /// How many tasks.
    #[serde(default)]
    pub tasks: u32,
    /// Other host amounts.
    #[serde(default, skip_serializing_if = "Extras::is_empty")]
    pub extras: Extras,
}

/// Hashes only where there is anything, so that digests of pools without such tasks stay as they were.
impl Hash for OthersHold {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        // Destructured without `..`, so that a new field is not forgotten here.
        let Self { cpu_milli, memory_bytes, devices, tasks, extras } = self;
        if !self.is_nothing() {
            (cpu_milli, memory_bytes, devices, tasks, extras).hash(hasher);
        }
    }
}

impl OthersHold {
    /// Whether nothing is held.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Whether they hold less of anything than they did.
    pub fn is_less_than(&self, before: &Self) -> bool {
        self.cpu_milli < before.cpu_milli
            || self.memory_bytes < before.memory_bytes
            || self.devices < before.devices
            || self.tasks < before.tasks
            || before.extras.beyond(&self.extras).is_some()
    }
}

/// What a host has, apart from its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeSpec {
    /// The engine's name for it.
    pub name: String,
    /// Cores, in milli.
    pub cpu_milli: i64,
    /// Memory in bytes.
    pub memory_bytes: i64,
    /// Its NUMA nodes, by number.
    #[serde(default)]
    pub numa: Vec<NumaNode>,
    /// The kernel's boot id; a change means that nothing that ran is left.
    #[serde(default)]
    pub boot_id: String,
    /// How it is paid for.
    #[serde(default)]
    pub tier: Tier,
    /// Micro-dollars per hour for the whole node.
    #[serde(default)]
    pub price_micro_per_hour: i64,
    /// Its place in each topology level: (level key, domain).
    #[serde(default)]
    pub domains: Vec<(String, String)>,
    /// Its labels and taints, by which tasks choose.
    #[serde(default, skip_serializing_if = "Face::is_plain")]
    pub face: Face,
    /// How many tasks it takes at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_tasks: Option<u32>,
    /// Other host amounts that it has.
    #[serde(default, skip_serializing_if = "Extras::is_empty")]
    pub extras: Extras,
}
