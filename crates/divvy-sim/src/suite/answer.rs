//! The core's answer: what it does with each job, read off its state after it has planned.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use divvy_core::controller::{Broken, Controller};
use divvy_core::decide::Rejection;
use divvy_core::engine::{EndedHow, Observation, TaskEnd, TaskStart};
use divvy_core::event::{Event, Stamped};
use divvy_core::id::{AllocationId, DeviceId, JobId};
use divvy_core::model::allocation::{AllocationState, Placement};
use divvy_core::model::job::Cause;
use divvy_core::reason::Reason;
use divvy_core::state::{Run, State};
use divvy_core::time::{Span, Time};
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::{Value, json};

use super::stage::{Actor, Stage};

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Obstacle {
    /// Divvy has no word for these things that the case asks for.
    NoWord(BTreeSet<String>),
    /// The core would not go on.
    Broken(String),
}

impl Obstacle {
    pub(super) fn no_word(what: &str) -> Self {
        Obstacle::NoWord(BTreeSet::from([what.to_owned()]))
    }
}

impl From<Broken> for Obstacle {
    fn from(broken: Broken) -> Self {
        Obstacle::Broken(broken.to_string())
    }
}

/// The core refuses by name what it carries but does not do yet.
impl From<Rejection> for Obstacle {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::CannotFit { reason: Reason::Unsupported(what), .. } => {
                Obstacle::no_word(what.split(':').next().unwrap_or(&what))
            }
            other => Obstacle::Broken(format!("the core refuses the case: {other}")),
        }
    }
}

/// What the plan does with a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    /// It waited and gets its place now.
    Start,
    /// It waited and is promised a place that others still hold.
    StartLater,
    /// It waits on.
    Wait,
    /// It runs on where it is.
    Keep,
    /// It is stopped, and gets no other place in the same plan.
    Evict,
    /// It is stopped here and goes on elsewhere.
    Move,
    /// It was already on its way out.
    Leaving,
    /// It was already over.
    Finished,
}

impl Outcome {
    const NAMES: [(&'static str, Outcome); 10] = [
        ("start", Outcome::Start),
        ("start_later", Outcome::StartLater),
        ("wait", Outcome::Wait),
        ("keep", Outcome::Keep),
        ("evict", Outcome::Evict),
        ("move", Outcome::Move),
        ("leaving", Outcome::Leaving),
        ("finished", Outcome::Finished),
        // Gone by now, or asked to go: on its way out all the same.
        ("left", Outcome::Leaving),
        ("leave", Outcome::Leaving),
    ];

    /// Reads the suites' word for it.
    pub(super) fn read(word: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(name, _)| *name == word).map(|(_, outcome)| *outcome)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMES.iter().find(|(_, outcome)| outcome == self).map_or("", |(name, _)| name))
    }
}

/// What became of a task, and where it is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TaskFate {
    pub(super) id: String,
    pub(super) group: Option<String>,
    pub(super) outcome: Outcome,
    /// The node's name, where it has (or will have) one.
    pub(super) node: Option<String>,
    /// Its devices: their places on the node.
    pub(super) devices: Vec<u32>,
    /// Which of its alternatives it got.
    pub(super) alternative: Option<u32>,
}

/// What became of a job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JobFate {
    pub(super) name: String,
    pub(super) tasks: Vec<TaskFate>,
    /// Its sets of pods, where the case has any.
    pub(super) podsets: Vec<PodsetFate>,
    /// Why it was stopped, if it was.
    pub(super) cause: Option<Cause>,
}

/// What became of one set of pods that was to be placed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PodsetFate {
    pub(super) podset: String,
    pub(super) fits: bool,
    /// The kind of capacity it got, where the case has several.
    pub(super) flavor: Option<String>,
    /// The nodes of its pods.
    pub(super) nodes: Vec<String>,
}

