//! Part of phase 5, reserve: a job that waits since other queues keep unused devices for themselves waits for a number, not for nodes.
//! What borrowers give back is left to the first such job, as far as others would push it back by borrowing that. Likewise what is left
//! of a queue's guarantee is kept for the first job that waits until more of it is, where the queue could not take it back.

use std::collections::{BTreeMap, BTreeSet};

use super::fair::Fair;
use super::reserve;
use super::share::{ANY, Amounts, Shares};
use super::turns::Turn;
use super::{Keeps, Room};
use crate::id::{AllocationId, JobId};
use crate::model::allocation::AllocationState;
use crate::model::ask::Alternative;
use crate::model::job::JobSpec;
use crate::model::policy::Reclaim;
use crate::model::queue::Queue;
use crate::reason::Reason;
use crate::snapshot::Waiting;
use crate::state::State;

/// The jobs that wait for a loan, in line; the first `looked_at` have been looked at.
#[derive(Default)]
pub(super) struct Borrowers {
    first: Vec<Waits>,
    looked_at: usize,
    /// The jobs that wait until others of their queues have ended.
    owners: Vec<Owner>,
}

/// The first job in the line of a queue that could not take back what it lends.
struct Owner {
    job: JobId,
    queue: usize,
    asked: Amounts,
    /// Jobs below this priority would still give it back.
    takes_below: Option<i32>,
}

impl Borrowers {
    /// Notes the jobs that wait until others of their queues have ended, where the queue takes back nothing, or not from all.
    pub(super) fn of(state: &State, waiting: &Waiting, shares: &Shares) -> Self {
        let reclaim = |queue: &Queue| queue.reclaim.unwrap_or(state.policy.reclaim);
        let may_lose = |queue: &&Queue| reclaim(queue) != Reclaim::Any;
        if !shares.guarantees || !state.queues.values().any(|queue| may_lose(&queue)) {
            return Self::default();
        }
        let has_a_part = |queue: usize| {
            let queue = &shares.queues[queue];
            !queue.is_spent
                && queue.guarantee.iter().zip(&queue.held).any(|(all, held)| *held > 0 && held < all)
        };
        let first = |(queue, waits)| {
            let mut classes =
                waiting.of_queue(waits).map(|(_, view)| view).filter(|view| !view.is_left_out).peekable();
            let lender = state.queues.get(&classes.peek()?.example.queue).filter(may_lose)?;
            let in_line = classes.filter_map(|view| Some((*view.jobs.first()?, view)));
            let (key, view) = in_line.min_by_key(|(key, _)| *key)?;
            let takes_below = (reclaim(lender) == Reclaim::Lower).then_some(view.example.priority);
            let (job, asked) = (JobId::single(key.number), view.asked.clone());
            Some(Owner { job, queue, asked, takes_below }).filter(|owner| owner.waits_for_its_own(shares))
        };
        let mut owners: Vec<_> =
            waiting.in_queues().filter(|(queue, _)| has_a_part(*queue)).filter_map(first).collect();
        owners.sort_by_key(|owner| owner.job);
        Self { owners, ..Self::default() }
    }
}

impl Owner {
    /// Whether all that it asks for is guaranteed to its queue, once others there have ended.
    fn waits_for_its_own(&self, shares: &Shares) -> bool {
        let queue = &shares.queues[self.queue];
        let fits = self.asked.iter().zip(&queue.guarantee).all(|(asked, all)| asked <= all);
        fits && !shares.stays_guaranteed((self.queue, self.queue), &self.asked)
    }

    /// Whether a job of another queue would borrow what is left of the guarantee, and keep it.
    fn keeps_from(&self, (turn, spec): (Turn, &JobSpec), shares: &Shares) -> bool {
        let gives_back = self.takes_below.is_some_and(|priority| spec.priority < priority);
        let queue = &shares.queues[self.queue];
        let leaves = shares.leaves((self.queue, turn.queue), &turn.view.asked);
        let takes = |(index, asked): (usize, &i64)| {
            let kept = self.asked[index].min(queue.guarantee[index] - queue.held[index]);
            kept > 0 && *asked > 0 && leaves[index].is_some_and(|left| left < kept)
        };
        !gives_back
            && shares.part(turn.queue, self.queue).is_some()
            && self.waits_for_its_own(shares)
            && turn.view.asked.iter().enumerate().any(takes)
    }
}

