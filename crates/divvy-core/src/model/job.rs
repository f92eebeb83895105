//! A job: what a user wants to run, and what became of it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::gang::Group;
use super::newer::Newer;
use crate::id::JobId;
use crate::time::{Span, Time};

/// Priorities that have names.
pub mod priority {
    /// Below everyday work.
    pub const LOW: i32 = -100;
    /// Everyday work.
    pub const NORMAL: i32 = 0;
    /// Above everyday work.
    pub const HIGH: i32 = 100;
    /// Before everything else.
    pub const URGENT: i32 = 1000;

    /// Writes a priority by its name, if it has one.
    pub fn named(priority: i32) -> String {
        match priority {
            LOW => "low".into(),
            NORMAL => "normal".into(),
            HIGH => "high".into(),
            URGENT => "urgent".into(),
            other => other.to_string(),
        }
    }

    /// Reads a name or a number.
    pub fn parse(text: &str) -> Option<i32> {
        match text {
            "low" => Some(LOW),
            "normal" => Some(NORMAL),
            "high" => Some(HIGH),
            "urgent" => Some(URGENT),
            number => number.parse().ok(),
        }
    }
}

/// Whether a job ends by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifetime {
    /// It does.
    #[default]
    Batch,
    /// It runs until it is told to stop.
    Service,
}

/// What a job is for; reports group by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Training.
    #[default]
    Train,
    /// Inference.
    Infer,
    /// A person at a terminal or notebook.
    Interactive,
    /// Preparing data.
    Data,
}

/// After which ends a job goes back into its queue by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Requeue {
    /// None.
    Never,
    /// Ends that it did not cause: a lost supervisor, a reboot, a device that died, a failed launch.
    #[default]
    Lost,
    /// Those ends, and its own failure.
    Failure,
}

/// A job that must end before this one may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Dependency {
    /// The other job; the array as a whole if no member is named.
    pub job: JobId,
    /// How it must have ended.
    pub on: DependsOn,
}

/// How the other job must have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DependsOn {
    /// Completed.
    #[default]
    Ok,
    /// Ended in any other way.
    Fail,
    /// Ended.
    Any,
}

/// How a job is told to stop.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StopOrder {
    /// The signal that announces it, without `SIG`: `TERM`.
    pub signal: Cow<'static, str>,
    /// How long it may take before everything of it is killed, in milliseconds.
    pub grace_ms: i64,
}

impl Default for StopOrder {
    fn default() -> Self {
        Self { signal: "TERM".into(), grace_ms: 10_000 }
    }
}

/// How a job's work survives a stop: it hears the notice, saves its work within the grace, and exits with
/// [`RUN_ME_AGAIN`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The signal that asks for one.
    pub notice: String,
    /// How long it may take, in milliseconds.
    pub grace_ms: i64,
    /// How often the job makes one by itself, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_ms: Option<i64>,
}

/// The exit code that says: my work is saved, run me again.
pub const RUN_ME_AGAIN: i32 = 85;

/// A forecast of how long a job will run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Estimate {
    /// The median: as likely too short as too long, in milliseconds.
    pub p50_ms: i64,
    /// Exceeded in one case of ten, in milliseconds.
    pub p90_ms: i64,
    /// The model that made the forecast.
    pub model: String,
    /// How soon it can be expected to end, by how long it has run: rising moments, the first of them 0. Empty if only the length is
    /// forecast.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outlook: Vec<Prospect>,
}

/// What can be expected of a job that has run for some time and is still running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Prospect {
    /// How long it has run, at least, in milliseconds.
    pub after_ms: i64,
    /// Device time that one end among such jobs costs from there on, in milliseconds: what all of them use of the further time given to
    /// each, divided by how many end within it, for the further time that makes this least.
    pub per_end_device_ms: i64,
}

/// Who a job belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The user's name.
    pub name: String,
    /// The user's id, where jobs are processes.
    #[serde(default)]
    pub uid: u32,
    /// The user's group.
    #[serde(default)]
    pub gid: u32,
    /// The user's further groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<u32>,
}

/// What a task does.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// A process that the engine starts.
    Process(Process),
    /// Something that runs by other means (pods): the outside name of each task, by its number in the role.
    External(Vec<String>),
}

