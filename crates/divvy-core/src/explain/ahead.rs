//! Ahead: the members of an array that go before one of them. All members ask for the same, so what starts the next one is all that
//! helps those behind it.

use crate::id::JobId;
use crate::model::job::JobState;
use crate::snapshot::order;
use crate::state::{Job, Run, State};

/// The members of an array that start before one that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// How many.
    pub members: usize,
    /// The first of them.
    pub next: JobId,
}

/// The members that go before a member that waits or is held; `None` where none do. Costs the number of waiting members.
pub(super) fn of(state: &State, job: &Job, (id, run): (JobId, &Run)) -> Option<Ahead> {
    let waiting = order::members(&state.policy, job);
    let before: Vec<Option<u32>> = match run.state {
        // Once it is released it stands where its number puts it.
        JobState::Held => waiting.filter(|member| *member < id.member).collect(),
        _ if run.waits() => waiting.take_while(|member| *member != id.member).collect(),
        _ => Vec::new(),
    };
    let next = JobId { member: *before.first()?, ..id };
    Some(Ahead { members: before.len(), next })
}
