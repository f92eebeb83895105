//! A trace through a pool in virtual time: what arrives, when each job starts and ends, and what that costs.

use std::collections::{BTreeMap, BTreeSet};

use divvy_core::controller::Broken;
use divvy_core::decide::{Command, Rejection, Submit};
use divvy_core::event::{Event, Stamped};
use divvy_core::id::JobId;
use divvy_core::model::ask::{Alternative, Ask, DeviceAsk, DeviceClass, DrawAsk};
use divvy_core::model::device::DeviceSpec;
use divvy_core::model::gang::{Branch, Group, Role};
use divvy_core::model::job::{
    JobSpec, JobState, Kind, Lifetime, Owner, Process, Requeue, StopOrder, Work, usual_restarts,
};
use divvy_core::model::newer::Newer;
use divvy_core::model::node::NodeSpec;
use divvy_core::model::policy::Policy;
use divvy_core::model::queue::Queue;
use divvy_core::state::{State, fingerprint};
use divvy_core::time::Time;

use crate::engine::{Costs, Course, SimulatedEngine};
use crate::estimate::{Blind, Estimator, History, Learned, Oracle};
use crate::metrics::Finished;
use crate::policy::{Class, Named};
use crate::pool::{Beginning, VirtualPool};
use crate::timeline::Timeline;
use crate::trace::cluster::ClusterNode;
use crate::trace::decimal::Ratio;
use crate::trace::jobs::{Arrival, TraceJob};
use crate::trace::speeds::Speeds;

/// GPUs that a task has at most: a larger job is a gang of such tasks and one of the rest.
pub(crate) const GPUS_OF_A_TASK: u32 = 8;

/// What a replay takes.
pub struct Replay<'a> {
    /// The nodes of one pool, in their order.
    pub nodes: Vec<&'a ClusterNode>,
    /// The queues; none for one queue without limits for each name in the trace.
    pub queues: Vec<Queue>,
    /// How it decides.
    pub policy: Policy,
    /// What it may know.
    pub class: Class,
    /// What a later start of a job costs, in milliseconds.
    pub restart_ms: i64,
    /// How fast each kind of job runs on each model; without it all run as fast on any.
    pub speeds: Option<&'a Speeds>,
}

/// What came of it.
pub struct Replayed {
    /// Jobs that ended, in the order of their ends.
    pub finished: Vec<Finished>,
    /// When which job held its GPUs, in the order of the ends.
    pub stretches: Vec<Stretch>,
    /// The rows of jobs that the pool could never run, and why.
    pub refused: Vec<(usize, Rejection)>,
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
    /// Jobs are left that will never start.
    #[error("nothing will ever start job {1}; {0} jobs are left when all else has ended")]
    Stuck(usize, String),
    /// A job runs for longer than virtual time lasts.
    #[error("virtual time ends after {YEARS_OF_TIME} years, before job {1} does; {0} jobs are left")]
    EndOfTime(usize, String),
}

/// How long virtual time lasts. Work of a job in GPU milliseconds, and all sums of times, are then far from the end of 64 bits.
const YEARS_OF_TIME: i64 = 1_000_000;
const END_OF_TIME: Time = Time(YEARS_OF_TIME * 366 * 86_400_000);

/// Looks on while a trace is replayed. It is told what happens, when it happens.
pub trait Onlooker {
    /// A job was submitted under a number; nothing was decided about it yet.
    fn arrived(&mut self, _number: u64, _row: usize) {}

    /// A job got its GPUs, for the first time or again.
    fn started(&mut self, _number: u64, _at: Time) {}

    /// A job has ended.
    fn ended(&mut self, _number: u64, _finished: &Finished) {}

    /// Everything that has happened by now is known; what follows from it is about to be decided.
    fn about_to_decide(&mut self, _state: &State, _now: Time) -> Result<(), Broken> {
        Ok(())
    }
}

/// Does not look.
struct Nobody;

impl Onlooker for Nobody {}

/// Replays jobs, in the order of their submission. `progress` is told how many have ended.
pub fn replay<'a>(
    setup: Replay<'a>,
    jobs: &'a [TraceJob],
    progress: impl FnMut(usize),
) -> Result<Replayed, ReplayError> {
    replay_before(&mut Nobody, setup, jobs, progress)
}

