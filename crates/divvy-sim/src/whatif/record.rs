//! The past of a pool, gathered from the events of its log: who submitted what and when, how long it ran, how long it
//! waited, and what the pool is now.

use std::collections::BTreeMap;

use divvy_core::event::{Event, Stamped};
use divvy_core::id::JobId;
use divvy_core::model::device::{DeviceSpec, Health};
use divvy_core::model::job::{Cause, JobState, Submission};
use divvy_core::model::members::Members;
use divvy_core::model::node::{NodeSpec, NodeState};
use divvy_core::model::policy::Policy;
use divvy_core::model::queue::Queue;
use divvy_core::state::{Job, Misfit, Run, State};
use divvy_core::time::Time;

/// The pool, as a replay begins with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Its nodes with the devices that work, in the order of their ids.
    pub nodes: Vec<(NodeSpec, Vec<DeviceSpec>)>,
    /// Its queues, by path.
    pub queues: Vec<Queue>,
    /// How it decides.
    pub policy: Policy,
}

impl Settings {
    /// How many devices there are.
    pub fn gpus(&self) -> u32 {
        self.nodes.iter().map(|(_, devices)| u32::try_from(devices.len()).unwrap_or(u32::MAX)).sum()
    }
}

/// What a pool has lived through since a moment, and what it is at the end.
#[derive(Clone, Debug)]
pub struct Past {
    /// Jobs submitted from here on are counted.
    pub since: Time,
    /// The stamp of the last event.
    pub until: Time,
    /// The pool at the end.
    pub settings: Settings,
    /// What people did, in the order of the log.
    pub deeds: Vec<Deed>,
    /// What became of each job, or of each member of an array.
    pub lives: BTreeMap<JobId, Life>,
    /// The median time from a placement to the start of the work.
    pub start_ms: i64,
    /// What a replay leaves out of what happened since then, with how often.
    pub left_out: BTreeMap<&'static str, u64>,
}

impl Past {
    /// Whether there is nothing to count.
    pub fn is_empty(&self) -> bool {
        !self.lives.values().any(|life| life.submitted_at >= self.since)
    }
}

/// Something that someone did.
#[derive(Clone, Debug)]
pub struct Deed {
    /// When.
    pub at: Time,
    /// What.
    pub what: What,
}

/// What someone did.
#[derive(Clone, Debug)]
pub enum What {
    /// Submitted a job.
    Submitted(Box<Submission>),
    /// Held a job, so that it waits.
    Held(JobId),
    /// Released a held job.
    Released(JobId),
    /// Gave a job another priority.
    Prioritised(JobId, i32),
    /// Ended a job while it waited.
    Cancelled(JobId),
}

/// What became of a job, or of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// Its queue.
    pub queue: String,
    /// When it was submitted.
    pub submitted_at: Time,
    /// When it first ran.
    pub started_at: Option<Time>,
    /// How long it worked: what counts of its attempts or, for a job that has not ended or waited when it did, the estimate.
    pub work_ms: i64,
    /// When it ended, and how.
    pub ended: Option<(Time, JobState)>,
    /// Whether it waited when it ended: how long it would have worked is estimated.
    pub ended_waiting: bool,
}

/// Follows a log, event by event.
pub struct Recorder {
    since: Time,
    state: State,
    deeds: Vec<Deed>,
    lives: BTreeMap<JobId, Life>,
    /// The jobs that waited when they ended, and how long they said that they would work.
    dropped: BTreeMap<JobId, Option<i64>>,
    starts_ms: Vec<i64>,
    left_out: BTreeMap<&'static str, u64>,
}

impl Recorder {
    /// Begins before the first event. Jobs submitted from a moment on, in milliseconds since 1970, are counted.
    pub fn since(since_ms: i64) -> Self {
        let since = Time(since_ms);
        let (deeds, lives, starts_ms) = (Vec::new(), BTreeMap::new(), Vec::new());
        let (dropped, left_out) = (BTreeMap::new(), BTreeMap::new());
        Self { since, state: State::default(), deeds, lives, dropped, starts_ms, left_out }
    }

