//! The planner: a snapshot and a policy give a plan. See `README.md` beside this file.

mod diagnose;
mod expire;
mod filter;
mod order;
mod place;
mod score;
mod trial;

use std::collections::BTreeMap;

use crate::event::Event;
use crate::id::{ClassId, JobId};
use crate::model::allocation::Placement;
use crate::model::job::JobSpec;
use crate::reason::Reason;
use crate::snapshot::Snapshot;
use crate::state::{State, fingerprint};
use crate::time::Time;

pub use filter::{Funnel, Step};

/// What a cycle decides. Nothing in it is left to the engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Attempts that are to stop, and waiting jobs that are over.
    pub ends: Vec<Event>,
    /// Jobs that get their devices.
    pub places: Vec<Place>,
    /// Classes whose reason has changed.
    pub judged: Vec<(ClassId, Option<Reason>)>,
}

/// A job and what its tasks get.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Which job (or member).
    pub job: JobId,
    /// One per task, by rank.
    pub placements: Vec<Placement>,
    /// Where the gang's tasks meet.
    pub port: u16,
}

/// What a cycle saw, for people and for tests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Classes skipped because nothing has happened that they wait for.
    pub skipped: usize,
    /// Jobs (arrays count once) that were tried.
    pub tried: usize,
}

impl Plan {
    /// The plan as events, in their order.
    pub fn into_events(self) -> Vec<Event> {
        let placed =
            |place: Place| Event::Placed { job: place.job, placements: place.placements, port: place.port };
        let judged = (!self.judged.is_empty()).then_some(Event::Judged { classes: self.judged });
        self.ends.into_iter().chain(self.places.into_iter().map(placed)).chain(judged).collect()
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty() && self.places.is_empty() && self.judged.is_empty()
    }

    /// The hash of all its decisions.
    pub fn digest(&self) -> u64 {
        let ends: Vec<(&str, JobId)> = self.ends.iter().filter_map(ended_job).collect();
        fingerprint(&(ends, &self.places, &self.judged))
    }
}

fn ended_job(event: &Event) -> Option<(&'static str, JobId)> {
    match event {
        Event::Stopping { job, .. } | Event::Dropped { job, .. } => Some((event.kind(), *job)),
        _ => None,
    }
}

/// Plans one cycle. The snapshot is used as a scratch pad and left as it was.
pub fn plan(state: &State, snapshot: &mut Snapshot, now: Time) -> (Plan, Report) {
    let mut plan = Plan { ends: expire::expire(state, snapshot, now), ..Plan::default() };
    let mut report = Report::default();
    let mut verdicts: BTreeMap<ClassId, Option<Reason>> = BTreeMap::new();
    let mut line = order::Line::new(&snapshot.waiting);
    let mut trial = trial::Trial::new(state, snapshot);
    while let Some((key, class)) = line.take() {
        // Nothing has become free since this class was judged: the verdict stands (L10).
        if !state.freed && state.verdicts.contains_key(&class) {
            report.skipped += 1;
            continue;
        }
        report.tried += 1;
        match place::place_members(&mut trial, key.1, &mut plan.places) {
            Ok(()) => {
                verdicts.insert(class, None);
                line.admit_next(trial.waiting(), class, key);
            }
            Err(reason) => drop(verdicts.insert(class, Some(reason))),
        }
    }
    trial.roll_back_to(0);
    plan.judged = judge(state, snapshot, verdicts);
    (plan, report)
}

/// The reasons that have changed: of classes that were tried, and of those in which nobody waits any more.
fn judge(
    state: &State,
    snapshot: &Snapshot,
    verdicts: BTreeMap<ClassId, Option<Reason>>,
) -> Vec<(ClassId, Option<Reason>)> {
    let left = state
        .verdicts
        .keys()
        .filter(|class| !snapshot.waiting.classes.contains_key(class))
        .map(|class| (*class, None));
    let changed = verdicts.into_iter().filter(|(class, reason)| state.verdicts.get(class) != reason.as_ref());
    let mut judged: Vec<_> = left.chain(changed).collect();
    judged.sort_unstable_by_key(|(class, _)| *class);
    judged
}

/// Whether a job fits an empty pool (the snapshot must be an emptied one), or why not.
pub fn fits_empty(empty: &Snapshot, spec: &JobSpec) -> Result<(), Reason> {
    diagnose::fits_empty(empty, spec)
}

/// All that keeps a job of this shape from starting now, by capacity and by limits, and its way through the devices.
pub fn blockers(state: &State, snapshot: &Snapshot, spec: &JobSpec) -> (Vec<Reason>, Funnel) {
    diagnose::blockers(state, snapshot, spec)
}

/// Where a job of this shape would start now; nothing is changed.
pub fn would_place(state: &State, snapshot: &mut Snapshot, spec: &JobSpec) -> Result<Vec<Placement>, Reason> {
    let mut trial = trial::Trial::new(state, snapshot);
    let placed = place::place_spec(&mut trial, spec);
    trial.roll_back_to(0);
    placed
}
