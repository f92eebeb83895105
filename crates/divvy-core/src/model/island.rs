//! Levels within a node: where the devices of one task must lie together, or should if possible.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ask::Ask;
use super::newer::Newer;

/// A level within a node: each device of a node is in one of its domains, its *islands*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IslandLevel {
    /// Devices joined by fast links, directly or through other devices.
    Nvlink,
    /// Devices attached to one NUMA node.
    Numa,
}

impl IslandLevel {
    /// Its name, as everywhere.
    pub fn name(self) -> &'static str {
        match self {
            IslandLevel::Nvlink => "nvlink",
            IslandLevel::Numa => "numa",
        }
    }

    /// What one of its domains is called.
    pub fn island(self) -> &'static str {
        match self {
            IslandLevel::Nvlink => "NVLink island",
            IslandLevel::Numa => "NUMA node",
        }
    }
}

impl fmt::Display for IslandLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text names no level within a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoIslandLevel;

impl FromStr for IslandLevel {
    type Err = NoIslandLevel;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [IslandLevel::Nvlink, IslandLevel::Numa]
            .into_iter()
            .find(|level| level.name() == text)
            .ok_or(NoIslandLevel)
    }
}

/// Where the devices of one task are to lie within their node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct IslandAsk {
    /// The level at which one domain is to hold all devices of the task.
    pub level: IslandLevel,
    /// Whether this is required, or only preferred.
    pub required: bool,
}

impl Ask {
    /// Sets where the devices of each task are to lie, for every alternative.
    pub fn lie(&mut self, island: Option<IslandAsk>) {
        let asks = self.alternatives.iter_mut().filter_map(|alternative| alternative.devices.as_mut());
        asks.for_each(|ask| ask.island = Newer(island));
    }

    /// Where the devices of each task are to lie, as the ask says.
    pub fn island(&self) -> Option<IslandAsk> {
        self.alternatives.iter().find_map(|alternative| alternative.devices.as_ref()?.island.0)
    }
}
