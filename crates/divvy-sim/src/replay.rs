//! Replays a trace through a pool in virtual time: what arrives, when jobs start and end, what that costs.

pub(crate) mod ask;
mod onlooker;

use std::collections::{BTreeMap, BTreeSet};

use divvy_core::controller::Broken;
use divvy_core::decide::{Beyond, Command, Submit};
use divvy_core::event::{Event, Stamped};
use divvy_core::explain;
use divvy_core::id::JobId;
use divvy_core::model::job::JobState;
use divvy_core::model::policy::Policy;
use divvy_core::model::queue::{Queue, lineage};
use divvy_core::state::fingerprint;
use divvy_core::time::Time;

pub(crate) use self::ask::node;
use self::ask::{Owners, Shapes, models};
pub use self::onlooker::Onlooker;
use self::onlooker::{Kept, Nobody};
use crate::engine::{Costs, Course, SimulatedEngine};
use crate::estimate::{Blind, Estimator, History, Learned, oracle};
use crate::metrics::{Contention, Cut, Finished, Stay};
use crate::policy::{Class, Named};
use crate::pool::{Beginning, VirtualPool};
use crate::refused::{Refused, Room, Stranded};
use crate::timeline::Timeline;
use crate::trace::TraceError;
use crate::trace::cluster::ClusterNode;
use crate::trace::jobs::{Arrival, Fate, TraceJob};
use crate::trace::speeds::Speeds;

/// The input of a replay.
pub struct Replay<'a> {
    /// The nodes of one pool, in their order.
    pub nodes: Vec<&'a ClusterNode>,
    /// The queues; empty for one queue without limits for each name in the trace.
    pub queues: Vec<Queue>,
    /// How it decides.
    pub policy: Policy,
    /// What it may know.
    pub class: Class,
    /// What a later start of a job costs, in milliseconds.
    pub restart_ms: i64,
    /// How fast each kind of job runs on each model; without it all run equally fast on any.
    pub speeds: Option<&'a Speeds>,
}

/// The result of a replay.
pub struct Replayed {
    /// Jobs that ended, in the order of their ends.
    pub finished: Vec<Finished>,
    /// Jobs that a time limit ended before their work was done, likewise.
    pub cut: Vec<Cut>,
    /// When each job held its GPUs, in the order of the ends.
    pub stretches: Vec<Stretch>,
    /// Jobs that the pool could never run, and why.
    pub refused: Vec<Refused>,
    /// Jobs that wait when nothing else can happen, and what for.
    pub stranded: Vec<Stranded>,
    /// The hash of all decisions.
    pub digest: u64,
    /// How many events there were.
    pub events: u64,
    /// How many jobs waited and how many GPUs were held, over time.
    pub timeline: Timeline,
}

/// A stretch of time in which a job held its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The job's place in the trace.
    pub row: usize,
    /// From when, in seconds.
    pub from_s: i64,
    /// Until when.
    pub to_s: i64,
}

/// Why a replay broke off.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A law is broken, or an event does not fit: a mistake of this program.
    #[error("the replay stops at {at} s: {broken}. This is a mistake of this program; keep the trace")]
    Broken {
        /// Seconds of virtual time.
        at: i64,
        /// What was found.
        broken: Broken,
    },
    /// Queues are guaranteed more than the nodes have.
    #[error("{}", .0.what)]
    Queues(Beyond),
    /// A row of the trace is wrong, or cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The files are not what they were.
    #[error("the trace was changed while it was replayed: it had {before} jobs, and now has {now}")]
    Changed {
        /// How many jobs there were.
        before: usize,
        /// How many there are.
        now: usize,
    },
    /// A job runs for longer than virtual time lasts.
    #[error("virtual time ends after {YEARS_OF_TIME} years, before job {1} does; {0} jobs are left")]
    EndOfTime(usize, String),
}

/// How long virtual time lasts. A job's work in GPU milliseconds, and all sums of times, are then far from the end of 64 bits.
const YEARS_OF_TIME: i64 = 1_000_000;
/// A job that has not started in an idle pool after so many rounds never will: whatever it waits for there comes sooner.
const MOST_IDLE_ROUNDS: usize = 10_000;

const END_OF_TIME: Time = Time(YEARS_OF_TIME * 366 * 86_400_000);

/// Replays jobs in memory, in the order of their submission, and keeps everything that happens. `progress` is told
/// how many have ended.
pub fn replay(
    setup: Replay<'_>,
    jobs: &[TraceJob],
    progress: impl FnMut(usize),
) -> Result<Replayed, ReplayError> {
    replay_before(&mut Nobody, setup, jobs, progress)
}

