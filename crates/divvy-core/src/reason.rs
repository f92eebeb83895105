//! Reasons: why a job waits. A closed set; each has a code, a page under `docs/reasons/`, and something that wakes it.

mod domains;
mod kept;
mod neighbours;
mod quotas;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::amount::{Bytes, Resource};
use crate::id::JobId;
use crate::model::ask::DeviceClass;
use crate::model::island::IslandLevel;
use crate::model::job::DependsOn;
use crate::model::queue::{user_at, utc};
use crate::time::Time;

/// What the planner thinks of a waiting job, from worst to best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The pool cannot hold it, even empty.
    NoFit,
    /// It fits if others are preempted.
    Preempt,
    /// It fits when others end, or when what it waits for happens.
    Later,
    /// It fits now.
    Fit,
}

impl Verdict {
    /// The verdict's name, the same everywhere.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::NoFit => "no_fit",
            Verdict::Preempt => "preempt",
            Verdict::Later => "later",
            Verdict::Fit => "fit",
        }
    }
}

/// Why a job waits. New ones come last: the digests in logs depend on their positions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It is new: the planner has not looked at it yet.
    NotPlanned,
    /// Someone holds it.
    Held(String),
    /// Another job must end first.
    Dependency(JobId, DependsOn),
    /// It may not start before this.
    StartAfter(Time),
    /// As many members of its array run as may run at once.
    ArrayLimit(u32),
    /// Its queue (or one above) would hold more than it may: queue, resource, limit, and what this job asks for.
    QueueLimit(String, Resource, i64, i64),
    /// It is not preemptible, and its queue (or one above) would hold more for such jobs than is guaranteed to it: queue,
    /// resource, guarantee, and what this job asks for.
    BeyondGuarantee(String, Resource, i64, i64),
    /// Its queue (or one above) has borrowed as much as it may: queue, resource, the bound, and what this job asks for.
    BorrowLimit(String, Resource, i64, i64),
    /// Its queue would have to borrow what other queues keep for themselves: its queue, resource, what is left to be lent, and
    /// what this job asks for.
    NotLent(String, Resource, i64, i64),
    /// The pool takes nothing new: it is being taken down.
    PoolDraining,
    /// The pool has no node that takes tasks.
    NoNode,
    /// The pool has no device of such a model.
    NoSuchModel(DeviceClass),
    /// The pool has devices of the model, but none with such memory.
    NoSuchMemory(DeviceClass),
    /// No node has so many such devices, not even an empty one: asked, most on a node.
    TooManyDevices(u32, u32),
    /// The whole pool cannot hold the gang: tasks asked, tasks that the empty pool holds.
    TooManyTasks(u32, u32),
    /// No node has so much of this at all: resource, asked, most on a node.
    TooMuchHost(Resource, i64, i64),
    /// Devices that would do are broken: how many.
    DevicesDown(u32),
    /// Devices that would do are used from outside the pool: how many.
    DevicesForeign(u32),
    /// Nodes that would do are being drained: how many.
    NodesDraining(u32),
    /// All devices that would do are taken: how many a task needs on one node.
    DevicesBusy(u32),
    /// Devices are free, but their node has too little of a host resource left: resource, asked.
    HostBusy(Resource, i64),
    /// It wants its nodes for itself, and none is idle.
    NoIdleNode,
    /// Tasks must lie within one domain of a level, and none has room for all: level, tasks, most that one holds when it is empty.
    NoDomain(String, u32, u32),
    /// Some tasks of the gang fit now, but not its minimum: minimum.
    GangIncomplete(u32),
    /// Jobs start strictly in order, and one before it does not fit yet.
    InLine,
    /// It would fit, but it may still run when a job before it in line can start there: that job.
    Reserved(JobId),
    /// Devices are promised to it: so many tasks that hold them are being stopped.
    Promised(u32),
    /// No engine of this pool can run it: what.
    Unsupported(String),
    /// No node has both the labels that it asks for and only taints that it tolerates: how many nodes there are.
    NoNodeChosen(u32),
    /// Its user would hold more in its queue than a user may there: the user's seat in the queue, resource, limit, and what this
    /// job asks for.
    UserLimit(String, Resource, i64, i64),
    /// Its queue (or one above) has used up its budget: queue, budget in thousandths of GPU-hours, and when something is left again, if no more is used.
    OverBudget(String, i64, Time),
    /// Devices that would do are being drained: how many.
    DevicesDraining(u32),
    /// What is free is kept on the calendar, for maintenance or for others: from when on.
    Booked(Time),
    /// It wants to lie near others, and has no room where they are, or there are none: their labels, and what makes nodes one
    /// domain.
    NotNear(String, String),
    /// It wants to lie apart from others that lie wherever it would have room: likewise.
    NotApart(String, String),
    /// Wherever it would have room lie others that want no such task near them: the labels that they reject, and the domain likewise.
    Repelled(String, String),
    /// The devices of a task must lie within one island of a level of a node, and no island has as many free: level, asked, the most
    /// suitable devices in one island when all are free.
    NoIsland(IslandLevel, u32, u32),
    /// Its tasks must be spread over the domains of a level, and so spread not all of them have room: level, the most tasks in one
    /// domain, tasks, and how many of them the idle pool holds at most.
    NotSpread(String, u32, u32, u32),
    /// The suitable nodes are not for its queue: the queue to whose nodes the job is kept, if it is, and the queue for which
    /// suitable nodes are kept, if any are.
    OtherNodes(Option<String>, Option<String>),
    /// None of the nodes that are kept for its queue, or one above, is there: that queue.
    NodesAbsent(String),
    /// What it asks for is guaranteed to its queue but lent out, and the borrowers are safe for now: its queue, and the
    /// resource.
    LentOut(String, Resource),
    /// What it asks for is guaranteed to its queue, but a part of the pool is missing, and the other queues keep what is left for
    /// themselves: its queue, and the resource.
    Scarce(String, Resource),
}

