//! Pledges: guarantees in device time.

use serde::{Deserialize, Serialize};

use super::budget::{Period, UNIT};
use crate::model::device::WHOLE_MILLI;
use crate::time::{Span, Time};

/// How many GPU-hours a queue and the queues below it get in a period if they want them. A floor: while they are behind the pace that adds
/// up to it, GPUs are guaranteed to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pledge {
    /// In thousandths of GPU-hours.
    pub milli_gpu_hours: i64,
    /// From when to when.
    pub every: Period,
}

impl Pledge {
    /// What is pledged in a period, in milli-GPU·ms.
    pub fn milli_ms(&self) -> i128 {
        i128::from(self.milli_gpu_hours) * UNIT
    }

    /// The length of the period that contains a moment.
    pub fn length(&self, at: Time) -> Span {
        self.every.ends_after(at).since(self.every.begins_before(at))
    }

    /// The devices that add up to it if they are held all the time, in thousandths; what is below a thousandth is cut off.
    pub fn pace_milli(&self, at: Time) -> i64 {
        paced(self.milli_ms(), self.length(at))
    }

    /// The same in the longest of its periods.
    pub(super) fn least_pace_milli(&self) -> i64 {
        paced(self.milli_ms(), self.every.length().unwrap_or(LONGEST_MONTH))
    }
}

/// The longest period that has no length of its own.
pub(super) const LONGEST_MONTH: Span = Span(31 * 86_400_000);

/// The devices, in thousandths, that add up to so much device time in a period if they are held all the time.
pub(super) fn paced(milli_ms: i128, period: Span) -> i64 {
    i64::try_from(milli_ms / i128::from(period.0.max(1))).unwrap_or(i64::MAX)
}

/// Thousandths of devices, rounded up to whole ones.
pub(crate) fn whole_devices(milli: i128) -> i64 {
    let whole = i128::from(WHOLE_MILLI);
    i64::try_from((milli.max(0) + whole - 1) / whole * whole).unwrap_or(i64::MAX)
}
