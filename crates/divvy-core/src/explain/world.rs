//! A world: the pool as it is, or as it would be after some changes, to look at and to plan in. Changes are carried out by the
//! very commands and observations that would bring them about; the real pool does not notice.

use std::collections::{BTreeMap, BTreeSet};

use super::change::{Change, Raise, Tier, merged};
use super::edit::edited;
use super::ends::expected_end;
use super::menu;
use crate::amount::{Amount, Limits};
use crate::controller::Controller;
use crate::decide::{self, Command, Person, Rejection, Submit};
use crate::engine::{EndedHow, Observation, TaskEnd};
use crate::event::Event;
use crate::id::{JobId, NodeId};
use crate::model::choice::Face;
use crate::model::device::{DeviceSpec, Health, Link};
use crate::model::gang::Role;
use crate::model::job::{Array, Cause, DependsOn, JobState, LastEnd};
use crate::model::newer::Newer;
use crate::model::node::NodeSpec;
use crate::model::queue::{Nodes, Queue};
use crate::model::reservation::Reservation;
use crate::plan::{Room, UNSAID_CPU_MILLI, UNSAID_MEMORY_BYTES};
use crate::reason::Reason;
use crate::snapshot::Snapshot;
use crate::state::{Dependable, Job, Runs, State};
use crate::time::Time;

/// A pool, and the job (or member, or array as a whole) that is looked at in it.
pub(crate) struct World {
    controller: Controller,
    target: JobId,
    now: Time,
    /// Whether devices were promised to it before anything was changed: then it starts when it has them.
    promised: bool,
}

/// What a cycle makes of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has its devices, or the promise of them.
    Starts,
    /// It waits; the reason is that of its class.
    Waits(Option<Reason>),
}

impl Outcome {
    /// Why it waits, if it does and that is known.
    pub(crate) fn verdict(self) -> Option<Reason> {
        match self {
            Outcome::Starts => None,
            Outcome::Waits(reason) => reason,
        }
    }
}

fn root() -> Person {
    Person::administrator("root")
}

impl World {
    /// The pool as it is.
    pub(crate) fn of(state: &State, snapshot: &Snapshot, target: JobId) -> Self {
        let promised = state.run(target).is_some_and(|run| run.promised);
        Self { controller: Controller::beside(state, snapshot), target, now: state.now, promised }
    }

    pub(crate) fn state(&self) -> &State {
        self.controller.state()
    }

    pub(crate) fn snapshot(&self) -> &Snapshot {
        self.controller.snapshot()
    }

    /// The job, while it has not ended.
    pub(crate) fn job(&self) -> Option<&Job> {
        self.state().jobs.get(&self.target.number)
    }

    /// The job (or member) that is looked at.
    pub(crate) fn target(&self) -> JobId {
        self.target
    }

    /// From when on the last cycle keeps capacity for waiting jobs, where it knows.
    pub(crate) fn kept_from(&self) -> &[Time] {
        &self.controller.report().kept_from
    }

    /// Likewise for a cycle that looks at all jobs again: verdicts that stand do not tell.
    pub(crate) fn kept_anew(&self) -> Vec<Time> {
        let Some(mut world) = self.after(&[]) else { return Vec::new() };
        // To set the drain to what it is counts as news, and changes nothing else.
        let on = world.state().draining;
        world.command(&Command::SetDrain(on, root()));
        world.cycle().0.kept_from().to_vec()
    }

    /// What is kept for the job by a cycle that looks at all jobs again.
    pub(crate) fn room(mut self) -> Option<Room> {
        let on = self.state().draining;
        self.command(&Command::SetDrain(on, root()));
        let target = self.target;
        self.controller.look_at_rooms(self.now).into_iter().find(|room| room.job == target)
    }

    /// The pool after some changes; `None` where one of them cannot be made.
    pub(crate) fn after(&self, changes: &[Change]) -> Option<Self> {
        let mut world = Self::of(self.state(), self.snapshot(), self.target);
        world.now = self.now;
        world.promised |= self.promised;
        world.carry_out(&merged(changes)).then_some(world)
    }

