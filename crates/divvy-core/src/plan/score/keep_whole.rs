//! The default score: tasks of a gang together, whole nodes whole, open devices before free ones.

use crate::model::ask::{DeviceAsk, DrawAsk};
use crate::plan::filter;
use crate::snapshot::NodeView;

/// Lower is better: first nodes that hold tasks of the same gang; then nodes that hold all of the gang's remaining tasks, the
/// fullest of them (whole nodes stay whole); where none does, the one that holds most, so that few nodes are joined; then the
/// fewest cores left over, then the node's place. For a share, nodes with an open device that has room come first, the one whose
/// device has the least left before the others; then the fullest.
pub(in crate::plan) type NodeScore = (bool, bool, u32, i64, usize);

/// What is asked of a node.
#[derive(Clone, Copy)]
pub(in crate::plan) struct NodeTask<'a> {
    /// Which devices, if any.
    pub(in crate::plan) ask: Option<&'a DeviceAsk>,
    /// How many tasks like it are still to be placed, this one included.
    pub(in crate::plan) remaining: u32,
    /// Whether the node holds tasks of the same gang.
    pub(in crate::plan) has_gang: bool,
}

/// Scores a node for the first of the remaining tasks.
pub(in crate::plan) fn node((place, view): (usize, &NodeView), task: NodeTask) -> NodeScore {
    let (best, left) = match task.ask {
        Some(ask @ DeviceAsk { draw: DrawAsk::Share { .. }, .. }) => match least_open(view, ask) {
            Some(left) => (true, left),
            None => (false, view.free),
        },
        ask => {
            let count = ask.map_or(0, |ask| ask.count);
            let holds_all = view.free >= count.saturating_mul(task.remaining);
            (holds_all, if holds_all { view.free } else { u32::MAX - view.free })
        }
    };
    (!task.has_gang, !best, left, view.cpu_milli.1, place)
}

/// What is left of the fullest device that is open already and has room for a share.
fn least_open(view: &NodeView, ask: &DeviceAsk) -> Option<u32> {
    let open = view.devices.iter().filter(|device| !device.is_free() && filter::fits(device, ask));
    open.map(|device| device.free_milli.unsigned_abs()).min()
}
