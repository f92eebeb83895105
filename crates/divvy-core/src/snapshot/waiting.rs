//! The waiting jobs by class, in order. Jobs that something of their own keeps back are not among them.

mod blocks;
mod in_queue;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use self::blocks::Blocks;
pub(crate) use self::in_queue::{InQueue, Uses};
use super::order::{self, OrderKey};
use crate::id::{ClassId, JobId};
use crate::model::gang::Role;
use crate::model::job::{Dependency, JobSpec};
use crate::model::models::Models;
use crate::plan::{Amounts, Shares};
use crate::reason::Reason;
use crate::state::{Dependable, Job, State, Table, shape};
use crate::time::{Span, Time};

/// The waiting jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waiting {
    /// Jobs that may start as far as they themselves are concerned, by class.
    pub classes: Table<ClassId, ClassView>,
    /// Where each job of `classes` stands.
    entries: Blocks<Entry>,
    /// The same classes by the places of their queues.
    queues: BTreeMap<usize, InQueue>,
    /// What they could use, by the places of the queues: without those that could not start in an idle pool, and with them. A cycle reads
    /// all of them, so they lie side by side.
    uses: [Vec<Uses>; 2],
    /// Those of them without a verdict that lasts.
    untold: BTreeSet<ClassId>,
    /// Classes that have a verdict, though no job waits in them any more.
    left: BTreeSet<ClassId>,
    /// Jobs that may not start before a moment.
    starts: BTreeSet<(Time, u64)>,
    start_of: BTreeMap<u64, Time>,
    /// Jobs that wait for what can no longer happen.
    hopeless: BTreeSet<u64>,
    /// Since when each job of `classes` has not run, where the policy asks, the longest first.
    idle: BTreeSet<(Time, u64)>,
    idle_since: BTreeMap<u64, Time>,
    /// Which jobs wait for which.
    dependents: BTreeMap<u64, BTreeSet<u64>>,
}

/// The waiting jobs of one class.
#[derive(Clone, Debug)]
pub struct ClassView {
    /// In order.
    pub jobs: BTreeSet<OrderKey>,
    /// Thousandths of devices that each of them asks for, at most.
    pub milli: i64,
    /// How many runs they are: each member of an array that may start counts.
    pub runs: i64,
    /// The place of their queue among those that the pool is divided between.
    pub(crate) queue: usize,
    /// What each of them asks for of what is divided.
    pub(crate) asked: Amounts,
    /// The most that each of them could use of it, with all tasks that it may have.
    pub(crate) wanted: Amounts,
    /// The part of that of devices for which none but these models will do.
    bound: SmallVec<[(Models, i64); 1]>,
    /// Whether they could not start in an idle pool, so that they want nothing of what is divided.
    pub(crate) is_left_out: bool,
    /// What they have in common with all jobs that find room in the same places, whichever queues they are in.
    pub(crate) shape: u64,
    /// One of them: in all that planning looks at, the others are the same.
    pub(crate) example: Arc<JobSpec>,
    /// The same by each of its alternatives alone, once that was asked for.
    ways: OnceLock<Arc<[JobSpec]>>,
}

/// Which of them is the example does not matter, nor what number the place of their queue has.
impl PartialEq for ClassView {
    fn eq(&self, other: &Self) -> bool {
        (&self.jobs, self.milli, self.runs) == (&other.jobs, other.milli, other.runs)
            && (&self.asked, &self.wanted) == (&other.asked, &other.wanted)
    }
}

impl ClassView {
    fn of(state: &State, job: &Job, shares: &Shares) -> Self {
        let spec = &job.spec;
        Self {
            jobs: BTreeSet::new(),
            milli: spec.most_milli(),
            runs: 0,
            queue: shares.place(spec.stand()),
            asked: shares.asked(spec),
            wanted: shares.asked_at_most(spec),
            bound: bound_to_models(spec, shares),
            is_left_out: false,
            shape: shape(spec, &state.heeded),
            example: Arc::clone(spec),
            ways: OnceLock::new(),
        }
    }

    /// The example by its alternatives of each number alone.
    pub(crate) fn ways(&self) -> &[JobSpec] {
        self.ways.get_or_init(|| {
            let spec = &*self.example;
            let roles = spec.gang.roles();
            let most = roles.iter().map(|role| role.ask.alternatives.len()).max().unwrap_or(0);
            let only = |number| JobSpec { gang: spec.gang.by_alternative(number).into(), ..spec.clone() };
            (0..most).map(only).collect()
        })
    }
}

/// What a job could use by roles that can run on some models only, with all tasks that they may have.
fn bound_to_models(spec: &JobSpec, shares: &Shares) -> SmallVec<[(Models, i64); 1]> {
    let of = |role: &Role| {
        let first = role.ask.alternatives.first()?;
        let milli = if spec.exclusive { shares.milli_of_task((first, true)) } else { first.milli() };
        Some((role.ask.only_models()?, milli.saturating_mul(i64::from(role.maximum))))
    };
    spec.gang.roles().into_iter().filter_map(of).collect()
}

