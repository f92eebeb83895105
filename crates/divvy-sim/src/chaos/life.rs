//! A life of a pool as data: its nodes, its settings, and all that happens to it, so that it can be stored, replayed and shrunk.

use std::collections::{BTreeMap, BTreeSet};

use divvy_core::decide::Submit;
use divvy_core::model::ask::{Alternative, Ask, DeviceAsk, DeviceClass, DrawAsk};
use divvy_core::model::device::DeviceSpec;
use divvy_core::model::gang::{Group, Role};
use divvy_core::model::island::IslandAsk;
use divvy_core::model::job::{
    Dependency, DependsOn, JobSpec, Kind, Lifetime, Owner, Process, Requeue, StopOrder, Work, usual_restarts,
};
use divvy_core::model::newer::Newer;
use divvy_core::model::node::NodeSpec;
use divvy_core::model::pace::by_speed;
use divvy_core::model::policy::Policy;
use divvy_core::model::queue::Queue;
use divvy_core::model::topology::Spread;
use divvy_core::time::{Span, Time};
use serde::{Deserialize, Serialize};

use super::calendar::Kept;
use super::company::Company;
use super::islands::Joined;

/// A whole life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Life {
    /// The seed it was made from; its dice decide where it is looked at more closely.
    pub seed: u64,
    /// What it once showed, for readers of a life that was kept.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub story: String,
    /// The nodes.
    pub nodes: Vec<NodeLine>,
    /// The settings at the beginning.
    pub policy: Policy,
    /// The queues at the beginning; empty for `default` alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<Queue>,
    /// The percentage of steps that find the daemon busy: what they ask for, and what is seen meanwhile, it takes with the next step.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub busy_percent: u32,
    /// All that happens, by time.
    pub steps: Vec<Step>,
}

impl Life {
    /// What of it no life can have, whoever wrote it.
    pub fn wrong(&self) -> Option<String> {
        let paths: BTreeSet<&str> = self.queues.iter().map(|queue| queue.path.as_str()).collect();
        let joins_none = |node: &NodeLine| node.joined.is_some_and(Joined::joins_none);
        let wrongs = [
            (paths.len() < self.queues.len(), "a queue stands twice in `queues`"),
            (self.policy.step_ms < 1, "`step_ms` of the policy is to be at least 1"),
            (self.nodes.iter().any(joins_none), "`joined` of a node is to join at least 1 device each"),
        ];
        wrongs.into_iter().find(|(is_wrong, _)| *is_wrong).map(|(_, what)| what.to_owned())
    }
}

fn is_nothing(percent: &u32) -> bool {
    *percent == 0
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeLine {
    /// How many devices.
    pub devices: u32,
    /// Their model.
    pub model: String,
    /// Cores.
    pub cores: i64,
    /// Memory in GiB.
    pub memory_gib: i64,
    /// Its rack, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<u32>,
    /// How its devices are joined, where they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<Joined>,
}

/// Something that happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// When.
    pub at_ms: i64,
    /// What.
    pub what: What,
}

/// What can happen. Jobs are named by the number of their line, so that without some lines a life still means the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A job is submitted.
    Submit(Box<JobLine>),
    /// A user ends a job (or a member): line, member, as administrator or not.
    Cancel(u32, Option<u32>, bool),
    /// A user holds it.
    Hold(u32, Option<u32>, bool),
    /// A user releases it.
    Release(u32, Option<u32>, bool),
    /// A user gives it another priority, as administrator or not.
    Prioritise(u32, i32, bool),
    /// The queues change.
    Queues(Vec<Queue>),
    /// The settings change.
    Policy(Box<Policy>),
    /// The pool starts nothing new, or starts things again.
    Drain(bool),
    /// A node takes no new tasks, or takes them again.
    DrainNode(u32, bool),
    /// Nodes or devices are kept for a time.
    Keep(Box<Kept>),
    /// The daemon dies in its next turn and starts again.
    Crash(Crash),
    /// The log has no room in the next turn.
    DiskFull,
    /// A node dies.
    NodeDies(u32),
    /// It comes back.
    NodeReturns(u32),
    /// A device breaks: node, place.
    DeviceDies(u32, u32),
    /// A device is not seen any more.
    DeviceVanishes(u32, u32),
    /// Someone from outside uses a device.
    DeviceTaken(u32, u32),
    /// A device is well again.
    DeviceHeals(u32, u32),
    /// This many of the next launches fail.
    LaunchesFail(u32),
    /// This many of the next answers are lost.
    AnswersLost(u32),
    /// This many of the next answers come twice.
    AnswersDoubled(u32),
    /// This many of the next answers are late, by a number of milliseconds.
    AnswersLate(u32, i64),
    /// One of the running tasks ends: the n-th, counting round and round.
    Struck(u64, Blow),
    /// Nothing: time passes.
    Nothing,
}