/// The same with an onlooker.
pub fn replay_before(
    onlooker: &mut dyn Onlooker,
    mut setup: Replay<'_>,
    jobs: &[TraceJob],
    progress: impl FnMut(usize),
) -> Result<Replayed, ReplayError> {
    if setup.queues.is_empty() {
        setup.queues = queues_of(jobs);
    }
    let start_s = jobs.first().map_or(0, |job| job.arrival.submit_s);
    let (finished, cut, stretches) = (Vec::new(), Vec::new(), Vec::new());
    let mut run = Run::begin(Kept { onlooker, progress, finished, cut, stretches }, setup, start_s)?;
    for (row, job) in jobs.iter().enumerate() {
        run.take(row, job.clone())?;
    }
    let (Kept { finished, cut, stretches, .. }, Ended { refused, stranded, digest, events, timeline }) =
        run.end()?;
    Ok(Replayed { finished, cut, stretches, refused, stranded, digest, events, timeline })
}

/// Begins a pool at a moment.
type Begin<'a> = Box<dyn Fn(Time) -> Result<VirtualPool, Broken> + 'a>;

/// A replay under way. Jobs are handed to it one by one, in the order of their submission; it keeps only those
/// that have not ended, and tells an onlooker of the others.
pub(crate) struct Run<'a, O> {
    onlooker: O,
    pool: VirtualPool,
    /// When the pool began and what begins it anew, until it has taken a job.
    untouched: Option<(Time, Begin<'a>)>,
    nodes: Vec<&'a ClusterNode>,
    /// How many GPUs of each model these have.
    models: BTreeMap<&'a str, i64>,
    foresight: Foresight,
    /// The jobs that are submitted next, all in the same second.
    coming: Vec<(usize, TraceJob)>,
    open: BTreeMap<u64, Box<Open>>,
    speeds: Option<&'a Speeds>,
    shapes: Shapes,
    owners: Owners,
    contention: Contention,
    /// How many jobs have ended.
    ended: usize,
    refused: Vec<Refused>,
    timeline: Timeline,
    /// How often in a row something came due while no job runs and none is to come.
    idle_rounds: usize,
}

/// What a finished replay leaves, besides what its onlooker was told.
pub(crate) struct Ended {
    pub(crate) refused: Vec<Refused>,
    pub(crate) stranded: Vec<Stranded>,
    pub(crate) digest: u64,
    pub(crate) events: u64,
    pub(crate) timeline: Timeline,
}

/// What says how long jobs will run.
enum Foresight {
    /// It knows (class C), and it alone is handed a fate.
    Oracle,
    /// It sees arrivals and ends.
    Estimator(Box<dyn Estimator>),
}

impl Foresight {
    fn of(setup: &Replay<'_>) -> Self {
        Self::Estimator(match setup.class {
            Class::N => Box::new(Blind),
            // An order by outlooks needs more than a length.
            Class::P if !setup.policy.attained.foreseen.levels_device_ms.is_empty() => {
                Box::new(Learned::new(setup.nodes.iter().map(|node| node.gpus).sum()))
            }
            Class::P => Box::new(History::default()),
            Class::C => return Self::Oracle,
        })
    }
}

/// A job that has not ended.
struct Open {
    row: usize,
    arrival: Arrival,
    fate: Fate,
    start_s: Option<i64>,
    /// When it last got its GPUs.
    placed_s: i64,
    /// How long it held them before that.
    held_s: i64,
    preemptions: u32,
    /// The integral of the demand on the pool up to its submission.
    contention: i128,
}

impl<'a, O: Onlooker> Run<'a, O> {
    /// Begins with an empty pool, before the second in which the first job is submitted.
    pub(crate) fn begin(onlooker: O, setup: Replay<'a>, start_s: i64) -> Result<Self, ReplayError> {
        let start = Time(start_s * 1000);
        let foresight = Foresight::of(&setup);
        let costs = Costs { start_ms: 0, restart_ms: setup.restart_ms };
        let models = models(&setup);
        let Replay { nodes, queues, policy, speeds, .. } = setup;
        let rows = nodes.clone();
        let begin = move |start: Time| {
            let engine = SimulatedEngine::new(start, costs, models.clone());
            let nodes = rows.iter().map(|row| node(row)).collect();
            let beginning = Beginning { nodes, queues: queues.clone(), policy: policy.clone() };
            VirtualPool::begin(beginning, engine, start)
        };
        let pool = begin(start).map_err(|broken| ReplayError::Broken { at: 0, broken })?;
        Ok(Self {
            onlooker,
            pool,
            untouched: Some((start, Box::new(begin))),
            contention: Contention::new(nodes.iter().map(|node| node.gpus).sum()),
            models: gpus_by_model(&nodes),
            nodes,
            foresight,
            coming: Vec::new(),
            open: BTreeMap::new(),
            speeds,
            shapes: Shapes::default(),
            owners: Owners::default(),
            ended: 0,
            refused: Vec::new(),
            timeline: Timeline::default(),
            idle_rounds: 0,
        })
    }

