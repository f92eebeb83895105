//! Phase 4, preempt, by `walk`: jobs are walked in the order of the policy, running and waiting alike, and chosen while the
//! devices of the pool last; running ones that are not chosen give way, but only where others take their places (L8).

use std::collections::{BTreeMap, BTreeSet};

use super::choose::{self, Choice, Runner};
use super::order::{self, Head, Line};
use super::place;
use super::quicken;
use super::settle::{self, Leaver, held_by};
use super::share::Closed;
use super::starve;
use super::stuck;
use super::trial::Trial;
use super::{Place, Plan};
use crate::id::{ClassId, JobId};
use crate::model::allocation::Placement;
use crate::model::job::Cause;
use crate::reason::Reason;
use crate::snapshot::{OrderKey, Running, Waiting};
use crate::state::State;
use crate::time::Time;

/// Verdicts of the classes that were tried.
type Verdicts = BTreeMap<ClassId, Option<Reason>>;

/// Chooses, places and stops.
pub(super) fn walk<'a>(
    trial: &mut Trial<'a>,
    (waiting, running): (&'a Waiting, &'a Running),
    now: Time,
    plan: &mut Plan,
    verdicts: &mut Verdicts,
) {
    let state = trial.state;
    if waiting.is_empty() && !running.may_quicken(state) {
        return;
    }
    let relieved = starve::relieve_by_walk(trial, (waiting, running), now, plan);
    let (mut places, mut gone) = (Vec::new(), plan.ending());
    let mut leavers: Vec<Leaver> = Vec::new();
    if let Some(starve::Relieved { place, stopped }) = relieved {
        gone.extend(stopped.iter().map(|runner| runner.job));
        let by = Some(place.job);
        leavers.extend(stopped.iter().map(|runner| Leaver { cause: Cause::Starved, by, ..leaver(runner) }));
        places.push(place);
    }
    let chosen = choose::choose(state, trial.capacity(), (waiting, running), (now, &gone));
    let victims = || chosen.choices.iter().filter_map(Choice::gives_way);
    for victim in victims() {
        held_by(state, &victim.view.live).for_each(|placement| trial.release(placement, &victim.view.queue));
    }
    let mut stays: BTreeSet<JobId> = victims().map(|victim| victim.job).collect();
    let stopped = start_chosen(trial, &chosen.choices, &mut places, verdicts);
    fill(trial, (waiting, &stopped), now, &mut places, verdicts);
    stays.extend(gone);
    stays.extend(places.iter().map(|place| place.job));
    let moves = quicken::quicken(trial, running, now, &stays, &|_| Some(Closed::default()));
    leavers.extend(stopped.iter().map(leaver));
    for moved in moves {
        leavers.push(moved.leaver());
        places.push(Place::new(moved.job, moved.placements));
    }
    places.iter_mut().flat_map(|place| &mut place.placements).for_each(|placement| trial.refresh(placement));
    let early = places.len();
    settle::settle(trial, (&leavers, &[]), (places, early, Vec::new()), plan);
}

/// Places the waiting jobs that are chosen, in order, and returns the running ones that give way: those whose places others have taken.
/// One that loses all its work keeps its places as soon as its turn comes, if nobody before it has taken any: a job that was chosen by
/// count and did not fit would leave them to one that stands behind, and two that stand alike could take them from each other for ever.
fn start_chosen<'a>(
    trial: &mut Trial<'a>,
    choices: &[Choice<'a>],
    places: &mut Vec<Place>,
    verdicts: &mut Verdicts,
) -> Vec<Runner<'a>> {
    let nobody_goes = !choices.iter().any(|choice| choice.gives_way().is_some());
    let mut stopped = Vec::new();
    for choice in choices {
        match *choice {
            Choice::Starts(head, _) if nobody_goes && limit_stands(trial.state, head.class) => {}
            Choice::Starts(head, most) => drop(place_waiting(trial, (head, most), places, verdicts)),
            Choice::GivesWay(runner) if runner.view.loses_all() && keeps_running(trial, &runner) => {}
            Choice::GivesWay(runner) => stopped.push(runner),
        }
    }
    stopped.retain(|runner| !keeps_running(trial, runner));
    stopped
}

/// Whether a class waits for a limit of its queue still: nothing was freed since it was judged.
fn limit_stands(state: &State, class: ClassId) -> bool {
    !state.freed && matches!(state.verdicts.get(&class), Some(Reason::QueueLimit(..) | Reason::UserLimit(..)))
}

