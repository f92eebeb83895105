//! Deciding on holds: those of users, and those of administrators, which only administrators take back.

use super::{Person, Rejection, mine};
use crate::event::Event;
use crate::id::JobId;
use crate::model::job::JobState;
use crate::state::{ArrayRuns, Job, Run, Runs, State};

pub(super) fn hold(state: &State, id: JobId, by: &Person) -> Result<Vec<Event>, Rejection> {
    let job = mine(state, id, by)?;
    let held = match (&job.runs, id.member) {
        (Runs::Array(array), None) => hold_array(state, (job, array), by),
        _ => match job.run(id.member) {
            Some(run) if run.is_active() => {
                let what = "only a waiting job can be held; cancel ends it";
                return Err(Rejection::WrongState { job: id, state: run.state, what });
            }
            Some(run) if run.state == JobState::Held && !gives_in(job, &run.held_by, by) => Vec::new(),
            _ => vec![Event::Held { job: id, by: by.name.clone() }],
        },
    };
    let taken_back = if held.is_empty() { Vec::new() } else { revoked(state, id) };
    Ok(taken_back.into_iter().chain(held).collect())
}

/// Holds all members that wait. Members that an administrator holds stay held by the administrator.
fn hold_array(state: &State, (job, array): (&Job, &ArrayRuns), by: &Person) -> Vec<Event> {
    let held = |job| Event::Held { job, by: by.name.clone() };
    let gives_in = |holder| gives_in(job, holder, by);
    let any_gives_in = gives_in(&array.held) && !array.fresh.is_empty()
        || array.touched.values().any(|run| gives_in(&run.held_by));
    if !any_gives_in && job.waiting_members().next().is_none() {
        return Vec::new();
    }
    if stays(state, (job, &array.held), by) {
        let waiting = array.touched.iter().filter(|(_, run)| run.state == JobState::Pending);
        return waiting.map(|(member, _)| held(JobId::member(job.number, *member))).collect();
    }
    std::iter::once(held(job.id())).chain(held_still(state, (job, array), by)).collect()
}

pub(super) fn release(state: &State, id: JobId, by: &Person) -> Result<Vec<Event>, Rejection> {
    let job = mine(state, id, by)?;
    let released = Event::Released { job: id, by: by.name.clone() };
    if let (Runs::Array(array), None) = (&job.runs, id.member) {
        let still = held_still(state, (job, array), by);
        let fresh_stay = !array.fresh.is_empty() && stays(state, (job, &array.held), by);
        let held = array.touched.values().filter(|run| run.state == JobState::Held).count();
        let none_goes = !still.is_empty() && held == still.len() && array.held.is_none();
        return match fresh_stay || none_goes {
            true => Err(Rejection::HeldByAdmin(id)),
            false => Ok(std::iter::once(released).chain(still).collect()),
        };
    }
    match job.run(id.member) {
        Some(run) if run.state != JobState::Held => {
            Err(Rejection::WrongState { job: id, state: run.state, what: "only a held job can be released" })
        }
        Some(run) if stays(state, (job, &run.held_by), by) => Err(Rejection::HeldByAdmin(id)),
        _ => Ok(vec![released]),
    }
}

/// Whether a hold stays whatever the person does: what an administrator holds, its user cannot release.
fn stays(state: &State, (job, holder): (&Job, &Option<String>), by: &Person) -> bool {
    holder.as_ref().is_some_and(|holder| *holder != by.name && *holder != job.owner.name)
        && !by.administers(state, &job.spec.queue)
}

/// Whether the person takes a hold over: an administrator may hold instead what its user holds.
fn gives_in(job: &Job, holder: &Option<String>, by: &Person) -> bool {
    holder.as_ref().is_some_and(|holder| *holder == job.owner.name && *holder != by.name)
}

/// Holds again the members that stay held whatever the person does to their array: what is done to an array is done to all its members.
fn held_still(state: &State, (job, array): (&Job, &ArrayRuns), by: &Person) -> Vec<Event> {
    let still = |(member, run): (&u32, &Run)| {
        let holder = run.held_by.clone().filter(|_| stays(state, (job, &run.held_by), by))?;
        Some(Event::Held { job: JobId::member(job.number, *member), by: holder })
    };
    array.touched.iter().filter(|(_, run)| run.state == JobState::Held).filter_map(still).collect()
}

/// The promises to a job, or to the members of an array, that are taken back before it is held.
fn revoked(state: &State, id: JobId) -> Vec<Event> {
    let meant = |job: &&JobId| job.number == id.number && (id.member.is_none() || **job == id);
    state.promises.keys().filter(meant).map(|job| Event::Revoked { job: *job }).collect()
}
