//! What places wait for on hosts: only as many of the leaving allocations as hold what the host does not have left beside them.

use std::collections::{BTreeMap, BTreeSet};

use super::settle::Leaver;
use super::trial::Trial;
use crate::amount::Resource;
use crate::id::{AllocationId, NodeId};
use crate::model::allocation::Placement;
use crate::model::extras::Extras;
use crate::model::promise::Promise;
use crate::state::{Allocation, State};

/// What hosts from which allocations leave have for the places of a cycle. Each amount is given once: what one place counts on, of
/// what is left or of what leaves, no other counts on. So in whatever order they leave, no job starts on what is still held.
pub(super) struct Room(BTreeMap<NodeId, Host>);

#[derive(Default)]
struct Host {
    /// What is left while all are still there.
    left: Amounts,
    /// What each of them leaves; those with the least time to go first.
    leaving: Vec<Leaving>,
    /// Whether it is not known which of them a job counts on that has waited since before.
    is_unclear: bool,
}

struct Leaving {
    grace_ms: i64,
    id: AllocationId,
    /// Whether it goes so that another job grows.
    grows: bool,
    leaves: Amounts,
}

impl Room {
    /// What there is before any of these places takes its part, and after the jobs that have waited since before for tasks that
    /// leave have taken theirs.
    pub(super) fn beside<'a>(
        trial: &Trial,
        leavers: &[Leaver],
        places: impl Iterator<Item = &'a Placement>,
    ) -> Self {
        let mut room = Self::of(trial, leavers, places);
        let live: BTreeSet<&AllocationId> = leavers.iter().flat_map(|leaver| leaver.live).collect();
        let leaves = |id: &AllocationId| live.contains(id) || trial.leavers.contains(id);
        let waits = |promise: &&Promise| promise.waits_for.iter().any(leaves);
        let promises = trial.state.promises.values().filter(waits).filter(|promise| trial.stands(promise));
        let mut promises: Vec<&Promise> = promises.collect();
        // Who waits for few counts on these; who waits for many may count on any of them.
        promises.sort_by_key(|promise| promise.waits_for.len());
        // What any of them draws of what is left is known only once none of them counts.
        promises.iter().for_each(|promise| room.add(promise.placements.iter()));
        promises.iter().for_each(|promise| room.take_again(promise));
        room
    }

    fn of<'a>(trial: &Trial, leavers: &[Leaver], places: impl Iterator<Item = &'a Placement>) -> Self {
        let state = trial.state;
        let mut hosts: BTreeMap<NodeId, Host> = BTreeMap::new();
        let told = leavers.iter().flat_map(|leaver| leaver.live.iter().map(|id| (*id, Some(leaver.grows))));
        // Beside these there are tasks that leave what jobs were promised before. They count as there.
        let others = trial.leavers.iter().map(|id| (*id, None));
        for (id, told) in others.chain(told).collect::<BTreeMap<_, _>>() {
            let Some(held) = state.allocations.get(&id) else { continue };
            let node = held.placement.node;
            let host = hosts.entry(node).or_insert_with(|| Host::as_it_is(trial, node));
            host.see_off(state, held, told == Some(true));
            if told.is_some() {
                host.left.add(&held.placement, -1);
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

    /// What placements need of each of these hosts.
    fn needs<'a>(&self, placements: impl Iterator<Item = &'a Placement>) -> BTreeMap<NodeId, Amounts> {
        let mut needs: BTreeMap<NodeId, Amounts> = BTreeMap::new();
        for placement in placements.filter(|placement| self.0.contains_key(&placement.node)) {
            needs.entry(placement.node).or_default().add(placement, 1);
        }
        needs
    }

    /// Takes what a promise was given before: it was told what it waits for, and waits for no other.
    fn take_again(&mut self, promise: &Promise) {
        for (node, mut need) in self.needs(promise.placements.iter()) {
            let Some(Host { left, leaving, is_unclear }) = self.0.get_mut(&node) else { continue };
            for leaving in leaving.iter_mut().filter(|leaving| promise.waits_for.contains(&leaving.id)) {
                need.draw_from(&mut leaving.leaves);
            }
            need.draw_from(left);
            *is_unclear |= !need.is_covered();
        }
    }

    /// Takes what a place needs of these hosts: from those that it waits for anyway, from what is left, and
    /// from as many others as it takes, for which it then waits, too. An `early` place waits for none that go
    /// so that others grow. A job that wants a host to itself (`alone`) waits for all on it; so does one whose part others have
    /// drawn, or may count on: once all are gone, there is enough for everyone.
    pub(super) fn take<'a>(
        &mut self,
        placements: impl Iterator<Item = &'a Placement>,
        waits_for: &mut BTreeSet<AllocationId>,
        (early, alone): (bool, bool),
    ) {
        for (node, mut need) in self.needs(placements) {
            let Some(Host { left, leaving, is_unclear }) = self.0.get_mut(&node) else { continue };
            let (known, others): (Vec<_>, Vec<_>) =
                leaving.iter_mut().partition(|leaving| waits_for.contains(&leaving.id));
            let mut waits_for_all = alone;
            for leaving in known {
                waits_for_all |= need.draw_from(&mut leaving.leaves) && *is_unclear;
            }
            need.draw_from(left);
            let mut others: Vec<_> = others.into_iter().filter(|leaving| !(early && leaving.grows)).collect();
            for leaving in &mut others {
                if need.draw_from(&mut leaving.leaves) {
                    waits_for.insert(leaving.id);
                    waits_for_all |= *is_unclear;
                }
            }
            if waits_for_all || !need.is_covered() {
                waits_for.extend(others.iter().map(|leaving| leaving.id));
            }
        }
    }
}

