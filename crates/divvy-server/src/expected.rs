//! When a waiting job can be expected to start: on request, the core is run forward from a copy of the state, away from the
//! threads that decide and serve. Answers are remembered until the job starts, so that later answers become more accurate.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use divvy_core::explain;
use divvy_core::id::JobId;
use divvy_core::model::attempt::Attempt;
use divvy_core::reason::Verdict;
use divvy_core::state::State;
use divvy_core::time::{Span, Time};
use divvy_insight::Lengths;
use divvy_sim::engine::Costs;
use divvy_sim::forecast::{Basis, Bounds, Expected, Experience, Forecast, Known, forecast};
use tokio::sync::Mutex;

use crate::alike;
use crate::clock;
use crate::pool::Pool;
use crate::store::{Reader, StoreError};

/// How long an answer about one job may take, and how long a question may wait for the one before it.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);

/// How long the answers about a list of jobs may take: the futures go on until the last of them has started.
const LISTED_WITHIN: Duration = Duration::from_secs(5);

/// How old the learned lengths may be.
const LEARNED_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// What can be said about a job's start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// When it is expected; absent where no time can be given.
    pub(crate) at: Option<Time>,
    /// The start is not expected before this time.
    pub(crate) low: Option<Time>,
    /// Nor after this time, where that is known.
    pub(crate) high: Option<Time>,
    /// What the answer is based on, or why there is none.
    pub(crate) by: String,
}

impl Answer {
    fn nothing(why: impl Into<String>) -> Self {
        Self { by: why.into(), ..Self::default() }
    }
}

/// Answers one question at a time.
#[derive(Default)]
pub(crate) struct Expectations(Arc<Mutex<Forecaster>>);

/// The answers about the jobs that were asked about.
pub(crate) type Answers = BTreeMap<JobId, Answer>;

impl Expectations {
    /// Returns when a waiting job is expected to start.
    pub(crate) async fn of(&self, pool: &Arc<Pool>, id: JobId) -> Answer {
        self.answers(pool, BTreeSet::from([id]), ANSWERED_WITHIN).await.remove(&id).unwrap_or_default()
    }

    /// Returns when each of these waiting jobs is expected to start.
    pub(crate) async fn of_all(&self, pool: &Arc<Pool>, ids: BTreeSet<JobId>) -> Answers {
        self.answers(pool, ids, LISTED_WITHIN).await
    }

    async fn answers(&self, pool: &Arc<Pool>, ids: BTreeSet<JobId>, within: Duration) -> Answers {
        let all = |ids: BTreeSet<JobId>, why: &str| {
            ids.into_iter().map(|id| (id, Answer::nothing(why))).collect::<Answers>()
        };
        let turn = tokio::time::timeout(ANSWERED_WITHIN, self.0.clone().lock_owned());
        let Ok(mut forecaster) = turn.await else {
            return all(ids, "others are asking, too: ask again in a few seconds");
        };
        let state = pool.controller.read().await.state().clone();
        let (asked, wanted) = (pool.clone(), ids.clone());
        let found = pool.blocking(move || forecaster.answers(&asked.reader, &state, wanted, within)).await;
        let broke_off = || {
            tracing::warn!("looking ahead broke off");
            all(ids, BROKE_OFF)
        };
        found.unwrap_or_else(broke_off)
    }
}

/// What is said where no answer was found, through a defect.
const BROKE_OFF: &str = "looking ahead broke off; the daemon's log says more";

/// The lengths that were learned, and the answers that were given.
#[derive(Default)]
struct Forecaster {
    lengths: Lengths,
    learned: Option<Instant>,
    experience: Experience,
}

