//! Submitting a job.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use divvy_api::{Problem, ProblemCode, Submit, Submitted, paths};
use divvy_core::decide::{self, Rejection, Submit as Wanted};
use divvy_core::explain::{self, Tried};
use divvy_core::id::JobId;
use divvy_core::model::gang::Group;
use divvy_core::model::job::{JobSpec, Output, Owner, Work};
use divvy_core::model::members::Members;
use divvy_core::model::queue::default_of;
use divvy_core::snapshot::Snapshot;
use divvy_core::state::{Outcome, State as Folded};

use super::answer::{Answer, Refused, json, ok, vanished};
use super::attach;
use super::caller::Caller;
use super::show;
use crate::clock;
use crate::control::{Refusal, Request};
use crate::environments::Arrived;
use crate::guise;
use crate::pool::Pool;
use crate::wire::incoming::{self, Incoming};
use crate::wire::{self, notice, refusal};

/// Submits a job or an array.
///
/// With `dry_run` nothing is logged, and the answer is a Trial. With `attached` the answer is a stream of attach frames. The same
/// `Idempotency-Key` of the same user submits once.
#[utoipa::path(post, path = paths::JOBS, tag = "jobs", request_body = Submit,
    params(("idempotency-key" = Option<String>, Header, description = "the client's own key for this submission")),
    responses(
        (status = 201, description = "it is in the log", body = Submitted),
        (status = 200, description = "the outcome of a dry run, or attach frames", body = divvy_api::Trial),
        (status = 403, description = "not a member of the queue", body = Problem, content_type = paths::PROBLEM_TYPE),
        (status = 413, description = "too long", body = Problem, content_type = paths::PROBLEM_TYPE),
        (status = 422, description = "a value is wrong, or the pool can never run it", body = Problem, content_type = paths::PROBLEM_TYPE),
        (status = 507, description = "the disk is full", body = Problem, content_type = paths::PROBLEM_TYPE)))]
pub(super) async fn submit(
    State(pool): State<Arc<Pool>>,
    caller: Caller,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let submit: Submit = divvy_api::read::json(&body).map_err(Problem::from)?;
    let (attached, dry_run, token) = (submit.attached, submit.dry_run, token(&headers)?);
    let incoming = incoming::read(submit, clock::now())?;
    if dry_run {
        return trial(&pool, &caller, incoming).await;
    }
    if pool.condition().ending {
        return Err(refusal::problem(Refusal::Ending).into());
    }
    let (mut wanted, environment, mut notices) = prepared(&pool, &caller, incoming).await?;
    wanted.token = token;
    let members = wanted.array.as_ref().map_or(0, |array| Members::of(array).len());
    notices.extend(notice::shares(&wanted.spec, pool.controller.read().await.state()));
    let taken = pool.requests.ask(|reply| Request::Submit(Box::new(wanted), Some(environment), reply)).await;
    if let Ok(answer) = &taken {
        notices.extend(never(&pool, answer.job.unwrap_or_default()).await);
    }
    let submitted = match taken {
        Ok(answer) => Submitted { id: answer.job.unwrap_or_default().to_string(), members, notices },
        Err(Refusal::Rejected(Rejection::Repeated(number))) => repeated(&pool, number).await?,
        Err(refused) => return Err(refusal::problem(refused).into()),
    };
    if attached {
        return attach::stream(pool, caller, submitted, 0).await;
    }
    Ok(json(StatusCode::CREATED, &submitted))
}

/// What keeps a job that was just taken from ever starting, as things are set. Only the pool knows where it stands.
async fn never(pool: &Pool, number: u64) -> Vec<String> {
    let controller = pool.controller.read().await;
    let (state, snapshot) = (controller.state(), controller.snapshot());
    state.jobs.get(&number).map(|job| notice::never(&job.spec, state, snapshot)).unwrap_or_default()
}