/// The same before the eyes of someone.
pub fn replay_before<'a>(
    onlooker: &mut dyn Onlooker,
    setup: Replay<'a>,
    jobs: &'a [TraceJob],
    mut progress: impl FnMut(usize),
) -> Result<Replayed, ReplayError> {
    let start = Time(jobs.first().map_or(0, |job| job.arrival.submit_s) * 1000);
    let begun = Run::begin(onlooker, setup, jobs, start);
    let mut run = begun.map_err(|broken| ReplayError::Broken { at: 0, broken })?;
    let mut next_row = 0;
    loop {
        let arrival = jobs.get(next_row).map(|job| Time(job.arrival.submit_s * 1000));
        let next = [arrival, run.pool.next_due()].into_iter().flatten().min();
        let Some(now) = next.filter(|now| *now < END_OF_TIME) else { break };
        let broken = |broken| ReplayError::Broken { at: now.0 / 1000, broken };
        // Decided is when a job arrives, ends or changes its place by running on; not when a stopped one has come up again.
        let mut news = run.advance_to(now).map_err(broken)? || run.pool.is_due();
        while jobs.get(next_row).is_some_and(|job| job.arrival.submit_s * 1000 <= now.0) {
            run.arrive(next_row).map_err(broken)?;
            next_row += 1;
            news = true;
        }
        if news {
            run.renew().map_err(broken)?;
            run.onlooker.about_to_decide(run.pool.state(), now).map_err(broken)?;
            run.decide().map_err(broken)?;
        }
        progress(run.finished.len());
    }
    run.end()
}

/// A replay under way.
struct Run<'a, 'o> {
    onlooker: &'o mut dyn Onlooker,
    pool: VirtualPool,
    jobs: &'a [TraceJob],
    estimator: Box<dyn Estimator>,
    open: BTreeMap<u64, Open>,
    speeds: Option<&'a Speeds>,
    /// Sizes of jobs that the empty pool was found to hold, of each queue, and of each kind where speeds tell kinds apart.
    fitting: BTreeSet<(u32, String, String)>,
    finished: Vec<Finished>,
    stretches: Vec<Stretch>,
    refused: Vec<(usize, Rejection)>,
    timeline: Timeline,
}

/// A job that has not ended.
struct Open {
    row: usize,
    start_s: Option<i64>,
    /// When it last got its GPUs.
    placed_s: i64,
    preemptions: u32,
}

impl<'a, 'o> Run<'a, 'o> {
    fn begin(
        onlooker: &'o mut dyn Onlooker,
        setup: Replay<'a>,
        jobs: &'a [TraceJob],
        start: Time,
    ) -> Result<Self, Broken> {
        let estimator: Box<dyn Estimator> = match setup.class {
            Class::N => Box::new(Blind),
            // An order by outlooks needs more than a length.
            Class::P if !setup.policy.attained.foreseen.levels_device_ms.is_empty() => {
                Box::new(Learned::new(setup.nodes.iter().map(|node| node.gpus).sum()))
            }
            Class::P => Box::new(History::default()),
            Class::C => Box::new(Oracle::new(jobs.iter().map(|job| &job.fate))),
        };
        let costs = Costs { start_ms: 0, restart_ms: setup.restart_ms };
        let engine = SimulatedEngine::new(start, costs, models(&setup));
        let queues = if setup.queues.is_empty() { queues_of(jobs) } else { setup.queues };
        let nodes = setup.nodes.into_iter().map(node).collect();
        let pool = VirtualPool::begin(Beginning { nodes, queues, policy: setup.policy }, engine, start)?;
        let (open, fitting) = (BTreeMap::new(), BTreeSet::new());
        let (finished, stretches) = (Vec::new(), Vec::new());
        let (refused, timeline) = (Vec::new(), Timeline::default());
        let speeds = setup.speeds;
        Ok(Self {
            onlooker,
            pool,
            jobs,
            estimator,
            open,
            speeds,
            fitting,
            finished,
            stretches,
            refused,
            timeline,
        })
    }

    /// Lets time pass; says whether a job has ended.
    fn advance_to(&mut self, now: Time) -> Result<bool, Broken> {
        let (happened, before) = (self.pool.advance_to(now)?, self.finished.len());
        self.note(&happened);
        Ok(self.finished.len() > before)
    }

    fn decide(&mut self) -> Result<(), Broken> {
        let happened = self.pool.decide()?;
        self.note(&happened);
        Ok(())
    }

