//! Changes: what can be different about a job, other jobs or the pool so that it starts; what each costs, and its text.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use super::fix::listed;
use crate::amount::Resource;
use crate::id::JobId;
use crate::model::ask::DeviceClass;
use crate::model::job::priority;
use crate::model::queue::{Nodes, utc};
use crate::reason::{gpu_hours, shown};
use crate::time::{Span, Time};

/// One thing to change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Change {
    /// Release the job.
    Release,
    /// Let it wait no longer for that job.
    DropDependency {
        /// Which.
        job: JobId,
    },
    /// Let it start at any time.
    StartNow,
    /// Let so many members of its array run at once.
    ArrayBound {
        /// How many.
        to: u32,
    },
    /// Let it give way to others.
    Preemptible,
    /// Let others run beside it on its nodes.
    ShareNodes,
    /// Let its tasks lie anywhere.
    AnyPlace,
    /// Let the devices of a task lie in several islands of their node.
    AnyIsland,
    /// Let its tasks lie on any node, whatever its labels and taints.
    AnyNode,
    /// Let its tasks lie beside any others.
    AnyNeighbours,
    /// Let it take another model, too.
    AcceptModel {
        /// Which.
        model: String,
    },
    /// Let it take devices of any memory.
    AcceptSizes,
    /// Let it take devices however slow their memory is.
    AcceptSlower,
    /// Ask for fewer devices for each task of a role.
    FewerDevices {
        /// Its role.
        role: String,
        /// What it asks for.
        from: u32,
        /// What it is to ask for.
        to: u32,
    },
    /// Ask for fewer tasks of a role.
    FewerTasks {
        /// Its role.
        role: String,
        /// What it asks for.
        from: u32,
        /// What it is to ask for.
        to: u32,
    },
    /// Ask for fewer cores, or less memory, for each task of a role.
    LessHost {
        /// Its role.
        role: String,
        /// Cores or memory.
        resource: Resource,
        /// What each task gets.
        from: i64,
        /// What it is to ask for.
        to: i64,
    },
    /// Set a time limit, or a shorter one: what is kept for others may be used until then.
    TimeLimit {
        /// What it says, in milliseconds.
        from_ms: Option<i64>,
        /// What it is to say.
        to_ms: i64,
    },
    /// Wait for a moment.
    Wait {
        /// Until then.
        until: Time,
    },
    /// Wait until a reservation on the calendar begins or ends.
    AwaitCalendar {
        /// Which.
        id: u64,
        /// When it does.
        until: Time,
    },
    /// Wait until running jobs that are safe for now may be stopped for others.
    AwaitSafety {
        /// When one of them may be.
        until: Time,
    },
    /// Wait for the budget of a queue to renew.
    AwaitBudget {
        /// Whose.
        queue: String,
        /// When it does.
        until: Time,
    },
    /// Wait for a running job (or member) to end.
    End {
        /// Which.
        job: JobId,
    },
    /// Wait until tasks that hold what is promised to the job have stopped.
    AwaitStop {
        /// Whose they are.
        jobs: Vec<JobId>,
        /// How many.
        tasks: u32,
        /// When they have at the latest, where that is known.
        until: Option<Time>,
    },
    /// Let the pool start jobs again.
    EndDrain,
    /// Let a node take tasks again.
    Undrain {
        /// Its name.
        node: String,
    },
    /// Cancel a reservation on the calendar.
    EndReservation {
        /// Which.
        id: u64,
        /// The node or device that it drains, where that is a single one.
        drained: Option<String>,
    },
    /// Have broken devices of a node repaired.
    Repair {
        /// Its name.
        node: String,
        /// How many.
        devices: u32,
    },
    /// End what uses devices of a node from outside the pool.
    Vacate {
        /// Its name.
        node: String,
        /// How many.
        devices: u32,
    },
    /// Raise what a queue may hold.
    RaiseLimit(Raise),
    /// Raise what each user of a queue may hold.
    RaiseUserLimit(Raise),
    /// Raise the budget of a queue.
    RaiseBudget {
        /// Whose.
        queue: String,
        /// What it is, in thousandths of GPU-hours.
        from: i64,
        /// What it is to be.
        to: i64,
    },
    /// Raise what a queue is guaranteed.
    RaiseGuarantee(Raise),
    /// Raise what a queue may borrow.
    RaiseBorrow(Raise),
    /// Raise what a queue lends.
    RaiseLend(Raise),
    /// Give a queue, or a user of it, a weight of 1 instead of 0: of what nobody is guaranteed it then gets a part while others
    /// want it, too.
    Weigh {
        /// Which queue.
        queue: String,
        /// The user, where it is the weight among the queue's users.
        #[serde(skip_serializing_if = "Option::is_none")]
        user: Option<String>,
    },
    /// Put the job before others.
    Prioritise {
        /// Its priority.
        to: i32,
    },
    /// Let jobs pass one that does not fit.
    AnyOrder,
    /// Add nodes with room for so many tasks.
    AddRoom {
        /// How many tasks.
        tasks: u32,
        /// Devices of each.
        devices: u32,
        /// Their model.
        model: String,
        /// The labels or names that they need, where its queue has nodes of its own.
        #[serde(skip_serializing_if = "Option::is_none")]
        kept: Option<Nodes>,
        /// What its devices have to be like, where the pool has none of the model to go by.
        #[serde(skip_serializing_if = "Option::is_none")]
        class: Option<DeviceClass>,
    },
    /// Let more of its tasks lie in one domain of a level over which they are spread.
    MoreInOne {
        /// The level.
        level: String,
        /// How many may.
        from: u32,
        /// How many are to.
        to: u32,
    },
    /// Let its tasks be spread only as far as there is room.
    AnySpread,
}

