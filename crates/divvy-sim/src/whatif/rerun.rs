//! Replays the past: people do what they did, when they did it; everything else is decided anew.

use std::collections::{BTreeMap, BTreeSet};

use divvy_core::controller::Broken;
use divvy_core::decide::{Command, Submit, guaranteed_beyond};
use divvy_core::event::{Event, Stamped};
use divvy_core::explain;
use divvy_core::id::JobId;
use divvy_core::model::job::{JobState, Requeue, Submission};
use divvy_core::model::queue::Queue;
use divvy_core::state::{Job, Outcome, fingerprint};
use divvy_core::time::{Span, Time};

use super::record::{Deed, Life, Past, Settings, What, members};
use crate::engine::{Costs, Course, SimulatedEngine};
use crate::pool::{Beginning, VirtualPool, root};

/// What came of a replay. Jobs are named as in the past.
#[derive(Debug, Default)]
pub(super) struct Rerun {
    /// The devices of the pool.
    pub(super) gpus: u32,
    /// How long each job that started waited for it, in milliseconds.
    pub(super) waits_ms: BTreeMap<JobId, i64>,
    /// How often jobs were stopped before their end.
    pub(super) preemptions: BTreeMap<String, u64>,
    /// Device time held within the time that is counted, by queue, in milli-GPU·ms.
    pub(super) held_milli_ms: BTreeMap<String, i128>,
    /// Jobs that this pool would have refused, and why.
    pub(super) refused: BTreeMap<u64, String>,
    /// Jobs that are left when nothing happens any more, and what each waits for.
    pub(super) stranded: BTreeMap<u64, String>,
    /// What is guaranteed beyond what the pool has.
    pub(super) beyond: Option<String>,
    /// The hash of all decisions.
    pub(super) digest: u64,
}

/// Replays the past with these settings until all that can end has ended.
pub(super) fn rerun(past: &Past, settings: Settings) -> Result<Rerun, Broken> {
    let mut run = Run::begin(past, settings)?;
    let mut deeds = past.deeds.iter().peekable();
    while let Some(now) = [deeds.peek().map(|deed| deed.at), run.pool.next_due()].into_iter().flatten().min()
    {
        run.pass_to(now)?;
        while let Some(deed) = deeds.next_if(|deed| deed.at <= now) {
            run.repeat(deed)?;
        }
        run.decide()?;
    }
    Ok(run.end())
}

/// A replay under way.
struct Run<'a> {
    past: &'a Past,
    pool: VirtualPool,
    /// The number now of each job, by its number then.
    numbers: BTreeMap<u64, u64>,
    /// The same the other way round.
    then: BTreeMap<u64, u64>,
    /// How jobs have ended here, for those that depend on them.
    ended: BTreeMap<JobId, Outcome>,
    /// What the empty pool was found to hold.
    fitting: BTreeSet<u64>,
    /// What runs: since when, and how much it holds.
    holding: BTreeMap<JobId, (Time, i64)>,
    found: Rerun,
}

impl<'a> Run<'a> {
    fn begin(past: &'a Past, settings: Settings) -> Result<Self, Broken> {
        let start = past.deeds.first().map_or(past.since, |deed| deed.at);
        let costs = Costs { start_ms: past.start_ms, restart_ms: past.start_ms };
        let engine = SimulatedEngine::new(start, costs, BTreeMap::new());
        let gpus = settings.gpus();
        let queues = open_queues(settings.queues, past);
        let guaranteed = queues.clone();
        let beginning = Beginning { nodes: settings.nodes, queues, policy: settings.policy };
        let pool = VirtualPool::begin(beginning, engine, start)?;
        let beyond = guaranteed_beyond(pool.state(), &guaranteed).map(|beyond| beyond.what);
        let found = Rerun { gpus, beyond, ..Rerun::default() };
        let (numbers, then, ended) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (fitting, holding) = (BTreeSet::new(), BTreeMap::new());
        Ok(Self { past, pool, numbers, then, ended, fitting, holding, found })
    }

