//! The two clocks: the wall's for people, the monotonic one for lengths of time.

use std::time::{SystemTime, UNIX_EPOCH};

use divvy_core::time::Time;
use rustix::time::{ClockId, clock_gettime};

/// Returns the wall clock's time.
pub(crate) fn wall() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Returns the monotonic clock, which is one for all processes of a boot, in milliseconds.
pub(crate) fn monotonic_ms() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.saturating_mul(1000).saturating_add(now.tv_nsec / 1_000_000)
}
