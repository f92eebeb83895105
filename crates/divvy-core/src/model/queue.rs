//! Queues: the tree of entitlement.

mod amounts_text;
mod bounds;
mod budget;
mod budget_text;
mod guaranteed;
mod nodes;
mod nodes_text;
mod pledge;
mod text;
mod users;
mod users_text;
mod write;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::borrowing::BorrowEvicts;
use super::job::{Owner, Requeue};
use super::newer::Newer;
use super::policy::{Reclaim, WithinQueue};
use crate::amount::Limits;

pub use amounts_text::{NotAmount, read_amount};
pub use bounds::Bounds;
pub use budget::{Budget, Period, milli_gpu_hours, utc};
pub use guaranteed::{Promised, below_guarantee, beyond_limit, guaranteed, own, sayers, unkeepable};
pub use nodes::{Nodes, keeper, kept_to, overlap};
pub use pledge::Pledge;
pub(crate) use pledge::whole_devices;
pub use text::{BadQueues, Settings, bad_path, parse, parse_policy, place_of_group, place_of_nodes, places};
pub use users::{Users, seat, user_at};
pub use write::{change, write};

/// The queue that a pool has until it is told otherwise; its guarantee is the pool.
pub const DEFAULT: &str = "default";

/// A node of the tree of entitlement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Queue {
    /// Its path: `research/vision`. The part before the last slash is its parent, if the pool has a queue of that path.
    pub path: String,
    /// What it and its children may hold at most.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limit: Limits,
    /// What it gets whenever it wants it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub guarantee: Limits,
    /// What it may take beyond its guarantee from what its siblings lend; absent for as much as there is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub borrow: Limits,
    /// How much of its guarantee its siblings may use while it does not; absent for all of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lend: Limits,
    /// Its part of the surplus, relative to its siblings.
    #[serde(default = "one")]
    pub weight: u32,
    /// Siblings of higher priority go first.
    #[serde(default)]
    pub priority: i32,
    /// From which jobs inside it its jobs may take devices; absent for what the policy says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_queue: Option<WithinQueue>,
    /// From which jobs its jobs may take devices in other queues; absent for what the policy says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<Reclaim>,
    /// By what right its jobs take devices of other queues while it borrows; absent for what the policy says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub borrow_evicts: Option<BorrowEvicts>,
    /// After which ends its jobs go back into the queue, unless they say otherwise.
    #[serde(default)]
    pub requeue: Requeue,
    /// What it allows jobs that are submitted to it or to a queue below it.
    #[serde(default, skip_serializing_if = "Bounds::is_unsaid")]
    pub bounds: Bounds,
    /// Who may submit; empty for everyone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub submit: Vec<Member>,
    /// How it is divided among its users, if it is.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub users: Newer<Users>,
    /// How much device time it and the queues below it may use in a period.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub budget: Newer<Budget>,
    /// How much device time it and the queues below it get in a period if they want it.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub pledge: Newer<Pledge>,
    /// Who may end, hold and release jobs of it and of the queues below it, and set the queues below it.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub admins: Newer<Vec<Member>>,
    /// Whose jobs go into it if they name no queue.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub default_for: Newer<Vec<Member>>,
    /// The nodes that are kept for it and the queues below it; their jobs lie on no others.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub nodes: Newer<Nodes>,
}

fn one() -> u32 {
    1
}

/// A user or a group of users.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Member {
    /// One user, by name.
    User(String),
    /// All users of a group of the machine: its name and, as the shell resolved it, its id.
    Group(String, Option<u32>),
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Member::User(name) => write!(f, "user:{name}"),
            Member::Group(name, _) => write!(f, "group:{name}"),
        }
    }
}

impl Member {
    /// Whether a user with this name and these groups is meant.
    pub fn is(&self, name: &str, groups: &[u32]) -> bool {
        match self {
            Member::User(known) => known == name,
            Member::Group(_, id) => id.is_some_and(|id| groups.contains(&id)),
        }
    }

    fn takes(&self, owner: &Owner) -> bool {
        self.is(&owner.name, &owner.groups) || self.is(&owner.name, &[owner.gid])
    }
}

impl Queue {
    /// A queue of this path without any setting.
    pub fn named(path: &str) -> Self {
        Self { path: path.to_owned(), weight: 1, ..Self::default() }
    }

    /// Whether it limits what it lends or borrows.
    pub(crate) fn has_loans(&self) -> bool {
        !self.borrow.is_empty() || !self.lend.is_empty()
    }

    /// Whether the queue is the user's default: by name, and by name or group.
    fn is_default_for(&self, owner: &Owner) -> (bool, bool) {
        let members = self.default_for.said().map(Vec::as_slice).unwrap_or_default();
        let named = |member: &Member| matches!(member, Member::User(_)) && member.takes(owner);
        (members.iter().any(named), members.iter().any(|member| member.takes(owner)))
    }
}

/// Where a user's jobs go that name no queue: into the first queue that is the default for the user by name, else for one of the user's
/// groups; [`DEFAULT`] if there is none.
pub fn default_of<'a>(queues: impl IntoIterator<Item = &'a Queue>, owner: &Owner) -> &'a str {
    let (mut of_user, mut of_group) = (None, None);
    for queue in queues {
        let (by_name, by_any) = queue.is_default_for(owner);
        of_user = of_user.or(by_name.then_some(queue.path.as_str()));
        of_group = of_group.or(by_any.then_some(queue.path.as_str()));
    }
    of_user.or(of_group).unwrap_or(DEFAULT)
}

/// Who may submit to a queue, as it says itself, or else the nearest queue above it that says so; empty for everyone.
pub fn submitters<'a>(queues: &'a BTreeMap<String, Queue>, path: &str) -> &'a [Member] {
    let above = lineage(path).filter_map(|path| queues.get(path));
    above.map(|queue| queue.submit.as_slice()).find(|members| !members.is_empty()).unwrap_or_default()
}

/// Whether a user may submit to a queue.
pub fn takes(queues: &BTreeMap<String, Queue>, path: &str, owner: &Owner) -> bool {
    let members = submitters(queues, path);
    members.is_empty()
        || owner.uid == 0 && owner.name == "root"
        || members.iter().any(|member| member.takes(owner))
}

/// The paths of a queue and its ancestors, from the queue upwards: `a/b/c`, `a/b`, `a`.
pub fn lineage(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| path.rsplit_once('/').map(|(parent, _)| parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_does_not_say_whom_it_takes_takes_whom_the_one_above_takes() {
        let text = "queues:\n  open:\n  lab: {submit: [user:ana]}\n  lab/nlp:\n  lab/nlp/asr:\n  lab/cv: {submit: [user:bob]}\n";
        let queues = parse(text).unwrap().queues;
        let queues: BTreeMap<String, Queue> =
            queues.into_iter().map(|queue| (queue.path.clone(), queue)).collect();
        let user = |name: &str| Owner { name: name.into(), uid: 1000, gid: 1000, groups: vec![] };
        let of = |name: &str| -> Vec<&String> {
            queues.keys().filter(|path| takes(&queues, path, &user(name))).collect()
        };
        assert_eq!(of("ana"), ["lab", "lab/nlp", "lab/nlp/asr", "open"]);
        assert_eq!(of("bob"), ["lab/cv", "open"]);
        assert_eq!(of("eve"), ["open"]);
    }
}
