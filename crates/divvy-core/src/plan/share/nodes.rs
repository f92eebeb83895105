//! Part of phase 1, share: queues for which nodes are kept. What these nodes have, as far as they are there,
//! is the queue's guarantee and its limit; other queues have no part in it.

use super::{POOL, QueueShare, Shares};
use crate::plan::loans::is_added_up;
use crate::snapshot::Capacity;

impl Shares {
    /// Notes what of the nodes kept for queues is there, and what follows for the queues above.
    pub(super) fn note_nodes(&mut self, capacity: &Capacity) {
        if !self.queues.iter().any(|queue| queue.has_nodes) {
            return;
        }
        let Self { resources, queues, by_path, .. } = self;
        for (path, place) in by_path.iter().filter(|(_, place)| queues[**place].has_nodes).collect::<Vec<_>>()
        {
            let queue = &mut queues[*place];
            for (index, resource) in resources.iter().enumerate() {
                let Some(there) = capacity.kept_total(path, resource) else { continue };
                queue.guarantee[index] = there;
                queue.limit[index] = queue.limit[index].min(there);
            }
            queue.steady_milli = queue.guarantee[0];
        }
        (1..self.queues.len()).rev().for_each(|queue| self.guarantee_children(queue));
        if let Some(loans) = &mut self.loans {
            loans.keep_anew(&self.queues);
        }
    }

    /// Whether all that a queue has of a resource is what its own nodes have.
    pub(super) fn is_apart(&self, place: usize, resource: usize) -> bool {
        self.queues[place].has_nodes && is_added_up(&self.resources[resource])
    }

    /// What of a whole is not for those who share it: what is due to children with nodes of their own and, of all that the pool has,
    /// what is kept for those who do not want it.
    pub(super) fn apart(&self, (queue, children): (usize, &[usize]), resource: usize) -> i64 {
        let apart = children.iter().filter(|place| self.is_apart(**place, resource));
        let apart = apart.map(|place| self.own_part(*place, resource)).fold(0, i64::saturating_add);
        let unwanted = children.iter().map(|place| self.queues[*place].unwanted[resource]);
        if queue == POOL { unwanted.fold(apart, i64::saturating_add) } else { apart }
    }

    /// What is due to one of these queues: what it wants of its nodes, but for what is kept there for those who do not want it.
    pub(super) fn own_part(&self, place: usize, resource: usize) -> i64 {
        let QueueShare { wanted, guarantee, unwanted, .. } = &self.queues[place];
        wanted[resource].min(guarantee[resource].saturating_sub(unwanted[resource]))
    }
}
