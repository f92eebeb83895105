//! Phase 7, quicken: a job that runs on slower devices than it could continues on faster ones, once all others have had their turn:
//! where they stand idle, or in exchange with a job that gains less by them. Each has its new place before it leaves the old one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::place;
use super::settle::{Leaver, held_by};
use super::share::Closed;
use super::trial::Trial;
use crate::id::{ClassId, JobId};
use crate::model::allocation::Placement;
use crate::model::ask::Ask;
use crate::model::job::{Cause, JobSpec};
use crate::model::pace::FULL_PERCENT;
use crate::snapshot::{RunView, Running};
use crate::time::Time;

/// How many exchanges are tried before the rest is left as it is.
const MOST_EXCHANGES_TRIED: usize = 8;

/// A job that goes on elsewhere: faster, or slower so that another one is faster.
pub(super) struct Move<'a> {
    pub(super) job: JobId,
    pub(super) view: &'a RunView,
    pub(super) placements: Vec<Placement>,
    pub(super) cause: Cause,
    /// For whom, if not for its own sake.
    pub(super) by: Option<JobId>,
}

impl<'a> Move<'a> {
    /// The job as one that leaves its old place.
    pub(super) fn leaver(&self) -> Leaver<'a> {
        let (job, queue, live) = (self.job, &*self.view.queue, self.view.live.as_slice());
        Leaver { job, queue, live, whole: true, cause: self.cause, by: self.by, grows: false }
    }
}

/// A running job that could be faster or slower elsewhere.
#[derive(Clone, Copy)]
struct Runner<'a> {
    job: JobId,
    view: &'a RunView,
    spec: &'a JobSpec,
    pace_percent: u32,
}

impl Runner<'_> {
    /// How much more it would do if it ran as fast as it can.
    fn misses(&self) -> i64 {
        self.view.milli * i64::from(FULL_PERCENT.saturating_sub(self.pace_percent))
    }
}

/// Moves jobs until nothing more is gained. Jobs in `stays` stay as they are; `closed` returns the
/// alternatives that a job's queue may not have for it now, and `None` where it may have none.
pub(super) fn quicken<'a>(
    trial: &mut Trial<'a>,
    running: &'a Running,
    now: Time,
    stays: &BTreeSet<JobId>,
    closed: &dyn Fn(&JobSpec) -> Option<Closed>,
) -> Vec<Move<'a>> {
    let mut phase = Quicken { trial, now, closed, moves: Vec::new() };
    let mut runners = phase.runners(running, stays);
    if phase.trial.state.policy.speedup_percent == 0 || runners.is_empty() {
        return Vec::new();
    }
    loop {
        let before = phase.moves.len();
        runners.retain(|runner| !phase.speed_up(*runner));
        if phase.moves.len() == before && !phase.exchange(&mut runners) {
            return phase.moves;
        }
    }
}

/// What the phase works with.
struct Quicken<'a, 'b> {
    trial: &'b mut Trial<'a>,
    now: Time,
    closed: &'b dyn Fn(&JobSpec) -> Option<Closed>,
    moves: Vec<Move<'a>>,
}

