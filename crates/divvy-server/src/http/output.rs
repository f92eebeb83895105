//! Output of a task, as bytes.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Path, State as Shared};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use divvy_api::{OutputQuery, Problem, ProblemCode, paths};
use divvy_core::id::JobId;
use divvy_core::model::attempt::Attempt;
use divvy_core::model::job::Owner;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::answer::{Answer, Refused, Words};
use super::caller::Caller;
use super::follow::{self, Follow, Step};
use super::show;
use crate::pool::Pool;

/// How many pieces may be under way to a client: a slow client holds up nobody and costs no more than these.
const PIECES_UNDER_WAY: usize = 4;

/// The output of a task: bytes, from `from` on, or the last `lines`; with `follow` until the job has ended for good.
#[utoipa::path(get, path = "/v1/jobs/{id}/output", tag = "jobs", params(("id" = String, Path, description = "12, or 12_3"), OutputQuery),
    responses((status = 200, description = "bytes; `x-divvy-offset` is the offset of the first", content_type = "application/octet-stream", body = Vec<u8>),
        (status = 403, body = Problem, content_type = "application/problem+json"), (status = 404, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn output(
    Shared(pool): Shared<Arc<Pool>>,
    caller: Caller,
    Path(id): Path<String>,
    Words(query): Words<OutputQuery>,
) -> Answer {
    let id = show::read_id(&id)?;
    let owner = allowed(&pool, &caller, id).await?;
    let rank = query.task.unwrap_or(0);
    let mut follow = Follow::new(pool, id, owner, (rank, query.from.unwrap_or(0)), query.follow).await?;
    if !follow.has_file() && (follow.is_over() || !query.follow) {
        let text = match follow.is_over() {
            true => format!(
                "no output of task {rank} of job {id} is there: it has not run, or its output is gone"
            ),
            false => format!("job {id} has not started, so task {rank} has no output yet"),
        };
        return Err(Problem::new(ProblemCode::NoOutput, text).with_fix(format!("divvy show {id}")).into());
    }
    let unreadable = |error: std::io::Error| {
        Problem::new(ProblemCode::NoOutput, format!("the output of job {id} cannot be read: {error}"))
    };
    if let Some(lines) = query.lines {
        follow.skip_to_last_lines(lines).map_err(unreadable)?;
    }
    let offset = follow.at().map_err(unreadable)?;
    let (sender, receiver) = mpsc::channel(PIECES_UNDER_WAY);
    let following = query.follow;
    tokio::spawn(async move { send(follow, following, &sender).await });
    Ok(bytes(offset, Body::from_stream(ReceiverStream::new(receiver))))
}

fn bytes(offset: u64, body: Body) -> Response {
    let kind = HeaderValue::from_static("application/octet-stream");
    let mut response = ([(header::CONTENT_TYPE, kind)], body).into_response();
    if let Ok(offset) = HeaderValue::from_str(&offset.to_string()) {
        response.headers_mut().insert(paths::OFFSET, offset);
    }
    response
}

/// Sends output until its end, or until nobody listens.
async fn send(mut follow: Follow, following: bool, to: &mpsc::Sender<std::io::Result<Bytes>>) {
    loop {
        let step = if following {
            tokio::select! { step = follow.next() => step, () = to.closed() => return }
        } else {
            let read = tokio::task::block_in_place(|| follow.read_on());
            read.map(|piece| piece.map_or(Step::Over, Step::Bytes))
        };
        let sent = match step {
            Ok(Step::Bytes(bytes)) => to.send(Ok(bytes)).await,
            Ok(Step::News) => Ok(()),
            Ok(Step::Over) => return,
            // The stream breaks off, so that the client knows that it did not get everything.
            Err(error) => {
                let _ = to.send(Err(error)).await;
                return;
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Returns the owner of a job whose output the caller may see.
pub(super) async fn allowed(pool: &Arc<Pool>, caller: &Caller, id: JobId) -> Result<Owner, Refused> {
    let open = {
        let controller = pool.controller.read().await;
        let job = controller.state().jobs.get(&id.number);
        job.filter(|job| job.run(id.member).is_some()).map(|job| Owner::clone(&job.owner))
    };
    let owner = match open {
        Some(owner) => owner,
        None => {
            let last = match pool.watchers.ending(id) {
                Some(ending) => Some(ending),
                None => show::past(pool, id).await?.pop(),
            };
            let Some(last) = last else { return Err(show::unknown(pool, id).await?.into()) };
            former(pool, &last).await
        }
    };
    if pool.may_see(&caller.0, owner.uid) {
        return Ok(owner);
    }
    Err(Problem::new(
        ProblemCode::NotYours,
        format!("job {id} belongs to {}: its output is theirs", owner.name),
    )
    .into())
}

/// Returns the user of a job that is over, with the user's present groups.
async fn former(pool: &Arc<Pool>, attempt: &Attempt) -> Owner {
    let (asked, uid) = (pool.clone(), attempt.uid);
    let found = pool
        .blocking(move || asked.people.remembered(uid).unwrap_or_else(|| asked.people.look_up(uid, uid)))
        .await;
    found.map_or_else(
        || Owner { name: attempt.user.clone(), uid, gid: uid, groups: vec![uid] },
        |user| user.owner,
    )
}

/// How many tasks are searched for last lines: a gang may have thousands.
const MOST_LOOKED_AT: usize = 8;

/// Returns the last lines of an attempt, and the task that wrote them: the first by rank that wrote any.
pub(super) async fn last_lines(
    pool: &Arc<Pool>,
    attempt: &Attempt,
    lines: usize,
) -> Option<(u32, Vec<String>)> {
    let owner = former(pool, attempt).await;
    let written = (0u32..).zip(&attempt.outputs).filter_map(|(rank, path)| Some((rank, path.as_ref()?)));
    for (rank, path) in written.take(MOST_LOOKED_AT) {
        let Ok(file) = follow::open(pool, &owner, path.into()).await else { continue };
        let read = pool.blocking(move || tail(&file, lines)).await;
        if let Some(Ok(lines)) = read
            && !lines.is_empty()
        {
            return Some((rank, lines));
        }
    }
    None
}

/// The most bytes of last lines that `show` returns.
const MOST_TAIL_BYTES: u64 = 16 << 10;

fn tail(file: &std::fs::File, lines: usize) -> std::io::Result<Vec<String>> {
    use std::os::unix::fs::FileExt;
    let end = file.metadata()?.len();
    let start = follow::start_of_last_lines(file, lines as u64)?.max(end.saturating_sub(MOST_TAIL_BYTES));
    let mut bytes = vec![0; usize::try_from(end.saturating_sub(start)).unwrap_or(0)];
    let read = file.read_at(&mut bytes, start)?;
    Ok(String::from_utf8_lossy(&bytes[..read]).lines().map(str::to_owned).collect())
}