/// How much a queue could still take of a flavor's resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) struct Available {
    pub(super) queue: String,
    pub(super) flavor: String,
    pub(super) resource: String,
    /// Whether this is while nothing is in use.
    #[serde(skip)]
    pub(super) when_empty: bool,
    pub(super) amount: i64,
}

/// How much a queue has of what others lend.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) struct Share {
    pub(super) node: String,
    #[serde(rename = "share_permille")]
    pub(super) permille: Permille,
    /// Whether it has any of it.
    pub(super) borrowing: bool,
}

/// Thousandths per unit of weight; infinite where a queue has no weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Permille {
    Finite(i64),
    Infinite,
}

impl Permille {
    /// As the suite writes it.
    pub(super) fn shown(self) -> Value {
        match self {
            Self::Finite(permille) => permille.into(),
            Self::Infinite => "infinite".into(),
        }
    }
}

impl<'de> Deserialize<'de> for Permille {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match (value.as_i64(), value.as_str()) {
            (Some(permille), _) => Ok(Self::Finite(permille)),
            (_, Some("infinite")) => Ok(Self::Infinite),
            _ => Err(D::Error::custom(format!("{value} is no share: a whole number, or \"infinite\""))),
        }
    }
}

/// The core's answer to a case.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    /// What became of each job; `settled` if it was planned to rest, where a move leaves no trace.
    Fates { jobs: Vec<JobFate>, settled: bool },
    /// Whether, and where, sets of pods fit.
    Placements { podsets: Vec<PodsetFate>, labels: BTreeMap<String, BTreeMap<String, String>> },
    /// How much each queue could still take.
    Amounts(BTreeSet<Available>),
    /// How much each queue has of what others lend.
    Shares(BTreeSet<Share>),
    /// Whether a job fits, and whether it would after evictions.
    Choice { fits: bool, needs_eviction: bool },
}

impl Answer {
    /// The answer as people and programs read it.
    pub(super) fn shown(&self) -> Value {
        match self {
            Answer::Fates { jobs, .. } => {
                jobs.iter().map(|job| (job.name.clone(), tally(job).into_iter().collect::<Value>())).collect()
            }
            Answer::Placements { podsets, .. } => podsets
                .iter()
                .map(|set| json!({"podset": set.podset, "fits": set.fits, "count": set.nodes.len(), "nodes": set.nodes}))
                .collect(),
            Answer::Amounts(amounts) => amounts
                .iter()
                .map(|it| json!({"queue": it.queue, "flavor": it.flavor, "resource": it.resource, "when_empty": it.when_empty, "amount": it.amount}))
                .collect(),
            Answer::Shares(shares) => shares
                .iter()
                .map(|it| json!({"node": it.node, "share_permille": it.permille.shown(), "borrowing": it.borrowing}))
                .collect(),
            Answer::Choice { fits, needs_eviction } => json!({"fits": fits, "needs_eviction": needs_eviction}),
        }
    }
}

fn tally(job: &JobFate) -> BTreeMap<String, u32> {
    let mut tally = BTreeMap::new();
    for task in &job.tasks {
        *tally.entry(task.outcome.to_string()).or_default() += 1;
    }
    tally
}

/// How long the core plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// This many cycles, in which nothing happens but what they plan.
    Cycles(u32),
    /// Until a cycle changes nothing, with an engine that starts and ends tasks at once.
    Rest,
}

/// The most cycles until rest: each moves some job, and no case has more than a few dozen.
const MOST_CYCLES: u32 = 64;

