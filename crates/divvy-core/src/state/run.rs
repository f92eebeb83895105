//! Questions about a job and its runs.

use super::{GaveUp, Job, Run, Runs, Stopping};
use crate::id::{DeviceId, JobId};
use crate::model::allocation::Placement;
use crate::model::ask::{Alternative, Ask, DrawAsk};
use crate::model::device::Health;
use crate::model::gang::Group;
use crate::model::job::{Cause, DependsOn, JobSpec, JobState};
use crate::model::moves::{Moved, Moves};
use crate::model::newer::Newer;
use crate::model::policy::Policy;
use crate::model::promise::Promise;
use crate::reason::Reason;
use crate::state::{Outcome, State};
use crate::time::Time;

/// How long a job that was moved stays where it is, if the policy does not say how often it may be moved: an hour.
const STAYS_MS: i64 = 3_600_000;

/// A run shorter than this that asks to be run again counts as a restart.
const LEAST_RUN_MS: i64 = 10_000;

impl Run {
    /// A job that waits for its first attempt.
    pub fn fresh(held_by: Option<String>) -> Self {
        Self {
            state: if held_by.is_some() { JobState::Held } else { JobState::Pending },
            held_by,
            attempt: 1,
            restarts: 0,
            placed_at: None,
            started_at: None,
            checkpointed_at: None,
            live: Vec::new(),
            over: Vec::new(),
            placements: Vec::new(),
            outputs: Default::default(),
            isolation: None,
            port: 0,
            held_milli_ms: 0,
            stopping: None,
            last_end: None,
            attained_ms: 0,
            back_since: None,
            promised: false,
            taken_at: None,
            gave_way: 0,
            moved: Newer(None),
            gave_up: None,
            hash: super::digest::Remembered::default(),
        }
    }

    /// Notes that all of its tasks run.
    pub(super) fn begins(&mut self, at: Time) {
        self.started_at = self.started_at.or(Some(at));
        if self.state == JobState::Starting {
            self.state = JobState::Running;
        }
    }

    /// Notes that it is told to stop. `news` is that of the state; `counts` says whether it matters how often it gives way.
    pub(super) fn is_told(&mut self, stopping: Stopping, (news, counts): (u64, bool)) {
        self.state = JobState::Stopping;
        self.gave_way += u32::from(counts && stopping.cause.is_planned());
        if stopping.cause.takes() {
            self.taken_at = Some(news);
        }
        self.stopping = Some(stopping);
    }

    /// How often it was moved, once this attempt is over.
    pub(super) fn moved_by(&self, moves: &Newer<Moves>, at: Time) -> Newer<Moved> {
        let goes_on = self.stopping.as_ref().is_some_and(|stopping| stopping.cause == Cause::Moved);
        let moves = moves.said().filter(|_| goes_on);
        moves.map_or(self.moved, |moves| Newer(Some(moves.one_more(self.moved.said(), at))))
    }

    /// How often it was moved, now that some of its tasks go. Whatever goes of it at one moment is one move.
    pub(super) fn moved_in_part(&self, moves: &Newer<Moves>, gives_up: &GaveUp) -> Newer<Moved> {
        let is_move = |gave_up: &GaveUp| (gave_up.cause, gave_up.at) == (Cause::Moved, gives_up.at);
        let counts = is_move(gives_up) && !self.gave_up.as_deref().is_some_and(is_move);
        let moves = moves.said().filter(|_| counts);
        moves.map_or(self.moved, |moves| Newer(Some(moves.one_more(self.moved.said(), gives_up.at))))
    }

    /// Until when it stays where it is because it was moved as often as the policy allows; if the policy says nothing, for an hour of
    /// running, or after some of its tasks have moved.
    pub(crate) fn stays_until(&self, policy: &Policy, now: Time) -> Option<Time> {
        if let Some(moves) = policy.moves.said() {
            return moves.are_used_up_until(self.moved.said(), now);
        }
        let was_moved = self.last_end.as_ref().is_some_and(|end| end.cause == Cause::Moved);
        let in_part = self.gave_up.as_deref().filter(|gave_up| gave_up.cause == Cause::Moved);
        let moved_at =
            in_part.map(|gave_up| gave_up.at).max(was_moved.then(|| self.started_at.unwrap_or(now)));
        moved_at.map(|moved_at| Time(moved_at.0 + STAYS_MS)).filter(|until| *until > now)
    }