/// A setting of a queue that is raised.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Raise {
    /// Whose.
    pub queue: String,
    /// Of what.
    pub resource: Resource,
    /// What it is.
    pub from: i64,
    /// What it is to be.
    pub to: i64,
}

/// Who can bring a change about. Of two changes the one of the lower tier is cheaper, whatever else they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// The job's user, on the job alone.
    Own,
    /// Nobody: it comes with time, as jobs end.
    Time,
    /// An administrator.
    Grant,
}

/// What changes cost, compared from the first field to the last: what must be bought, then what an administrator must grant,
/// then what must be waited for, then how much less the job gets, then what it accepts. The costs of several changes add up;
/// of the moments to wait for, the last one counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Cost {
    /// Devices (tasks, where these have none) for which nodes must be added.
    pub bought: u32,
    /// Things that an administrator must grant.
    pub grants: u32,
    /// By how much settings must be raised: thousandths of devices or cores, MiB.
    pub granted: i64,
    /// When the last of the ends waited for is expected, in milliseconds; the largest number where that is unknown.
    pub until_ms: i64,
    /// How many ends must be waited for.
    pub ends: u32,
    /// How much less the job gets, in thousandths of devices.
    pub fewer_milli: i64,
    /// How much less it gets of cores and memory, in thousandths of what it asks for.
    pub less_host: i64,
    /// By how much sooner its time limit ends it, in milliseconds; a job without one counts as four weeks.
    pub less_time_ms: i64,
    /// Things that it accepts without getting less: another model, to give way, other places.
    pub accepted: u32,
    /// Conditions of its own that it gives up: a start time, a dependency, a bound, being held.
    pub waived: u32,
}

impl Cost {
    /// What both cost together.
    pub fn with(self, other: Self) -> Self {
        Self {
            bought: self.bought.saturating_add(other.bought),
            grants: self.grants.saturating_add(other.grants),
            granted: self.granted.saturating_add(other.granted),
            until_ms: self.until_ms.max(other.until_ms),
            ends: self.ends.saturating_add(other.ends),
            fewer_milli: self.fewer_milli.saturating_add(other.fewer_milli),
            less_host: self.less_host.saturating_add(other.less_host),
            less_time_ms: self.less_time_ms.saturating_add(other.less_time_ms),
            accepted: self.accepted.saturating_add(other.accepted),
            waived: self.waived.saturating_add(other.waived),
        }
    }
}

