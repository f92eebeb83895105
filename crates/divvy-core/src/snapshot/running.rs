//! The running jobs: what the order needs to know of each, and when running on changes the place of one in the order.

mod behind;
mod counted;
mod ends;
mod of_queue;
mod spots;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smallvec::SmallVec;

use self::ends::{ends_at, runs_on};
use self::of_queue::OfQueue;
pub(crate) use self::spots::Spot;
use super::order::{self, OrderKey};
use super::steps::{doublings, thresholds};
use crate::id::{AllocationId, ClassId, JobId};
use crate::model::allocation::AllocationState;
use crate::model::job::{Estimate, JobSpec};
use crate::model::pace::FULL_PERCENT;
use crate::model::policy::{Length, Order, Policy, Preempt};
use crate::state::{Job, Run, State, Table};
use crate::time::{Span, Time};

/// The running jobs, where the policy lets them give way; of others, when they end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Running {
    /// By id.
    pub jobs: Table<JobId, RunView>,
    /// By queue (or seat), where jobs give way by least loss.
    queues: BTreeMap<String, OfQueue>,
    /// Those that run faster on some devices than on others.
    choosy: BTreeSet<JobId>,
    /// When each job that had to give way before, or has not been running for long, is no longer safe.
    cooling: BTreeSet<(Time, JobId)>,
    /// When each has redone what it lost before.
    redoing: BTreeSet<(Time, JobId)>,
    /// When running on changes the place of each, or has made a restart pay.
    crossings: BTreeSet<(Time, JobId)>,
    /// When each is foreseen to end, also those that never give way.
    ends: BTreeSet<(Time, JobId)>,
    /// The same of the latter alone: nothing else is known of them.
    ends_of_others: BTreeMap<JobId, Time>,
    /// The places of all in the order, where places last, or where what is left of each shrinks alike.
    line: BTreeSet<(OrderKey, JobId)>,
}

/// A running job as the planner sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct RunView {
    /// What it asked for.
    pub class: ClassId,
    /// Its queue.
    pub queue: QueueOf,
    /// Its priority.
    pub priority: i32,
    /// Devices that it holds, in thousandths.
    pub milli: i64,
    /// When it was submitted.
    pub submitted_at: Time,
    /// When it got its devices.
    pub placed_at: Time,
    /// Since when all of its tasks run, if they do by now.
    pub started_at: Option<Time>,
    /// Up to when its work is safe, if it has said so.
    pub checkpointed_at: Option<Time>,
    /// How much of its run has to be done again at most when it is stopped, in milliseconds, if that is known.
    pub loses_at_most_ms: Option<i64>,
    /// Until when it is safe, since it had to give way before.
    pub cools_until: Option<Time>,
    /// Until when other queues take nothing from it, since it has not run for long: without end before it runs.
    pub young_until: Option<Time>,
    /// When it has redone what it lost by making room for others, if it saves nothing: without an end before it runs.
    pub redone_at: Option<Time>,
    /// For how long the attempts before ran, in milliseconds.
    pub attained_ms: i64,
    /// How long it runs, by estimate.
    pub estimate: Option<Arc<Estimate>>,
    /// When it ends, by its own estimate or by what is foreseen, whichever is sooner.
    pub ends_at: Option<Time>,
    /// Its allocations, without those of tasks that were told to stop.
    pub live: Vec<AllocationId>,
    /// What it holds on each node, where running jobs give way by least loss.
    pub(crate) spots: SmallVec<[Spot; 1]>,
    /// Whether it may run with fewer tasks than it has.
    pub elastic: bool,
    /// Whether it loses nothing but a restart, or little else, when it is stopped.
    pub resumes: bool,
    /// How fast it runs on its devices, in percent of how fast it could; `None` where it is as fast on all that it asks for, or is
    /// not to be moved for speed.
    pub pace_percent: Option<u32>,
    /// When running on changes its place next, as of the last look.
    crossing: Option<Time>,
    /// The level of its service in the order until then.
    standing: Level,
    /// Its place in the order until then, where places last; or as of moment 0, where what is left of each running job shrinks alike.
    place: Option<OrderKey>,
    /// An upper bound until then for what the order compares first of it, where it gives way by that.
    first: Option<i64>,
}

/// Where a running job is in the lists by time and order.
#[derive(Clone, Copy, Default)]
struct Marks {
    /// Until when it is safe, for two reasons.
    safe_until: [Option<Time>; 2],
    redone_at: Option<Time>,
    ends_at: Option<Time>,
    crossing: Option<Time>,
    place: Option<OrderKey>,
}