/// Where a waiting job stands: its class, its key there, and how many runs it counts for.
type Entry = (ClassId, OrderKey, i64);

impl Waiting {
    /// Looks at one job again: puts it where it belongs now.
    pub(crate) fn consider(&mut self, state: &State, shares: &Shares, number: u64) {
        self.leave(state, number);
        if let Some(job) = state.jobs.get(&number) {
            self.join(state, shares, job);
        }
    }

    /// Puts a job that is nowhere yet where it belongs.
    fn join(&mut self, state: &State, shares: &Shares, job: &Job) {
        let number = job.number;
        for dependency in
            job.spec.after.iter().filter(|dependency| state.jobs.contains_key(&dependency.job.number))
        {
            self.dependents.entry(dependency.job.number).or_default().insert(number);
        }
        let never =
            |dependency: &Dependency| state.dependency(dependency.job, dependency.on) == Dependable::Never;
        if job.spec.after.iter().any(never) {
            self.hopeless.insert(number);
        }
        let waits = job.has_waiting_members();
        if let Some(at) = job.spec.start_after.filter(|at| waits && *at > state.now) {
            self.starts.insert((at, number));
            self.start_of.insert(number, at);
        }
        let bounded = job.members_left() == Some(0);
        if waits && !bounded && job.own_blockers(state, state.now).is_empty() {
            self.enter(state, shares, job);
        }
    }

    fn enter(&mut self, state: &State, shares: &Shares, job: &Job) {
        let Some(key) = order::first_start(&state.policy, job) else { return };
        let is_new = !self.classes.contains_key(&job.class);
        if is_new {
            self.classes.insert(job.class, ClassView::of(state, job, shares));
        }
        let Some(class) = self.classes.get_mut(&job.class) else { return };
        let queue = self.queues.entry(class.queue).or_default();
        class.jobs.insert(key);
        let runs = job.waiting_count();
        class.runs += runs;
        queue.count(class, runs);
        let place = class.queue;
        if is_new {
            queue.classes.insert(job.class);
            self.look_at_verdict(state, job.class);
        }
        self.sum_up(place);
        self.entries.insert(job.number, (job.class, key, runs));
        if let Some(since) = state.policy.starve_after().and_then(|_| job.idle_since()) {
            self.idle.insert((since, job.number));
            self.idle_since.insert(job.number, since);
        }
    }

    fn leave(&mut self, state: &State, number: u64) {
        self.hopeless.remove(&number);
        if let Some(at) = self.start_of.remove(&number) {
            self.starts.remove(&(at, number));
        }
        if let Some(since) = self.idle_since.remove(&number) {
            self.idle.remove(&(since, number));
        }
        if let Some((class, key, runs)) = self.entries.remove(number) {
            self.leave_class(state, class, (key, runs));
        }
    }

    fn leave_class(&mut self, state: &State, class: ClassId, (key, runs): (OrderKey, i64)) {
        let Some(view) = self.classes.get_mut(&class) else { return };
        let queue = self.queues.entry(view.queue).or_default();
        view.jobs.remove(&key);
        view.runs -= runs;
        queue.count(view, -runs);
        let place = view.queue;
        if view.jobs.is_empty() {
            queue.classes.remove(&class);
            if queue.classes.is_empty() {
                self.queues.remove(&place);
            }
            self.classes.remove(&class);
            self.look_at_verdict(state, class);
        }
        self.sum_up(place);
    }

    /// Adds up anew what the jobs of a queue could use.
    fn sum_up(&mut self, place: usize) {
        for (with_left_out, uses) in [false, true].into_iter().zip(&mut self.uses) {
            if uses.len() <= place {
                uses.resize_with(place + 1, Uses::default);
            }
            uses[place] = self.queues.get(&place).map(|queue| queue.uses(with_left_out)).unwrap_or_default();
        }
    }

    /// Notes whether jobs of a class wait without a verdict that lasts, whether it has a verdict though no job waits, and whether its
    /// jobs want any of what is divided.
    pub(crate) fn look_at_verdict(&mut self, state: &State, class: ClassId) {
        let verdict = state.verdicts.get(&class);
        self.leave_out(class, verdict.is_some_and(Reason::is_for_good));
        let waits = self.classes.contains_key(&class);
        keep(&mut self.untold, class, waits && !verdict.is_some_and(Reason::lasts));
        keep(&mut self.left, class, !waits && verdict.is_some());
    }

    /// Lets the jobs of a class want nothing of what is divided, or want it again.
    fn leave_out(&mut self, class: ClassId, is_left_out: bool) {
        let Some(view) = self.classes.get_mut(&class).filter(|view| view.is_left_out != is_left_out) else {
            return;
        };
        let queue = self.queues.entry(view.queue).or_default();
        queue.count(view, -view.runs);
        view.is_left_out = is_left_out;
        queue.count(view, view.runs);
        let place = view.queue;
        self.sum_up(place);
    }

