//! Devices on paper: for demonstrations, tests and planning on machines without any.

use std::hash::Hasher;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::catalogue::{self, Model};
use crate::{Device, DeviceSample, Health, MigMode, NumaNode, NvlinkPeer, PretendedGroup};

/// A pretended device has the temperature and power of an idle modern accelerator.
const IDLE_TEMPERATURE_C: u32 = 30;
const IDLE_POWER_W: u32 = 70;

/// Devices per NVLink island, as on the common eight-GPU boards.
const ISLAND: usize = 8;

/// Models with fewer links are joined by bridges that are sold separately, so they are pretended only on request.
const LEAST_BOARD_LINKS: u32 = 6;

/// Makes the devices of `groups` for the pool that keeps its state in `state_dir`, spread over the NUMA nodes.
pub(crate) fn devices(groups: &[PretendedGroup], state_dir: &Path, numa: &[NumaNode]) -> Vec<Device> {
    let mut devices: Vec<Device> = Vec::new();
    for group in groups {
        let model = catalogue::by_key(&group.model);
        let first = devices.len();
        let indices = (0..group.count).map(|i| first as u32 + i);
        devices.extend(indices.map(|index| device(group, model, (state_dir, index))));
        let lanes = model.map_or(0, |model| model.nvlinks);
        if let Some(joined) = group.bridged {
            let each = (lanes / (joined - 1)).max(1);
            devices[first..].chunks_mut(joined as usize).for_each(|island| link(island, (each, false)));
        } else if lanes >= LEAST_BOARD_LINKS {
            devices[first..].chunks_mut(ISLAND).for_each(|island| link(island, (lanes, true)));
        }
    }
    let total = devices.len();
    for (i, device) in devices.iter_mut().enumerate() {
        // As machines are built: the first half of the devices is on the first of two nodes, and so on.
        device.numa_node = numa.get(i * numa.len() / total).map(|node| node.id);
    }
    devices
}

/// Makes the sample of an idle device.
pub(crate) fn sample(device: &Device) -> DeviceSample {
    DeviceSample {
        memory_used_mib: Some(0),
        memory_total_mib: Some(device.memory_mib),
        utilization_percent: Some(0),
        temperature_c: Some(IDLE_TEMPERATURE_C),
        power_w: Some(IDLE_POWER_W),
        ..DeviceSample::unknown(&device.uuid, Health::Ok)
    }
}

fn device(group: &PretendedGroup, model: Option<&'static Model>, identity: (&Path, u32)) -> Device {
    let (state_dir, index) = identity;
    let variant =
        model.and_then(|m| m.variants.iter().find(|v| group.memory_gb.is_none_or(|gb| gb == v.memory_gb)));
    // A model of the user's own reports exactly the given size.
    let own_mib = u64::from(group.memory_gb.unwrap_or(0)) * 1024;
    Device {
        index,
        uuid: uuid(state_dir, index),
        product: model.map_or_else(|| group.model.clone(), |model| product(model, group.memory_gb)),
        model: group.model.clone(),
        memory_mib: variant.map_or(own_mib, |variant| variant.memory_mib),
        nominal_memory_gb: variant.map(|variant| variant.memory_gb).or(group.memory_gb),
        memory_bandwidth_gb_s: variant.map(|variant| variant.bandwidth_gb_s),
        pci_bus_id: Some(bus_id(index)),
        numa_node: None,
        minor_number: None,
        nvlink: Vec::new(),
        compute_capability: model.map(Model::compute_capability),
        mig_mode: MigMode::Unsupported,
    }
}

/// Returns the product's name with the requested size in the place of the usual one.
fn product(model: &Model, memory_gb: Option<u32>) -> String {
    let usual = model.variants.first().map(|variant| format!("{}GB", variant.memory_gb));
    match (memory_gb, usual) {
        (Some(gb), Some(usual)) => format!("NVIDIA {}", model.product.replace(&usual, &format!("{gb}GB"))),
        _ => format!("NVIDIA {}", model.product),
    }
}

/// Joins the devices of an island, each to each, through switches or by bridges.
fn link(island: &mut [Device], (lanes, switched): (u32, bool)) {
    let ends: Vec<(u32, String)> = island.iter().map(|device| (device.index, device.uuid.clone())).collect();
    for device in island {
        let others = ends.iter().filter(|(index, _)| *index != device.index);
        device.nvlink = others
            .map(|(index, uuid)| NvlinkPeer {
                uuid: uuid.clone(),
                pci_bus_id: bus_id(*index),
                lanes,
                switched,
            })
            .collect();
    }
}

