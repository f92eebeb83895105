//! Part of phase 1, share: whether a queue may have a job, and which of its alternatives and models it may not have.

use smallvec::smallvec;

use super::mixed::Mixes;
use super::{Amounts, QueueShare, Shares};
use crate::amount::Resource;
use crate::model::allocation::Placement;
use crate::model::gang::Role;
use crate::model::job::JobSpec;
use crate::reason::Reason;

/// Which alternatives, and how many devices of which models, a job may not have; nothing where it may have all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Closed {
    /// By number: whether the job may not have that alternative for all roles.
    numbers: Vec<bool>,
    /// The ways that it may have all the same, in which roles are served by different numbers.
    mixes: Mixes,
    /// Of which models it may have less than it asks for, whichever of them it names.
    models: Vec<FewOf>,
}

/// How many devices of a model a queue may still have.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FewOf {
    model: String,
    left_milli: i64,
    /// Why it may not have more.
    reason: Reason,
}

impl Closed {
    /// Whether it may have all.
    pub(in crate::plan) fn is_nothing(&self) -> bool {
        !self.closes_any() && self.models.is_empty()
    }

    fn closes_any(&self) -> bool {
        self.numbers.contains(&true)
    }

    /// The models of which it may not have so many more devices (milli) beside those that it has got, and why.
    pub(in crate::plan) fn models(
        &self,
        more_milli: &impl Fn(&str) -> i64,
        got_milli: impl Fn(&str) -> i64,
    ) -> impl Iterator<Item = (&str, &Reason)> {
        let is_over = move |few: &&FewOf| got_milli(&few.model) + more_milli(&few.model) > few.left_milli;
        self.models.iter().filter(is_over).map(|few| (few.model.as_str(), &few.reason))
    }

    /// Whether the role of `rank` may not have alternative `index` out of `of`, beside what has been placed so far.
    pub(in crate::plan) fn closes<'p>(
        &self,
        (rank, index): (u32, usize),
        of: usize,
        placed: impl Iterator<Item = &'p Placement>,
    ) -> bool {
        match self.mixes.is_empty() {
            true => self.closes_number(index, of),
            false => !self.mixes.allow((rank, index), placed),
        }
    }

    /// The last alternative of a role stands for all numbers that the role does not have.
    fn closes_number(&self, index: usize, of: usize) -> bool {
        let numbers = if index + 1 < of { index..index + 1 } else { index..self.numbers.len() };
        let numbers = self.numbers.get(numbers);
        numbers.is_some_and(|numbers| !numbers.is_empty() && numbers.iter().all(|closed| *closed))
    }
}

impl Shares {
    /// Whether a queue may have a job that asks for so much, whatever is free. A job that is not preemptible
    /// has to stay within what is guaranteed to the queue by any of its alternatives.
    pub(crate) fn allows(&self, place: usize, asked: &Amounts, spec: &JobSpec) -> Result<(), Reason> {
        if !self.binds(spec) || !spec.gang.has_alternatives() {
            return self.allows_one(place, asked, spec);
        }
        let may_have = |asked: &Amounts| self.pins(place, asked).is_ok();
        let any = self.numbered(spec).any(|asked| may_have(&asked));
        if any || !self.mixes(spec, &may_have).is_empty() { Ok(()) } else { self.pins(place, asked) }
    }

    /// Likewise, for what the job asks for by one of its alternatives.
    pub(in crate::plan) fn allows_one(
        &self,
        place: usize,
        asked: &Amounts,
        spec: &JobSpec,
    ) -> Result<(), Reason> {
        if self.binds(spec) { self.pins(place, asked) } else { Ok(()) }
    }

    /// Whether a job may have no more than what is guaranteed to its queue.
    fn binds(&self, spec: &JobSpec) -> bool {
        !spec.preemptible && self.binds_fixed
    }

    /// What a job asks for by each of its alternatives.
    fn numbered(&self, spec: &JobSpec) -> impl Iterator<Item = Amounts> {
        let roles = spec.gang.roles();
        let most = roles.iter().map(|role| role.ask.alternatives.len()).max().unwrap_or(0);
        (0..most).map(|number| self.asked_by(spec, number))
    }