/// Where a case asks only about places that others hold, a job for which nobody makes room waits: starting where there is
/// room is another phase's part.
pub(super) fn in_places_of_others(stage: &Stage, answer: Answer) -> Result<Answer, Obstacle> {
    let Answer::Fates { mut jobs, settled } = answer else { return Ok(answer) };
    let mut controller = Controller::open(stage.state.clone());
    controller.cycle(stage.now)?;
    let events = controller.drain().map(|batch| batch.commit.events).unwrap_or_default();
    let for_whom = |stamped: Stamped| match stamped.event {
        Event::Stopping { by, .. } | Event::Shrinking { by, .. } => by,
        _ => None,
    };
    let made_room: BTreeSet<String> = events.into_iter().filter_map(for_whom).collect();
    let starts = |task: &&mut TaskFate| matches!(task.outcome, Outcome::Start | Outcome::StartLater);
    let left_out =
        jobs.iter_mut().zip(&stage.cast).filter(|(_, (id, _))| !made_room.contains(&id.to_string()));
    for task in left_out.flat_map(|(job, _)| &mut job.tasks).filter(starts) {
        (task.outcome, task.node, task.alternative) = (Outcome::Wait, None, None);
        task.devices.clear();
    }
    Ok(Answer::Fates { jobs, settled })
}

/// Lets the core plan, and returns what became of each actor.
pub(super) fn play(stage: Stage, until: Until) -> Result<Answer, Obstacle> {
    let Stage { state, cast, mut now } = stage;
    let mut controller = Controller::open(state);
    match until {
        Until::Cycles(cycles) => {
            for _ in 0..cycles {
                controller.cycle(now)?;
                now = now + Span(1000);
            }
        }
        Until::Rest => settle(&mut controller, &cast, now)?,
    }
    let jobs = cast.iter().map(|(id, actor)| fate(controller.state(), *id, actor)).collect();
    Ok(Answer::Fates { jobs, settled: until == Until::Rest })
}

fn settle(controller: &mut Controller, cast: &[(JobId, Actor)], mut now: Time) -> Result<(), Obstacle> {
    for _ in 0..MOST_CYCLES {
        controller.cycle(now)?;
        let planned = controller.drain().is_some();
        let carried_out = carry_out(controller, cast, now)?;
        controller.drain();
        if !planned && !carried_out {
            return Ok(());
        }
        now = now + Span(1000);
    }
    Err(Obstacle::Broken(format!("the pool does not come to rest in {MOST_CYCLES} cycles")))
}

/// A waiting job that can start once the tasks that were leaving before the plan have gone counts as starting later: the core
/// promises nothing to a job that no victim leaves for.
pub(super) fn with_leavers_gone(stage: &Stage, answer: Answer) -> Result<Answer, Obstacle> {
    let Answer::Fates { mut jobs, settled } = answer else { return Ok(answer) };
    let lingers = |job: JobId| stage.cast.iter().any(|(id, actor)| *id == job && actor.lingers);
    let all = stage.state.allocations.iter();
    let leaving = all.filter(|(_, held)| held.state == AllocationState::Stopping && !lingers(held.job));
    let gone: Vec<AllocationId> = leaving.map(|(id, _)| *id).collect();
    let waits = |job: &JobFate| job.tasks.iter().any(|task| task.outcome == Outcome::Wait);
    if gone.is_empty() || !jobs.iter().any(waits) {
        return Ok(Answer::Fates { jobs, settled });
    }
    let mut controller = Controller::open(stage.state.clone());
    controller.cycle(stage.now)?;
    let then = stage.now + Span(1000);
    for id in gone {
        let end = TaskEnd { at: then, how: EndedHow::Signalled(15), ..TaskEnd::default() };
        controller.see(&Observation::Ended(id, end), then)?;
    }
    controller.cycle(then)?;
    for (job, (id, actor)) in jobs.iter_mut().zip(&stage.cast) {
        let later = fate(controller.state(), *id, actor);
        for (task, later) in job.tasks.iter_mut().zip(later.tasks) {
            if task.outcome == Outcome::Wait && later.outcome == Outcome::Start {
                *task = TaskFate { outcome: Outcome::StartLater, ..later };
            }
        }
    }
    Ok(Answer::Fates { jobs, settled })
}

