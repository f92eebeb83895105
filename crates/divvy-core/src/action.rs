//! Actions: what a plan tells an engine to do. Each is idempotent and fenced, and leaves the engine no choice.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::id::{AllocationId, JobId, Term};
use crate::model::device::Draw;
use crate::model::job::{Owner, Process};

/// Which allocation an action is about, and how recent it is. An engine refuses a term below the highest it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fence {
    /// The start of the daemon (or term of leadership) that sends it.
    pub term: Term,
    /// The allocation that the action is about.
    pub allocation: AllocationId,
    /// Rises with each action about this allocation.
    pub seq: u32,
}

/// An effect that an engine brings about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Starts the task of an allocation; a second launch of the same allocation starts nothing.
    Launch(Fence, Box<Launch>),
    /// Binds the outside task of an allocation to its node; a second bind changes nothing.
    Bind(Fence, Box<Bind>),
    /// Stops it: notice signal, grace, then the whole tree is killed. A further stop may shorten the grace.
    Stop(Fence, Stop),
    /// The end of the task is in the log: the engine may forget what it kept about it.
    Forget(Fence),
}

/// All that a task needs to start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The job (or member) that the task belongs to.
    pub job: JobId,
    /// The job's name.
    pub name: String,
    /// Counts the job's attempts from 1.
    pub attempt: u32,
    /// How often the job was started before this attempt.
    pub restart: u32,
    /// The rank of the task in its gang, from 0.
    pub rank: u32,
    /// The number of tasks in the gang.
    pub world_size: u32,
    /// Whether the gang may have more or fewer tasks later.
    #[serde(default)]
    pub is_elastic: bool,
    /// The task's role.
    pub role: String,
    /// The rank of the task in its role, and the number of tasks of the role.
    pub role_rank: (u32, u32),
    /// The rank among the gang's tasks on the same node, and their number.
    pub local_rank: (u32, u32),
    /// The node's name.
    pub node: String,
    /// The devices, by uuid.
    pub devices: Vec<ExposedDevice>,
    /// Milli-cores that the task gets.
    pub cpu_milli: i64,
    /// Whether that is also its ceiling (the job asked for it), or only its share while others want the cores, too.
    pub cpu_is_ceiling: bool,
    /// Bytes of host memory that it may use at most; 0 where nothing is restricted.
    pub memory_bytes: i64,
    /// The user that its processes run as.
    pub owner: Owner,
    /// The job's queue.
    pub queue: String,
    /// What to run.
    pub process: Process,
    /// Where the gang's tasks meet: address and port.
    pub rendezvous: (String, u16),
}

/// Which outside task goes to which node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// The job that the task belongs to.
    pub job: JobId,
    /// The task's outside name.
    pub task: String,
    /// The node's name.
    pub node: String,
}

/// A device as a task sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExposedDevice {
    /// The driver's name for it.
    pub uuid: String,
    /// The number of its device file, if it has one.
    pub minor: Option<u32>,
    /// How much of it.
    pub draw: Draw,
}

/// How to stop a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// The signal that announces it, without `SIG`.
    pub signal: Cow<'static, str>,
    /// How long until the whole tree is killed, in milliseconds.
    pub grace_ms: i64,
}

impl Action {
    /// Returns the action's fence.
    pub fn fence(&self) -> Fence {
        match self {
            Action::Launch(fence, _) | Action::Bind(fence, _) => *fence,
            Action::Stop(fence, _) | Action::Forget(fence) => *fence,
        }
    }
}
