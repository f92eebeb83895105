//! The stage: a pool at rest, as a case describes it. It is folded from events, as if a daemon had written them, so that the
//! controller opens it like any log.

use std::collections::BTreeMap;

use divvy_core::decide::{self, Command, Person, Submit};
use divvy_core::engine::{EndedHow, Observation, TaskEnd, TaskStart};
use divvy_core::event::{Event, Stamped};
use divvy_core::id::{AllocationId, JobId, Term};
use divvy_core::model::allocation::Placement;
use divvy_core::model::device::DeviceSpec;
use divvy_core::model::gang::{Group, Role};
use divvy_core::model::job::{
    Cause, JobSpec, Kind, Lifetime, Owner, Process, Requeue, StopOrder, Work, usual_restarts,
};
use divvy_core::model::newer::Newer;
use divvy_core::model::node::NodeSpec;
use divvy_core::model::policy::Policy;
use divvy_core::model::queue::Queue;
use divvy_core::state::State;
use divvy_core::time::Time;

use super::answer::Obstacle;
use super::seating::{Draws, Seating, alternative, node_named};

/// When the core plans. Everything in a case is before this.
pub(super) const NOW: Time = Time(1_000_000_000_000);

/// A pool at rest.
#[derive(Clone)]
pub(super) struct Stage {
    pub(super) state: State,
    /// The jobs that are on it, in the order of the case.
    pub(super) cast: Vec<(JobId, Actor)>,
    pub(super) now: Time,
}

/// A job of a case.
#[derive(Clone, Debug)]
pub(super) struct Actor {
    pub(super) name: String,
    pub(super) spec: JobSpec,
    pub(super) submitted_at: Time,
    /// Where it runs, if it does.
    pub(super) running: Option<Running>,
    /// Whether it is on its way out.
    pub(super) leaving: bool,
    /// Whether it never goes once it was told to stop.
    pub(super) lingers: bool,
    /// Its tasks, by rank.
    pub(super) tasks: Vec<Task>,
}

/// A task, as the case calls it.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) id: String,
    pub(super) group: Option<String>,
}

/// Where a job runs, and since when.
#[derive(Clone, Debug, Default)]
pub(super) struct Running {
    pub(super) since: Time,
    /// One per task, by rank; `None` where a gang runs without that task.
    pub(super) seats: Vec<Option<Seat>>,
    /// The ranks whose tasks have ended well.
    pub(super) over: Vec<u32>,
    /// The ranks whose tasks were told to go, while the others run on.
    pub(super) leaving: Vec<u32>,
    /// The ranks whose tasks were told to go long ago.
    pub(super) stuck: Vec<u32>,
}

/// Where a task runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Seat {
    pub(super) node: String,
    /// Which of its alternatives it has.
    pub(super) alternative: u32,
    /// The case's own names of the devices that it shares; equal names on a node are the same device.
    pub(super) labels: Vec<String>,
}

/// A node and its devices.
pub(super) type Host = (NodeSpec, Vec<DeviceSpec>);

/// A job specification with the defaults for everything that cases do not mention.
pub(super) fn plain_spec(name: &str, queue: &str, gang: Group) -> JobSpec {
    JobSpec {
        name: name.to_owned(),
        queue: queue.to_owned(),
        project: None,
        kind: Kind::Train,
        labels: BTreeMap::new(),
        priority: 0,
        preemptible: true,
        resumable: true,
        lifetime: Lifetime::Batch,
        gang: gang.into(),
        time_limit: None,
        estimate: None,
        requeue: Requeue::Lost,
        most_restarts: usual_restarts(),
        after: Vec::new(),
        start_after: None,
        deadline: Newer::default(),
        preempts: Newer::default(),
        stop: StopOrder::default(),
        checkpoint: None,
        // A case may ask for more than there is: then the job waits.
        wait_for_capacity: true,
        exclusive: false,
        seat: Newer::default(),
        kept_to: Newer::default(),
    }
}