    /// Takes the next job of the trace. What happens before its submission is played once its second is known to be
    /// complete.
    pub(crate) fn take(&mut self, row: usize, job: TraceJob) -> Result<(), ReplayError> {
        if self.coming.first().is_some_and(|(_, first)| first.arrival.submit_s < job.arrival.submit_s) {
            self.play()?;
        }
        self.coming.push((row, job));
        Ok(())
    }

    /// Lets all happen until the coming jobs have arrived; if none is to come, until nothing happens any more.
    fn play(&mut self) -> Result<(), ReplayError> {
        let arrival = self.coming.first().map(|(_, job)| Time(job.arrival.submit_s * 1000));
        loop {
            let next = [arrival, self.pool.next_due()].into_iter().flatten().min();
            let Some(now) = next.filter(|now| *now < END_OF_TIME) else { return Ok(()) };
            let arrives = arrival.is_some_and(|arrival| arrival <= now);
            self.step(now, arrives).map_err(|broken| ReplayError::Broken { at: now.0 / 1000, broken })?;
            if arrives || self.waits_in_vain(arrival) {
                return Ok(());
            }
        }
    }

    /// Whether no job runs, none is to come, and what came due many times over has started none: a budget of nothing
    /// begins a new period each week for ever.
    fn waits_in_vain(&mut self, arrival: Option<Time>) -> bool {
        let is_idle = arrival.is_none() && self.pool.engine().next_due().is_none();
        self.idle_rounds = if is_idle { self.idle_rounds + 1 } else { 0 };
        self.idle_rounds > MOST_IDLE_ROUNDS
    }

    /// Plays one moment, at which the coming jobs arrive if `arrives`. Decides when a job arrives, ends or changes its
    /// place by running on; not when a stopped job has come up again, or when all that arrive are refused.
    fn step(&mut self, now: Time, arrives: bool) -> Result<(), Broken> {
        let mut news = self.advance_to(now)? || self.pool.is_due();
        if arrives {
            self.begin_anew(now)?;
            let mut coming = std::mem::take(&mut self.coming);
            for (row, job) in coming.drain(..) {
                news |= self.arrive(row, job)?;
            }
            self.coming = coming;
        }
        if news {
            self.renew()?;
            self.onlooker.about_to_decide(self.pool.state(), now)?;
            self.decide()?;
        }
        Ok(())
    }

    /// Lets a pool that has taken no job begin now. Its calendar goes by when it began: jobs that it refused change nothing of that.
    fn begin_anew(&mut self, now: Time) -> Result<(), Broken> {
        if let Some((since, begin)) = self.untouched.as_mut().filter(|(since, _)| *since < now) {
            (self.pool, *since) = (begin(now)?, now);
        }
        Ok(())
    }

    /// Lets time pass; returns whether a job has ended.
    fn advance_to(&mut self, now: Time) -> Result<bool, Broken> {
        let (happened, before) = (self.pool.advance_to(now)?, self.ended);
        self.note(&happened);
        self.pool.take_back(happened);
        Ok(self.ended > before)
    }

    fn decide(&mut self) -> Result<(), Broken> {
        let happened = self.pool.decide()?;
        self.note(&happened);
        self.pool.take_back(happened);
        Ok(())
    }