    /// Plans one cycle. The job may have been dropped by it.
    pub(crate) fn cycle(mut self) -> (Self, Outcome) {
        // What is promised to it, it gets as soon as those who hold it have ended: before the cycle.
        let before = if self.promised { 0 } else { self.active() };
        if self.controller.cycle(self.now).is_err() {
            return (self, Outcome::Waits(None));
        }
        let verdict = || self.state().verdicts.get(&self.job()?.class).cloned();
        let outcome = if self.active() > before { Outcome::Starts } else { Outcome::Waits(verdict()) };
        (self, outcome)
    }

    /// Whether the job has its devices, or the promise of them; of an array, how many of its members: those before the one that is
    /// looked at start first. A held member starts by nothing but its release.
    fn active(&self) -> u32 {
        let Some(job) = self.job() else { return 0 };
        match &job.runs {
            Runs::Single(run) => u32::from(run.is_active() || run.promised && !self.promised),
            Runs::Array(_) if self.promised => {
                u32::from(job.run(self.target.member).is_some_and(|run| run.is_active()))
            }
            Runs::Array(_) if self.target.member.is_some() && is_held(job, self.target) => 0,
            Runs::Array(_) => job.active_members(),
        }
    }

    /// Makes changes: what is granted first (nodes before what is guaranteed of them), then what ends, then what its user asks for
    /// instead.
    fn carry_out(&mut self, changes: &[Change]) -> bool {
        let of = |tier: Tier| changes.iter().filter(move |change| change.tier() == tier);
        let granted = of(Tier::Grant).all(|change| self.grant(change)) && self.raise(changes);
        let waited = granted && of(Tier::Time).all(|change| self.wait(change));
        waited && self.resubmit(changes)
    }

    /// The pool after a command; an error where it is refused.
    pub(super) fn taking(mut self, command: &Command) -> Result<Self, Rejection> {
        // A copy whose books do not add up tells nothing: the command was not refused.
        match self.controller.take(command, self.now) {
            Ok(Err(refused)) => Err(refused),
            _ => Ok(self),
        }
    }

    pub(super) fn command(&mut self, command: &Command) -> bool {
        matches!(self.controller.take(command, self.now), Ok(Ok(_)))
    }

    fn observe(&mut self, observation: &Observation) -> bool {
        self.controller.see(observation, self.now).is_ok()
    }

    fn put(&mut self, event: Event) -> bool {
        self.controller.put(event, self.now).is_ok()
    }

    /// Sets the queues as raised; nothing is guaranteed that the pool does not have.
    fn raise(&mut self, changes: &[Change]) -> bool {
        let mut queues: BTreeMap<String, Queue> = self.state().queues.clone();
        let mut budgets: Vec<(String, i64)> = Vec::new();
        let mut weighed = Vec::new();
        let mut set = |raise: &Raise, part: fn(&mut Queue) -> &mut Limits| {
            if let Some(queue) = queues.get_mut(&raise.queue) {
                part(queue).insert(raise.resource.clone(), Amount::Finite(raise.to));
            }
        };
        for change in changes {
            match change {
                Change::RaiseLimit(raise) => set(raise, |queue| &mut queue.limit),
                Change::RaiseBudget { queue, to, .. } => {
                    budgets.push((queue.clone(), *to));
                }
                Change::RaiseUserLimit(raise) => {
                    set(raise, |queue| &mut queue.users.0.get_or_insert_default().limit)
                }
                Change::RaiseGuarantee(raise) => set(raise, |queue| &mut queue.guarantee),
                Change::RaiseBorrow(raise) => set(raise, |queue| &mut queue.borrow),
                Change::RaiseLend(raise) => set(raise, |queue| &mut queue.lend),
                Change::Weigh { queue, user } => weighed.push((queue, user)),
                _ => {}
            }
        }
        for (queue, user) in weighed {
            let Some(queue) = queues.get_mut(queue) else { return false };
            match user {
                None => queue.weight = 1,
                Some(user) => drop(queue.users.0.get_or_insert_default().weight.insert(user.clone(), 1)),
            }
        }
        for (queue, to) in budgets {
            let budget = queues.get_mut(&queue).and_then(|queue| queue.budget.0.as_mut());
            budget.into_iter().for_each(|budget| budget.milli_gpu_hours = to);
        }
        if queues == self.state().queues {
            return true;
        }
        let queues: Vec<Queue> = queues.into_values().collect();
        let before: Vec<Queue> = self.state().queues.values().cloned().collect();
        let is_too_much = |queues: &[Queue]| decide::guaranteed_beyond(self.state(), queues).is_some();
        (is_too_much(&before) || !is_too_much(&queues)) && self.command(&Command::SetQueues(queues, root()))
    }

