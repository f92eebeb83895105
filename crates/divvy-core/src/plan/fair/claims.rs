//! Claims of turns: a job that has no place takes those of others.

use super::{By, Fair};
use crate::id::JobId;
use crate::model::allocation::Placement;
use crate::model::job::JobSpec;
use crate::model::policy::Preempt;
use crate::plan::Place;
use crate::plan::consolidate;
use crate::plan::order;
use crate::plan::place;
use crate::plan::reclaim::{self, Claim, Rules};
use crate::plan::share::{Amounts, Mix};
use crate::plan::turns::Turn;
use crate::reason::Reason;
use crate::snapshot::order::displaces;
use crate::snapshot::{ClassView, OrderKey};
use crate::state::Job;

impl Fair<'_, '_> {
    /// Whether moves, or jobs that give way, might make room for a job by its alternatives of this number;
    /// seen without a look at the running jobs.
    pub(super) fn may_claim(
        &self,
        (queue, by): (usize, By),
        (job, spec): (JobId, &JobSpec),
        (asked, number): (Amounts, usize),
    ) -> bool {
        // What is scarce, and what is owed, matters only where victims are chosen.
        let claim = || Claim { place: self.place_of(job), ..Claim::of(job, spec, (queue, asked.clone())) };
        match by {
            By::Starving => true,
            By::Order => true,
            By::Turn => {
                self.leaving.has_junior_of(self.trial.state, (spec, &Rules::of(self, queue)))
                    || consolidate::may_make_room(self, (spec, number), false)
                    || reclaim::might_take(self, &claim())
                    || self.might_owe(queue, &asked)
                        && self.owed(queue, &asked).0
                        && consolidate::may_make_room(self, (spec, number), true)
            }
        }
    }

    /// Whether a queue holds less than is guaranteed to it of anything that is asked for.
    fn might_owe(&self, queue: usize, asked: &Amounts) -> bool {
        let queue = &self.shares.queues[queue];
        (0..asked.len()).any(|index| asked[index] > 0 && queue.held[index] < queue.guarantee[index])
    }

    /// Where the next run of a job stands, if jobs of its queue behind it give way.
    pub(super) fn place_of(&self, id: JobId) -> Option<OrderKey> {
        let state = self.trial.state;
        let job = displaces(&state.policy).then(|| state.jobs.get(&id.number)).flatten()?;
        Some(order::of_waiting(&state.policy, (job, state.run(id)), self.now))
    }

    /// Gives the next run of a job the places of the jobs that lose least, or returns why it waits.
    pub(super) fn take_back(
        &mut self,
        (turn, by): (Turn, By),
        job: &Job,
        reason: &Reason,
    ) -> Result<(), Reason> {
        let gives_way = self.trial.state.policy.preempt == Preempt::LeastLoss;
        let state = self.trial.state;
        let id = place::next_member(self.trial, job).filter(|_| gives_way && reason.may_be_taken_for());
        let Some(id) = id.filter(|_| !state.draining) else {
            return Err(reason.clone());
        };
        let taken = self.take_places((turn.queue, by), (id, &job.spec), turn.view);
        taken.then_some(()).ok_or_else(|| reason.clone())
    }

    /// Gives a run the places of other jobs, if that suffices.
    pub(in crate::plan) fn take_places(
        &mut self,
        (queue, by): (usize, By),
        (id, spec): (JobId, &JobSpec),
        class: &ClassView,
    ) -> bool {
        let placements = match spec.gang.has_alternatives() {
            false => {
                let asked = self.shares.asked(spec);
                let may = self.may_claim((queue, by), (id, spec), (asked.clone(), 0));
                if may { self.claim((queue, by), (id, spec), (asked, true)) } else { None }
            }
            true => self.claim_any((queue, by), (id, spec), class.ways()),
        };
        let Some(placements) = placements else { return false };
        self.may_grow |= spec.gang.is_elastic();
        self.trial.note_member(id);
        self.places.push(Place::new(id, placements));
        true
    }

