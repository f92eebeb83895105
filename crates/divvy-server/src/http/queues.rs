//! Queues: listing them and changing their settings.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State as Shared;
use divvy_api::{Applied, ChangeQuery, Problem, ProblemCode, SetQueue, paths, read};
use divvy_core::decide::{Beyond, Command, Person, Rejection, decide, guaranteed_beyond};
use divvy_core::model::node::NodeState;
use divvy_core::model::queue::{self as model, DEFAULT, Member, Nodes, Queue, Settings, overlap, unkeepable};
use divvy_core::state::State;

use super::answer::{Answer, Refused, Words, ok, vanished};
use super::caller::Caller;
use crate::clock;
use crate::control::{Refusal, Request};
use crate::people;
use crate::pool::Pool;
use crate::wire::{models, queue, refusal};

/// Lists the queues.
#[utoipa::path(get, path = paths::QUEUES, tag = "queues", responses((status = 200, body = Vec<divvy_api::Queue>)))]
pub(super) async fn queues(Shared(pool): Shared<Arc<Pool>>, caller: Caller) -> Answer {
    let controller = pool.controller.read().await;
    let now = clock::now();
    ok(&queue::all((controller.state(), now), controller.snapshot(), &caller.0.owner))
}

/// Sets the queues to those of a queues.yaml, the body: these and no others.
#[utoipa::path(put, path = paths::QUEUES, tag = "queues", params(ChangeQuery),
    request_body(content = String, content_type = "application/yaml"),
    responses((status = 200, body = Applied), (status = 403, body = Problem, content_type = paths::PROBLEM_TYPE),
        (status = 409, body = Problem, content_type = paths::PROBLEM_TYPE), (status = 422, body = Problem, content_type = paths::PROBLEM_TYPE)))]
pub(super) async fn set(
    Shared(pool): Shared<Arc<Pool>>,
    caller: Caller,
    Words(how): Words<ChangeQuery>,
    body: Bytes,
) -> Answer {
    let person = asking(&pool, &caller, &how)?;
    let text = std::str::from_utf8(&body)
        .map_err(|error| Problem::new(ProblemCode::BadSpec, format!("queues.yaml is not text: {error}")))?;
    let Settings { queues, policy, prices } = understood(text)?;
    let Resolved { queues, strangers } = resolved(&pool, queues, Some(text)).await?;
    let _turn = pool.changing.lock().await;
    let settings = Settings { queues, policy, prices };
    put_in_force(&pool, (settings, Some(text)), (person, how), strangers).await
}

/// Changes some settings of one queue, and leaves all else as it is.
#[utoipa::path(patch, path = paths::QUEUES, tag = "queues", params(ChangeQuery), request_body = SetQueue,
    responses((status = 200, body = Applied), (status = 403, body = Problem, content_type = paths::PROBLEM_TYPE),
        (status = 422, body = Problem, content_type = paths::PROBLEM_TYPE)))]
pub(super) async fn change(
    Shared(pool): Shared<Arc<Pool>>,
    caller: Caller,
    Words(how): Words<ChangeQuery>,
    body: Bytes,
) -> Answer {
    let person = asking(&pool, &caller, &how)?;
    let wanted: SetQueue = read::json(&body).map_err(Problem::from)?;
    let _turn = pool.changing.lock().await;
    let mut queues = pool.controller.read().await.state().queues.clone();
    let before = match queues.get(&wanted.queue) {
        Some(queue) => queue.clone(),
        None if wanted.create => Queue::named(&wanted.queue),
        None => return Err(unknown(&wanted.queue, queues.keys()).into()),
    };
    let wrong = |what| Problem::new(ProblemCode::BadSpec, what).with_field("settings");
    let changed = model::change(&before, &wanted.settings).map_err(wrong)?;
    let Resolved { queues: changed, strangers } = resolved(&pool, vec![changed], None).await?;
    queues.extend(changed.into_iter().map(|queue| (queue.path.clone(), queue)));
    let settings = Settings { queues: queues.into_values().collect(), policy: None, prices: None };
    put_in_force(&pool, (settings, None), (person, how), strangers).await
}

/// How long a note may be, in characters.
const LONGEST_NOTE: usize = 500;