    /// The alternatives and models of a job that its queue may not have, by what is guaranteed to it, by what the others lend and by
    /// what it may borrow; an error if that leaves no alternative.
    pub(crate) fn closed(&self, place: usize, spec: &JobSpec) -> Result<Closed, Reason> {
        let closed = self.closed_alternatives(place, spec)?;
        Ok(Closed { models: self.few_of(place, spec), ..closed })
    }

    /// The models that it may not have, whichever alternatives.
    pub(in crate::plan) fn closed_models(&self, place: usize, spec: &JobSpec) -> Closed {
        Closed { models: self.few_of(place, spec), ..Closed::default() }
    }

    /// The models of which a queue may have less than a job asks for. A job that names none, or several, may have the others.
    fn few_of(&self, place: usize, spec: &JobSpec) -> Vec<FewOf> {
        if self.loans.is_none() && !self.binds(spec) {
            return Vec::new();
        }
        let most = self.most_milli(spec);
        let few = |index: usize| {
            let mut asked: Amounts = smallvec![0; self.resources.len()];
            asked[index] = most;
            let allowed = self.allows_one(place, &asked, spec);
            let reason = allowed.and_then(|()| self.lends(place, &asked)).err()?;
            let loans = self.loans.as_ref();
            let lent = loans.map_or(i64::MAX, |loans| loans.left(&self.queues, (place, place), index));
            let pinned = if self.binds(spec) { self.left_to_pin(place, index) } else { i64::MAX };
            let Resource::Model(model) = &self.resources[index] else { return None };
            Some(FewOf { model: model.clone(), left_milli: lent.min(pinned), reason })
        };
        self.models().filter_map(few).collect()
    }

    /// The most devices that a job may draw with all tasks that it may have, in thousandths, whichever alternatives it gets.
    fn most_milli(&self, spec: &JobSpec) -> i64 {
        let of_role = |role: &&Role| {
            let each = role.ask.alternatives.iter().map(|way| self.milli_of_task((way, true)));
            each.max().unwrap_or(0).saturating_mul(i64::from(role.maximum))
        };
        match spec.exclusive {
            true => spec.gang.roles().iter().map(of_role).fold(0, i64::saturating_add),
            false => spec.most_milli(),
        }
    }

    /// How much more jobs of a queue that are not preemptible may hold of a model.
    fn left_to_pin(&self, place: usize, index: usize) -> i64 {
        let left = |queue: &QueueShare| queue.pinned_at_most(index).saturating_sub(queue.pinned[index]);
        let bound = self.upwards(place).map(|place| &self.queues[place]).filter(|queue| queue.binds_fixed());
        bound.map(left).fold(i64::MAX, i64::min)
    }

    fn closed_alternatives(&self, place: usize, spec: &JobSpec) -> Result<Closed, Reason> {
        if self.loans.is_none() && (!self.binds(spec) || !spec.gang.has_alternatives()) {
            return Ok(Closed::default());
        }
        let why_not = |asked: &Amounts| {
            let allowed = self.allows_one(place, asked, spec);
            allowed.and_then(|()| self.lends(place, asked)).err()
        };
        let refused: Vec<Option<Reason>> = self.numbered(spec).map(|asked| why_not(&asked)).collect();
        let numbers: Vec<bool> = refused.iter().map(Option::is_some).collect();
        let mut closed = Closed { numbers, ..Closed::default() };
        if closed.closes_any() {
            closed.mixes = self.mixes(spec, &|asked| why_not(asked).is_none());
        }
        if !closed.mixes.is_empty() {
            // Of many ways only the first are known.
            let open = closed.numbers.iter().enumerate().filter(|(_, is_closed)| !**is_closed);
            open.for_each(|(number, _)| closed.mixes.add(&spec.gang, number));
            return Ok(closed);
        }
        if !closed.numbers.iter().all(|is_closed| *is_closed) {
            return Ok(closed);
        }
        // What others could give back goes before what they cannot.
        let mut reasons = refused.into_iter().flatten();
        let first = reasons.next();
        let taken = first.iter().cloned().chain(reasons).find(Reason::may_be_taken_for);
        taken.or(first).map_or(Ok(closed), Err)
    }
}
