//! What is remembered of queues outside the log: if the log begins anew at each start, the past of the queues is kept elsewhere.

use serde::{Deserialize, Serialize};

use crate::time::Time;

/// The past of a queue's own jobs, or of the jobs of one of its users, as of a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Recollection {
    /// Device time that was used, decayed, in GPU·ms.
    pub used_gpu_ms: i64,
    /// Device time that was missed, decayed, in GPU·ms; below zero if more was used than was due.
    pub credit_gpu_ms: i64,
    /// How much of the queue's budget is used, if it has one.
    pub spent: Option<Spent>,
    /// How much of the GPU-hours pledged to it was used in this period, in GPU·ms, and when the period ends; if any were pledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pledged: Option<(i64, Time)>,
}

/// What a queue and the queues below it have used of its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Spent {
    /// In this period, in GPU·ms.
    pub used_gpu_ms: i64,
    /// Carried over from the previous period, in GPU·ms; below zero if that used more than it was allowed.
    pub carried_gpu_ms: i64,
    /// When the period ends.
    pub until: Time,
}