/// Moves a job in a list.
fn remark<T: Ord + Copy>(list: &mut BTreeSet<(T, JobId)>, id: JobId, (before, now): (Option<T>, Option<T>)) {
    if before != now {
        if let Some(before) = before {
            list.remove(&(before, id));
        }
        list.extend(now.map(|now| (now, id)));
    }
}

/// Where a job stands: its queue, or its user's seat there. The path is not copied.
#[derive(Clone, Debug)]
pub struct QueueOf(Arc<JobSpec>);

impl std::ops::Deref for QueueOf {
    type Target = str;

    fn deref(&self) -> &str {
        self.0.stand()
    }
}

impl QueueOf {
    /// The queue itself, whichever seat in it the job has.
    pub fn path(&self) -> &str {
        &self.0.queue
    }
}

impl PartialEq for QueueOf {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl PartialEq<&str> for QueueOf {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

impl PartialEq<String> for QueueOf {
    fn eq(&self, other: &String) -> bool {
        **self == *other
    }
}

/// How far a running job has come down the levels of attained service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Level {
    /// How many levels' ends its service has reached.
    pub(crate) number: i64,
    /// When it fell into its level, if it did in this run.
    pub(crate) fell: Option<Time>,
}

/// Until when other queues leave a run alone.
fn young_until(policy: &Policy, started_at: Option<Time>) -> Option<Time> {
    let least = (policy.min_runtime_ms > 0).then_some(Span(policy.min_runtime_ms))?;
    Some(started_at.map_or(Time(i64::MAX), |started| Time(started.0.saturating_add(least.0))))
}

impl RunView {
    /// Whether it begins anew if it is stopped: it has saved nothing, and does not go on from where it was.
    pub(crate) fn loses_all(&self) -> bool {
        !self.resumes && self.checkpointed_at.is_none()
    }

    fn of(state: &State, (job, run, id): (&Job, &Run, JobId)) -> Option<Self> {
        let gives_way = runs_on(run) && job.spec.preemptible;
        gives_way.then(|| Self {
            class: job.class,
            queue: QueueOf(Arc::clone(&job.spec)),
            priority: job.spec.priority,
            milli: run.placements.iter().map(crate::model::allocation::Placement::milli).sum(),
            submitted_at: job.submitted_at,
            placed_at: run.placed_at.unwrap_or(job.submitted_at),
            started_at: run.started_at,
            checkpointed_at: run.checkpointed_at,
            loses_at_most_ms: job.spec.loses_at_most_ms(),
            cools_until: match state.is_relieved(id) {
                true => Some(Time(i64::MAX)),
                false => run.cools_until(&state.policy),
            },
            young_until: young_until(&state.policy, run.started_at),
            redone_at: redone_at(job, run),
            attained_ms: run.attained_ms,
            estimate: job.estimate.clone(),
            ends_at: ends_at(job, run),
            live: run.live.clone(),
            spots: SmallVec::new(),
            elastic: job.spec.gang.is_elastic(),
            pace_percent: pace_percent(&job.spec, run),
            crossing: None,
            standing: Level::default(),
            place: None,
            first: None,
            resumes: job.spec.saves(),
        })
    }

    fn marks(&self) -> Marks {
        Marks {
            safe_until: [self.cools_until, self.young_until],
            redone_at: self.redone_at,
            ends_at: self.ends_at,
            crossing: self.crossing,
            place: self.place,
        }
    }

    /// Whether it is still safe, because it had to give way before, or had not run for a long time.
    pub(crate) fn is_cooling(&self, now: Time) -> bool {
        self.cools_until.is_some_and(|until| until > now)
    }

    /// Whether other queues take nothing from it yet.
    pub(crate) fn is_young(&self, now: Time) -> bool {
        self.young_until.is_some_and(|until| until > now)
    }

    /// Whether it is redoing what it lost by making room for others.
    pub(crate) fn is_redoing(&self, now: Time) -> bool {
        self.redone_at.is_some_and(|at| at > now)
    }

    /// Whether what its queue keeps of it has changed.
    fn stands_otherwise(&self, now: &Self) -> bool {
        let kept = |view: &Self| (view.least_milli(), view.milli, view.first);
        kept(self) != kept(now)
    }

