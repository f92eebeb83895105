//! Jobs as they are listed and shown.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::job_file::Scalar;
use super::open::open_enum;

open_enum! {
    /// Where a job is in its life.
    JobState {
        /// Waits for its turn.
        Pending = "pending",
        /// Waits until it is released.
        Held = "held",
        /// Has its devices; not all of its tasks run yet.
        Starting = "starting",
        /// Runs.
        Running = "running",
        /// Is being paused.
        Pausing = "pausing",
        /// Sleeps, without devices.
        Paused = "paused",
        /// Is being woken.
        Resuming = "resuming",
        /// Was told to stop.
        Stopping = "stopping",
        /// Ended by itself, well.
        Completed = "completed",
        /// Ended by itself, badly.
        Failed = "failed",
        /// Was cancelled.
        Cancelled = "cancelled",
        /// Ran into its time limit.
        Timeout = "timeout",
        /// Vanished.
        Lost = "lost",
    }
}

impl JobState {
    /// Whether the job is over.
    pub fn is_ended(&self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::Timeout | Self::Lost)
    }

    /// Whether the job has not begun.
    pub fn is_waiting(&self) -> bool {
        matches!(self, Self::Pending | Self::Held)
    }
}

open_enum! {
    /// Why an attempt ended.
    Cause {
        /// A task of it exited by itself.
        Exit = "exit",
        /// A signal from outside the pool ended a task.
        Signal = "signal",
        /// Someone cancelled it.
        Cancelled = "cancelled",
        /// It reached its time limit.
        TimeLimit = "time_limit",
        /// The kernel killed it at its host memory limit.
        OutOfMemory = "out_of_memory",
        /// It ran out of device memory.
        OutOfGpuMemory = "out_of_gpu_memory",
        /// Its device failed (Xid).
        DeviceFault = "device_fault",
        /// The machine was restarted.
        NodeReboot = "node_reboot",
        /// Its supervisor vanished.
        SupervisorLost = "supervisor_lost",
        /// It could not be started.
        LaunchFailed = "launch_failed",
        /// Another task of its gang failed.
        BrokenGang = "broken_gang",
        /// What it waited for can no longer happen.
        Dependency = "dependency",
        /// Its queue is gone, or no longer takes it.
        Policy = "policy",
        /// Its devices went to a job of higher priority in its queue.
        Preempted = "preempted",
        /// Its devices went back to a queue that they are due to.
        Reclaimed = "reclaimed",
        /// Its devices went to a job that was before it in the order.
        Order = "order",
        /// It goes on elsewhere, so that another job has room.
        Moved = "moved",
        /// Others took what it held of its node.
        Crowded = "crowded",
        /// It goes on on faster devices.
        Faster = "faster",
        /// Its devices went to the job that had not run for the longest time.
        Starved = "starved",
        /// It saved its work, and asked to be run again.
        Checkpointed = "checkpointed",
        /// The pool was taken down.
        Shutdown = "shutdown",
        /// Its node was drained.
        Drain = "drain",
    }
}

