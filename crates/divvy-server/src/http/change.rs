//! Changes of jobs: cancel, hold, release, priority, and the notes that a job sends about itself.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State as Shared};
use divvy_api::{Changed, JobChange, Problem};
use divvy_core::decide::{Command, Person, Rejection};
use divvy_core::id::JobId;
use divvy_core::model::job::JobState;
use divvy_core::state::{Job, Runs};

use super::answer::{Answer, Refused, ok, vanished};
use super::caller::Caller;
use super::show;
use crate::control::{Refusal, Request};
use crate::pool::Pool;
use crate::wire::{incoming, refusal, row};

/// Ends a job: it is dropped if it waits, and stopped if it runs.
#[utoipa::path(post, path = "/v1/jobs/{id}/cancel", tag = "jobs", params(("id" = String, Path, description = "12, 12_3, or an array as a whole")),
    responses((status = 200, body = Changed), (status = 403, body = Problem, content_type = "application/problem+json"),
        (status = 404, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn cancel(
    Shared(pool): Shared<Arc<Pool>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    change(pool, caller, &id, Command::Cancel, |_| true).await
}

/// Lets a waiting job wait until it is released.
#[utoipa::path(post, path = "/v1/jobs/{id}/hold", tag = "jobs", params(("id" = String, Path, description = "12, 12_3, or an array as a whole")),
    responses((status = 200, body = Changed), (status = 403, body = Problem, content_type = "application/problem+json"),
        (status = 404, body = Problem, content_type = "application/problem+json"), (status = 409, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn hold(Shared(pool): Shared<Arc<Pool>>, caller: Caller, Path(id): Path<String>) -> Answer {
    change(pool, caller, &id, Command::Hold, |state| state == JobState::Pending).await
}

/// Lets a held job wait for its turn again.
#[utoipa::path(post, path = "/v1/jobs/{id}/release", tag = "jobs", params(("id" = String, Path, description = "12, 12_3, or an array as a whole")),
    responses((status = 200, body = Changed), (status = 403, body = Problem, content_type = "application/problem+json"),
        (status = 404, body = Problem, content_type = "application/problem+json"), (status = 409, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn release(
    Shared(pool): Shared<Arc<Pool>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    change(pool, caller, &id, Command::Release, |state| state == JobState::Held).await
}

/// Notes that a running job's work up to now is safe: a stop loses only what comes after.
#[utoipa::path(post, path = "/v1/jobs/{id}/checkpointed", tag = "jobs", params(("id" = String, Path, description = "12, or 12_3")),
    responses((status = 200, body = Changed), (status = 403, body = Problem, content_type = "application/problem+json"),
        (status = 404, body = Problem, content_type = "application/problem+json"), (status = 409, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn checkpointed(
    Shared(pool): Shared<Arc<Pool>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    change(pool, caller, &id, Command::Checkpointed, |state| state == JobState::Running).await
}

/// Gives a job, or a whole array, another priority.
#[utoipa::path(post, path = "/v1/jobs/{id}/set", tag = "jobs", params(("id" = String, Path, description = "12, or an array as a whole")), request_body = JobChange,
    responses((status = 200, body = Changed), (status = 400, body = Problem, content_type = "application/problem+json"),
        (status = 403, body = Problem, content_type = "application/problem+json"), (status = 404, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn set(
    Shared(pool): Shared<Arc<Pool>>,
    caller: Caller,
    Path(id): Path<String>,
    body: Bytes,
) -> Answer {
    let asked: JobChange = divvy_api::read::json(&body).map_err(Problem::from)?;
    let priority = incoming::read_priority(&asked.priority)?;
    change(pool, caller, &id, |id, by| Command::Prioritise(id, priority, by), |state| !state.is_ended()).await
}

/// Gives the command and returns what became of the job. `concerns` tells which states it can change.
async fn change(
    pool: Arc<Pool>,
    caller: Caller,
    id: &str,
    command: impl FnOnce(JobId, Person) -> Command,
    concerns: fn(JobState) -> bool,
) -> Answer {
    let id = show::read_id(id)?;
    let before = {
        let controller = pool.controller.read().await;
        controller.state().jobs.get(&id.number).map_or(0, |job| count(job, id, concerns))
    };
    let person = caller.person(&pool);
    let taken = pool.requests.ask(|reply| Request::Command(Box::new(command(id, person)), reply)).await;
    match taken {
        Ok(answer) => {
            let changed = answer.events > 0;
            let (state, members) = (state_of(&pool, id).await?, if changed { before } else { 0 });
            ok(&Changed { id: id.to_string(), state: row::job_state(state), changed, members })
        }
        Err(Refusal::Rejected(Rejection::NoSuchJob(_))) => {
            // A job that has ended still exists, and stays as it is.
            let state = state_of(&pool, id).await?;
            ok(&Changed { id: id.to_string(), state: row::job_state(state), changed: false, members: 0 })
        }
        Err(refused) => Err(refusal::problem(refused).into()),
    }
}

/// Returns how many members the command applies to.
fn count(job: &Job, id: JobId, concerns: fn(JobState) -> bool) -> u64 {
    match (&job.runs, id.member) {
        (Runs::Array(array), None) => {
            let fresh = if array.held.is_some() { JobState::Held } else { JobState::Pending };
            let touched =
                array.touched.values().filter(|run| concerns(run.state) && run.stopping.is_none()).count()
                    as u64;
            touched + if concerns(fresh) { array.fresh.len() } else { 0 }
        }
        _ => u64::from(job.run(id.member).is_some_and(|run| concerns(run.state))),
    }
}

/// Returns where a job is now; for an array as a whole, its furthest member that has not ended.
async fn state_of(pool: &Arc<Pool>, id: JobId) -> Result<JobState, Refused> {
    {
        let controller = pool.controller.read().await;
        if let Some(job) = controller.state().jobs.get(&id.number) {
            let run = match (&job.runs, id.member) {
                (Runs::Array(array), None) => {
                    let furthest = array.touched.values().map(|run| run.state).max();
                    let fresh = if array.held.is_some() { JobState::Held } else { JobState::Pending };
                    Some(furthest.unwrap_or(fresh))
                }
                _ => job.run(id.member).map(|run| run.state),
            };
            if let Some(state) = run {
                return Ok(state);
            }
        }
    }
    if let Some(ending) = pool.watchers.ending(id) {
        return Ok(ending.state);
    }
    if let Some(last) = show::past(pool, id).await?.last() {
        return Ok(last.state);
    }
    let asked = pool.clone();
    let summary = pool.blocking(move || asked.reader.summary(id.number)).await.ok_or_else(vanished)?;
    match summary.map_err(|error| refusal::store(&error))? {
        (count, failed) if count > 0 && id.member.is_none() => {
            Ok(failed.map_or(JobState::Completed, |attempt| attempt.state))
        }
        _ => Err(refusal::no_such_job(&id.to_string()).into()),
    }
}
