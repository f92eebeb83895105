//! What running jobs hold on each node: the search for room asks it of every job that might give way.

use super::RunView;
use crate::id::NodeId;
use crate::state::State;

/// What a running job holds on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) node: NodeId,
    /// The number of devices of which it holds something.
    pub(crate) devices: u32,
    /// How much of them, in thousandths.
    pub(crate) milli: i64,
}

impl RunView {
    /// Notes what it holds on each node.
    pub(super) fn note_spots(&mut self, state: &State) {
        let held = self.live.iter().filter_map(|id| state.allocations.get(id));
        for placement in held.map(|held| &held.placement) {
            let (node, devices, milli) = (placement.node, placement.devices.len() as u32, placement.milli());
            match self.spots.iter_mut().find(|spot| spot.node == node) {
                Some(spot) => (spot.devices, spot.milli) = (spot.devices + devices, spot.milli + milli),
                None => self.spots.push(Spot { node, devices, milli }),
            }
        }
    }
}
