//! A gang: a tree of groups whose leaves are roles; each starts with its minimum or not at all.

use std::collections::BTreeSet;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};

use super::ask::Ask;
use super::job::Work;
use super::newer::Newer;
use super::topology::{Spread, TopologyAsk};

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
    /// How all tasks below it are spread.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub spread: Newer<Spread>,
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
    /// How they are spread.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub spread: Newer<Spread>,
}

/// The roles of a gang; nearly all gangs have few.
pub type Roles<'a> = SmallVec<[&'a Role; 4]>;

impl Group {
    /// All roles below, in the order of their ranks.
    pub fn roles(&self) -> Roles<'_> {
        match self {
            Group::Role(role) => smallvec![role],
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

    /// How its tasks are spread.
    pub fn spread(&self) -> Option<&Spread> {
        match self {
            Group::Role(role) => role.spread.said(),
            Group::Branch(branch) => branch.spread.said(),
        }
    }

    /// All groups in it that say how they are spread, each with the ranks of its tasks, from the outermost on.
    pub fn spreads(&self) -> Vec<(Range<u32>, &Spread, &Group)> {
        let mut found = Vec::new();
        self.visit(0, &mut |ranks, group| {
            found.extend(group.spread().map(|spread| (ranks, spread, group)));
        });
        found
    }

    /// Calls `see` for every group in it with the ranks of the group's tasks, from the outermost on.
    pub(crate) fn visit<'a>(&'a self, first: u32, see: &mut dyn FnMut(Range<u32>, &'a Group)) {
        see(first..first.saturating_add(self.most_tasks()), self);
        if let Group::Branch(branch) = self {
            let mut first = first;
            for group in &branch.groups {
                group.visit(first, see);
                first = first.saturating_add(group.most_tasks());
            }
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

    /// The number of tasks that start together. A branch that needs only some of its groups counts its first ones.
    pub fn tasks(&self) -> u32 {
        match self {
            Group::Role(role) => role.minimum,
            Group::Branch(branch) => branch.required().map(Group::tasks).sum(),
        }
    }

    /// The most tasks that it may have, which is also how many ranks belong to it.
    pub fn most_tasks(&self) -> u32 {
        match self {
            Group::Role(role) => role.maximum,
            Group::Branch(branch) => branch.groups.iter().map(Group::most_tasks).sum(),
        }
    }

    /// The roles that start together. A branch that needs only some of its groups counts its first ones.
    pub fn required_roles(&self) -> Roles<'_> {
        match self {
            Group::Role(role) => smallvec![role],
            Group::Branch(branch) => branch.required().flat_map(Group::required_roles).collect(),
        }
    }

    /// Whether it may run with fewer tasks than it may have.
    pub fn is_elastic(&self) -> bool {
        match self {
            Group::Role(role) => role.minimum < role.maximum,
            Group::Branch(branch) => {
                (branch.minimum as usize) < branch.groups.len() || branch.groups.iter().any(Group::is_elastic)
            }
        }
    }

    /// Whether any of its roles can be served in several ways.
    pub fn has_alternatives(&self) -> bool {
        match self {
            Group::Role(role) => role.ask.alternatives.len() > 1,
            Group::Branch(branch) => branch.groups.iter().any(Group::has_alternatives),
        }
    }

    /// The same group with a single alternative for each role: the one with this number, or the role's last.
    pub fn by_alternative(&self, number: usize) -> Self {
        self.by_alternatives(&mut std::iter::repeat(number))
    }

    /// Likewise with one number for each role, in their order.
    pub fn by_alternatives(&self, numbers: &mut dyn Iterator<Item = usize>) -> Self {
        match self {
            Group::Role(role) => {
                let of_role = &role.ask.alternatives;
                let chosen = numbers.next().and_then(|number| of_role.get(number));
                let one = chosen.or(of_role.last()).cloned().into_iter().collect();
                let ask = Ask { alternatives: one, ..role.ask.clone() };
                Group::Role(Role { ask, ..role.clone() })
            }
            Group::Branch(branch) => {
                let groups = branch.groups.iter().map(|group| group.by_alternatives(numbers)).collect();
                Group::Branch(Branch { groups, ..branch.clone() })
            }
        }
    }

    /// Whether these ranks are at least what must run together. Each rank counts for one group only.
    pub fn is_whole(&self, ranks: &BTreeSet<u32>) -> bool {
        self.is_whole_from(0, ranks)
    }

    fn is_whole_from(&self, first: u32, ranks: &BTreeSet<u32>) -> bool {
        match self {
            Group::Role(role) => {
                let here = ranks.range(first..first.saturating_add(role.maximum)).count();
                here >= role.minimum as usize
            }
            Group::Branch(branch) => {
                let mut first = first;
                let whole = branch.groups.iter().filter(|group| {
                    let is_whole = group.is_whole_from(first, ranks);
                    first = first.saturating_add(group.most_tasks());
                    is_whole
                });
                whole.count() >= branch.minimum as usize
            }
        }
    }

    /// The index of the role that a rank belongs to, in the order of the roles.
    pub fn role_index(&self, rank: u32) -> Option<usize> {
        let mut end = 0u32;
        self.roles().iter().position(|role| {
            end = end.saturating_add(role.maximum);
            rank < end
        })
    }

    /// The role of a rank, and the task's number in it.
    pub fn role_of(&self, rank: u32) -> Option<(&Role, u32)> {
        let mut first = 0;
        self.roles().into_iter().find_map(|role| {
            let number = rank.checked_sub(first).filter(|number| *number < role.maximum);
            first += role.maximum;
            Some((role, number?))
        })
    }
}

impl Branch {
    /// The groups that are to start as long as no others would do better: the first ones.
    pub(crate) fn required(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().take(self.minimum as usize)
    }
}