/// Starts what is to start and ends what is to stop, at once; returns whether there was anything.
fn carry_out(controller: &mut Controller, cast: &[(JobId, Actor)], now: Time) -> Result<bool, Obstacle> {
    let lingers = |job: JobId| cast.iter().any(|(id, actor)| *id == job && actor.lingers);
    let due: Vec<(AllocationId, AllocationState)> = (controller.state().allocations.iter())
        .filter(|(_, held)| {
            held.state == AllocationState::Starting
                || held.state == AllocationState::Stopping && !lingers(held.job)
        })
        .map(|(id, held)| (*id, held.state))
        .collect();
    for (id, state) in &due {
        let seen = match state {
            AllocationState::Starting => {
                Observation::Started(*id, TaskStart { at: now, pid: 1, ..TaskStart::default() })
            }
            _ => Observation::Ended(
                *id,
                TaskEnd { at: now, how: EndedHow::Signalled(15), ..TaskEnd::default() },
            ),
        };
        controller.see(&seen, now)?;
    }
    Ok(!due.is_empty())
}

fn fate(state: &State, id: JobId, actor: &Actor) -> JobFate {
    let run = state.run(id);
    let cause = run.and_then(|run| {
        let now = run.stopping.as_ref().map(|stopping| stopping.cause);
        now.or(run.last_end.as_ref().map(|end| end.cause))
    });
    let promised = state.promises.get(&id).map(|promise| promise.placements.as_slice()).unwrap_or_default();
    let task = |(rank, task): (usize, &super::stage::Task)| {
        let rank = rank as u32;
        let at = held(state, run, rank);
        let later = promised.iter().find(|placement| placement.rank == rank);
        let outcome = outcome(actor, run, rank, (at.map(|(_, goes)| goes), later.is_some()));
        let place = later
            .or(at.map(|(placement, _)| placement))
            .filter(|_| outcome != Outcome::Evict && outcome != Outcome::Wait);
        TaskFate {
            id: task.id.clone(),
            group: task.group.clone(),
            outcome,
            node: place.and_then(|place| state.nodes.get(&place.node)).map(|node| node.spec.name.clone()),
            devices: place.map(|place| places_on_node(state, place)).unwrap_or_default(),
            alternative: place.map(|place| place.alternative),
        }
    };
    JobFate {
        name: actor.name.clone(),
        tasks: actor.tasks.iter().enumerate().map(task).collect(),
        podsets: Vec::new(),
        cause,
    }
}

/// What the task of a rank holds, and whether it was told to go.
fn held<'a>(state: &'a State, run: Option<&Run>, rank: u32) -> Option<(&'a Placement, bool)> {
    let live = run?.live.iter().filter_map(|id| state.allocations.get(id));
    let held = live.map(|held| (&held.placement, held.state == AllocationState::Stopping));
    held.into_iter().find(|(placement, _)| placement.rank == rank)
}

/// A task's outcome, from how it was and how it is: whether it must leave what it holds, and what is promised to it.
fn outcome(actor: &Actor, run: Option<&Run>, rank: u32, (goes, promised): (Option<bool>, bool)) -> Outcome {
    let stays = goes == Some(false);
    let first_attempt = run.is_some_and(|run| run.attempt == 1 && run.stopping.is_none());
    let ran = actor.running.as_ref().filter(|running| running.seats.get(rank as usize) != Some(&None));
    match ran {
        _ if actor.leaving => Outcome::Leaving,
        Some(running) if running.leaving.contains(&rank) => Outcome::Leaving,
        None if stays => Outcome::Start,
        None if promised => Outcome::StartLater,
        None => Outcome::Wait,
        Some(running) if running.over.contains(&rank) => Outcome::Finished,
        Some(_) if first_attempt && stays => Outcome::Keep,
        Some(_) if promised || stays => Outcome::Move,
        Some(_) => Outcome::Evict,
    }
}

fn places_on_node(state: &State, place: &Placement) -> Vec<u32> {
    let index = |(id, _): &(DeviceId, _)| state.devices.get(id).map(|device| device.spec.index);
    place.devices.iter().filter_map(index).collect()
}