    fn grant(&mut self, change: &Change) -> bool {
        match change {
            Change::EndDrain => self.command(&Command::SetDrain(false, root())),
            Change::Undrain { node } => self.command(&Command::Undrain(node.clone(), root())),
            Change::EndReservation { id, drained } => self.end_reservation(*id, drained.as_ref()),
            Change::Repair { node, .. } => self.mend(node, |health| (*health != Health::Ok, true)),
            Change::Vacate { node, .. } => self.mend(node, |_| (true, false)),
            Change::AnyOrder => {
                let policy = crate::model::policy::Policy { strict: false, ..self.state().policy.clone() };
                self.command(&Command::SetPolicy(Box::new(policy), root()))
            }
            Change::AddRoom { tasks, devices, model, kept, .. } => {
                self.add_room((*tasks, *devices), model, kept.as_ref())
            }
            _ => true,
        }
    }

    /// Cancels a reservation. For a single node or device that is drained, ends all its drains at once, as the command that is named does.
    fn end_reservation(&mut self, id: u64, drained: Option<&String>) -> bool {
        if self.state().reservations.iter().all(|kept| kept.id != id) {
            return true;
        }
        match drained {
            Some(target) => self.command(&Command::Undrain(target.clone(), root())),
            None => self.command(&Command::EndReservation(id, root())),
        }
    }

    /// Lets devices of a node work again, or be free of use from outside the pool.
    fn mend(&mut self, node: &str, is_meant: fn(&Health) -> (bool, bool)) -> bool {
        let Some(id) = self.state().node_by_name(node) else { return false };
        let mut seen = Vec::new();
        for device in self.state().devices.values().filter(|device| device.node == id) {
            let (meant, repairs) = is_meant(&device.health);
            let (health, occupant) = match repairs {
                true => (Health::Ok, device.occupant.clone()),
                false => (device.health.clone(), None),
            };
            if meant {
                seen.push(Observation::Device { uuid: device.spec.uuid.clone(), health, occupant });
            }
        }
        seen.iter().all(|observation| self.observe(observation))
    }

    /// Adds nodes that are like the pool's best, in a domain of their own: one node for all tasks, where these may
    /// share one and need not be spread.
    fn add_room(&mut self, (tasks, devices): (u32, u32), model: &str, kept: Option<&Nodes>) -> bool {
        let count = self.job().map_or(1, |job| menu::nodes_for(&job.spec, tasks));
        let each = tasks / count.max(1);
        let insists = |role: &Role| role.ask.island().is_some_and(|island| island.required);
        let in_islands = self.job().is_some_and(|job| job.spec.gang.roles().into_iter().any(insists));
        let spreads = self.job().map(|job| job.spec.gang.spreads()).unwrap_or_default();
        let over = spreads.iter().filter(|(_, spread, _)| spread.bound().is_some());
        let over: BTreeSet<String> = over.map(|(_, spread, _)| spread.over.clone()).collect();
        let example = self.state().devices.values().filter(|device| device.spec.model == model);
        let example = example.max_by_key(|device| (device.spec.memory_mib, device.spec.bandwidth_gb_s));
        let example = example.map(|device| DeviceSpec::clone(&device.spec));
        let example = example.unwrap_or_else(|| unknown_device(model));
        let named = self.state().nodes.values().find(|node| !node.spec.domains.is_empty());
        let levels = named.map(|node| node.spec.domains.clone()).unwrap_or_default();
        let host = self.host_of_task(devices, model);
        let first = self.state().nodes.keys().next_back().map_or(0, |NodeId(id)| id + 1);
        let (names, labels) = match kept {
            Some(Nodes::Named(names)) => (names.iter().cloned().collect(), BTreeMap::new()),
            Some(Nodes::Labelled(labels)) => (new_names(first, count), labels.clone()),
            None => (new_names(first, count), BTreeMap::new()),
        };
        names.into_iter().all(|name| {
            // Coarse to fine: nodes in different domains of a level are in different domains of each finer one.
            let mut alone = false;
            let domain = |(level, _): &(String, String)| {
                alone |= level == crate::model::topology::NODE || over.contains(level);
                (level.clone(), if alone { name.clone() } else { "new".to_owned() })
            };
            let domains = levels.iter().map(domain).collect();
            let times = |amount: i64| amount.saturating_mul(i64::from(each.max(1)));
            let (cpu_milli, memory_bytes) = (times(host.0), times(host.1));
            let face = Face { labels: labels.clone(), ..Face::default() };
            let spec = NodeSpec {
                name: name.clone(),
                cpu_milli,
                memory_bytes,
                domains,
                face,
                ..NodeSpec::default()
            };
            // Devices that a task must have in one island are in one.
            let island = |index: u32| index / devices.max(1);
            let link = |other: u32| Link { uuid: format!("{name}:{other}"), lanes: 1 };
            let device = |index: u32| {
                let uuid = format!("{name}:{index}");
                let first = island(index) * devices;
                let others = (first..first + devices).filter(|other| *other != index && in_islands);
                let links = others.map(link).collect();
                let numa = in_islands.then(|| island(index));
                DeviceSpec { uuid, index, numa, minor: None, links, ..example.clone() }
            };
            let node = Observation::Node(spec, (0..each * devices).map(device).collect());
            // The devices of a new node are taken in only when it is observed again.
            self.observe(&node) && self.observe(&node)
        })
    }