/// A process, without its environment, which holds secrets and stays out of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Process {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Where it starts.
    pub directory: String,
    /// Where its output goes.
    pub output: Output,
    /// The umask: permissions that new files do not get.
    #[serde(default = "usual_umask")]
    pub umask: u32,
    /// Limits of the submitting shell: name as in `prlimit` (`NOFILE`), soft, hard.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<(String, u64, u64)>,
    /// A unix socket on which a terminal waits for this process; the process then runs on a pseudo-terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<String>,
}

fn usual_umask() -> u32 {
    0o022
}

/// Where the output of a process goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// Into the state directory.
    #[default]
    Kept,
    /// To a file of the user: an absolute path in which `%j %A %a %x %u` stand for job, array, member, name and user.
    Path(String),
}

/// What a user wants to run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobSpec {
    /// A name for people.
    pub name: String,
    /// The queue's path: `research/vision`.
    pub queue: String,
    /// What it is charged to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// What it is for.
    #[serde(default)]
    pub kind: Kind,
    /// Labels that its user gave it, for reports.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Higher goes first.
    #[serde(default)]
    pub priority: i32,
    /// Whether its devices may be taken for other jobs.
    #[serde(default = "yes")]
    pub preemptible: bool,
    /// Whether it can continue from where it was stopped.
    #[serde(default)]
    pub resumable: bool,
    /// Whether it ends by itself.
    #[serde(default)]
    pub lifetime: Lifetime,
    /// Its tasks, shared with copies of the job and between jobs that are made alike.
    pub gang: Arc<Group>,
    /// The longest an attempt may run, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<Span>,
    /// How long its user expects it to run, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Span>,
    /// When it goes back into the queue.
    #[serde(default)]
    pub requeue: Requeue,
    /// How often it may go back, at most.
    #[serde(default = "usual_restarts")]
    pub most_restarts: u32,
    /// The jobs that must end first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Dependency>,
    /// When it may start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_after: Option<Time>,
    /// How it is stopped.
    #[serde(default)]
    pub stop: StopOrder,
    /// How its work survives a stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
    /// Whether it waits for capacity that the pool does not have.
    #[serde(default)]
    pub wait_for_capacity: bool,
    /// Whether it wants its nodes for itself, with all that they have.
    #[serde(default)]
    pub exclusive: bool,
    /// Its user's seat below its queue, if the queue is divided among its users; set by the fold.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub seat: Newer<Arc<str>>,
    /// When its user would like it to be over; no decision depends on it.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub deadline: Newer<Time>,
    /// Whether other jobs may be stopped or moved for it; unsaid means that they may.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub preempts: Newer<bool>,
    /// The queue, its own or one above it, to whose nodes it is kept; set by the fold.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub kept_to: Newer<Arc<str>>,
}

impl JobSpec {
    /// Whether other jobs may be stopped or moved for it; if not, it waits until there is free room.
    pub fn may_preempt(&self) -> bool {
        self.preempts.said() != Some(&false)
    }

    /// Whether its tasks are run by other means. When they are over, it is up to whatever made them to make new ones.
    pub fn runs_outside(&self) -> bool {
        self.gang.roles().iter().any(|role| matches!(role.work, Work::External(_)))
    }

    /// Where it stands when the pool is divided: at its user's seat in its queue, or at the queue itself.
    pub fn stand(&self) -> &str {
        self.seat.said().map_or(&self.queue, |seat| seat)
    }

    /// The same job without limits: an unknown seat has none. What is reserved for its queue remains reserved for it.
    pub fn without_limits(&self) -> Self {
        Self { seat: Newer(Some("".into())), ..self.clone() }
    }

    /// Whether it continues from where it was when it is stopped and started again, as far as it has saved its work.
    pub fn saves(&self) -> bool {
        self.resumable || self.checkpoint.is_some()
    }

    /// How often it saves its work by itself, in milliseconds; no more than that has to be done again.
    pub fn saves_every_ms(&self) -> Option<i64> {
        self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.every_ms)
    }

    /// How much of a run has to be done again at most when it is stopped, in milliseconds: nothing if a stop costs it only a restart, or
    /// what it has not yet saved if it saves by itself. `None` means that nothing but the run itself bounds it.
    pub fn loses_at_most_ms(&self) -> Option<i64> {
        if self.resumable { Some(0) } else { self.saves_every_ms() }
    }

    /// How it is told that it (or one of its tasks) gives way: as its checkpoint says, else as for any stop.
    pub fn notice(&self) -> StopOrder {
        match &self.checkpoint {
            Some(checkpoint) => {
                StopOrder { signal: checkpoint.notice.clone().into(), grace_ms: checkpoint.grace_ms }
            }
            None => self.stop.clone(),
        }
    }

    /// The longest that one of its runs lasts, by its limit or by its user's estimate.
    pub fn known_length(&self) -> Option<Span> {
        self.time_limit.into_iter().chain(self.estimate).min()
    }
}

