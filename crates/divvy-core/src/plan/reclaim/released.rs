//! Which jobs are counted as free while room is looked for, and which of them go in the end.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::rules::Rules;
use super::{Candidate, Candidates, Claim, Reach, Right, may_stop, victim};
use crate::model::allocation::Placement;
use crate::model::borrowing::BorrowEvicts;
use crate::plan::fair::Fair;
use crate::plan::place;
use crate::plan::settle::held_by;
use crate::plan::share::Amounts;
use crate::plan::trial::Mark;
use crate::plan::victims;

/// The candidates that are counted as free, in this order.
pub(super) struct Released {
    pub(super) order: Vec<usize>,
    is_released: BTreeSet<usize>,
    /// Candidates that could no longer be stopped, since others of their queues go.
    pub(super) late: Vec<usize>,
    /// Candidates that could not be stopped yet: where siblings give back first, that depends on which do.
    refused: Vec<usize>,
    /// How many levels were within their guarantees when the refused were last looked at.
    levels: usize,
    borrow_evicts: BorrowEvicts,
}

impl Released {
    /// With none released. `borrow_evicts`: by what right others go for what is not guaranteed.
    pub(super) fn new(borrow_evicts: BorrowEvicts) -> Self {
        let (order, is_released, late, refused) = (Vec::new(), BTreeSet::new(), Vec::new(), Vec::new());
        Self { order, is_released, late, refused, levels: 0, borrow_evicts }
    }

    /// Counts what jobs hold as free, as far as they may still be stopped.
    pub(super) fn release(
        &mut self,
        fair: &mut Fair,
        claim: &Claim,
        candidates: &Candidates,
        stop: &[usize],
    ) {
        stop.iter().for_each(|index| self.release_one(fair, claim, candidates, *index));
        if claim.siblings_first.is_some() {
            self.refused.extend(stop.iter().filter(|index| !self.is_released.contains(index)));
        }
    }

    /// Likewise those that could not be stopped before, once the claim is within its part on a level more. Returns whether there are any.
    pub(super) fn release_refused(
        &mut self,
        fair: &mut Fair,
        claim: &Claim,
        candidates: &Candidates,
    ) -> bool {
        let Some(right) = claim.siblings_first else { return false };
        let levels = self.reach(fair, claim).up_to(right);
        if levels <= self.levels {
            return false;
        }
        self.levels = levels;
        let before = self.order.len();
        let refused = std::mem::take(&mut self.refused);
        refused.iter().for_each(|index| self.release_one(fair, claim, candidates, *index));
        self.refused = refused;
        self.refused.retain(|index| !self.is_released.contains(index));
        self.order.len() > before
    }

    fn release_one(&mut self, fair: &mut Fair, claim: &Claim, candidates: &Candidates, index: usize) {
        let candidate = candidates.get(index);
        for other in &candidate.needs {
            self.release_one(fair, claim, candidates, *other);
        }
        let reach = self.reach(fair, claim);
        let alone = candidate.needs.iter().all(|other| self.is_released.contains(other));
        if self.is_released.contains(&index) || !alone {
            return;
        }
        if !may_stop(&fair.shares, claim, candidate, reach) {
            self.late.push(index);
            return;
        }
        let state = fair.trial.state;
        if fair.trial.around.is_relied_on(state, held_by(state, &candidate.live)) {
            return;
        }
        for placement in held_by(state, &candidate.live) {
            fair.trial.release(placement, &candidate.view.queue);
        }
        fair.shares.stop(candidate.queue, &candidate.draws, 1);
        self.order.push(index);
        self.is_released.insert(index);
    }

    fn reach(&self, fair: &Fair, claim: &Claim) -> Reach {
        let for_guarantee = claim.siblings_first == Some(Right::Guarantee);
        Reach::of(&fair.shares, claim, if for_guarantee { BorrowEvicts::NEVER } else { self.borrow_evicts })
    }
}

/// Up to how many jobs that go it is tried whether one of them may stay if the claim lies elsewhere.
const MOST_TRIED: usize = 8;

/// What a claim gets as things stand.
pub(super) enum Served {
    /// Nothing yet.
    Not,
    /// A place that is kept for a job that would have had those of the jobs that may go.
    Kept,
    /// These places; who has to go for them is noted.
    With(Vec<Placement>),
}