/// Returns who changes the queues: anybody may ask what would change, and the core knows who may change
/// which.
fn asking(pool: &Pool, caller: &Caller, how: &ChangeQuery) -> Result<Person, Problem> {
    let person = caller.person(pool);
    if how.note.as_ref().is_some_and(|note| note.chars().count() > LONGEST_NOTE) {
        let what = format!("a note has at most {LONGEST_NOTE} characters");
        return Err(Problem::new(ProblemCode::BadSpec, what).with_field("note"));
    }
    Ok(person)
}

fn unknown<'a>(queue: &str, known: impl Iterator<Item = &'a String>) -> Problem {
    let known = known.cloned().collect();
    let problem =
        refusal::problem(Refusal::Rejected(Rejection::UnknownQueue { queue: queue.to_owned(), known }));
    problem.with_fix("name one that is there (`divvy queues`), or make it with --create")
}

/// Refuses settings that cannot hold together; points to the last place in the text, if any, that says what is wrong.
fn feasible(state: &State, (wanted, text): (&Settings, Option<&str>)) -> Result<(), Problem> {
    let queues = &wanted.queues;
    let of_one = |(path, what): (&str, String)| Beyond { what, queues: vec![path.to_owned()] };
    let nodes = || overlap(queues).map(of_one).or_else(|| unknown_nodes(state, queues));
    let (wrong, field) = match unkeepable(queues).map(of_one) {
        Some(wrong) => (Some(wrong), "guarantee"),
        None => match nodes() {
            Some(wrong) => (Some(wrong), "nodes"),
            None => (guaranteed_beyond(state, queues), "guarantee"),
        },
    };
    let Some(Beyond { what, queues }) = wrong else { return Ok(()) };
    // The field stands before the text.
    let what = what.strip_prefix("nodes: ").map(str::to_owned).unwrap_or(what);
    let places = text.map(model::places).unwrap_or_default();
    let of_nodes =
        |path: &str| text.filter(|_| field == "nodes").and_then(|text| model::place_of_nodes(text, path));
    let place = |path: &String| of_nodes(path).or_else(|| places.get(path).copied());
    let last = queues.iter().filter_map(place).max();
    let mut problem = Problem::new(ProblemCode::BadSpec, what).with_field(field);
    (problem.line, problem.column) = last.unzip();
    Err(problem)
}

/// Returns a node that a queue names and the pool lacks, if any. A label may apply later; an unknown name is a typo.
fn unknown_nodes(state: &State, queues: &[Queue]) -> Option<Beyond> {
    let there = state.nodes.values().filter(|node| node.state != NodeState::Gone);
    let known: Vec<&str> = there.map(|node| node.spec.name.as_str()).collect();
    queues.iter().find_map(|queue| {
        let Some(Nodes::Named(names)) = queue.nodes.said() else { return None };
        let unknown = names.iter().find(|name| !known.contains(&name.as_str()))?;
        let known = known.iter().take(MOST_NODES_NAMED).copied().collect::<Vec<_>>().join(", ");
        let what = format!("the pool has no node {unknown:?} to keep for {}; it has {known}", queue.path);
        Some(Beyond { what, queues: vec![queue.path.clone()] })
    })
}

/// How many nodes an error names.
const MOST_NODES_NAMED: usize = 8;

/// Checks settings, says what they change, and puts them in force unless only the changes were asked for. `text` is the file that
/// states the settings, where there is one.
async fn put_in_force(
    pool: &Pool,
    (wanted, text): (Settings, Option<&str>),
    (person, how): (Person, ChangeQuery),
    strangers: BTreeMap<String, String>,
) -> Answer {
    let note = how.note.filter(|note| !note.trim().is_empty());
    let (diff, notices, command) = {
        let controller = pool.controller.read().await;
        let state = controller.state();
        feasible(state, (&wanted, text))?;
        let mut diff = queue::diff(&state.queues, &wanted.queues);
        let policy = wanted.policy_beside(&state.policy);
        diff.extend(policy.map(|it| queue::policy_diff(&state.policy, &it)).unwrap_or_default());
        let mut notices = queue::notices(&wanted.queues, controller.snapshot());
        notices.extend(models::unknown(&wanted, state));
        notices.extend(without_default(state, &wanted.queues));
        notices.extend(of_strangers(state, &strangers));
        let command = Command::Configure(Box::new(wanted), person, note);
        // A trial refuses what the change itself would be refused for.
        decide(state, &command).map_err(|rejection| refusal::problem(Refusal::Rejected(rejection)))?;
        (diff, notices, Box::new(command))
    };
    if how.dry_run {
        return ok(&Applied { applied: false, diff, notices });
    }
    let taken = pool.requests.ask(|reply| Request::Command(command, reply)).await;
    let events = taken.map_err(refusal::problem)?.events;
    ok(&Applied { applied: events > 0, diff, notices })
}