impl Change {
    /// Who can bring it about.
    pub fn tier(&self) -> Tier {
        match self {
            Change::Release
            | Change::DropDependency { .. }
            | Change::StartNow
            | Change::ArrayBound { .. }
            | Change::Preemptible
            | Change::ShareNodes
            | Change::AnyPlace
            | Change::AnyIsland
            | Change::AnyNode
            | Change::AnyNeighbours
            | Change::MoreInOne { .. }
            | Change::AnySpread
            | Change::AcceptModel { .. }
            | Change::AcceptSizes
            | Change::AcceptSlower
            | Change::FewerDevices { .. }
            | Change::FewerTasks { .. }
            | Change::LessHost { .. }
            | Change::TimeLimit { .. } => Tier::Own,
            Change::Wait { .. }
            | Change::AwaitCalendar { .. }
            | Change::AwaitSafety { .. }
            | Change::AwaitBudget { .. }
            | Change::AwaitStop { .. }
            | Change::End { .. } => Tier::Time,
            _ => Tier::Grant,
        }
    }

    /// Whether it gives up a condition of the job's own, which keeps it out of the line.
    pub fn is_waiver(&self) -> bool {
        matches!(
            self,
            Change::Release | Change::DropDependency { .. } | Change::StartNow | Change::ArrayBound { .. }
        )
    }

    /// What the change is about: of two changes with the same subject only one can be made. 0 is no subject.
    pub(crate) fn subject(&self) -> (u8, &str, Option<&Resource>) {
        match self {
            Change::FewerDevices { role, .. } => (1, role, None),
            Change::FewerTasks { role, .. } => (2, role, None),
            Change::LessHost { role, resource, .. } => (3, role, Some(resource)),
            Change::RaiseLimit(raise) => (4, &raise.queue, Some(&raise.resource)),
            Change::RaiseGuarantee(raise) => (5, &raise.queue, Some(&raise.resource)),
            Change::RaiseBorrow(raise) => (6, &raise.queue, Some(&raise.resource)),
            Change::RaiseLend(raise) => (7, &raise.queue, Some(&raise.resource)),
            Change::AddRoom { .. } => (8, "", None),
            Change::TimeLimit { .. } => (9, "", None),
            Change::RaiseBudget { queue, .. } => (11, queue, None),
            Change::RaiseUserLimit(raise) => (10, &raise.queue, Some(&raise.resource)),
            Change::MoreInOne { level, .. } => (12, level, None),
            Change::Prioritise { .. } => (13, "", None),
            _ => (0, "", None),
        }
    }

    /// Whether both can be made.
    pub fn goes_with(&self, other: &Change) -> bool {
        self != other && (self.subject().0 == 0 || self.subject() != other.subject())
    }
}

/// The changes in their order; of those with one subject, the one that goes furthest.
pub(crate) fn merged(changes: &[Change]) -> Vec<Change> {
    // There can be very many ends, and no two have the same subject.
    let mut alone: BTreeSet<&Change> = BTreeSet::new();
    let mut merged: Vec<Change> = Vec::new();
    for change in changes {
        if change.subject().0 == 0 {
            alone.insert(change);
            continue;
        }
        match merged.iter_mut().find(|known| !known.goes_with(change)) {
            Some(known) => known.take_in(change),
            None => merged.push(change.clone()),
        }
    }
    merged.extend(alone.into_iter().cloned());
    merged.sort();
    merged
}

