//! The engine: what turns actions into effects, and effects into observations. It never chooses.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::id::AllocationId;
use crate::model::device::{DeviceSpec, Health, Occupant};
use crate::model::node::{NodeSpec, OthersHold};
use crate::time::Time;

/// Something that carries out actions. Neither call blocks: an engine that has to wait does so behind a channel, and wakes
/// the shell when there is something to observe.
pub trait Engine {
    /// Takes actions, to be carried out in this order for each allocation.
    fn submit(&mut self, actions: &[Action]);

    /// Returns what has happened since the last call. An observation is repeated (at the latest after a restart) until `Forget` answers it.
    fn observe(&mut self) -> Vec<Observation>;

    /// Returns what this engine can honour.
    fn abilities(&self) -> Abilities;
}

/// What an engine can honour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// It gives a task the very devices that the plan names.
    pub names_devices: bool,
    /// It starts processes itself, so that trees, signals and grace are its business.
    pub runs_processes: bool,
    /// After a restart it knows by itself which allocations it carries, and reports what has become of them. Otherwise what runs
    /// is found by other means, and the engine is told of it before anything is decided.
    pub keeps_allocations: bool,
}

/// What an engine saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observation {
    /// A node and its devices as they are now. Devices of the node that are absent here are gone.
    Node(NodeSpec, Vec<DeviceSpec>),
    /// A node is gone.
    NodeGone(String),
    /// What tasks from outside the pool hold of a node.
    Others(String, OthersHold),
    /// A device's health, or who else uses it, has changed.
    Device {
        /// The driver's name for it.
        uuid: String,
        /// Whether it works.
        health: Health,
        /// Who uses it besides the pool.
        occupant: Option<Occupant>,
    },
    /// All allocations that the engine knows of, after a start: the end of adoption.
    Inventory(Vec<AllocationId>),
    /// A task runs.
    Started(AllocationId, TaskStart),
    /// A task is over: all of its processes are gone.
    Ended(AllocationId, TaskEnd),
}

/// How a task started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TaskStart {
    /// When, by the wall clock.
    pub at: Time,
    /// The first process.
    pub pid: u32,
    /// How it is isolated from others, and why no better.
    pub isolation: Isolation,
    /// Where its output goes, as it was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// What keeps a task within its allocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// The kernel keeps it to its devices, cores and memory.
    Enforced,
    /// Part of it relies on the task's cooperation; the text says which part, and why.
    Advisory(Cow<'static, str>),
}

impl Default for Isolation {
    fn default() -> Self {
        Isolation::Advisory("not known".into())
    }
}

/// How a task ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TaskEnd {
    /// When, by the wall clock.
    pub at: Time,
    /// How.
    pub how: EndedHow,
    /// How long it ran, by the monotonic clock, in milliseconds; 0 if it never did.
    pub ran_ms: i64,
    /// What it used.
    pub usage: Usage,
}

/// How a task ended, as far as the engine can tell.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedHow {
    /// It exited by itself.
    Exited(i32),
    /// A signal ended it.
    Signalled(i32),
    /// The kernel killed it at its memory limit: peak and limit in bytes.
    OutOfMemory(i64, i64),
    /// It could not be started.
    LaunchFailed(LaunchFailure),
    /// It was stopped before it had started.
    NeverStarted,
    /// Its supervisor is gone without a report; its processes were killed.
    SupervisorLost,
    /// The machine was restarted meanwhile.
    NodeReboot,
}

impl EndedHow {
    /// Whether it is a failure: anything but an exit with 0.
    pub fn is_failure(&self) -> bool {
        !matches!(self, EndedHow::Exited(0))
    }
}

impl Default for EndedHow {
    fn default() -> Self {
        EndedHow::Exited(0)
    }
}

/// Why a task could not be started.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaunchFailure {
    /// There is no such program.
    CommandNotFound(String),
    /// It is there, but may not be executed (or is no program).
    NotExecutable(String),
    /// Its working directory cannot be entered as the user.
    Directory(String),
    /// Its output cannot be opened.
    Output(String),
    /// Another pool holds a device: uuid, whose pool, where its state is.
    DeviceLocked(String, String, String),
    /// Its environment no longer exists.
    Environment(String),
    /// Anything else, in words.
    Other(String),
}

impl LaunchFailure {
    /// The exit code that a shell would give: 127 not found, 126 not executable, 125 for the rest.
    pub fn exit_code(&self) -> i32 {
        match self {
            LaunchFailure::CommandNotFound(_) => 127,
            LaunchFailure::NotExecutable(_) => 126,
            _ => 125,
        }
    }
}

/// What a task used. Zero or absent where it was not measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Usage {
    /// Processor time, in milliseconds.
    pub cpu_ms: i64,
    /// Peak of host memory, in bytes.
    pub peak_memory_bytes: i64,
    /// Per device: what telemetry saw.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceUsage>,
    /// The last lines of its output report exhausted device memory.
    #[serde(default)]
    pub out_of_gpu_memory: bool,
    /// An Xid that one of its devices reported while it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xid: Option<u64>,
}

/// What a task used of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeviceUsage {
    /// The driver's name for it.
    pub uuid: String,
    /// For how long it was watched, in milliseconds.
    pub watched_ms: i64,
    /// Of that, how long it was idle.
    pub idle_ms: i64,
    /// Mean utilisation in percent while watched.
    pub mean_utilization_percent: u32,
    /// Peak of its memory in use, in MiB.
    pub peak_memory_mib: u64,
}