/// Places a claim beside the jobs that are left, if it fits.
pub(super) fn served<'a>(
    fair: &mut Fair<'a, '_>,
    claim: &Claim,
    (candidates, released): (&Candidates<'a>, &Released),
) -> Served {
    let mark = fair.trial.mark();
    let Ok(placements) = claim.place_by_stops(fair.trial) else { return Served::Not };
    let goes = who_goes(fair, claim, (candidates, &released.order), &placements);
    // All may stay, though the claim had no place before.
    if goes.is_empty() && !released.order.is_empty() && fair.trial.reserve.has_owners() {
        return Served::Kept;
    }
    let Found { placements, goes } =
        Fewer { claim, candidates, released: &released.order, mark }.of(fair, Found { placements, goes });
    take(fair, claim, (candidates, goes), &placements);
    Served::With(placements)
}

/// A place for a claim, and who goes for it.
struct Found {
    placements: Vec<Placement>,
    goes: Vec<usize>,
}

/// Looks whether fewer jobs go if the claim lies elsewhere: its place was found while all of the released counted as gone, so that a job
/// may stand in it by chance.
struct Fewer<'c, 'a> {
    claim: &'c Claim<'c>,
    candidates: &'c Candidates<'a>,
    released: &'c [usize],
    /// Before the claim was placed, and any of the released kept.
    mark: Mark,
}

impl Fewer<'_, '_> {
    /// Tries it for each job that goes, the dearest first. Where siblings give first, who goes depends on who else does.
    fn of(&self, fair: &mut Fair, mut found: Found) -> Found {
        if self.claim.siblings_first.is_some() || self.claim.part.is_some() {
            return found;
        }
        let mut dearest = if found.goes.len() > MOST_TRIED { Vec::new() } else { found.goes.clone() };
        dearest.sort_by_key(|index| Reverse((self.candidates.get(*index).cost, *index)));
        for index in dearest {
            // Without its surplus, the core of a gang does not go.
            let is_needed = found.goes.iter().any(|it| self.candidates.get(*it).needs.contains(&index));
            if found.goes.len() > 1 && found.goes.contains(&index) && !is_needed {
                self.undo(fair, &found.goes);
                found = match self.beside(fair, &found.goes, index) {
                    Some(fewer) => fewer,
                    None => self.again(fair, found),
                };
            }
        }
        found
    }

    /// Counts all of the released as gone again, and the claim as not placed.
    fn undo(&self, fair: &mut Fair, goes: &[usize]) {
        fair.trial.roll_back_to(self.mark);
        let stays = self.released.iter().filter(|index| !goes.contains(index));
        stays
            .map(|index| self.candidates.get(*index))
            .for_each(|it| fair.shares.stop(it.queue, &it.draws, 1));
    }

    /// The place that was found, as it was.
    fn again(&self, fair: &mut Fair, found: Found) -> Found {
        let mut placements = found.placements;
        place::take_again(fair.trial, self.claim.spec, &mut placements);
        let goes = who_goes(fair, self.claim, (self.candidates, self.released), &placements);
        Found { placements, goes }
    }

    /// A place beside one of those that would go, too; without one, all of the released count as gone.
    fn beside(&self, fair: &mut Fair, goes: &[usize], one: usize) -> Option<Found> {
        let goes: Vec<usize> = goes.iter().copied().filter(|index| *index != one).collect();
        let stays = self.released.iter().filter(|index| !goes.contains(index));
        let stays: Vec<_> = stays.map(|index| self.candidates.get(*index)).collect();
        let held = |live| held_by(fair.trial.state, live).collect::<Vec<_>>();
        let held: Vec<_> = stays.iter().map(|it| (held(&it.live), &*it.view.queue)).collect();
        let placed = match held.iter().all(|(held, queue)| fair.trial.keep(held, queue)) {
            true => self.claim.place_by_stops(fair.trial).ok(),
            false => None,
        };
        let Some(placements) = placed else {
            fair.trial.roll_back_to(self.mark);
            return None;
        };
        stays.iter().for_each(|it| fair.shares.stop(it.queue, &it.draws, -1));
        let taken = fair.shares.counted(fair.trial.state, placements.iter());
        let is_over = fair.trial.exceeded(self.claim.spec.stand(), 0).is_some();
        if is_over || fair.shares.lends(self.claim.queue, &taken).is_err() {
            self.undo(fair, &goes);
            return None;
        }
        let fewer = who_goes(fair, self.claim, (self.candidates, &goes), &placements);
        if fewer.is_empty() {
            self.undo(fair, &fewer);
            return None;
        }
        Some(Found { placements, goes: fewer })
    }
}