    /// Leaves out the tasks that were told to stop.
    fn forget_leaving(&mut self, state: &State) {
        let held = |id: &AllocationId| state.allocations.get(id);
        let stays = |id: &AllocationId| held(id).is_some_and(|it| it.state != AllocationState::Stopping);
        self.live.retain(stays);
        self.milli = self.live.iter().filter_map(held).map(|it| it.placement.milli()).sum();
    }

    /// Updates its place, and when running on changes it next.
    fn look(&mut self, policy: &Policy, id: JobId, now: Time) {
        let restart_pays = self.restart_pays(policy).filter(|at| *at > now);
        let let_go = self.started_at.and(order::held_until(policy, self)).filter(|at| *at > now);
        let moments = [self.next_crossing(policy, now), restart_pays, let_go];
        self.crossing = moments.into_iter().flatten().min();
        self.standing = self.level_anew(policy, now);
        let number = self.standing.number;
        self.place = match order::lasts(policy) {
            true => Some(order::lasting(policy, id, (self, number))),
            false => order::shrinking(policy, id, self, now),
        };
        self.first = (self.resumes && order::displaces(policy))
            .then(|| order::first_at_most(policy, id, (self, number)));
    }

    /// Its level, where the order has levels. Between two crossings it is known.
    pub(crate) fn level(&self, policy: &Policy, now: Time) -> Level {
        match self.crossing {
            Some(at) if at <= now => self.level_anew(policy, now),
            _ => self.standing,
        }
    }

    fn level_anew(&self, policy: &Policy, now: Time) -> Level {
        if policy.order != Order::Attained {
            return Level::default();
        }
        let progress_ms = self.progress_ms(now);
        if let outlook @ [_, ..] = order::outlook(policy, self.estimate.as_deref()) {
            return Level { number: order::foreseen_level(policy, outlook, progress_ms), fell: None };
        }
        let mut level = Level::default();
        for threshold in
            thresholds(policy, self.order_milli()).take_while(|threshold| *threshold <= progress_ms)
        {
            let fell = (threshold > self.attained_ms).then(|| self.reaches(threshold)).flatten();
            level = Level { number: level.number + 1, fell };
        }
        level
    }

    /// For how long it has run by now, over all attempts, in milliseconds.
    pub fn progress_ms(&self, now: Time) -> i64 {
        self.attained_ms + self.started_at.map_or(0, |started| now.since(started).0)
    }

    /// Its progress; where it has outrun its estimate, as of when that was used up or has doubled since, or as of when this attempt began.
    pub(crate) fn stepped_ms(&self, policy: &Policy, now: Time) -> i64 {
        let progress_ms = self.progress_ms(now);
        let Some(estimate) = self.estimate.as_ref().filter(|estimate| estimate.p50_ms <= progress_ms) else {
            return progress_ms;
        };
        let (first, before) = match self.attained_ms {
            attained if attained >= estimate.p50_ms => (attained.saturating_mul(2), attained),
            _ => (estimate.p50_ms, estimate.p50_ms - 1),
        };
        let moments = doublings(first.max(1), policy.step_ms);
        moments.take_while(|moment| *moment <= progress_ms).last().unwrap_or(before)
    }

    /// When its progress reaches this much, in multiples of the policy's step; `None` before it has started.
    pub fn reaches(&self, progress_ms: i64) -> Option<Time> {
        Some(self.started_at? + Span(progress_ms - self.attained_ms))
    }

    /// When it has run long enough for a restart to pay, if it could go on on devices that are faster by as much as the policy
    /// wants. How long it will run is unknown: a job that has run for so long can be expected to run as long again. A job that is
    /// safe for longer, because it had to give way, stays until then.
    fn restart_pays(&self, policy: &Policy) -> Option<Time> {
        let (pace, percent) = (self.pace_percent?, policy.speedup_percent);
        let slow = percent > 0 && gains(pace, FULL_PERCENT, percent);
        let pays = slow.then_some(self.started_at?).map(|started| started + Span(RESTART_PAYS_MS))?;
        Some(self.cools_until.map_or(pays, |until| until.max(pays))).filter(|at| at.0 < i64::MAX)
    }

    /// Whether a restart for a faster place is worth it: it has run for a while, and gains enough there.
    pub(crate) fn gains_by(&self, pace_percent: u32, (policy, now): (&Policy, Time)) -> bool {
        let long = self.started_at.is_some_and(|started| now.since(started).0 >= RESTART_PAYS_MS);
        let own = self.pace_percent.filter(|_| long && policy.speedup_percent > 0);
        own.is_some_and(|own| gains(own, pace_percent, policy.speedup_percent))
    }