    /// Whether it has had to give way as often as the policy lets it.
    pub fn is_at_cap(&self, policy: &Policy) -> bool {
        policy.restarts_cap().is_some_and(|most| self.gave_way >= most)
    }

    /// Until when it is safe because it had to give way before: without end until it runs, or once it has given way as often as the policy
    /// lets it; `None` if it is not safe.
    pub fn cools_until(&self, policy: &Policy) -> Option<Time> {
        let without_end = Time(i64::MAX);
        if self.is_at_cap(policy) {
            return Some(without_end);
        }
        let cool_down = policy.cool_down().filter(|_| self.gave_way > 0)?;
        Some(self.started_at.map_or(without_end, |started| started + cool_down))
    }

    /// Whether it waits for devices, and none are promised to it.
    pub fn waits(&self) -> bool {
        self.state == JobState::Pending && !self.promised
    }

    /// For how long it has run by now, over all attempts, in milliseconds.
    pub fn progress_ms(&self, now: Time) -> i64 {
        self.attained_ms + self.started_at.map_or(0, |started| now.since(started).0)
    }

    /// Whether by a moment this attempt has run for so long that asking to be run again is no restart.
    pub(crate) fn has_done_something(&self, at: Time) -> bool {
        self.progress_ms(at) - self.attained_ms >= LEAST_RUN_MS
    }

    /// Whether it has devices.
    pub fn is_active(&self) -> bool {
        !matches!(self.state, JobState::Pending | JobState::Held)
    }
}

impl Run {
    /// Whether stopping it loses all its work: it saves none by itself, and has saved none yet.
    pub(crate) fn loses_all(&self, spec: &JobSpec) -> bool {
        !spec.saves() && self.checkpointed_at.is_none()
    }

    /// How long the attempts before this one ran, as far as that need not be done again: 0 if the job saves nothing.
    pub(crate) fn done_before_ms(&self, spec: &JobSpec) -> i64 {
        if self.loses_all(spec) { 0 } else { self.attained_ms }
    }
}

impl State {
    /// Whether a job is being stopped for others.
    pub(super) fn gives_way(&self, id: JobId) -> bool {
        let stopping = self.run(id).and_then(|run| run.stopping.as_ref());
        stopping.is_some_and(|stopping| stopping.cause.is_planned())
    }

    /// Whether the devices of a job were taken for others, and nothing has come from outside since: until then it takes none from others
    /// (L10).
    pub(crate) fn was_just_taken(&self, id: JobId) -> bool {
        self.run(id).is_some_and(|run| run.taken_at == Some(self.news))
    }

    /// Notes that something has come from outside, so that jobs whose devices were taken may take devices of others again. Returns whether
    /// one of them wants any: verdicts reached without that no longer stand.
    pub(super) fn may_take_again(&mut self) -> bool {
        let taken = std::mem::take(&mut self.taken);
        taken.iter().any(|id| {
            self.run(*id).is_some_and(|run| matches!(run.state, JobState::Pending | JobState::Running))
        })
    }
}

impl Job {
    /// The id of the job, or of its array as a whole.
    pub fn id(&self) -> JobId {
        JobId::single(self.number)
    }

    /// The run of this member (or of the job itself), if anything has happened to it and it has not ended.
    pub(crate) fn known_run(&self, member: Option<u32>) -> Option<&Run> {
        match (&self.runs, member) {
            (Runs::Single(run), None) => Some(run),
            (Runs::Array(array), Some(member)) => array.touched.get(&member),
            _ => None,
        }
    }