/// A job that goes because of the order, for whichever job gets its places.
fn leaver<'a>(runner: &Runner<'a>) -> Leaver<'a> {
    let view = runner.view;
    let (job, queue, live) = (runner.job, &view.queue, &view.live);
    Leaver { job, queue, live, whole: true, cause: Cause::Order, by: None, grows: false }
}

/// Lets a job that was released keep what it holds, if no other job took it.
pub(super) fn keeps_running(trial: &mut Trial, victim: &Runner) -> bool {
    let held: Vec<&Placement> = held_by(trial.state, &victim.view.live).collect();
    trial.keep(&held, &victim.view.queue)
}

/// Places at most so many members of a job, unless its class has been found not to fit.
fn place_waiting(
    trial: &mut Trial,
    (Head { class, key, view, .. }, most): (Head, usize),
    places: &mut Vec<Place>,
    verdicts: &mut Verdicts,
) -> bool {
    if matches!(verdicts.get(&class), Some(Some(_))) {
        return false;
    }
    let state = trial.state;
    let Some(job) = state.jobs.get(&key.number) else { return true };
    // An array may have started all that may start: then none of it waits for anything.
    if place::next_member(trial, job).is_none() {
        return true;
    }
    let judged = state.verdicts.get(&class);
    let stands = |reason: &&Reason| {
        place::is_still_busy(trial, reason, &job.spec) || stuck::is_stuck(trial, class, reason, &job.spec)
    };
    if let Some(reason) = judged.filter(stands) {
        verdicts.insert(class, Some(reason.clone()));
        return false;
    }
    // Where nothing has become free, a verdict stands: then the reason is not needed.
    let asked = state.freed || judged.is_none();
    trial.name_reasons(asked);
    let placed = place::place_members(trial, (job, view.shape), most, places);
    trial.name_reasons(true);
    let fits = placed.is_ok();
    placed.as_ref().err().into_iter().for_each(|reason| stuck::note(trial, class, (reason, asked)));
    verdicts.insert(class, placed.err());
    fits
}

/// Gives what is left to the jobs that fit, in order: those that wait, and those that are being stopped.
fn fill(
    trial: &mut Trial,
    (waiting, stopped): (&Waiting, &[Runner]),
    now: Time,
    places: &mut Vec<Place>,
    verdicts: &mut Verdicts,
) {
    let state = trial.state;
    let placed: BTreeSet<u64> = places.iter().map(|place| place.job.number).collect();
    let mut line = Line::new(waiting, &state.policy, now);
    let mut moving: Vec<(OrderKey, &Runner)> = stopped
        .iter()
        .map(|runner| (order::of_stopped(&state.policy, runner.job, runner.view, now), runner))
        .collect();
    moving.sort_unstable_by_key(|(key, _)| *key);
    let mut moving = moving.into_iter().peekable();
    loop {
        let waits = line.first();
        if let Some((_, runner)) = moving.next_if(|(key, _)| waits.is_none_or(|first| *key < first)) {
            move_stopped(trial, runner, places, verdicts);
            continue;
        }
        let Some(head) = line.take() else { return };
        let Head { class, key, .. } = head;
        let most = if placed.contains(&key.number) && !is_array(state, key.number) { 0 } else { usize::MAX };
        if stopped.is_empty() && limit_stands(state, class) {
            // Those of the class that were chosen may have got a place; what kept the class back keeps back the rest of it.
            let verdict = verdicts.entry(class).or_default();
            *verdict = verdict.take().or_else(|| state.verdicts.get(&class).cloned());
        } else if most == 0 || place_waiting(trial, (head, most), places, verdicts) {
            line.admit_next(class, key);
        }
    }
}

fn is_array(state: &State, number: u64) -> bool {
    state.jobs.get(&number).is_some_and(|job| matches!(job.runs, crate::state::Runs::Array(_)))
}

/// Finds a new place for a job that is being stopped.
fn move_stopped(trial: &mut Trial, runner: &Runner, places: &mut Vec<Place>, verdicts: &Verdicts) {
    if matches!(verdicts.get(&runner.view.class), Some(Some(_))) {
        return;
    }
    let job = trial.state.jobs.get(&runner.job.number);
    let Some(job) = job.filter(|_| !trial.state.is_held_up(runner.job)) else { return };
    if let Ok(placements) = place::place_spec(trial, &job.spec) {
        places.push(Place::new(runner.job, placements));
    }
}