impl Change {
    /// Makes it go from where the one begins to where the other ends.
    fn take_in(&mut self, other: &Change) {
        match (self, other) {
            (
                Change::FewerDevices { from, to, .. } | Change::FewerTasks { from, to, .. },
                Change::FewerDevices { from: before, to: then, .. }
                | Change::FewerTasks { from: before, to: then, .. },
            ) => (*from, *to) = ((*from).max(*before), (*to).min(*then)),
            (Change::LessHost { from, to, .. }, Change::LessHost { from: before, to: then, .. }) => {
                (*from, *to) = ((*from).max(*before), (*to).min(*then));
            }
            (
                Change::RaiseLimit(raise)
                | Change::RaiseGuarantee(raise)
                | Change::RaiseBorrow(raise)
                | Change::RaiseUserLimit(raise)
                | Change::RaiseLend(raise),
                Change::RaiseLimit(other)
                | Change::RaiseGuarantee(other)
                | Change::RaiseBorrow(other)
                | Change::RaiseUserLimit(other)
                | Change::RaiseLend(other),
            ) => (raise.from, raise.to) = (raise.from.min(other.from), raise.to.max(other.to)),
            (Change::TimeLimit { to_ms, .. }, Change::TimeLimit { to_ms: other, .. }) => {
                *to_ms = (*to_ms).min(*other);
            }
            (Change::MoreInOne { from, to, .. }, Change::MoreInOne { from: before, to: then, .. }) => {
                (*from, *to) = ((*from).min(*before), (*to).max(*then));
            }
            (Change::Prioritise { to }, Change::Prioritise { to: other }) => *to = (*to).max(*other),
            (Change::AddRoom { tasks, .. }, Change::AddRoom { tasks: more, .. }) => *tasks += more,
            _ => {}
        }
    }
}

impl Raise {
    /// By how much, in the units of [`Cost::granted`].
    pub(crate) fn by(&self) -> i64 {
        let more = self.to.saturating_sub(self.from);
        match self.resource {
            Resource::Memory | Resource::Storage => (more >> 20).max(1),
            _ => more,
        }
    }

    fn text(&self, what: &str) -> String {
        let more = shown(&self.resource, self.to.saturating_sub(self.from));
        let to = shown(&self.resource, self.to);
        let of = match (&self.resource, more.as_str()) {
            (Resource::Any, "1") => "GPU".into(),
            (Resource::Any, _) => "GPUs".into(),
            (Resource::Cpu, _) => "cores".into(),
            (other, _) => other.to_string(),
        };
        format!("{more} more {of} of {what} for {} (to {to})", self.queue)
    }
}

/// The text of the change, as advice.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Release => write!(f, "release it"),
            Change::DropDependency { job } => write!(f, "let it not wait for job {job}"),
            Change::StartNow => write!(f, "submit it without a start time"),
            Change::ArrayBound { to } => write!(f, "let {to} members of the array run at once"),
            Change::Preemptible => write!(f, "submit it as preemptible"),
            Change::ShareNodes => write!(f, "submit it without --exclusive"),
            Change::AnyPlace => write!(f, "let its tasks lie anywhere"),
            Change::AnyIsland => write!(f, "let a task's GPUs lie in several islands of a node"),
            Change::AnyNode => write!(f, "let its tasks lie on any node"),
            Change::AnyNeighbours => write!(f, "submit it without near and apart"),
            Change::MoreInOne { level, from, to } => {
                write!(f, "let {to} tasks lie in one {level} instead of {from}")
            }
            Change::AnySpread => write!(f, "only prefer to have its tasks spread"),
            Change::AcceptModel { model } => write!(f, "accept {model}, too"),
            Change::AcceptSizes => write!(f, "accept GPUs of any memory"),
            Change::AcceptSlower => write!(f, "accept GPUs with slower memory"),
            Change::FewerDevices { role, from, to } => {
                write!(f, "ask for {to} GPU{} per task instead of {from}{}", plural(*to), in_role(role))
            }
            Change::FewerTasks { role, from, to } => {
                write!(f, "ask for {to} task{} instead of {from}{}", plural(*to), in_role(role))
            }
            Change::LessHost { role, resource, from, to } => {
                let what = if *resource == Resource::Cpu { "cores".into() } else { resource.to_string() };
                let (from, to) = (shown(resource, *from), shown(resource, *to));
                write!(f, "ask for {to} of {what} per task instead of {from}{}", in_role(role))
            }
            Change::TimeLimit { to_ms, .. } => {
                write!(f, "say a time limit of at most {0} (-t {0})", Span(*to_ms))
            }
            Change::Wait { .. }
            | Change::AwaitCalendar { .. }
            | Change::AwaitSafety { .. }
            | Change::AwaitBudget { .. }
            | Change::AwaitStop { .. } => self.fmt_moment(f),
            Change::End { job } => write!(f, "wait for job {job} to end"),
            Change::EndDrain => write!(f, "the pool starts jobs again: divvy up"),
            Change::Undrain { node } => write!(f, "node {node} takes jobs again"),
            Change::EndReservation { drained: Some(drained), .. } => {
                write!(f, "{drained} takes jobs again: divvy gpus undrain {drained}")
            }
            Change::EndReservation { id, .. } => {
                write!(f, "reservation {id} taken back: divvy reserve --cancel {id}")
            }
            Change::Repair { node, devices } => {
                write!(f, "{devices} GPU{} of {node} repaired", plural(*devices))
            }
            Change::Vacate { node, devices } => {
                write!(f, "{devices} GPU{} of {node} no longer used from outside the pool", plural(*devices))
            }
            Change::RaiseLimit(raise) => f.write_str(&raise.text("limit")),
            Change::RaiseBudget { queue, from, to } => {
                let (more, to) = (gpu_hours(to.saturating_sub(*from)), shown(&Resource::Any, *to));
                write!(f, "{} of budget for {queue} (to {to})", more.replacen(' ', " more ", 1))
            }
            Change::RaiseUserLimit(raise) => f.write_str(&raise.text("limit of each user")),
            Change::RaiseGuarantee(raise) => f.write_str(&raise.text("guarantee")),
            Change::RaiseBorrow(raise) => f.write_str(&raise.text("what may be borrowed")),
            Change::RaiseLend(raise) => f.write_str(&raise.text("what is lent")),
            Change::Weigh { queue, user } => f.write_str(&weight(queue, user.as_deref())),
            Change::Prioritise { to } => write!(f, "priority {} for it", priority::named(*to)),
            Change::AnyOrder => write!(f, "an order that is not strict"),
            Change::AddRoom { tasks, devices, model, kept, class } => {
                f.write_str(&room(*tasks, *devices, (model, class.as_ref()), kept.as_ref()))
            }
        }
    }
}