    /// The run of this member (or of the job itself); a fresh one for an untouched member; `None` if it has ended or never was.
    pub fn run(&self, member: Option<u32>) -> Option<Run> {
        match (&self.runs, member) {
            (Runs::Single(run), None) => Some(run.clone()),
            (Runs::Array(array), Some(member)) => match array.touched.get(&member) {
                Some(run) => Some(run.clone()),
                None => array.fresh.contains(member).then(|| Run::fresh(array.held.clone())),
            },
            _ => None,
        }
    }

    /// The members (or the job itself) that have not ended, rising.
    pub fn open_members(&self) -> Box<dyn Iterator<Item = Option<u32>> + '_> {
        match &self.runs {
            Runs::Single(_) => Box::new(std::iter::once(None)),
            Runs::Array(array) => {
                let (mut fresh, mut touched) =
                    (array.fresh.iter().peekable(), array.touched.keys().copied().peekable());
                Box::new(std::iter::from_fn(move || match (fresh.peek(), touched.peek()) {
                    (Some(a), Some(b)) if a < b => fresh.next().map(Some),
                    (Some(_), None) => fresh.next().map(Some),
                    _ => touched.next().map(Some),
                }))
            }
        }
    }

    /// The members (or the job itself) that wait and are not held, rising.
    pub fn waiting_members(&self) -> Box<dyn Iterator<Item = Option<u32>> + '_> {
        match &self.runs {
            Runs::Single(run) => Box::new(run.waits().then_some(None).into_iter()),
            Runs::Array(array) => {
                let fresh = array.held.is_none().then(|| array.fresh.iter()).into_iter().flatten();
                let touched = array.touched.iter().filter(|(_, run)| run.waits()).map(|(member, _)| *member);
                let (mut fresh, mut touched) = (fresh.peekable(), touched.peekable());
                Box::new(std::iter::from_fn(move || match (fresh.peek(), touched.peek()) {
                    (Some(a), Some(b)) if a < b => fresh.next().map(Some),
                    (Some(_), None) => fresh.next().map(Some),
                    _ => touched.next().map(Some),
                }))
            }
        }
    }

    /// How many members wait and may start.
    pub fn waiting_count(&self) -> i64 {
        let left = i64::from(self.members_left().unwrap_or(u32::MAX));
        let wait = match &self.runs {
            Runs::Single(run) => i64::from(run.waits()),
            Runs::Array(array) => {
                let fresh = if array.held.is_none() { array.fresh.len() } else { 0 };
                let touched = array.touched.values().filter(|run| run.waits()).count();
                i64::try_from(fresh).unwrap_or(i64::MAX).saturating_add(touched as i64)
            }
        };
        wait.min(left)
    }

    /// Whether a member (or the job itself) waits and is not held.
    pub fn has_waiting_members(&self) -> bool {
        match &self.runs {
            Runs::Single(run) => run.waits(),
            Runs::Array(_) => self.waiting_members().next().is_some(),
        }
    }

    /// How many members have devices, or the promise of some.
    pub fn active_members(&self) -> u32 {
        match &self.runs {
            Runs::Single(run) => u32::from(run.is_active()),
            Runs::Array(array) => {
                let active = array.touched.values().filter(|run| run.is_active() || run.promised).count();
                u32::try_from(active).unwrap_or(u32::MAX)
            }
        }
    }

    /// How many more members of the array may start; `None` where nothing bounds them.
    pub fn members_left(&self) -> Option<u32> {
        match &self.runs {
            Runs::Single(_) => None,
            Runs::Array(array) => array.array.at_most.map(|most| most.saturating_sub(self.active_members())),
        }
    }

    /// What keeps the job from being considered, apart from its class: what it waits for, and when it may start.
    pub fn own_blockers(&self, state: &State, now: Time) -> Vec<Reason> {
        let mut blockers = Vec::new();
        if let Some(promise) = state.promises.get(&self.id()) {
            blockers.push(Reason::Promised(state.awaited_by(promise)));
        }
        for dependency in &self.spec.after {
            if state.dependency(dependency.job, dependency.on) != Dependable::Met {
                blockers.push(Reason::Dependency(dependency.job, dependency.on));
            }
        }
        if let Some(at) = self.spec.start_after.filter(|at| *at > now) {
            blockers.push(Reason::StartAfter(at));
        }
        blockers
    }
}

