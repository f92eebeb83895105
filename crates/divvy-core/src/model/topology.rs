//! Topologies: named lists of levels, coarse to fine, by which nodes are near or far.

use serde::{Deserialize, Serialize};

/// One topology of the pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Topology {
    /// Its name; `default` unless the pool has several.
    pub name: String,
    /// Its levels' label keys, coarse to fine: `zone block rack node nvlink device`.
    pub levels: Vec<String>,
}

impl Default for Topology {
    fn default() -> Self {
        let levels = ["zone", "block", "rack", "node", "nvlink", "device"];
        Self { name: "default".into(), levels: levels.map(String::from).to_vec() }
    }
}

/// What a gang or one of its groups wants of a topology.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TopologyAsk {
    /// Which topology.
    pub topology: String,
    /// The level within which all must lie.
    pub within: String,
    /// Whether it must be so, or would merely be better.
    pub required: bool,
    /// A narrower level that would be better still, where `within` is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<String>,
    /// Blocks of so many tasks of a role that each lie within one domain; each kind of block divides the one before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<Slice>,
}

impl TopologyAsk {
    /// Asks for one domain of a level of the default topology.
    pub fn within(level: &str, required: bool) -> Self {
        let (topology, within) = (Topology::default().name, level.to_owned());
        Self { topology, within, required, near: None, slices: Vec::new() }
    }

    /// All levels that it names.
    pub fn levels(&self) -> impl Iterator<Item = &str> {
        let slices = self.slices.iter().map(|slice| &slice.within);
        std::iter::once(&self.within).chain(&self.near).chain(slices).map(String::as_str)
    }
}

/// A block of tasks of a role.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Slice {
    /// How many.
    pub tasks: u32,
    /// The level within which they must lie.
    pub within: String,
}

/// How the tasks of a gang, or of one of its groups, are spread over the domains of a level.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Spread {
    /// The level.
    pub over: String,
    /// How many of them may lie in one domain at most; if unsaid, as evenly as possible, wherever they have room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
    /// Whether no more may, or would merely be worse.
    pub required: bool,
}

impl Spread {
    /// How many of the tasks may lie in one domain, where that is required.
    pub fn bound(&self) -> Option<u32> {
        self.most.filter(|_| self.required)
    }
}

/// The level of which every node is a domain by itself, whether or not it says so.
pub const NODE: &str = "node";
/// Levels within a node: places of the devices of one task ([`super::island`]), in which no tasks lie.
pub const INSIDE_A_NODE: [&str; 3] = ["nvlink", "numa", "device"];
