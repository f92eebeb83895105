//! A trial: what is taken can be given back, to any mark. The operations are the placements themselves.

use std::collections::{BTreeMap, BTreeSet};

use crate::amount::{Amount, Holdings, Resource};
use crate::id::{AllocationId, DeviceId, NodeId};
use crate::model::allocation::Placement;
use crate::model::ask::Alternative;
use crate::model::device::WHOLE_MILLI;
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

    /// The nodes of the last so many placements.
    pub(super) fn last_nodes(&self, count: usize) -> BTreeSet<NodeId> {
        self.taken.iter().rev().take(count).map(|(placement, _)| placement.node).collect()
    }

    /// The models of which a queue may not take so many more devices (milli).
    pub(super) fn closed_models(&self, queue: &str, more_milli: i64) -> Vec<String> {
        let of_path = |path| self.state.queues.get(path).map(|known| (path, known));
        let closed = |path: &str, resource: &Resource, limit: &Amount| match resource {
            Resource::Model(model) if !limit.allows(self.held(path, resource) + more_milli) => {
                Some(model.clone())
            }
            _ => None,
        };
        let limits = lineage(queue).filter_map(of_path);
        limits
            .flat_map(|(path, known)| {
                known.limit.iter().filter_map(move |(resource, limit)| closed(path, resource, limit))
            })
            .collect()
    }

    /// The limit that closes every model which an alternative names, if one does.
    pub(super) fn model_limit(&self, queue: &str, alternative: &Alternative, tasks: u32) -> Option<Reason> {
        let ask = alternative.devices.as_ref().filter(|ask| !ask.class.models.is_empty())?;
        let more = i64::from(ask.count) * i64::from(tasks) * i64::from(WHOLE_MILLI);
        let closed = self.closed_models(queue, more);
        let model = ask.class.models.iter().find(|model| closed.contains(model))?;
        ask.class.models.iter().all(|model| closed.contains(model)).then_some(())?;
        let resource = Resource::Model(model.clone());
        let limits = lineage(queue)
            .filter_map(|path| Some((path, self.state.queues.get(path)?.limit.get(&resource)?)));
        let over = |(path, limit): (&str, &Amount)| match limit {
            Amount::Finite(most) if self.held(path, &resource) + more > *most => {
                Some((path.to_owned(), *most))
            }
            _ => None,
        };
        let (path, most) = limits.filter_map(|(path, limit)| over((path, limit))).next()?;
        Some(Reason::QueueLimit(path, resource, most, more))
    }

    fn charge(&mut self, queue: &str, placement: &Placement, sign: i64) {
        let amounts = self.amounts(placement);
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

    /// The limit that is exceeded now, if one is; what was taken since the mark is what the job asks for.
    pub(super) fn exceeded_since(&self, mark: Mark, queue: &str) -> Option<Reason> {
        let Some(Reason::QueueLimit(path, resource, limit, _)) = self.exceeded(queue, 0) else { return None };
        let asked =
            self.taken[mark..].iter().map(|(placement, _)| self.amounts(placement).of(&resource)).sum();
        Some(Reason::QueueLimit(path, resource, limit, asked))
    }

    fn amounts(&self, placement: &Placement) -> Holdings {
        counted(placement, |device: DeviceId| {
            self.state.devices.get(&device).map(|device| device.spec.model.clone())
        })
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
