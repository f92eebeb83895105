//! The controller: state, snapshot and planner in one hand. The shell feeds it, logs what it gives, and carries out its actions.

mod history;
mod rooms;

pub(crate) use rooms::noted;
pub use rooms::{Noted, Rooms, Shifted};

use crate::action::{Action, Bind, ExposedDevice, Fence, Launch, Stop};
use crate::check;
use crate::decide::{self, Adopt, Command, Rejection};
use crate::engine::Observation;
use crate::event::{Event, Stamped};
use crate::id::{AllocationId, Position};
use crate::log::Commit;
use crate::model::allocation::AllocationState;
use crate::model::attempt::Attempt;
use crate::model::job::{Owner, Work};
use crate::model::queue::{Queue, lineage};
use crate::plan::{self, Report, Room};
use crate::reason::Reason;
use crate::snapshot::Snapshot;
use crate::state::{Job, Misfit, State};
use crate::time::Time;

/// State, snapshot and planner in one hand. Nothing that it says between `take`/`see`/`cycle` and a successful append of what
/// [`Controller::drain`] returns may be acted upon; when the append fails, the controller must be built anew from the log.
pub struct Controller {
    state: State,
    snapshot: Snapshot,
    batch: Batch,
    news: bool,
    report: Report,
    rooms: Rooms,
    /// When a waiting job has waited long enough that others might be moved for it.
    moves_at: Option<Time>,
    check_every: u64,
    watch: Option<check::Watch>,
    folded: u64,
    keeps_history: bool,
    tells: Tells,
}

/// How much launches say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tells {
    /// All that a process needs to know.
    Everything,
    /// What is to run, and on which devices.
    Devices,
    /// What is to run.
    Jobs,
}

/// How often a cycle plans anew at most because it found jobs that could not start in an idle pool: nearly always once, for all of them.
const MOST_ROUNDS: usize = 8;

/// Tests check after every event; a daemon checks only when asked to.
const CHECK_EVERY: u64 = if cfg!(any(test, feature = "contract")) { 1 } else { 0 };

/// What one turn of the shell's loop gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// What is to be appended.
    pub commit: Commit,
    /// What history keeps, in the same transaction.
    pub attempts: Vec<Attempt>,
    /// What the engine is told once the commit is durable.
    pub actions: Vec<Action>,
}

/// What became of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The number of the job that was submitted.
    pub job: Option<u64>,
    /// How many events it made.
    pub events: usize,
}

/// A law is broken, or an event does not fit: the daemon must stop rather than go on.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// An event does not fit the state.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// The checker found something.
    #[error("laws are broken: {0:?}")]
    Laws(Vec<check::Violation>),
}

impl Controller {
    /// Takes over a state.
    pub fn open(mut state: State) -> Self {
        state.remember_settings();
        let (snapshot, now) = (Snapshot::new(&state), state.now);
        let mut controller = Self {
            state,
            snapshot,
            batch: Batch::default(),
            news: true,
            report: Report::default(),
            rooms: Rooms::default(),
            // What an earlier controller had noted is not known: it looks at once.
            moves_at: Some(now),
            check_every: CHECK_EVERY,
            watch: None,
            folded: 0,
            keeps_history: true,
            tells: Tells::Everything,
        };
        controller.reset_batch();
        controller
    }

    /// A controller beside the real one, to try things in: nothing of it is logged or done.
    pub(crate) fn beside(state: &State, snapshot: &Snapshot) -> Self {
        let mut controller = Self {
            state: state.clone(),
            snapshot: snapshot.clone(),
            batch: Batch::default(),
            news: true,
            report: Report::default(),
            rooms: Rooms::default(),
            moves_at: None,
            check_every: 0,
            watch: None,
            folded: 0,
            keeps_history: false,
            tells: Tells::Jobs,
        };
        controller.reset_batch();
        controller
    }

    /// The state, with everything taken and seen so far.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The snapshot, likewise.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The report of the last cycle.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The jobs for which room is kept, as far as cycles have looked at it since this controller began.
    pub fn rooms(&self) -> &Rooms {
        &self.rooms
    }