/// What every task of a case does: nothing of interest.
pub(super) fn plain_work() -> Work {
    Work::Process(Process { argv: vec!["true".into()], ..Process::default() })
}

/// Devices of one model on a node.
pub(super) fn devices(node: &str, first: u32, count: u32, model: &str, memory_mib: u64) -> Vec<DeviceSpec> {
    let device = |index| DeviceSpec {
        uuid: format!("{node}:{index}"),
        index,
        model: model.to_owned(),
        memory_mib,
        ..DeviceSpec::default()
    };
    (first..first + count).map(device).collect()
}

fn admin() -> Person {
    Person::administrator("root")
}

/// Sets the stage.
pub(super) fn set(
    policy: Policy,
    hosts: Vec<Host>,
    mut queues: Vec<Queue>,
    actors: Vec<Actor>,
) -> Result<Stage, Obstacle> {
    actors.iter().try_for_each(sane)?;
    let mut log = Log { state: State::default() };
    let first = actors.iter().map(|actor| actor.submitted_at).min().unwrap_or(NOW);
    log.take(&Command::Begin { term: Term(1), boot_id: "boot".into(), version: "0".into() }, first)?;
    log.take(&Command::SetPolicy(Box::new(policy), admin()), first)?;
    for (node, devices) in hosts {
        log.see(&Observation::Node(node, devices), first)?;
    }
    // Other schedulers take any number as a priority.
    queues.iter_mut().for_each(|queue| queue.bounds.max_priority = Some(i32::MAX));
    log.take(&Command::SetQueues(queues, admin()), first)?;
    let mut seating = Seating::of(&log.state, &actors)?;
    let mut cast: Vec<Option<JobId>> = vec![None; actors.len()];
    for (at, scene, index) in scenes(&actors) {
        let actor = &actors[index];
        match (scene, cast[index], &actor.running) {
            (Scene::Submit, ..) => cast[index] = Some(log.submit(actor, at)?),
            (Scene::Run, Some(job), Some(running)) => {
                log.run(job, actor, running, seating.draws.remove(&index).unwrap_or_default())?
            }
            (Scene::Leave, Some(job), _) => log.take(&Command::Cancel(job, admin()), at)?,
            (Scene::Miss, Some(job), Some(running)) => log.miss(job, &running.stuck)?,
            _ => {}
        }
    }
    let cast = cast.into_iter().zip(actors).filter_map(|(job, actor)| Some((job?, actor))).collect();
    Ok(Stage { state: log.state, cast, now: NOW })
}

/// The most that a task of a case may ask for: a PiB, and as many cores. Sums of what is held then stay exact.
const MOST_ASKED: i64 = 1 << 50;

fn sane(actor: &Actor) -> Result<(), Obstacle> {
    let roles = actor.spec.gang.roles();
    let asks = roles.iter().flat_map(|role| &role.ask.alternatives);
    let amounts = asks.flat_map(|ask| [ask.cpu_milli, ask.memory_bytes]).flatten();
    match amounts.into_iter().find(|amount| !(0..=MOST_ASKED).contains(amount)) {
        None => Ok(()),
        Some(amount) => {
            Err(Obstacle::Broken(format!("the case cannot be staged: {} asks for {amount}", actor.name)))
        }
    }
}

/// What happens to an actor before the play begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Scene {
    Submit,
    Run,
    Leave,
    Miss,
}

/// Everything that happens before, in the order of time; at one moment, in the order of the case.
fn scenes(actors: &[Actor]) -> Vec<(Time, Scene, usize)> {
    let of = |(index, actor): (usize, &Actor)| {
        let run = actor.running.as_ref().map(|running| (running.since, Scene::Run, index));
        let leave = actor.leaving.then_some((NOW, Scene::Leave, index));
        let is_stuck = actor.running.as_ref().is_some_and(|running| !running.stuck.is_empty());
        let miss = is_stuck.then_some((NOW, Scene::Miss, index));
        [Some((actor.submitted_at, Scene::Submit, index)), run, leave, miss]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
    };
    let mut scenes: Vec<_> = actors.iter().enumerate().flat_map(of).collect();
    scenes.sort();
    scenes
}