/// Where a daemon dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Crash {
    /// Before its commit is in the log.
    BeforeCommit,
    /// When the commit is in the log and this many of its actions were sent.
    AfterActions(u32),
}

/// How a task is ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blow {
    /// By a signal.
    Signal(i32),
    /// It fails by itself.
    Exit(i32),
    /// Its memory limit.
    OutOfMemory,
    /// Its supervisor is gone.
    SupervisorLost,
}

/// A job to be submitted. Fields that are left out have the usual value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobLine {
    /// Its number among the lines.
    pub line: u32,
    /// Its user.
    pub user: u32,
    /// Its queue.
    pub queue: String,
    /// Devices of each task.
    pub gpus: u32,
    /// Tasks.
    pub tasks: u32,
    /// How many tasks it may grow by.
    #[serde(default, skip_serializing_if = "is_none")]
    pub more_tasks: u32,
    /// How long it works undisturbed.
    pub work_ms: i64,
    /// The code that it exits with.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub exit_code: i32,
    /// Thousandths of each device; 0 for all.
    #[serde(default, skip_serializing_if = "is_none")]
    pub milli: u32,
    /// The model that it wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Cores of each task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<i64>,
    /// Memory of each task in GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_gib: Option<i64>,
    /// Its priority.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// Its members, if it is an array: `0-9%2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<String>,
    /// Its time limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_ms: Option<i64>,
    /// When it goes back into the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue: Option<Requeue>,
    /// Which other line it comes after, and how that must have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<(u32, DependsOn)>,
    /// After how long it may start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_in_ms: Option<i64>,
    /// How long its user thinks that it will run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_ms: Option<i64>,
    /// A client's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Whether it can go on where it was stopped.
    #[serde(default, skip_serializing_if = "is_not")]
    pub resumes: bool,
    /// Whether it starts held.
    #[serde(default, skip_serializing_if = "is_not")]
    pub held: bool,
    /// Whether it waits for capacity that is not there.
    #[serde(default, skip_serializing_if = "is_not")]
    pub waits: bool,
    /// Whether it wants its nodes for itself.
    #[serde(default, skip_serializing_if = "is_not")]
    pub exclusive: bool,
    /// Whether it may not be preempted.
    #[serde(default, skip_serializing_if = "is_not")]
    pub stays: bool,
    /// The models that it takes, and how fast it thinks that it runs on each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub speed: BTreeMap<String, u32>,
    /// What it wants of other jobs, and how they refer to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub company: Option<Company>,
    /// The models that it takes in order of preference, and how many devices of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ways: Vec<(String, u32)>,
    /// In which island of a node the devices of each task lie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub island: Option<IslandAsk>,
    /// How its tasks are spread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}

fn is_none(number: &u32) -> bool {
    *number == 0
}

fn is_not(flag: &bool) -> bool {
    !flag
}

/// The name of a node.
pub(super) fn node_name(node: u32) -> String {
    format!("n{node}")
}

/// The name of a user.
pub(super) fn user_name(user: u32) -> String {
    format!("u{user}")
}

impl NodeLine {
    /// The node and its devices, as an engine reports them.
    pub fn hardware(&self, node: u32) -> (NodeSpec, Vec<DeviceSpec>) {
        let name = node_name(node);
        let memory_mib = if self.model == "a100" { 40_960 } else { 81_559 };
        let device = |index| DeviceSpec {
            uuid: format!("{name}:{index}"),
            index,
            model: self.model.clone(),
            memory_mib,
            ..DeviceSpec::default()
        };
        let spec = NodeSpec {
            cpu_milli: self.cores * 1000,
            memory_bytes: self.memory_gib << 30,
            boot_id: "boot".into(),
            name: name.clone(),
            domains: self.rack.iter().map(|rack| ("rack".to_owned(), format!("r{rack}"))).collect(),
            ..NodeSpec::default()
        };
        let mut devices: Vec<DeviceSpec> = (0..self.devices).map(device).collect();
        self.joined.iter().for_each(|joined| joined.join(&mut devices));
        (spec, devices)
    }
}

