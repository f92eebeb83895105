//! Queues: what there are, and setting them.

use std::ffi::CString;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::HeaderMap;
use divvy_api::{Applied, Problem, ProblemCode, paths};
use divvy_core::decide::{Command, Rejection, guaranteed_beyond};
use divvy_core::model::queue::{self as model, Member, Queue, Settings};
use serde::Deserialize;

use super::answer::{Answer, Refused, Words, ok, read_body, vanished};
use super::caller::Caller;
use crate::control::{Refusal, Request};
use crate::people;
use crate::pool::Pool;
use crate::wire::{queue, refusal};

/// Lists the queues.
#[utoipa::path(get, path = paths::QUEUES, tag = "queues", responses((status = 200, body = Vec<divvy_api::Queue>)))]
pub(super) async fn queues(Shared(pool): Shared<Arc<Pool>>, caller: Caller) -> Answer {
    let controller = pool.controller.read().await;
    ok(&queue::all(controller.state(), controller.snapshot(), &caller.0.owner))
}

/// What may be said with new queues.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct How {
    dry_run: bool,
}

/// Sets the queues to those of a queues.yaml, the body: these and no others.
#[utoipa::path(put, path = paths::QUEUES, tag = "queues", params(("dry_run" = Option<bool>, Query, description = "only say what would change")),
    request_body(content = String, content_type = "application/yaml"),
    responses((status = 200, body = Applied), (status = 403, body = Problem, content_type = paths::PROBLEM_TYPE),
        (status = 409, body = Problem, content_type = paths::PROBLEM_TYPE), (status = 422, body = Problem, content_type = paths::PROBLEM_TYPE)))]
pub(super) async fn set(
    Shared(pool): Shared<Arc<Pool>>,
    caller: Caller,
    Words(how): Words<How>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let person = caller.person(&pool);
    if !person.admin && !how.dry_run {
        return Err(refusal::problem(Refusal::Rejected(Rejection::NotAdmin)).into());
    }
    let bytes = read_body(&headers, body).await?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|error| Problem::new(ProblemCode::BadSpec, format!("queues.yaml is not text: {error}")))?;
    let Settings { queues, policy } = understood(text)?;
    let queues = resolved(&pool, queues).await?;
    let (diff, notices) = {
        let controller = pool.controller.read().await;
        let mut diff = queue::diff(&controller.state().queues, &queues);
        if let Some(what) = guaranteed_beyond(controller.state(), &queues) {
            return Err(Problem::new(ProblemCode::BadSpec, what).with_field("guarantee").into());
        }
        let policy = policy.as_ref();
        diff.extend(policy.map(|it| queue::policy_diff(&controller.state().policy, it)).unwrap_or_default());
        (diff, queue::notices(&queues, controller.snapshot()))
    };
    if how.dry_run {
        return ok(&Applied { applied: false, diff, notices });
    }
    // The queues first: what they refuse leaves the policy as it was.
    let policy = policy.map(|policy| Command::SetPolicy(Box::new(policy), person.clone()));
    let mut events = 0;
    for command in std::iter::once(Command::SetQueues(queues, person)).chain(policy) {
        let taken = pool.requests.ask(|reply| Request::Command(Box::new(command), reply)).await;
        events += taken.map_err(refusal::problem)?.events;
    }
    ok(&Applied { applied: events > 0, diff, notices })
}

fn understood(text: &str) -> Result<Settings, Problem> {
    model::parse(text).map_err(|bad| {
        let mut problem = Problem::new(ProblemCode::BadSpec, bad.to_string());
        (problem.line, problem.column) = (Some(bad.line), Some(bad.column));
        problem
    })
}

/// Finds the ids of the groups that may submit; the core knows groups by id.
async fn resolved(pool: &Pool, mut queues: Vec<Queue>) -> Result<Vec<Queue>, Refused> {
    let work = move || {
        for queue in &mut queues {
            for member in &mut queue.submit {
                let Member::Group(name, id) = member else { continue };
                *id = CString::new(name.as_str()).ok().and_then(|name| people::group_id(&name));
                if id.is_none() {
                    let text = format!("queue {}: the machine has no group {name:?}", queue.path);
                    return Err(Problem::new(ProblemCode::BadSpec, text).with_field("submit"));
                }
            }
        }
        Ok(queues)
    };
    Ok(pool.blocking(work).await.ok_or_else(vanished)??)
}
