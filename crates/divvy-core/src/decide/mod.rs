//! Deciding: a command or an observation, and the state, give events. Nothing else happens here.

mod adopt;
mod bounds;
mod calendar;
mod given;
mod guarantee;
mod holds;
mod observe;
mod others;
mod settings;
mod spread;
mod submit;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::amount::Resource;
use crate::event::Event;
use crate::id::{JobId, Term};
use crate::model::job::{Array, Cause, Estimate, JobSpec, JobState, LastEnd, Owner, StopOrder, priority};
use crate::model::policy::Policy;
use crate::model::queue::{Queue, Settings, lineage};
use crate::model::recollection::Recollection;
use crate::reason::Reason;
use crate::state::{Job, Outcome, Run, Runs, State};
use crate::time::Time;

pub(crate) use adopt::adopt;
pub(crate) use bounds::highest_priority;
pub use calendar::{Reserve, Wanted, kept_beyond_limit};
pub use guarantee::{Beyond, guaranteed_beyond};
pub(crate) use observe::last_word;
pub use observe::{Seen, observe};
pub use submit::{open_queue, what_there_is};

/// What someone wants of the pool.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// The daemon starts.
    Begin {
        /// Higher than all terms before.
        term: Term,
        /// The kernel's boot id.
        boot_id: String,
        /// The program's version.
        version: String,
    },
    /// A user submits a job.
    Submit(Box<Submit>),
    /// A user ends a job (a member, a whole array).
    Cancel(JobId, Person),
    /// A user lets a waiting job wait until it is released.
    Hold(JobId, Person),
    /// A user takes that back.
    Release(JobId, Person),
    /// A user gives a job, or a whole array, another priority.
    Prioritise(JobId, i32, Person),
    /// An administrator sets the queues: these and no others.
    SetQueues(Vec<Queue>, Person),
    /// A running job (or someone for it) says that its work up to now is safe.
    Checkpointed(JobId, Person),
    /// An administrator changes how the planner decides.
    SetPolicy(Box<Policy>, Person),
    /// Someone forecasts how long a job (or each member of an array) runs.
    Estimate(JobId, Estimate),
    /// An administrator puts a queues.yaml in force: all of it or nothing, with a note why.
    Configure(Box<Settings>, Person, Option<String>),
    /// An administrator lets the pool start nothing new (or start things again).
    SetDrain(bool, Person),
    /// An administrator keeps nodes or devices from a moment on, for work on them or for a queue.
    Reserve(Box<Reserve>, Person),
    /// An administrator takes a reservation back.
    EndReservation(u64, Person),
    /// An administrator lets a node or device take tasks again.
    Undrain(String, Person),
    /// An administrator stops every job, because the pool goes down.
    StopAll(Person),
    /// An administrator gives back what was known of queues as of a moment, before the log began.
    Recall(Time, BTreeMap<String, Recollection>, Person),
    /// Time has passed.
    Tick,
}

/// A submission as it comes in.
#[derive(Clone, Debug, PartialEq)]
pub struct Submit {
    /// Who submits it.
    pub owner: Arc<Owner>,
    /// What is wanted. An empty queue means `default`.
    pub spec: Arc<JobSpec>,
    /// Whether the user said when it goes back into the queue; else the queue's setting holds.
    pub requeue_said: bool,
    /// The members, if it is an array.
    pub array: Option<Array>,
    /// The client's key.
    pub token: Option<String>,
    /// Whether it starts held.
    pub held: bool,
    /// How jobs that this one depends on ended, from history, where the state no longer knows them.
    pub history: BTreeMap<JobId, Outcome>,
}

/// A job that runs already when a term begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Adopt {
    /// The submission that it would have been.
    pub submit: Submit,
    /// The node of each task, by rank.
    pub nodes: Vec<String>,
    /// Since when it runs.
    pub since: Time,
}

/// Who gives a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// The user's name.
    pub name: String,
    /// Whether the user may change everything.
    pub admin: bool,
    /// The ids of the user's groups.
    pub groups: Vec<u32>,
}

impl Person {
    /// A user who may change everything.
    pub fn administrator(name: &str) -> Self {
        Self { name: name.to_owned(), admin: true, groups: Vec::new() }
    }

    /// A user of no group.
    pub fn user(name: &str) -> Self {
        Self { name: name.to_owned(), admin: false, groups: Vec::new() }
    }

    /// Whether the user administers a queue, or one above it.
    fn administers(&self, state: &State, queue: &str) -> bool {
        self.admin || lineage(queue).any(|path| self.is_admin_of(state, path))
    }

    /// Whether a queue itself names the user as its administrator.
    fn is_admin_of(&self, state: &State, queue: &str) -> bool {
        let admins = state.queues.get(queue).and_then(|queue| queue.admins.said());
        admins.is_some_and(|admins| admins.iter().any(|member| member.is(&self.name, &self.groups)))
    }
}

