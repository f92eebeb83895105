//! Watching a job: its output, its state and its end, in one stream of frames.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Path, State as Shared};
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;
use divvy_api::attach::{Frame, Progress};
use divvy_api::{Problem, Submitted, paths};
use divvy_core::id::JobId;
use divvy_core::model::job::Owner;
use divvy_core::state::Runs;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::answer::{Answer, Refused, Words};
use super::caller::Caller;
use super::follow::{Follow, Step};
use super::{output, show, wait};
use crate::pool::Pool;
use crate::wire::row;

/// The query of an attach request.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct From {
    from: u64,
}

type Frames = mpsc::Sender<std::io::Result<Bytes>>;

/// Attaches to a job (again): attach frames, output of the first task from byte `from` on.
#[utoipa::path(get, path = "/v1/jobs/{id}/attach", tag = "jobs",
    params(("id" = String, Path, description = "12, or 12_3"), ("from" = Option<u64>, Query, description = "bytes of output seen already")),
    responses((status = 200, description = "attach frames", content_type = "application/vnd.divvy.attach", body = Vec<u8>),
        (status = 403, body = Problem, content_type = "application/problem+json"), (status = 404, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn attach(
    Shared(pool): Shared<Arc<Pool>>,
    caller: Caller,
    Path(id): Path<String>,
    Words(from): Words<From>,
) -> Answer {
    let id = show::read_id(&id)?;
    let members = {
        let controller = pool.controller.read().await;
        controller.state().jobs.get(&id.number).map_or(0, |job| match &job.runs {
            Runs::Array(array) if id.member.is_none() => {
                divvy_core::model::members::Members::of(&array.array).len()
            }
            _ => 0,
        })
    };
    let submitted = Submitted { id: id.to_string(), members, notices: Vec::new() };
    stream(pool, caller, submitted, from.from).await
}

/// The stream for a job that was submitted (just now, or long ago).
pub(super) async fn stream(pool: Arc<Pool>, caller: Caller, submitted: Submitted, from: u64) -> Answer {
    let id = show::read_id(&submitted.id)?;
    let owner =
        if submitted.members > 0 { caller.0.owner } else { output::allowed(&pool, &caller, id).await? };
    let (sender, receiver) = mpsc::channel(4);
    // Queued before the head of the answer goes out, so that both leave in one write.
    let _ = sender.try_send(Ok(Frame::Submitted(submitted).encode().into()));
    tokio::spawn(async move {
        if let Err(error) = watch(pool, id, owner, (from, &sender)).await {
            let _ = sender.send(Err(error)).await;
        }
    });
    let kind = HeaderValue::from_static(paths::ATTACH_TYPE);
    Ok(([(header::CONTENT_TYPE, kind)], Body::from_stream(ReceiverStream::new(receiver))).into_response())
}

fn broken(refused: &Refused) -> std::io::Error {
    std::io::Error::other(refused.0.to_string())
}

/// Sends frames until the job has ended for good, or nobody listens.
async fn watch(pool: Arc<Pool>, id: JobId, owner: Owner, (from, to): (u64, &Frames)) -> std::io::Result<()> {
    let mut follow =
        Follow::new(pool.clone(), id, owner, (0, from), true).await.map_err(|refused| broken(&refused))?;
    let mut told = None;
    loop {
        let now = progress(&pool, id).await;
        if now.is_some() && now != told {
            told.clone_from(&now);
            if let Some(progress) = now
                && to.send(Ok(Frame::Progress(progress).encode().into())).await.is_err()
            {
                return Ok(());
            }
        }
        loop {
            let step = tokio::select! { step = follow.next() => step?, () = to.closed() => return Ok(()) };
            match step {
                Step::Bytes(bytes) => {
                    if to.send(Ok(Frame::encode_output(&bytes).into())).await.is_err() {
                        return Ok(());
                    }
                }
                Step::News => break,
                Step::Over => return end(&pool, id, to).await,
            }
        }
    }
}

/// Sends how the job ended. An array as a whole is over when all of its members are.
async fn end(pool: &Arc<Pool>, id: JobId, to: &Frames) -> std::io::Result<()> {
    let mut news = pool.watchers.subscribe(id.number);
    loop {
        let waited = wait::look(pool, id).await.map_err(|refused| broken(&refused))?;
        if waited.ended {
            let _ = to.send(Ok(Frame::Ended(waited).encode().into())).await;
            return Ok(());
        }
        tokio::select! {
            told = news.changed() => if told.is_err() { news = pool.watchers.subscribe(id.number) },
            () = to.closed() => return Ok(()),
        }
    }
}

/// Returns where a job is now; `None` when it has ended, and for an array as a whole.
async fn progress(pool: &Pool, id: JobId) -> Option<Progress> {
    let controller = pool.controller.read().await;
    let state = controller.state();
    let job = state.jobs.get(&id.number)?;
    let run = job.run(id.member)?;
    let (devices, nodes) = row::where_it_runs(state, &run);
    let places = pool.places.of(controller.snapshot(), controller.position());
    Some(Progress {
        state: row::job_state(run.state),
        reason: divvy_core::explain::reason(state, job, (id, &run)).map(|why| row::reason(state, &why)),
        position: (!run.is_active()).then(|| places.get(&id.number).copied()).flatten(),
        nodes,
        devices,
    })
}
