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
    /// Ends that were not its doing: a lost supervisor, a reboot, a device that died, a failed launch.
    #[default]
    Lost,
    /// Those, and its own failure.
    Failure,
}

/// A job that must end before this one may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Dependency {
    /// The other job; an array as a whole when it names no member.
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
    /// How long it may take until everything of it is killed, in milliseconds.
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

/// How long a job will run, as someone foresees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Estimate {
    /// As likely longer as shorter, in milliseconds.
    pub p50_ms: i64,
    /// Longer in one case of ten, in milliseconds.
    pub p90_ms: i64,
    /// What foresees it.
    pub model: String,
    /// How soon it can be expected to end, by how long it has run: rising moments, the first of them 0. Empty where only the
    /// length is foreseen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outlook: Vec<Prospect>,
}

/// What can be expected of a job that has run for some time and goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Prospect {
    /// For how long it has run, at least, in milliseconds.
    pub after_ms: i64,
    /// Device time that one end of such jobs costs from there, in milliseconds, if each is given the further time that makes
    /// this least: what all of them use of it, over those that end in it.
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

/// A process, without its environment: that holds secrets and stays out of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Process {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Where it starts.
    pub directory: String,
    /// Where its output goes.
    pub output: Output,
    /// Permissions that new files do not get.
    #[serde(default = "usual_umask")]
    pub umask: u32,
    /// Limits of the submitting shell: name as in `prlimit` (`NOFILE`), soft, hard.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<(String, u64, u64)>,
    /// A unix socket on which a terminal waits for this process; then it runs on a pseudo-terminal.
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
    /// To a file of the user's: an absolute path in which `%j %A %a %x %u` stand for job, array, member, name and user.
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
    /// Words of the user's, for reports.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Higher goes first.
    #[serde(default)]
    pub priority: i32,
    /// Whether it may be taken back.
    #[serde(default = "yes")]
    pub preemptible: bool,
    /// Whether it can go on where it was stopped.
    #[serde(default)]
    pub resumable: bool,
    /// Whether it ends by itself.
    #[serde(default)]
    pub lifetime: Lifetime,
    /// Its tasks: shared between jobs that are made alike, and with copies of the job.
    pub gang: Arc<Group>,
    /// The longest an attempt may run, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<Span>,
    /// How long its user thinks that it runs, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Span>,
    /// When it goes back into the queue.
    #[serde(default)]
    pub requeue: Requeue,
    /// How often it may go back, at most.
    #[serde(default = "usual_restarts")]
    pub most_restarts: u32,
    /// What must end first.
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
    /// Whether it wants its nodes for itself.
    #[serde(default)]
    pub exclusive: bool,
    /// Where it stands below its queue, if that is divided among its users: the fold says so.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub seat: Newer<Arc<str>>,
    /// When its user would like it to be over: nothing is decided by it.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub deadline: Newer<Time>,
    /// Whether others may be stopped or moved for it: they may, if unsaid.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub preempts: Newer<bool>,
    /// The queue to whose nodes it is kept, its own or one above it: the fold says so.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub kept_to: Newer<Arc<str>>,
}

impl JobSpec {
    /// Whether others may be stopped or moved for it; else it waits until places are free.
    pub fn may_preempt(&self) -> bool {
        self.preempts.said() != Some(&false)
    }

    /// Whether its tasks are run by other means: when they are over, whoever made them makes others, or not.
    pub fn runs_outside(&self) -> bool {
        self.gang.roles().iter().any(|role| matches!(role.work, Work::External(_)))
    }

    /// Where it stands among those that the pool is divided between: its user's seat in its queue, or the queue.
    pub fn stand(&self) -> &str {
        self.seat.said().map_or(&self.queue, |seat| seat)
    }

    /// The same without limits: a seat that nobody knows has none. What is reserved for its queue is for it as before.
    pub fn without_limits(&self) -> Self {
        Self { seat: Newer(Some("".into())), ..self.clone() }
    }

    /// Whether it goes on where it was when it is stopped and starts anew, as far as it has saved its work.
    pub fn saves(&self) -> bool {
        self.resumable || self.checkpoint.is_some()
    }

    /// How often it makes its work safe by itself, in milliseconds: no more than that has to be done again.
    pub fn saves_every_ms(&self) -> Option<i64> {
        self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.every_ms)
    }

    /// How much of a run has to be done again at most when it is stopped, in milliseconds: nothing where a stop costs it no more than a
    /// restart, what it has not saved by itself where it does so; else there is no bound but the run.
    pub fn loses_at_most_ms(&self) -> Option<i64> {
        if self.resumable { Some(0) } else { self.saves_every_ms() }
    }

    /// How it is told that it (or a task of it) gives way: as its checkpoint wants it, else as for any stop.
    pub fn notice(&self) -> StopOrder {
        match &self.checkpoint {
            Some(checkpoint) => {
                StopOrder { signal: checkpoint.notice.clone().into(), grace_ms: checkpoint.grace_ms }
            }
            None => self.stop.clone(),
        }
    }

    /// How long a run of it lasts at most, by its limit or by what its user thinks.
    pub fn known_length(&self) -> Option<Span> {
        self.time_limit.into_iter().chain(self.estimate).min()
    }
}

fn yes() -> bool {
    true
}

/// Three: enough for bad luck, too few for a job that kills its node to do so all night.
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
    /// Its devices went to a job that was before it in the order.
    Order,
    /// It saved its work, and asked to be run again.
    Checkpointed,
    /// The pool was taken down.
    Shutdown,
    /// Its node was drained.
    Drain,
    /// It goes on elsewhere, so that another job has room.
    Moved,
    /// Others took what it held of its node.
    Crowded,
    /// It goes on on faster devices.
    Faster,
    /// Its devices went to the job that had not run for the longest time.
    Starved,
}

impl Cause {
    /// Whether devices go to another job that has a claim to them.
    pub fn takes(self) -> bool {
        matches!(self, Cause::Preempted | Cause::Reclaimed | Cause::Starved)
    }

    /// Whether the planner had it stopped for the sake of another job.
    pub fn is_planned(self) -> bool {
        self.takes() || matches!(self, Cause::Order | Cause::Moved | Cause::Faster)
    }
}

impl Cause {
    /// Whether the end was not the job's own doing, nor anyone's wish.
    pub fn is_bad_luck(self) -> bool {
        matches!(self, Self::DeviceFault | Self::NodeReboot | Self::SupervisorLost)
    }
}

/// How the last attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LastEnd {
    /// Why.
    pub cause: Cause,
    /// Through whom: a user, a job, or the pool's own rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// What there is to say beyond that: peak and limit, Xid, path.
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
