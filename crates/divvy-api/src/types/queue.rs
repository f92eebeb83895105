//! Queues.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A queue, what it may have and what it has.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Queue {
    /// Its path: `research/vision`.
    pub queue: String,
    /// At most so much at once, by resource (`any`, a model, `cpu`, `memory`), as written in queues.yaml.
    pub limit: BTreeMap<String, String>,
    /// At least so much when it is wanted; `gpu_hours` in a period: `1500/week`.
    pub guarantee: BTreeMap<String, String>,
    /// What it may take beyond its guarantee; empty for as much as there is.
    pub borrow: BTreeMap<String, String>,
    /// What of its guarantee others may use while it does not; empty for all of it.
    pub lend: BTreeMap<String, String>,
    /// Its part of the surplus among its siblings.
    pub weight: u32,
    /// Before its siblings.
    pub priority: i32,
    /// What is due to it now, in thousandths of devices: its guarantee as far as it wants it, and its part of the surplus.
    pub gpu_milli_due: Option<i64>,
    /// What it holds beyond its guarantee, in thousandths of devices: others may take it back.
    pub gpu_milli_borrowed: i64,
    /// What of its guarantee others hold now, in thousandths of devices: it gets it back as soon as it wants it.
    pub gpu_milli_lent: i64,
    /// Device-hours that it and those below it used in the past, decayed; absent where the past does not count.
    pub gpu_hours_used: Option<f64>,
    /// Device-hours that were due to them and that others had, decayed and bounded; below zero where they had more than their due.
    pub gpu_hours_credit: Option<f64>,
    /// What becomes of its jobs after a bad end where they say nothing: `never`, `lost` or `failure`.
    pub requeue: Option<String>,
    /// The highest priority of its jobs.
    pub max_priority: Option<i32>,
    /// The longest time limit of its jobs.
    pub max_time_ms: Option<i64>,
    /// The time limit of its jobs that say none.
    pub default_time_ms: Option<i64>,
    /// How many jobs of it may wait or run at once.
    pub max_jobs: Option<u64>,
    /// How many GPU-hours it and those below it may use in a period; absent without a budget.
    pub budget_gpu_hours: Option<f64>,
    /// The period: `day`, `week`, `month` or a length of time.
    pub budget_every: Option<String>,
    /// What is left of it now, with what is carried from before; below zero where more was used.
    pub budget_left_gpu_hours: Option<f64>,
    /// When it renews; milliseconds since 1970.
    pub budget_renews_at_ms: Option<i64>,
    /// How many of its pledged GPU-hours it is behind the pace; below zero where it is ahead; absent without a pledge.
    pub pledge_behind_gpu_hours: Option<f64>,
    /// What each user of its own jobs may hold at most, by resource.
    pub user_limit: BTreeMap<String, String>,
    /// The users among whom it is divided, by name; empty where it is not.
    pub users: Vec<QueueUser>,
    /// Who may submit: `user:eva`, `group:research`; empty means everyone.
    pub submit: Vec<String>,
    /// Who may end, hold and release its jobs, and set the queues below it.
    pub admins: Vec<String>,
    /// Whose jobs go into it that name no queue.
    pub default_for: Vec<String>,
    /// The nodes that are kept for it and those below it, by name, or the labels that these nodes have (`pool=prod`); empty where none
    /// are.
    pub nodes: Vec<String>,
    /// Whether the asking user may submit to it.
    pub may_submit: bool,
    /// Jobs that run, start or stop.
    pub running: u64,
    /// Jobs that wait.
    pub waiting: u64,
    /// Jobs that are held.
    pub held: u64,
    /// Devices held by its jobs, in thousandths.
    pub gpu_milli: u64,
    /// Devices that its waiting jobs ask for, in thousandths.
    pub gpu_milli_waiting: u64,
    /// Milli-cores held by its jobs.
    pub cpu_milli: i64,
    /// Bytes of host memory held by its jobs.
    pub memory_bytes: i64,
    /// How long its first job has been waiting.
    pub longest_wait_ms: Option<i64>,
}

/// A user of a queue that is divided among its users, and what the user has of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct QueueUser {
    /// The name.
    pub user: String,
    /// The user's weight among the queue's users.
    pub weight: u32,
    /// Jobs that run, start or stop.
    pub running: u64,
    /// Jobs that wait.
    pub waiting: u64,
    /// Devices held, in thousandths.
    pub gpu_milli: u64,
    /// What is due now, in thousandths of devices.
    pub gpu_milli_due: Option<i64>,
    /// Device-hours used in the past, decayed; absent where the past does not count.
    pub gpu_hours_used: Option<f64>,
    /// Device-hours that were due and that others had, decayed and bounded; below zero where it is the other way round.
    pub gpu_hours_credit: Option<f64>,
}

/// What came of queues.yaml.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Applied {
    /// Whether it is in force now; false for a dry run and where nothing differs.
    pub applied: bool,
    /// One line per difference: `+ research/vision limit any=32`, `~ default limit any: 8 → 4`, `- old`.
    pub diff: Vec<String>,
    /// What a person should know: running jobs of a queue over its new limit run on.
    pub notices: Vec<String>,
}

/// How a change of the queues is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct ChangeQuery {
    /// Only say what would change.
    pub dry_run: bool,
    /// Why, for those who look back; at most 500 characters.
    pub note: Option<String>,
}

/// New settings for one queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SetQueue {
    /// Its path.
    pub queue: String,
    /// Whether to make it if it does not exist.
    pub create: bool,
    /// Settings by their keys in queues.yaml. Of amounts, those named change and the others stay; `null` takes a setting, or an
    /// amount, back.
    pub settings: BTreeMap<String, serde_json::Value>,
}

/// Which queues.yaml is wanted: the one in force, unless something is said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct FileQuery {
    /// The one that this change put in force, by its number.
    pub change: Option<u64>,
    /// The one that was in force at this moment; milliseconds since 1970.
    pub at_ms: Option<i64>,
}

/// Which changes are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct ChangesQuery {
    /// Only the newest so many.
    pub newest: Option<u64>,
}

/// A change of queues.yaml.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct QueuesChange {
    /// Its number, from 1: what the pool began with.
    pub change: u64,
    /// Its position in the log.
    pub position: u64,
    /// When; milliseconds since 1970.
    pub at_ms: i64,
    /// Who.
    pub by: String,
    /// Why, if that was said.
    pub note: Option<String>,
    /// One line per difference to the change before, as in [`Applied`].
    pub diff: Vec<String>,
}
