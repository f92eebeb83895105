//! A reservation on the calendar: nodes or devices that are kept from a moment on, for work on them or for one queue.

use serde::{Deserialize, Serialize};

use super::allocation::Placement;
use super::job::JobSpec;
use super::queue::lineage;
use crate::id::{DeviceId, NodeId};
use crate::time::Time;

/// Capacity that is kept for a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reservation {
    /// Its number: given out in sequence, never reused.
    pub id: u64,
    /// What for.
    pub purpose: Purpose,
    /// What is kept.
    pub parts: Vec<Part>,
    /// From when.
    pub from: Time,
    /// Until when; `None` until it is cancelled.
    pub until: Option<Time>,
    /// Whether what runs there when it begins is stopped and goes back into its queue; if not, it runs to its end.
    pub evicts: bool,
    /// Whether it has begun.
    pub began: bool,
    /// Who made it.
    pub by: String,
    /// Why, in the words of the person who made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What a reservation is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Work on it: nothing runs there. A drain.
    Maintenance,
    /// The jobs of this queue and of the queues below it.
    Queue(String),
}

/// A part of a node that is kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Part {
    /// Its node.
    pub node: NodeId,
    /// The devices; all of the node if there are none.
    pub devices: Vec<DeviceId>,
}

impl Part {
    /// Whether a device of a node belongs to it.
    pub fn has(&self, node: NodeId, device: DeviceId) -> bool {
        self.node == node && (self.devices.is_empty() || self.devices.contains(&device))
    }

    /// Whether a placement draws on it.
    pub fn is_under(&self, placement: &Placement) -> bool {
        let any = || placement.devices.iter().any(|(device, _)| self.devices.contains(device));
        self.node == placement.node && (self.devices.is_empty() || any())
    }
}

impl Reservation {
    /// Whether it keeps capacity for jobs like this one.
    pub fn is_for(&self, spec: &JobSpec) -> bool {
        match &self.purpose {
            Purpose::Maintenance => false,
            Purpose::Queue(queue) => lineage(&spec.queue).any(|path| path == queue),
        }
    }

    /// Whether it has begun, and nothing may run on what it keeps.
    pub fn is_drain_now(&self) -> bool {
        self.began && self.purpose == Purpose::Maintenance
    }

    /// Whether a placement draws on what it keeps.
    pub fn is_under(&self, placement: &Placement) -> bool {
        self.parts.iter().any(|part| part.is_under(placement))
    }
}