/// A job, or one member of an array job, as `ps` lists it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// `12`, or `12_3` for a member of an array.
    pub id: String,
    /// A name for people.
    pub name: String,
    /// Who submitted it.
    pub user: String,
    /// The queue's path.
    pub queue: String,
    /// What it is charged to.
    #[serde(default)]
    pub project: Option<String>,
    /// Words of the user's.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Higher goes first.
    pub priority: i32,
    /// Where it is in its life.
    pub state: JobState,
    /// Whole devices asked for, all tasks together.
    pub gpus: u64,
    /// Thousandths of devices asked for, all tasks together.
    pub gpu_milli: u64,
    /// UUIDs of the devices of the current or last attempt.
    #[serde(default)]
    pub devices: Vec<String>,
    /// The machines of the current or last attempt.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// Tasks that start together.
    pub tasks: u32,
    /// Counts its runs, from 1; 0 before the first.
    pub attempt: u32,
    /// Place among the waiting jobs, from 1; null when it does not wait.
    #[serde(default)]
    pub position: Option<u64>,
    /// When it was submitted.
    pub submitted_ms: i64,
    /// When its current or last attempt started.
    #[serde(default)]
    pub started_ms: Option<i64>,
    /// When it ended for good.
    #[serde(default)]
    pub ended_ms: Option<i64>,
    /// The longest an attempt may run.
    #[serde(default)]
    pub time_limit_ms: Option<i64>,
    /// Exit code of the first task to fail, else 0; null until it has ended.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// How the last attempt ended.
    #[serde(default)]
    pub last_end: Option<LastEnd>,
    /// Why it is where it is.
    #[serde(default)]
    pub reason: Option<Reason>,
    /// What it is for: `train`, `infer`, `interactive` or `data`.
    #[serde(default)]
    pub kind: String,
    /// The command line; null for those who may not see it.
    #[serde(default)]
    pub command: Option<String>,
    /// When it is expected to start; only where that was asked for, of a job that waits.
    #[serde(flatten)]
    pub start: ExpectedStart,
}

/// When a job that waits is expected to start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ExpectedStart {
    /// As likely sooner as later; absent if nobody can say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_start_ms: Option<i64>,
    /// In four cases of five it starts at this moment or later, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_start_low_ms: Option<i64>,
    /// … and not after this one; absent where that is beyond what was looked ahead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_start_high_ms: Option<i64>,
    /// What that is based on, or why nobody can say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_start_by: Option<String>,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LastEnd {
    /// Why.
    pub cause: Cause,
    /// Through whom: a user, a job, `reservation 3`, or the pool's own rule.
    #[serde(default)]
    pub by: Option<String>,
    /// The signal that ended it.
    #[serde(default)]
    pub signal: Option<i32>,
    /// What there is to say beyond that: peak and limit, Xid, path.
    #[serde(default)]
    pub detail: Option<String>,
}

/// Why a job is where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reason {
    /// A stable code: `DV-OVER-QUOTA`.
    pub code: String,
    /// The same in words, with its numbers.
    pub text: String,
}

/// Which jobs to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct JobsQuery {
    /// Ended ones, too.
    pub all: bool,
    /// Only this user's.
    pub user: Option<String>,
    /// Only this queue's.
    pub queue: Option<String>,
    /// Only those in these states, separated by commas.
    pub state: Option<String>,
    /// Only this job, or the members of this array.
    pub job: Option<String>,
    /// At most so many rows in this page.
    pub limit: Option<u32>,
    /// `next` of the page before.
    pub after: Option<String>,
    /// Whether the newest come first.
    pub newest: bool,
    /// Whether to look ahead when those that wait are expected to start; that takes some seconds at most.
    pub start: bool,
}

