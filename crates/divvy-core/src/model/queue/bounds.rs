//! What a queue allows its jobs, individually and all together.

use serde::{Deserialize, Serialize};

use crate::time::Span;

/// What a queue allows jobs that are submitted to it or below it; what it does not say is unbounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Bounds {
    /// The highest priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_priority: Option<i32>,
    /// The longest time limit; jobs that say none get it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_time: Option<Span>,
    /// The time limit of jobs that say none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_time: Option<Span>,
    /// How many of its jobs may wait or run at once; each member of an array counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_jobs: Option<u64>,
}

impl Bounds {
    /// Whether nothing is said.
    pub fn is_unsaid(&self) -> bool {
        *self == Self::default()
    }
}
