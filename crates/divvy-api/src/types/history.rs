//! Usage over time.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Which usage to sum up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct HistoryQuery {
    /// Attempts that held devices after this moment; milliseconds since 1970.
    pub since: Option<i64>,
    /// Attempts that held devices before this moment.
    pub until: Option<i64>,
    /// What to group by, separated by commas: `user`, `queue`, `project`, `kind`, `name`, `state`, `day`; one row if unsaid.
    pub by: Option<String>,
    /// By how many minutes the clock that days go by is ahead of UTC, at most 1,080 either way; 0 if unsaid.
    pub utc_offset_minutes: Option<i64>,
}

/// What one group used. Parts of attempts outside the time asked for do not count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Usage {
    /// The user, if grouped by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The queue, if grouped by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The project, if grouped by it; empty for jobs without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The kind, if grouped by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The job's name, if grouped by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The state that jobs ended in, if grouped by it; `open` for jobs that are not over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The day on which attempts started, if grouped by it: `2026-11-21`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day: Option<String>,
    /// Jobs: each counts once, in the group of its first run in the time asked for.
    pub jobs: u64,
    /// Their runs.
    pub attempts: u64,
    /// Runs that ended badly.
    pub failed: u64,
    /// Hours × devices.
    pub gpu_hours: f64,
    /// Of these, hours in which the device was held but not used; null if nothing was watched.
    pub idle_gpu_hours: Option<f64>,
    /// Mean utilisation over the hours watched.
    pub mean_utilization_percent: Option<f64>,
    /// Hours × cores.
    pub cpu_hours: f64,
    /// Most device memory that any run used.
    pub peak_gpu_memory_mib: Option<u64>,
    /// Most host memory that any run used.
    pub peak_memory_bytes: Option<u64>,
    /// Mean time from submission to the first start.
    pub mean_wait_ms: Option<i64>,
}