/// A job with all there is to say about it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobDetail {
    /// As listed.
    #[serde(flatten)]
    pub job: Job,
    /// Program and arguments; empty for those who may not see them.
    #[serde(default)]
    pub argv: Vec<String>,
    /// Where it starts; null for those who may not see it.
    #[serde(default)]
    pub directory: Option<String>,
    /// What each task of a role asks for.
    #[serde(default)]
    pub roles: Vec<RoleDetail>,
    /// Whether each task wants a node for itself, and gets all that it has.
    #[serde(default)]
    pub exclusive: bool,
    /// How long its user thinks that it runs.
    #[serde(default)]
    pub estimate_ms: Option<i64>,
    /// How long it is likely to run, by finished jobs like it, until it has ended: as likely longer as shorter.
    #[serde(default)]
    pub foreseen_ms: Option<i64>,
    /// The same, longer in one case of ten.
    #[serde(default)]
    pub foreseen_p90_ms: Option<i64>,
    /// Jobs that must end before: `12:ok`.
    #[serde(default)]
    pub after: Vec<String>,
    /// When it may start.
    #[serde(default)]
    pub start_after_ms: Option<i64>,
    /// When it should be over.
    #[serde(default)]
    pub deadline_ms: Option<i64>,
    /// `never`, `lost` or `failure`.
    #[serde(default)]
    pub requeue: String,
    /// Whether it may be taken back.
    #[serde(default)]
    pub preemptible: bool,
    /// How it is stopped.
    #[serde(default)]
    pub stop: Option<StopDetail>,
    /// How it saves its work before it gives way; null for a job that is not told.
    #[serde(default)]
    pub checkpoint: Option<CheckpointDetail>,
    /// Whether it goes on where it was when it runs again.
    #[serde(default)]
    pub resumable: bool,
    /// When its work was last safe, in the current attempt.
    #[serde(default)]
    pub saved_ms: Option<i64>,
    /// The reservation on the calendar for which it is stopped, if it still runs then.
    #[serde(default)]
    pub stopped_for: Option<super::StoppedFor>,
    /// What is enforced and what is only advisory, for the current or last attempt.
    #[serde(default)]
    pub isolation: Option<Isolation>,
    /// The file that takes the output of the first task; null for those who may not see it.
    #[serde(default)]
    pub output: Option<String>,
    /// Its runs, oldest first.
    #[serde(default)]
    pub attempts: Vec<Attempt>,
    /// The last lines of output of the task that ended it; empty for those who may not see them.
    #[serde(default)]
    pub last_lines: Vec<String>,
}

/// How a job is asked to save its work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct CheckpointDetail {
    /// The signal that asks for it.
    pub notice: String,
    /// How long it may take.
    pub grace_ms: i64,
    /// How often the job saves by itself; null where that is not said.
    pub every_ms: Option<i64>,
}

/// What the tasks of a role ask for.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct RoleDetail {
    /// Its name; `main` in a job of one role.
    pub name: String,
    /// How many tasks, at least.
    pub tasks: u32,
    /// How many it may grow to; 0 where that is not known.
    pub max_tasks: u32,
    /// Devices per task; of several ways those of the first.
    pub gpus: u32,
    /// Which devices, as `-g` takes it without the count: `h100`, `any GPU`; empty without devices.
    pub devices: String,
    /// Where ways differ in their number of devices: each of them, the preferred first. Else empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ways: Vec<WayDetail>,
    /// Milli-cores per task; null where it is the share of the node.
    pub cpu_milli: Option<i64>,
    /// Bytes of host memory per task; null where it is the share of the node.
    pub memory_bytes: Option<i64>,
}

/// One of several ways to serve a task.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct WayDetail {
    /// Devices per task.
    pub gpus: u32,
    /// Which devices, as `-g` takes it without the count.
    pub devices: String,
}

/// How a job is stopped.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct StopDetail {
    /// The signal that announces it: `TERM`.
    pub signal: String,
    /// How long until everything is killed.
    pub grace_ms: i64,
}

/// What holds a job within what it was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Isolation {
    /// `enforced` or `advisory`.
    pub level: IsolationLevel,
    /// Why it is only advisory.
    #[serde(default)]
    pub reason: Option<String>,
}

open_enum! {
    /// How firmly.
    IsolationLevel {
        /// The machine sees to it.
        Enforced = "enforced",
        /// The job is trusted.
        Advisory = "advisory",
    }
}

