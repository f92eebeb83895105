//! Explaining: for one job, all that keeps it waiting, in order, what would lift each, and what would start it now. Pure, computed
//! on demand. See `README.md` beside this file.

mod advice;
mod ahead;
mod change;
mod edit;
mod ends;
mod few;
mod fix;
mod gates;
mod least;
mod menu;
mod never;
mod promised;
mod search;
mod tried;
mod world;

pub use advice::{Advice, Blocker, advise, advise_spec};
pub use ahead::Ahead;
pub use change::{Change, Cost, Raise, Tier};
pub use ends::expected_end;
pub use fix::{Fix, cost};
pub use menu::Menu;
pub use never::as_set;
pub use tried::{GivesWay, Tried, tried};

use crate::controller::{Noted, noted};
use crate::id::JobId;
use crate::model::allocation::Placement;
use crate::model::job::JobSpec;
use crate::model::queue::utc;
use crate::plan::{self, Funnel};
use crate::reason::{Reason, Verdict};
use crate::snapshot::Snapshot;
use crate::state::{Job, Run, State};
use crate::time::Time;

/// From when on room is kept for a waiting job (or member), and from when on it was to be, by what was noted of it before. `None`
/// where no room is kept for it.
pub fn room(state: &State, snapshot: &Snapshot, id: JobId, before: Option<&Noted>) -> Option<Noted> {
    let room = world::World::of(state, snapshot, id).room()?;
    Some(noted(before, state, room, state.now))
}

/// Why a job waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// What the planner thinks of it.
    pub verdict: Verdict,
    /// All that keeps it waiting; what must go first comes first.
    pub blockers: Vec<Reason>,
    /// Its way through the devices; empty for a job without any.
    pub funnel: Funnel,
    /// How many jobs (arrays count once) go before it; `None` for one that is not in the line.
    pub position: Option<usize>,
    /// The members of its array that go before it, if any do.
    pub ahead: Option<Ahead>,
}

/// Explains a job (member) that waits. `None` if there is none.
pub fn explain(state: &State, snapshot: &Snapshot, id: JobId) -> Option<Explanation> {
    let job = state.jobs.get(&id.number)?;
    let (member, run) = gates::run_of(job, id)?;
    let blockers = gates::reasons(state, snapshot, job, (member, &run));
    let verdict = gates::verdict((state, snapshot), &job.spec, blockers.iter());
    let funnel = plan::funnel(state, snapshot, &job.spec);
    let ahead = ahead::of(state, job, (member, &run));
    Some(Explanation { verdict, blockers, funnel, position: position(snapshot, job), ahead })
}

/// Explains a job that was not submitted.
pub fn explain_spec(state: &State, snapshot: &Snapshot, spec: &JobSpec) -> Explanation {
    let (blockers, funnel) = gates::of_pool(state, snapshot, spec);
    let verdict = gates::verdict((state, snapshot), spec, blockers.iter());
    Explanation { verdict, blockers, funnel, position: None, ahead: None }
}

/// The current reason of a waiting run, from the state alone (L6). `None` if it does not wait.
pub fn reason(state: &State, job: &Job, (id, run): (JobId, &Run)) -> Option<Reason> {
    if run.is_active() {
        return None;
    }
    let first = gates::own(state, job, (id, run)).into_iter().next();
    Some(first.or_else(|| state.verdicts.get(&job.class).cloned()).unwrap_or(Reason::NotPlanned))
}

/// A reason in words, with what the pool knows beside it: of reservations that have begun, when they end.
pub fn text(state: &State, reason: &Reason) -> String {
    let Reason::Booked(from) = reason else { return reason.to_string() };
    let begun = || state.reservations.iter().filter(|kept| kept.from == *from && kept.from <= state.now);
    let ends: Option<Vec<Time>> = begun().map(|kept| kept.until).collect();
    match ends.map(|ends| ends.into_iter().max()) {
        // None has begun.
        Some(None) => reason.to_string(),
        Some(Some(until)) => format!("what is free is reserved now, until {}", utc(until)),
        None => "what is free is reserved now, until the reservation is taken back".into(),
    }
}

/// How many jobs go before it, over all classes. Costs the number of waiting jobs.
pub fn position(snapshot: &Snapshot, job: &Job) -> Option<usize> {
    snapshot.waiting.contains(job.id()).then_some(())?;
    let key = snapshot.waiting.key_of(job.number)?;
    let before = |view: &crate::snapshot::ClassView| view.jobs.range(..key).count();
    Some(snapshot.waiting.classes.values().map(before).sum())
}

/// The work that a running job would lose if it were stopped now, in milli-GPU·ms: since its start, or since its work was last safe,
/// as far as the job does not save it by itself; for a task that joined its gang later, since then.
pub fn lost_so_far(state: &State, (spec, run): (&JobSpec, &Run)) -> i64 {
    let Some(unsaved_since) = run.checkpointed_at.or(run.started_at) else { return 0 };
    let of = |placement: &Placement| {
        let held = state.allocations.get(&placement.allocation);
        let since = held.map_or(unsaved_since, |held| unsaved_since.max(held.since));
        // What was adopted ran before it was held here.
        let since = if spec.gang.is_elastic() { since } else { unsaved_since };
        let unsaved_ms = state.now.since(since).0.min(spec.loses_at_most_ms().unwrap_or(i64::MAX));
        unsaved_ms.saturating_mul(placement.milli())
    };
    run.placements.iter().map(of).fold(0, i64::saturating_add)
}

/// All that can be changed so that a job starts: the space in which the cheapest fix is sought.
pub fn menu(state: &State, snapshot: &Snapshot, id: JobId) -> Menu {
    let world = world::World::of(state, snapshot, id);
    menu::menu(&world, &world.kept_anew())
}

/// Whether a job (or the next member of its array) starts in the next cycle once these changes are made: it gets its devices, or the
/// promise of them. This is the judge of every fix: the commands that make the changes, and the planner.
pub fn starts_after(state: &State, snapshot: &Snapshot, id: JobId, changes: &[Change]) -> bool {
    let advised = advice::advised(state, id).unwrap_or(id);
    let world = world::World::of(state, snapshot, advised).after(changes);
    world.is_some_and(|world| world.cycle().1 == world::Outcome::Starts)
}
