//! A trial: what is taken can be given back, to any mark. The operations are the placements themselves.

use std::collections::BTreeMap;

use crate::amount::{Amount, Holdings, Resource};
use crate::id::{AllocationId, DeviceId};
use crate::model::allocation::Placement;
use crate::model::queue::lineage;
use crate::reason::Reason;
use crate::snapshot::{Capacity, Snapshot, Waiting};
use crate::state::{State, counted};

/// The snapshot with what this cycle has taken so far.
pub(super) struct Trial<'a> {
    pub(super) state: &'a State,
    snapshot: &'a mut Snapshot,
    /// What was taken, in order, and for which queue.
    taken: Vec<(Placement, String)>,
    /// What the queues would hold beyond the snapshot.
    extra: BTreeMap<String, Holdings>,
    next_allocation: u64,
}

/// How much was taken when the mark was set.
pub(super) type Mark = usize;

impl<'a> Trial<'a> {
    pub(super) fn new(state: &'a State, snapshot: &'a mut Snapshot) -> Self {
        let next_allocation = state.next_allocation.0;
        Self { state, snapshot, taken: Vec::new(), extra: BTreeMap::new(), next_allocation }
    }

    pub(super) fn capacity(&self) -> &Capacity {
        &self.snapshot.capacity
    }

    pub(super) fn waiting(&self) -> &Waiting {
        &self.snapshot.waiting
    }

    pub(super) fn news(&self) -> u64 {
        self.snapshot.news
    }

    pub(super) fn mark(&self) -> Mark {
        self.taken.len()
    }

    /// The id that the next placement gets. Ids that a roll-back frees are given again in the same cycle: none was ever told to anyone.
    pub(super) fn next_id(&self) -> AllocationId {
        AllocationId(self.next_allocation)
    }

    pub(super) fn take(&mut self, placement: Placement, queue: &str) {
        self.snapshot.capacity.take(&placement);
        self.next_allocation = placement.allocation.0 + 1;
        self.charge(queue, &placement, 1);
        self.taken.push((placement, queue.to_owned()));
    }

    pub(super) fn roll_back_to(&mut self, mark: Mark) {
        while self.taken.len() > mark {
            let Some((placement, queue)) = self.taken.pop() else { break };
            self.snapshot.capacity.give_back(&placement);
            self.charge(&queue, &placement, -1);
            self.next_allocation = placement.allocation.0;
        }
    }

    /// What was taken since a mark.
    pub(super) fn since(&self, mark: Mark) -> Vec<Placement> {
        self.taken[mark..].iter().map(|(placement, _)| placement.clone()).collect()
    }

    fn charge(&mut self, queue: &str, placement: &Placement, sign: i64) {
        let state = self.state;
        let amounts = counted(placement, |device: DeviceId| {
            state.devices.get(&device).map(|device| device.spec.model.clone())
        });
        for path in lineage(queue) {
            let extra = self.extra.entry(path.to_owned()).or_default();
            for (resource, amount) in amounts.iter() {
                *extra.0.entry(resource.clone()).or_default() += sign * amount;
            }
        }
    }

    fn held(&self, path: &str, resource: &Resource) -> i64 {
        let of = |map: &BTreeMap<String, Holdings>| map.get(path).map_or(0, |held| held.of(resource));
        of(&self.snapshot.held) + of(&self.extra)
    }

    /// The first limit, from the queue upwards, that is exceeded by what is held together with `more` devices (milli).
    pub(super) fn exceeded(&self, queue: &str, more_milli: i64) -> Option<Reason> {
        for path in lineage(queue) {
            let Some(known) = self.state.queues.get(path) else { continue };
            for (resource, limit) in &known.limit {
                let more = if *resource == Resource::Any { more_milli } else { 0 };
                if let Amount::Finite(most) = limit
                    && !limit.allows(self.held(path, resource) + more)
                {
                    return Some(Reason::QueueLimit(path.to_owned(), resource.clone(), *most, more_milli));
                }
            }
        }
        None
    }
}