/// One run of a job.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    /// From 1.
    pub attempt: u32,
    /// When its devices became its own.
    #[serde(default)]
    pub placed_ms: Option<i64>,
    /// When its first task started.
    #[serde(default)]
    pub started_ms: Option<i64>,
    /// When its last task ended.
    #[serde(default)]
    pub ended_ms: Option<i64>,
    /// How it ended.
    #[serde(default)]
    pub end: Option<LastEnd>,
    /// Exit code of the first task to fail, else 0.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// Seconds × devices.
    #[serde(default)]
    pub gpu_seconds: f64,
    /// Of these, what has to be done again: since its start, or since its work was safe. 0 where the job did not come back.
    #[serde(default)]
    pub lost_gpu_seconds: f64,
    /// Most device memory in use, of all its devices.
    #[serde(default)]
    pub peak_gpu_memory_mib: Option<u64>,
    /// Most host memory in use.
    #[serde(default)]
    pub peak_memory_bytes: Option<u64>,
    /// Mean utilisation of its devices.
    #[serde(default)]
    pub mean_utilization_percent: Option<f64>,
    /// Its tasks.
    #[serde(default)]
    pub tasks: Vec<Task>,
}

/// One process of an attempt.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Task {
    /// Its rank in the gang.
    pub task: u32,
    /// Its role.
    #[serde(default)]
    pub role: String,
    /// `promised`, `starting`, `running`, `paused`, `stopping`, `overdue` (it was told to stop, and has not ended in time) or `ended`.
    pub state: String,
    /// Its machine.
    pub node: String,
    /// Its devices.
    #[serde(default)]
    pub devices: Vec<TaskDevice>,
    /// Milli-cores.
    #[serde(default)]
    pub cpu_milli: i64,
    /// Bytes of host memory.
    #[serde(default)]
    pub memory_bytes: i64,
    /// Its process, while it runs.
    #[serde(default)]
    pub pid: Option<u32>,
    /// When it started.
    #[serde(default)]
    pub started_ms: Option<i64>,
    /// When it ended.
    #[serde(default)]
    pub ended_ms: Option<i64>,
    /// Its exit code.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(default)]
    pub signal: Option<i32>,
    /// The file that takes its output; null for those who may not see it.
    #[serde(default)]
    pub output: Option<String>,
    /// What holds it within what it was given.
    #[serde(default)]
    pub isolation: Option<Isolation>,
}

/// A device of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct TaskDevice {
    /// Its number on the machine.
    pub index: u32,
    /// The driver's name for it.
    pub uuid: String,
    /// Seconds in which it was held but not used, as far as it was watched.
    pub idle_seconds: Option<f64>,
    /// Mean utilisation.
    pub mean_utilization_percent: Option<f64>,
    /// Most memory in use.
    pub peak_memory_mib: Option<u64>,
}

/// The answer to a wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Waited {
    /// The job.
    pub id: String,
    /// Where it is in its life.
    pub state: JobState,
    /// Whether it is over; otherwise the wait ran out of time and is to be asked again.
    pub ended: bool,
    /// Exit code of the first task to fail, else 0; null if it never ran or has not ended.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(default)]
    pub signal: Option<i32>,
    /// The rank of the task that failed first; null if none did, and for an array as a whole.
    #[serde(default)]
    pub failed_task: Option<u32>,
    /// How it ended.
    #[serde(default)]
    pub last_end: Option<LastEnd>,
}

/// The answer to a change of one job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Changed {
    /// The job.
    pub id: String,
    /// Where it is now. A running job that was cancelled is `stopping`.
    pub state: JobState,
    /// Whether anything changed: cancelling an ended job does nothing.
    pub changed: bool,
    /// How many members changed, for an array named as a whole; 1 or 0 for a single job.
    #[serde(default)]
    pub members: u64,
}

/// A change of a job, or of a whole array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobChange {
    /// Its priority: `low`, `normal`, `high`, `urgent` or a whole number.
    pub priority: Scalar,
}

/// Which part of a task's output is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct OutputQuery {
    /// The task's rank; 0 if unsaid.
    pub task: Option<u32>,
    /// The first byte wanted.
    pub from: Option<u64>,
    /// Whether to go on as output comes, until the task has ended for good.
    pub follow: bool,
    /// Only so many of the last lines.
    pub lines: Option<u64>,
}