/// Returns the client's key, if it sent one.
fn token(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get(paths::IDEMPOTENCY_KEY) else { return Ok(None) };
    let text = value.to_str().ok().filter(|text| (1..=200).contains(&text.len()));
    let wrong = || {
        Problem::new(ProblemCode::BadRequest, "the idempotency key has to be 1 to 200 characters of ASCII")
    };
    text.map(|text| Some(text.to_owned())).ok_or_else(wrong)
}

/// Checks what only the machine knows (the directory, the output, history), and writes the environment.
async fn prepared(
    pool: &Arc<Pool>,
    caller: &Caller,
    incoming: Incoming,
) -> Result<(Wanted, Arrived, Vec<String>), Refused> {
    let Incoming { mut spec, requeue_said, array, held, directory, environment } = incoming;
    let (owner, asked) = (caller.0.owner.clone(), pool.clone());
    let gone = gone(pool, &spec).await;
    let work = move || {
        guise::can_enter(&owner, &directory).map_err(|error| bad_directory(&directory, &owner, &error))?;
        let notices = settle_output(&mut spec, &owner);
        let history = gone.into_iter().filter_map(|job| Some((job, outcome(&asked, job)?))).collect();
        let environment =
            Arrived::write(&asked.settings.state, &environment).map_err(|error| refusal::own_file(&error))?;
        let spec = spec.into();
        let owner = owner.into();
        let wanted = Wanted { owner, spec, requeue_said, array, token: None, held, history };
        Ok((wanted, environment, notices))
    };
    pool.blocking(work).await.unwrap_or_else(|| Err(vanished())).map_err(Refused::from)
}

fn bad_directory(directory: &std::path::Path, owner: &Owner, error: &std::io::Error) -> Problem {
    let text = format!("{} cannot enter the working directory {}: {error}", owner.name, directory.display());
    Problem::new(ProblemCode::BadDirectory, text)
        .with_field("directory")
        .with_fix("submit from a directory that you can enter, or name one with --chdir")
}

/// Keeps output in the state directory where its file cannot be written, and returns notices for the user.
fn settle_output(spec: &mut JobSpec, owner: &Owner) -> Vec<String> {
    let mut notices = Vec::new();
    for_each_role(Arc::make_mut(&mut spec.gang), &mut |work| {
        let Work::Process(process) = work else { return };
        let Output::Path(path) = &process.output else { return };
        let parent = std::path::Path::new(path)
            .parent()
            .map(|parent| parent.to_string_lossy().into_owned())
            .unwrap_or_default();
        // A directory with a placeholder in its name is checked once the name is complete.
        let kept_out = || guise::can_write(owner, std::path::Path::new(&parent)).err();
        // What exists already, such as /dev/null, need not be made.
        let is_there = || guise::can_write_to(owner, std::path::Path::new(path));
        if parent.contains('%') {
            return;
        }
        if let Some(error) = kept_out().filter(|_| !is_there()) {
            if notices.is_empty() {
                notices.push(kept(&parent, &error));
            }
            process.output = Output::Kept;
        }
    });
    notices
}

/// Says why output is kept, and how it gets to where it was wanted.
fn kept(directory: &str, error: &std::io::Error) -> String {
    let cure = match error.kind() {
        std::io::ErrorKind::NotFound => format!("; to have it there, `mkdir {directory}` before you submit"),
        _ => String::new(),
    };
    format!("{directory} cannot be written: {error}. The output is kept by the pool (`divvy logs`){cure}")
}

fn for_each_role(group: &mut Group, act: &mut impl FnMut(&mut Work)) {
    match group {
        Group::Role(role) => act(&mut role.work),
        Group::Branch(branch) => branch.groups.iter_mut().for_each(|group| for_each_role(group, act)),
    }
}

/// Returns the jobs that it depends on and that are no longer in the state.
async fn gone(pool: &Pool, spec: &JobSpec) -> Vec<JobId> {
    if spec.after.is_empty() {
        return Vec::new();
    }
    let controller = pool.controller.read().await;
    let jobs = &controller.state().jobs;
    spec.after.iter().map(|dependency| dependency.job).filter(|job| !jobs.contains_key(&job.number)).collect()
}