    /// When running on changes its place in the order next.
    fn next_crossing(&self, policy: &Policy, now: Time) -> Option<Time> {
        let progress = self.progress_ms(now);
        self.started_at?;
        let next = match policy.order {
            Order::Arrival => return None,
            Order::Attained => match order::outlook(policy, self.estimate.as_deref()) {
                [] => thresholds(policy, self.order_milli()).find(|threshold| *threshold > progress)?,
                outlook => order::next_foreseen(policy, outlook, progress)?,
            },
            Order::Shortest if policy.shortest.of == Length::Whole => return None,
            Order::Shortest => {
                let first = self.estimate.as_ref()?.p50_ms.max(self.attained_ms).max(1);
                let mut moments = doublings(first, policy.step_ms);
                moments.find(|moment| *moment > progress || *moment >= i64::MAX / 2)?
            }
        };
        self.reaches(next)
    }
}

/// How long a job has to run before a restart that makes it faster pays: four times what a restart is taken to cost.
const RESTART_PAYS_MS: i64 = 120_000;

/// Whether one pace is above another by so many percent of it.
fn gains(from_percent: u32, to_percent: u32, by_percent: u32) -> bool {
    u64::from(to_percent) * 100 >= u64::from(from_percent) * (100 + u64::from(by_percent))
}

/// When a run has redone what those before it did in vain, where the last of them made room for others.
fn redone_at(job: &Job, run: &Run) -> Option<Time> {
    let made_room = run.last_end.as_ref().is_some_and(|end| end.cause.is_planned());
    let lost = made_room && run.attained_ms > 0 && run.loses_all(&job.spec);
    lost.then(|| run.started_at.map_or(Time(i64::MAX), |started| started + Span(run.attained_ms)))
}

/// How fast a job runs, where some of its alternatives are slower or faster, and it would lose nothing but a restart.
fn pace_percent(spec: &JobSpec, run: &Run) -> Option<u32> {
    let moves = spec.has_speeds() && spec.saves() && !spec.gang.is_elastic();
    moves.then(|| spec.pace_percent(&run.placements))
}

impl Running {
    /// Looks at one job (or member) again.
    pub fn consider(&mut self, state: &State, id: JobId, now: Time) {
        let gives_way = state.policy.preempt != Preempt::Off;
        if !gives_way && state.policy.reserve == 0 {
            return;
        }
        let job = state.jobs.get(&id.number);
        let known = job.and_then(|job| Some((job, job.known_run(id.member)?, id)));
        let view = known.filter(|_| gives_way).and_then(|known| RunView::of(state, known));
        self.note_end_of_other(id, known.filter(|(_, run, _)| view.is_none() && runs_on(run)));
        let view = view.map(|mut view| {
            if view.elastic {
                view.forget_leaving(state);
            }
            if state.policy.preempt == Preempt::LeastLoss {
                view.note_spots(state);
            }
            view.look(&state.policy, id, now);
            view
        });
        let before = self.jobs.get(&id).map(RunView::marks);
        if before.is_none() && view.is_none() {
            return;
        }
        self.mark(id, before.unwrap_or_default(), view.as_ref().map(RunView::marks).unwrap_or_default());
        match (view, self.jobs.get_mut(&id)) {
            (None, _) => self.forget(id),
            // Its queue and priority are what they were.
            (Some(view), Some(known)) => {
                if known.stands_otherwise(&view)
                    && let Some(queue) = self.queues.get_mut(&*view.queue)
                {
                    queue.leave(id, known);
                    queue.enter(id, &view);
                }
                *known = view;
            }
            (Some(view), None) => {
                if state.policy.preempt == Preempt::LeastLoss {
                    self.enter_queue(id, &view);
                }
                if view.pace_percent.is_some() {
                    self.choosy.insert(id);
                }
                self.jobs.insert(id, view);
            }
        }
    }

    /// Looks again at a job whose priority has changed.
    pub(crate) fn stand_anew(&mut self, state: &State, id: JobId) {
        if let Some(before) = self.jobs.get(&id).map(RunView::marks) {
            self.mark(id, before, Marks::default());
            self.forget(id);
        }
        self.consider(state, id, state.now);
    }

