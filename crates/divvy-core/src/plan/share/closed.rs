//! Part of phase 1, share: which alternatives of a job its queue may not have.

use super::Shares;
use crate::model::job::JobSpec;
use crate::reason::Reason;

/// By number, whether a job may not have an alternative; nothing where it may have all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Closed(Vec<bool>);

impl Closed {
    /// Whether a role may not have one of so many alternatives. The last of a role stands for all numbers that it has not.
    pub(in crate::plan) fn closes(&self, index: usize, of: usize) -> bool {
        let numbers = if index + 1 < of { index..index + 1 } else { index..self.0.len() };
        self.0.get(numbers).is_some_and(|numbers| !numbers.is_empty() && numbers.iter().all(|closed| *closed))
    }
}

impl Shares {
    /// The alternatives of a job that its queue may not have, by what the others lend and what it may borrow; an error if that
    /// leaves none.
    pub(crate) fn closed(&self, place: usize, spec: &JobSpec) -> Result<Closed, Reason> {
        if self.loans.is_none() {
            return Ok(Closed::default());
        }
        let roles = spec.gang.roles();
        let most = roles.iter().map(|role| role.ask.alternatives.len()).max().unwrap_or(0);
        let mut first = None;
        let mut is_closed = |number| {
            let refused = self.lends(place, &self.asked_by(spec, number)).err();
            refused.inspect(|reason| _ = first.get_or_insert_with(|| reason.clone())).is_some()
        };
        let closed = Closed((0..most).map(&mut is_closed).collect());
        let all = closed.0.iter().all(|is_closed| *is_closed);
        first.filter(|_| all).map_or(Ok(closed), Err)
    }
}
