//! One future: the pool goes on from its present state, with each open job running as long as its lot says.

use std::collections::{BTreeMap, BTreeSet};

use divvy_core::action::Fence;
use divvy_core::controller::Broken;
use divvy_core::event::{Event, Stamped};
use divvy_core::id::JobId;
use divvy_core::model::allocation::AllocationState;
use divvy_core::state::State;
use divvy_core::time::{Span, Time};

use super::{Bounds, Known};
use crate::engine::{Adopted, Course, SimulatedEngine};
use crate::pool::VirtualPool;

/// How many moments pass between two questions whether to give up.
const ASKED_EVERY: u64 = 16;

/// How many decisions may follow from one another at one moment; the next moment brings the rest.
const MOST_DECISIONS: u32 = 100;

/// What is followed, and how far.
pub(super) struct Future<'a> {
    pub(super) known: &'a Known<'a>,
    pub(super) as_of: Time,
    pub(super) wanted: &'a BTreeSet<JobId>,
    pub(super) bounds: &'a Bounds,
    pub(super) gives_up: &'a dyn Fn() -> bool,
}

/// What was seen of a future.
pub(super) struct Seen {
    /// When the wanted jobs started.
    pub(super) starts: BTreeMap<JobId, Time>,
    /// The time up to which it was followed; for ever, once all had started.
    pub(super) until: Time,
}

impl Future<'_> {
    /// Follows it until all wanted jobs have started, or as far as the bounds allow. `None` if it gave up before.
    pub(super) fn follow(&self, courses: BTreeMap<JobId, Course>) -> Result<Option<Seen>, Broken> {
        let horizon = self.as_of + Span(self.bounds.horizon_ms);
        let engine = self.engine(courses);
        let mut pool = VirtualPool::resume(self.known.state.clone(), engine, self.as_of);
        let mut seen = Seen { starts: BTreeMap::new(), until: Time(i64::MAX) };
        for moment in 0.. {
            self.decide(&mut pool, &mut seen)?;
            if seen.starts.len() == self.wanted.len() {
                break;
            }
            let next = pool.next_due().filter(|at| *at <= horizon);
            let Some(next) = next.filter(|_| moment < self.bounds.moments) else {
                seen.until = if next.is_none() { horizon } else { pool.now() };
                break;
            };
            if moment % ASKED_EVERY == ASKED_EVERY - 1 && (self.gives_up)() {
                return Ok(None);
            }
            let happened = pool.advance_to(next)?;
            self.note(&happened, &mut seen);
        }
        Ok(Some(seen))
    }

    /// Decides until nothing follows any more: a stopped job makes room at the same moment.
    fn decide(&self, pool: &mut VirtualPool, seen: &mut Seen) -> Result<(), Broken> {
        for _ in 0..MOST_DECISIONS {
            let happened = pool.decide()?;
            if happened.is_empty() {
                break;
            }
            self.note(&happened, seen);
        }
        Ok(())
    }

    fn note(&self, happened: &[Stamped], seen: &mut Seen) {
        for stamped in happened {
            if let Event::Placed { job, .. } = &stamped.event
                && self.wanted.contains(job)
            {
                seen.starts.entry(*job).or_insert(stamped.at);
            }
        }
    }

    /// An engine that has taken over what runs.
    fn engine(&self, courses: BTreeMap<JobId, Course>) -> SimulatedEngine {
        let mut engine = SimulatedEngine::new(self.as_of, self.known.costs, BTreeMap::new());
        courses.into_iter().for_each(|(job, course)| engine.set_member_course(job, course));
        for task in running(self.known.state) {
            engine.adopt(task);
        }
        engine
    }
}

/// The tasks that the engine has begun and not seen end. Those that are overdue never end.
fn running(state: &State) -> impl Iterator<Item = Adopted> + '_ {
    let ends = state.allocations.iter().filter(|(_, held)| held.overdue_since.is_unsaid());
    ends.filter_map(|(id, held)| {
        let run = state.run(held.job)?;
        Some(Adopted {
            fence: Fence { term: state.term, allocation: *id, seq: held.seq },
            job: held.job,
            attempt: run.attempt,
            working_since: run.started_at.filter(|_| held.state != AllocationState::Starting),
            stopping: held.state == AllocationState::Stopping,
        })
    })
}
