//! Part of phase 1, share: what is kept for queues that do not use it. No other has it, so above them it counts as if it were held,
//! and it is due to nobody who does not keep it.

use super::{Amounts, POOL, QueueShare, Shares};

impl Shares {
    /// Notes what is kept in each queue and below it for those who do not hold it, and what of that they do not even want.
    pub(super) fn note_kept(&mut self) {
        if self.loans.is_none() && !self.keeps_nodes {
            return;
        }
        let vacant = self.vacant_with(|queue| &queue.held);
        let unwanted = self.vacant_with(|queue| &queue.wanted);
        for (queue, (vacant, unwanted)) in self.queues.iter_mut().zip(vacant.into_iter().zip(unwanted)) {
            (queue.vacant, queue.unwanted) = (vacant, unwanted);
        }
    }

    /// What of what is kept is left if queues have such amounts, by place.
    fn vacant_with(&self, amounts: fn(&QueueShare) -> &Amounts) -> Vec<Amounts> {
        if let Some(loans) = &self.loans {
            return loans.vacant_with(&self.queues, amounts);
        }
        let mut vacant: Vec<Amounts> = self.queues.iter().map(|queue| queue.vacant.clone()).collect();
        for place in (0..self.queues.len()).rev() {
            let had = amounts(&self.queues[place]).iter().copied().enumerate();
            let of = |(resource, had)| {
                self.vacant_on_nodes(place, (resource, had), |child| vacant[child][resource])
            };
            vacant[place] = had.map(of).collect();
        }
        vacant
    }

    /// Likewise of one queue, where only nodes are kept for queues.
    fn vacant_on_nodes(
        &self,
        place: usize,
        (resource, had): (usize, i64),
        below: impl Fn(usize) -> i64,
    ) -> i64 {
        match self.is_apart(place, resource) {
            true => (self.queues[place].guarantee[resource] - had).max(0),
            false => self.queues[place].children.iter().map(|child| below(*child)).sum(),
        }
    }

    /// Notes what is left of what is kept once a queue has taken, or given back, so much.
    pub(super) fn charge_kept(&mut self, from: usize, (amounts, sign): (&Amounts, i64)) {
        if let Some(mut loans) = self.loans.take() {
            loans.charge(&self.queues, from, (amounts, sign));
            self.follow_kept(from, |_, place| loans.vacant(place).clone());
            self.loans = Some(loans);
        } else if self.keeps_nodes {
            self.follow_kept(from, |shares, place| {
                let queue = &shares.queues[place];
                let of = |(resource, held): (usize, &i64)| {
                    let below = |child: usize| shares.queues[child].vacant[resource];
                    shares.vacant_on_nodes(place, (resource, *held), below)
                };
                queue.held.iter().enumerate().map(of).collect()
            });
        }
    }

    /// Notes it for a queue and those above it, and who lends by it.
    fn follow_kept(&mut self, from: usize, vacant: impl Fn(&Self, usize) -> Amounts) {
        let mut place = from;
        while place != POOL {
            let now = vacant(self, place);
            if self.queues[place].vacant != now {
                self.count_lender(place, -1);
                self.queues[place].vacant = now;
                self.count_lender(place, 1);
            }
            place = self.queues[place].parent;
        }
    }

    /// What is kept on a level for others than a queue below it (or there), who do not use it: no part of the guarantee of that level is
    /// there for that queue.
    pub(in crate::plan) fn kept_beside(&self, (queue, level): (usize, usize), resource: usize) -> i64 {
        if self.queues[level].vacant[resource] == 0 {
            return 0;
        }
        let (mut beside, mut below) = (0, None);
        for place in self.upwards(queue).take_while(|place| *place != self.queues[level].parent) {
            let others = self.queues[place].children.iter().filter(|child| Some(**child) != below);
            beside += others.map(|child| self.queues[*child].vacant[resource]).sum::<i64>();
            below = Some(place);
        }
        beside
    }
}
