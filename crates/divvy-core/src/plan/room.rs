//! What places wait for on hosts: only as many of the leaving allocations as hold what the host does not have left beside them.

use std::collections::{BTreeMap, BTreeSet};

use super::settle::{Leaver, held_by};
use super::trial::Trial;
use crate::amount::Resource;
use crate::id::{AllocationId, NodeId};
use crate::model::allocation::Placement;
use crate::model::extras::Extras;
use crate::model::promise::Promise;

/// What hosts from which allocations leave have for the places of a cycle. Each amount is given once: what one place counts on, of
/// what is left or of what leaves, no other counts on. So in whatever order they leave, no job starts on what is still held.
pub(super) struct Room(BTreeMap<NodeId, Host>);

#[derive(Default)]
struct Host {
    /// What is left while all are still there.
    left: Amounts,
    /// What each of them leaves; those with the least time to go first.
    leaving: Vec<Leaving>,
}

struct Leaving {
    grace_ms: i64,
    id: AllocationId,
    /// Whether it goes so that another job grows.
    grows: bool,
    leaves: Amounts,
}

impl Room {
    /// What there is before any of these places takes its part, and after the jobs that have waited for any of the leavers
    /// since before have taken theirs.
    pub(super) fn beside<'a>(
        trial: &Trial,
        leavers: &[Leaver],
        places: impl Iterator<Item = &'a Placement>,
    ) -> Self {
        let mut room = Self::of(trial, leavers, places);
        let live: BTreeSet<&AllocationId> = leavers.iter().flat_map(|leaver| leaver.live).collect();
        let waits = |promise: &&Promise| promise.waits_for.iter().any(|id| live.contains(id));
        for promise in trial.state.promises.values().filter(waits).filter(|promise| trial.stands(promise)) {
            // It was told what it waits for, and waits for no other.
            let mut waits_for = promise.waits_for.iter().copied().collect();
            room.add(promise.placements.iter());
            room.take(promise.placements.iter(), &mut waits_for, (false, false));
        }
        room
    }

    fn of<'a>(trial: &Trial, leavers: &[Leaver], places: impl Iterator<Item = &'a Placement>) -> Self {
        let state = trial.state;
        let mut hosts: BTreeMap<NodeId, Host> = BTreeMap::new();
        for leaver in leavers {
            let spec = state.jobs.get(&leaver.job.number).map(|job| &job.spec);
            let grace_ms = spec.map_or(0, |spec| spec.notice().grace_ms);
            for held in held_by(state, leaver.live) {
                let host = || Host { left: Amounts::left_on(trial, held.node), leaving: Vec::new() };
                let host = hosts.entry(held.node).or_insert_with(host);
                host.left.add(held, -1);
                let mut leaves = Amounts::default();
                leaves.add(held, 1);
                host.leaving.push(Leaving { grace_ms, id: held.allocation, grows: leaver.grows, leaves });
            }
        }
        for host in hosts.values_mut() {
            host.leaving.sort_by_key(|leaving| (leaving.grace_ms, leaving.id));
        }
        let mut room = Self(hosts);
        room.add(places);
        room
    }

    /// Adds to what is left what is planned there: it is there until it is taken.
    fn add<'a>(&mut self, planned: impl Iterator<Item = &'a Placement>) {
        for placement in planned {
            if let Some(host) = self.0.get_mut(&placement.node) {
                host.left.add(placement, 1);
            }
        }
    }

    /// Takes what a place needs of these hosts: from those that it waits for anyway, from what is left, and
    /// from as many others as it takes, for which it then waits, too. An `early` place waits for none that go
    /// so that others grow. A job that wants a host to itself (`alone`) waits for all on it.
    pub(super) fn take<'a>(
        &mut self,
        placements: impl Iterator<Item = &'a Placement>,
        waits_for: &mut BTreeSet<AllocationId>,
        (early, alone): (bool, bool),
    ) {
        let mut needs: BTreeMap<NodeId, Amounts> = BTreeMap::new();
        for placement in placements.filter(|placement| self.0.contains_key(&placement.node)) {
            needs.entry(placement.node).or_default().add(placement, 1);
        }
        for (node, mut need) in needs {
            let Some(Host { left, leaving }) = self.0.get_mut(&node) else { continue };
            let (known, others): (Vec<_>, Vec<_>) =
                leaving.iter_mut().partition(|leaving| waits_for.contains(&leaving.id));
            for leaving in known {
                need.draw_from(&mut leaving.leaves);
            }
            need.draw_from(left);
            for leaving in others.into_iter().filter(|leaving| !(early && leaving.grows)) {
                if need.draw_from(&mut leaving.leaves) || alone {
                    waits_for.insert(leaving.id);
                }
            }
        }
    }
}

/// An amount of a host's own resources: what is left, leaves, or is needed.
#[derive(Debug, Default, PartialEq)]
struct Amounts {
    cpu_milli: i64,
    memory_bytes: i64,
    tasks: i64,
    extras: Extras,
}

impl Amounts {
    /// What is left of a host now, below zero where more is promised than there is; nothing of a host that is not there.
    fn left_on(trial: &Trial, node: NodeId) -> Self {
        let capacity = trial.capacity();
        let Some(place) = capacity.node_place(node) else { return Self::default() };
        let node = &capacity.nodes[place];
        let (cpu_milli, memory_bytes, tasks) = (node.cpu_milli.1, node.memory_bytes.1, node.most_tasks.1);
        Self { cpu_milli, memory_bytes, tasks, extras: node.extras.1.clone() }
    }

    /// Adds what a placement draws; with the sign −1 subtracts it.
    fn add(&mut self, placement: &Placement, sign: i64) {
        self.cpu_milli += sign * placement.cpu_milli;
        self.memory_bytes += sign * placement.memory_bytes;
        self.tasks += sign;
        self.extras.add(&placement.extras, sign);
    }

    /// Covers this need from what another amount has; returns whether that covers anything.
    fn draw_from(&mut self, other: &mut Self) -> bool {
        let pairs = [
            (&mut self.cpu_milli, &mut other.cpu_milli),
            (&mut self.memory_bytes, &mut other.memory_bytes),
            (&mut self.tasks, &mut other.tasks),
        ];
        let mut any = false;
        for (need, there) in pairs {
            let drawn = (*need).min(*there).max(0);
            (*need, *there, any) = (*need - drawn, *there - drawn, any || drawn > 0);
        }
        let drawn = |(resource, need): (&Resource, i64)| {
            (resource.clone(), need.min(other.extras.of(resource)).max(0))
        };
        let drawn: Extras = self.extras.iter().map(drawn).collect();
        self.extras.add(&drawn, -1);
        other.extras.add(&drawn, -1);
        any || !drawn.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(cpu_milli: i64, nics: i64) -> Amounts {
        let extras = [(Resource::from("example.com/nic"), nics)].into_iter().collect();
        Amounts { cpu_milli, extras, ..Amounts::default() }
    }

    #[test]
    fn a_need_is_covered_by_what_is_there_and_that_is_there_no_more() {
        let (mut need, mut there) = (amounts(5, 3), amounts(8, 2));
        assert!(need.draw_from(&mut there));
        assert_eq!((need, there), (amounts(0, 1), amounts(3, 0)));
    }

    #[test]
    fn who_has_nothing_of_what_is_needed_covers_nothing() {
        let (mut need, mut there) = (amounts(5, 3), amounts(-1, 0));
        assert!(!need.draw_from(&mut there));
        assert_eq!((need, there), (amounts(5, 3), amounts(-1, 0)));
    }
}