/// Warns that jobs without a queue are refused from now on, where that is new.
fn without_default(state: &State, queues: &[Queue]) -> Option<String> {
    let is_gone = state.queues.contains_key(DEFAULT) && queues.iter().all(|queue| queue.path != DEFAULT);
    let note = "no queue is called default: jobs that name no queue (-q) are refused, save of those for whom a queue is default_for";
    is_gone.then(|| note.to_owned())
}

fn understood(text: &str) -> Result<Settings, Problem> {
    model::parse(text).map_err(|bad| {
        let mut problem = Problem::new(ProblemCode::BadSpec, bad.what);
        (problem.line, problem.column) = (Some(bad.line), Some(bad.column));
        problem
    })
}

/// Queues as the machine knows who is named in them.
struct Resolved {
    queues: Vec<Queue>,
    /// Users whom the machine does not have, each with a queue that names them: they may come later.
    strangers: BTreeMap<String, String>,
}

/// So many users whom the machine does not have are named.
const MOST_STRANGERS: usize = 8;

/// Looks up the ids of the named groups: the core knows groups by id. The problem with an unknown group has its place in the text,
/// where there is one.
async fn resolved(pool: &Pool, mut queues: Vec<Queue>, text: Option<&str>) -> Result<Resolved, Refused> {
    let work = move || {
        for queue in &mut queues {
            let Queue { path, submit, admins, default_for, .. } = queue;
            let (admins, default_for) = (admins.0.iter_mut().flatten(), default_for.0.iter_mut().flatten());
            for member in submit.iter_mut().chain(admins).chain(default_for) {
                let Member::Group(name, id) = member else { continue };
                *id = CString::new(name.as_str()).ok().and_then(|name| people::group_id(&name));
                if id.is_none() {
                    return Err((path.clone(), name.clone()));
                }
            }
        }
        let strangers = strangers(&queues);
        Ok(Resolved { queues, strangers })
    };
    let found: Result<Resolved, (String, String)> = pool.blocking(work).await.ok_or_else(vanished)?;
    found.map_err(|(path, group)| {
        let what = format!("queue {path}: the machine has no group {group:?}");
        let mut problem = Problem::new(ProblemCode::BadSpec, what).with_field("group");
        let place = text.and_then(|text| model::place_of_group(text, &path, &group));
        (problem.line, problem.column) = place.unzip();
        problem.into()
    })
}

/// The users whom a queue names.
fn named(queue: &Queue) -> BTreeSet<&String> {
    let members = queue.submit.iter().chain(queue.admins.0.iter().flatten());
    let members = members.chain(queue.default_for.0.iter().flatten()).filter_map(|member| match member {
        Member::User(name) => Some(name),
        Member::Group(..) => None,
    });
    members.chain(queue.users.0.iter().flat_map(|users| users.weight.keys())).collect()
}

/// Users who are named in queues and whom the machine does not have, each with the first queue that names them.
fn strangers(queues: &[Queue]) -> BTreeMap<String, String> {
    let (mut asked, mut strangers) = (BTreeSet::new(), BTreeMap::new());
    for queue in queues {
        for name in named(queue) {
            if asked.insert(name) && !people::is_user(name) {
                strangers.insert(name.clone(), queue.path.clone());
            }
        }
    }
    strangers
}

/// Notes about those of them who were not named before.
fn of_strangers(state: &State, strangers: &BTreeMap<String, String>) -> Vec<String> {
    let before: BTreeSet<&String> = state.queues.values().flat_map(named).collect();
    let new = strangers.iter().filter(|(name, _)| !before.contains(name)).take(MOST_STRANGERS);
    new.map(|(name, queue)| format!("queue {queue}: the machine has no user {name:?}")).collect()
}
