//! Nodes of a life whose devices are joined in part, and jobs that want such as are.

use divvy_core::model::device::{DeviceSpec, Link};
use divvy_core::model::island::{IslandAsk, IslandLevel};
use serde::{Deserialize, Serialize};

use super::life::NodeLine;
use crate::dice::Dice;

/// How the devices of a node are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Joined {
    /// So many each that follow each other, all with all. They hang on a NUMA node for each.
    Each(u32),
    /// All in a ring, by two lanes and one in turns.
    Ring,
}

impl Joined {
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

/// Says of nodes how their devices are joined, if they are.
pub(super) fn join(dice: &mut Dice, nodes: &mut [NodeLine]) {
    let ways =
        [None, Some(Joined::Each(2)), Some(Joined::Each(2)), Some(Joined::Each(4)), Some(Joined::Ring)];
    nodes.iter_mut().for_each(|node| node.joined = *dice.one_of(&ways));
}

/// What a job wants of them, if it wants anything.
pub(super) fn wish(dice: &mut Dice) -> Option<IslandAsk> {
    let level = *dice.one_of(&[IslandLevel::Nvlink, IslandLevel::Nvlink, IslandLevel::Numa]);
    let required = dice.percent(70);
    dice.percent(60).then_some(IslandAsk { level, required })
}