fn yes() -> bool {
    true
}

/// Three: enough for bad luck, and too few for a job to crash its node all night.
pub fn usual_restarts() -> u32 {
    3
}

/// The members of an array job.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Array {
    /// First, last and step of each range, rising and apart from each other.
    pub ranges: Vec<(u32, u32, u32)>,
    /// How many may run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<u32>,
}

/// The states of a job (of one member, for an array).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Waits for its turn.
    Pending,
    /// Waits until it is released.
    Held,
    /// Has its devices; not all of its tasks run yet.
    Starting,
    /// Runs.
    Running,
    /// Is being paused.
    Pausing,
    /// Sleeps, without devices.
    Paused,
    /// Is being woken.
    Resuming,
    /// Was told to stop.
    Stopping,
    /// Ended by itself, well.
    Completed,
    /// Ended by itself, badly.
    Failed,
    /// Was cancelled.
    Cancelled,
    /// Ran into its time limit.
    Timeout,
    /// Vanished.
    Lost,
}

impl JobState {
    /// Whether the job is over.
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::Timeout | Self::Lost)
    }

    /// The state's name, as everywhere.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Held => "held",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Pausing => "pausing",
            Self::Paused => "paused",
            Self::Resuming => "resuming",
            Self::Stopping => "stopping",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
            Self::Lost => "lost",
        }
    }
}

/// Why an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A task of it exited by itself.
    Exit,
    /// A signal from outside the pool ended a task.
    Signal,
    /// Someone cancelled it.
    Cancelled,
    /// It reached its time limit.
    TimeLimit,
    /// The kernel killed it at its host memory limit.
    OutOfMemory,
    /// It ran out of device memory, as its last lines say.
    OutOfGpuMemory,
    /// Its device failed (Xid).
    DeviceFault,
    /// The machine was restarted.
    NodeReboot,
    /// Its supervisor vanished.
    SupervisorLost,
    /// It could not be started.
    LaunchFailed,
    /// Another task of its gang failed.
    BrokenGang,
    /// What it waited for can no longer happen.
    Dependency,
    /// Its queue is gone, or no longer takes it.
    Policy,
    /// Its devices went to a job of higher priority in its queue.
    Preempted,
    /// Its devices went back to a queue that they are due to.
    Reclaimed,
    /// Its devices went to a job ahead of it in the order.
    Order,
    /// It saved its work, and asked to be run again.
    Checkpointed,
    /// The pool was taken down.
    Shutdown,
    /// Its node was drained.
    Drain,
    /// It continues elsewhere, so that another job has room.
    Moved,
    /// Tasks from outside the pool took what it held of its node.
    Crowded,
    /// It continues on faster devices.
    Faster,
    /// Its devices went to the job that had gone longest without running.
    Starved,
}

impl Cause {
    /// Whether devices go to another job that has a claim to them.
    pub fn takes(self) -> bool {
        matches!(self, Cause::Preempted | Cause::Reclaimed | Cause::Starved)
    }

    /// Whether the planner stopped it for another job or for faster devices.
    pub fn is_planned(self) -> bool {
        self.takes() || matches!(self, Cause::Order | Cause::Moved | Cause::Faster)
    }
}

impl Cause {
    /// Whether the end was neither caused by the job nor wanted by anyone.
    pub fn is_bad_luck(self) -> bool {
        matches!(self, Self::DeviceFault | Self::NodeReboot | Self::SupervisorLost)
    }
}

/// How the last attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LastEnd {
    /// Why.
    pub cause: Cause,
    /// Who ended it: a user, a job, or a rule of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Further details: peak and limit, Xid, path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A submission as the log keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Submission {
    /// The number given to it.
    pub number: u64,
    /// Who submitted it.
    pub owner: Arc<Owner>,
    /// What is wanted.
    pub spec: Arc<JobSpec>,
    /// The members, if it is an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<Array>,
    /// The client's key, so that a repeated request submits once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Whether it starts its life held.
    #[serde(default)]
    pub held: bool,
}