/// A job that waits for a loan.
#[derive(Clone)]
struct Waits {
    job: JobId,
    queue: usize,
    asked: Amounts,
    /// Whether what becomes free may be collected for it.
    collects: bool,
    keeps: Keeps,
}

/// Notes a job that waits, and why.
pub(super) fn note(fair: &mut Fair, turn: Turn, reason: &Reason) {
    let most = fair.trial.state.policy.reserve as usize;
    if !matches!(reason, Reason::NotLent(..)) || fair.borrowers.first.len() >= most {
        return;
    }
    let asked = turn.view.asked.clone();
    let collects = fair.shares.owes(turn.queue, &asked);
    let waits = Waits { job: turn.job(), queue: turn.queue, asked, collects, keeps: Keeps::Nothing };
    fair.borrowers.first.push(waits);
}

/// The job for which what another would borrow is kept, if it is. Nothing is kept from what is guaranteed to
/// the borrower's queue nor, for a job of another queue, from what is due to it.
pub(super) fn before_whom(fair: &mut Fair, turn: Turn, spec: &JobSpec) -> Option<JobId> {
    let asked = &turn.view.asked;
    let is_anyone = !fair.borrowers.first.is_empty() || !fair.borrowers.owners.is_empty();
    if !is_anyone || fair.shares.guarantees_it(turn.queue, asked) {
        return None;
    }
    let is_due = fair.shares.upwards(turn.queue).all(|place| {
        let queue = &fair.shares.queues[place];
        queue.stays_within(asked, |queue| &queue.target)
    });
    let mut owners = fair.borrowers.owners.iter().filter(|_| !is_due);
    if let Some(owner) = owners.find(|owner| owner.keeps_from((turn, spec), &fair.shares)) {
        return Some(owner.job);
    }
    if fair.borrowers.first.is_empty() || !fair.shares.borrows(turn.queue, asked) {
        return None;
    }
    look(fair);
    let until = spec.known_length().map(|length| fair.now + length);
    let is_pushed = |waits: &&Waits| match waits.keeps {
        Keeps::Nothing => false,
        Keeps::AsItComes => true,
        Keeps::From(from) => until.is_none_or(|until| until > from),
    };
    let binds = |waits: &&Waits| waits.queue == turn.queue || !is_due;
    fair.borrowers.first.iter().filter(binds).find(is_pushed).map(|waits| waits.job)
}

/// Looks from when on each waiting job can have its loan.
pub(super) fn look(fair: &mut Fair) {
    while let Some(waits) = fair.borrowers.first.get(fair.borrowers.looked_at).cloned() {
        let place = fair.borrowers.looked_at;
        fair.borrowers.looked_at += 1;
        let ends = reserve::known_ends(fair.trial);
        let drawn = ends.iter().map(|(_, ids)| ids.iter().filter_map(|id| drawn(fair, *id)).collect());
        let models = Models::of(fair, &waits);
        let found = fair.shares.lent_after(waits.queue, &waits.asked, drawn, |left| models.are_enough(left));
        let end = found.and_then(|index| ends.get(index));
        let keeps = match end {
            Some((Some(at), _)) => Keeps::From(*at),
            _ if may_collect(fair, &waits) && fits_alone(fair, &waits) => Keeps::AsItComes,
            _ => Keeps::Nothing,
        };
        let state = fair.trial.state;
        let first = end.and_then(|(_, ids)| ids.first());
        let awaits = first.and_then(|id| Some(state.allocations.get(id)?.job));
        let member = state.jobs.get(&waits.job.number).and_then(|job| job.waiting_members().next().flatten());
        fair.trial.reserve.note_room(Room { job: JobId { member, ..waits.job }, keeps, awaits });
        fair.borrowers.first[place].keeps = keeps;
    }
}

/// Which models a job may be served by: of each role the ways, and of each way what the tasks ask for.
struct Models(Vec<Vec<OneOf>>);

/// So many tasks, each with so much (milli) of one of these models.
struct OneOf {
    tasks: i64,
    milli: i64,
    models: Vec<String>,
}

