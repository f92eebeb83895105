//! The calendar: what is kept from which moment on, and what follows from that now.

use std::collections::{BTreeMap, BTreeSet};

use super::apply::{Applied, Wrong};
use super::digest::{Entity, fingerprint};
use super::{Device, State};
use crate::event::Event;
use crate::id::{AllocationId, DeviceId, JobId, NodeId};
use crate::model::allocation::{AllocationState, Placement};
use crate::model::node::NodeState;
use crate::model::parts;
use crate::model::reservation::{Purpose, Reservation};
use crate::time::Time;

/// What part of a run has to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Goes {
    /// Nothing.
    Nothing,
    /// These tasks: the rest runs on.
    Tasks(Vec<AllocationId>),
    /// All of it.
    All,
}

impl State {
    /// When the next reservation begins or ends.
    pub fn calendar_due(&self) -> Option<Time> {
        let begin = |kept: &Reservation| (!kept.began).then_some(kept.from);
        self.reservations.iter().flat_map(|kept| begin(kept).into_iter().chain(kept.until)).min()
    }

    /// What has begun or ended on the calendar up to a moment and is not yet noted.
    pub fn calendar_news(&self, now: Time) -> Vec<Event> {
        let news = |kept: &Reservation| match kept.until {
            Some(until) if until <= now => Some(Event::ReservationEnded { id: kept.id, by: None }),
            _ if !kept.began && kept.from <= now => Some(Event::ReservationBegan { id: kept.id }),
            _ => None,
        };
        self.reservations.iter().filter_map(news).collect()
    }

    /// Whether a node takes tasks: it is ready, and not drained as a whole.
    pub fn takes_tasks(&self, id: NodeId) -> bool {
        self.takes_tasks_at(id, None)
    }

    /// Likewise under the present drains; for a future moment, without those that are over by then.
    pub(crate) fn takes_tasks_at(&self, id: NodeId, at: Option<Time>) -> bool {
        let is_ready = self.nodes.get(&id).is_some_and(|node| node.state == NodeState::Ready);
        let mut parts = self.drains(at).flat_map(|kept| &kept.parts);
        is_ready && !parts.any(|part| part.node == id && part.devices.is_empty())
    }

    /// Whether a device is drained by itself.
    pub fn is_drained(&self, id: DeviceId) -> bool {
        self.is_drained_at(id, None)
    }

    /// Likewise under the present drains; for a future moment, without those that are over by then.
    pub(crate) fn is_drained_at(&self, id: DeviceId, at: Option<Time>) -> bool {
        self.drains(at).flat_map(|kept| &kept.parts).any(|part| part.devices.contains(&id))
    }

    fn drains(&self, at: Option<Time>) -> impl Iterator<Item = &Reservation> {
        let is_over = move |kept: &Reservation| kept.until.zip(at).is_some_and(|(until, at)| until <= at);
        self.reservations.iter().filter(move |kept| kept.is_drain_now() && !is_over(kept))
    }

    /// Whether any reservation, begun or future, covers a device.
    pub(crate) fn is_reserved(&self, node: NodeId, device: DeviceId) -> bool {
        self.reservations.iter().any(|kept| kept.parts.iter().any(|part| part.has(node, device)))
    }

    /// Whether a reservation that has begun, or the nodes kept for a queue, keep a placement from a job.
    pub(crate) fn is_kept_from(&self, job: JobId, placement: &Placement) -> bool {
        let spec = self.jobs.get(&job.number).map(|job| &job.spec);
        if self.keeps_nodes() && spec.is_some_and(|spec| !self.is_open_to(spec, placement.node)) {
            return true;
        }
        let keeps = |kept: &Reservation| {
            kept.began && kept.is_under(placement) && !spec.is_some_and(|spec| kept.is_for(spec))
        };
        self.reservations.iter().any(keeps)
    }

    /// The first reservation to begin for which a run is going to be stopped where it lies; it says when.
    pub fn stopped_for(&self, id: JobId) -> Option<&Reservation> {
        let spec = &self.jobs.get(&id.number)?.spec;
        let stops = |kept: &&Reservation| {
            let is_meant = kept.evicts && !kept.began && !kept.is_for(spec);
            is_meant && self.goes_of(id, |held| kept.is_under(held)) == Goes::All
        };
        self.reservations.iter().filter(stops).min_by_key(|kept| (kept.from, kept.id))
    }