    /// Submits a job; returns whether the pool took it.
    fn arrive(&mut self, row: usize, job: TraceJob) -> Result<bool, Broken> {
        let TraceJob { arrival, fate } = job;
        if let Some(room) = self.limit_below(&arrival) {
            let refused = Refused::beyond_limit(row, &arrival, &room);
            self.refused.push(refused);
            return Ok(false);
        }
        let shape = self.shapes.of(&arrival, self.speeds);
        let (owner, spec) = (self.owners.of(&arrival), shape.spec(&arrival).into());
        let (array, token, held, history) = (None, None, false, BTreeMap::new());
        let submit = Submit { owner, spec, requeue_said: true, array, token, held, history };
        let number = match self.pool.take(&Command::Submit(Box::new(submit)))? {
            Err(rejection) => {
                self.refused.push(Refused::by_core(row, &arrival, &rejection, &self.nodes, self.speeds));
                return Ok(false);
            }
            Ok(number) => number,
        };
        let Some(number) = number else { return Ok(false) };
        self.untouched = None;
        shape.fits(&arrival.queue);
        self.timeline.note(arrival.submit_s, 1, 0);
        let speeds = shape.speeds.clone();
        let course = Course { speeds, ..Course::of_length(fate.duration_s() * 1000) };
        self.pool.engine().set_course(number, course);
        let contention = self.contention.arrives(arrival.submit_s, arrival.gpus);
        let (start_s, placed_s, held_s, preemptions) = (None, 0, 0, 0);
        let open = Open { row, arrival, fate, start_s, placed_s, held_s, preemptions, contention };
        self.open.insert(number, Box::new(open));
        self.onlooker.arrived(number, row);
        self.foresee(number)?;
        Ok(true)
    }

    /// The limit that keeps a job from ever running, and whose it is: here it never changes later. Besides the limit on
    /// all GPUs there are those on the models that the job can use, and those on what one user of its queue holds.
    fn limit_below(&self, arrival: &Arrival) -> Option<Room> {
        let queues = &self.pool.state().queues;
        let of_user =
            queues.get(&arrival.queue).and_then(|queue| Some((queue, true, &queue.users.said()?.limit)));
        let of_all = lineage(&arrival.queue).filter_map(|path| queues.get(path));
        let mut limits = of_all.map(|queue| (queue, false, &queue.limit)).chain(of_user);
        limits.find_map(|(queue, of_user, limits)| {
            let usable = |model: &str| {
                let mut own = self.speeds.map(|speeds| speeds.models(&arrival.name, arrival.gpus));
                own.as_mut().is_none_or(|own| own.any(|(own, _)| own == model))
            };
            let usable = self.models.iter().filter(|(model, _)| usable(model));
            Room::of(&queue.path, of_user, limits, usable).filter(|room| room.is_below(arrival.gpus))
        })
    }

    fn foresee(&mut self, number: u64) -> Result<(), Broken> {
        let Some(open) = self.open.get(&number) else { return Ok(()) };
        let estimate = match &mut self.foresight {
            Foresight::Oracle => Some(oracle(&open.fate)),
            Foresight::Estimator(estimator) => estimator.foresee(&open.arrival),
        };
        let Some(estimate) = estimate else { return Ok(()) };
        // The job was submitted and has not ended: nothing refuses.
        self.pool.take(&Command::Estimate(JobId::single(number), estimate)).map(drop)
    }

    /// Renews all estimates, if it is time for that.
    fn renew(&mut self) -> Result<(), Broken> {
        let renews = match &mut self.foresight {
            Foresight::Oracle => false,
            Foresight::Estimator(estimator) => estimator.renews(),
        };
        if !renews {
            return Ok(());
        }
        let open: Vec<u64> = self.open.keys().copied().collect();
        open.into_iter().try_for_each(|number| self.foresee(number))
    }

    fn note(&mut self, happened: &[Stamped]) {
        for stamped in happened {
            let second = stamped.at.0 / 1000;
            match &stamped.event {
                Event::Placed { job, .. } => {
                    if let Some(open) = self.open.get_mut(&job.number) {
                        open.start_s.get_or_insert(second);
                        open.placed_s = second;
                        self.onlooker.started(job.number, stamped.at);
                        self.timeline.note(second, -1, open.arrival.gpus.into());
                    }
                }
                Event::AttemptEnded { job, state: JobState::Pending, .. } => {
                    if let Some(open) = self.open.get_mut(&job.number) {
                        open.preemptions += 1;
                        open.held_s += second - open.placed_s;
                        self.onlooker.held(open.stretch(second));
                        self.timeline.note(second, 1, -i64::from(open.arrival.gpus));
                    }
                }
                Event::AttemptEnded { job, state: JobState::Timeout, .. } => self.cut(*job, second),
                Event::AttemptEnded { job, .. } => self.finish(*job, second),
                _ => {}
            }
        }
    }