/// What can change a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wake {
    /// Its owner or an administrator.
    Person,
    /// The end of another job.
    JobEnds(JobId),
    /// A moment.
    Time(Time),
    /// Devices or host amounts that become free.
    Release,
    /// Nodes or devices that come, or come back.
    Capacity,
    /// The next cycle.
    Cycle,
}

impl Reason {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Reason::NotPlanned => "DV-NEW",
            Reason::Held(_) => "DV-HELD",
            Reason::Dependency(..) => "DV-DEPENDENCY",
            Reason::StartAfter(_) => "DV-START-AFTER",
            Reason::ArrayLimit(_) => "DV-ARRAY-LIMIT",
            Reason::QueueLimit(..) => "DV-QUEUE-LIMIT",
            Reason::UserLimit(..) => "DV-USER-LIMIT",
            Reason::OverBudget(..) => "DV-OVER-BUDGET",
            Reason::BeyondGuarantee(..) => "DV-OVER-QUOTA",
            Reason::BorrowLimit(..) => "DV-BORROW-LIMIT",
            Reason::NotLent(..) => "DV-NOT-LENT",
            Reason::LentOut(..) => "DV-LENT-OUT",
            Reason::Scarce(..) => "DV-SCARCE",
            Reason::PoolDraining => "DV-POOL-DRAINING",
            Reason::NoNode => "DV-NO-NODE",
            Reason::NoSuchModel(_) => "DV-NO-SUCH-MODEL",
            Reason::NoSuchMemory(_) => "DV-NO-SUCH-MEMORY",
            Reason::TooManyDevices(..) => "DV-TOO-MANY-GPUS",
            Reason::TooManyTasks(..) => "DV-TOO-MANY-TASKS",
            Reason::TooMuchHost(..) => "DV-TOO-MUCH-HOST",
            Reason::DevicesDown(_) => "DV-GPUS-DOWN",
            Reason::DevicesForeign(_) => "DV-GPUS-FOREIGN",
            Reason::NodesDraining(_) => "DV-DRAINING",
            Reason::DevicesDraining(_) => "DV-GPU-DRAINING",
            Reason::Booked(_) => "DV-BOOKED",
            Reason::DevicesBusy(_) => "DV-GPUS-BUSY",
            Reason::HostBusy(..) => "DV-HOST-BUSY",
            Reason::NoIdleNode => "DV-NO-IDLE-NODE",
            Reason::NoDomain(..) => "DV-TOPOLOGY",
            Reason::GangIncomplete(_) => "DV-GANG",
            Reason::InLine => "DV-IN-LINE",
            Reason::Reserved(_) => "DV-RESERVED",
            Reason::Promised(_) => "DV-PROMISED",
            Reason::Unsupported(_) => "DV-UNSUPPORTED",
            Reason::NoNodeChosen(_) => "DV-NO-NODE-CHOSEN",
            Reason::NotNear(..) => "DV-NOT-NEAR",
            Reason::NotApart(..) => "DV-NOT-APART",
            Reason::Repelled(..) => "DV-REPELLED",
            Reason::NoIsland(..) => "DV-ISLAND",
            Reason::NotSpread(..) => "DV-NOT-SPREAD",
            Reason::OtherNodes(..) => "DV-OTHER-NODES",
            Reason::NodesAbsent(_) => "DV-NODES-ABSENT",
        }
    }

    /// What the planner thinks of a job with this reason.
    pub fn verdict(&self) -> Verdict {
        match self {
            Reason::NoNode
            | Reason::NoSuchModel(_)
            | Reason::NoSuchMemory(_)
            | Reason::TooManyDevices(..)
            | Reason::TooManyTasks(..)
            | Reason::TooMuchHost(..)
            | Reason::Unsupported(_)
            | Reason::NoNodeChosen(_)
            | Reason::OtherNodes(..)
            | Reason::NodesAbsent(_) => Verdict::NoFit,
            Reason::NoDomain(_, asked, most)
            | Reason::NoIsland(_, asked, most)
            | Reason::NotSpread(_, _, asked, most)
                if most < asked =>
            {
                Verdict::NoFit
            }
            _ => Verdict::Later,
        }
    }

    /// Whether a job with this reason keeps back the jobs behind it where jobs start strictly in order. It does not if the pool can
    /// never hold it, or its queue never allows it.
    pub fn keeps_back(&self) -> bool {
        match self {
            // The others have budgets of their own.
            Reason::OverBudget(..) => false,
            _ => !self.keeps_back_for_ever() && self.verdict() != Verdict::NoFit,
        }
    }

    /// Whether the job asks for more than the settings allow at all: until they are changed it never starts.
    pub fn keeps_back_for_ever(&self) -> bool {
        match self {
            Reason::BeyondGuarantee(_, _, most, asked)
            | Reason::QueueLimit(_, _, most, asked)
            | Reason::UserLimit(_, _, most, asked) => asked > most,
            Reason::OverBudget(_, budget, _) => *budget == 0,
            _ => false,
        }
    }

    /// Whether a job with this reason could not start even in an idle pool, as the pool and the limits of its queue are now: it has no
    /// use for what others want.
    pub fn is_for_good(&self) -> bool {
        !self.keeps_back() && !matches!(self, Reason::OverBudget(..))
    }

    /// Whether others may give way so that a job with this reason starts.
    pub(crate) fn may_be_taken_for(&self) -> bool {
        self.verdict() == Verdict::Later && !matches!(self, Reason::OverBudget(..))
    }

    /// Whether it is about the tasks around the job's place.
    pub(crate) fn is_of_neighbours(&self) -> bool {
        matches!(self, Reason::NotNear(..) | Reason::NotApart(..) | Reason::Repelled(..))
    }

    /// Whether it is about what is on the calendar.
    pub(crate) fn is_of_calendar(&self) -> bool {
        matches!(self, Reason::NodesDraining(_) | Reason::DevicesDraining(_) | Reason::Booked(_))
    }

    /// Whether it is about the job alone, and not about others that stand before it.
    pub fn is_its_own(&self) -> bool {
        !matches!(self, Reason::InLine | Reason::Reserved(_))
    }

    /// Whether it stands until something becomes free (L10). A job that is only in line moves on as soon as the line does.
    pub fn lasts(&self) -> bool {
        *self != Reason::InLine
    }

    /// What can change it.
    pub fn wake(&self) -> Wake {
        match self {
            Reason::NotPlanned => Wake::Cycle,
            Reason::Held(_) | Reason::PoolDraining | Reason::OverBudget(_, 0, _) => Wake::Person,
            Reason::Dependency(job, _) => Wake::JobEnds(*job),
            Reason::StartAfter(at) | Reason::OverBudget(_, _, at) => Wake::Time(*at),
            Reason::ArrayLimit(_)
            | Reason::QueueLimit(..)
            | Reason::UserLimit(..)
            | Reason::BeyondGuarantee(..)
            | Reason::BorrowLimit(..)
            | Reason::NotLent(..)
            | Reason::LentOut(..)
            | Reason::Scarce(..)
            | Reason::DevicesBusy(_)
            | Reason::HostBusy(..)
            | Reason::NoIdleNode
            | Reason::GangIncomplete(_)
            | Reason::InLine
            | Reason::Reserved(_)
            | Reason::NotNear(..)
            | Reason::NotApart(..)
            | Reason::Repelled(..)
            | Reason::Promised(_) => Wake::Release,
            Reason::NoDomain(..) | Reason::NoIsland(..) | Reason::NotSpread(..)
                if self.verdict() == Verdict::Later =>
            {
                Wake::Release
            }
            _ => Wake::Capacity,
        }
    }

    /// Whether the job waits for room: another node may end that, whatever else may.
    pub fn is_of_capacity(&self) -> bool {
        match self {
            Reason::NoNode
            | Reason::NoSuchModel(_)
            | Reason::NoSuchMemory(_)
            | Reason::TooManyDevices(..)
            | Reason::TooManyTasks(..)
            | Reason::TooMuchHost(..)
            | Reason::DevicesDown(_)
            | Reason::DevicesForeign(_)
            | Reason::NodesDraining(_)
            | Reason::DevicesDraining(_)
            | Reason::Booked(_)
            | Reason::DevicesBusy(_)
            | Reason::HostBusy(..)
            | Reason::NoIdleNode
            | Reason::NoDomain(..)
            | Reason::NoIsland(..)
            | Reason::GangIncomplete(_)
            | Reason::NotNear(..)
            | Reason::NotApart(..)
            | Reason::Repelled(..)
            | Reason::NotSpread(..)
            | Reason::NoNodeChosen(_)
            | Reason::OtherNodes(..)
            | Reason::NodesAbsent(_) => true,
            Reason::NotPlanned
            | Reason::Held(_)
            | Reason::Dependency(..)
            | Reason::StartAfter(_)
            | Reason::ArrayLimit(_)
            | Reason::QueueLimit(..)
            | Reason::UserLimit(..)
            | Reason::OverBudget(..)
            | Reason::BeyondGuarantee(..)
            | Reason::BorrowLimit(..)
            | Reason::NotLent(..)
            | Reason::LentOut(..)
            | Reason::Scarce(..)
            | Reason::PoolDraining
            | Reason::InLine
            | Reason::Reserved(_)
            | Reason::Promised(_)
            | Reason::Unsupported(_) => false,
        }
    }

    /// The cheapest thing that someone can do about it.
    pub fn fix(&self) -> String {
        match self {
            Reason::NotPlanned => "wait a moment".into(),
            Reason::Held(_) => "release it: divvy release JOB".into(),
            Reason::Dependency(job, _) => format!("wait for job {job}: divvy show {job}"),
            Reason::StartAfter(_) => "wait, or submit it again without a start time".into(),
            Reason::ArrayLimit(most) => format!("submit the array with more than %{most}"),
            Reason::LentOut(..) | Reason::Scarce(..) => self.fix_own().into(),
            Reason::QueueLimit(queue, resource, amount, asked)
            | Reason::BeyondGuarantee(queue, resource, amount, asked)
            | Reason::BorrowLimit(queue, resource, amount, asked)
            | Reason::NotLent(queue, resource, amount, asked) => {
                self.fix_entitlement((queue, resource), (shown(resource, *amount), shown(resource, *asked)))
            }
            Reason::UserLimit(..) | Reason::OverBudget(..) => self.fix_bound(),
            Reason::PoolDraining => "start the pool again: divvy up".into(),
            Reason::NoNode => "start the pool on a machine that takes tasks".into(),
            Reason::NoSuchMemory(class) if !class.least_gb_s.is_unsaid() => {
                "ask for GPUs that the pool has: divvy gpus -o wide".into()
            }
            Reason::NoSuchModel(_) | Reason::NoSuchMemory(_) => {
                "ask for GPUs that the pool has: divvy gpus".into()
            }
            Reason::TooManyDevices(_, most) => {
                format!("ask for at most {most} per task, or split the job into more tasks")
            }
            Reason::TooManyTasks(_, most) => format!("ask for at most {most} task{}", plural(*most)),
            Reason::TooMuchHost(resource, _, most) => {
                format!("ask for at most {}", amount_of(resource, *most))
            }
            Reason::DevicesDown(_) => "have them repaired: divvy gpus shows what is wrong".into(),
            Reason::DevicesForeign(_) => {
                "end what uses them from outside: divvy gpus shows whose it is".into()
            }
            Reason::NodesDraining(_) | Reason::DevicesDraining(_) => {
                "wait for the drain to end: divvy reserve lists what is drained, and until when".into()
            }
            // The reservation may have begun.
            Reason::Booked(_) => {
                "wait, or give it a time limit (-t) that ends before that: divvy reserve lists what is kept"
                    .into()
            }
            Reason::DevicesBusy(_) => {
                "wait for running jobs to end, or ask for fewer GPUs or for other models, too".into()
            }
            Reason::HostBusy(Resource::Cpu, asked) => {
                format!("ask for fewer than {}", amount_of(&Resource::Cpu, *asked))
            }
            Reason::HostBusy(resource, asked) => {
                format!("ask for less than {}", amount_of(resource, *asked))
            }
            Reason::NoIdleNode => "wait for a node to become idle, or submit it without --exclusive".into(),
            Reason::NoDomain(..) | Reason::NoIsland(..) | Reason::NotSpread(..) => domains::fix(self),
            Reason::GangIncomplete(1) => "wait for running jobs to end, or ask for less".into(),
            Reason::GangIncomplete(_) => "wait for running jobs to end, or ask for fewer tasks".into(),
            Reason::InLine => "wait for the jobs before it, or have the pool's order made less strict".into(),
            Reason::Reserved(owner) => ends_before(*owner),
            Reason::Promised(1) => "wait a moment: it starts when that task has stopped".into(),
            Reason::Promised(_) => "wait a moment: it starts when they have stopped".into(),
            Reason::Unsupported(_) => "submit it without that".into(),
            Reason::NoNodeChosen(_) => "ask for labels that nodes have, and put up with their taints".into(),
            Reason::NotNear(..) | Reason::NotApart(..) | Reason::Repelled(..) => neighbours::fix(self),
            Reason::OtherNodes(..) | Reason::NodesAbsent(_) => kept::fix(self),
        }
    }
}

