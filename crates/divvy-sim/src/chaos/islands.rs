//! Nodes of a life whose devices are partly joined, and jobs that want joined devices.

use divvy_core::model::device::{DeviceSpec, Link};
use divvy_core::model::island::{IslandAsk, IslandLevel};
use serde::{Deserialize, Serialize};

use super::life::NodeLine;
use crate::dice::Dice;

/// How the devices of a node are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Joined {
    /// In groups of this many consecutive devices, all with all. Each group hangs on a NUMA node of its own.
    Each(u32),
    /// All in a ring, by two lanes and by one, alternately.
    Ring,
}

impl Joined {
    /// Whether it is of no devices.
    pub(super) fn joins_none(self) -> bool {
        self == Joined::Each(0)
    }

    /// Joins the devices of a node.
    pub(super) fn join(self, devices: &mut [DeviceSpec]) {
        let uuids: Vec<String> = devices.iter().map(|device| device.uuid.clone()).collect();
        let count = uuids.len();
        for (place, device) in devices.iter_mut().enumerate() {
            let link = |other: usize, lanes: u32| Link { uuid: uuids[other].clone(), lanes };
            match self {
                Joined::Each(each) => {
                    let island = place / each as usize;
                    let others =
                        (0..count).filter(|other| *other != place && other / each as usize == island);
                    device.links = others.map(|other| link(other, 1)).collect();
                    device.numa = u32::try_from(island).ok();
                }
                Joined::Ring if count > 2 => {
                    let lanes = |first: usize| if first.is_multiple_of(2) { 2 } else { 1 };
                    let (before, after) = ((place + count - 1) % count, (place + 1) % count);
                    device.links = vec![link(before, lanes(before)), link(after, lanes(place))];
                }
                Joined::Ring => {}
            }
        }
    }
}

/// Decides how the devices of nodes are joined, if they are.
pub(super) fn join(dice: &mut Dice, nodes: &mut [NodeLine]) {
    let ways =
        [None, Some(Joined::Each(2)), Some(Joined::Each(2)), Some(Joined::Each(4)), Some(Joined::Ring)];
    nodes.iter_mut().for_each(|node| node.joined = *dice.one_of(&ways));
}

/// The island that a job wants, if it wants one.
pub(super) fn wish(dice: &mut Dice) -> Option<IslandAsk> {
    let level = *dice.one_of(&[IslandLevel::Nvlink, IslandLevel::Nvlink, IslandLevel::Numa]);
    let required = dice.percent(70);
    dice.percent(60).then_some(IslandAsk { level, required })
}