impl<'a> Quicken<'a, '_> {
    /// The jobs that may be moved; those that miss most come first.
    fn runners(&self, running: &'a Running, stays: &BTreeSet<JobId>) -> Vec<Runner<'a>> {
        let state = self.trial.state;
        let runner = |(job, view): (JobId, &'a RunView)| {
            let spec = &*state.jobs.get(&job.number)?.spec;
            Some(Runner { job, view, spec, pace_percent: view.pace_percent? })
        };
        let relied = |view: &RunView| self.trial.around.is_relied_on(state, held_by(state, &view.live));
        let may = |(job, view): &(JobId, &RunView)| {
            !stays.contains(job) && !view.is_cooling(self.now) && !relied(view) && !state.is_held_up(*job)
        };
        let movable = running.choosy().filter(|it| may(it) && !it.1.live.is_empty());
        let mut runners: Vec<Runner> = movable.filter_map(runner).collect();
        runners.sort_by_key(|runner| (Reverse(runner.misses()), runner.job));
        runners
    }

    fn gains(&self, runner: &Runner, pace_percent: u32) -> bool {
        runner.view.gains_by(pace_percent, (&self.trial.state.policy, self.now))
    }

    fn release(&mut self, runner: &Runner<'a>) {
        let held = held_by(self.trial.state, &runner.view.live);
        held.for_each(|placement| self.trial.release(placement, &runner.view.queue));
    }

    /// Finds a place for a job that was released, and how fast it is there.
    fn place(&mut self, runner: &Runner) -> Option<(Vec<Placement>, u32)> {
        let closed = (self.closed)(runner.spec)?;
        let before = std::mem::replace(&mut self.trial.not_lent, closed);
        let placed = place::place_spec(self.trial, runner.spec);
        self.trial.not_lent = before;
        let placements = placed.ok()?;
        let pace = runner.spec.pace_percent(&placements);
        Some((placements, pace))
    }

    /// Moves a job to faster devices that no job has; returns whether it was moved.
    fn speed_up(&mut self, runner: Runner<'a>) -> bool {
        if !self.gains(&runner, FULL_PERCENT) || !self.may_be_faster(&runner) {
            return false;
        }
        let mark = self.trial.mark();
        self.release(&runner);
        match self.place(&runner) {
            Some((placements, pace)) if self.gains(&runner, pace) => {
                let Runner { job, view, .. } = runner;
                self.moves.push(Move { job, view, placements, cause: Cause::Faster, by: None });
                true
            }
            _ => {
                self.trial.roll_back_to(mark);
                false
            }
        }
    }

    /// Whether enough devices of a faster kind are free: seen without a placement.
    fn may_be_faster(&self, runner: &Runner) -> bool {
        if self.trial.state.policy.shares {
            return true;
        }
        let shelves = self.trial.capacity().shelves();
        let is_faster = |ask: &Ask, index: usize| self.gains(runner, ask.pace_percent(index));
        runner.spec.gang.required_roles().iter().any(|role| {
            role.ask.alternatives.iter().enumerate().any(|(index, alternative)| {
                let devices = alternative.devices.as_ref();
                let enough = devices.is_none_or(|ask| {
                    shelves.of(Some(ask)).most_free().is_some_and(|most| most >= ask.count)
                });
                enough && is_faster(&role.ask, index)
            })
        })
    }

    /// Lets two jobs change places, if together they then do more by as much as the policy wants. Moved jobs leave
    /// the list. Both are of one queue, and the one that gains is of no lower priority: no job is slowed for others.
    fn exchange(&mut self, runners: &mut Vec<Runner<'a>>) -> bool {
        let mut pairs = self.pairs(runners);
        pairs.sort_by_key(|(gain, slow, fast)| (Reverse(*gain), slow.job, fast.job));
        let found =
            pairs.into_iter().take(MOST_EXCHANGES_TRIED).find(|(_, slow, fast)| self.swap(slow, fast));
        let Some((_, slow, fast)) = found else { return false };
        runners.retain(|runner| runner.job != slow.job && runner.job != fast.job);
        true
    }

    /// Pairs that would gain by it, by the models that they have: of jobs that are alike, the first stands for all.
    fn pairs(&self, runners: &[Runner<'a>]) -> Vec<(i64, Runner<'a>, Runner<'a>)> {
        let mut kinds: BTreeMap<(ClassId, u32), Runner<'a>> = BTreeMap::new();
        for runner in runners.iter().filter(|runner| self.gains(runner, u32::MAX)) {
            kinds.entry((runner.view.class, runner.pace_percent)).or_insert(*runner);
        }
        let mut pairs = Vec::new();
        for slow in kinds.values().filter(|slow| self.gains(slow, FULL_PERCENT)) {
            let others = kinds.values().filter(|fast| fast.job != slow.job);
            for fast in others.filter(|fast| *fast.view.queue == *slow.view.queue) {
                if fast.view.priority > slow.view.priority {
                    continue;
                }
                let there = self.pace_on(slow, fast).zip(self.pace_on(fast, slow));
                let gain = there.and_then(|paces| self.gain((slow, fast), paces));
                pairs.extend(gain.map(|gain| (gain, *slow, *fast)));
            }
        }
        pairs
    }

    /// How fast one would run on devices such as the other has.
    fn pace_on(&self, runner: &Runner, other: &Runner) -> Option<u32> {
        let state = self.trial.state;
        let held = held_by(state, &other.view.live).flat_map(|placement| &placement.devices).next();
        let device = &state.devices.get(&held?.0)?.spec;
        let roles = runner.spec.gang.required_roles();
        let of_role = |ask: &Ask| {
            let takes = |(_, class): &(usize, &crate::model::ask::DeviceClass)| class.takes(device);
            let classes = ask.alternatives.iter().enumerate();
            let classes = classes.filter_map(|(index, it)| Some((index, &it.devices.as_ref()?.class)));
            classes.filter(takes).map(|(index, _)| ask.pace_percent(index)).max()
        };
        roles.iter().map(|role| of_role(&role.ask)).min().flatten()
    }

    /// How much more two jobs would do at these paces, if that is enough.
    fn gain(&self, (slow, fast): (&Runner, &Runner), paces: (u32, u32)) -> Option<i64> {
        let work = |slow_pace: u32, fast_pace: u32| {
            slow.view.milli * i64::from(slow_pace) + fast.view.milli * i64::from(fast_pace)
        };
        let (now, then) = (work(slow.pace_percent, fast.pace_percent), work(paces.0, paces.1));
        let enough = then * 100 >= now * (100 + i64::from(self.trial.state.policy.speedup_percent));
        (enough && self.gains(slow, paces.0)).then_some(then - now)
    }

    fn swap(&mut self, slow: &Runner<'a>, fast: &Runner<'a>) -> bool {
        let mark = self.trial.mark();
        self.release(slow);
        self.release(fast);
        let first = self.place(slow);
        let placed = first.and_then(|first| Some((first, self.place(fast)?)));
        let gains = placed.filter(|(first, second)| self.gain((slow, fast), (first.1, second.1)).is_some());
        let Some(((first, _), (second, pace))) = gains else {
            self.trial.roll_back_to(mark);
            return false;
        };
        let (job, view) = (slow.job, slow.view);
        self.moves.push(Move { job, view, placements: first, cause: Cause::Faster, by: None });
        // A job that becomes faster by it goes on for its own sake, too.
        let faster = pace > fast.pace_percent;
        let (cause, by) = if faster { (Cause::Faster, None) } else { (Cause::Moved, Some(slow.job)) };
        let (job, view) = (fast.job, fast.view);
        self.moves.push(Move { job, view, placements: second, cause, by });
        true
    }
}
