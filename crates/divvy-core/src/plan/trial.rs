//! A trial: what is taken can be given back, to any mark. The operations are the placements themselves.

mod leavers;
mod limits;

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use leavers::Beside;
use limits::Bounds;

use super::diagnose;
use super::near::Around;
use super::reserve::{self, Reserve};
use super::score::Scores;
use super::share::Closed;
use super::spread::Spreading;
use crate::amount::Holdings;
use crate::id::{AllocationId, ClassId, DeviceId, JobId, NodeId};
use crate::model::allocation::Placement;
use crate::model::ask::{Alternative, Ask, DeviceAsk};
use crate::model::choice::NodeChoice;
use crate::model::island::IslandLevel;
use crate::model::job::JobSpec;
use crate::model::queue::Budget;
use crate::reason::Reason;
use crate::snapshot::{Capacity, DeviceView, Drained, Hosts, NodeView, Running, Snapshot, Waiting};
use crate::state::{State, fingerprint};
use crate::time::Time;

/// The snapshot with what this cycle has taken and released so far.
pub(super) struct Trial<'a> {
    pub(super) state: &'a State,
    /// The tasks that are being stopped.
    pub(super) leavers: &'a BTreeSet<AllocationId>,
    capacity: &'a mut Capacity,
    held: &'a BTreeMap<String, Holdings>,
    scores: &'a mut Scores,
    /// The classes that wait for a reason about the pool alone, as it is now.
    pub(super) stuck: &'a mut BTreeSet<ClassId>,
    /// What was done, in order.
    done: Vec<Step<'a>>,
    /// What the queues that are limited would hold beyond the snapshot, by their numbers.
    extra: Vec<Holdings>,
    /// Whether anything limits any queue; mostly nothing does, and limits need no look.
    is_limited: bool,
    /// What limits queues.
    bounds: RefCell<Bounds<'a>>,
    next_allocation: u64,
    /// Placements of this cycle whose devices were exchanged for like ones.
    exchanged: BTreeMap<AllocationId, Placement>,
    /// Placements of this cycle whose devices must lie in one island.
    islands: BTreeMap<AllocationId, IslandLevel>,
    /// How many members of a job this cycle has placed.
    members: BTreeMap<u64, usize>,
    /// What was left of the hosts, by place, before anything on them was released: below zero where more is promised than there is.
    before: BTreeMap<usize, Left>,
    /// Likewise of shared devices, in thousandths, where it was below zero.
    owing: BTreeMap<DeviceId, i32>,
    /// What is free beside all that was released.
    beside: Beside,
    /// The queues that have used up their budgets, and what that says to their jobs.
    spent: BTreeMap<&'a str, Reason>,
    /// The alternatives for which the queue of the job whose turn it is may borrow no more.
    pub(super) not_lent: Closed,
    /// Whether a job that does not fit is told why.
    names_reasons: bool,
    /// Why asks did not fit after so many steps: those of many queues are alike, and most steps since then are undone.
    diagnosed: BTreeMap<(Mark, u64), Reason>,
    /// Likewise why whole jobs found no room, by what jobs have in common that find room in the same places.
    refused: BTreeMap<(Mark, u64), Reason>,
    /// Where the gang that is being placed begins.
    gang: Mark,
    /// The places of the nodes, rising, on which tasks may be placed now; `None` for all.
    scope: Option<Scope>,
    /// Where queues keep nodes: the places of those that their jobs may use, as far as that has been asked.
    open: BTreeMap<Option<Arc<str>>, Scope>,
    /// Which tasks lie where, as far as that is asked.
    pub(super) around: Around<'a>,
    /// How the gang that is being placed is to be spread.
    spreadings: Rc<[Spreading]>,
    /// How the groups to which what is placed next belongs are to be spread.
    spread_around: Vec<Spreading>,
    /// What is kept for waiting jobs.
    pub(super) reserve: Reserve<'a>,
}

/// Places of nodes, rising.
pub(super) type Scope = Rc<[usize]>;