    fn pass_to(&mut self, now: Time) -> Result<(), Broken> {
        let happened = self.pool.advance_to(now)?;
        self.note(&happened);
        Ok(())
    }

    fn decide(&mut self) -> Result<(), Broken> {
        let happened = self.pool.decide()?;
        self.note(&happened);
        Ok(())
    }

    fn repeat(&mut self, deed: &Deed) -> Result<(), Broken> {
        let now = |job: &JobId| {
            let number = self.numbers.get(&job.number)?;
            Some(JobId { number: *number, member: job.member })
        };
        let command = match &deed.what {
            What::Submitted(submission) => return self.submit(submission),
            What::Held(job) => now(job).map(|job| Command::Hold(job, root())),
            What::Released(job) => now(job).map(|job| Command::Release(job, root())),
            What::Prioritised(job, to) => now(job).map(|job| Command::Prioritise(job, *to, root())),
            What::Cancelled(job) => return now(job).map_or(Ok(()), |job| self.cancel_waiting(job)),
        };
        // A job that waited then may run or be over now: then there is nothing to hold.
        if let Some(command) = command {
            let _ = self.pool.take(&command)?;
        }
        Ok(())
    }

    /// Cancels a job that was cancelled while it waited, or those members of it that wait here, too. What runs here works on.
    fn cancel_waiting(&mut self, id: JobId) -> Result<(), Broken> {
        let Some(job) = self.pool.state().jobs.get(&id.number) else { return Ok(()) };
        let is_active = |member| job.run(member).is_some_and(|run| run.is_active());
        let cancelled: Vec<JobId> = match id.member {
            Some(_) if is_active(id.member) => Vec::new(),
            None if job.open_members().any(is_active) => {
                let waiting = job.open_members().filter(|member| !is_active(*member));
                waiting.map(|member| JobId { member, ..id }).collect()
            }
            _ => vec![id],
        };
        cancelled.into_iter().try_for_each(|id| self.pool.take(&Command::Cancel(id, root())).map(drop))
    }

    fn submit(&mut self, then: &Submission) -> Result<(), Broken> {
        let mut spec = (*then.spec).clone();
        spec.after.retain_mut(|dependency| match self.numbers.get(&dependency.job.number) {
            // That job ended before the replayed time, or was refused: there is nothing to wait for.
            None => false,
            Some(number) => {
                dependency.job.number = *number;
                true
            }
        });
        let over = spec.after.iter().filter_map(|dependency| {
            self.ended.get(&dependency.job).map(|outcome| (dependency.job, *outcome))
        });
        let history = over.collect();
        // What fits is checked once for each shape: the pool does not change.
        let shape = fingerprint(&(&spec.gang, &spec.queue, spec.exclusive));
        spec.wait_for_capacity = self.fitting.contains(&shape);
        // The length of its work already covers all its runs.
        spec.requeue = Requeue::Never;
        let (owner, array, held) = (then.owner.clone(), then.array.clone(), then.held);
        let spec = spec.into();
        let submit = Submit { owner, spec, requeue_said: true, array, token: None, held, history };
        match self.pool.take(&Command::Submit(Box::new(submit)))? {
            Err(rejection) => drop(self.found.refused.insert(then.number, rejection.to_string())),
            Ok(None) => {}
            Ok(Some(number)) => {
                self.fitting.insert(shape);
                self.numbers.insert(then.number, number);
                self.then.insert(number, then.number);
                self.set_courses(number, then);
            }
        }
        Ok(())
    }

    fn set_courses(&mut self, number: u64, then: &Submission) {
        for member in members(then) {
            if let Some(life) = self.past.lives.get(&JobId { number: then.number, member }) {
                let course = course(life, then);
                self.pool.engine().set_member_course(JobId { number, member }, course);
            }
        }
    }