impl Forecaster {
    fn answers(&mut self, reader: &Reader, state: &State, ids: BTreeSet<JobId>, within: Duration) -> Answers {
        let now = clock::now();
        let without_a_look = |id: &JobId| promised(state, *id, now).or_else(|| never(state, *id));
        let mut answers: Answers = ids.iter().filter_map(|id| Some((*id, without_a_look(id)?))).collect();
        let wanted: BTreeSet<JobId> = ids.into_iter().filter(|id| !answers.contains_key(id)).collect();
        if wanted.is_empty() {
            return answers;
        }
        if let Err(error) = self.learn(reader, state) {
            tracing::warn!("nothing can be learned from history: {error}");
        }
        let until = Instant::now() + within;
        let known = Known {
            state,
            now: clock::now(),
            lengths: &self.lengths,
            likeness: &alike::likeness,
            costs: Costs::default(),
        };
        let found = forecast(&known, &wanted, &Bounds::default(), &|| Instant::now() > until);
        let found = found.inspect_err(|broken| tracing::warn!("looking ahead broke off: {broken}"));
        for id in wanted {
            let own = state.jobs.get(&id.number).and_then(|job| job.spec.start_after);
            let answer = match &found {
                Ok(found) => self.tell(found, id, own, within),
                Err(_) => Answer::nothing(BROKE_OFF),
            };
            answers.insert(id, answer);
        }
        answers
    }

    /// Turns a forecast into an answer, and remembers it.
    fn tell(&mut self, found: &Forecast, id: JobId, own: Option<Time>, within: Duration) -> Answer {
        let waits_ms = found.waits_ms(id);
        let Some(expected) = self.experience.expect(found.as_of, &waits_ms) else {
            let followed = found.until.since(found.as_of);
            return Answer::nothing(why_not(found.samples(), found.basis.unknown, followed, within));
        };
        self.experience.remember(id, found.as_of, &waits_ms);
        let least_ms = own.map_or(0, |at| at.since(found.as_of).0.max(0));
        let expected = expected.no_sooner_than(least_ms);
        let Expected { low_ms, middle_ms, high_ms } = expected;
        let after = |wait_ms: i64| Some(found.as_of + Span(wait_ms));
        Answer {
            at: after(middle_ms),
            low: after(low_ms),
            high: high_ms.and_then(after),
            by: basis(found.basis),
        }
    }

    /// Learns from the jobs that have ended, and from those that have started since they got an answer.
    fn learn(&mut self, reader: &Reader, state: &State) -> Result<(), StoreError> {
        if self.learned.is_none_or(|at| at.elapsed() > LEARNED_AGAIN_AFTER) {
            self.learned = Some(Instant::now());
            let mut lengths = Lengths::default();
            for (likeness, length_ms) in reader.lengths(alike::LEARNED_FROM)? {
                lengths.note_end(&likeness, length_ms);
            }
            self.lengths = lengths;
        }
        for id in self.experience.waiting().collect::<Vec<_>>() {
            let started_at = match state.jobs.get(&id.number).and_then(|job| job.run(id.member)) {
                Some(run) if run.attempt == 1 && !run.is_active() => continue,
                Some(run) if run.attempt == 1 => run.placed_at,
                _ => first_start(&reader.attempts(id)?),
            };
            match started_at {
                Some(started_at) => self.experience.started(id, started_at),
                None => self.experience.forget(id),
            }
        }
        Ok(())
    }
}

/// When a job starts whose devices are promised to it: as soon as the tasks there have ended, within their grace at the latest.
fn promised(state: &State, id: JobId, now: Time) -> Option<Answer> {
    let promise = state.promises.get(&id)?;
    let held = promise.waits_for.iter().filter_map(|awaited| state.allocations.get(awaited));
    let jobs: BTreeSet<JobId> = held.map(|held| held.job).collect();
    let notices = jobs.iter().filter_map(|job| Some(state.jobs.get(&job.number)?.spec.notice()));
    let grace = Span(notices.map(|notice| notice.grace_ms).max()?);
    let names: Vec<String> = jobs.iter().map(JobId::to_string).collect();
    let (be, possessive) = if names.len() == 1 { ("is", "its") } else { ("are", "their") };
    let by = format!(
        "its devices are promised to it: {} {be} being stopped, and {possessive} grace is {grace} at most",
        names.join(", ")
    );
    Some(Answer { at: Some(now), low: Some(now), high: Some(now + grace), by })
}

/// What is said of a job that the pool can never run as things are: no future need be followed for it.
fn never(state: &State, id: JobId) -> Option<Answer> {
    let job = state.jobs.get(&id.number)?;
    let why = explain::reason(state, job, (id, &job.run(id.member)?))?;
    (why.verdict() == Verdict::NoFit)
        .then(|| Answer::nothing(format!("never, as things are: `divvy explain {id}` says what would help")))
}

