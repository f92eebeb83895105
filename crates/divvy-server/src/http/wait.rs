//! Waiting for a job's end without polling.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State as Shared};
use divvy_api::{Problem, Waited};
use divvy_core::id::JobId;
use divvy_core::model::job::JobState;
use divvy_core::state::Runs;
use serde::Deserialize;
use tokio::time::Instant;

use super::answer::{Answer, Refused, Words, ok, vanished};
use super::show;
use crate::pool::Pool;
use crate::wire::{refusal, row};

/// How long a request waits for the job's end: the default, and the most.
const USUALLY_MS: u64 = 30_000;
const AT_MOST_MS: u64 = 300_000;

/// The query of a wait.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Patience {
    timeout_ms: Option<u64>,
}

/// Answers when the job (all members of an array) has ended, or when the time is over.
#[utoipa::path(get, path = "/v1/jobs/{id}/wait", tag = "jobs",
    params(("id" = String, Path, description = "12, 12_3, or an array as a whole"), ("timeout_ms" = Option<u64>, Query, description = "30000 if unsaid, at most 300000")),
    responses((status = 200, body = Waited), (status = 404, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn wait(
    Shared(pool): Shared<Arc<Pool>>,
    Path(id): Path<String>,
    Words(patience): Words<Patience>,
) -> Answer {
    let id = show::read_id(&id)?;
    let within = Duration::from_millis(patience.timeout_ms.unwrap_or(USUALLY_MS).min(AT_MOST_MS));
    let until = Instant::now() + within;
    let mut news = pool.watchers.subscribe(id.number);
    loop {
        match look(&pool, id).await? {
            waited if waited.ended => return ok(&waited),
            waited => {
                let timed = tokio::time::timeout_at(until, news.changed()).await;
                match timed {
                    Err(_) => return ok(&waited),
                    // This channel is closed: the next look tells, and a new channel takes its place.
                    Ok(Err(_)) => news = pool.watchers.subscribe(id.number),
                    Ok(Ok(())) => {}
                }
            }
        }
    }
}

/// Returns the state of a job, and how it ended if it has.
pub(super) async fn look(pool: &Arc<Pool>, id: JobId) -> Result<Waited, Refused> {
    if let Some(state) = open_state(pool, id).await {
        let state = row::job_state(state);
        return Ok(Waited {
            id: id.to_string(),
            state,
            ended: false,
            exit_code: None,
            signal: None,
            failed_task: None,
            last_end: None,
        });
    }
    if let Some(attempt) = pool.watchers.ending(id) {
        return Ok(row::waited(id, &attempt));
    }
    let asked = pool.clone();
    let past = pool.blocking(move || Ok((asked.reader.attempts(id)?, asked.reader.summary(id.number)?)));
    let (attempts, (count, failed)) =
        past.await.ok_or_else(vanished)?.map_err(|error| refusal::store(&error))?;
    let last = attempts.last().filter(|attempt| attempt.state.is_ended());
    match (last, failed) {
        (Some(last), _) => Ok(row::waited(id, last)),
        (None, Some(failed)) if id.member.is_none() => {
            Ok(Waited { failed_task: None, ..row::waited(id, &failed) })
        }
        (None, None) if id.member.is_none() && count > 0 => {
            let state = row::job_state(JobState::Completed);
            Ok(Waited {
                id: id.to_string(),
                state,
                ended: true,
                exit_code: Some(0),
                signal: None,
                failed_task: None,
                last_end: None,
            })
        }
        _ => Err(refusal::no_such_job(&id.to_string()).into()),
    }
}

async fn open_state(pool: &Pool, id: JobId) -> Option<JobState> {
    let controller = pool.controller.read().await;
    let job = controller.state().jobs.get(&id.number)?;
    match (&job.runs, id.member) {
        (Runs::Array(array), None) => {
            let fresh = if array.held.is_some() { JobState::Held } else { JobState::Pending };
            Some(array.touched.values().map(|run| run.state).max().unwrap_or(fresh))
        }
        (_, member) => job.run(member).map(|run| run.state),
    }
}
