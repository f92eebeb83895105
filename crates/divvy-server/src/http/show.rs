//! One job: its description, how its attempts ended, and why it waits.

use std::sync::Arc;

use axum::extract::{Path, State as Shared};
use divvy_api::{Explain, JobDetail, JobState, Problem, ProblemCode, Verdict};
use divvy_core::explain as reasons;
use divvy_core::id::JobId;
use divvy_core::model::attempt::Attempt;
use divvy_core::model::job::Submission;
use divvy_core::state::{Job, Runs, State};
use divvy_core::time::Time;
use serde::Serialize;
use utoipa::ToSchema;

use super::answer::{Answer, Refused, ok, vanished};
use super::caller::Caller;
use super::output;
use crate::clock;
use crate::pool::Pool;
use crate::wire::{detail, explain as words, refusal};

/// One job, and what only the end of a gang has to say.
#[derive(Serialize, ToSchema)]
struct Shown {
    #[serde(flatten)]
    detail: JobDetail,
    /// The task that wrote `last_lines`; null where there are none.
    last_lines_task: Option<u32>,
}

/// How many of the last lines of output `show` brings.
const LAST_LINES: usize = 20;

/// Shows one job, or one member of an array.
#[utoipa::path(get, path = "/v1/jobs/{id}", tag = "jobs", params(("id" = String, Path, description = "12, or 12_3")),
    responses((status = 200, body = Shown), (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "an array as a whole", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn show(Shared(pool): Shared<Arc<Pool>>, caller: Caller, Path(id): Path<String>) -> Answer {
    let id = read_id(&id)?;
    let open = open_detail(&pool, &caller, id).await?;
    let past = past(&pool, id).await?;
    let mut shown = match (open, past.last()) {
        (Some(detail), _) => Shown { detail, last_lines_task: None },
        (None, Some(last)) => ended(&pool, &caller, last).await,
        (None, None) => return Err(unknown(&pool, id).await?.into()),
    };
    let over = past.iter().map(detail::over);
    shown.detail.attempts.splice(0..0, over);
    ok(&shown)
}

async fn open_detail(pool: &Pool, caller: &Caller, id: JobId) -> Result<Option<JobDetail>, Refused> {
    let controller = pool.controller.read().await;
    let state = controller.state();
    let Some(job) = state.jobs.get(&id.number) else { return Ok(None) };
    if matches!(job.runs, Runs::Array(_)) && id.member.is_none() {
        return Err(whole_array(id).into());
    }
    let Some(run) = job.run(id.member) else { return Ok(None) };
    let private = pool.may_see(&caller.0, job.owner.uid);
    let mut detail = detail::open(state, job, (id, &run), private);
    let position = reasons::position(controller.snapshot(), job).filter(|_| !run.is_active());
    detail.job.position = position.map(|before| before as u64 + 1);
    Ok(Some(detail))
}

async fn ended(pool: &Arc<Pool>, caller: &Caller, last: &Attempt) -> Shown {
    let private = pool.may_see(&caller.0, last.uid);
    let submission = submission(pool, last.job).await;
    let mut detail = detail::ended(last, submission.as_ref(), private);
    let lines = if private { output::last_lines(pool, last, LAST_LINES).await } else { None };
    let (last_lines_task, last_lines) = lines.unzip();
    detail.last_lines = last_lines.unwrap_or_default();
    Shown { detail, last_lines_task }
}

/// Returns what was submitted; `None` where that is not kept: how a job ended is worth telling without it.
async fn submission(pool: &Arc<Pool>, id: JobId) -> Option<Submission> {
    let asked = pool.clone();
    let read = pool.blocking(move || asked.reader.submission(id.number)).await?;
    read.unwrap_or_else(|error| {
        tracing::warn!("what job {id} asked for cannot be read: {error}");
        None
    })
}

/// Why a job waits, where it runs, or how it ended.
#[utoipa::path(get, path = "/v1/jobs/{id}/explain", tag = "jobs", params(("id" = String, Path, description = "12, or 12_3")),
    responses((status = 200, body = Explain), (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "an array as a whole that has ended", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn explain(Shared(pool): Shared<Arc<Pool>>, Path(id): Path<String>) -> Answer {
    let id = read_id(&id)?;
    let past = past(&pool, id).await?;
    if let Some(explained) = open_explained(&pool, id, past.last()).await? {
        let explained = with_who_made_room(&pool, explained, past.last()).await?;
        return ok(&with_expected_start(&pool, explained).await?);
    }
    let submission = submission(&pool, id).await;
    let ended = words::ended(pool.controller.read().await.state(), &past, submission.as_ref());
    match ended {
        Some(ended) => ok(&ended),
        None => Err(unknown(&pool, id).await?.into()),
    }
}

/// Adds when a job that waits for room is expected to start.
async fn with_expected_start(pool: &Arc<Pool>, explained: Explain) -> Result<Explain, Refused> {
    let settled = matches!(explained.verdict, Verdict::Placed | Verdict::NoFit | Verdict::Ended);
    if settled || explained.state == Some(JobState::Held) {
        return Ok(explained);
    }
    let start = pool.expectations.of(pool, read_id(&explained.job)?).await;
    Ok(words::with_start(explained, start))
}

/// Adds the jobs that lost devices for a job, since it last waited; only for a job that has its own.
async fn with_who_made_room(
    pool: &Arc<Pool>,
    explained: Explain,
    last: Option<&Attempt>,
) -> Result<Explain, Refused> {
    let waited_from = last.map(|last| last.ended_at).or(explained.submitted_ms.map(Time));
    let (Verdict::Placed, Some(from)) = (&explained.verdict, waited_from) else { return Ok(explained) };
    let window = (from, explained.as_of_ms.map_or(Time(i64::MAX), Time));
    let (asked, id) = (pool.clone(), read_id(&explained.job)?);
    let read = pool.blocking(move || asked.reader.gave_way_to(id, window)).await.ok_or_else(vanished)?;
    let gave_way = read.map_err(|error| refusal::store(&error))?;
    let gone = gave_way.iter().filter_map(words::made_room);
    Ok(Explain { made_room: gone.chain(explained.made_room).collect(), ..explained })
}

/// Explains a job that has not ended, with how its last attempt ended.
async fn open_explained(
    pool: &Arc<Pool>,
    id: JobId,
    last: Option<&Attempt>,
) -> Result<Option<Explain>, Refused> {
    let (state, snapshot, noted) = {
        let controller = pool.controller.read().await;
        let (state, snapshot) = (controller.state(), controller.snapshot());
        let Some(job) = state.jobs.get(&id.number) else { return Ok(None) };
        let meant = member_meant(job, id);
        let Some(run) = job.run(meant.member) else { return Ok(None) };
        if run.is_active() {
            return Ok(Some(words::placed(state, snapshot, job, (meant, &run))));
        }
        // The search for a fix takes a while: the pool goes on meanwhile.
        (as_of_now(state), snapshot.clone(), controller.rooms().of(meant).copied())
    };
    let last = last.cloned();
    let explained = pool.blocking(move || {
        let job = state.jobs.get(&id.number)?;
        let meant = member_meant(job, id);
        let run = job.run(meant.member)?;
        let found = reasons::explain(&state, &snapshot, meant)?;
        let advice = reasons::advise(&state, &snapshot, meant);
        let displaced = last.and_then(|last| words::displaced(&last, advice.as_ref()));
        let waiting = words::waiting(&state, job, (meant, &run), (&found, advice.as_ref()));
        let room = reasons::room(&state, &snapshot, meant, noted.as_ref());
        Some(Explain { displaced, room: room.as_ref().and_then(words::room), ..waiting })
    });
    Ok(explained.await.ok_or_else(vanished)?)
}

/// A copy of what is known of the pool, with the time that has passed since the last event: what jobs have used meanwhile of their budgets counts.
pub(super) fn as_of_now(state: &State) -> State {
    let mut state = state.clone();
    state.pass(clock::now());
    state
}

/// Returns, for an array as a whole, its first member that waits, else the first that has not ended.
fn member_meant(job: &Job, id: JobId) -> JobId {
    let member = match (&job.runs, id.member) {
        (Runs::Array(_), None) => {
            job.waiting_members().next().or_else(|| job.open_members().next()).flatten()
        }
        (_, member) => member,
    };
    JobId { number: id.number, member }
}

/// Parses a job id in a path.
pub(super) fn read_id(text: &str) -> Result<JobId, Problem> {
    text.parse().map_err(|error: divvy_core::id::NotAJobId| {
        Problem::new(ProblemCode::BadSpec, error.to_string()).with_field("id")
    })
}

/// Returns the attempts of a job that are over.
pub(super) async fn past(pool: &Arc<Pool>, id: JobId) -> Result<Vec<Attempt>, Refused> {
    let asked = pool.clone();
    let read = pool.blocking(move || asked.reader.attempts(id)).await.ok_or_else(vanished)?;
    Ok(read.map_err(|error| refusal::store(&error))?)
}

/// Returns the problem with an id that names no job and no member: it may still be that of a whole array.
pub(super) async fn unknown(pool: &Arc<Pool>, id: JobId) -> Result<Problem, Refused> {
    let open = pool.controller.read().await.state().jobs.contains_key(&id.number);
    let asked = pool.clone();
    let known = pool.blocking(move || asked.reader.knows(id.number)).await.ok_or_else(vanished)?;
    let known = open || known.map_err(|error| refusal::store(&error))?;
    Ok(if known && id.member.is_none() { whole_array(id) } else { refusal::no_such_job(&id.to_string()) })
}

fn whole_array(id: JobId) -> Problem {
    let text = format!("{id} is an array, and each of its members is a job of its own");
    Problem::new(ProblemCode::BadSpec, text)
        .with_field("id")
        .with_fix(format!("name a member, such as {id}_0, or list them: divvy ps {id}"))
}
