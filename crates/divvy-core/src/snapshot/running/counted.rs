//! How many of a running job's devices count: for what it gives back, and for its place in the order.

use super::RunView;

impl RunView {
    /// The least that it gives back when it gives way, in thousandths of devices: any part of them, if it may run with fewer tasks.
    pub(super) fn least_milli(&self) -> i64 {
        if self.elastic { 0 } else { self.milli }
    }

    /// The devices that count for its place in the order, in thousandths: not those that a gang has beyond what it starts with, or it
    /// would fall behind jobs like it by growing; nor those that one gets with its node, which are not known while it waits.
    pub(crate) fn order_milli(&self) -> i64 {
        if self.elastic || self.queue.0.exclusive {
            self.milli.min(self.queue.0.most_milli())
        } else {
            self.milli
        }
    }
}
