//! What happens, as server-sent events. Each client reads from the log at its own pace, so that no client holds up another.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State as Shared;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::IntoResponse;
use divvy_api::{EventsQuery, Problem, ProblemCode, paths};
use divvy_core::event::{Event, Stamped};
use divvy_core::id::{JobId, Position};
use divvy_core::state::State;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::answer::{Answer, Words};
use super::show;
use crate::pool::Pool;
use crate::store::EndedJobs;
use crate::wire::event::{self as words, Who};

/// How many events are read from the log at once.
const EVENTS_AT_ONCE: usize = 256;

/// How often a keep-alive is sent, so that both sides notice when the other is gone.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// Streams what happens. `id:` is the position in the log; `Last-Event-ID` resumes behind it; without it, from now on.
#[utoipa::path(get, path = paths::EVENTS, tag = "pool",
    params(EventsQuery, ("last-event-id" = Option<u64>, Header, description = "the last position seen")),
    responses((status = 200, description = "server-sent events; `data:` is an Event", content_type = "text/event-stream", body = divvy_api::Event)))]
pub(super) async fn events(
    Shared(pool): Shared<Arc<Pool>>,
    headers: HeaderMap,
    Words(query): Words<EventsQuery>,
) -> Answer {
    let job = query.job.as_deref().map(show::read_id).transpose()?;
    let after = match headers.get("last-event-id") {
        None => *pool.position.borrow(),
        Some(value) => {
            let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
            let wrong =
                || Problem::new(ProblemCode::BadRequest, "Last-Event-ID has to be a position in the log");
            Position(number.ok_or_else(wrong)?)
        }
    };
    let (sender, receiver) = mpsc::channel(4);
    let _ = sender.try_send(Ok::<_, std::io::Error>(Bytes::from_static(b": divvy\n\n")));
    let wanted = Wanted { job, queue: query.queue };
    tokio::spawn(async move { stream(&pool, &wanted, after, &sender).await });
    let kind = HeaderValue::from_static("text/event-stream");
    let plain = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))];
    Ok((plain, Body::from_stream(ReceiverStream::new(receiver))).into_response())
}

/// Which events a client wants.
struct Wanted {
    job: Option<JobId>,
    queue: Option<String>,
}

impl Wanted {
    fn takes(&self, event: &divvy_api::Event) -> bool {
        let id = || event.job.as_ref().and_then(|id| id.parse::<JobId>().ok());
        let job = self.job.is_none_or(|wanted| {
            id().is_some_and(|id| {
                id.number == wanted.number
                    && (wanted.member.is_none() || id.member.is_none() || id.member == wanted.member)
            })
        });
        job && self.queue.as_ref().is_none_or(|queue| event.queue.as_ref() == Some(queue))
    }
}

async fn stream(
    pool: &Arc<Pool>,
    wanted: &Wanted,
    mut after: Position,
    to: &mpsc::Sender<std::io::Result<Bytes>>,
) {
    let mut news = pool.position.subscribe();
    loop {
        news.borrow_and_update();
        let (asked, from) = (pool.clone(), after);
        let read = pool.blocking(move || batch(&asked, from)).await;
        let Some(Some((events, who))) = read else {
            let _ = to.send(Err(std::io::Error::other("the log cannot be read"))).await;
            return;
        };
        if let Some((last, _)) = events.last() {
            after = *last;
            let text = told(pool, wanted, &events, &who).await;
            if !text.is_empty() && to.send(Ok(text.into())).await.is_err() {
                return;
            }
            continue;
        }
        let sent = tokio::select! {
            changed = news.changed() => if changed.is_ok() { Ok(()) } else { return },
            () = tokio::time::sleep(SIGN_OF_LIFE) => to.send(Ok(Bytes::from_static(b":\n\n"))).await,
            () = to.closed() => return,
        };
        if sent.is_err() {
            return;
        }
    }
}

type Batch = Vec<(Position, Stamped)>;

/// Returns the events after a position, and who the jobs are that they concern and that have ended.
fn batch(pool: &Pool, after: Position) -> Option<(Batch, HashMap<u64, Who>)> {
    let events = pool
        .reader
        .events_after(after, EVENTS_AT_ONCE)
        .inspect_err(|error| tracing::warn!("{error}"))
        .ok()?;
    let mut who = HashMap::new();
    let controller = pool.controller.blocking_read();
    let missing: Vec<u64> = events
        .iter()
        .filter_map(|(_, stamped)| about(controller.state(), &stamped.event))
        .map(|job| job.number)
        .filter(|number| !controller.state().jobs.contains_key(number))
        .collect();
    drop(controller);
    for number in missing {
        if let std::collections::hash_map::Entry::Vacant(entry) = who.entry(number) {
            let wanted = EndedJobs { job: Some(JobId::single(number)), ..EndedJobs::default() };
            let past = pool.reader.ended(&wanted, 1).ok().and_then(|mut ended| ended.pop());
            entry.insert(
                past.map(|past| Who { name: past.name, user: past.user, queue: past.queue })
                    .unwrap_or_default(),
            );
        }
    }
    Some((events, who))
}

fn about(state: &State, event: &Event) -> Option<JobId> {
    match event {
        Event::Submitted(submission) => Some(JobId::single(submission.number)),
        Event::Held { job, .. }
        | Event::Released { job, .. }
        | Event::Prioritised { job, .. }
        | Event::Checkpointed { job, .. }
        | Event::Placed { job, .. }
        | Event::Grown { job, .. }
        | Event::Shrinking { job, .. }
        | Event::Stopping { job, .. }
        | Event::AttemptEnded { job, .. }
        | Event::Dropped { job, .. } => Some(*job),
        Event::TaskStarted { allocation, .. }
        | Event::TaskEnded { allocation, .. }
        | Event::Overdue { allocation } => state.allocations.get(allocation).map(|held| held.job),
        _ => None,
    }
}

async fn told(pool: &Pool, wanted: &Wanted, events: &Batch, past: &HashMap<u64, Who>) -> String {
    let controller = pool.controller.read().await;
    let state = controller.state();
    let who = |id: JobId| match state.jobs.get(&id.number) {
        Some(job) => Some(Who {
            name: job.spec.name.clone(),
            user: job.owner.name.clone(),
            queue: job.spec.queue.clone(),
        }),
        None => past.get(&id.number).cloned(),
    };
    let mut text = String::new();
    for (position, stamped) in events {
        let Some(event) = words::event(state, *position, stamped, who) else { continue };
        if !wanted.takes(&event) {
            continue;
        }
        if let Ok(data) = serde_json::to_string(&event) {
            // Writing to a String cannot fail.
            let _ = write!(text, "id: {}\nevent: {}\ndata: {data}\n\n", event.position, event.kind);
        }
    }
    text
}