    /// The cores and the memory of a new node for each task of the job: what its devices have on the best node with devices of
    /// their model (on the best of all, where there is none), and no less than what a task asks for.
    fn host_of_task(&self, devices: u32, model: &str) -> (i64, i64) {
        let (mut of_all, mut of_model) = ((0, 0), (0, 0));
        for node in &self.snapshot().capacity.nodes {
            let part = |amount: i64| match (devices, node.devices.len()) {
                (0, _) | (_, 0) => amount,
                (devices, all) => (amount / all as i64).saturating_mul(i64::from(devices)),
            };
            let (cpu, memory) = (part(node.cpu_milli.0), part(node.memory_bytes.0));
            let most = |(cpus, bytes): (i64, i64)| (cpu.max(cpus), memory.max(bytes));
            of_all = most(of_all);
            if node.devices.iter().any(|device| device.spec.model == model) {
                of_model = most(of_model);
            }
        }
        let best = if of_model == (0, 0) { of_all } else { of_model };
        let roles = self.job().map(|job| job.spec.gang.roles()).unwrap_or_default();
        let asks = roles.iter().flat_map(|role| &role.ask.alternatives);
        let asked = asks.fold((UNSAID_CPU_MILLI, UNSAID_MEMORY_BYTES), |(cpu, memory), it| {
            (cpu.max(it.cpu_milli.unwrap_or(0)), memory.max(it.memory_bytes.unwrap_or(0)))
        });
        (best.0.max(asked.0), best.1.max(asked.1))
    }

    fn wait(&mut self, change: &Change) -> bool {
        match change {
            Change::Wait { until }
            | Change::AwaitCalendar { until, .. }
            | Change::AwaitSafety { until }
            | Change::AwaitBudget { until, .. } => {
                self.now = self.now.max(*until);
                self.command(&Command::Tick)
            }
            Change::AwaitStop { .. } => self.stop(),
            Change::End { job } => self.end(*job),
            _ => true,
        }
    }

    /// When a job ends, if by then a reservation on the calendar begins where it lies.
    fn kept_by_its_end(&self, id: JobId) -> Option<Time> {
        let until = expected_end(self.state(), id)?;
        let run = self.state().run(id)?;
        let begins = |kept: &Reservation| {
            let lies_there = || run.placements.iter().any(|placement| kept.is_under(placement));
            !kept.began && kept.from <= until && lies_there()
        };
        self.state().reservations.iter().any(begins).then_some(until)
    }

    /// Lets the tasks end that hold what is promised to the job.
    fn stop(&mut self) -> bool {
        let promise = self.state().promises.get(&self.target);
        let awaited = promise.map(|promise| promise.waits_for.clone()).unwrap_or_default();
        let left: Vec<_> =
            awaited.into_iter().filter(|task| self.state().allocations.contains_key(task)).collect();
        let end = TaskEnd { at: self.now, how: EndedHow::Exited(0), ..TaskEnd::default() };
        !left.is_empty() && left.into_iter().all(|task| self.observe(&Observation::Ended(task, end.clone())))
    }

    /// Takes back what is promised to the job.
    pub(super) fn without_promise(&self) -> Option<Self> {
        let mut world = Self::of(self.state(), self.snapshot(), self.target);
        (world.now, world.promised) = (self.now, false);
        world.put(Event::Revoked { job: self.target }).then_some(world)
    }