    /// Looks again at all jobs that wait for this one.
    pub(crate) fn wake_dependents(&mut self, state: &State, shares: &Shares, number: u64) {
        let dependents = self.dependents.get(&number).cloned().unwrap_or_default();
        for dependent in dependents {
            self.consider(state, shares, dependent);
        }
        if !state.jobs.contains_key(&number) {
            self.dependents.remove(&number);
        }
    }

    /// The jobs that wait for what can no longer happen.
    pub fn hopeless(&self) -> impl Iterator<Item = u64> {
        self.hopeless.iter().copied()
    }

    /// Lets in the jobs whose start time has come.
    pub(crate) fn pass_time(&mut self, state: &State, shares: &Shares, now: Time) {
        while let Some(&(at, number)) = self.starts.first().filter(|(at, _)| *at <= now) {
            self.starts.remove(&(at, number));
            self.start_of.remove(&number);
            if let Some(job) = state.jobs.get(&number)
                && job.has_waiting_members()
                && job.members_left() != Some(0)
                && job.own_blockers(state, now).is_empty()
            {
                self.enter(state, shares, job);
            }
        }
    }

    /// The next start time.
    pub fn next_start(&self) -> Option<Time> {
        self.starts.first().map(|(at, _)| *at)
    }

    /// The jobs that have not run since a moment, the longest first, where the policy asks.
    pub(crate) fn idle_since(&self, since: Time) -> impl Iterator<Item = u64> {
        self.idle.iter().take_while(move |(idle, _)| *idle <= since).map(|(_, number)| *number)
    }

    /// The first moment after this one since which a job has not run.
    pub(crate) fn idle_after(&self, moment: Time) -> Option<Time> {
        self.idle.range((moment + Span(1), 0)..).next().map(|(since, _)| *since)
    }

    /// Looks at all jobs again.
    pub(crate) fn rebuild(&mut self, state: &State, shares: &Shares) {
        *self = Self::default();
        state.jobs.values().for_each(|job| self.join(state, shares, job));
        state.verdicts.keys().for_each(|class| self.look_at_verdict(state, *class));
    }

    /// The queues in which jobs wait, by their places among those that the pool is divided between.
    pub(crate) fn in_queues(&self) -> impl Iterator<Item = (usize, &InQueue)> {
        self.queues.iter().map(|(place, queue)| (*place, queue))
    }

    /// What the jobs of each queue could use, by the places of the queues; nothing for those beyond the last in which a job waited.
    pub(crate) fn uses(&self, with_left_out: bool) -> impl Iterator<Item = (usize, &Uses)> {
        self.uses[usize::from(with_left_out)].iter().enumerate()
    }

    /// The jobs that wait in the queue of a place.
    pub(crate) fn in_queue(&self, place: usize) -> Option<&InQueue> {
        self.queues.get(&place)
    }

    /// Whether what is added up is what waits.
    fn is_added_up(&self) -> bool {
        let is_right = |with_left_out: bool| {
            let anew = |place: usize| self.in_queue(place).map(|queue| queue.uses(with_left_out));
            self.uses(with_left_out).all(|(place, uses)| *uses == anew(place).unwrap_or_default())
        };
        is_right(false) && is_right(true)
    }

    /// The classes of such a queue, by id.
    pub(crate) fn of_queue<'a>(
        &'a self,
        queue: &'a InQueue,
    ) -> impl Iterator<Item = (ClassId, &'a ClassView)> {
        queue.classes.iter().filter_map(|class| Some((*class, self.classes.get(class)?)))
    }

    /// The classes without a verdict that lasts, by id.
    pub(crate) fn untold(&self) -> impl Iterator<Item = (ClassId, &ClassView)> {
        self.untold.iter().filter_map(|class| Some((*class, self.classes.get(class)?)))
    }

    /// The classes that have a verdict, though no job waits in them any more, by id.
    pub(crate) fn left(&self) -> impl Iterator<Item = ClassId> {
        self.left.iter().copied()
    }

    /// Whether two hold the same jobs in the same places.
    pub fn same_as(&self, other: &Self) -> bool {
        self.classes == other.classes
            && self.entries == other.entries
            && self.starts == other.starts
            && self.idle == other.idle
            && self.hopeless == other.hopeless
            && (&self.untold, &self.left) == (&other.untold, &other.left)
            // What number the place of a queue has does not matter.
            && self.queues.values().collect::<BTreeSet<_>>() == other.queues.values().collect()
            && self.is_added_up()
    }

    /// How many jobs (arrays count once) may start as far as they themselves are concerned.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where a job stands in the line, if it is in it.
    pub fn key_of(&self, number: u64) -> Option<OrderKey> {
        self.entries.get(number).map(|(_, key, _)| *key)
    }

    /// Whether a job is among them.
    pub fn contains(&self, job: JobId) -> bool {
        self.entries.get(job.number).is_some()
    }
}

/// Keeps something in a set as long as it belongs there.
fn keep<T: Ord>(set: &mut BTreeSet<T>, one: T, belongs: bool) {
    if belongs {
        set.insert(one);
    } else {
        set.remove(&one);
    }
}