    fn note(&mut self, happened: &[Stamped]) {
        for Stamped { at, event } in happened {
            match event {
                Event::Placed { job, placements, .. } => {
                    let draws = placements.iter().flat_map(|placement| &placement.devices);
                    let milli = draws.map(|(_, draw)| i64::from(draw.milli)).sum();
                    self.holding.insert(*job, (*at, milli));
                    let starts_at = *at + Span(self.past.start_ms);
                    if let Some((id, life)) = self.life_of(*job) {
                        self.found.waits_ms.entry(id).or_insert(starts_at.since(life.submitted_at).0);
                    }
                }
                Event::AttemptEnded { job, state, .. } => {
                    self.release(*job, *at);
                    if *state == JobState::Pending {
                        let queue = self.life_of(*job).map(|(_, life)| life.queue.clone());
                        *self.found.preemptions.entry(queue.unwrap_or_default()).or_default() += 1;
                    } else {
                        self.close(*job, *state);
                    }
                }
                Event::Dropped { job, state, .. } => self.close(*job, *state),
                _ => {}
            }
        }
    }

    /// Charges what a job held within the time that is counted.
    fn release(&mut self, job: JobId, at: Time) {
        let Some((since, milli)) = self.holding.remove(&job) else { return };
        let Past { since: first, until: last, .. } = self.past;
        let held = i128::from(milli) * i128::from(at.min(*last).since(since.max(*first)).0);
        let queue = self.life_of(job).map(|(_, life)| life.queue.clone());
        *self.found.held_milli_ms.entry(queue.unwrap_or_default()).or_default() += held;
    }

    fn close(&mut self, job: JobId, state: JobState) {
        self.pool.engine().forget_job(job);
        let outcome = if state == JobState::Completed { Outcome::Ok } else { Outcome::Fail };
        self.ended.insert(job, outcome);
        if job.member.is_some() {
            // An array has gone well only when all of its members have.
            let whole = self.ended.entry(JobId::single(job.number)).or_insert(outcome);
            *whole = if outcome == Outcome::Ok { *whole } else { Outcome::Fail };
        }
    }

    fn life_of(&self, job: JobId) -> Option<(JobId, &'a Life)> {
        let id = JobId { number: *self.then.get(&job.number)?, member: job.member };
        self.past.lives.get(&id).map(|life| (id, life))
    }

    fn end(mut self) -> Rerun {
        // A job that runs for ever (a service that nobody stopped) holds until the end of what is counted.
        let left: Vec<JobId> = self.holding.keys().copied().collect();
        left.into_iter().for_each(|job| self.release(job, self.past.until));
        self.found.stranded = self.stranded();
        self.found.digest = self.pool.digest();
        self.found
    }

    fn stranded(&self) -> BTreeMap<u64, String> {
        let state = self.pool.state();
        let waits = |job: &Job| {
            let member = job.waiting_members().next()?;
            let (id, run) = (JobId { member, ..job.id() }, job.run(member)?);
            let reason = explain::reason(state, job, (id, &run))?;
            Some((*self.then.get(&job.number)?, format!("{}: {reason}", reason.code())))
        };
        state.jobs.values().filter_map(waits).collect()
    }
}

/// What becomes of a job when nobody interferes.
fn course(life: &Life, then: &Submission) -> Course {
    let (spec, state) = (&then.spec, life.ended.map(|(_, state)| state));
    let limit_ms = spec.time_limit.map_or(0, |limit| limit.0);
    // A job that ran into the limit would have run on.
    let work_ms =
        if state == Some(JobState::Timeout) { life.work_ms.max(limit_ms + 1000) } else { life.work_ms };
    // A job that waited when it ended is not known to have failed.
    let failed = !life.ended_waiting && state.is_some_and(|state| state != JobState::Completed);
    let exit_code = i32::from(failed);
    Course { work_ms, exit_code, resumes: spec.resumable, speeds: BTreeMap::new() }
}

/// The queues, open to everyone accepted then; queues that no longer exist are added without limits.
fn open_queues(queues: Vec<Queue>, past: &Past) -> Vec<Queue> {
    let mut open: BTreeMap<String, Queue> =
        queues.into_iter().map(|queue| (queue.path.clone(), Queue { submit: Vec::new(), ..queue })).collect();
    for life in past.lives.values() {
        open.entry(life.queue.clone()).or_insert_with_key(|path| Queue::named(path));
    }
    open.into_values().collect()
}
