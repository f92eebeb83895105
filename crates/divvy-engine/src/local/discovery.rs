//! Turns what `divvy-gpu` sees into the core's description of a node and its devices.

use std::collections::BTreeMap;

use divvy_core::engine::Observation;
use divvy_core::model::device::{DeviceSpec, Health, Link, Occupant};
use divvy_core::model::newer::Newer;
use divvy_core::model::node::{NodeSpec, NumaNode};
use divvy_gpu::{Device, LockOwner, Machine, MigMode, Occupancy};

/// Describes the node.
pub(crate) fn node(name: &str, machine: &Machine) -> NodeSpec {
    NodeSpec {
        name: name.into(),
        cpu_milli: i64::from(machine.cpus) * 1000,
        memory_bytes: bytes(machine.memory_bytes),
        numa: numa(machine),
        boot_id: machine.boot_id.clone(),
        ..NodeSpec::default()
    }
}

/// Lists the NUMA nodes, each at its own number; nodes without usable cores are empty.
fn numa(machine: &Machine) -> Vec<NumaNode> {
    let by_id: BTreeMap<u32, &divvy_gpu::NumaNode> =
        machine.numa.iter().map(|numa| (numa.id, numa)).collect();
    let last = by_id.keys().next_back().copied();
    let one = |id: u32| {
        by_id.get(&id).map_or_else(NumaNode::default, |numa| NumaNode {
            cpu_milli: i64::from(numa.cpus) * 1000,
            memory_bytes: bytes(numa.memory_bytes),
        })
    };
    last.map(|last| (0..=last).map(one).collect()).unwrap_or_default()
}

fn bytes(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Describes a device.
pub(crate) fn device(device: &Device) -> DeviceSpec {
    let link = |peer: &divvy_gpu::NvlinkPeer| Link { uuid: peer.uuid.clone(), lanes: peer.lanes };
    DeviceSpec {
        uuid: device.uuid.clone(),
        index: device.index,
        model: device.model.clone(),
        product: device.product.clone(),
        memory_mib: device.memory_mib,
        nominal_gb: device.nominal_memory_gb,
        numa: device.numa_node,
        minor: device.minor_number,
        links: device.nvlink.iter().map(link).collect(),
        slices: Vec::new(),
        bandwidth_gb_s: Newer(device.memory_bandwidth_gb_s),
    }
}

/// Tells whether tasks may be put on a device.
pub(crate) fn health(device: Option<&Device>, health: &divvy_gpu::Health) -> Health {
    match health {
        divvy_gpu::Health::Ok => match device.map(|device| (device.mig_mode, device.index)) {
            Some((MigMode::Enabled, index)) => Health::Down(format!(
                "it is in MIG mode, in which programs cannot use it as a whole; `nvidia-smi -i {index} -mig 0` ends that"
            )),
            _ => Health::Ok,
        },
        divvy_gpu::Health::Lost { reason }
        | divvy_gpu::Health::Xid { reason, .. }
        | divvy_gpu::Health::Ecc { reason } => Health::Down(reason.clone()),
    }
}

/// Returns who uses a device that the pool gave to nobody. Another pool's lock says more than its processes do.
pub(crate) fn occupant(own_state: &str, lock: Option<LockOwner>, occupancy: Occupancy) -> Option<Occupant> {
    if let Some(owner) = lock.filter(|owner| owner.pool != own_state) {
        return Some(Occupant::Pool { user: owner.user, state: owner.pool });
    }
    let or_unknown = |name: Option<String>| name.unwrap_or_else(|| "unknown".into());
    match occupancy {
        Occupancy::Free => None,
        Occupancy::Foreign { pid, user, command, memory_mib } => Some(Occupant::Process {
            pid,
            user: or_unknown(user),
            command: or_unknown(command),
            memory_mib: memory_mib.unwrap_or(0),
        }),
        Occupancy::ForeignUnknown { memory_mib, remedy } => Some(Occupant::Unknown { memory_mib, remedy }),
    }
}

/// The last reports about devices, so that only changes are reported.
#[derive(Debug, Default)]
pub(crate) struct Said {
    devices: BTreeMap<String, Remembered>,
}

#[derive(Debug, Default)]
struct Remembered {
    said: Option<(Health, Option<Occupant>)>,
    /// Whether the last look saw somebody.
    was_occupied: bool,
}

impl Said {
    /// Returns the observation to make, if it is news. `occupant` is `None` for a device that the pool has given out.
    ///
    /// An occupant must be seen twice in a row: a driver takes a moment to clean up after a task that has just ended. The
    /// first look is excepted and always reported: the pool remembers from before the start, and nothing has just ended.
    pub(crate) fn news(
        &mut self,
        uuid: &str,
        health: Health,
        occupant: Option<Occupant>,
    ) -> Option<Observation> {
        let remembered = self.devices.entry(uuid.to_owned()).or_default();
        let is_sure = remembered.said.is_none()
            || remembered.was_occupied
            || matches!(occupant, Some(Occupant::Pool { .. }));
        remembered.was_occupied = occupant.is_some();
        let occupant = occupant.filter(|_| is_sure);
        let is_said = |(said_health, said): &(Health, Option<Occupant>)| {
            *said_health == health && is_same(said.as_ref(), occupant.as_ref())
        };
        if remembered.said.as_ref().is_some_and(is_said) {
            return None;
        }
        remembered.said = Some((health.clone(), occupant.clone()));
        Some(Observation::Device { uuid: uuid.to_owned(), health, occupant })
    }

    /// Forgets the reports on devices that are gone or have to be reported again.
    pub(crate) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.devices.retain(|uuid, _| is_there(uuid));
    }
}

