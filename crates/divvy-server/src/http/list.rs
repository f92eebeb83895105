//! Lists jobs, a page at a time: open jobs from the state and ended jobs from history, in one order by id.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State as Shared;
use divvy_api::{Job, JobState, JobsQuery, Page, Problem, ProblemCode, paths};
use divvy_core::id::{JobId, Position};
use divvy_core::snapshot::Snapshot;
use divvy_core::state::Job as OpenJob;

use super::answer::{Answer, Refused, Words, ok, vanished};
use super::caller::Caller;
use crate::pool::Pool;
use crate::store::EndedJobs;
use crate::wire::{refusal, row};

/// The most rows of one page: bounds how long the state is read at a time.
const LARGEST_PAGE: usize = 1000;

/// The parsed query.
struct Wanted {
    ended: EndedJobs,
    with_open: bool,
    with_ended: bool,
    limit: usize,
}

/// Lists jobs by rising id, or by falling id with `newest`. An array gives one row per member. With `start`, those that wait have
/// their expected starts.
#[utoipa::path(get, path = paths::JOBS, tag = "jobs", params(JobsQuery),
    responses((status = 200, body = Page<Job>), (status = 400, body = Problem, content_type = paths::PROBLEM_TYPE)))]
pub(super) async fn list(
    Shared(pool): Shared<Arc<Pool>>,
    caller: Caller,
    Words(query): Words<JobsQuery>,
) -> Answer {
    let wanted = understood(&query)?;
    // Open jobs first: a job that ends in between is then in history, too, and is dropped there.
    let mut rows = if wanted.with_open { open(&pool, &caller, &wanted).await } else { Vec::new() };
    if wanted.with_ended {
        rows = merged(rows, ended(&pool, &caller, &wanted).await?, wanted.ended.newest);
    }
    let more = rows.len() > wanted.limit;
    rows.truncate(wanted.limit);
    let next = rows.last().filter(|_| more).map(|(id, _)| id.to_string());
    if query.start {
        expect(&pool, &mut rows).await;
    }
    ok(&Page { items: rows.into_iter().map(|(_, job)| job).collect(), next })
}

/// Adds when those that wait are expected to start.
async fn expect(pool: &Arc<Pool>, rows: &mut [Row]) {
    let waiting = rows.iter().filter(|(_, job)| job.state == JobState::Pending).map(|(id, _)| *id);
    let mut starts = pool.expectations.of_all(pool, waiting.collect()).await;
    for (id, job) in rows {
        job.start = starts.remove(id).map(row::expected_start).unwrap_or_default();
    }
}

fn understood(query: &JobsQuery) -> Result<Wanted, Problem> {
    let id = |field: &str, text: &Option<String>| {
        let read = text.as_ref().map(|text| text.parse::<JobId>()).transpose();
        read.map_err(|error| Problem::new(ProblemCode::BadSpec, error.to_string()).with_field(field))
    };
    let states: Vec<String> =
        query.state.iter().flat_map(|list| list.split(',')).map(|word| word.trim().to_owned()).collect();
    for word in &states {
        if !JobState::WORDS.contains(&word.as_str()) {
            let text = format!("{word:?} is no state: {}", JobState::WORDS.join(", "));
            return Err(Problem::new(ProblemCode::BadSpec, text).with_field("state"));
        }
    }
    let is_ended = |word: &String| JobState::from(word.as_str()).is_ended();
    let with_ended = if states.is_empty() { query.all } else { states.iter().any(is_ended) };
    let with_open = states.is_empty() || states.iter().any(|word| !is_ended(word));
    let limit = query.limit.map_or(LARGEST_PAGE, |limit| limit as usize).clamp(1, LARGEST_PAGE);
    let ended = EndedJobs {
        after: id("after", &query.after)?,
        job: id("job", &query.job)?,
        user: query.user.clone(),
        queue: query.queue.clone(),
        states,
        newest: query.newest,
    };
    Ok(Wanted { ended, with_open, with_ended, limit })
}

type Row = (JobId, Job);

