//! Part of phase 1, share: users of a queue that is divided among them. Each has a place below the queue, as a queue has. So have all
//! of them together in a queue that has other queues below it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ANY, POOL, Shares, quantum};
use crate::amount::Resource;
use crate::model::queue::{Queue, Users, user_at};
use crate::plan::divide::{Claim, fill};
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
        let children = &mut self.queues[place].children;
        children.pop();
        children.insert(before, own);
        true
    }

    /// Whether there is a place of this very path.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.by_path.contains_key(path)
    }

    /// Guarantees to a queue's users, by weight and as far as they want it, what is guaranteed to the queue and to
    /// none below it. So what a user may take back for the queue does not depend on which of them asks first.
    pub(super) fn guarantee_seats(&mut self) {
        if !self.guarantees {
            return;
        }
        for queue in (POOL + 1)..self.queues.len() {
            let children = self.queues[queue].children.clone();
            let (seats, others): (Vec<usize>, Vec<usize>) =
                children.into_iter().partition(|child| self.queues[*child].is_seat);
            for resource in (0..self.resources.len()).filter(|_| !seats.is_empty()) {
                let of = |child: &usize| self.queues[*child].guarantee[resource];
                let below = others.iter().map(of).fold(0, i64::saturating_add);
                let whole = self.queues[queue].guarantee[resource].saturating_sub(below).max(0);
                let claim = |seat: &usize| {
                    let seat = &self.queues[*seat];
                    Claim { guaranteed: 0, wanted: seat.wanted[resource], weight: seat.weight, priority: 0 }
                };
                let claims: Vec<Claim> = seats.iter().map(claim).collect();
                let parts = fill(whole, &claims, quantum(&self.resources[resource]));
                for (seat, part) in seats.iter().zip(parts) {
                    self.queues[*seat].guarantee[resource] = part;
                }
                if resource == ANY {
                    self.divide_steady((queue, &seats, &others), &claims);
                }
            }
        }
    }

    /// Likewise for the part that stands whatever the queue has used.
    fn divide_steady(&mut self, (queue, seats, others): (usize, &[usize], &[usize]), claims: &[Claim]) {
        let below = others.iter().map(|child| self.queues[*child].steady_milli).fold(0, i64::saturating_add);
        let whole = self.queues[queue].steady_milli.saturating_sub(below).max(0);
        let parts = fill(whole, claims, quantum(&Resource::Any));
        seats.iter().zip(parts).for_each(|(seat, part)| self.queues[*seat].steady_milli = part);
    }
}