fn ends_before(owner: JobId) -> String {
    format!(
        "give it a time limit (-t) that ends before job {owner} can start: divvy explain {owner} says when"
    )
}

/// Formats thousandths: `2000 GPU-hours`, `1 GPU-hour`.
pub fn gpu_hours(milli: i64) -> String {
    format!("{} GPU-hour{}", shown(&Resource::Any, milli), if milli == 1000 { "" } else { "s" })
}

/// An amount in the unit that people use for the resource.
pub fn shown(resource: &Resource, amount: i64) -> String {
    match resource {
        Resource::Memory | Resource::Storage => Bytes(amount).to_string(),
        Resource::Pods | Resource::Extended(_) => amount.to_string(),
        _ if amount % 1000 == 0 => (amount / 1000).to_string(),
        _ => format!("{}.{:03}", amount / 1000, amount % 1000).trim_end_matches('0').to_owned(),
    }
}

/// An amount and of what: `16 cores`, `1 core`, `64Gi of memory`.
pub fn amount_of(resource: &Resource, amount: i64) -> String {
    let shown = shown(resource, amount);
    match resource {
        Resource::Cpu => format!("{shown} core{}", if amount == 1000 { "" } else { "s" }),
        _ => format!("{shown} of {resource}"),
    }
}

fn plural(count: u32) -> &'static str {
    if count == 1 { "" } else { "s" }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NotPlanned => write!(f, "submitted a moment ago"),
            Reason::Held(by) => write!(f, "held by {by}"),
            Reason::Dependency(job, on) => write!(f, "waits for job {job} to {}", awaited(*on)),
            Reason::StartAfter(_) => write!(f, "its start time has not come"),
            Reason::ArrayLimit(most) => {
                write!(f, "{most} member{} of its array run, as many as may", plural(*most))
            }
            Reason::LentOut(queue, resource) => quotas::fmt_lent(f, queue, resource),
            Reason::Scarce(queue, resource) => quotas::fmt_scarce(f, queue, resource),
            Reason::QueueLimit(queue, resource, amount, asked)
            | Reason::BeyondGuarantee(queue, resource, amount, asked)
            | Reason::BorrowLimit(queue, resource, amount, asked)
            | Reason::NotLent(queue, resource, amount, asked) => {
                self.fmt_entitlement(f, (queue, resource), (*amount, *asked))
            }
            Reason::UserLimit(..) | Reason::OverBudget(..) => self.fmt_bound(f),
            Reason::PoolDraining => write!(f, "the pool is being taken down and starts nothing new"),
            Reason::NoNode => write!(f, "the pool has no node that takes tasks"),
            Reason::NoSuchModel(class) => write!(f, "the pool has no GPU like {class}"),
            Reason::NoSuchMemory(class) => write!(f, "no GPU of that model has such memory: {class}"),
            Reason::TooManyDevices(..) | Reason::TooManyTasks(..) | Reason::TooMuchHost(..) => {
                self.fmt_too_much(f)
            }
            Reason::DevicesDown(count) => write!(f, "{} down", would_do(*count)),
            Reason::DevicesForeign(count) => write!(f, "{} used from outside the pool", would_do(*count)),
            Reason::NodesDraining(count) => {
                write!(f, "{count} node{} that would do {} being drained", plural(*count), are(*count))
            }
            Reason::DevicesDraining(count) => write!(f, "{} being drained", would_do(*count)),
            Reason::Booked(from) => write!(f, "what is free is reserved from {} on", utc(*from)),
            Reason::DevicesBusy(count) => match count {
                1 => write!(f, "every GPU that would do is taken"),
                _ => write!(f, "no node has {count} GPUs free that would do"),
            },
            Reason::HostBusy(resource, asked) => {
                write!(f, "no node has {} left", amount_of(resource, *asked))
            }
            Reason::NoIdleNode => write!(f, "wants its nodes for itself, and none is idle"),
            Reason::NoDomain(..) | Reason::NoIsland(..) | Reason::NotSpread(..) => domains::text(f, self),
            Reason::GangIncomplete(minimum) => f.write_str(&incomplete(*minimum)),
            Reason::InLine => write!(f, "jobs start strictly in order, and one before it does not fit yet"),
            Reason::Reserved(owner) => {
                write!(f, "what is free is kept for job {owner}, which is before it in line")
            }
            Reason::Promised(1) => {
                write!(f, "its devices are promised to it; the task that holds them is being stopped")
            }
            Reason::Promised(tasks) => {
                write!(f, "its devices are promised to it; {tasks} tasks that hold them are being stopped")
            }
            Reason::Unsupported(what) => write!(f, "no engine of this pool runs {what}"),
            Reason::NoNodeChosen(nodes) => {
                write!(
                    f,
                    "of {nodes} node{} none has the labels that it asks for and only taints that it puts up with",
                    plural(*nodes)
                )
            }
            Reason::NotNear(..) | Reason::NotApart(..) | Reason::Repelled(..) => neighbours::text(f, self),
            Reason::OtherNodes(..) | Reason::NodesAbsent(_) => kept::text(f, self),
        }
    }
}