/// Why a command is refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The pool has no such queue.
    #[error("there is no queue {queue:?}; there are: {}", few(queue, known))]
    UnknownQueue {
        /// As submitted.
        queue: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The queue takes jobs of others only.
    #[error("{user} may not submit to queue {queue}: it takes {}", takes.join(", "))]
    NotAMember {
        /// Who tried.
        user: String,
        /// Where.
        queue: String,
        /// Whom it takes.
        takes: Vec<String>,
    },
    /// An array has more members than the queue takes jobs at a time: it would never be taken.
    #[error("queue {queue} takes at most {most} jobs at a time, and this array has {asked} members")]
    BeyondArrays {
        /// Which queue says so.
        queue: String,
        /// How many it takes.
        most: u64,
        /// How many there would be.
        asked: u64,
    },
    /// It asks for more than the queue allows a job.
    #[error("queue {queue} takes jobs with a {what} of at most {most}, and this one has {asked}")]
    BeyondQueue {
        /// Which queue says so.
        queue: String,
        /// Of what.
        what: &'static str,
        /// How much it allows.
        most: String,
        /// How much is asked for.
        asked: String,
    },
    /// It is urgent, and its queue is not allowed urgent jobs.
    #[error("queue {queue} takes no urgent jobs, and this one has priority {}", priority::named(*priority))]
    NoLeave {
        /// Which queue.
        queue: String,
        /// What is asked for.
        priority: i32,
    },
    /// The queue has as many jobs as it takes.
    #[error("queue {queue} takes {} at once, and {}", jobs(*most), if *there == 1 { "1 waits or runs".into() } else { format!("{there} wait or run") })]
    QueueFull {
        /// Which.
        queue: String,
        /// How many it takes.
        most: u64,
        /// How many there are.
        there: u64,
    },
    /// The pool could not run it even if it were empty.
    #[error("this pool can never run it: {reason}. {there}")]
    CannotFit {
        /// Why.
        reason: Reason,
        /// What there is.
        there: String,
    },
    /// What it depends on is not there.
    #[error("it is to run after job {0}, but there is no such job")]
    UnknownDependency(JobId),
    /// What it depends on can no longer happen.
    #[error("it is to run after job {0}, which has already ended otherwise")]
    HopelessDependency(JobId),
    /// The key was used for another job.
    #[error("this request was already carried out: it submitted job {0}")]
    Repeated(u64),
    /// There is no such job among those that have not ended.
    #[error("there is no job {0} that waits or runs")]
    NoSuchJob(JobId),
    /// There is no node of this name.
    #[error("there is no node {0:?}")]
    NoSuchNode(String),
    /// It is another user's.
    #[error("job {0} is not yours")]
    NotYours(JobId),
    /// Only an administrator may.
    #[error("only an administrator of the pool may do this")]
    NotAdmin,
    /// An administrator holds it: its user cannot release it.
    #[error("job {0} is held by an administrator, and you are none of its queue")]
    HeldByAdmin(JobId),
    /// The job's state does not allow it.
    #[error("job {job} is {}: {what}", state.name())]
    WrongState {
        /// Which.
        job: JobId,
        /// Its state.
        state: JobState,
        /// What can be done.
        what: &'static str,
    },
    /// A queue that goes still has jobs.
    #[error(
        "queue {queue} has jobs that wait or run, {jobs} in all: cancel them or let them end before it is removed"
    )]
    QueueInUse {
        /// Which.
        queue: String,
        /// How many.
        jobs: usize,
    },
    /// Capacity is kept on the calendar for a queue that goes.
    #[error(
        "for queue {queue} capacity is kept by reservation {reservation}: take that back (divvy reserve --cancel {reservation}), or let it end, before the queue is removed"
    )]
    QueueReserved {
        /// Which.
        queue: String,
        /// By which reservation.
        reservation: u64,
    },
    /// The specification makes no sense.
    #[error("{field}: {what}")]
    BadSpec {
        /// Which part of it.
        field: &'static str,
        /// What is wrong, and what to write.
        what: String,
    },
}

/// How many queues an error names; in a large pool, those whose names begin most like the one that was written.
const MOST_QUEUES_NAMED: usize = 8;

fn jobs(count: u64) -> String {
    if count == 1 { "1 job".into() } else { format!("{count} jobs") }
}

fn few(queue: &str, known: &[String]) -> String {
    let Some(others) = known.len().checked_sub(MOST_QUEUES_NAMED).filter(|others| *others > 0) else {
        return known.join(", ");
    };
    let alike =
        |name: &&String| name.chars().zip(queue.chars()).take_while(|(one, other)| one == other).count();
    let mut nearest: Vec<&String> = known.iter().collect();
    nearest.sort_by_key(|name| std::cmp::Reverse(alike(name)));
    let named: Vec<&str> = nearest.iter().take(MOST_QUEUES_NAMED).map(|name| name.as_str()).collect();
    format!("{} and {others} more (`divvy queues`)", named.join(", "))
}

