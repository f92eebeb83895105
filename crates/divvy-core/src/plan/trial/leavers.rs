//! What a trial counts as free though it is still held, or promised.

use std::collections::{BTreeMap, BTreeSet};

use super::{Mark, Step, Trial};
use crate::id::AllocationId;
use crate::model::allocation::Placement;
use crate::model::ask::{Alternative, DeviceAsk, DrawAsk};
use crate::model::extras::Extras;
use crate::model::gang::{Group, Role};
use crate::model::job::JobSpec;
use crate::model::promise::Promise;
use crate::plan::reserve;
use crate::state::fingerprint;

/// For how many tasks of an ask there were enough free devices beside all that was released, when that was last looked at: in
/// a cycle that only falls, unless what was placed before, or what is promised, is taken back.
#[derive(Default)]
pub(super) struct Beside {
    slots: BTreeMap<u64, u32>,
    /// How much was done when it was first looked at.
    since: Mark,
}

impl Beside {
    /// What was done after this mark is undone.
    pub(super) fn roll_back_to(&mut self, mark: Mark) {
        if mark < self.since {
            *self = Self::default();
        }
    }
}

impl<'a> Trial<'a> {
    /// Counts what is promised as if it were not promised.
    pub(in crate::plan) fn withdraw(&mut self, placement: Placement, queue: &str) {
        self.beside = Beside::default();
        self.capacity.give_back(&placement);
        self.owe(&placement, 1);
        let queue = self.limited(queue);
        self.charge(queue.as_deref(), &placement, -1);
        self.did(Step::Withdrew(placement, queue));
    }

    /// Whether a promise still stands in this cycle.
    pub(in crate::plan) fn stands(&self, promise: &Promise) -> bool {
        let is_of = |placement: &Placement| promise.placements.iter().any(|own| own == placement);
        !self.done.iter().any(|step| matches!(step, Step::Withdrew(placement, _) if is_of(placement)))
    }

    /// Corrects what was left before anything was released for a promise that is taken back; with the sign −1, for one that is not.
    pub(super) fn owe(&mut self, placement: &Placement, sign: i64) {
        let place = self.capacity.node_place(placement.node);
        if let Some(left) = place.and_then(|place| self.before.get_mut(&place)) {
            left.cpu_milli += sign * placement.cpu_milli;
            left.memory_bytes += sign * placement.memory_bytes;
            left.tasks += sign;
        }
        for (device, draw) in &placement.devices {
            if let Some(owing) = self.owing.get_mut(device) {
                *owing += sign as i32 * draw.milli as i32;
            }
        }
    }

    /// Counts what a task that is being stopped leaves beside what is promised of it. That was owed by the host, and is not any more.
    pub(in crate::plan) fn release_rest(&mut self, placement: &'a Placement, queue: &str) {
        self.release(placement, queue);
        self.owes(placement, 1);
    }

    /// Counts the rest of such a task as held again, if no job has it.
    pub(in crate::plan) fn keep_rest(&mut self, placement: &'a Placement, queue: &str) -> bool {
        let mark = self.mark();
        self.owes(placement, -1);
        let stays = self.keep(&[placement], queue);
        if !stays {
            self.roll_back_to(mark);
        }
        stays
    }

    fn owes(&mut self, placement: &'a Placement, sign: i64) {
        self.owe(placement, sign);
        self.did(Step::Owes(placement, sign));
    }

    /// The running tasks that this cycle has released and that were not kept.
    pub(in crate::plan) fn released(&self) -> impl Iterator<Item = AllocationId> {
        let mut released = BTreeSet::new();
        for step in &self.done {
            match step {
                Step::Released(placement, _) => drop(released.insert(placement.allocation)),
                Step::Kept(placement, _) => drop(released.remove(&placement.allocation)),
                _ => {}
            }
        }
        released.into_iter()
    }

    /// Counts the devices of released tasks as held again, to be rolled back: then only devices that no job has are free. What their hosts
    /// leave is shared out later (`room`), unless that counts as held, too (`with_hosts`).
    pub(in crate::plan) fn put_leavers_aside(&mut self, with_hosts: bool) {
        reserve::reserve(self);
        let released: BTreeSet<AllocationId> = self.released().collect();
        let held = self.done.iter().filter_map(|step| match step {
            Step::Released(placement, _) if released.contains(&placement.allocation) && with_hosts => {
                Some((placement.allocation, Placement::clone(placement)))
            }
            Step::Released(placement, _) if released.contains(&placement.allocation) => {
                let extras = Extras::default();
                let devices =
                    Placement { cpu_milli: 0, memory_bytes: 0, extras, ..Placement::clone(placement) };
                Some((placement.allocation, devices))
            }
            _ => None,
        });
        let held: BTreeMap<AllocationId, Placement> = held.collect();
        held.into_values().for_each(|placement| self.put_aside(placement));
    }

    /// Whether it is known that there are too few free devices for a job beside what was released.
    pub(in crate::plan) fn is_full_beside(&self, spec: &JobSpec) -> bool {
        let slots = |alternative: &Alternative| {
            let known = by_devices(alternative).and_then(|ask| self.beside.slots.get(&key(ask)));
            known.copied().unwrap_or(u32::MAX)
        };
        let lacks = |role: &Role| {
            let all = role.ask.alternatives.iter().map(slots);
            all.fold(0, u32::saturating_add) < role.minimum
        };
        // Where shares of devices are given out, tasks lie beside each other on one.
        !self.state.policy.shares
            && match &*spec.gang {
                Group::Role(role) => lacks(role),
                // Where only some of the groups are needed, others may fit.
                group => !group.is_elastic() && group.roles().into_iter().any(lacks),
            }
    }

    /// Notes for how many tasks of a job there are enough free devices; what was released is put aside, and was not at this mark.
    pub(in crate::plan) fn note_beside(&mut self, spec: &JobSpec, mark: Mark) {
        if self.beside.slots.is_empty() {
            self.beside.since = mark;
        }
        let roles = spec.gang.roles();
        let asks = roles.iter().flat_map(|role| &role.ask.alternatives).filter_map(by_devices);
        for ask in asks {
            let slots = self.capacity.shelves().of(Some(ask)).slots(ask.count.max(1));
            self.beside.slots.insert(key(ask), slots);
        }
    }
}

/// The whole devices that an alternative asks for.
fn by_devices(alternative: &Alternative) -> Option<&DeviceAsk> {
    alternative.devices.as_ref().filter(|ask| ask.draw == DrawAsk::Whole && ask.count > 0)
}

fn key(ask: &DeviceAsk) -> u64 {
    fingerprint(&(&ask.class, ask.count))
}
