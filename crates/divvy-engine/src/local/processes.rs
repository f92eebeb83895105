//! Finds the allocation of a process, for callers that see processes by pid.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use divvy_core::id::AllocationId;

use super::outbox::lock;
use super::tree;
use super::usage::Meter;

/// A task that is being run.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// The pid of its supervisor; 0 while it is not known.
    pub(crate) supervisor: u32,
    /// Its devices, by uuid.
    pub(crate) devices: Vec<String>,
    /// What it has used of them so far.
    pub(crate) meter: Meter,
}

/// Knows the tasks that run. Clones share what they know; all may be used from any thread.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    held: Arc<Mutex<BTreeMap<AllocationId, Held>>>,
    /// Devices that a launch found locked: the pool takes them for another's until the next look.
    doubted: Arc<Mutex<BTreeSet<String>>>,
}

impl Processes {
    /// Returns the allocation of a process, found by descent from a supervisor: all processes of a task descend
    /// from theirs.
    pub fn allocation_of(&self, pid: u32) -> Option<AllocationId> {
        let supervisors: BTreeMap<u32, AllocationId> =
            self.held().iter().map(|(allocation, held)| (held.supervisor, *allocation)).collect();
        find(&supervisors, pid, |pid| tree::look(pid).map(|seen| seen.parent))
    }

    /// Has a device reported again at the next look, whatever was reported before.
    pub(crate) fn doubt(&self, uuid: &str) {
        lock(&self.doubted).insert(uuid.to_owned());
    }

    pub(crate) fn take_doubted(&self) -> BTreeSet<String> {
        std::mem::take(&mut lock(&self.doubted))
    }

    pub(crate) fn held(&self) -> MutexGuard<'_, BTreeMap<AllocationId, Held>> {
        lock(&self.held)
    }
}

fn find(
    supervisors: &BTreeMap<u32, AllocationId>,
    pid: u32,
    parent: impl Fn(u32) -> Option<u32>,
) -> Option<AllocationId> {
    /// No tree is this deep; reused pids cannot keep the climb going forever.
    const MOST_GENERATIONS: usize = 1000;
    let ancestry = std::iter::successors(Some(pid), |pid| parent(*pid).filter(|parent| *parent > 1));
    ancestry.take(MOST_GENERATIONS).find_map(|pid| supervisors.get(&pid).copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_belongs_to_the_nearest_supervisor_above_it() {
        let supervisors = BTreeMap::from([(10, AllocationId(1)), (20, AllocationId(2))]);
        let parent = |pid| match pid {
            11 => Some(10),
            20 => Some(11),
            21 => Some(20),
            _ => Some(1),
        };
        assert_eq!(find(&supervisors, 11, parent), Some(AllocationId(1)));
        assert_eq!(find(&supervisors, 21, parent), Some(AllocationId(2)));
        assert_eq!(find(&supervisors, 30, parent), None);
        assert_eq!(find(&supervisors, 30, |_| Some(30)), None);
    }
}
