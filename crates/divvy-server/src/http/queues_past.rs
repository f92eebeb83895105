//! The queues.yaml that is in force, and those that were.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;
use divvy_api::{ChangesQuery, FileQuery, Problem, ProblemCode, QueuesChange, paths};
use divvy_core::model::policy::Policy;
use divvy_core::model::queue::{self as model, Queue};
use divvy_core::state::State;

use super::answer::{Answer, Refused, Words, ok, vanished};
use crate::pool::Pool;
use crate::store::InForce;
use crate::wire::{queue, refusal};

/// Writes the queues.yaml that is in force, or was: put in force again, it changes nothing else.
#[utoipa::path(get, path = paths::QUEUES_FILE, tag = "queues", params(FileQuery),
    responses((status = 200, body = String, content_type = "application/yaml"),
        (status = 422, body = Problem, content_type = paths::PROBLEM_TYPE)))]
pub(super) async fn file(Shared(pool): Shared<Arc<Pool>>, Words(query): Words<FileQuery>) -> Answer {
    let text = if query == FileQuery::default() {
        let controller = pool.controller.read().await;
        model::write(controller.state().queues.values(), &controller.state().policy)
    } else {
        let then = in_force(&pool, query).await?;
        model::write(&then.queues, &then.policy)
    };
    let kind = HeaderValue::from_static("application/yaml");
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// Returns what was in force after a change, or at a moment.
async fn in_force(pool: &Arc<Pool>, query: FileQuery) -> Result<InForce, Refused> {
    let (asked, FileQuery { change, at_ms }) = (pool.clone(), query);
    let work = move || {
        let mut found = None;
        let is_meant =
            |it: &InForce| change.is_none_or(|n| it.change == n) && at_ms.is_none_or(|ms| it.at.0 <= ms);
        asked.reader.settings(|it| found = Some(it).filter(&is_meant).or(found.take())).map(|()| found)
    };
    let found = pool.blocking(work).await.ok_or_else(vanished)?.map_err(|error| refusal::store(&error))?;
    let none = || {
        let what = match change {
            Some(change) => format!("there is no change {change} of the queues"),
            None => "the pool has had no queues by then: it was made later".into(),
        };
        let field = if change.is_some() { "change" } else { "at_ms" };
        let fix = "see what changes there were: `divvy queues --history`";
        Problem::new(ProblemCode::BadSpec, what).with_field(field).with_fix(fix)
    };
    Ok(found.ok_or_else(none)?)
}

/// Lists the changes of queues.yaml, oldest first: who made them, when, why, and what they changed.
#[utoipa::path(get, path = paths::QUEUES_HISTORY, tag = "queues", params(ChangesQuery),
    responses((status = 200, body = Vec<QueuesChange>)))]
pub(super) async fn history(Shared(pool): Shared<Arc<Pool>>, Words(query): Words<ChangesQuery>) -> Answer {
    let most = query.newest.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    let asked = pool.clone();
    let work = move || {
        let mut told = Told { most, ..Told::default() };
        asked.reader.settings(|next| told.tell(next)).map(|()| told.changes)
    };
    let changes = pool.blocking(work).await.ok_or_else(vanished)?.map_err(|error| refusal::store(&error))?;
    ok(&changes)
}

/// Collects the changes, each with what it made different.
struct Told {
    most: usize,
    queues: BTreeMap<String, Queue>,
    policy: Policy,
    changes: VecDeque<QueuesChange>,
}

impl Default for Told {
    fn default() -> Self {
        let State { queues, policy, .. } = State::default();
        Self { most: usize::MAX, queues, policy, changes: VecDeque::new() }
    }
}

impl Told {
    fn tell(&mut self, next: InForce) {
        let InForce { change, position, at, by, note, queues, policy } = next;
        let mut diff = queue::diff(&self.queues, &queues);
        diff.extend(queue::policy_diff(&self.policy, &policy));
        self.changes.push_back(QueuesChange { change, position: position.0, at_ms: at.0, by, note, diff });
        if self.changes.len() > self.most {
            self.changes.pop_front();
        }
        self.queues = queues.into_iter().map(|queue| (queue.path.clone(), queue)).collect();
        self.policy = policy;
    }
}