/// Returns which of the released go for a claim with these places: those that may not stay.
pub(super) fn who_goes(
    fair: &mut Fair,
    claim: &Claim,
    (candidates, released): (&Candidates, &[usize]),
    placements: &[Placement],
) -> Vec<usize> {
    let taken = fair.shares.counted(fair.trial.state, placements.iter());
    let mut goes = keep_what_may_stay(fair, (claim, &taken), candidates, released.to_vec());
    // What others give may be guaranteed to the claim's queue only once its own jobs have gone.
    goes.sort_by_key(|index| !claim.is_of_own(candidates.get(*index)));
    goes
}

/// Notes what the claim takes, and which jobs go for it.
pub(super) fn take<'a>(
    fair: &mut Fair<'a, '_>,
    claim: &Claim,
    (candidates, goes): (&Candidates<'a>, Vec<usize>),
    placements: &[Placement],
) {
    let taken = fair.shares.counted(fair.trial.state, placements.iter());
    fair.shares.charge(claim.queue, &taken, (1, !claim.spec.preemptible));
    let rules = Rules::of(fair, claim.queue);
    fair.victims.extend(goes.into_iter().map(|index| victim(candidates.get(index), (&rules, claim))));
}

/// Lets jobs run on whose places were not needed after all, the dearest first; the others give way. Where siblings go first,
/// the farthest jobs are put back before them: so only as many siblings go as the farther jobs that go require.
fn keep_what_may_stay(
    fair: &mut Fair,
    (claim, taken): (&Claim, &Amounts),
    candidates: &Candidates,
    released: Vec<usize>,
) -> Vec<usize> {
    let level = |fair: &Fair, candidate: &Candidate| match claim.siblings_first {
        Some(_) => victims::level(&fair.shares, claim.queue, candidate.queue),
        None => 0,
    };
    let mut in_order = released.clone();
    in_order.sort_by_key(|index| {
        let candidate = candidates.get(*index);
        Reverse((level(fair, candidate), candidate.cost, *index))
    });
    // On each level on which jobs of others go, the claim has to keep its right.
    let (mut stays, mut levels) = (BTreeSet::new(), BTreeSet::new());
    for index in in_order {
        let candidate = candidates.get(index);
        // Without its core nothing of a gang stays.
        let is_left = |other: &usize| !stays.contains(other) && candidates.get(*other).needs.contains(&index);
        let is_core = candidate.within.is_some() && released.iter().any(is_left);
        if !is_core && keep_if_it_may(fair, (claim, taken), candidate, &levels) {
            stays.insert(index);
        } else {
            levels.extend(Some(level(fair, candidate)).filter(|level| *level > 0));
        }
    }
    released.into_iter().filter(|index| !stays.contains(index)).collect()
}

/// Lets a job run on beside the claim, which has to keep its right on these levels; returns whether it may.
fn keep_if_it_may(
    fair: &mut Fair,
    (claim, taken): (&Claim, &Amounts),
    candidate: &Candidate,
    levels: &BTreeSet<usize>,
) -> bool {
    let held: Vec<&Placement> = held_by(fair.trial.state, &candidate.live).collect();
    let mark = fair.trial.mark();
    if !fair.trial.keep(&held, &candidate.view.queue) {
        return false;
    }
    let had = levels_with_right(fair, claim, levels);
    fair.shares.stop(candidate.queue, &candidate.draws, -1);
    let has = levels_with_right(fair, claim, levels);
    let is_theirs = levels.last().is_none_or(|farthest| has.contains(farthest)) && had.is_subset(&has);
    // The claim must stay within its limits with those that stay, even where it adds nothing to what is exceeded.
    let may_stay = is_theirs
        && fair.trial.exceeded(claim.spec.stand(), 0).is_none()
        && fair.shares.lends(claim.queue, taken).is_ok();
    if !may_stay {
        fair.trial.roll_back_to(mark);
        fair.shares.stop(candidate.queue, &candidate.draws, 1);
    }
    may_stay
}

/// On which of these levels, counted from its queue upwards, the claim has the right by which siblings give first; all of them where none do.
fn levels_with_right(fair: &Fair, claim: &Claim, levels: &BTreeSet<usize>) -> BTreeSet<usize> {
    let Some(right) = claim.siblings_first.filter(|_| !levels.is_empty()) else { return levels.clone() };
    let by = if right == Right::Due { BorrowEvicts::DUE } else { BorrowEvicts::NEVER };
    let reach = Reach::of(&fair.shares, claim, by);
    levels.iter().copied().filter(|level| reach.has(right, *level)).collect()
}
