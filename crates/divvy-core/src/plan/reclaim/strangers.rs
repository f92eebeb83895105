//! Strangers: jobs of other queues on nodes that are kept for a queue. They run on as long as no job of that queue wants what
//! they have. Then they give way like any job beyond its guarantee, since nothing is guaranteed to them there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Claim, by_stops};
use crate::id::JobId;
use crate::model::allocation::Placement;
use crate::plan::fair::Fair;
use crate::plan::settle::held_by;

/// By the queue for which nodes are kept: the jobs of others that lie on them.
pub(in crate::plan) type Strangers = BTreeMap<Arc<str>, BTreeSet<JobId>>;

/// Finds places for the claim on the nodes of its queue, by stopping the strangers there.
pub(super) fn make_way(fair: &mut Fair, claim: &Claim) -> Option<Vec<Placement>> {
    if claim.starves || of(fair, claim).is_empty() {
        return None;
    }
    by_stops(fair, &Claim { strangers: true, ..claim.clone() })
}

/// The jobs of other queues that lie on the nodes of a claim's queue.
pub(super) fn of<'f>(fair: &'f Fair, claim: &Claim) -> &'f BTreeSet<JobId> {
    static NOBODY: BTreeSet<JobId> = BTreeSet::new();
    let Some(own) = claim.spec.kept_to.said() else { return &NOBODY };
    fair.strangers.get_or_init(|| all(fair)).get(own).unwrap_or(&NOBODY)
}

fn all(fair: &Fair) -> Strangers {
    let (state, capacity) = (fair.trial.state, fair.trial.capacity());
    let mut strangers = Strangers::new();
    for (id, view) in &fair.running.jobs {
        let Some(spec) = state.jobs.get(&id.number).map(|job| &job.spec) else { continue };
        for placement in held_by(state, &view.live) {
            let node = capacity.node_place(placement.node).map(|place| &capacity.nodes[place]);
            let keeper = node.filter(|node| !node.is_open_to(spec)).and_then(|node| node.kept_for.clone());
            if let Some(keeper) = keeper {
                strangers.entry(keeper).or_default().insert(*id);
            }
        }
    }
    strangers
}
