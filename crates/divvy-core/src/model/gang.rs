//! A gang: a tree of groups whose leaves are roles; each starts with its minimum or not at all.

use serde::{Deserialize, Serialize};

use super::ask::Ask;
use super::job::Work;
use super::topology::TopologyAsk;

/// A group of the gang: a role, or a branch of further groups.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// A leaf: identical tasks.
    Role(Role),
    /// A branch.
    Branch(Branch),
}

/// A group of groups.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Branch {
    /// Its name, unique among its siblings.
    pub name: String,
    /// How many of its children must start together.
    pub minimum: u32,
    /// The children.
    pub groups: Vec<Group>,
    /// Where the children must lie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologyAsk>,
}

/// A group of identical tasks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Role {
    /// Its name; `main` in a job of one role.
    pub name: String,
    /// How many tasks must start together.
    pub minimum: u32,
    /// How many tasks it may grow to.
    pub maximum: u32,
    /// What each task needs.
    pub ask: Ask,
    /// What each task does.
    pub work: Work,
    /// Where the tasks must lie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologyAsk>,
}

impl Group {
    /// All roles below, in the order of their ranks.
    pub fn roles(&self) -> Vec<&Role> {
        match self {
            Group::Role(role) => vec![role],
            Group::Branch(branch) => branch.groups.iter().flat_map(Group::roles).collect(),
        }
    }

    /// Where its tasks must lie.
    pub fn topology(&self) -> Option<&TopologyAsk> {
        match self {
            Group::Role(role) => role.topology.as_ref(),
            Group::Branch(branch) => branch.topology.as_ref(),
        }
    }

    /// The groups of groups, from the outermost on.
    pub fn branches(&self) -> Vec<&Branch> {
        match self {
            Group::Role(_) => Vec::new(),
            Group::Branch(branch) => {
                let below = branch.groups.iter().flat_map(Group::branches);
                std::iter::once(branch).chain(below).collect()
            }
        }
    }

    /// The number of tasks that start together.
    pub fn tasks(&self) -> u32 {
        match self {
            Group::Role(role) => role.minimum,
            Group::Branch(branch) => branch.groups.iter().map(Group::tasks).sum(),
        }
    }
}