    fn arrive(&mut self, row: usize) -> Result<(), Broken> {
        let job = &self.jobs[row];
        let arrival = &job.arrival;
        // What fits is looked at once for each size: the pool does not change.
        let kinds = kinds(arrival, self.speeds);
        let mut spec = spec(arrival, &kinds);
        let kind = self.speeds.map_or_else(String::new, |_| arrival.name.clone());
        let size = (arrival.gpus, arrival.queue.clone(), kind);
        spec.wait_for_capacity = self.fitting.contains(&size);
        let owner = Owner {
            name: if arrival.user.is_empty() { "-".into() } else { arrival.user.clone() },
            ..Owner::default()
        };
        let (spec, array, token, held, history) = (spec.into(), None, None, false, BTreeMap::new());
        let submit = Submit { owner, spec, requeue_said: true, array, token, held, history };
        match self.pool.take(&Command::Submit(Box::new(submit)))? {
            Err(rejection) => self.refused.push((row, rejection)),
            Ok(number) => {
                let Some(number) = number else { return Ok(()) };
                self.fitting.insert(size);
                self.timeline.note(arrival.submit_s, 1, 0);
                self.open.insert(number, Open { row, start_s: None, placed_s: 0, preemptions: 0 });
                let speeds = kinds.into_iter().filter_map(|kind| Some((kind.model?, kind.speed))).collect();
                let course = Course { speeds, ..Course::of_length(job.fate.duration_s() * 1000) };
                self.pool.engine().set_course(number, course);
                self.onlooker.arrived(number, row);
                self.foresee(number, row)?;
            }
        }
        Ok(())
    }

    fn foresee(&mut self, number: u64, row: usize) -> Result<(), Broken> {
        let Some(estimate) = self.estimator.foresee(row, &self.jobs[row].arrival) else { return Ok(()) };
        // The job was submitted and has not ended: nothing refuses.
        self.pool.take(&Command::Estimate(JobId::single(number), estimate)).map(drop)
    }

    /// Foresees all jobs anew, if it is time for that.
    fn renew(&mut self) -> Result<(), Broken> {
        if !self.estimator.renews() {
            return Ok(());
        }
        let open: Vec<(u64, usize)> = self.open.iter().map(|(number, open)| (*number, open.row)).collect();
        open.into_iter().try_for_each(|(number, row)| self.foresee(number, row))
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
                        self.timeline.note(second, -1, self.jobs[open.row].arrival.gpus.into());
                    }
                }
                Event::AttemptEnded { job, state: JobState::Pending, .. } => {
                    if let Some(open) = self.open.get_mut(&job.number) {
                        open.preemptions += 1;
                        self.stretches.push(Stretch { row: open.row, from_s: open.placed_s, to_s: second });
                        self.timeline.note(second, 1, -i64::from(self.jobs[open.row].arrival.gpus));
                    }
                }
                Event::AttemptEnded { job, .. } => self.finish(*job, second),
                _ => {}
            }
        }
    }

    fn finish(&mut self, job: JobId, finish_s: i64) {
        let Some(open) = self.open.remove(&job.number) else { return };
        self.pool.engine().forget_job(job);
        let TraceJob { arrival, fate } = &self.jobs[open.row];
        self.stretches.push(Stretch { row: open.row, from_s: open.placed_s, to_s: finish_s });
        self.estimator.at_end(arrival, fate.duration_s());
        self.timeline.note(finish_s, 0, -i64::from(arrival.gpus));
        let finished = Finished {
            row: open.row,
            id: arrival.id.clone(),
            queue: arrival.queue.clone(),
            gpus: arrival.gpus,
            submit_s: arrival.submit_s,
            start_s: open.start_s.unwrap_or(finish_s),
            finish_s,
            duration_s: fate.duration_s(),
            preemptions: open.preemptions,
        };
        self.onlooker.ended(job.number, &finished);
        self.finished.push(finished);
    }

    fn end(mut self) -> Result<Replayed, ReplayError> {
        if let Some(open) = self.open.values().next() {
            let (left, id) = (self.open.len(), self.jobs[open.row].arrival.id.clone());
            // What runs would end, if there were time.
            return Err(match self.pool.engine().next_due() {
                Some(_) => ReplayError::EndOfTime(left, id),
                None => ReplayError::Stuck(left, id),
            });
        }
        let (digest, events) = (self.pool.digest(), self.pool.events());
        let Self { finished, stretches, refused, timeline, .. } = self;
        Ok(Replayed { finished, stretches, refused, digest, events, timeline })
    }
}

/// One digest of several pools, in the order of their names.
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

fn node(row: &ClusterNode) -> (NodeSpec, Vec<DeviceSpec>) {
    let device = |index: u32| DeviceSpec {
        uuid: uuid(row, index),
        index,
        model: row.model.clone(),
        memory_mib: 80 << 10,
        ..DeviceSpec::default()
    };
    let spec = NodeSpec {
        name: row.node.clone(),
        cpu_milli: row.cpu_milli,
        memory_bytes: row.memory_mib << 20,
        ..NodeSpec::default()
    };
    (spec, (0..row.gpus).map(device).collect())
}

