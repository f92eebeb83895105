//! The fold of nodes, of jobs that ran before the log began, and of what tasks from outside the pool hold.

use super::apply::{Applied, Wrong};
use super::digest::{Entity, fingerprint};
use super::{Node, State};
use crate::id::{JobId, NodeId};
use crate::model::allocation::{AllocationState, Placement};
use crate::model::job::JobState;
use crate::model::node::{NodeSpec, NodeState, OthersHold};
use crate::time::Time;

impl State {
    /// Takes a job over as one that already runs. It is charged from now on: what it used before is in no ledger of this log.
    pub(super) fn adopt(&mut self, id: JobId, placements: &[Placement], since: Time, at: Time) -> Applied {
        self.place(id, placements, 0, at)?;
        for placement in placements {
            self.change_allocation(placement.allocation, |held| held.state = AllocationState::Held)?;
        }
        self.change_run(id, |run| {
            run.state = JobState::Running;
            (run.placed_at, run.started_at) = (Some(since.min(at)), Some(since.min(at)));
        })
    }

    /// Notes what a node is now; what tasks from outside the pool hold of it stays as it was.
    pub(super) fn see_node(&mut self, id: NodeId, spec: &NodeSpec, state: NodeState) {
        let others = self.nodes.get(&id).map(|old| old.others.clone()).unwrap_or_default();
        let node = Node { spec: spec.clone(), state, others };
        self.plus(fingerprint(&Entity::Node(id.0, &node)));
        let name = node.spec.name.clone();
        if let Some(old) = self.nodes.insert(id, node) {
            self.minus(fingerprint(&Entity::Node(id.0, &old)));
            self.names.remove(&old.spec.name);
        }
        self.names.insert(name, id);
    }

    /// Notes what tasks from outside the pool hold of a node.
    pub(super) fn leave_to_others(&mut self, id: NodeId, hold: &OthersHold) -> Applied {
        let mut node = self.nodes.remove(&id).ok_or_else(|| Wrong::Unknown(format!("node {id}")))?;
        self.minus(fingerprint(&Entity::Node(id.0, &node)));
        node.others = hold.clone();
        self.plus(fingerprint(&Entity::Node(id.0, &node)));
        self.nodes.insert(id, node);
        Ok(())
    }
}