impl Rejection {
    /// The code of the reason, where there is a page about it.
    pub fn reason_code(&self) -> Option<&'static str> {
        match self {
            Rejection::CannotFit { reason, .. } => Some(reason.code()),
            Rejection::NotAMember { .. } => Some("DV-NOT-A-MEMBER"),
            _ => None,
        }
    }

    /// The job that its text names, if it names one.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Rejection::UnknownDependency(job)
            | Rejection::HopelessDependency(job)
            | Rejection::NoSuchJob(job)
            | Rejection::NotYours(job)
            | Rejection::HeldByAdmin(job)
            | Rejection::WrongState { job, .. } => Some(*job),
            Rejection::Repeated(number) => Some(JobId::single(*number)),
            _ => None,
        }
    }

    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Rejection::UnknownQueue { .. } => "unknown-queue",
            Rejection::NotAMember { .. } => "not-a-member",
            Rejection::BeyondQueue { .. } | Rejection::BeyondArrays { .. } => "beyond-queue",
            Rejection::NoLeave { .. } => "no-leave",
            Rejection::QueueFull { .. } => "queue-full",
            Rejection::CannotFit { .. } => "cannot-fit",
            Rejection::UnknownDependency(_) => "unknown-dependency",
            Rejection::HopelessDependency(_) => "hopeless-dependency",
            Rejection::Repeated(_) => "repeated",
            Rejection::NoSuchJob(_) => "no-such-job",
            Rejection::NoSuchNode(_) => "no-such-node",
            Rejection::NotYours(_) => "not-yours",
            Rejection::NotAdmin => "not-admin",
            Rejection::HeldByAdmin(_) => "held-by-admin",
            Rejection::WrongState { .. } => "wrong-state",
            Rejection::QueueInUse { .. } => "queue-in-use",
            Rejection::QueueReserved { .. } => "queue-reserved",
            Rejection::BadSpec { .. } => "bad-spec",
        }
    }
}

/// Turns a command into events, or refuses it.
pub fn decide(state: &State, command: &Command) -> Result<Vec<Event>, Rejection> {
    match command {
        Command::Begin { term, boot_id, version } => {
            let began = Event::TermBegan { term: *term, boot_id: boot_id.clone(), version: version.clone() };
            // Default settings go into the log as well: another version may have others.
            let policy =
                Event::PolicySet { policy: Box::new(state.policy.clone()), by: "divvy".into(), note: None };
            Ok(std::iter::once(began).chain((state.position.0 == 0).then_some(policy)).collect())
        }
        Command::Submit(submit) => submit::submit(state, submit),
        Command::Cancel(job, by) => cancel(state, *job, by),
        Command::Hold(job, by) => holds::hold(state, *job, by),
        Command::Release(job, by) => holds::release(state, *job, by),
        Command::Prioritise(job, priority, by) => prioritise(state, (*job, *priority), by),
        Command::Checkpointed(job, by) => checkpointed(state, *job, by),
        Command::SetQueues(queues, by) => settings::set_queues(state, queues, by, None),
        Command::SetPolicy(policy, by) => settings::set_policy(state, policy, by, None),
        Command::Configure(wanted, by, note) => settings::configure(state, wanted, by, note.as_deref()),
        Command::Estimate(job, estimate) => foresee(state, *job, estimate),
        Command::SetDrain(_, by) if !by.admin => Err(Rejection::NotAdmin),
        Command::SetDrain(on, by) => Ok(vec![Event::DrainSet { on: *on, by: by.name.clone() }]),
        Command::Reserve(asked, by) => calendar::reserve(state, asked, by),
        Command::EndReservation(id, by) => calendar::end(state, *id, by),
        Command::Undrain(target, by) => calendar::undrain(state, target, by),
        Command::StopAll(by) => stop_all(state, by),
        Command::Recall(of, known, by) => settings::recall(state, *of, known, by),
        Command::Tick => Ok(vec![Event::Tick]),
    }
}

/// The job, if it is there and the person may change it.
fn mine<'a>(state: &'a State, id: JobId, by: &Person) -> Result<&'a Job, Rejection> {
    let job = state.jobs.get(&id.number).ok_or(Rejection::NoSuchJob(id))?;
    let there = match (&job.runs, id.member) {
        (_, None) => true,
        (Runs::Single(_), Some(_)) => false,
        (Runs::Array(_), member) => job.run(member).is_some(),
    };
    if !there {
        return Err(Rejection::NoSuchJob(id));
    }
    if job.owner.name != by.name && !by.administers(state, &job.spec.queue) {
        return Err(Rejection::NotYours(id));
    }
    Ok(job)
}