/// The model of each device, where jobs run faster on one than on another.
fn models(setup: &Replay<'_>) -> BTreeMap<String, String> {
    let nodes = setup.nodes.iter().filter(|_| setup.speeds.is_some());
    let devices = nodes.flat_map(|row| (0..row.gpus).map(|index| (uuid(row, index), row.model.clone())));
    devices.collect()
}

fn uuid(row: &ClusterNode, index: u32) -> String {
    format!("{}:{index}", row.node)
}

/// A model that a job can run on, any where there is no name, and how fast.
struct KindOfDevice {
    model: Option<String>,
    speed: (u64, u64),
}

/// What a job can run on, the fastest first. Nothing, for a kind of job that the speeds know nothing of.
fn kinds(job: &Arrival, speeds: Option<&Speeds>) -> Vec<KindOfDevice> {
    let Some(speeds) = speeds else { return vec![KindOfDevice { model: None, speed: (1, 1) }] };
    let kind = |(model, ratio): (&str, Ratio)| KindOfDevice {
        model: Some(model.to_owned()),
        speed: (ratio.over(), ratio.under()),
    };
    let mut kinds: Vec<_> = speeds.models(&job.name, job.gpus).map(kind).collect();
    // Cross-multiplied: exact. Of equals the first by name.
    let product =
        |one: &KindOfDevice, other: &KindOfDevice| u128::from(one.speed.0) * u128::from(other.speed.1);
    kinds.sort_by(|a, b| product(b, a).cmp(&product(a, b)));
    kinds
}

/// One way to run a task: on devices of one model, or of any.
fn alternative(kind: &KindOfDevice, fastest: &KindOfDevice, gpus: u32) -> Alternative {
    let class = DeviceClass { models: kind.model.iter().cloned().collect(), ..DeviceClass::default() };
    let devices = (gpus > 0).then_some(DeviceAsk { class, count: gpus, draw: DrawAsk::Whole });
    let over = 100 * u128::from(kind.speed.0) * u128::from(fastest.speed.1);
    let under = u128::from(kind.speed.1) * u128::from(fastest.speed.0);
    let speed_percent = u32::try_from((over / under).max(1)).unwrap_or(100);
    // Traces of GPU jobs say nothing of cores and memory.
    Alternative {
        devices,
        cpu_milli: Some(0),
        memory_bytes: Some(0),
        speed_percent,
        ..Alternative::default()
    }
}

fn role(name: &str, tasks: u32, gpus: u32, kinds: &[KindOfDevice]) -> Role {
    Role {
        name: name.into(),
        minimum: tasks,
        maximum: tasks,
        ask: Ask::of(kinds.iter().map(|kind| alternative(kind, &kinds[0], gpus)).collect()),
        work: Work::Process(Process { argv: vec!["simulated".into()], ..Process::default() }),
        topology: None,
    }
}

/// The tasks of a job of so many GPUs.
fn gang(gpus: u32, kinds: &[KindOfDevice]) -> Group {
    let (whole, rest) = (gpus / GPUS_OF_A_TASK, gpus % GPUS_OF_A_TASK);
    match (whole, rest) {
        (0, rest) => Group::Role(role("main", 1, rest, kinds)),
        (whole, 0) => Group::Role(role("main", whole, GPUS_OF_A_TASK, kinds)),
        (whole, rest) => Group::Branch(Branch {
            name: "all".into(),
            minimum: 2,
            groups: vec![
                Group::Role(role("main", whole, GPUS_OF_A_TASK, kinds)),
                Group::Role(role("rest", 1, rest, kinds)),
            ],
            topology: None,
        }),
    }
}

fn spec(job: &Arrival, kinds: &[KindOfDevice]) -> JobSpec {
    JobSpec {
        name: if job.id.is_empty() { "-".into() } else { job.id.clone() },
        queue: job.queue.clone(),
        project: None,
        kind: Kind::Train,
        labels: BTreeMap::new(),
        priority: 0,
        preemptible: true,
        resumable: true,
        lifetime: Lifetime::Batch,
        gang: gang(job.gpus, kinds),
        time_limit: None,
        estimate: None,
        requeue: Requeue::Never,
        most_restarts: usual_restarts(),
        after: Vec::new(),
        start_after: None,
        deadline: Newer::default(),
        preempts: Newer::default(),
        stop: StopOrder::default(),
        checkpoint: None,
        wait_for_capacity: false,
        exclusive: false,
        seat: Newer::default(),
    }
}