fn first_start(attempts: &[Attempt]) -> Option<Time> {
    attempts.iter().find_map(|attempt| attempt.started_at)
}

/// Says what an answer is based on.
fn basis(basis: Basis) -> String {
    let many = |count: u64, one: &str, more: &str| format!("{count} {}", if count == 1 { one } else { more });
    let finished = many(basis.finished, "finished job", "finished jobs");
    let said = many(basis.said, "job that runs", "jobs that run");
    match (basis.finished, basis.said) {
        (0, 0) if basis.unknown > 0 => format!(
            "nothing says how long {} will take: by then so much is due to its queue, or it has waited for so long, that others give way",
            many(basis.unknown, "job that runs", "jobs that run")
        ),
        (0, 0) => "nothing that runs stands in its way".into(),
        (0, _) => format!("by the limit or estimate of {said}"),
        (_, 0) => format!("by {finished} like those that run"),
        _ => format!("by {finished} like those that run, and the limit or estimate of {said}"),
    }
}

/// Says why no start is foreseen, from how many futures were followed, how far, and how long that was to take.
fn why_not(samples: usize, unknown: u64, followed: Span, within: Duration) -> String {
    if samples == 0 {
        return format!("not known: looking ahead takes longer than {} s", within.as_secs());
    }
    if unknown > 0 {
        let jobs = if unknown == 1 { "1 job that runs".into() } else { format!("{unknown} jobs that run") };
        return format!(
            "not known: nothing says how long {jobs} will take (no time limit, no estimate, and no job has finished yet)"
        );
    }
    format!("not within {followed}, as far as limits, estimates and finished jobs tell")
}

#[cfg(test)]
mod tests {
    use divvy_core::scenario::Scenario;

    use super::*;

    #[test]
    fn what_is_promised_is_had_within_the_grace_of_those_who_have_it() {
        let mut pool = Scenario::new();
        let lines = ["node n1 2xh100", "submit a default 1 prio=low", "submit b default 1 prio=low", "plan"];
        let then = ["pass 1m", "submit c default 2 prio=high", "submit d default 1", "plan"];
        lines.iter().chain(&then).for_each(|line| pool.line(line).unwrap());
        let answer = promised(pool.state(), JobId::single(3), Time(5_000)).unwrap();
        assert_eq!((answer.at, answer.low, answer.high), (Some(Time(5_000)), answer.at, Some(Time(15_000))));
        let said = "its devices are promised to it: 1, 2 are being stopped, and their grace is 10s at most";
        assert_eq!(answer.by, said);
        assert_eq!(promised(pool.state(), JobId::single(4), Time(5_000)), None);
    }

    #[test]
    fn for_what_the_pool_can_never_run_nothing_is_foreseen() {
        let mut pool = Scenario::new();
        let lines =
            ["node n1 2xh100", "submit a default 4 wait", "submit b default 2", "submit c default 2", "plan"];
        lines.iter().for_each(|line| pool.line(line).unwrap());
        let answer = never(pool.state(), JobId::single(1)).unwrap();
        assert_eq!(answer.by, "never, as things are: `divvy explain 1` says what would help");
        assert_eq!([2, 3].map(|number| never(pool.state(), JobId::single(number))), [None, None]);
    }

    #[test]
    fn an_answer_says_what_it_rests_on() {
        let said = |finished, said| basis(Basis { finished, said, unknown: 0 });
        assert_eq!(said(40, 0), "by 40 finished jobs like those that run");
        assert_eq!(said(0, 2), "by the limit or estimate of 2 jobs that run");
        assert_eq!(
            said(1, 1),
            "by 1 finished job like those that run, and the limit or estimate of 1 job that runs"
        );
        assert_eq!(said(0, 0), "nothing that runs stands in its way");
    }

    #[test]
    fn without_an_answer_it_is_said_why() {
        let why_not =
            |samples, unknown| super::why_not(samples, unknown, Span(7 * 86_400_000), ANSWERED_WITHIN);
        assert_eq!(why_not(15, 0), "not within 7d, as far as limits, estimates and finished jobs tell");
        assert!(why_not(15, 2).contains("how long 2 jobs that run will take"));
        assert!(why_not(0, 2).contains("longer than 2 s"));
    }
}