impl Host {
    fn as_it_is(trial: &Trial, node: NodeId) -> Self {
        Self { left: Amounts::left_on(trial, node), leaving: Vec::new(), is_unclear: false }
    }

    /// Notes that a task leaves.
    fn see_off(&mut self, state: &State, held: &Allocation, grows: bool) {
        let spec = state.jobs.get(&held.job.number).map(|job| &job.spec);
        let grace_ms = spec.map_or(0, |spec| spec.notice().grace_ms);
        let mut leaves = Amounts::default();
        leaves.add(&held.placement, 1);
        self.leaving.push(Leaving { grace_ms, id: held.placement.allocation, grows, leaves });
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

    /// Whether nothing is needed any more.
    fn is_covered(&self) -> bool {
        self.cpu_milli <= 0
            && self.memory_bytes <= 0
            && self.tasks <= 0
            && self.extras.iter().all(|(_, need)| need <= 0)
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

    /// So many tasks with a core each on the one host.
    fn tasks(count: u32) -> Vec<Placement> {
        let of = |rank| Placement {
            allocation: AllocationId(100 + u64::from(rank)),
            rank,
            node: NodeId(0),
            devices: Vec::new(),
            cpu_milli: 1000,
            memory_bytes: 0,
            extras: Extras::default(),
            alternative: 0,
        };
        (0..count).map(of).collect()
    }

    /// What one more task waits for on a host that is full, and from which tasks 1, 2, … leave with a core each, if jobs with one task
    /// each have been told before to wait for some of these.
    fn waits_beside(leaving: u64, promised: &[&[u64]]) -> Vec<u64> {
        let leaves = |id| Leaving {
            grace_ms: 0,
            id: AllocationId(id),
            grows: false,
            leaves: Amounts { cpu_milli: 1000, tasks: 1, ..Amounts::default() },
        };
        let host = Host { leaving: (1..=leaving).map(leaves).collect(), ..Host::default() };
        let mut room = Room([(NodeId(0), host)].into_iter().collect());
        let promise = |waits_for: &&[u64]| Promise {
            job: crate::id::JobId::single(1),
            placements: tasks(1),
            port: 0,
            waits_for: waits_for.iter().map(|id| AllocationId(*id)).collect(),
            grows: false,
        };
        promised.iter().map(promise).for_each(|promise| room.take_again(&promise));
        let mut waits_for = BTreeSet::new();
        room.take(tasks(1).iter(), &mut waits_for, (false, false));
        waits_for.into_iter().map(|id| id.0).collect()
    }

    #[test]
    fn one_waits_for_what_no_other_counts_on_and_for_all_where_that_is_unclear() {
        assert_eq!(waits_beside(3, &[&[1], &[1, 2]]), [3]);
        // The first counts on task 2, but the books say task 1: so they have none for the third.
        assert_eq!(waits_beside(4, &[&[1, 2], &[1, 3], &[1, 3]]), [1, 2, 3, 4]);
    }
}
