//! Promised: what is said to a job whose devices are promised to it. What keeps others waiting keeps it no longer.

use std::collections::BTreeSet;

use super::advice::{Advice, Blocker};
use super::change::Change;
use super::ends::expected_end;
use super::fix::Fix;
use super::menu::{self, Menu};
use super::search::{Goal, Meter, Search};
use super::world::World;
use crate::id::JobId;
use crate::model::allocation::AllocationState;
use crate::reason::{Reason, Verdict};
use crate::state::{Allocation, State};
use crate::time::Time;

/// Advises a job (or member) to wait for the tasks that hold what is promised to it; what it may ask for instead is named only if
/// it starts with that at once. `None` where nothing is promised to it that it gets by waiting.
pub(super) fn advise(world: &World, meter: &mut Meter) -> Option<Advice> {
    let wait = waiting(world.state(), world.target())?;
    let spec = world.job()?.spec.clone();
    let nothing = Menu::default();
    let waits = Search::new(world, &nothing, Goal::Starts, meter).does(std::slice::from_ref(&wait));
    let wait = waits.then(|| Fix::of(world.state(), &spec, &[wait]))?;
    let own = Menu { edits: menu::menu(world, &[]).edits, ..Menu::default() };
    let at_once = Search::new(world, &own, Goal::Starts, meter).cheapest();
    let awaited =
        world.state().promises.get(&world.target()).map(|promise| world.state().awaited_by(promise));
    let ways = std::iter::once(wait.clone()).chain(at_once).collect();
    let blocker = Blocker { reason: Reason::Promised(awaited.unwrap_or(0)), ways, lifted_by: None };
    Some(Advice { verdict: Verdict::Later, blockers: vec![blocker], remedy: Some(wait) })
}

/// The wait for the tasks that hold what is promised to a job; `None` where all of these are over, or where it has no promise.
pub(super) fn waiting(state: &State, id: JobId) -> Option<Change> {
    let held = awaited(state, id);
    let jobs: BTreeSet<JobId> = held.iter().map(|held| held.job).collect();
    let until = held.iter().map(|held| over(state, held)).collect::<Option<Vec<Time>>>();
    let until = until.and_then(|moments| moments.into_iter().max());
    let (tasks, jobs) = (held.len() as u32, jobs.into_iter().collect());
    (tasks > 0).then_some(Change::AwaitStop { jobs, tasks, until })
}

fn awaited(state: &State, id: JobId) -> Vec<&Allocation> {
    let promise = state.promises.get(&id).filter(|promise| !promise.grows);
    let awaited = promise.into_iter().flat_map(|promise| &promise.waits_for);
    awaited.filter_map(|id| state.allocations.get(id)).collect()
}

/// When a task is over at the latest: a gang may run on without it.
fn over(state: &State, held: &Allocation) -> Option<Time> {
    let goes_alone = held.state == AllocationState::Stopping
        && state.run(held.job).is_some_and(|run| run.stopping.is_none());
    if !goes_alone {
        return expected_end(state, held.job);
    }
    held.stops_by.filter(|_| held.leaves()).map(|by| by.max(state.now))
}