async fn open(pool: &Pool, caller: &Caller, wanted: &Wanted) -> Vec<Row> {
    let controller = pool.controller.read().await;
    let (state, places) = (controller.state(), pool.places.of(controller.snapshot(), controller.position()));
    let (after, newest) = (wanted.ended.after.map(|id| id.number), wanted.ended.newest);
    let only = wanted.ended.job.map(|id| id.number);
    let first = only.or(after.filter(|_| !newest)).unwrap_or(0);
    let last = only.or(after.filter(|_| newest)).unwrap_or(u64::MAX);
    let mut jobs = state.jobs.range(first..=last).map(|(_, job)| job);
    let mut rows = Vec::new();
    while let Some(job) = if newest { jobs.next_back() } else { jobs.next() } {
        if rows.len() > wanted.limit {
            break;
        }
        if !fits(job, &wanted.ended) {
            continue;
        }
        members(job, wanted, &mut rows, |id, run| {
            let position = (!run.is_active()).then(|| places.get(&job.number).copied()).flatten();
            row::open(state, job, (id, run), position, pool.may_see(&caller.0, job.owner.uid))
        });
    }
    rows
}

fn fits(job: &OpenJob, wanted: &EndedJobs) -> bool {
    wanted.user.as_ref().is_none_or(|user| job.owner.name == *user)
        && wanted.queue.as_ref().is_none_or(|queue| job.spec.queue == *queue)
}

fn members(
    job: &OpenJob,
    wanted: &Wanted,
    rows: &mut Vec<Row>,
    make: impl Fn(JobId, &divvy_core::state::Run) -> Job,
) {
    let newest = wanted.ended.newest;
    let behind =
        |id: &JobId| wanted.ended.after.is_none_or(|after| if newest { *id < after } else { *id > after });
    let meant =
        |id: &JobId| wanted.ended.job.is_none_or(|job| job.member.is_none() || job.member == id.member);
    let ids = job.open_members().map(|member| JobId { number: job.number, member });
    let ids = ids.filter(behind).filter(meant);
    let ids: Box<dyn Iterator<Item = JobId>> = match newest {
        true => Box::new(ids.collect::<Vec<_>>().into_iter().rev()),
        false => Box::new(ids),
    };
    for id in ids {
        let Some(run) = job.run(id.member) else { continue };
        if wanted.ended.states.is_empty() || wanted.ended.states.iter().any(|word| word == run.state.name()) {
            rows.push((id, make(id, &run)));
        }
        if rows.len() > wanted.limit {
            return;
        }
    }
}

async fn ended(pool: &Arc<Pool>, caller: &Caller, wanted: &Wanted) -> Result<Vec<Row>, Refused> {
    let (asked, filter, limit) = (pool.clone(), wanted.ended.clone(), wanted.limit + 1);
    let read = pool.blocking(move || asked.reader.ended(&filter, limit)).await.ok_or_else(vanished)?;
    let attempts = read.map_err(|error| refusal::store(&error))?;
    let row = |attempt: &divvy_core::model::attempt::Attempt| {
        (attempt.job, row::ended(attempt, pool.may_see(&caller.0, attempt.uid)))
    };
    Ok(attempts.iter().map(row).collect())
}

/// Merges both in one order. An open row hides the row of its end a moment later.
fn merged(open: Vec<Row>, ended: Vec<Row>, newest: bool) -> Vec<Row> {
    let mut all = open;
    all.extend(ended);
    // Stable, so that the open row comes first of the two.
    match newest {
        true => all.sort_by_key(|(id, _)| Reverse(*id)),
        false => all.sort_by_key(|(id, _)| *id),
    }
    all.dedup_by_key(|(id, _)| *id);
    all
}

/// Places in the line of waiting jobs, computed once per position of the log.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<Option<(Position, Line)>>);

/// The place of each job, by number.
type Line = Arc<HashMap<u64, u64>>;

impl Places {
    /// Returns the place of each job (an array counts once), from 1.
    pub(crate) fn of(&self, snapshot: &Snapshot, position: Position) -> Arc<HashMap<u64, u64>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, places)) = kept.as_ref().filter(|(at, _)| *at == position) {
            return places.clone();
        }
        let classes = snapshot.waiting.classes.values();
        let mut line: Vec<_> = classes.flat_map(|class| class.jobs.iter().copied()).collect();
        line.sort_unstable();
        let places: Line = Arc::new((1u64..).zip(line).map(|(place, key)| (key.number, place)).collect());
        *kept = Some((position, places.clone()));
        places
    }
}
