//! Why a job waits, or runs where it runs.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::open::open_enum;
use super::{ExpectedStart, JobState, LastEnd, Reason};

open_enum! {
    /// What the last cycle found for a job, worst first.
    Verdict {
        /// The pool as it is can never run it.
        NoFit = "no_fit",
        /// It would run if others were stopped.
        Preempt = "preempt",
        /// It will run when something ends.
        Later = "later",
        /// It can run now.
        Fit = "fit",
        /// It has its devices.
        Placed = "placed",
        /// It is over.
        Ended = "ended",
    }
}

/// Room that is kept for a job that waits: others run around it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Room {
    /// From when on it is kept, by the time limits and estimates of running jobs; milliseconds since 1970. Null where nothing foretells
    /// it: then the devices are collected as they become free.
    pub from_ms: Option<i64>,
    /// The job whose end completes the room.
    pub awaits: Option<String>,
    /// The former `from_ms`, if it has changed.
    pub was_from_ms: Option<i64>,
    /// When it was found to have changed.
    pub moved_at_ms: Option<i64>,
    /// The job that runs on beyond its expected end, if that is why.
    pub outrun_by: Option<String>,
}

/// The whole answer to "why".
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Explain {
    /// The job.
    pub job: String,
    /// What the last cycle found.
    pub verdict: Verdict,
    /// All that stands in its way, in order; empty if nothing does.
    pub blockers: Vec<Blocker>,
    /// The cheapest changes with which it starts in the next cycle; null where none were found, or where it does not wait.
    #[serde(default)]
    pub remedy: Option<Way>,
    /// How it lost its devices the last time, if others got them.
    #[serde(default)]
    pub displaced: Option<Displaced>,
    /// The tasks that the gang gave up last, if others got their devices.
    #[serde(default)]
    pub gave_up: Option<GaveUp>,
    /// Jobs that lost devices for it since it last waited, or are losing them, first to go first; empty while it waits.
    #[serde(default)]
    pub made_room: Vec<MadeRoom>,
    /// The room that is kept for it while it waits, and from when on; null where none is.
    #[serde(default)]
    pub room: Option<Room>,
    /// Why it is on its nodes, as things are now; null for a job that is on none.
    #[serde(default)]
    pub why_here: Option<String>,
    /// Why nobody takes its place, if it is safe where it runs.
    #[serde(default)]
    pub why_safe: Option<String>,
    /// The reservation on the calendar for which it is stopped, if it still runs then.
    #[serde(default)]
    pub stopped_for: Option<StoppedFor>,
    /// By when it should have ended, if it was told to stop and a task of it does not end; null otherwise.
    #[serde(default)]
    pub overdue_ms: Option<i64>,
    /// How it ended; null for a job that is not over.
    #[serde(default)]
    pub ended: Option<Ended>,
    /// How many devices were left after each filter.
    pub funnel: Vec<FunnelStep>,
    /// The job's name.
    #[serde(default)]
    pub name: String,
    /// Where it is in its life.
    #[serde(default)]
    pub state: Option<JobState>,
    /// What it asks for, in words: `4 × h100`.
    #[serde(default)]
    pub ask: String,
    /// The reason that `ps` shows.
    #[serde(default)]
    pub reason: Option<Reason>,
    /// Place among the waiting jobs, from 1.
    #[serde(default)]
    pub position: Option<u64>,
    /// How many members of its array go before it.
    #[serde(default)]
    pub members_before: u64,
    /// The first of them, which is the next of the array to start: what is named in `blockers` and `remedy` starts that one. Null where
    /// none goes before it.
    #[serde(default)]
    pub next_member: Option<String>,
    /// When it was submitted.
    #[serde(default)]
    pub submitted_ms: Option<i64>,
    /// Where it runs or ran.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// When it is expected to start, of a job that waits.
    #[serde(flatten)]
    pub start: ExpectedStart,
    /// When it should be over, by its user's word.
    #[serde(default)]
    pub deadline_ms: Option<i64>,
    /// How long it runs at most, by its limit or estimate.
    #[serde(default)]
    pub length_ms: Option<i64>,
    /// When it can be expected to be over at the latest, if it runs or will probably start, and its end is known.
    #[serde(default)]
    pub expected_end_ms: Option<i64>,
    /// The cycle that found this.
    #[serde(default)]
    pub cycle: u64,
    /// When that cycle ran.
    #[serde(default)]
    pub as_of_ms: Option<i64>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ended {
    /// Why.
    pub end: LastEnd,
    /// The exit code of the first task to fail, else 0; null if none ran.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// The task of a gang that failed first; null if none did.
    #[serde(default)]
    pub failed_task: Option<u32>,
    /// How often it ran.
    #[serde(default)]
    pub attempts: u32,
    /// When it began to run the last time; null if it never did.
    #[serde(default)]
    pub started_ms: Option<i64>,
    /// When it was over.
    pub ended_ms: i64,
    /// How long it waited, before all its attempts together.
    pub waited_ms: i64,
}

/// Something that stands in a job's way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Blocker {
    /// A stable code: `DV-OVER-QUOTA`.
    pub code: String,
    /// The same in words, with its numbers.
    pub text: String,
    /// What removes it.
    pub fix: String,
    /// What removes it, the cheapest first: at most one way for each who can bring it about. Empty where what removes another
    /// blocker removes this one, too.
    pub ways: Vec<Way>,
}

