//! The calendar: drains, and nodes or devices that are kept for queues.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State as Shared;
use divvy_api::{self as api, EndReservation, Problem, ProblemCode, Reserve, paths, read};
use divvy_core::decide::{Command, decide, kept_beyond_limit};
use divvy_core::event::Event;
use divvy_core::state::State;

use super::answer::{Answer, ok, vanished};
use super::caller::Caller;
use crate::clock;
use crate::control::Request;
use crate::pool::Pool;
use crate::wire::{refusal, reservation};

/// Lists the reservations, the first to begin first.
#[utoipa::path(get, path = paths::RESERVATIONS, tag = "reservations", responses((status = 200, body = Vec<api::Reservation>)))]
pub(super) async fn list(Shared(pool): Shared<Arc<Pool>>) -> Answer {
    ok(&reservation::all(pool.controller.read().await.state()))
}

/// Keeps nodes or devices from a moment on.
#[utoipa::path(post, path = paths::RESERVATIONS, tag = "reservations", request_body = Reserve,
    responses((status = 200, body = api::Reservation), (status = 403, body = Problem, content_type = paths::PROBLEM_TYPE),
        (status = 422, body = Problem, content_type = paths::PROBLEM_TYPE)))]
pub(super) async fn reserve(Shared(pool): Shared<Arc<Pool>>, caller: Caller, body: Bytes) -> Answer {
    let asked: Reserve = read::json(&body).map_err(Problem::from)?;
    let wanted = reservation::wanted(&asked, clock::now())?;
    let _turn = pool.changing.lock().await;
    let known = ids(&pool).await;
    let command = Box::new(Command::Reserve(Box::new(wanted), caller.person(&pool)));
    let there = expected(pool.controller.read().await.state(), &command)?;
    pool.requests.ask(|reply| Request::Command(command, reply)).await.map_err(refusal::problem)?;
    let controller = pool.controller.read().await;
    let made = reservation::all(controller.state()).into_iter().find(|kept| !known.contains(&kept.id));
    let mut made = made.ok_or_else(vanished)?;
    // Who was sent off may be gone by now.
    if made.evicts && made.state == api::ReservationState::Active {
        let now = made.jobs.clone();
        made.jobs.extend(there.into_iter().filter(|job| !now.contains(job)));
    }
    ok(&made)
}

/// Returns the jobs on what will be kept, for which it is not.
///
/// # Errors
/// Refuses to keep more for a queue than its limits let its jobs hold.
fn expected(state: &State, command: &Command) -> Result<Vec<String>, Problem> {
    // What is refused for other reasons is refused for these.
    let events = decide(state, command).unwrap_or_default();
    let made = events.iter().find_map(|event| match event {
        Event::ReservationMade(made) => Some(made),
        _ => None,
    });
    match made.and_then(|made| kept_beyond_limit(state, made)) {
        Some(beyond) => Err(Problem::new(ProblemCode::BadSpec, beyond).with_field("gpus")),
        None => Ok(made.map_or_else(Vec::new, |made| reservation::one(state, made).jobs)),
    }
}

/// Takes reservations back; gives them as they were.
#[utoipa::path(post, path = paths::RESERVATIONS_END, tag = "reservations", request_body = EndReservation,
    responses((status = 200, body = Vec<api::Reservation>), (status = 403, body = Problem, content_type = paths::PROBLEM_TYPE),
        (status = 422, body = Problem, content_type = paths::PROBLEM_TYPE)))]
pub(super) async fn end(Shared(pool): Shared<Arc<Pool>>, caller: Caller, body: Bytes) -> Answer {
    let asked: EndReservation = read::json(&body).map_err(Problem::from)?;
    let person = caller.person(&pool);
    let command = match (asked.id, asked.drained) {
        (Some(id), None) => Command::EndReservation(id, person),
        (None, Some(target)) => Command::Undrain(target, person),
        _ => return Err(crate::wire::incoming::bad("id", "name a reservation, or what is drained").into()),
    };
    let _turn = pool.changing.lock().await;
    let before = reservation::all(pool.controller.read().await.state());
    let command = Box::new(command);
    pool.requests.ask(|reply| Request::Command(command, reply)).await.map_err(refusal::problem)?;
    let left = ids(&pool).await;
    ok(&before.into_iter().filter(|kept| !left.contains(&kept.id)).collect::<Vec<_>>())
}

async fn ids(pool: &Pool) -> BTreeSet<u64> {
    let controller = pool.controller.read().await;
    controller.state().reservations.iter().map(|kept| kept.id).collect()
}