/// The runs that an id means: the job's, the member's, or all touched ones of an array.
fn meant(job: &Job, id: JobId) -> Vec<(JobId, Run)> {
    match (&job.runs, id.member) {
        (Runs::Array(array), None) => array
            .touched
            .iter()
            .map(|(member, run)| (JobId::member(id.number, *member), run.clone()))
            .collect(),
        _ => job.run(id.member).map(|run| (id, run)).into_iter().collect(),
    }
}

fn cancel(state: &State, id: JobId, by: &Person) -> Result<Vec<Event>, Rejection> {
    let job = mine(state, id, by)?;
    let mut events: Vec<Event> = Vec::new();
    for (run_id, run) in meant(job, id).into_iter().filter(|(_, run)| run.is_active()) {
        let hurried = run.stopping.as_ref().is_some_and(|stopping| stopping.cause == Cause::Cancelled);
        if !hurried {
            events.push(stopping(run_id, Cause::Cancelled, Some(by.name.clone()), job.spec.stop.clone()));
        }
    }
    let waits = match (&job.runs, id.member) {
        (Runs::Array(array), None) => {
            !array.fresh.is_empty() || array.touched.values().any(|run| !run.is_active())
        }
        _ => job.run(id.member).is_some_and(|run| !run.is_active()),
    };
    if waits {
        let end = LastEnd { cause: Cause::Cancelled, by: Some(by.name.clone()), signal: None, detail: None };
        events.push(Event::Dropped { job: id, end, state: JobState::Cancelled });
    }
    Ok(events)
}

fn foresee(state: &State, id: JobId, estimate: &Estimate) -> Result<Vec<Event>, Rejection> {
    let job = state.jobs.get(&id.number).ok_or(Rejection::NoSuchJob(id))?;
    let news = job.estimate.as_deref() != Some(estimate);
    Ok(news
        .then(|| Event::Estimated { job: JobId::single(id.number), estimate: estimate.clone() })
        .into_iter()
        .collect())
}

/// The event that tells a job to stop for good.
pub(crate) fn stopping(job: JobId, cause: Cause, by: Option<String>, order: StopOrder) -> Event {
    Event::Stopping { job, cause, by, order, requeue: false }
}

/// Those who may change a job may change its priority, within the bounds for submissions.
fn prioritise(state: &State, (id, priority): (JobId, i32), by: &Person) -> Result<Vec<Event>, Rejection> {
    let job = mine(state, id, by)?;
    if id.member.is_some() {
        let what = "the members of an array have one priority: name the array".into();
        return Err(Rejection::BadSpec { field: "job", what });
    }
    if job.spec.priority == priority {
        return Ok(Vec::new());
    }
    // A time limit from before the queue allowed less stays as it is.
    let wanted = JobSpec { priority, time_limit: None, ..(*job.spec).clone() };
    bounds::may_have(state, &job.spec.queue, &wanted)?;
    Ok(vec![Event::Prioritised { job: id, priority, by: by.name.clone() }])
}

fn checkpointed(state: &State, id: JobId, by: &Person) -> Result<Vec<Event>, Rejection> {
    let job = mine(state, id, by)?;
    match job.run(id.member) {
        Some(run) if run.started_at.is_some() && !run.state.is_ended() => {
            Ok(vec![Event::Checkpointed { job: id, by: by.name.clone() }])
        }
        Some(run) => {
            let what = "only a job that runs has work to save";
            Err(Rejection::WrongState { job: id, state: run.state, what })
        }
        None => Err(Rejection::BadSpec { field: "job", what: "name one member of the array: 12_3".into() }),
    }
}

fn stop_all(state: &State, by: &Person) -> Result<Vec<Event>, Rejection> {
    if !by.admin {
        return Err(Rejection::NotAdmin);
    }
    let active = state
        .jobs
        .values()
        .flat_map(|job| meant(job, job.id()).into_iter().map(move |(id, run)| (job, id, run)));
    let running = active.filter(|(_, _, run)| run.is_active() && run.stopping.is_none());
    Ok(running
        .map(|(job, id, _)| stopping(id, Cause::Shutdown, Some(by.name.clone()), job.spec.stop.clone()))
        .collect())
}

/// The tightest limit on a resource among a queue and the queues above it, and the path of the queue that sets it.
pub fn tightest_limit(state: &State, queue: &str, resource: &Resource) -> Option<(String, i64)> {
    let finite = |path: &str| match state.queues.get(path)?.limit.get(resource)? {
        crate::amount::Amount::Finite(limit) => Some((path.to_owned(), *limit)),
        crate::amount::Amount::Unlimited => None,
    };
    lineage(queue).filter_map(finite).min_by_key(|(_, limit)| *limit)
}
