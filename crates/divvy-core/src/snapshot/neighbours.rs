//! Which tasks lie where, as far as any job selects others by labels: the basis of affinity. Empty where no job ever did.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::id::NodeId;
use crate::model::affinity::Others;
use crate::model::job::JobSpec;
use crate::state::State;

/// The tasks on each node, by what affinity sees of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Neighbours {
    /// The names of the labels by which jobs select others.
    keys: BTreeSet<String>,
    kinds: BTreeMap<Arc<Kind>, BTreeMap<NodeId, Count>>,
}

/// Tasks alike in what affinity sees of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind {
    /// Those of their labels by whose names any job selects others.
    pub(crate) labels: BTreeMap<String, String>,
    /// The tasks that they do not want around them.
    pub(crate) apart: Vec<Others>,
}

/// How many tasks of a kind a node has, by how sure that is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Tasks that have their places and were not told to go.
    pub(crate) there: u32,
    /// Tasks that were told to stop, that are only promised the place, or that get it in this cycle: they repel, and attract none.
    pub(crate) passing: u32,
    /// Tasks that this cycle counts as gone, and that may stay after all.
    pub(crate) released: u32,
}

/// How sure it is that a task is on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// See [`Count::there`].
    There,
    /// See [`Count::passing`].
    Passing,
    /// See [`Count::released`].
    Released,
}

impl Count {
    fn part(&mut self, presence: Presence) -> &mut u32 {
        match presence {
            Presence::There => &mut self.there,
            Presence::Passing => &mut self.passing,
            Presence::Released => &mut self.released,
        }
    }
}

impl Neighbours {
    /// No tasks at all; those to come are told apart by these labels.
    pub(crate) fn nobody(keys: &BTreeSet<String>) -> Self {
        Self { keys: keys.clone(), kinds: BTreeMap::new() }
    }

    /// All tasks that have a place, or the promise of one, told apart by these labels.
    fn all(state: &State, keys: &BTreeSet<String>) -> Self {
        let mut all = Self::nobody(keys);
        let spec = |job: crate::id::JobId| state.jobs.get(&job.number).map(|job| &job.spec);
        for held in state.allocations.values() {
            let kind = spec(held.job).and_then(|spec| all.kind(spec, held.placement.rank));
            all.add(kind, held.placement.node, held.presence());
        }
        for promise in state.promises.values() {
            for placement in &promise.placements {
                let kind = spec(promise.job).and_then(|spec| all.kind(spec, placement.rank));
                all.add(kind, placement.node, Presence::Passing);
            }
        }
        all
    }

    /// Whether any job selects others by labels.
    pub(crate) fn are_told(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Tells tasks apart also by the labels that a job outside the state looks at; returns the old value, if that changes anything.
    pub(crate) fn heed(&mut self, state: &State, spec: &JobSpec) -> Option<Self> {
        let keys = spec.heeded_labels();
        if keys.iter().all(|key| self.keys.contains(*key)) {
            return None;
        }
        let keys = self.keys.iter().map(String::as_str).chain(keys).map(str::to_owned).collect();
        Some(std::mem::replace(self, Self::all(state, &keys)))
    }

    /// What affinity sees of a task of this rank; `None` where no job selects others by labels.
    pub(crate) fn kind(&self, spec: &JobSpec, rank: u32) -> Option<Arc<Kind>> {
        kind_of(&self.keys, spec, rank)
    }

    /// Counts one more task.
    pub(crate) fn add(&mut self, kind: Option<Arc<Kind>>, node: NodeId, presence: Presence) {
        let Some(kind) = kind else { return };
        *self.kinds.entry(kind).or_default().entry(node).or_default().part(presence) += 1;
    }

    /// Counts one task less.
    pub(crate) fn remove(&mut self, kind: Option<&Arc<Kind>>, node: NodeId, presence: Presence) {
        let Some(kind) = kind else { return };
        let Some(nodes) = self.kinds.get_mut(kind) else { return };
        if let Some(count) = nodes.get_mut(&node) {
            let part = count.part(presence);
            *part = part.saturating_sub(1);
            if *count == Count::default() {
                nodes.remove(&node);
            }
        }
        if nodes.is_empty() {
            self.kinds.remove(kind);
        }
    }

    /// All kinds, and how many tasks of each are on which nodes.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = (&Arc<Kind>, &BTreeMap<NodeId, Count>)> {
        self.kinds.iter()
    }
}

/// What affinity sees of a task of this rank, where these labels tell tasks apart.
pub(crate) fn kind_of(keys: &BTreeSet<String>, spec: &JobSpec, rank: u32) -> Option<Arc<Kind>> {
    if keys.is_empty() {
        return None;
    }
    let affinity = spec.gang.role_of(rank)?.0.ask.affinity();
    let all = spec.labels_of(affinity);
    let labels = all.iter().filter(|(key, _)| keys.contains(*key));
    let labels = labels.map(|(key, value)| (key.clone(), value.clone())).collect();
    Some(Arc::new(Kind { labels, apart: affinity.apart.clone() }))
}

impl crate::state::Allocation {
    /// How sure it is that its task stays.
    pub(crate) fn presence(&self) -> Presence {
        match self.state {
            crate::model::allocation::AllocationState::Stopping => Presence::Passing,
            _ => Presence::There,
        }
    }
}
