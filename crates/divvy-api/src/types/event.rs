//! What happens in the pool, as a stream.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{JobState, Reason};

/// Which events to stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Only this job's (an array's members included).
    pub job: Option<String>,
    /// Only this queue's.
    pub queue: Option<String>,
}

/// Something that happened: the `data:` of a server-sent event. Its `event:` repeats `kind`, its `id:` the position.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// The position in the log.
    pub position: u64,
    /// When.
    pub at_ms: i64,
    /// `job`, `device`, `node`, `queue` or `pool`; further words may come.
    pub kind: String,
    /// What happened, in words: `12 started on n1: 4 GPUs`.
    pub text: String,
    /// The job that it is about.
    #[serde(default)]
    pub job: Option<String>,
    /// The job's name.
    #[serde(default)]
    pub name: Option<String>,
    /// The job's user.
    #[serde(default)]
    pub user: Option<String>,
    /// The job's queue.
    #[serde(default)]
    pub queue: Option<String>,
    /// The job's state after it.
    #[serde(default)]
    pub state: Option<JobState>,
    /// The job's reason after it.
    #[serde(default)]
    pub reason: Option<Reason>,
    /// The devices that it is about.
    #[serde(default)]
    pub devices: Vec<String>,
}