    /// Lets a job end as the job in question waits for it: with a failure, if it waits for that.
    fn end(&mut self, id: JobId) -> bool {
        let failed = |job: &Job| {
            let mut awaited = job.spec.after.iter().filter(|dependency| dependency.job.number == id.number);
            awaited.any(|dependency| dependency.on == DependsOn::Fail)
        };
        let code = i32::from(self.job().is_some_and(failed));
        let live = self.state().run(id).map(|run| run.live.clone()).unwrap_or_default();
        // What it leaves may be kept for others by then.
        if let Some(until) = self.kept_by_its_end(id) {
            self.now = self.now.max(until);
            if !self.command(&Command::Tick) {
                return false;
            }
        }
        let end = |at| TaskEnd { at, how: EndedHow::Exited(code), ..TaskEnd::default() };
        !live.is_empty()
            && live.into_iter().all(|task| self.observe(&Observation::Ended(task, end(self.now))))
    }

    /// Puts the job back into the line as its user asks for it now.
    fn resubmit(&mut self, changes: &[Change]) -> bool {
        let concerns_it = |change: &&Change| change.tier() == Tier::Own && **change != Change::Release;
        let released = changes.contains(&Change::Release);
        if !changes.iter().any(|change| concerns_it(&change)) {
            let number = JobId::single(self.target.number);
            let mut priorities = changes.iter().filter_map(|change| match change {
                Change::Prioritise { to } => Some(*to),
                _ => None,
            });
            return priorities.all(|to| self.command(&Command::Prioritise(number, to, root())))
                && (!released || self.command(&Command::Release(self.target, root())));
        }
        let Some(job) = self.job() else { return false };
        let mut spec = edited(&job.spec, changes);
        // What has happened already is waited for no longer.
        spec.after.retain(|other| self.state().dependency(other.job, other.on) != Dependable::Met);
        let held = is_held(job, self.target) && !released;
        let bound = changes.iter().find_map(|change| match change {
            Change::ArrayBound { to } => Some(*to),
            _ => None,
        });
        let array = array_left(job).map(|array| Array { at_most: bound.or(array.at_most), ..array });
        let owner = job.owner.clone();
        let (old, state) = (JobId::single(self.target.number), JobState::Cancelled);
        let end = LastEnd { cause: Cause::Cancelled, by: None, signal: None, detail: None };
        if !self.put(Event::Dropped { job: old, end, state }) {
            return false;
        }
        self.target = JobId { number: self.state().next_job, ..self.target };
        let history = BTreeMap::new();
        let submit =
            Submit { owner, spec: spec.into(), requeue_said: true, array, token: None, held, history };
        self.command(&Command::Submit(Box::new(submit)))
    }
}

fn new_names(first: u32, count: u32) -> Vec<String> {
    (first..first + count).map(|id| format!("new-{id}")).collect()
}

/// A device of a model that the pool does not have: a job that asks for it by name takes its memory to be fast enough.
fn unknown_device(model: &str) -> DeviceSpec {
    DeviceSpec {
        model: model.to_owned(),
        memory_mib: 81_920,
        nominal_gb: Some(80),
        bandwidth_gb_s: Newer(Some(u32::MAX)),
        ..DeviceSpec::default()
    }
}

fn is_held(job: &Job, target: JobId) -> bool {
    let is = |run: &crate::state::Run| run.state == JobState::Held;
    match (&job.runs, target.member) {
        (Runs::Array(array), None) => array.held.is_some(),
        (_, member) => job.run(member).as_ref().is_some_and(is),
    }
}

/// The members of an array that have not run, as a new array would have them.
fn array_left(job: &Job) -> Option<Array> {
    let Runs::Array(array) = &job.runs else { return None };
    let touched = array.touched.iter().filter(|(_, run)| !run.is_active()).map(|(member, _)| *member);
    let mut members: Vec<u32> = array.fresh.iter().chain(touched).collect();
    members.sort_unstable();
    let mut ranges: Vec<(u32, u32, u32)> = Vec::new();
    for member in members {
        match ranges.last_mut() {
            Some((_, last, _)) if *last + 1 == member => *last = member,
            _ => ranges.push((member, member, 1)),
        }
    }
    Some(Array { ranges, at_most: array.array.at_most })
}