    /// Whether a job is guaranteed to its queue now; and whether it is, whatever the queue has used.
    pub(in crate::plan) fn owed(&self, queue: usize, asked: &Amounts) -> (bool, bool) {
        let owed = self.shares.guarantees_it(queue, asked);
        (owed, owed && self.shares.guarantees_it_always(queue, asked))
    }

    /// Takes the places of other jobs for a job; those of its own queue only if `own`. A job whose devices were just
    /// taken takes only those of jobs behind it in its own queue, except for what is guaranteed to its queue (L10).
    fn claim(
        &mut self,
        (queue, by): (usize, By),
        (job, spec): (JobId, &JobSpec),
        (asked, own): (Amounts, bool),
    ) -> Option<Vec<Placement>> {
        let scarce = self.shares.scarce(queue, &asked, self.trial.capacity());
        let starves = by == By::Starving;
        let (owed, always_owed) = if starves { (false, false) } else { self.owed(queue, &asked) };
        let is_held_back = !starves && !owed && self.trial.state.was_just_taken(job);
        if is_held_back && !own {
            return None;
        }
        let own_alone = by == By::Order || is_held_back;
        let place = self.place_of(job).filter(|_| !starves && !is_held_back);
        let claim = Claim::of(job, spec, (queue, asked));
        let claim = Claim { scarce, own, own_alone, starves, owed, always_owed, place, ..claim };
        reclaim::take_back(self, &claim)
    }

    /// Does so by each alternative that the job's queue may have, then by different ones for its roles: first
    /// each of these ways takes the places of other queues, then those of its own, too.
    fn claim_any(
        &mut self,
        (queue, by): (usize, By),
        (job, spec): (JobId, &JobSpec),
        ways: &[JobSpec],
    ) -> Option<Vec<Placement>> {
        let mixes = self.shares.mixed_claims(queue, spec);
        let mixed: Vec<JobSpec> = mixes.iter().map(|mix| by_mix(spec, mix)).collect();
        let uniform = ways.iter().map(|only| (only, None));
        let ways: Vec<(&JobSpec, Option<&Mix>)> =
            uniform.chain(mixed.iter().zip(mixes.iter().map(Some))).collect();
        let each = |own| ways.iter().enumerate().map(move |(number, way)| (own, number, *way));
        for (own, number, (only, mix)) in [false, true].into_iter().flat_map(each) {
            // Without moves, and without victims in its own queue, it would be the same once more.
            if own && !self.budget.has_any() && !self.may_take_own((queue, by), (job, spec)) {
                break;
            }
            let asked = self.shares.asked(only);
            let may_have = self.shares.allows_one(queue, &asked, spec).is_ok();
            if !may_have || !self.may_claim((queue, by), (job, only), (asked.clone(), 0)) {
                continue;
            }
            let placements = self.claim((queue, by), (job, only), (asked, own));
            let Some(mut placements) = placements else { continue };
            let roles = spec.gang.roles();
            for placement in &mut placements {
                let role = spec.gang.role_index(placement.rank).unwrap_or_default();
                let last = roles.get(role).map_or(0, |role| role.ask.alternatives.len().saturating_sub(1));
                let number = mix.and_then(|mix| mix.get(role)).map_or(number, |number| *number);
                placement.alternative = number.min(last) as u32;
            }
            return Some(placements);
        }
        None
    }

    /// Whether it matters, for a job that takes the places of others, if jobs of its own queue may go.
    fn may_take_own(&self, (queue, by): (usize, By), (job, spec): (JobId, &JobSpec)) -> bool {
        let place = self.place_of(job);
        let claim = Claim { place, ..Claim::of(job, spec, (queue, Amounts::new())) };
        by != By::Starving && reclaim::might_take_own(self, &claim)
    }
}

/// A job whose roles can be served by these alternatives alone.
fn by_mix(spec: &JobSpec, mix: &Mix) -> JobSpec {
    JobSpec { gang: spec.gang.by_alternatives(&mut mix.iter().copied()).into(), ..spec.clone() }
}
