//! Where devices lie within their node: in which NVLink island, on which NUMA node, and by how many lanes any two are joined.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::device::DeviceView;
use crate::model::island::IslandLevel;

/// Where a device lies on its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Site {
    /// Its place among the node's devices.
    pub(crate) place: u32,
    /// The first device that fast links join it to, directly or over others: the number of their island.
    nvlink: u32,
    /// Its NUMA node; where that is not known, a number that no other device has.
    numa: u32,
}

impl Site {
    /// The number of its island on a level.
    pub(crate) fn island(&self, level: IslandLevel) -> u32 {
        match level {
            IslandLevel::Nvlink => self.nvlink,
            IslandLevel::Numa => self.numa,
        }
    }
}

/// By how many lanes any two devices of a node are joined.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lanes {
    devices: usize,
    between: Vec<u32>,
}

impl Lanes {
    /// The lanes between two devices, by their places.
    pub(crate) fn between(&self, one: u32, other: u32) -> u64 {
        u64::from(self.between[one as usize * self.devices + other as usize])
    }
}

/// Notes where each of a node's devices lies. Returns the lanes, unless it makes no difference which devices of an island are taken:
/// where none are joined, or where those of each island are all joined to each other, everywhere by the same number of lanes.
pub(super) fn survey(devices: &mut [DeviceView], one_numa: bool) -> Option<Arc<Lanes>> {
    for (place, device) in devices.iter_mut().enumerate() {
        let place = place as u32;
        let unknown = if one_numa { 0 } else { u32::MAX - place };
        device.site = Site { place, nvlink: place, numa: device.spec.numa.unwrap_or(unknown) };
    }
    if devices.iter().all(|device| device.spec.links.is_empty()) {
        return None;
    }
    let count = devices.len();
    let mut lanes = Lanes { devices: count, between: vec![0; count * count] };
    for (one, other, joined) in joined(devices) {
        // A link that only one end reports counts, too.
        for at in [one * count + other, other * count + one] {
            lanes.between[at] = lanes.between[at].max(joined);
        }
        let (low, high) = (devices[one].site.nvlink, devices[other].site.nvlink);
        let merged = low.min(high);
        let both = devices.iter_mut().filter(|device| [low, high].contains(&device.site.nvlink));
        both.for_each(|device| device.site.nvlink = merged);
    }
    (!is_even(devices, &lanes)).then(|| Arc::new(lanes))
}

/// The links between devices of the node, by their places, with their lanes.
fn joined(devices: &[DeviceView]) -> Vec<(usize, usize, u32)> {
    let places: BTreeMap<&str, usize> =
        devices.iter().enumerate().map(|(place, device)| (device.spec.uuid.as_str(), place)).collect();
    let mut joined = Vec::new();
    for (place, device) in devices.iter().enumerate() {
        let ends = device.spec.links.iter().filter_map(|link| Some((*places.get(link.uuid.as_str())?, link)));
        // Lanes that were not counted are at least one.
        joined.extend(
            ends.filter(|(other, _)| *other != place).map(|(other, link)| (place, other, link.lanes.max(1))),
        );
    }
    joined
}

/// Whether every device is joined to all others of its island, to at least one, and everywhere by the same number of lanes.
fn is_even(devices: &[DeviceView], lanes: &Lanes) -> bool {
    let usual = lanes.between.iter().find(|lanes| **lanes > 0).copied().unwrap_or(0);
    devices.iter().all(|one| {
        let mut others = devices.iter().filter(|other| other.site.place != one.site.place);
        let is_usual = |other: &DeviceView| {
            let between = lanes.between(one.site.place, other.site.place);
            let is_near = one.site.nvlink == other.site.nvlink;
            between == if is_near { u64::from(usual) } else { 0 }
        };
        let has_partner = devices
            .iter()
            .any(|other| other.site.place != one.site.place && other.site.nvlink == one.site.nvlink);
        has_partner && others.all(is_usual)
    })
}
