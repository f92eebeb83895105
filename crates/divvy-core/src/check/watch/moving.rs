//! How often a job is moved, by a record of its moves.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::model::moves::Moves;

/// The jobs that are moved, and when each was.
#[derive(Clone, Debug, Default)]
pub(super) struct Moving {
    /// The jobs that were told to move and have not left yet.
    going: BTreeSet<JobId>,
    /// When each job that has not ended left for another place, since the bound on moves was last set.
    left: BTreeMap<JobId, Vec<Time>>,
    /// The gangs of which parts were told to move at this moment. All that is moved of a job at one moment is one move.
    in_part: (Time, BTreeSet<JobId>),
    said: Option<Moves>,
}

impl Moving {
    /// Takes what a state says of earlier moves as it is.
    pub(super) fn of(state: &State) -> Self {
        let mut moving = Self { said: state.policy.moves.said().copied(), ..Self::default() };
        for (job, run, _) in super::super::runs(state) {
            if run.stopping.as_ref().is_some_and(|stopping| stopping.cause == Cause::Moved) {
                moving.going.insert(job);
            }
            if let Some(moved) = run.moved.said() {
                moving.left.insert(job, vec![moved.since; moved.count as usize]);
            }
        }
        moving
    }

    /// Takes in an event that the state has just folded.
    pub(super) fn follow(&mut self, state: &State, event: &Event) {
        match event {
            Event::PolicySet { policy, .. } if policy.moves.said() != self.said.as_ref() => {
                (self.said, self.left) = (policy.moves.said().copied(), BTreeMap::new());
            }
            Event::Stopping { job, cause: Cause::Moved, .. } => drop(self.going.insert(*job)),
            Event::Stopping { job, .. } => drop(self.going.remove(job)),
            // A part of a gang counts when it is told to go, since the gang runs on.
            Event::Shrinking { job, cause: Cause::Moved, .. } if self.said.is_some() => {
                if self.in_part.0 != state.now {
                    self.in_part = (state.now, BTreeSet::new());
                }
                if self.in_part.1.insert(*job) {
                    self.left.entry(*job).or_default().push(state.now);
                }
            }
            Event::AttemptEnded { job, .. } if state.run(*job).is_none() => {
                self.going.remove(job);
                self.left.remove(job);
            }
            Event::AttemptEnded { job, .. } if self.going.remove(job) && self.said.is_some() => {
                self.left.entry(*job).or_default().push(state.now);
            }
            _ => {}
        }
    }

    /// Whether a job has been moved as often as is said, in a period that begins with the first of these moves.
    pub(super) fn is_enough(&self, job: JobId, now: Time) -> bool {
        let Some(moves) = self.said else { return false };
        let mut period: &[Time] = &[];
        let mut rest = self.left.get(&job).map_or(period, Vec::as_slice);
        if self.in_part.0 == now && self.in_part.1.contains(&job) {
            rest = rest.split_last().map_or(rest, |(_, before)| before);
        }
        while let Some(first) = rest.first() {
            let end = first.0.saturating_add(moves.every_ms);
            let (within, behind) = rest.split_at(rest.partition_point(|at| at.0 < end));
            period = if now.0 < end { within } else { &[] };
            rest = behind;
            if within.is_empty() {
                break;
            }
        }
        period.len() >= moves.per_job as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_is_one_too_many_only_in_the_period_that_began_with_the_first_of_those_before() {
        let job = JobId::single(1);
        let said = Some(Moves { per_job: 2, every_ms: 100, per_queue: 1, ..Moves::default() });
        let left = [(job, [10, 60, 150, 300].map(Time).to_vec())].into();
        let moving = Moving { said, left, ..Moving::default() };
        let of = |times: usize, now: i64| {
            let left = [(job, moving.left[&job][..times].to_vec())].into();
            Moving { left, ..moving.clone() }.is_enough(job, Time(now))
        };
        assert_eq!([of(0, 5), of(1, 20), of(2, 109), of(2, 110)], [false, false, true, false]);
        assert_eq!([of(3, 151), of(4, 301)], [false, false]);
        assert!(
            Moving { said: Some(Moves { per_job: 0, ..Moves::default() }), ..Moving::default() }
                .is_enough(job, Time(0))
        );
    }
}
