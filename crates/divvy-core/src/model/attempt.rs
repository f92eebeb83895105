//! An attempt: one run of a job, as history keeps it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::job::{JobState, Kind, LastEnd};
use crate::engine::{DeviceUsage, Isolation};
use crate::id::JobId;
use crate::time::Time;

/// One run of a job that is over, or a job that ended without a run. Keeps everything that cannot be recorded later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// The job, or member.
    pub job: JobId,
    /// From 1.
    pub attempt: u32,
    /// The job's name.
    pub name: String,
    /// Its user's name.
    pub user: String,
    /// Its user's id.
    pub uid: u32,
    /// Its queue.
    pub queue: String,
    /// What it is charged to.
    pub project: Option<String>,
    /// What it was for.
    pub kind: Kind,
    /// The labels that its user gave it.
    pub labels: BTreeMap<String, String>,
    /// Its priority as submitted.
    pub priority: i32,
    /// Program and arguments of the first role: for its user's eyes only.
    pub command: Vec<String>,
    /// When the job was submitted.
    pub submitted_at: Time,
    /// When the attempt began to run; `None` if it never did.
    pub started_at: Option<Time>,
    /// When it was over.
    pub ended_at: Time,
    /// The longest it might have run, in milliseconds.
    pub time_limit_ms: Option<i64>,
    /// What the job was after it: an ended state, or pending.
    pub state: JobState,
    /// The exit code of the first task to fail, else 0; `None` if none ran.
    pub exit_code: Option<i32>,
    /// The rank of the task that failed first; `None` if none did, or if it was told to stop before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_task: Option<u32>,
    /// Why it ended.
    pub end: LastEnd,
    /// Whole devices that the job asked for.
    pub gpus: u32,
    /// Thousandths of devices that the job asked for.
    pub gpu_milli: i64,
    /// Tasks in the gang.
    pub tasks: u32,
    /// Where it ran.
    pub nodes: Vec<String>,
    /// The uuids of its devices.
    pub devices: Vec<String>,
    /// Device time that it held, in milli-GPU·ms: what the ledger was charged.
    pub held_milli_ms: i64,
    /// Work of this attempt that is lost because it has to be done again: device time since its start or since its work was last safe, in
    /// milli-GPU·ms. 0 if the job does not come back, or saved its work when it was told to stop.
    #[serde(default)]
    pub lost_milli_ms: i64,
    /// How long it ran, by the supervisors' monotonic clocks: the longest task, in milliseconds.
    pub ran_ms: i64,
    /// Processor time of all tasks, in milliseconds.
    pub cpu_ms: i64,
    /// The largest peak of host memory of a task, in bytes.
    pub peak_memory_bytes: i64,
    /// What telemetry saw of each device.
    pub usage: Vec<DeviceUsage>,
    /// Where its output is, by rank.
    pub outputs: Vec<Option<String>>,
    /// What kept its tasks apart from others.
    pub isolation: Option<Isolation>,
}