    /// Follows one event. An error means that the log cannot be folded any further.
    pub fn follow(&mut self, stamped: &Stamped) -> Result<(), Misfit> {
        let Stamped { at, event } = stamped;
        match event {
            Event::Submitted(submission) => self.do_at(*at, What::Submitted(submission.clone())),
            Event::Held { job, .. } => self.do_at(*at, What::Held(*job)),
            Event::Released { job, .. } => self.do_at(*at, What::Released(*job)),
            Event::Prioritised { job, priority, .. } => self.do_at(*at, What::Prioritised(*job, *priority)),
            Event::Dropped { job, end, state } => {
                if matches!(end.cause, Cause::Cancelled | Cause::Shutdown) {
                    self.do_at(*at, What::Cancelled(*job));
                }
                self.drop_waiting(*job, *at, *state);
            }
            Event::AttemptEnded { job, end, state, ended_at, .. } => {
                let ended = ended_at.map_or(*at, |ended| ended.min(*at));
                self.end_attempt(*job, (ended, end.cause, *state));
            }
            other => self.leave_out(*at, other),
        }
        self.state.apply(stamped)
    }

    fn do_at(&mut self, at: Time, what: What) {
        self.deeds.push(Deed { at, what });
    }

    fn end_attempt(&mut self, id: JobId, (at, cause, becomes): (Time, Cause, JobState)) {
        let Some((job, run)) = self.state.jobs.get(&id.number).zip(self.state.run(id)) else { return };
        let life = self.lives.entry(id).or_insert_with(|| Life::of(job));
        life.started_at = life.started_at.or(run.started_at);
        if let Some(started_to_end) = run.started_at.zip(run.placed_at) {
            self.starts_ms.push(started_to_end.0.since(started_to_end.1).0);
        }
        // Work that a stop or bad luck has undone does not count, unless the job goes on where it was.
        let own_doing =
            matches!(cause, Cause::Exit | Cause::Signal | Cause::OutOfMemory | Cause::OutOfGpuMemory);
        if becomes.is_ended() || own_doing || job.spec.resumable {
            life.work_ms = life.work_ms.saturating_add(ran_ms(run, at));
        } else {
            *self
                .left_out
                .entry("attempts that were stopped or lost, and their work with them")
                .or_default() += u64::from(at >= self.since);
        }
        life.ended = becomes.is_ended().then_some((at, becomes));
    }

    fn drop_waiting(&mut self, id: JobId, at: Time, becomes: JobState) {
        let Some(job) = self.state.jobs.get(&id.number) else { return };
        let members: Vec<_> = match id.member {
            Some(member) => vec![Some(member)],
            None => job.open_members().collect(),
        };
        for member in members {
            if job.run(member).is_some_and(|run| !run.is_active()) {
                let id = JobId { number: id.number, member };
                let life = self.lives.entry(id).or_insert_with(|| Life::of(job));
                (life.ended, life.ended_waiting) = (Some((at, becomes)), true);
                self.dropped.insert(id, foreseen_ms(job));
            }
        }
    }

    /// Counts what a replay leaves out.
    fn leave_out(&mut self, at: Time, event: &Event) {
        let what = match event {
            Event::QueuesSet { .. } => "changes of the queues",
            Event::PolicySet { .. } => "changes of the policy",
            Event::TermBegan { .. } => "starts of the daemon",
            Event::DrainSet { on: true, .. } => "drains",
            Event::DeviceChanged { health: Health::Down(_), .. } => "failures of a device",
            Event::DeviceChanged { occupant: Some(_), .. } => "devices that others used",
            _ => return,
        };
        // What came before the first job set the pool up.
        if at >= self.since && self.state.next_job > 1 {
            *self.left_out.entry(what).or_default() += 1;
        }
    }

    /// What was found up to here.
    pub fn finish(mut self) -> Past {
        self.foresee();
        let until = self.state.now;
        let matters = |life: &Life| life.ended.is_none_or(|(at, _)| at >= self.since);
        let numbers: Vec<u64> =
            self.lives.iter().filter(|(_, life)| matters(life)).map(|(id, _)| id.number).collect();
        let has = |number: u64| numbers.binary_search(&number).is_ok();
        self.lives.retain(|id, _| has(id.number));
        self.deeds.retain(|deed| has(deed.what.number()));
        self.left_out.retain(|_, count| *count > 0);
        let start_ms = median(&mut self.starts_ms).unwrap_or(0);
        let settings = settings(&self.state);
        let Self { since, deeds, lives, left_out, .. } = self;
        Past { since: since.max(first(&deeds, since)), until, settings, deeds, lives, start_ms, left_out }
    }

