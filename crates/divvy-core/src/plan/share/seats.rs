//! Part of phase 1, share: users of a queue that is divided among them. Each has a place below the queue, as a queue has. So have all
//! of them together in a queue that has other queues below it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ANY, POOL, QueueShare, Shares, quantum};
use crate::amount::Resource;
use crate::model::models::Models;
use crate::model::queue::{Queue, Users, user_at};
use crate::plan::divide::{Claim, fill};
use crate::snapshot::Snapshot;
use crate::state::State;

impl Shares {
    /// Adds the seats of a queue's users.
    pub(super) fn add_seats(
        &mut self,
        state: &State,
        (queue, place): (&Queue, usize),
        by_path: &mut BTreeMap<String, usize>,
    ) {
        let Some(users) = state.seating(&queue.path) else { return };
        for seat in state.seats_of(&queue.path) {
            by_path.insert(seat.to_owned(), self.add_seat(users, seat, place));
        }
    }

    fn add_seat(&mut self, users: &Users, seat: &str, place: usize) -> usize {
        let weight = user_at(seat).map_or(1, |(_, user)| users.weight_of(user));
        let own = Queue { weight, limit: users.limit.clone(), ..Queue::named(seat) };
        let own = self.add(&own, place);
        self.queues[own].is_seat = true;
        self.queues[own].stated = self.queues[place].stated;
        own
    }

    /// Gives a user who is new to a queue a seat there, beside the seats that exist: the cost grows only with the users of
    /// that queue. Returns whether that suffices: where queues keep or borrow, that is computed anew for the whole tree.
    pub(crate) fn seat_newcomer(&mut self, state: &State, seat: &str) -> bool {
        let known = user_at(seat).and_then(|(queue, _)| Some((queue, state.seating(queue)?)));
        let Some((queue, users)) = known.filter(|_| self.loans.is_none()) else { return false };
        let place = self.place(queue);
        let own = self.add_seat(users, seat, place);
        Arc::make_mut(&mut self.by_path).insert(seat.to_owned(), own);
        // The seats of a queue come first, in alphabetical order; the queues below it come behind them.
        let before = state.seats_of(queue).take_while(|other| *other != seat).count();
        let children = Arc::make_mut(&mut self.queues[place].children);
        children.pop();
        children.insert(before, own);
        true
    }

