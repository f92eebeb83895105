//! The policy: the settings of the planner, part of the state and changed by events like all else.

use serde::{Deserialize, Serialize};

/// How jobs of one queue are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Priority plus waiting at one slope.
    #[default]
    Arrival,
}

/// The settings of the planner.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// How jobs are ordered.
    pub order: Order,
    /// How long a job waits for one point of priority, in milliseconds. The default lets a normal job pass a high one that came a week later.
    pub ageing_ms_per_point: i64,
    /// Grace until the rest of a broken gang is killed, in milliseconds, where the job says nothing.
    pub broken_gang_grace_ms: i64,
}

/// A week for the hundred points between normal and high.
const AGEING_MS_PER_POINT: i64 = 7 * 86_400_000 / 100;

impl Default for Policy {
    fn default() -> Self {
        Self { order: Order::Arrival, ageing_ms_per_point: AGEING_MS_PER_POINT, broken_gang_grace_ms: 10_000 }
    }
}
