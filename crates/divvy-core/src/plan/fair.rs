//! The cycle where the pool is divided between queues, or jobs give way by least loss: in turns, each job is placed where it
//! fits, else in the places of those that lose least, else it waits with its reason.

use std::collections::BTreeSet;

use super::reclaim::{self, Claim};
use super::settle::{self, Leaver};
use super::share::Shares;
use super::trial::Trial;
use super::turns::{Turn, Turns};
use super::{Place, Plan, Report, Verdicts, place};
use crate::id::JobId;
use crate::model::job::Cause;
use crate::model::policy::Preempt;
use crate::reason::{Reason, Verdict};
use crate::snapshot::{RunView, Running, Waiting, order};
use crate::state::Job;
use crate::time::Time;

/// What a cycle works with.
pub(super) struct Fair<'a, 'b> {
    pub(super) trial: &'b mut Trial<'a>,
    pub(super) shares: Shares,
    pub(super) running: &'a Running,
    pub(super) now: Time,
    /// Who gives way, in this order.
    pub(super) victims: Vec<Victim<'a>>,
    /// Who ends in this cycle for another cause.
    pub(super) ending: BTreeSet<JobId>,
    places: Vec<Place>,
}

/// A job that gives way, and for whom.
pub(super) struct Victim<'a> {
    pub(super) job: JobId,
    pub(super) view: &'a RunView,
    pub(super) by: JobId,
    pub(super) cause: Cause,
}

/// Plans in turns.
pub(super) fn in_turns<'a>(
    trial: &mut Trial<'a>,
    (waiting, running, shares): (&'a Waiting, &'a Running, Shares),
    now: Time,
    (plan, report): (&mut Plan, &mut Report),
    verdicts: &mut Verdicts,
) {
    let state = trial.state;
    let mut turns = Turns::new(state, waiting, now, &shares);
    report.skipped = turns.left_out;
    let ending = plan.ending();
    let mut fair = Fair { trial, shares, running, now, victims: Vec::new(), ending, places: Vec::new() };
    while let Some(turn) = turns.take() {
        let judged = state.verdicts.get(&turn.class).filter(|reason| **reason != Reason::InLine);
        let stands = judged.is_some_and(|reason| !state.freed || fair.is_hopeless(turn, reason));
        if stands {
            report.skipped += 1;
            // Of a class of which some have started, what kept it back before keeps back the rest.
            verdicts.entry(turn.class).and_modify(|verdict| *verdict = judged.cloned());
        } else {
            report.tried += 1;
            match fair.start(turn, turns.is_alone()) {
                Ok(more) => {
                    verdicts.insert(turn.class, None);
                    if more { turns.put_back(turn) } else { turns.admit_next(turn) }
                }
                Err(reason) => drop(verdicts.insert(turn.class, Some(reason))),
            }
        }
        if state.policy.strict && fair.blocks(turn, verdicts) {
            verdicts.extend(turns.close(turn.queue).map(|class| (class, Some(Reason::InLine))));
        }
        turns.refresh(turn.queue, &fair.shares);
    }
    fair.settle(plan);
}

