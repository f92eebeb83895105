//! Part of phase 1, share: whether a queue may have a job, and which of its alternatives it may not have.

use super::mixed::Mixes;
use super::{Amounts, Shares};
use crate::model::allocation::Placement;
use crate::model::job::JobSpec;
use crate::reason::Reason;

/// Which alternatives a job may not have; nothing where it may have all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Closed {
    /// By number: whether the job may not have that alternative for all roles.
    numbers: Vec<bool>,
    /// The ways that it may have all the same, in which roles are served by different numbers.
    mixes: Mixes,
}

impl Closed {
    /// Whether it may have all.
    pub(in crate::plan) fn is_nothing(&self) -> bool {
        !self.numbers.contains(&true)
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

    /// The alternatives of a job that its queue may not have, by what is guaranteed to it, by what the others lend and by what it
    /// may borrow; an error if that leaves none.
    pub(crate) fn closed(&self, place: usize, spec: &JobSpec) -> Result<Closed, Reason> {
        if self.loans.is_none() && (!self.binds(spec) || !spec.gang.has_alternatives()) {
            return Ok(Closed::default());
        }
        let why_not = |asked: &Amounts| {
            let allowed = self.allows_one(place, asked, spec);
            allowed.and_then(|()| self.lends(place, asked)).err()
        };
        let refused: Vec<Option<Reason>> = self.numbered(spec).map(|asked| why_not(&asked)).collect();
        let numbers: Vec<bool> = refused.iter().map(Option::is_some).collect();
        let mut closed = Closed { numbers, mixes: Mixes::default() };
        if !closed.is_nothing() {
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