    fn finish(&mut self, job: JobId, finish_s: i64) {
        let Some(open) = self.open.remove(&job.number) else { return };
        self.pool.engine().forget_job(job);
        self.onlooker.held(open.stretch(finish_s));
        let Open { row, arrival, fate, start_s, placed_s, held_s, preemptions, contention } = *open;
        let duration_s = fate.duration_s();
        // By another model's seconds a job would end before it began.
        let worked_s = if self.speeds.is_some() { held_s + finish_s - placed_s } else { duration_s };
        if let Foresight::Estimator(estimator) = &mut self.foresight {
            estimator.at_end(&arrival, duration_s);
        }
        let Arrival { id, submit_s, gpus, queue, .. } = arrival;
        self.timeline.note(finish_s, 0, -i64::from(gpus));
        let fairness = self.contention.ends(Stay { gpus, submit_s, finish_s, duration_s }, contention);
        let start_s = start_s.unwrap_or(finish_s);
        self.ended += 1;
        let finished = Finished {
            row,
            id,
            queue,
            gpus,
            submit_s,
            start_s,
            finish_s,
            duration_s,
            worked_s,
            preemptions,
            fairness,
        };
        self.onlooker.ended(job.number, finished);
    }

    /// Ends a job by a time limit: an estimator learns what the job did, as a pool's own history does.
    fn cut(&mut self, job: JobId, finish_s: i64) {
        let Some(open) = self.open.remove(&job.number) else { return };
        let done_s = self.pool.engine().done_ms(job) / 1000;
        self.pool.engine().forget_job(job);
        self.onlooker.held(open.stretch(finish_s));
        let Open { row, arrival, fate, placed_s, held_s, preemptions, contention, .. } = *open;
        let duration_s = fate.duration_s();
        let worked_s = if self.speeds.is_some() { held_s + finish_s - placed_s } else { done_s };
        if let Foresight::Estimator(estimator) = &mut self.foresight {
            estimator.at_end(&arrival, done_s.max(1));
        }
        let Arrival { id, submit_s, gpus, queue, .. } = arrival;
        self.timeline.note(finish_s, 0, -i64::from(gpus));
        // The fairness is not needed, but the others contend with one job less from now on.
        self.contention.ends(Stay { gpus, submit_s, finish_s, duration_s }, contention);
        self.ended += 1;
        let cut = Cut { row, id, queue, gpus, submit_s, finish_s, duration_s, worked_s, preemptions };
        self.onlooker.cut(job.number, cut);
    }

    /// Plays on until nothing happens any more.
    pub(crate) fn end(mut self) -> Result<(O, Ended), ReplayError> {
        if !self.coming.is_empty() {
            self.play()?;
        }
        self.play()?;
        // The running jobs would end if there were time.
        if let (Some(open), Some(_)) = (self.open.values().next(), self.pool.engine().next_due()) {
            return Err(ReplayError::EndOfTime(self.open.len(), open.arrival.id.clone()));
        }
        let stranded = self.stranded();
        let (digest, events) = (self.pool.digest(), self.pool.events());
        let Self { onlooker, refused, timeline, .. } = self;
        Ok((onlooker, Ended { refused, stranded, digest, events, timeline }))
    }

    /// The jobs that wait though nothing else can happen, and what for, in the core's words.
    fn stranded(&self) -> Vec<Stranded> {
        let state = self.pool.state();
        let waits = |(number, open): (u64, &Open)| {
            let job = state.jobs.get(&number)?;
            let member = job.waiting_members().next()?;
            let (id, run) = (JobId { member, ..job.id() }, job.run(member)?);
            let reason = explain::reason(state, job, (id, &run))?;
            let stranded = Stranded::of(open.row, &open.arrival, &reason);
            let gave_up = self.idle_rounds > MOST_IDLE_ROUNDS;
            Some(if gave_up { stranded.after(MOST_IDLE_ROUNDS) } else { stranded })
        };
        self.open.iter().map(|(number, open)| (*number, &**open)).filter_map(waits).collect()
    }
}

impl Open {
    /// The time since it last got its GPUs.
    fn stretch(&self, to_s: i64) -> Stretch {
        Stretch { row: self.row, from_s: self.placed_s, to_s }
    }
}

fn gpus_by_model<'a>(nodes: &[&'a ClusterNode]) -> BTreeMap<&'a str, i64> {
    let mut gpus = BTreeMap::new();
    for node in nodes {
        *gpus.entry(node.model.as_str()).or_default() += i64::from(node.gpus);
    }
    gpus
}

/// Returns one digest for several pools, in the order of their names.
pub fn merged_digest(digests: &[u64]) -> u64 {
    match digests {
        [one] => *one,
        many => fingerprint(many),
    }
}

/// A queue for each name in the trace.
fn queues_of(jobs: &[TraceJob]) -> Vec<Queue> {
    let names: BTreeSet<&str> = jobs.iter().map(|job| job.arrival.queue.as_str()).collect();
    names.into_iter().map(Queue::named).collect()
}

/// The settings of a named policy and what it may know.
pub fn named(policy: Named) -> (Policy, Class) {
    (policy.settings(), policy.class())
}