fn would_do(count: u32) -> String {
    format!("{count} GPU{} that would do {}", plural(count), are(count))
}

fn incomplete(minimum: u32) -> String {
    match minimum {
        1 => "no node that would do has all that it asks for left at once".into(),
        _ => format!("not all of its {minimum} tasks fit at once"),
    }
}

impl Reason {
    /// Writes the reasons of asking for more than the pool could ever give at once.
    fn fmt_too_much(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::TooManyDevices(asked, most) => {
                write!(
                    f,
                    "asks for {asked} GPU{} on one node; the largest node has {most} of them",
                    plural(*asked)
                )
            }
            Reason::TooManyTasks(asked, most) => {
                write!(f, "asks for {asked} task{} at once; the empty pool holds {most}", plural(*asked))
            }
            Reason::TooMuchHost(resource, asked, most) => {
                let (asked, most) = (amount_of(resource, *asked), shown(resource, *most));
                write!(f, "asks for {asked}; the largest node has {most}")
            }
            other => f.write_str(other.code()),
        }
    }

    /// The reason of a job that would exceed the limit at a path, which is that of a queue or of a user.
    pub(crate) fn limit(path: &str, resource: Resource, (most, asked): (i64, i64)) -> Self {
        match user_at(path) {
            None => Reason::QueueLimit(path.to_owned(), resource, most, asked),
            Some(_) => Reason::UserLimit(path.to_owned(), resource, most, asked),
        }
    }
}

fn awaited(on: DependsOn) -> &'static str {
    match on {
        DependsOn::Ok => "complete",
        DependsOn::Fail => "fail",
        DependsOn::Any => "end",
    }
}

fn are(count: u32) -> &'static str {
    if count == 1 { "is" } else { "are" }
}