impl JobLine {
    /// The submission; `number_of` maps each line to the number under which it was submitted.
    pub fn submit(&self, now: Time, number_of: &BTreeMap<u32, u64>) -> Option<Submit> {
        let array = self.array.as_deref().map(str::parse).transpose().ok()?;
        let owner = Owner { name: user_name(self.user), uid: 1000 + self.user, ..Owner::default() };
        Some(Submit {
            owner: owner.into(),
            spec: self.spec(now, number_of)?.into(),
            requeue_said: self.requeue.is_some(),
            array,
            token: self.token.clone(),
            held: self.held,
            history: BTreeMap::new(),
        })
    }

    fn spec(&self, now: Time, number_of: &BTreeMap<u32, u64>) -> Option<JobSpec> {
        let after = match self.after {
            None => Vec::new(),
            Some((line, on)) => {
                let job = divvy_core::id::JobId::single(*number_of.get(&line)?);
                vec![Dependency { job, on }]
            }
        };
        Some(JobSpec {
            name: format!("j{}", self.line),
            queue: self.queue.clone(),
            project: None,
            kind: Kind::Train,
            // What becomes of the job, for the engine alone: nothing else reads these labels.
            labels: [("work", self.work_ms.to_string()), ("exit", self.exit_code.to_string())]
                .map(|(label, text)| (label.to_owned(), text))
                .into_iter()
                .chain(self.company.iter().map(Company::label))
                .collect(),
            priority: self.priority,
            preemptible: !self.stays,
            resumable: self.resumes,
            lifetime: Lifetime::Batch,
            gang: Group::Role(self.role()).into(),
            time_limit: self.limit_ms.map(Span),
            estimate: self.estimate_ms.map(Span),
            requeue: self.requeue.unwrap_or_default(),
            most_restarts: usual_restarts(),
            after,
            deadline: Newer::default(),
            preempts: Newer((self.line % 9 == 4).then_some(false)),
            start_after: self.start_in_ms.map(|ms| now + Span(ms)),
            stop: StopOrder::default(),
            checkpoint: None,
            wait_for_capacity: self.waits,
            exclusive: self.exclusive,
            seat: Newer::default(),
            kept_to: Newer::default(),
        })
    }

    fn role(&self) -> Role {
        let draw = match self.milli {
            0 => DrawAsk::Whole,
            milli => DrawAsk::Share { milli, memory_mib: None },
        };
        let class = DeviceClass { models: self.model.iter().cloned().collect(), ..DeviceClass::default() };
        let alternative = Alternative {
            devices: (self.gpus > 0).then_some(DeviceAsk::of(class, self.gpus, draw)),
            cpu_milli: self.cores.map(|cores| cores * 1000),
            memory_bytes: self.memory_gib.map(|gib| gib << 30),
            speed_percent: 100,
            ..Alternative::default()
        };
        let mut ask = Ask {
            affinity: Newer(self.company.as_ref().and_then(|it| it.affinity().into_said().0)),
            ..Ask::of(match (self.speed.is_empty(), self.ways.is_empty()) {
                (true, _) => self.in_order(alternative),
                (false, true) => alternative.by_speed(&self.speed),
                (false, false) => by_speed(&self.in_order(alternative), &self.speed),
            })
        };
        ask.lie(self.island);
        Role {
            name: "main".into(),
            minimum: self.tasks,
            maximum: self.tasks + self.more_tasks,
            ask,
            work: Work::Process(Process { argv: vec!["true".into()], ..Process::default() }),
            topology: None,
            spread: Newer(self.spread.clone()),
        }
    }

    /// The one way to serve a task, or each of several.
    fn in_order(&self, one: Alternative) -> Vec<Alternative> {
        let Some(ask) = one.devices.as_ref().filter(|_| !self.ways.is_empty()) else { return vec![one] };
        let way = |(model, count): &(String, u32)| {
            let class = DeviceClass { models: vec![model.clone()], ..DeviceClass::default() };
            let devices = DeviceAsk::of(class, *count, ask.draw.clone());
            Alternative { devices: Some(devices), ..one.clone() }
        };
        self.ways.iter().map(way).collect()
    }
}