    /// Keeps a job in the lists by time and order: where it was in them, and where it is now.
    fn mark(&mut self, id: JobId, before: Marks, now: Marks) {
        let ends = |until: &Time| until.0 < i64::MAX;
        if before.safe_until != now.safe_until {
            for until in before.safe_until.into_iter().flatten() {
                self.cooling.remove(&(until, id));
            }
            let safe_until = now.safe_until.into_iter().flatten().filter(ends);
            self.cooling.extend(safe_until.map(|until| (until, id)));
        }
        remark(&mut self.redoing, id, (before.redone_at, now.redone_at.filter(ends)));
        remark(&mut self.ends, id, (before.ends_at, now.ends_at));
        remark(&mut self.crossings, id, (before.crossing, now.crossing));
        remark(&mut self.line, id, (before.place, now.place));
    }

    /// When, after a moment, the first job that had to give way before, or has not been running for long, is no longer safe.
    pub(crate) fn next_cooled(&self, now: Time) -> Option<Time> {
        self.cooling.range((now + Span(1), JobId::single(0))..).next().map(|(until, _)| *until)
    }

    /// When, after a moment, the first job has redone what it lost.
    pub(crate) fn next_redone(&self, now: Time) -> Option<Time> {
        self.redoing.range((now + Span(1), JobId::single(0))..).next().map(|(at, _)| *at)
    }

    fn enter_queue(&mut self, id: JobId, view: &RunView) {
        match self.queues.get_mut(&*view.queue) {
            Some(queue) => queue.enter(id, view),
            None => self.queues.entry(view.queue.to_string()).or_default().enter(id, view),
        }
    }

    fn forget(&mut self, id: JobId) {
        let Some(view) = self.jobs.remove(&id) else { return };
        self.choosy.remove(&id);
        let emptied = self.queues.get_mut(&*view.queue).is_some_and(|queue| {
            queue.leave(id, &view);
            queue.jobs.is_empty()
        });
        if emptied {
            self.queues.remove(&*view.queue);
        }
    }

    /// Whether any of them might go on on faster devices.
    pub fn may_quicken(&self, state: &State) -> bool {
        state.policy.speedup_percent > 0 && !self.choosy.is_empty() && !state.draining
    }

    /// The jobs that run faster on some devices than on others.
    pub fn choosy(&self) -> impl Iterator<Item = (JobId, &RunView)> {
        self.choosy.iter().filter_map(|id| Some((*id, self.jobs.get(id)?)))
    }

    /// The queues (or seats) that have running jobs, where jobs give way by least loss.
    pub fn queues(&self) -> impl Iterator<Item = &str> {
        self.queues.keys().map(String::as_str)
    }

    /// For each queue, the least that any of its jobs gives back when it gives way, in thousandths of devices.
    pub fn least_milli(&self) -> impl Iterator<Item = (&str, i64)> {
        self.queues.iter().filter_map(|(path, queue)| Some((path.as_str(), queue.least_milli()?)))
    }

    /// The jobs of a queue, the lowest priority first.
    pub fn of_queue(&self, queue: &str) -> impl Iterator<Item = (&JobId, &RunView)> {
        let jobs = self.queues.get(queue).into_iter().flat_map(|queue| &queue.jobs);
        jobs.filter_map(|(_, job)| self.jobs.get_key_value(job))
    }

    /// The lowest priority of any job of a queue.
    pub fn lowest_priority(&self, queue: &str) -> Option<i32> {
        self.queues.get(queue)?.jobs.first().map(|(priority, _)| *priority)
    }

    /// How many devices, in thousandths, those jobs of a queue hold that have a lower priority than this.
    pub(crate) fn lower_milli(&self, queue: &str, priority: i32) -> i64 {
        self.queues.get(queue).map_or(0, |queue| queue.lower_milli(priority))
    }

    /// Updates the jobs whose places have changed by now.
    pub fn pass_time(&mut self, state: &State, now: Time) {
        while let Some(&(at, id)) = self.crossings.first().filter(|(at, _)| *at <= now) {
            self.crossings.remove(&(at, id));
            let Some(view) = self.jobs.get_mut(&id) else { continue };
            let (before, first) = (view.place, view.first);
            view.look(&state.policy, id, now);
            self.crossings.extend(view.crossing.map(|at| (at, id)));
            remark(&mut self.line, id, (before, view.place));
            if let Some(before) = first
                && let Some(queue) = self.queues.get_mut(&*view.queue)
            {
                queue.cross(id, view, before);
            }
        }
    }

    /// The next moment at which a job changes its place.
    pub fn next_crossing(&self) -> Option<Time> {
        self.crossings.first().map(|(at, _)| *at)
    }
}
