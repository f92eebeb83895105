//! Events: all that ever happens to the state. The log keeps them for ever, so their forms have a version, and old ones must load.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::engine::{TaskEnd, TaskStart};
use crate::id::{AllocationId, ClassId, DeviceId, JobId, NodeId, Position, Term};
use crate::model::allocation::Placement;
use crate::model::device::{DeviceSpec, Health, Occupant};
use crate::model::job::{Cause, Estimate, JobState, LastEnd, StopOrder, Submission};
use crate::model::node::{NodeSpec, NodeState, OthersHold};
use crate::model::policy::Policy;
use crate::model::promise::Promise;
use crate::model::queue::Queue;
use crate::model::recollection::Recollection;
use crate::model::reservation::Reservation;
use crate::reason::Reason;
use crate::time::Time;

/// An event and when it was logged. Stamps never fall: the shell takes the later of the last stamp and the wall clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stamped {
    /// When.
    pub at: Time,
    /// What.
    pub event: Event,
}

/// Something that happened. `State::apply` folds it; nothing in it needs the planner to be understood. Large and rare parts are
/// behind a pointer: an event is moved several times, and most events are about one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The daemon started (or leadership began): actions carry this term from here on.
    TermBegan {
        /// Higher than all before.
        term: Term,
        /// The kernel's boot id.
        boot_id: String,
        /// The program's version.
        version: String,
    },
    /// A node is new, or has changed.
    NodeSeen {
        /// Its id, new or known.
        node: NodeId,
        /// What it is now.
        spec: Box<NodeSpec>,
        /// Its state.
        state: NodeState,
    },
    /// What tasks from outside the pool hold of a node.
    OthersHold {
        /// Which.
        node: NodeId,
        /// How much.
        hold: OthersHold,
        /// Whether they hold less of anything than before.
        frees: bool,
    },
    /// A device is new, or has changed.
    DeviceSeen {
        /// Its id, new or known.
        device: DeviceId,
        /// Its node.
        node: NodeId,
        /// What it is now.
        spec: Arc<DeviceSpec>,
    },
    /// A device's health or its outside user has changed.
    DeviceChanged {
        /// Which.
        device: DeviceId,
        /// Whether it works.
        health: Health,
        /// Who uses it besides the pool.
        occupant: Option<Occupant>,
    },
    /// The queues were set.
    QueuesSet {
        /// All of them.
        queues: Vec<Queue>,
        /// Who changed them.
        by: String,
        /// Why, in that person's words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// The planner's settings were set.
    PolicySet {
        /// All of them.
        policy: Box<Policy>,
        /// Who changed them.
        by: String,
        /// Why, in that person's words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// The pool starts nothing new (or starts things again).
    DrainSet {
        /// Whether it drains.
        on: bool,
        /// Who said so.
        by: String,
    },
    /// A reservation was made: nodes or devices are kept from some moment on.
    ReservationMade(Box<Reservation>),
    /// A reservation has begun.
    ReservationBegan {
        /// Which reservation.
        id: u64,
    },
    /// A reservation is over.
    ReservationEnded {
        /// Which reservation.
        id: u64,
        /// Who took it back; `None` where its time is over.
        by: Option<String>,
    },
    /// A job, or a whole array, was submitted.
    Submitted(Box<Submission>),
    /// A waiting job is held until it is released.
    Held {
        /// Which; an array as a whole when it names no member.
        job: JobId,
        /// Who did it.
        by: String,
    },
    /// A job's work up to now is safe: a stop loses only what comes after.
    Checkpointed {
        /// Which.
        job: JobId,
        /// Who said so.
        by: String,
    },
    /// A held job was released.
    Released {
        /// Which.
        job: JobId,
        /// Who did it.
        by: String,
    },
    /// A job got another priority.
    Prioritised {
        /// Which; an array as a whole.
        job: JobId,
        /// Its priority.
        priority: i32,
        /// Who did it.
        by: String,
    },
    /// A job's run time was estimated.
    Estimated {
        /// Which; an array as a whole.
        job: JobId,
        /// How long.
        estimate: Estimate,
    },
    /// A job will get devices that others still hold.
    Promised(Box<Promise>),
    /// A promise was revoked: the job will not get these devices.
    Revoked {
        /// Which job.
        job: JobId,
    },
    /// A job that has not run for a long time gets a place before all others, and keeps it for a while.
    Relieved {
        /// Which.
        job: JobId,
    },
    /// A job got its devices: an attempt begins.
    Placed {
        /// Which job.
        job: JobId,
        /// One per task, by rank.
        placements: Vec<Placement>,
        /// Where the gang's tasks meet.
        port: u16,
    },
    /// A job was already running when the log began, and holds these devices.
    Adopted {
        /// Which job.
        job: JobId,
        /// One per task, by rank.
        placements: Vec<Placement>,
        /// Since when it has been running.
        since: Time,
    },
    /// A running job got devices for further tasks.
    Grown {
        /// Which job.
        job: JobId,
        /// One per further task, by rank.
        placements: Vec<Placement>,
    },
    /// Some tasks of a job were told to stop; it runs on with the others.
    Shrinking {
        /// Which job.
        job: JobId,
        /// The allocations of these tasks.
        allocations: Vec<AllocationId>,
        /// Why.
        cause: Cause,
        /// Through whom: a user, a job, or the pool's own rule.
        by: Option<String>,
    },
    /// A task has started.
    TaskStarted {
        /// Which.
        allocation: AllocationId,
        /// How.
        start: TaskStart,
    },
    /// A job was told to stop.
    Stopping {
        /// Which.
        job: JobId,
        /// Why.
        cause: Cause,
        /// Through whom: a user, a job, or the pool's own rule.
        by: Option<String>,
        /// How.
        order: StopOrder,
        /// Whether it goes back into its queue afterwards.
        requeue: bool,
    },
    /// A task that was told to stop has not ended in time: nobody is to count on its end any more.
    Overdue {
        /// Which.
        allocation: AllocationId,
    },
    /// A task is over; its devices are free.
    TaskEnded {
        /// Which.
        allocation: AllocationId,
        /// How.
        end: TaskEnd,
        /// When it ended, where that was seen late: its use is charged until then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended_at: Option<Time>,
    },
    /// An attempt is over: all of its tasks are.
    AttemptEnded {
        /// Which job.
        job: JobId,
        /// Why.
        end: LastEnd,
        /// The exit code of the first task to fail, else 0; 128 + n for signal n.
        exit_code: i32,
        /// What the job is from now on: an ended state, or pending (with the next attempt).
        state: JobState,
        /// When the last task ended, where that was seen late.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended_at: Option<Time>,
    },
    /// A waiting job is over without having run.
    Dropped {
        /// Which; an array (its waiting members) when it names no member.
        job: JobId,
        /// Why.
        end: LastEnd,
        /// The state it ends in.
        state: JobState,
    },
    /// The verdicts of classes have changed; `None` for a class in which no job waits any more.
    Judged {
        /// Class, and what keeps it waiting.
        classes: Vec<(ClassId, Option<Reason>)>,
    },
    /// Time has passed.
    Tick,
    /// What is due to queues with waiting jobs has changed.
    Due {
        /// Queue, and what is due to its own jobs in thousandths of devices; `None` where that is what they use now, which is
        /// all that they want.
        queues: Vec<(String, Option<i64>)>,
    },
    /// A cycle is over.
    Planned {
        /// The log position that it saw.
        saw: Position,
        /// Digest of the state that it saw.
        state: u64,
        /// Digest of the policy that it saw.
        policy: u64,
        /// Digest of its plan.
        plan: u64,
    },
    /// What was used before the log began has been restored.
    Recalled {
        /// As of when.
        of: Time,
        /// By where jobs stand: in queues, or as users of them.
        known: BTreeMap<String, Recollection>,
    },
}

/// Returns when something ended whose end was seen at a moment, maybe late.
pub(crate) fn seen_end(ended_at: Option<Time>, seen_at: Time) -> Time {
    ended_at.map_or(seen_at, |ended| ended.min(seen_at))
}

/// The version of the event forms that this program writes. One number for all kinds: a change of any form raises it, and
/// `upcast` lifts older forms to it.
pub const VERSION: u16 = 1;

/// Why an event of the log cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// It was written by a newer program.
    #[error(
        "event of version {0}: this program knows versions up to {VERSION}; use the newer program that wrote it"
    )]
    Newer(u16),
    /// Its text is not what this version writes.
    #[error("event of kind {kind:?}: {error}")]
    Form {
        /// The kind that it claims.
        kind: String,
        /// What the reader says.
        error: String,
    },
}