impl Change {
    /// Until when to wait, and why.
    fn fmt_moment(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::AwaitCalendar { id, until } => {
                write!(f, "wait until {}: divvy reserve has it as reservation {id}", utc(*until))
            }
            Change::AwaitSafety { until } => {
                write!(f, "wait until {}: until then those who run are safe from it", utc(*until))
            }
            Change::AwaitBudget { queue, until } => {
                write!(f, "wait for more of the budget of {queue} until {}", utc(*until))
            }
            Change::AwaitStop { jobs, tasks, .. } => {
                let noun = if jobs.len() == 1 { "job" } else { "jobs" };
                match tasks {
                    1 => write!(f, "wait until the task of {noun} {} has stopped", listed(jobs)),
                    tasks => write!(f, "wait until {tasks} tasks of {noun} {} have stopped", listed(jobs)),
                }
            }
            _ => write!(f, "wait until its start time"),
        }
    }
}

/// Names a queue, or a user of it, that has no weight.
fn weight(queue: &str, user: Option<&str>) -> String {
    match user {
        None => format!("a weight of 1 for {queue} (it has 0)"),
        Some(user) => format!("a weight of 1 for {user} among the users of {queue} (it is 0)"),
    }
}

/// Names new nodes, and what makes them those of a queue that has nodes of its own.
fn room(
    tasks: u32,
    devices: u32,
    (model, class): (&str, Option<&DeviceClass>),
    kept: Option<&Nodes>,
) -> String {
    let model = class.map_or_else(|| model.to_owned(), ToString::to_string);
    let nodes = match (tasks, devices) {
        (_, 0) => format!("nodes for {tasks} more tasks"),
        (1, _) => format!("a node with {devices} more {model}"),
        _ => format!("nodes with {tasks} × {devices} more {model}"),
    };
    match kept {
        Some(own @ Nodes::Labelled(_)) => format!("{nodes}, labelled {own}"),
        Some(own @ Nodes::Named(_)) => format!("{nodes}, named {own}"),
        None => nodes,
    }
}

/// The role, where a job has several: one alone is called `main`.
fn in_role(role: &str) -> String {
    if role.is_empty() || role == "main" { String::new() } else { format!(" ({role})") }
}

fn plural(count: u32) -> &'static str {
    if count == 1 { "" } else { "s" }
}