/// How a dependency stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependable {
    /// It happened.
    Met,
    /// It may still happen.
    Open,
    /// It can no longer happen.
    Never,
}

impl State {
    /// How many of the allocations for which a promise waits are still there.
    pub fn awaited_by(&self, promise: &Promise) -> u32 {
        promise.waits_for.iter().filter(|id| self.allocations.contains_key(id)).count() as u32
    }

    /// Whether all that is promised can still be had, and can be counted on to become free.
    pub fn is_good(&self, promise: &Promise) -> bool {
        self.is_good_at(promise, self.now) && !self.waits_in_vain(promise)
    }

    /// The same at a moment: the devices work and nobody else uses them, the nodes take tasks, and the queue has not used up its budget
    /// meanwhile.
    pub(crate) fn is_good_at(&self, promise: &Promise, now: Time) -> bool {
        let works = |device: &DeviceId| {
            self.devices
                .get(device)
                .is_some_and(|known| known.health == Health::Ok && known.occupant.is_none())
                && !self.is_drained(*device)
        };
        let uses = |placement: &Placement| !placement.devices.is_empty();
        let queue = self.jobs.get(&promise.job.number).map(|job| &job.spec.queue);
        let is_spent_out =
            promise.placements.iter().any(uses) && queue.is_some_and(|queue| self.is_spent_out(queue, now));
        !self.draining
            && !is_spent_out
            && promise.placements.iter().all(|placement| {
                self.takes_tasks(placement.node)
                    && placement.devices.iter().all(|(device, _)| works(device))
                    && !self.is_kept_from(promise.job, placement)
            })
    }

    /// How a dependency on a job (or member) stands. A job that the state no longer knows has been checked when the dependent was
    /// submitted, so its absence counts as met.
    pub fn dependency(&self, on: JobId, wanted: DependsOn) -> Dependable {
        let outcome = match self.jobs.get(&on.number) {
            None => self.outcomes.of_member(on),
            Some(job) => match (&job.runs, on.member) {
                (Runs::Array(array), Some(member)) => {
                    let ended = array.ended.iter().find(|(_, members)| members.contains(member));
                    match ended {
                        Some((JobState::Completed, _)) => Some(Outcome::Ok),
                        Some(_) => Some(Outcome::Fail),
                        None => return Dependable::Open,
                    }
                }
                _ => return Dependable::Open,
            },
        };
        match (outcome, wanted) {
            (None, _) | (Some(_), DependsOn::Any) => Dependable::Met,
            (Some(Outcome::Ok), DependsOn::Ok) | (Some(Outcome::Fail), DependsOn::Fail) => Dependable::Met,
            _ => Dependable::Never,
        }
    }
}

impl JobSpec {
    /// Whole devices that the job asks for, over all tasks of its minimum, by its first alternatives.
    pub fn devices_asked(&self) -> u32 {
        self.gang
            .required_roles()
            .iter()
            .map(|role| role.minimum * first(&role.ask).map_or(0, devices_of))
            .sum()
    }

    /// Thousandths of devices that the job asks for, likewise.
    pub fn milli_asked(&self) -> i64 {
        fn of(group: &Group) -> i64 {
            match group {
                Group::Role(role) => i64::from(role.minimum) * first(&role.ask).map_or(0, Alternative::milli),
                Group::Branch(branch) => branch.required().map(of).sum(),
            }
        }
        of(&self.gang)
    }
}

fn first(ask: &Ask) -> Option<&Alternative> {
    ask.alternatives.first()
}

fn devices_of(alternative: &Alternative) -> u32 {
    match &alternative.devices {
        Some(devices) if devices.draw == DrawAsk::Whole => devices.count,
        _ => 0,
    }
}
