//! Seats: how a running job lies in the pool, and what else there would be for it now. What was weighed when
//! it was placed is not kept; this looks again, with the job's own devices counted as free.

use std::collections::BTreeSet;
use std::fmt;

use super::place::draw_of;
use super::score::{Asked, Pick};
use crate::id::NodeId;
use crate::model::allocation::Placement;
use crate::model::job::JobSpec;
use crate::snapshot::{NodeView, Snapshot};

/// How a running job lies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seats {
    /// Nodes that it is on.
    pub nodes: u32,
    /// Nodes that could hold one of its tasks, its own among them.
    pub with_room: u32,
    /// Devices that are free on its nodes beside it.
    pub left_free: u32,
    /// Whether none of the others with room would have fewer devices left.
    pub fullest: bool,
    /// The narrowest level, and its domain, that all its nodes have in common; `None` on one node or where there is none.
    pub domain: Option<(String, String)>,
    /// Which of its alternatives it got, from 0: the one that it asks for first.
    pub alternative: u32,
}

/// Why it is there, in a few words.
impl fmt::Display for Seats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.nodes, self.with_room, self.fullest) {
            (1, ..=1, _) => write!(f, "the only node with room for it")?,
            (1, all, true) => {
                write!(f, "of {all} nodes with room, the one that it leaves the least free on")?
            }
            (1, all, false) => write!(f, "one of {all} nodes with room")?,
            (some, all, _) => write!(f, "{some} of {all} nodes with room")?,
        }
        if let Some((level, domain)) = &self.domain {
            write!(f, ", all in {level} {domain}")?;
        }
        match self.alternative {
            0 => Ok(()),
            other => write!(f, ", by its alternative {}", other + 1),
        }
    }
}

/// Looks at a job that has its devices.
pub(super) fn seats(snapshot: &Snapshot, spec: &JobSpec, placements: &[Placement]) -> Option<Seats> {
    let first = placements.first()?;
    let mut capacity = snapshot.capacity.clone();
    placements.iter().for_each(|placement| capacity.give_back(placement));
    let own: BTreeSet<NodeId> = placements.iter().map(|placement| placement.node).collect();
    let alternative = spec.gang.roles().first()?.ask.alternatives.get(first.alternative as usize)?;
    let asked = Asked { spec, alternative, closed: &[] };
    let has_room = |node: &&NodeView| {
        let may_do = || node.takes_tasks && node.is_open_to(spec);
        own.contains(&node.id) || may_do() && draw_of(node, &asked, Pick::Near).is_some()
    };
    let with_room: Vec<&NodeView> = capacity.nodes.iter().filter(has_room).collect();
    let (mine, others): (Vec<&NodeView>, Vec<&NodeView>) =
        with_room.iter().partition(|node| own.contains(&node.id));
    let most = mine.iter().map(|node| node.free).max().unwrap_or(0);
    let on_own = snapshot.capacity.nodes.iter().filter(|node| own.contains(&node.id));
    Some(Seats {
        nodes: own.len() as u32,
        with_room: with_room.len() as u32,
        left_free: on_own.map(|node| node.free).sum(),
        fullest: others.iter().all(|node| node.free >= most),
        domain: if own.len() > 1 { common_domain(&mine) } else { None },
        alternative: first.alternative,
    })
}

/// The narrowest domain that holds all nodes.
fn common_domain(nodes: &[&NodeView]) -> Option<(String, String)> {
    let (first, others) = nodes.split_first()?;
    let holds_all = |(level, domain): &&(String, String)| {
        others.iter().all(|node| node.domain(level) == Some(domain.as_str()))
    };
    first.domains.iter().rev().find(holds_all).cloned()
}