/// Something done that can be undone: a placement, and its queue where something limits that.
enum Step<'a> {
    /// A new placement draws.
    Took(Placement, Option<Rc<str>>),
    /// A running one gives back.
    Released(&'a Placement, Option<Rc<str>>),
    /// A running one that was released draws again.
    Kept(&'a Placement, Option<Rc<str>>),
    /// What was promised no longer is.
    Withdrew(Placement, Option<Rc<str>>),
    /// What is promised of a running one counts as there, or, with the sign −1, no longer does.
    Owes(&'a Placement, i64),
    /// A running one is told to stop in this cycle for another cause.
    Ends(&'a Placement),
    /// Something is drawn for the time being, for no queue.
    Aside(Placement),
    /// Something gives back for the time being.
    Back(Cow<'a, Placement>),
    /// What takes no tasks takes them for the time being.
    Opened(Drained),
}

/// Queues that have used up their budgets by a moment, and what their jobs are told.
fn spent_out(state: &State, now: Time) -> BTreeMap<&str, Reason> {
    let told = |(queue, (budget, until)): (&'_ str, (&Budget, Time))| {
        Reason::OverBudget(queue.to_owned(), budget.milli_gpu_hours, until)
    };
    state.spent_out(now).into_iter().map(|(queue, spent)| (queue, told((queue, spent)))).collect()
}

/// How much was done when the mark was set.
pub(super) type Mark = usize;

/// What of the snapshot a trial does not touch.
#[derive(Clone, Copy)]
pub(super) struct Others<'a> {
    /// The waiting jobs.
    pub(super) waiting: &'a Waiting,
    /// The running jobs.
    pub(super) running: &'a Running,
    /// The gangs that run with fewer tasks than they may have.
    pub(super) growing: &'a BTreeSet<JobId>,
    /// When runs reach their limits.
    pub(super) limits: &'a BTreeSet<(Time, JobId)>,
    /// Which tasks run on which node.
    pub(super) hosts: &'a Hosts,
}

/// What is left of a host: below zero where more is promised than there is.
#[derive(Clone, Copy, Default)]
struct Left {
    cpu_milli: i64,
    memory_bytes: i64,
    tasks: i64,
}

impl Left {
    fn of(node: &NodeView) -> Self {
        let (cpu_milli, memory_bytes, tasks) = (node.cpu_milli.1, node.memory_bytes.1, node.most_tasks.1);
        Self { cpu_milli, memory_bytes, tasks }
    }
}

impl<'a> Trial<'a> {
    pub(super) fn new(state: &'a State, snapshot: &'a mut Snapshot) -> Self {
        Self::split(state, snapshot).0
    }

    /// A trial, and what of the snapshot it does not touch: what waits and what runs.
    pub(super) fn split(state: &'a State, snapshot: &'a mut Snapshot) -> (Self, Others<'a>) {
        let Snapshot { capacity, neighbours, held, scores, stuck, .. } = snapshot;
        let Snapshot { waiting, running, growing, limits, leavers, hosts, .. } = snapshot;
        let trial = Self {
            state,
            leavers,
            capacity,
            held,
            scores,
            stuck,
            done: Vec::new(),
            extra: Vec::new(),
            is_limited: state.has_limits(),
            bounds: RefCell::default(),
            next_allocation: state.next_allocation.0,
            exchanged: BTreeMap::new(),
            islands: BTreeMap::new(),
            members: BTreeMap::new(),
            before: BTreeMap::new(),
            owing: BTreeMap::new(),
            beside: Beside::default(),
            spent: spent_out(state, state.now),
            not_lent: Closed::default(),
            names_reasons: true,
            diagnosed: BTreeMap::new(),
            refused: BTreeMap::new(),
            gang: 0,
            scope: None,
            open: BTreeMap::new(),
            around: Around::new(neighbours),
            spreadings: Rc::default(),
            spread_around: Vec::new(),
            reserve: Reserve::default(),
        };
        (trial, Others { waiting, running, growing, limits, hosts })
    }

    /// What is free, what scores have said of it, and the nodes that tasks are kept to.
    pub(super) fn scoring(&mut self) -> (&Capacity, &mut Scores, Option<&Scope>) {
        (self.capacity, self.scores, self.scope.as_ref())
    }

    /// Keeps tasks to these nodes; returns what they were kept to before.
    pub(super) fn keep_to(&mut self, scope: Option<Scope>) -> Option<Scope> {
        std::mem::replace(&mut self.scope, scope)
    }

    /// How the gang that is being placed is to be spread.
    pub(super) fn spreadings(&self) -> &[Spreading] {
        &self.spreadings
    }

    /// Sets how what is placed is spread; returns how it was before.
    pub(super) fn spread_by(&mut self, spreadings: Rc<[Spreading]>) -> Rc<[Spreading]> {
        std::mem::replace(&mut self.spreadings, spreadings)
    }

    /// How the groups to which what is placed next belongs are to be spread.
    pub(super) fn spread_around(&self) -> &[Spreading] {
        &self.spread_around
    }

    /// Sets how the groups to which what is placed next belongs are to be spread; returns what was set before.
    pub(super) fn join_spread(&mut self, groups: Vec<Spreading>) -> Vec<Spreading> {
        std::mem::replace(&mut self.spread_around, groups)
    }

    /// Looks at budgets as of a moment.
    pub(super) fn at(&mut self, now: Time) {
        if !self.state.spending.is_empty() {
            self.spent = spent_out(self.state, now);
        }
    }

    /// The nodes that a choice, and the job's queue, leave of those on which tasks may be placed; `None` where they leave all.
    pub(super) fn chosen(&mut self, spec: &JobSpec, choice: &NodeChoice) -> Option<Scope> {
        let is_any = choice.is_any() && !self.capacity.is_tainted;
        if is_any && !self.capacity.keeps_nodes {
            return None;
        }
        let Self { capacity, open, scope, .. } = self;
        let takes = |place: &usize| capacity.nodes[*place].takes(spec, choice);
        Some(match scope {
            Some(scope) => scope.iter().copied().filter(takes).collect(),
            // All jobs kept to the same nodes, or to none, may use the same.
            None if is_any => {
                let all = || (0..capacity.nodes.len()).filter(takes).collect();
                Scope::clone(open.entry(spec.kept_to.0.clone()).or_insert_with(all))
            }
            None => (0..capacity.nodes.len()).filter(takes).collect(),
        })
    }

    /// The nodes that tasks are kept to, if they are.
    pub(super) fn scope(&self) -> Option<&Scope> {
        self.scope.as_ref()
    }

    pub(super) fn capacity(&self) -> &Capacity {
        self.capacity
    }

    /// Notes that a run of a job has got its places.
    pub(super) fn note_member(&mut self, job: JobId) {
        *self.members.entry(job.number).or_default() += 1;
    }

    /// How many runs of a job this cycle has placed: they still wait as far as the state knows.
    pub(super) fn members_placed(&self, number: u64) -> usize {
        self.members.get(&number).copied().unwrap_or(0)
    }

    pub(super) fn mark(&self) -> Mark {
        self.done.len()
    }

    /// Sets whether a job that does not fit is told why: where a verdict stands, that is not asked. Returns what was set before.
    pub(super) fn name_reasons(&mut self, names_reasons: bool) -> bool {
        std::mem::replace(&mut self.names_reasons, names_reasons)
    }

    /// Whether it is told why.
    pub(super) fn names_reasons(&self) -> bool {
        self.names_reasons
    }

    /// Why so many tasks of an alternative do not fit; `None` where that is not asked.
    pub(super) fn diagnose(
        &mut self,
        spec: &JobSpec,
        (ask, alternative): (&Ask, &Alternative),
        tasks: u32,
    ) -> Option<Reason> {
        if !self.names_reasons {
            return None;
        }
        let mark = self.mark();
        let Self { capacity, diagnosed, .. } = self;
        let of_job = (spec.exclusive, spec.gang.tasks(), &spec.kept_to);
        let asked = fingerprint(&(alternative, &ask.nodes, tasks, of_job));
        let anew = || diagnose::diagnose((capacity, &ask.nodes), spec, alternative, tasks);
        Some(diagnosed.entry((mark, asked)).or_insert_with(anew).clone())
    }

    /// Why a job finds no room now, within its limits, if that has been asked for one of its shape before.
    pub(super) fn refusal(&self, (spec, shape): (&JobSpec, u64)) -> Option<&Reason> {
        self.refused.get(&(self.mark(), self.alike(spec, shape)?))
    }

    /// Notes why a job finds none. What its queue may hold, and what is kept for others, does not concern the next one of its shape.
    pub(super) fn note_refusal(&mut self, (spec, shape): (&JobSpec, u64), reason: &Reason) {
        let is_its_own = matches!(
            reason,
            Reason::QueueLimit(..)
                | Reason::UserLimit(..)
                | Reason::OverBudget(..)
                | Reason::Reserved(_)
                | Reason::Booked(_)
        );
        if let Some(alike) = self.alike(spec, shape).filter(|_| !is_its_own) {
            self.refused.insert((self.mark(), alike), reason.clone());
        }
    }

    /// What jobs have in common that either all have room or all have none, limits aside; where limits may keep some devices
    /// from them, only jobs of the same queue have it in common. `None` where it also depends on other things.
    fn alike(&self, spec: &JobSpec, shape: u64) -> Option<u64> {
        let depends = !self.names_reasons || self.scope.is_some() || !self.not_lent.is_nothing();
        let is_bound = || self.is_limited && spec.gang.has_alternatives() || self.limits_models(spec.stand());
        (!depends).then(|| if is_bound() { fingerprint(&(shape, spec.stand())) } else { shape })
    }

    /// Notes that something was done.
    fn did(&mut self, step: Step<'a>) {
        self.done.push(step);
    }

    /// The id that the next placement gets. Ids that a roll-back frees are given again in the same cycle: none was ever told to anyone.
    pub(super) fn next_id(&self) -> AllocationId {
        AllocationId(self.next_allocation)
    }

    pub(super) fn take(&mut self, placement: Placement, spec: &JobSpec) {
        self.capacity.take(&placement);
        self.around.took(spec, &placement);
        match required_island(spec, &placement) {
            Some(level) => drop(self.islands.insert(placement.allocation, level)),
            // A placement that was undone may have had this id.
            None => drop(self.islands.remove(&placement.allocation)),
        }
        self.next_allocation = placement.allocation.0 + 1;
        let queue = self.limited(spec.stand());
        self.charge(queue.as_deref(), &placement, 1);
        self.did(Step::Took(placement, queue));
    }

    /// Counts what a running task holds as free. What is kept for waiting jobs depends on all that run, not
    /// on what would be left: so it is looked up before.
    pub(super) fn release(&mut self, placement: &'a Placement, queue: &str) {
        reserve::reserve(self);
        if let Some(place) = self.capacity.node_place(placement.node) {
            let node = &self.capacity.nodes[place];
            self.before.entry(place).or_insert(Left::of(node));
            let has = |device: &&DeviceView| placement.devices.iter().any(|(id, _)| *id == device.id);
            for device in node.devices.iter().filter(|device| device.free_milli < 0).filter(has) {
                self.owing.entry(device.id).or_insert(device.free_milli);
            }
        }
        self.capacity.give_back(placement);
        self.around.release(self.state, placement, false);
        let queue = self.limited(queue);
        self.charge(queue.as_deref(), placement, -1);
        self.did(Step::Released(placement, queue));
    }

    /// Notes that a running task is told to stop in this cycle for another cause: no new task is to be near it.
    pub(super) fn ends(&mut self, placement: &'a Placement) {
        self.around.ends(self.state, placement, false);
        self.did(Step::Ends(placement));
    }

    /// Draws on capacity alone, to be rolled back.
    pub(super) fn put_aside(&mut self, placement: Placement) {
        self.capacity.take(&placement);
        self.did(Step::Aside(placement));
    }

    /// Lets a node take tasks on what takes none now and will at a moment to come, to be rolled back.
    pub(super) fn open(&mut self, node: NodeId, at: Time) {
        if let Some(drained) = self.capacity.drained_until(self.state, node, at) {
            self.capacity.open(&drained, false);
            self.did(Step::Opened(drained));
        }
    }

    /// Gives back to capacity alone, to be rolled back.
    pub(super) fn put_back(&mut self, placement: Cow<'a, Placement>) {
        self.capacity.give_back(&placement);
        self.around.end(self.state, &placement, false);
        self.did(Step::Back(placement));
    }

    /// A placement of this cycle.
    pub(super) fn taken(&self, id: AllocationId) -> Option<&Placement> {
        self.taken_since(0).find(|placement| placement.allocation == id)
    }

    pub(super) fn roll_back_to(&mut self, mark: Mark) {
        self.beside.roll_back_to(mark);
        for known in [&mut self.diagnosed, &mut self.refused] {
            if known.last_key_value().is_some_and(|((after, _), _)| *after > mark) {
                known.split_off(&(mark + 1, 0));
            }
        }
        while self.done.len() > mark {
            let Some(step) = self.done.pop() else { break };
            match step {
                Step::Took(placement, queue) => {
                    self.exchanged.remove(&placement.allocation);
                    self.capacity.give_back(&placement);
                    self.around.untook(&placement);
                    self.charge(queue.as_deref(), &placement, -1);
                    self.next_allocation = placement.allocation.0;
                }
                Step::Kept(placement, queue) => {
                    self.capacity.give_back(placement);
                    self.around.release(self.state, placement, false);
                    self.charge(queue.as_deref(), placement, -1);
                }
                Step::Released(placement, queue) => {
                    self.capacity.take(placement);
                    self.around.release(self.state, placement, true);
                    self.charge(queue.as_deref(), placement, 1);
                }
                Step::Withdrew(placement, queue) => {
                    self.capacity.take(&placement);
                    self.owe(&placement, -1);
                    self.charge(queue.as_deref(), &placement, 1);
                }
                Step::Owes(placement, sign) => self.owe(placement, -sign),
                Step::Ends(placement) => self.around.ends(self.state, placement, true),
                Step::Aside(placement) => self.capacity.give_back(&placement),
                Step::Opened(drained) => self.capacity.open(&drained, true),
                Step::Back(placement) => {
                    self.capacity.take(&placement);
                    self.around.end(self.state, &placement, true);
                }
            }
        }
    }

    /// Lets a running job keep what it holds and was released, if as much of each node is still there. New placements that have
    /// its very devices are moved to like ones on the same node.
    pub(super) fn keep(&mut self, held: &[&'a Placement], queue: &str) -> bool {
        let mark = self.mark();
        let fits = held.iter().all(|placement| self.keep_task(placement, queue)) && !self.outgrows(queue);
        if !fits {
            self.roll_back_to(mark);
        }
        fits
    }

    fn keep_task(&mut self, placement: &'a Placement, queue: &str) -> bool {
        let Some(place) = self.capacity.node_place(placement.node) else { return false };
        let node = &self.capacity.nodes[place];
        // Where a host, or a shared device, is promised beyond what is free of it, a job may still stay as it is.
        let before = self.before.get(&place).copied().unwrap_or_default();
        let host_fits = node.cpu_milli.1 - placement.cpu_milli >= before.cpu_milli.min(0)
            && node.memory_bytes.1 - placement.memory_bytes >= before.memory_bytes.min(0)
            && node.most_tasks.1 > before.tasks.min(0)
            && placement.extras.beyond(&node.extras.1).is_none();
        let owing = |device: DeviceId| self.owing.get(&device).copied().unwrap_or_default();
        let own = |device: DeviceId| placement.devices.iter().find(|(id, _)| *id == device);
        let (mut taken, mut spare) = (Vec::new(), Vec::new());
        for device in &node.devices {
            match own(device.id) {
                // Whether the device works is another matter: a job that has it may run on.
                Some((_, draw)) if device.free_milli - (draw.milli as i32) < owing(device.id) => {
                    if self.state.is_reserved(node.id, device.id) {
                        return false;
                    }
                    taken.push((device, self.island_of_holders(device)));
                }
                // A reserved device is not like any other.
                None if device.is_free() && !self.state.is_reserved(node.id, device.id) => {
                    spare.push(device);
                }
                _ => {}
            }
        }
        let mut pairs = Vec::new();
        for (device, level) in taken {
            let Some(found) = spare.iter().position(|other| are_like(device, other, level)) else {
                return false;
            };
            pairs.push((device.id, spare.remove(found).id));
        }
        let stays = host_fits && !self.around.is_in_the_way(self.state, placement);
        if !stays || !pairs.iter().all(|(from, to)| self.exchange(*from, *to)) {
            return false;
        }
        self.capacity.take(placement);
        self.around.release(self.state, placement, true);
        let queue = self.limited(queue);
        self.charge(queue.as_deref(), placement, 1);
        self.did(Step::Kept(placement, queue));
        true
    }

    /// The level at which new placements that have a device must have all of theirs in one island.
    fn island_of_holders(&self, device: &DeviceView) -> Option<IslandLevel> {
        let has = |placement: &Placement| placement.devices.iter().any(|(id, _)| *id == device.id);
        let holders = self.taken_since(0).filter(|placement| !self.islands.is_empty() && has(placement));
        holders.filter_map(|placement| self.islands.get(&placement.allocation).copied()).next()
    }

    /// Moves the new placements that have a device, the one that has all of it or the several that share it, to another device.
    fn exchange(&mut self, from: DeviceId, to: DeviceId) -> bool {
        let has = |placement: &Placement| placement.devices.iter().any(|(device, _)| *device == from);
        self.diagnosed.clear();
        self.refused.clear();
        let mut found = false;
        for step in &mut self.done {
            let Step::Took(placement, _) = step else { continue };
            if !has(placement) {
                continue;
            }
            found = true;
            self.capacity.give_back(placement);
            for (device, _) in placement.devices.iter_mut().filter(|(device, _)| *device == from) {
                *device = to;
            }
            self.capacity.take(placement);
            self.exchanged.insert(placement.allocation, placement.clone());
        }
        found
    }

    /// Brings a placement of this cycle up to date.
    pub(super) fn refresh(&self, placement: &mut Placement) {
        if let Some(exchanged) = self.exchanged.get(&placement.allocation) {
            placement.devices.clone_from(&exchanged.devices);
        }
    }

    fn taken_since(&self, mark: Mark) -> impl DoubleEndedIterator<Item = &Placement> {
        self.done[mark..].iter().filter_map(|step| match step {
            Step::Took(placement, _) => Some(placement),
            _ => None,
        })
    }

    /// What was taken since a mark.
    pub(super) fn since(&self, mark: Mark) -> Vec<Placement> {
        self.taken_since(mark).cloned().collect()
    }

    /// Begins a gang: what is placed from here on belongs to it.
    pub(super) fn begin_gang(&mut self) {
        self.gang = self.mark();
    }

    /// The nodes of the gang that is being placed.
    pub(super) fn gang_nodes(&self) -> BTreeSet<NodeId> {
        self.gang_tasks().map(|placement| placement.node).collect()
    }

    /// The tasks placed so far of the gang that is being placed.
    pub(super) fn gang_tasks(&self) -> impl Iterator<Item = &Placement> {
        self.taken_since(self.gang.min(self.mark()))
    }
}

/// The level at which one island must hold all devices of a task.
fn required_island(spec: &JobSpec, placement: &Placement) -> Option<IslandLevel> {
    let (role, _) = spec.gang.role_of(placement.rank)?;
    let alternative = role.ask.alternatives.get(placement.alternative as usize)?;
    alternative.devices.as_ref().and_then(DeviceAsk::required_island)
}

/// Whether one device does as well as another for a task that must have all of its devices in one island of this level, if any.
fn are_like(one: &DeviceView, other: &DeviceView, level: Option<IslandLevel>) -> bool {
    let are_near = level.is_none_or(|level| one.site.island(level) == other.site.island(level));
    are_near && one.spec.is_like(&other.spec)
}