/// Changes that together remove a blocker, or start a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Way {
    /// Who has to bring it about: `user` on the job alone, `time` as jobs end, `administrator`.
    pub who: String,
    /// The changes in words.
    pub text: String,
    /// When the last awaited end can be expected; null if none is awaited, or nobody knows.
    pub until_ms: Option<i64>,
    /// The changes: each has a `kind` and further fields.
    #[schema(value_type = Vec<Object>)]
    pub changes: Vec<serde_json::Value>,
}

/// How a job lost its devices to others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Displaced {
    /// `preempted`, `reclaimed`, `order`, `moved`, `crowded`, `faster`, `starved`, or `drain`: for a drain or a reservation.
    pub cause: String,
    /// The job that got them, or `reservation 3`; null where that is not known.
    pub by: Option<String>,
    /// When it was over; null while it is still being stopped.
    pub at_ms: Option<i64>,
    /// Work that has to be done again: seconds × devices since its start, or since its work was safe.
    pub lost_gpu_seconds: f64,
    /// When it can be expected to be back; null if nobody knows.
    pub back_ms: Option<i64>,
}

/// Tasks that a gang gave up to others, and runs on without: nothing of its work is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct GaveUp {
    /// How many.
    pub tasks: u32,
    /// Why, as in `displaced`.
    pub cause: String,
    /// The job that got their devices; null where that is not known.
    pub by: Option<String>,
    /// When they were told to stop.
    pub at_ms: i64,
}

/// A reservation for which a job that runs is stopped; it goes back into its queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct StoppedFor {
    /// Its number, as in `divvy reserve`.
    pub reservation: u64,
    /// When it begins.
    pub at_ms: i64,
}

/// A job that lost its devices for another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct MadeRoom {
    /// That job.
    pub job: String,
    /// Why, as in `displaced`.
    pub cause: String,
    /// When it was over; null while it is still being stopped.
    pub at_ms: Option<i64>,
    /// Of a gang that runs on, how many tasks it gave up; null where all of it went.
    pub tasks: Option<u32>,
    /// Work that it has to do again: seconds × devices since its start, or since its work was safe.
    pub lost_gpu_seconds: f64,
}

/// A filter, and what it left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct FunnelStep {
    /// `in pool`, `right model`, `enough memory`, `healthy`, `free`, `on one node`; where reservations keep devices from the job, also
    /// `not reserved`.
    pub step: String,
    /// Devices left.
    pub devices: u64,
    /// Nodes that these are on.
    pub nodes: u64,
}