    /// Estimates how long each job will have worked that has not ended, or would have that waited when it ended.
    fn foresee(&mut self) {
        let usual = Usual::of(self.lives.values());
        for (id, foreseen) in &self.dropped {
            let Some(life) = self.lives.get_mut(id) else { continue };
            life.work_ms = life.work_ms.max(foreseen.unwrap_or_else(|| usual.in_queue(&life.queue)));
        }
        for job in self.state.jobs.values() {
            let length = foreseen_ms(job).unwrap_or_else(|| usual.in_queue(&job.spec.queue));
            for member in job.open_members() {
                let Some(run) = job.run(member) else { continue };
                let id = JobId { number: job.number, member };
                let life = self.lives.entry(id).or_insert_with(|| Life::of(job));
                life.started_at = life.started_at.or(run.started_at);
                let so_far = run.started_at.map_or(0, |started| self.state.now.since(started).0);
                life.work_ms = length.max(life.work_ms.saturating_add(so_far));
                life.ended = None;
            }
        }
    }
}

/// How long jobs work that do not say it: the median of those that ran to their end.
struct Usual {
    of_queue: BTreeMap<String, i64>,
    of_all: i64,
}

impl Usual {
    fn of<'a>(lives: impl Iterator<Item = &'a Life>) -> Self {
        let mut by_queue: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        let mut all = Vec::new();
        let ran = |life: &&Life| life.ended.is_some() && life.started_at.is_some() && !life.ended_waiting;
        for life in lives.filter(ran) {
            by_queue.entry(&life.queue).or_default().push(life.work_ms);
            all.push(life.work_ms);
        }
        let of_queue = by_queue
            .into_iter()
            .filter_map(|(queue, mut works)| Some((queue.to_owned(), median(&mut works)?)))
            .collect();
        Self { of_queue, of_all: median(&mut all).unwrap_or(USUAL_MS) }
    }

    fn in_queue(&self, queue: &str) -> i64 {
        self.of_queue.get(queue).copied().unwrap_or(self.of_all)
    }
}

/// The length of jobs where nothing at all is known of lengths.
const USUAL_MS: i64 = 3_600_000;

impl Life {
    fn of(job: &Job) -> Self {
        Self { queue: job.spec.queue.clone(), submitted_at: job.submitted_at, ..Self::default() }
    }

    /// How long it waited for its first start.
    pub fn wait_ms(&self) -> Option<i64> {
        self.started_at.map(|started| started.since(self.submitted_at).0)
    }
}

impl What {
    /// The job that it is about.
    pub fn number(&self) -> u64 {
        match self {
            What::Submitted(submission) => submission.number,
            What::Held(job) | What::Released(job) | What::Cancelled(job) => job.number,
            What::Prioritised(job, _) => job.number,
        }
    }
}

/// How long an attempt ran by its supervisors' clocks; by the log's clock, if they say nothing.
fn ran_ms(run: &Run, ended_at: Time) -> i64 {
    let ran = run.over.iter().map(|(_, end)| end.ran_ms).max().unwrap_or(0);
    if ran > 0 { ran } else { run.started_at.map_or(0, |started| ended_at.since(started).0) }
}

fn foreseen_ms(job: &Job) -> Option<i64> {
    let estimate = job.estimate.as_ref().map(|estimate| estimate.p50_ms);
    let said = job.spec.estimate.or(job.spec.time_limit).map(|span| span.0);
    estimate.or(said).filter(|ms| *ms > 0)
}

fn first(deeds: &[Deed], since: Time) -> Time {
    deeds.first().map_or(since, |deed| deed.at)
}

fn median(values: &mut [i64]) -> Option<i64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

fn settings(state: &State) -> Settings {
    let node = |(id, node): (&_, &divvy_core::state::Node)| {
        let devices =
            state.devices.values().filter(|device| device.node == *id && device.health == Health::Ok);
        (node.spec.clone(), devices.map(|device| DeviceSpec::clone(&device.spec)).collect())
    };
    let there = state.nodes.iter().filter(|(_, node)| node.state != NodeState::Gone);
    Settings {
        nodes: there.map(node).collect(),
        queues: state.queues.values().cloned().collect(),
        policy: state.policy.clone(),
    }
}

/// The members of a submission; one without a number for a job that is no array.
pub(super) fn members(submission: &Submission) -> Vec<Option<u32>> {
    match &submission.array {
        None => vec![None],
        Some(array) => Members::of(array).iter().map(Some).collect(),
    }
}
