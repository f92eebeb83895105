//! Topologies: named lists of levels, coarse to fine, that say which nodes are near each other.

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

/// All levels that nodes name, coarse to fine; a node by itself is the finest. Each node names some of them in this order: one that others
/// do not name goes before the next that they do or, if there is none, behind the one before it.
pub fn levels_of<'a>(nodes: impl Iterator<Item = &'a [(String, String)]>) -> Vec<String> {
    let mut known: Vec<&str> = Vec::new();
    let mut last: &[(String, String)] = &[];
    for named in nodes.filter(|named| !named.is_empty()) {
        let alike = named.len() == last.len() && named.iter().zip(last).all(|(one, other)| one.0 == other.0);
        last = named;
        if alike {
            continue;
        }
        for (place, (level, _)) in named.iter().enumerate() {
            let at = |level: &str| known.iter().position(|known| *known == level);
            if at(level).is_some() {
                continue;
            }
            let next = named[place..].iter().find_map(|(level, _)| at(level));
            let behind = named[..place].iter().rev().find_map(|(level, _)| at(level)).map(|at| at + 1);
            known.insert(next.or(behind).unwrap_or(known.len()), level);
        }
    }
    let named = known.into_iter().filter(|level| *level != NODE).map(str::to_owned);
    named.chain([NODE.to_owned()]).collect()
}

/// What a gang or one of its groups asks of a topology.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TopologyAsk {
    /// Which topology.
    pub topology: String,
    /// The level within which all must lie.
    pub within: String,
    /// Whether this is required, or only preferred.
    pub required: bool,
    /// A narrower level that would be better still, where `within` is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<String>,
    /// Blocks of tasks of a role, each within one domain; the size of each kind of block divides that of the one before it.
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
    /// Whether the bound must hold, or exceeding it is only worse.
    pub required: bool,
}

impl Spread {
    /// How many of the tasks may lie in one domain, where that is required.
    pub fn bound(&self) -> Option<u32> {
        self.most.filter(|_| self.required)
    }
}

/// The level at which every node is a domain by itself, whether or not the node says so.
pub const NODE: &str = "node";
/// Levels within a node: domains for the devices of one task ([`super::island`]), which never hold tasks.
pub const INSIDE_A_NODE: [&str; 3] = ["nvlink", "numa", "device"];