/// Returns a PCI address in a domain without real devices.
fn bus_id(index: u32) -> String {
    format!("0000FFFF:{:02X}:{:02X}.0", index / 32, index % 32)
}

/// Hashes state directory and index into a UUID of NVML's form. A fixed key keeps it the same over restarts and
/// releases; 122 bits keep two pools apart. The version nibble is 8: a custom scheme (RFC 9562).
fn uuid(state_dir: &Path, index: u32) -> String {
    let mut hasher = SipHasher13::new_with_keys(0x6469_7676_795f_6770, 0x755f_7072_6574_656e);
    hasher.write(state_dir.as_os_str().as_bytes());
    hasher.write(&[0]);
    hasher.write(&index.to_le_bytes());
    let bits = hasher.finish128().as_u128();
    let bits = (bits & !(0xf << 76) & !(0x3 << 62)) | (0x8 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Choice;

    fn groups(text: &str) -> Vec<PretendedGroup> {
        let Ok(Choice::Pretend(groups)) = text.parse() else {
            panic!("{text} is not a list of pretended devices")
        };
        groups
    }

    fn node(id: u32) -> NumaNode {
        NumaNode { id, cpus: 4, cpu_ids: vec![], memory_bytes: 0 }
    }

    #[test]
    fn devices_carry_what_the_catalogue_says() {
        let devices = devices(&groups("pretend:1xH100,1xA100-40GB,1xtpu-16GB"), Path::new("/s"), &[node(0)]);
        let seen: Vec<_> =
            devices.iter().map(|d| (d.product.as_str(), d.memory_mib, d.nominal_memory_gb)).collect();
        assert_eq!(
            seen,
            [
                ("NVIDIA H100 80GB HBM3", 81_559, Some(80)),
                ("NVIDIA A100-SXM4-40GB", 40_960, Some(40)),
                ("tpu", 16_384, Some(16)),
            ]
        );
    }

    #[test]
    fn uuids_are_of_nvmls_form_stable_and_different_between_pools() {
        let of = |dir: &str| devices(&groups("pretend:64xH100"), Path::new(dir), &[]);
        let all: BTreeSet<String> = of("/a").into_iter().chain(of("/b")).map(|d| d.uuid).collect();
        assert_eq!(all.len(), 128);
        for uuid in &all {
            let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
            assert_eq!(lengths, [3, 8, 4, 4, 4, 12], "{uuid}");
        }
        assert_eq!(of("/a"), of("/a"));
        // Waiting jobs and history refer to these UUIDs: they must not change between releases.
        assert_eq!(uuid(Path::new("/var/lib/divvy"), 0), "GPU-ff831c37-0e97-8cdf-8bb0-10d1caf314cb");
    }

    #[test]
    fn eight_and_eight_are_islands_and_halves_are_numa_nodes() {
        let devices = devices(&groups("pretend:16xH100"), Path::new("/s"), &[node(0), node(1)]);
        assert!(devices.iter().all(|d| d.nvlink.len() == 7 && d.nvlink.iter().all(|peer| peer.lanes == 18)));
        assert_eq!(devices[0].nvlink[6].uuid, devices[7].uuid);
        assert_eq!(devices[8].nvlink[0].uuid, devices[9].uuid);
        let nodes: Vec<_> = devices.iter().map(|d| d.numa_node).collect();
        assert_eq!(nodes, [vec![Some(0); 8], vec![Some(1); 8]].concat());
    }

    #[test]
    fn cards_with_bridges_only_are_not_linked() {
        let devices = devices(&groups("pretend:2xRTX3090"), Path::new("/s"), &[]);
        assert!(devices.iter().all(|device| device.nvlink.is_empty()));
    }

    #[test]
    fn bridges_that_are_asked_for_join_so_many_each() {
        let devices = devices(&groups("pretend:4xA40/2"), Path::new("/s"), &[]);
        let peers: Vec<_> = devices.iter().map(|device| device.nvlink.as_slice()).collect();
        let is_bridged = |one: usize, other: usize| {
            peers[one].len() == 1 && peers[one][0].uuid == devices[other].uuid && !peers[one][0].switched
        };
        assert!(is_bridged(0, 1) && is_bridged(1, 0) && is_bridged(2, 3) && is_bridged(3, 2));
    }
}