/// The state so far; every event goes through it.
struct Log {
    state: State,
}

impl Log {
    fn take(&mut self, command: &Command, at: Time) -> Result<(), Obstacle> {
        let events = decide::decide(&self.state, command)?;
        self.fold(events, at)
    }

    fn see(&mut self, observation: &Observation, at: Time) -> Result<(), Obstacle> {
        let events = decide::observe(&self.state, observation).events;
        self.fold(events, at)
    }

    fn fold(&mut self, events: Vec<Event>, at: Time) -> Result<(), Obstacle> {
        let mut apply = |event| self.state.apply(&Stamped { at, event });
        events
            .into_iter()
            .try_for_each(&mut apply)
            .map_err(|misfit| Obstacle::Broken(format!("the case cannot be staged: {misfit}")))
    }

    fn submit(&mut self, actor: &Actor, at: Time) -> Result<JobId, Obstacle> {
        let number = self.state.next_job;
        let submit = Submit {
            owner: Owner { name: "suite".into(), ..Owner::default() }.into(),
            spec: actor.spec.clone().into(),
            requeue_said: true,
            array: None,
            token: None,
            held: false,
            history: BTreeMap::new(),
        };
        self.take(&Command::Submit(Box::new(submit)), at)?;
        Ok(JobId::single(number))
    }

    fn run(
        &mut self,
        job: JobId,
        actor: &Actor,
        running: &Running,
        draws: Vec<Draws>,
    ) -> Result<(), Obstacle> {
        let first = self.state.next_allocation.0;
        let mut placements = Vec::new();
        for (rank, ((role, seat), devices)) in
            roles_by_rank(actor).into_iter().zip(&running.seats).zip(draws).enumerate()
        {
            let Some(seat) = seat else { continue };
            let alternative = alternative(role, seat)?;
            placements.push(Placement {
                allocation: AllocationId(first + rank as u64),
                rank: rank as u32,
                node: node_named(&self.state, &seat.node)?,
                devices,
                cpu_milli: alternative.cpu_milli.unwrap_or(0),
                memory_bytes: alternative.memory_bytes.unwrap_or(0),
                extras: alternative.extras.clone(),
                alternative: seat.alternative,
            });
        }
        let seated: Vec<AllocationId> = placements.iter().map(|placement| placement.allocation).collect();
        self.fold(vec![Event::Placed { job, placements, port: 0 }], running.since)?;
        for id in seated {
            let start = TaskStart { at: running.since, pid: 1, ..TaskStart::default() };
            self.see(&Observation::Started(id, start), running.since)?;
        }
        let allocation = |rank: &u32| AllocationId(first + u64::from(*rank));
        for rank in &running.over {
            let end = TaskEnd { at: running.since, how: EndedHow::Exited(0), ..TaskEnd::default() };
            self.see(&Observation::Ended(allocation(rank), end), running.since)?;
        }
        let allocations: Vec<AllocationId> = running.leaving.iter().map(allocation).collect();
        if allocations.is_empty() {
            return Ok(());
        }
        self.fold(vec![Event::Shrinking { job, allocations, cause: Cause::Drain, by: None }], NOW)
    }

    /// These tasks of a job, which were told to go, have not gone.
    fn miss(&mut self, job: JobId, ranks: &[u32]) -> Result<(), Obstacle> {
        let held = self.state.allocations.iter();
        let stuck = held.filter(|(_, held)| held.job == job && ranks.contains(&held.placement.rank));
        let events = stuck.map(|(id, _)| Event::Overdue { allocation: *id }).collect();
        self.fold(events, NOW)
    }
}

/// The role of each rank.
pub(super) fn roles_by_rank(actor: &Actor) -> Vec<&Role> {
    let roles = actor.spec.gang.roles().into_iter();
    roles.flat_map(|role| std::iter::repeat_n(role, role.maximum as usize)).collect()
}