    /// The jobs for which room is kept now, whether any job asks for what is free meanwhile or not. Nothing changes.
    pub(crate) fn look_at_rooms(&mut self, now: Time) -> Vec<Room> {
        plan::rooms(&self.state, &mut self.snapshot, now)
    }

    /// Takes a command: its events are folded, and await the log.
    pub fn take(&mut self, command: &Command, now: Time) -> Result<Result<Answer, Rejection>, Broken> {
        let events = match decide::decide(&self.state, command) {
            Ok(events) => events,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let job = events.iter().find_map(|event| {
            if let Event::Submitted(submission) = event { Some(submission.number) } else { None }
        });
        let answer = Answer { job, events: events.len() };
        events.into_iter().try_for_each(|event| self.fold(event, now))?;
        Ok(Ok(answer))
    }

    /// Takes what runs already when a term begins, likewise.
    pub fn adopt(&mut self, adopt: &Adopt, now: Time) -> Result<Result<Answer, Rejection>, Broken> {
        let events = match decide::adopt(&self.state, &self.snapshot.capacity, adopt) {
            Ok(events) => events,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let answer = Answer { job: Some(self.state.next_job), events: events.len() };
        events.into_iter().try_for_each(|event| self.fold(event, now))?;
        Ok(Ok(answer))
    }

    /// Takes an observation, likewise.
    pub fn see(&mut self, observation: &Observation, now: Time) -> Result<(), Broken> {
        let seen = decide::observe(&self.state, observation);
        seen.events.into_iter().try_for_each(|event| self.fold(event, now))?;
        for (allocation, end) in seen.lost {
            self.see(&Observation::Ended(allocation, end), now)?;
        }
        self.batch.actions.extend(seen.actions);
        for allocation in seen.resend {
            self.send_again(allocation);
        }
        Ok(())
    }

    /// Whether something has happened that no cycle has seen.
    pub fn has_news(&self) -> bool {
        self.news
    }

    /// Plans, if there is news or something is due.
    pub fn cycle(&mut self, now: Time) -> Result<(), Broken> {
        let now = now.max(self.state.now);
        let is_asked = self.news || self.state.past.is_awaited();
        if !is_asked && self.due().is_none_or(|due| due > now) {
            return Ok(());
        }
        let overdue = self.snapshot.overdue(now).into_iter().map(|allocation| Event::Overdue { allocation });
        for event in self.state.calendar_news(now).into_iter().chain(overdue) {
            self.fold(event, now)?;
        }
        let turn_of_time = self.snapshot.next_turn_of_time(&self.state);
        let others = [self.state.next_renewal(), self.pledge_tick(), turn_of_time, self.awaited_move()];
        if self.next_tick().into_iter().chain(others.into_iter().flatten()).any(|tick| tick <= now) {
            self.fold(Event::Tick, now)?;
        }
        self.snapshot.pass_time(&self.state, now);
        for _ in 0..MOST_ROUNDS {
            // What a plan drops may let others start, or be dropped in turn; a job that loses a promise waits again. Each round drops a job
            // or a promise that cannot be kept, so there is an end.
            while self.plan_once(now)? {}
            // A job that is found to want nothing leaves what was due to it to others.
            if !self.state.freed {
                break;
            }
        }
        self.news = false;
        Ok(())
    }

    /// Plans and folds the plan; returns whether it dropped jobs or promises.
    fn plan_once(&mut self, now: Time) -> Result<bool, Broken> {
        let (saw, state, policy) = (self.state.position, self.state.digest(), self.state.policy_digest());
        let (plan, report) = plan::plan(&self.state, &mut self.snapshot, now);
        self.rooms.note(&self.state, &report.rooms, now);
        self.moves_at = self.moves_at.filter(|at| *at > now).into_iter().chain(report.moves_at).min();
        self.report = report;
        // What is due was asked for: that nothing of it has changed is an answer, too.
        let is_answered = !self.state.past.is_awaited();
        let all_stands = is_answered && (!self.state.freed || self.snapshot.waiting.is_empty());
        if plan.is_empty() && all_stands {
            return Ok(false);
        }
        let digest = plan.digest();
        let drops = plan.ends.iter().any(|end| matches!(end, Event::Dropped { .. } | Event::Revoked { .. }));
        for event in plan.into_events() {
            self.fold(event, now)?;
        }
        self.fold(Event::Planned { saw, state, policy, plan: digest }, now)?;
        Ok(drops)
    }

    /// When [`Controller::cycle`] has something to do without news.
    pub fn due(&self) -> Option<Time> {
        let timers =
            [self.snapshot.due(), self.next_tick(), self.awaited_renewal(), self.state.calendar_due()];
        let turn_of_time = self.snapshot.next_turn_of_time(&self.state);
        let others = [self.pledge_tick(), turn_of_time, self.awaited_move()];
        timers.into_iter().chain(others).flatten().min()
    }

    /// When a job has waited long enough that others might be moved for it.
    fn awaited_move(&self) -> Option<Time> {
        let waits = !self.snapshot.waiting.is_empty() && !self.state.allocations.is_empty();
        self.moves_at.filter(|_| waits && self.state.policy.moves_any())
    }

    /// When the next budget renews, if a job waits for that; no job waits for a budget of 0.
    fn awaited_renewal(&self) -> Option<Time> {
        let until = self.state.next_renewal()?;
        let waits = |reason: &Reason| matches!(reason, Reason::OverBudget(_, budget, _) if *budget > 0);
        let renews = |queue: &Queue| queue.budget.said().is_some_and(|budget| budget.milli_gpu_hours > 0);
        let is_awaited = self.state.verdicts.values().any(waits) || self.may_grow_where(renews);
        is_awaited.then_some(until)
    }

    /// Whether a running gang may grow in one of these queues, or below it: such a gang waits, though it stands in no line.
    fn may_grow_where(&self, is_meant: impl Fn(&Queue) -> bool) -> bool {
        let stands_there = |job: &Job| {
            lineage(&job.spec.queue).filter_map(|path| self.state.queues.get(path)).any(&is_meant)
        };
        self.snapshot.growing.iter().filter_map(|id| self.state.jobs.get(&id.number)).any(stands_there)
    }

    /// When it is to be reckoned again which queues are behind their pledges: as long as jobs wait, or gangs of such queues may grow.
    fn pledge_tick(&self) -> Option<Time> {
        let next = self.state.pledges.next_tick()?;
        let is_awaited =
            !self.snapshot.waiting.is_empty() || self.may_grow_where(|queue| !queue.pledge.is_unsaid());
        (is_awaited && !self.state.allocations.is_empty()).then_some(next)
    }

    /// When the past of queues is to be reckoned again: as long as jobs wait while others run, or running gangs could have more, and
    /// once more after that.
    fn next_tick(&self) -> Option<Time> {
        let past = &self.state.past;
        let wants = !self.snapshot.waiting.is_empty() || !self.snapshot.growing.is_empty();
        let rests = !wants && past.is_at_rest();
        if rests || self.state.allocations.is_empty() || !self.state.remembers() {
            return None;
        }
        past.next_tick()
    }

    /// Where a job of this shape would start now, or the reason why it would not. Nothing changes.
    pub fn dry_run(
        &mut self,
        spec: &crate::model::job::JobSpec,
    ) -> Result<Vec<crate::model::allocation::Placement>, crate::reason::Reason> {
        plan::would_place(&self.state, &mut self.snapshot, spec)
    }

    /// What a queue could still take of each resource that queues speak of; below zero where more is held than there is.
    pub fn available(&self, queue: &str) -> std::collections::BTreeMap<crate::amount::Resource, i64> {
        plan::available(&self.state, &self.snapshot, queue)
    }

    /// How much of each resource a queue has borrowed from others, where queues say what they lend or borrow.
    pub fn borrowed(&self, queue: &str) -> std::collections::BTreeMap<crate::amount::Resource, i64> {
        plan::borrowed(&self.state, &self.snapshot, queue)
    }

    /// What is to be logged and then done; `None` if nothing has happened.
    pub fn drain(&mut self) -> Option<Batch> {
        let mut batch = Batch::default();
        self.drain_into(&mut batch).then_some(batch)
    }

    /// The same in place of what was in a batch, whose memory is reused; returns whether anything has happened.
    pub fn drain_into(&mut self, batch: &mut Batch) -> bool {
        if self.batch.commit.events.is_empty() && self.batch.actions.is_empty() {
            return false;
        }
        std::mem::swap(&mut self.batch, batch);
        self.reset_batch();
        true
    }

    fn reset_batch(&mut self) {
        let Batch { commit, attempts, actions } = &mut self.batch;
        (commit.term, commit.after) = (self.state.term, self.state.position);
        commit.events.clear();
        attempts.clear();
        actions.clear();
    }

    /// Folds one event into state and snapshot, and notes what follows from it.
    fn fold(&mut self, event: Event, now: Time) -> Result<(), Broken> {
        let before = self.snapshot.expect(&self.state, &event);
        if self.keeps_history
            && let Some(attempt) = history::attempt_of(&self.state, &event, now.max(self.state.now))
        {
            self.batch.attempts.extend(attempt);
        }
        let stamped = Stamped { at: now.max(self.state.now), event };
        self.state.apply(&stamped)?;
        self.batch.commit.term = self.state.term;
        self.snapshot.follow(&self.state, &stamped.event, before);
        self.news |= stamped.event.is_news() || self.state.freed;
        if let Some(watch) = &mut self.watch {
            let violations = watch.follow(&self.state, &stamped);
            if !violations.is_empty() {
                return Err(Broken::Laws(violations));
            }
        }
        self.act_on(&stamped.event);
        self.batch.commit.events.push(stamped);
        self.folded += 1;
        if self.check_every > 0 && self.folded.is_multiple_of(self.check_every) {
            self.assert_lawful()
        } else {
            Ok(())
        }
    }

    /// Folds an event as it is: scenarios use it to put a pool into a state to which no plan has led.
    pub(crate) fn put(&mut self, event: Event, now: Time) -> Result<(), Broken> {
        self.fold(event, now)
    }

    /// Whether ended attempts are gathered for history: a simulator has no use for them.
    pub fn keep_history(&mut self, keeps: bool) {
        self.keeps_history = keeps;
    }

    /// Sets how much launches say: an engine that runs no processes has no use for most of it.
    pub fn tell(&mut self, tells: Tells) {
        self.tells = tells;
    }

    /// Lets the checker look at the state after every so many events; 0 for never. Tests check after each.
    pub fn check_every(&mut self, events: u64) {
        self.check_every = events;
    }

    /// Lets the checker's books follow every event from here on: each check costs what the event touches.
    pub fn keep_books(&mut self) {
        self.watch = Some(check::Watch::new(&self.state));
    }

    fn assert_lawful(&self) -> Result<(), Broken> {
        let violations = check::check(&self.state);
        if violations.is_empty() { Ok(()) } else { Err(Broken::Laws(violations)) }
    }

    /// Adds the actions that an event asks for.
    fn act_on(&mut self, event: &Event) {
        match event {
            Event::Placed { placements, .. } | Event::Grown { placements, .. } => {
                placements.iter().for_each(|placement| self.send_again(placement.allocation));
            }
            Event::Stopping { job, .. } => {
                let live = self.state.run(*job).map(|run| run.live.clone()).unwrap_or_default();
                live.into_iter().for_each(|allocation| self.send_again(allocation));
            }
            Event::Shrinking { allocations, .. } => {
                allocations.iter().for_each(|allocation| self.send_again(*allocation));
            }
            Event::TaskEnded { allocation, .. } => {
                self.batch.actions.push(Action::Forget(decide::last_word(&self.state, *allocation)));
            }
            _ => {}
        }
    }

    /// Sends what an allocation's state asks for: a launch, or a stop.
    fn send_again(&mut self, id: AllocationId) {
        let Some(held) = self.state.allocations.get(&id) else { return };
        let fence = Fence { term: self.state.term, allocation: id, seq: held.seq };
        match held.state {
            AllocationState::Starting => {
                let launch = launch((&self.state, &self.snapshot), id, self.tells)
                    .map(|launch| Action::Launch(fence, Box::new(launch)));
                let bind = || Some(Action::Bind(fence, Box::new(bind(&self.state, id)?)));
                self.batch.actions.extend(launch.or_else(bind));
            }
            AllocationState::Stopping => {
                let order = self.state.stop_order(held.job);
                self.batch
                    .actions
                    .push(Action::Stop(fence, Stop { signal: order.signal, grace_ms: order.grace_ms }));
            }
            _ => {}
        }
    }

    /// The position after everything taken and seen so far.
    pub fn position(&self) -> Position {
        self.state.position
    }
}

/// What the task of an allocation needs to start, as far as its engine has a use for it. `None` where the work is not a process.
fn launch((state, snapshot): (&State, &Snapshot), id: AllocationId, tells: Tells) -> Option<Launch> {
    let held = state.allocations.get(&id)?;
    let job = state.jobs.get(&held.job.number)?;
    let run = state.run(held.job)?;
    let placement = &held.placement;
    let (role, role_rank) = job.spec.gang.role_of(placement.rank)?;
    let Work::Process(process) = &role.work else { return None };
    let exposed = |(device, draw): &(crate::id::DeviceId, crate::model::device::Draw)| {
        let spec = &state.devices.get(device)?.spec;
        Some(ExposedDevice { uuid: spec.uuid.clone(), minor: spec.minor, draw: draw.clone() })
    };
    let alternative = role.ask.alternatives.get(placement.alternative as usize)?;
    let launch = Launch {
        job: held.job,
        attempt: run.attempt,
        restart: run.attempt - 1,
        rank: placement.rank,
        world_size: run.placements.len() as u32,
        is_elastic: job.spec.gang.is_elastic(),
        ..Launch::default()
    };
    if tells == Tells::Jobs {
        return Some(launch);
    }
    let launch = Launch {
        devices: placement.devices.iter().filter_map(exposed).collect(),
        cpu_milli: placement.cpu_milli.max(snapshot.capacity.core_share(placement)),
        cpu_is_ceiling: alternative.cpu_milli.is_some(),
        memory_bytes: placement.memory_bytes,
        ..launch
    };
    if tells == Tells::Devices {
        return Some(launch);
    }
    let in_role = run.placements.iter().filter_map(|other| job.spec.gang.role_of(other.rank));
    let role_size = in_role.filter(|(other, _)| std::ptr::eq(*other, role)).count() as u32;
    let on_node = || run.placements.iter().filter(|other| other.node == placement.node);
    let local = on_node().position(|other| other.rank == placement.rank)?;
    Some(Launch {
        name: job.spec.name.clone(),
        role: role.name.clone(),
        role_rank: (role_rank, role_size),
        local_rank: (local as u32, on_node().count() as u32),
        node: state.nodes.get(&placement.node).map(|node| node.spec.name.clone()).unwrap_or_default(),
        owner: Owner::clone(&job.owner),
        queue: job.spec.queue.clone(),
        process: process.clone(),
        rendezvous: (rendezvous(state, run), run.port),
        ..launch
    })
}

/// Which outside task of an allocation goes to which node. `None` where the work is a process, or has no name outside.
fn bind(state: &State, id: AllocationId) -> Option<Bind> {
    let held = state.allocations.get(&id)?;
    let (role, number) = state.jobs.get(&held.job.number)?.spec.gang.role_of(held.placement.rank)?;
    let Work::External(tasks) = &role.work else { return None };
    let node = state.nodes.get(&held.placement.node)?.spec.name.clone();
    Some(Bind { job: held.job, task: tasks.get(number as usize)?.clone(), node })
}

/// Where the gang meets: the node of rank 0; on one machine, that machine itself.
fn rendezvous(state: &State, run: &crate::state::Run) -> String {
    let first = run.placements.first().map(|placement| placement.node);
    if run.placements.iter().all(|placement| Some(placement.node) == first) {
        return "127.0.0.1".into();
    }
    first.and_then(|node| state.nodes.get(&node)).map(|node| node.spec.name.clone()).unwrap_or_default()
}