impl Models {
    fn of(fair: &Fair, waits: &Waits) -> Self {
        let job = fair.trial.state.jobs.get(&waits.job.number);
        let roles = job.map(|job| job.spec.gang.required_roles()).unwrap_or_default();
        let ways = roles.iter().map(|role| {
            let of = |alternative: &Alternative| {
                let ask = alternative.devices.as_ref();
                let models = ask.map(|ask| fair.trial.models_of(&ask.class)).unwrap_or_default();
                OneOf { tasks: i64::from(role.minimum), milli: alternative.milli(), models }
            };
            role.ask.alternatives.iter().map(of).collect()
        });
        Self(ways.collect())
    }

    /// Whether so much of each model is enough for all roles, each served by the first way that does beside those before it.
    fn are_enough(&self, left: &dyn Fn(&str) -> i64) -> bool {
        let mut drawn: BTreeMap<&str, i64> = BTreeMap::new();
        self.0.iter().all(|ways| ways.iter().any(|way| way.draw(left, &mut drawn)))
    }
}

impl OneOf {
    /// Draws for all tasks, if there is enough for them.
    fn draw<'a>(&'a self, left: &dyn Fn(&str) -> i64, drawn: &mut BTreeMap<&'a str, i64>) -> bool {
        let mut tasks = if self.milli > 0 { self.tasks } else { 0 };
        let mut more = Vec::new();
        for model in &self.models {
            let rest = left(model).saturating_sub(drawn.get(model.as_str()).copied().unwrap_or(0));
            let served = tasks.min(rest.max(0) / self.milli.max(1));
            tasks -= served;
            more.push((model.as_str(), served * self.milli));
        }
        if tasks == 0 {
            more.into_iter().for_each(|(model, milli)| *drawn.entry(model).or_default() += milli);
        }
        tasks == 0
    }
}

/// Whether it could have its loan, and would fit, once all that runs has ended.
fn fits_alone(fair: &mut Fair, waits: &Waits) -> bool {
    let state = fair.trial.state;
    let Some(job) = state.jobs.get(&waits.job.number) else { return false };
    let placed = fair.places.iter().flat_map(|place| &place.placements).map(|placement| placement.allocation);
    let all: BTreeSet<AllocationId> = state.allocations.keys().copied().chain(placed).collect();
    let mut shares = fair.shares.clone();
    for (queue, amounts) in all.iter().filter_map(|id| drawn(fair, *id)) {
        shares.charge(queue, &amounts, (-1, false));
    }
    let Ok(closed) = shares.closed(waits.queue, &job.spec) else { return false };
    reserve::fits_after(fair.trial, (&job.spec, closed), &all)
}

/// Whether what becomes free may be collected for a job, though nothing foretells when that will be enough.
fn may_collect(fair: &Fair, waits: &Waits) -> bool {
    let state = fair.trial.state;
    let Some(job) = state.jobs.get(&waits.job.number) else { return false };
    let idle_since = job.idle_since().unwrap_or(fair.now);
    let has_waited = fair.now.since(idle_since).0 >= state.policy.collect_after_ms;
    let few = waits.asked[ANY] <= i64::from(state.policy.collect_devices) * 1000;
    let none = fair.borrowers.first.iter().all(|other| other.keeps != Keeps::AsItComes);
    waits.collects && has_waited && few && none
}

/// What an allocation draws, and by which queue; `None` for one that is being stopped, which counts as given back.
fn drawn(fair: &Fair, id: AllocationId) -> Option<(usize, Amounts)> {
    let state = fair.trial.state;
    let held = state.allocations.get(&id);
    if held.is_some_and(|held| held.state == AllocationState::Stopping) {
        return None;
    }
    let held = held.map(|held| (held.job, &held.placement));
    let of_this_cycle = || {
        let places = fair.places.iter();
        let mut all =
            places.flat_map(|place| place.placements.iter().map(|placement| (place.job, placement)));
        all.find(|(_, placement)| placement.allocation == id)
    };
    let (job, placement) = held.or_else(of_this_cycle)?;
    let queue = fair.shares.place(state.jobs.get(&job.number)?.spec.stand());
    Some((queue, fair.shares.counted(state, std::iter::once(placement))))
}