impl Event {
    /// The kind's name, as the log keeps it.
    pub fn kind(&self) -> &'static str {
        match self {
            Event::TermBegan { .. } => "term_began",
            Event::NodeSeen { .. } => "node_seen",
            Event::OthersHold { .. } => "others_hold",
            Event::DeviceSeen { .. } => "device_seen",
            Event::DeviceChanged { .. } => "device_changed",
            Event::QueuesSet { .. } => "queues_set",
            Event::PolicySet { .. } => "policy_set",
            Event::DrainSet { .. } => "drain_set",
            Event::ReservationMade(_) => "reservation_made",
            Event::ReservationBegan { .. } => "reservation_began",
            Event::ReservationEnded { .. } => "reservation_ended",
            Event::Submitted(_) => "submitted",
            Event::Held { .. } => "held",
            Event::Prioritised { .. } => "prioritised",
            Event::Released { .. } => "released",
            Event::Checkpointed { .. } => "checkpointed",
            Event::Estimated { .. } => "estimated",
            Event::Promised(_) => "promised",
            Event::Revoked { .. } => "revoked",
            Event::Relieved { .. } => "relieved",
            Event::Placed { .. } => "placed",
            Event::Adopted { .. } => "adopted",
            Event::Grown { .. } => "grown",
            Event::Shrinking { .. } => "shrinking",
            Event::TaskStarted { .. } => "task_started",
            Event::Stopping { .. } => "stopping",
            Event::Overdue { .. } => "overdue",
            Event::TaskEnded { .. } => "task_ended",
            Event::AttemptEnded { .. } => "attempt_ended",
            Event::Dropped { .. } => "dropped",
            Event::Judged { .. } => "judged",
            Event::Tick => "tick",
            Event::Due { .. } => "due",
            Event::Planned { .. } => "planned",
            Event::Recalled { .. } => "recalled",
        }
    }

    /// Whether the planner has to look at it. What the planner itself wrote is no news (L10).
    pub fn is_news(&self) -> bool {
        !matches!(
            self,
            Event::Planned { .. }
                | Event::Judged { .. }
                | Event::Promised(_)
                | Event::Relieved { .. }
                | Event::Placed { .. }
                | Event::Grown { .. }
                | Event::Shrinking { .. }
                | Event::TaskStarted { .. }
                | Event::Checkpointed { .. }
                | Event::Tick
                | Event::Due { .. }
        )
    }
}