/// Returns how a job ended, from history.
fn outcome(pool: &Pool, job: JobId) -> Option<Outcome> {
    let of = |completed: bool| if completed { Outcome::Ok } else { Outcome::Fail };
    if job.member.is_some() {
        let last = pool.reader.attempts(job).ok()?.pop()?;
        return last.state.is_ended().then(|| of(last.state == divvy_core::model::job::JobState::Completed));
    }
    let (count, failed) = pool.reader.summary(job.number).ok()?;
    (count > 0).then(|| of(failed.is_none()))
}

/// Answers a submission that was made before with the same key.
async fn repeated(pool: &Arc<Pool>, number: u64) -> Result<Submitted, Refused> {
    let open = {
        let controller = pool.controller.read().await;
        controller.state().jobs.get(&number).map(|job| match &job.runs {
            divvy_core::state::Runs::Single(_) => 0,
            divvy_core::state::Runs::Array(array) => Members::of(&array.array).len(),
        })
    };
    let members = match open {
        Some(members) => members,
        None => {
            let asked = pool.clone();
            let past = pool
                .blocking(move || {
                    (asked.reader.attempts(JobId::single(number)), asked.reader.summary(number))
                })
                .await;
            match past.ok_or_else(vanished)? {
                (Ok(single), Ok((count, _))) if single.is_empty() => count,
                _ => 0,
            }
        }
    };
    let notices = vec!["this request was carried out before: nothing new was submitted".to_owned()];
    Ok(Submitted { id: number.to_string(), members, notices })
}

/// Answers a dry run.
async fn trial(pool: &Arc<Pool>, caller: &Caller, incoming: Incoming) -> Answer {
    let (owner, directory) = (caller.0.owner.clone(), incoming.directory.clone());
    let entered = pool.blocking(move || {
        guise::can_enter(&owner, &directory).map_err(|error| bad_directory(&directory, &owner, &error))
    });
    entered.await.ok_or_else(vanished)??;
    let mut spec = incoming.spec;
    let controller = pool.controller.read().await;
    if spec.queue.is_empty() {
        spec.queue = default_of(controller.state().queues.values(), &caller.0.owner).to_owned();
    }
    let open = decide::open_queue(controller.state(), &spec.queue, &caller.0.owner).map(drop);
    open.map_err(|refused| refusal::problem(Refusal::Rejected(refused)))?;
    spec.seat = controller.state().seat_in(&spec.queue, &caller.0.owner.name);
    let (state, snapshot) = (show::as_of_now(controller.state()), controller.snapshot().clone());
    drop(controller);
    let (array, held, owner) = (incoming.array, incoming.held, caller.0.owner.clone().into());
    // The trial takes a while: the pool goes on meanwhile.
    let explained = pool.blocking(move || {
        let (token, history) = (None, std::collections::BTreeMap::new());
        let wanted = Wanted { owner, spec: spec.into(), requeue_said: true, array, token, held, history };
        tried(&state, &snapshot, &wanted)
    });
    let explained = explained.await.ok_or_else(vanished)?;
    let explained = explained.map_err(|refused| refusal::problem(Refusal::Rejected(refused)))?;
    ok(&explained)
}

/// Returns what the next cycle would do with the job, if it is taken. A job that can never run is explained, too.
fn tried(state: &Folded, snapshot: &Snapshot, wanted: &Wanted) -> Result<divvy_api::Trial, Rejection> {
    let tried = match explain::tried(state, snapshot, wanted) {
        Err(Rejection::CannotFit { .. }) => Tried::default(),
        tried => tried?,
    };
    let found = explain::explain_spec(state, snapshot, &wanted.spec);
    let advice = if tried.starts { None } else { explain::advise_spec(state, snapshot, wanted) };
    let mut trial = wire::explain::trial(state, (&found, advice.as_ref()), &tried);
    trial.notices = notice::shares(&wanted.spec, state);
    Ok(trial)
}
