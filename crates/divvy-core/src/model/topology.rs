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
}