impl Event {
    /// Whether it came from outside, and not from a decision of the planner. Only after such an event may a job whose devices were
    /// taken take those of others (L10). The end of an attempt that gave way comes from the planner, unless its job has ended, too.
    pub fn comes_from_outside(&self, gave_way: impl FnOnce(JobId) -> bool) -> bool {
        match self {
            Event::Submitted(_) | Event::Adopted { .. } | Event::Held { .. } => true,
            Event::Released { .. } | Event::Dropped { .. } | Event::OthersHold { .. } => true,
            Event::Overdue { .. } => true,
            Event::AttemptEnded { job, state, .. } => state.is_ended() || !gave_way(*job),
            event => event.changes_pool(),
        }
    }

    /// Whether it changes nodes, devices, queues, settings or priorities.
    pub(crate) fn changes_pool(&self) -> bool {
        matches!(
            self,
            Event::TermBegan { .. }
                | Event::NodeSeen { .. }
                | Event::DeviceSeen { .. }
                | Event::DeviceChanged { .. }
                | Event::QueuesSet { .. }
                | Event::PolicySet { .. }
                | Event::DrainSet { .. }
                | Event::Prioritised { .. }
                | Event::ReservationMade(_)
                | Event::ReservationBegan { .. }
                | Event::ReservationEnded { .. }
                | Event::Recalled { .. }
        )
    }

    /// Whether it may let a job start that could not before: then all waiting jobs are looked at again.
    pub fn frees(&self) -> bool {
        // A job that no longer waits keeps nothing back, either.
        let goes = matches!(self, Event::Revoked { .. } | Event::Held { .. } | Event::Dropped { .. });
        // Where nobody counts on a task's end any more, other jobs may have to go instead.
        let ends =
            matches!(self, Event::TaskEnded { .. } | Event::AttemptEnded { .. } | Event::Overdue { .. });
        ends || goes || self.changes_pool() || matches!(self, Event::OthersHold { frees: true, .. })
    }
}

/// Lifts the text of an event to the current version and reads it.
/// The text is that of serde_json for `Event`; the caller keeps kind and version beside it.
pub fn upcast<E: std::fmt::Display>(
    version: u16,
    kind: &str,
    read: impl FnOnce() -> Result<Event, E>,
) -> Result<Event, Unreadable> {
    if version > VERSION {
        return Err(Unreadable::Newer(version));
    }
    read().map_err(|error| Unreadable::Form { kind: kind.to_owned(), error: error.to_string() })
}