    /// Whether there is a place of this very path.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.by_path.contains_key(path)
    }

    /// Guarantees to a queue's users, by weight and as far as they want it, what is guaranteed to the queue and to
    /// none below it. So what a user may take back for the queue does not depend on which of them asks first. Models
    /// go to those whose jobs can run on them; of any model there is no more than these and what names no model.
    pub(super) fn guarantee_seats(&mut self, state: &State, snapshot: &Snapshot) {
        if !self.guarantees {
            return;
        }
        let models: Vec<usize> = self.models().collect();
        let mut wants: Option<BTreeMap<usize, Wants>> = None;
        for queue in (POOL + 1)..self.queues.len() {
            let is_seat = |child: &usize| self.queues[*child].is_seat;
            let children = &self.queues[queue].children;
            if !children.iter().any(is_seat) {
                continue;
            }
            let (seats, others): (Vec<usize>, Vec<usize>) = children.iter().copied().partition(is_seat);
            if !models.is_empty() {
                let wants = wants.get_or_insert_with(|| self.wants_of_seats(state, snapshot));
                models.iter().for_each(|model| self.guarantee_model(*model, (queue, &seats, &others), wants));
            }
            self.guarantee_any(&models, (queue, &seats, &others));
            let hosts = |index: &usize| *index != ANY && !models.contains(index);
            for resource in (0..self.resources.len()).filter(hosts) {
                let claims = self.seat_claims(resource, &seats, |_| 0);
                let whole = self.left_to_seats(resource, (queue, &others));
                let parts = fill(whole, &claims, quantum(&self.resources[resource]));
                seats
                    .iter()
                    .zip(parts)
                    .for_each(|(seat, part)| self.queues[*seat].guarantee[resource] = part);
            }
        }
    }

    /// Guarantees devices of any model to a queue's users: at least those of models that are guaranteed to each.
    fn guarantee_any(&mut self, models: &[usize], (queue, seats, others): (usize, &[usize], &[usize])) {
        let named = |seat: &QueueShare| {
            let parts = models.iter().map(|model| seat.guarantee[*model]);
            parts.fold(0, i64::saturating_add).min(seat.wanted[ANY])
        };
        let claims = self.seat_claims(ANY, seats, named);
        let mut whole = self.left_to_seats(ANY, (queue, others));
        if !models.is_empty() {
            let of_models = models.iter().map(|model| self.left_to_seats(*model, (queue, others)));
            let unnamed = whole.saturating_sub(of_models.fold(0, i64::saturating_add)).max(0);
            let named = claims.iter().map(|claim| claim.guaranteed).fold(0, i64::saturating_add);
            whole = whole.min(unnamed.saturating_add(named));
        }
        let parts = fill(whole, &claims, quantum(&Resource::Any));
        seats.iter().zip(parts).for_each(|(seat, part)| self.queues[*seat].guarantee[ANY] = part);
        self.divide_steady((queue, seats, others), &claims);
    }

    /// What a queue's users want of a resource, of which so much is guaranteed to each already.
    fn seat_claims(
        &self,
        resource: usize,
        seats: &[usize],
        guaranteed: impl Fn(&QueueShare) -> i64,
    ) -> Vec<Claim> {
        let claim = |seat: &usize| {
            let seat = &self.queues[*seat];
            let (wanted, weight) = (seat.wanted[resource], seat.weight);
            Claim { guaranteed: guaranteed(seat), wanted, weight, priority: 0 }
        };
        seats.iter().map(claim).collect()
    }

    /// What is guaranteed to a queue of a resource, and to none of the `others` below it.
    fn left_to_seats(&self, resource: usize, (queue, others): (usize, &[usize])) -> i64 {
        let below = others.iter().map(|child| self.queues[*child].guarantee[resource]);
        self.queues[queue].guarantee[resource].saturating_sub(below.fold(0, i64::saturating_add)).max(0)
    }

    /// Guarantees a model to those of a queue's users whose jobs can run on it.
    fn guarantee_model(
        &mut self,
        model: usize,
        (queue, seats, others): (usize, &[usize], &[usize]),
        wants: &mut BTreeMap<usize, Wants>,
    ) {
        let Resource::Model(name) = &self.resources[model] else { return };
        let claim = |seat: &usize| {
            let wanted = wants.get(seat).map_or(0, |wants| wants.of(name));
            Claim { guaranteed: 0, wanted, weight: self.queues[*seat].weight, priority: 0 }
        };
        let claims: Vec<Claim> = seats.iter().map(claim).collect();
        let whole = self.left_to_seats(model, (queue, others));
        let parts = fill(whole, &claims, quantum(&self.resources[model]));
        for (seat, part) in seats.iter().zip(&parts) {
            wants.entry(*seat).or_default().serve(name, *part);
        }
        seats.iter().zip(parts).for_each(|(seat, part)| self.queues[*seat].guarantee[model] = part);
    }

    /// On which models the jobs of users can run.
    fn wants_of_seats(&self, state: &State, snapshot: &Snapshot) -> BTreeMap<usize, Wants> {
        let waits = snapshot.waiting.uses(state.is_changed());
        let waits =
            waits.flat_map(|(place, uses)| uses.bound().map(move |(models, milli)| (place, models, milli)));
        let all = self.held_bound().map(|held| (held, false)).chain(waits.map(|waits| (waits, true)));
        let mut wants: BTreeMap<usize, Wants> = BTreeMap::new();
        for ((place, models, milli), waits) in all.filter(|((place, ..), _)| self.queues[*place].is_seat) {
            wants.entry(place).or_default().bound.push((models.clone(), milli, waits));
        }
        for (place, queue) in self.queues.iter().enumerate().filter(|(_, queue)| queue.is_seat) {
            let wants = wants.entry(place).or_default();
            // Jobs that can run on few models are served of these first.
            wants.bound.sort_by(|(one, _, waits), (other, _, wait)| {
                (one.len(), waits, &**one).cmp(&(other.len(), wait, &**other))
            });
            let bound = wants.bound.iter().map(|(_, milli, _)| *milli).fold(0, i64::saturating_add);
            wants.anywhere = queue.wanted[ANY].saturating_sub(bound).max(0);
        }
        wants
    }

    /// Likewise for the part that stands whatever the queue has used.
    fn divide_steady(&mut self, (queue, seats, others): (usize, &[usize], &[usize]), claims: &[Claim]) {
        let below = others.iter().map(|child| self.queues[*child].steady_milli).fold(0, i64::saturating_add);
        let whole = self.queues[queue].steady_milli.saturating_sub(below).max(0);
        let parts = fill(whole, claims, quantum(&Resource::Any));
        for (seat, part) in seats.iter().zip(parts) {
            let seat = &mut self.queues[*seat];
            seat.steady_milli = part.min(seat.guarantee[ANY]);
        }
    }
}

/// What a user's jobs hold or wait for, in thousandths of devices, as far as nothing is guaranteed for it yet.
#[derive(Default)]
struct Wants {
    /// By jobs that can run on some models only; and whether they wait.
    bound: Vec<(Models, i64, bool)>,
    /// By all others.
    anywhere: i64,
}

impl Wants {
    /// What could be of a model.
    fn of(&self, model: &str) -> i64 {
        let bound = self.bound.iter().filter(|(models, ..)| models.contains(model));
        bound.map(|(_, milli, _)| *milli).fold(self.anywhere, i64::saturating_add)
    }

    /// So much of a model is guaranteed for it.
    fn serve(&mut self, model: &str, mut milli: i64) {
        let bound = self.bound.iter_mut().filter(|(models, ..)| models.contains(model));
        for wanted in bound.map(|(_, milli, _)| milli).chain([&mut self.anywhere]) {
            let served = milli.min(*wanted).max(0);
            (milli, *wanted) = (milli - served, *wanted - served);
        }
    }
}