    /// What must go of a run so that none of it stays in a place: only the surplus there, if the gang may run with less and that is enough.
    pub(crate) fn goes_of(&self, id: JobId, lies_there: impl Fn(&Placement) -> bool) -> Goes {
        let run = self.run(id).filter(|run| run.stopping.is_none());
        let Some((job, run)) = self.jobs.get(&id.number).zip(run) else { return Goes::Nothing };
        let held = run.live.iter().filter_map(|id| self.allocations.get(id));
        let held = held.filter(|held| held.state != AllocationState::Stopping).map(|held| &held.placement);
        let by_rank: BTreeMap<u32, &Placement> = held.map(|held| (held.rank, held)).collect();
        let there = by_rank.iter().filter(|(_, held)| lies_there(held)).map(|(rank, _)| *rank);
        let mut there: BTreeSet<u32> = there.collect();
        if there.is_empty() {
            return Goes::Nothing;
        }
        let mut goes: BTreeSet<AllocationId> = BTreeSet::new();
        for part in parts::surplus(&job.spec.gang, &by_rank.keys().copied().collect()) {
            let before = there.len();
            there.retain(|rank| !part.contains(rank));
            if there.len() < before {
                goes.extend(by_rank.range(part).map(|(_, held)| held.allocation));
            }
        }
        if there.is_empty() { Goes::Tasks(goes.into_iter().collect()) } else { Goes::All }
    }

    /// The reservations that keep a device, or its whole node, in the order in which they begin.
    pub fn reservations_of(&self, id: DeviceId, device: &Device) -> Vec<&Reservation> {
        let has = |kept: &&Reservation| kept.parts.iter().any(|part| part.has(device.node, id));
        let mut found: Vec<&Reservation> = self.reservations.iter().filter(has).collect();
        found.sort_by_key(|kept| (!kept.began, kept.from, kept.id));
        found
    }

    /// The devices that are kept for queues now, each with its queue.
    pub fn reserved_now(&self) -> impl Iterator<Item = (&str, DeviceId, &Device)> {
        let kept = self.reservations.iter().filter(|kept| kept.began);
        kept.flat_map(|kept| {
            let queue = if let Purpose::Queue(queue) = &kept.purpose { Some(queue.as_str()) } else { None };
            let devices = kept
                .parts
                .iter()
                .flat_map(|part| self.devices.iter().filter(|(id, device)| part.has(device.node, **id)));
            queue.into_iter().flat_map(move |queue| devices.clone().map(move |(id, it)| (queue, *id, it)))
        })
    }

    /// The name, for people, of the node or device that a reservation drains, if it drains just one.
    pub fn drained_by(&self, kept: &Reservation) -> Option<String> {
        let [part] = kept.parts.as_slice() else { return None };
        let node = &self.nodes.get(&part.node)?.spec.name;
        let index = |id: &DeviceId| self.devices.get(id).map(|device| device.spec.index);
        match (&kept.purpose, part.devices.as_slice()) {
            (Purpose::Queue(_), _) => None,
            (Purpose::Maintenance, []) => Some(node.clone()),
            (Purpose::Maintenance, [one]) => Some(format!("{node}:{}", index(one)?)),
            _ => None,
        }
    }

    pub(super) fn reserve(&mut self, made: &Reservation) -> Applied {
        if made.id < self.next_reservation {
            return Err(Wrong::Impossible(format!("reservation {} is there already", made.id)));
        }
        self.next_reservation = made.id + 1;
        self.plus(fingerprint(&Entity::Reservation(made)));
        self.reservations.push(made.clone());
        Ok(())
    }

    pub(super) fn begin_reservation(&mut self, id: u64) -> Applied {
        let mut kept = self.end_reservation(id)?;
        kept.began = true;
        self.plus(fingerprint(&Entity::Reservation(&kept)));
        let place = self.reservations.partition_point(|other| other.id < id);
        self.reservations.insert(place, kept);
        Ok(())
    }

    pub(super) fn end_reservation(&mut self, id: u64) -> Result<Reservation, Wrong> {
        let place = self.reservations.iter().position(|kept| kept.id == id);
        let place = place.ok_or_else(|| Wrong::Unknown(format!("reservation {id}")))?;
        let kept = self.reservations.remove(place);
        self.minus(fingerprint(&Entity::Reservation(&kept)));
        Ok(kept)
    }
}
