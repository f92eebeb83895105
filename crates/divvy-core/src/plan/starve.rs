//! Before all turns: once in `starve_after` the job that has not run for the longest time gets a place, and keeps it for the
//! `quantum`. It takes what it needs from those that give way, its own queue's first, and leaves to others what is guaranteed to
//! them.

use std::collections::BTreeSet;

use super::fair::{By, Fair};
use super::order;
use super::place;
use super::preempt::keeps_running;
use super::settle::held_by;
use super::trial::Trial;
use super::{Place, Plan, Verdicts, choose::Runner};
use crate::event::Event;
use crate::id::{ClassId, JobId};
use crate::model::job::Cause;
use crate::snapshot::{ClassView, RunView, Running, Waiting};
use crate::state::{Job, State};
use crate::time::Time;

/// How many classes are tried in a cycle: for some no job can be helped, which only a look at all running jobs tells.
const MOST_CLASSES: usize = 32;

/// Whether a job may have to give way to one that has not run for long: it loses nothing but a restart, or has not lost its
/// work in that way before. Otherwise two jobs that cannot save their work could take each other's places and never be done.
pub(super) fn may_take(state: &State, id: JobId) -> bool {
    let Some((job, run)) = state.jobs.get(&id.number).zip(state.run(id)) else { return false };
    !run.loses_all(&job.spec) || run.last_end.as_ref().is_none_or(|end| end.cause != Cause::Starved)
}

/// The jobs that have not run for long enough, the longest first: one of each class.
fn starving<'a>(state: &'a State, waiting: &'a Waiting, now: Time) -> impl Iterator<Item = &'a Job> {
    // A job that could not be helped before can be only once something has become free, or time has counted as that.
    let may = state.freed && state.may_relieve(now);
    let after = state.policy.starve_after().filter(|_| may);
    let longest = after.into_iter().flat_map(move |after| waiting.idle_since(now - after));
    let mut seen: BTreeSet<ClassId> = BTreeSet::new();
    let first = longest.filter_map(|number| state.jobs.get(&number));
    let first = first.filter(move |job| seen.insert(job.class));
    first.take(MOST_CLASSES)
}

/// Gives the first of them that can have one a place, where jobs give way by least loss.
pub(super) fn relieve(fair: &mut Fair, waiting: &Waiting, plan: &mut Plan) -> Option<JobId> {
    let mut starving = starving(fair.trial.state, waiting, fair.now);
    let relieved = starving.find_map(|job| start(fair, job, waiting.classes.get(&job.class)?))?;
    plan.ends.insert(0, Event::Relieved { job: relieved });
    Some(relieved)
}

fn start(fair: &mut Fair, job: &Job, class: &ClassView) -> Option<JobId> {
    let spec = &job.spec;
    let queue = fair.shares.place(spec.stand());
    let asked = fair.shares.asked(spec);
    fair.shares.allows(queue, &asked, spec).ok()?;
    let id = place::next_member(fair.trial, job)?;
    if let Ok(closed) = fair.shares.closed(queue, spec) {
        fair.trial.not_lent = closed;
        match place::place_of_shape(fair.trial, (spec, class.shape)) {
            Ok(placements) => {
                let taken = fair.shares.counted(fair.trial.state, placements.iter());
                fair.shares.charge(queue, &taken, (1, !spec.preemptible));
                fair.trial.note_member(id);
                fair.places.push(Place::new(id, placements));
                return Some(id);
            }
            Err(reason) if !reason.may_be_taken_for() => return None,
            Err(_) => {}
        }
    }
    fair.take_places((queue, By::Starving), (id, spec), class).then_some(id)
}

/// Forgets why a class waited once its last job has got a place.
pub(super) fn forget_reason(trial: &Trial, waiting: &Waiting, id: JobId, verdicts: &mut Verdicts) {
    let Some(job) = trial.state.jobs.get(&id.number) else { return };
    let is_last = waiting.classes.get(&job.class).is_some_and(|view| view.jobs.len() == 1);
    if is_last && place::next_member(trial, job).is_none() {
        verdicts.insert(job.class, None);
    }
}

/// The job that gets a place by the walk, and the jobs that give way for it.
pub(super) struct Relieved<'a> {
    pub(super) place: Place,
    pub(super) stopped: Vec<Runner<'a>>,
}

/// Gives the first of them that can have one a place, where jobs give way by the walk: in the places of the last in the order.
pub(super) fn relieve_by_walk<'a>(
    trial: &mut Trial<'a>,
    (waiting, running): (&Waiting, &'a Running),
    now: Time,
    plan: &mut Plan,
) -> Option<Relieved<'a>> {
    let state = trial.state;
    let ending = plan.ending();
    let mut runners: Vec<Runner> = Vec::new();
    let mut is_known = false;
    let found = starving(state, waiting, now).find_map(|job| {
        if !std::mem::replace(&mut is_known, true) {
            runners = those_who_may_go(state, running, (now, &ending));
        }
        walk_to(trial, job, &runners)
    })?;
    plan.ends.insert(0, Event::Relieved { job: found.place.job });
    Some(found)
}

/// The running jobs that may go, the last in the order first.
fn those_who_may_go<'a>(
    state: &State,
    running: &'a Running,
    (now, ending): (Time, &BTreeSet<JobId>),
) -> Vec<Runner<'a>> {
    let goes = |job: &JobId, view: &RunView| {
        view.placed_at < now && !view.is_cooling(now) && !ending.contains(job) && may_take(state, *job)
    };
    let goes = running.jobs.iter().filter(|(job, view)| goes(job, view));
    let runner = |(job, view): (&JobId, &'a RunView)| Runner {
        place: order::of_running(&state.policy, *job, view, now),
        job: *job,
        view,
    };
    let mut runners: Vec<Runner> = goes.map(runner).collect();
    runners.sort_unstable_by_key(|runner| std::cmp::Reverse(runner.place));
    runners
}

fn walk_to<'a>(trial: &mut Trial<'a>, job: &Job, runners: &[Runner<'a>]) -> Option<Relieved<'a>> {
    let (state, mark) = (trial.state, trial.mark());
    let id = place::next_member(trial, job)?;
    let mut released: Vec<Runner> = Vec::new();
    let mut placed = place::place_spec(trial, &job.spec);
    for runner in runners {
        if placed.as_ref().map_or_else(|reason| !reason.may_be_taken_for(), |_| true) {
            break;
        }
        held_by(state, &runner.view.live).for_each(|held| trial.release(held, &runner.view.queue));
        released.push(*runner);
        placed = place::place_spec(trial, &job.spec);
    }
    let Ok(placements) = placed else {
        trial.roll_back_to(mark);
        return None;
    };
    trial.note_member(id);
    let stopped = released.into_iter().rev().filter(|runner| !keeps_running(trial, runner)).collect();
    Some(Relieved { place: Place::new(id, placements), stopped })
}