/// A change of only the occupant's memory is not news.
fn is_same(before: Option<&Occupant>, now: Option<&Occupant>) -> bool {
    match (before, now) {
        (Some(Occupant::Process { pid: a, .. }), Some(Occupant::Process { pid: b, .. })) => a == b,
        (Some(Occupant::Unknown { .. }), Some(Occupant::Unknown { .. })) => true,
        (before, now) => before == now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, memory_mib: u64) -> Option<Occupant> {
        Some(Occupant::Process { pid, user: "ana".into(), command: "python".into(), memory_mib })
    }

    #[test]
    fn the_first_look_is_said_whatever_it_sees() {
        assert!(Said::default().news("GPU-1", Health::Ok, None).is_some());
        let first = Said::default().news("GPU-1", Health::Ok, process(9, 100));
        assert!(matches!(first, Some(Observation::Device { occupant: Some(_), .. })));
    }

    #[test]
    fn a_device_that_is_doubted_is_said_again() {
        let mut said = Said::default();
        assert!(said.news("GPU-1", Health::Ok, None).is_some());
        said.retain(|_| false);
        assert!(said.news("GPU-1", Health::Ok, None).is_some());
    }

    #[test]
    fn a_stranger_is_said_when_seen_twice_and_once_only() {
        let mut said = Said::default();
        said.news("GPU-1", Health::Ok, None);
        assert_eq!(said.news("GPU-1", Health::Ok, process(9, 100)), None);
        assert!(said.news("GPU-1", Health::Ok, process(9, 200)).is_some());
        assert_eq!(said.news("GPU-1", Health::Ok, process(9, 300)), None);
        assert!(said.news("GPU-1", Health::Ok, None).is_some());
        assert_eq!(said.news("GPU-1", Health::Ok, None), None);
    }

    #[test]
    fn another_pool_is_said_at_once_and_our_own_lock_is_not_foreign() {
        let owner = |pool: &str| Some(LockOwner { user: "ana".into(), pool: pool.into() });
        let other = occupant("/ours", owner("/theirs"), Occupancy::Free);
        assert_eq!(other, Some(Occupant::Pool { user: "ana".into(), state: "/theirs".into() }));
        assert!(Said::default().news("GPU-1", Health::Ok, other).is_some());
        assert_eq!(occupant("/ours", owner("/ours"), Occupancy::Free), None);
    }

    #[test]
    fn sickness_and_recovery_are_said() {
        let mut said = Said::default();
        let sick = || Health::Down("fell off the bus".into());
        assert!(said.news("GPU-1", sick(), None).is_some());
        assert_eq!(said.news("GPU-1", sick(), None), None);
        assert!(said.news("GPU-1", Health::Ok, None).is_some());
    }
}