impl<'a> Fair<'a, '_> {
    /// Whether a look suffices to say that a class waits still: there are too few free devices, and nobody could give way.
    fn is_hopeless(&self, turn: Turn, reason: &Reason) -> bool {
        let state = self.trial.state;
        let Some(job) = state.jobs.get(&turn.key.number) else { return false };
        if !place::is_still_busy(self.trial, reason, &job.spec) {
            return false;
        }
        if state.policy.preempt != Preempt::LeastLoss {
            return true;
        }
        let asked = self.shares.asked(&job.spec);
        // What is scarce matters only where victims are chosen.
        let (job, spec, scarce) = (job.id(), &job.spec, Vec::new());
        !reclaim::might_take(self, &Claim { job, spec, queue: turn.queue, asked, scarce })
    }

    /// Whether a job, in a strict order, keeps back those behind it.
    fn blocks(&self, turn: Turn, verdicts: &Verdicts) -> bool {
        let judged = verdicts.get(&turn.class).cloned();
        let reason = judged.unwrap_or_else(|| self.trial.state.verdicts.get(&turn.class).cloned());
        reason.is_some_and(|reason| reason.keeps_back())
    }

    /// Starts a job, or as many members as may if nobody else is in line; says whether more of it may start.
    fn start(&mut self, turn: Turn, alone: bool) -> Result<bool, Reason> {
        let state = self.trial.state;
        let Some(job) = state.jobs.get(&turn.key.number) else { return Ok(false) };
        let asked = self.shares.asked(&job.spec);
        self.shares.allows(turn.queue, &asked, &job.spec)?;
        match self.shares.closed_models(turn.queue, &job.spec) {
            Ok(closed) => self.trial.not_lent = closed,
            Err(reason) => {
                self.take_back(turn, job, &reason)?;
                return Ok(self.next_member(job).is_some());
            }
        }
        let most = if alone && self.shares.is_unbound() { usize::MAX } else { 1 };
        let before = self.places.len();
        let placed = place::place_members(self.trial, turn.key.number, most, &mut self.places);
        let started = self.places.len() - before;
        let placements = self.places[before..].iter().flat_map(|place| &place.placements);
        let taken = self.shares.counted(state, placements);
        self.shares.charge(turn.queue, &taken, (1, !job.spec.preemptible));
        match placed {
            Ok(()) => Ok(most == 1 && started == 1 && self.next_member(job).is_some()),
            // Some members have started: what keeps the next one back is asked in its own turn.
            Err(_) if started > 0 => Ok(true),
            Err(reason) => {
                self.take_back(turn, job, &reason)?;
                Ok(self.next_member(job).is_some())
            }
        }
    }

    /// Gives the next run of a job the places of those that lose least, or says why it waits.
    fn take_back(&mut self, turn: Turn, job: &Job, reason: &Reason) -> Result<(), Reason> {
        let gives_way = self.trial.state.policy.preempt == Preempt::LeastLoss;
        let id = self.next_member(job).filter(|_| gives_way && reason.verdict() == Verdict::Later);
        let Some(id) = id.filter(|_| !self.trial.state.draining) else { return Err(reason.clone()) };
        let asked = self.shares.asked(&job.spec);
        let scarce = self.shares.scarce(&asked, self.trial.capacity());
        let claim = Claim { job: id, spec: &job.spec, queue: turn.queue, asked, scarce };
        let Some(placements) = reclaim::take_back(self, &claim) else { return Err(reason.clone()) };
        self.trial.note_member(id);
        self.places.push(Place::new(id, placements));
        Ok(())
    }

    /// The next run of a job that waits and was not placed in this cycle.
    fn next_member(&self, job: &Job) -> Option<JobId> {
        let placed = self.trial.members_placed(job.number);
        if job.members_left().is_some_and(|left| left as usize <= placed) {
            return None;
        }
        let (_, member) = order::starts(&self.trial.state.policy, job).nth(placed)?;
        Some(JobId { number: job.number, member })
    }

    fn settle(self, plan: &mut Plan) {
        let Self { trial, victims, mut places, .. } = self;
        let all = places.iter_mut().flat_map(|place| &mut place.placements);
        all.for_each(|placement| trial.refresh(placement));
        let leaver = |victim: &Victim<'a>| Leaver {
            job: victim.job,
            queue: &victim.view.queue,
            live: &victim.view.live,
            cause: victim.cause,
            by: Some(victim.by),
        };
        let leavers: Vec<Leaver> = victims.iter().map(leaver).collect();
        settle::settle(trial.state, &leavers, places, plan);
    }

    /// The jobs that end or give way already.
    pub(super) fn spent(&self) -> BTreeSet<JobId> {
        self.victims.iter().map(|victim| victim.job).chain(self.ending.iter().copied()).collect()
    }
}
