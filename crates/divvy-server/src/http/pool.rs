//! The pool as a whole: its description, the check of its laws, its devices, its shutdown.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State as Shared;
use divvy_api::{self as api, Check, Gpu, Problem, ReasonPage, Shutdown, ShutdownBegun, ShutdownMode, paths};
use divvy_core::check;
use divvy_core::decide::Rejection;
use divvy_core::model::job::JobState;
use divvy_core::model::node::NodeState;
use divvy_core::state::{Runs, State};

use super::answer::{Answer, ok, vanished};
use super::caller::Caller;
use crate::control::{Ending, Refusal, Request};
use crate::pool::Pool;
use crate::wire::{device, refusal};

/// Says what the pool is and how it is.
#[utoipa::path(get, path = paths::POOL, tag = "pool", responses((status = 200, body = api::Pool)))]
pub(super) async fn pool(Shared(pool): Shared<Arc<Pool>>) -> Answer {
    let condition = pool.condition();
    let controller = pool.controller.read().await;
    let (state, settings) = (controller.state(), &pool.settings);
    let gpus = device::all(state, &pool.telemetry.latest());
    let nodes = || state.nodes.values().filter(|node| node.state != NodeState::Gone).map(|node| &node.spec);
    let held = || state.allocations.values().map(|allocation| &allocation.placement);
    let (running, waiting) = counts(state);
    let mut warnings = settings.warnings.clone();
    warnings.extend(condition.full.as_ref().map(|why| format!("{why}: no job is taken until there is room")));
    if condition.ending {
        warnings.push("the daemon is ending: no job is taken".into());
    } else if state.draining {
        warnings.push("nothing new starts until this is taken back".into());
    }
    ok(&api::Pool {
        api: paths::API_VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        started_ms: settings.started_at.0,
        node: settings.node.clone(),
        state: settings.state.display().to_string(),
        socket: settings.socket.display().to_string(),
        source: settings.source.clone(),
        as_root: settings.only.is_none(),
        user: settings.only.as_ref().map(|owner| owner.name.clone()),
        gpus: gpus.len() as u64,
        gpus_free: gpus.iter().filter(|gpu| gpu.state == api::GpuState::Free).count() as u64,
        cpu_milli: nodes().map(|spec| spec.cpu_milli).sum(),
        cpu_held_milli: held().map(|placement| placement.cpu_milli).sum(),
        memory_bytes: nodes().map(|spec| spec.memory_bytes).sum(),
        memory_held_bytes: held().map(|placement| placement.memory_bytes).sum(),
        running,
        waiting,
        position: pool.position.borrow().0,
        accepts: condition.full.is_none() && !condition.ending,
        warnings,
    })
}

/// Counts the jobs (members) that have devices, and those that wait or are held.
fn counts(state: &State) -> (u64, u64) {
    let (mut running, mut waiting) = (0, 0);
    let mut count = |state: JobState| {
        if matches!(state, JobState::Pending | JobState::Held) { waiting += 1 } else { running += 1 }
    };
    let mut fresh = 0;
    for job in state.jobs.values() {
        match &job.runs {
            Runs::Single(run) => count(run.state),
            Runs::Array(array) => {
                array.touched.values().for_each(|run| count(run.state));
                fresh += array.fresh.len();
            }
        }
    }
    (running, waiting + fresh)
}

/// Runs the checker of the laws over the pool's state.
#[utoipa::path(get, path = paths::POOL_CHECK, tag = "pool", responses((status = 200, body = Check)))]
pub(super) async fn check(Shared(pool): Shared<Arc<Pool>>) -> Answer {
    // On a copy: work that grows with the number of jobs must not hold up the control thread.
    let state = pool.controller.read().await.state().clone();
    let (events, cycles) = (state.position.0, state.cycles);
    let found = pool.blocking(move || check::check(&state)).await.ok_or_else(vanished)?;
    let violations = found
        .into_iter()
        .map(|found| api::Violation { law: found.law.to_owned(), text: found.text })
        .collect();
    ok(&Check { violations, events, cycles })
}

/// Lists the devices.
#[utoipa::path(get, path = paths::GPUS, tag = "pool", responses((status = 200, body = Vec<Gpu>)))]
pub(super) async fn gpus(Shared(pool): Shared<Arc<Pool>>) -> Answer {
    ok(&device::all(pool.controller.read().await.state(), &pool.telemetry.latest()))
}

/// Ends the daemon; what becomes of the jobs is the mode.
#[utoipa::path(post, path = paths::SHUTDOWN, tag = "pool", request_body = Shutdown,
    responses((status = 200, body = ShutdownBegun), (status = 403, body = Problem, content_type = paths::PROBLEM_TYPE)))]
pub(super) async fn shutdown(Shared(pool): Shared<Arc<Pool>>, caller: Caller, body: Bytes) -> Answer {
    let shutdown: Shutdown = api::read::json(&body).map_err(Problem::from)?;
    let person = caller.person(&pool);
    if !person.admin {
        return Err(refusal::problem(Refusal::Rejected(Rejection::NotAdmin)).into());
    }
    let ending = match shutdown.mode {
        ShutdownMode::Leave => Ending::Leave,
        ShutdownMode::Drain => Ending::Drain(person),
        ShutdownMode::Kill => Ending::Kill(person),
    };
    let (running, waiting) = counts(pool.controller.read().await.state());
    pool.requests.ask(|reply| Request::End(ending, reply)).await.map_err(refusal::problem)?;
    ok(&ShutdownBegun { pid: std::process::id(), running, waiting })
}

/// This document.
#[utoipa::path(get, path = paths::OPENAPI, tag = "pool", responses((status = 200, description = "an OpenAPI 3.1 document")))]
pub(super) async fn openapi() -> Answer {
    ok(&super::document())
}

/// Lists every code that can be a job's reason.
#[utoipa::path(get, path = paths::REASONS, tag = "pool", responses((status = 200, body = Vec<ReasonPage>)))]
pub(super) async fn reasons() -> Answer {
    let page = |reason: &divvy_core::reason::Reason| ReasonPage {
        code: reason.code().to_owned(),
        text: reason.to_string(),
        fix: reason.fix(),
    };
    ok(&crate::wire::reasons::examples().iter().map(page).collect::<Vec<_>>())
}
