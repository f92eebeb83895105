//! What device time is worth where models have prices: a second ledger, in which an hour counts by its price relative to the dearest
//! model's. The past, budgets and pledges are computed from it; the ledger itself stays in device time.

use super::State;
use super::apply::Applied;
use crate::id::AllocationId;
use crate::ledger::Ledger;
use crate::model::allocation::Placement;
use crate::model::newer::Newer;
use crate::time::Time;

impl State {
    /// The ledger from which the past, budgets and pledges are computed.
    pub fn charging(&self) -> &Ledger {
        self.worth.as_deref().unwrap_or(&self.ledger)
    }

    /// What a placement is worth now, in thousandths of a device of the dearest model; unsaid if no prices were ever set.
    pub(super) fn worth_of(&self, placement: &Placement) -> Newer<i64> {
        Newer(self.worth.is_some().then(|| self.priced(placement)))
    }

    fn priced(&self, placement: &Placement) -> i64 {
        let Some(prices) = self.policy.prices.said() else { return placement.milli() };
        let model = |id| self.devices.get(id).map_or("", |device| device.spec.model.as_str());
        let each = placement.devices.iter();
        each.map(|(id, draw)| prices.worth_milli(model(id), i64::from(draw.milli))).sum()
    }

    /// Changes the worth of what a user holds in a queue.
    pub(super) fn charge_worth(&mut self, (queue, user): (&str, &str), milli: i64, at: Time) -> Applied {
        match &mut self.worth {
            Some(worth) => Ok(worth.change(queue, user, milli, at)?),
            None => Ok(()),
        }
    }

    /// Stops charging a user of a queue for this much, and this much worth, held until a moment that may lie in the past.
    pub(super) fn charge_until(
        &mut self,
        (queue, user): (&str, &str),
        (milli, worth): (i64, i64),
        (until, at): (Time, Time),
    ) -> Applied {
        self.ledger.change(queue, user, -milli, at)?;
        self.charge_worth((queue, user), -worth, at)?;
        if until >= at {
            return Ok(());
        }
        let late_ms = i128::from(at.since(until).0);
        self.ledger.take_back(queue, user, i128::from(milli) * late_ms);
        if let Some(ledger) = &mut self.worth {
            ledger.take_back(queue, user, i128::from(worth) * late_ms);
        }
        self.spent_less(queue, worth, until);
        self.gave_less(queue, worth, until);
        Ok(())
    }

    /// Charges for all that is held at the prices that are in force now. What was charged before stays as it was.
    pub(super) fn reprice(&mut self, at: Time) -> Applied {
        if self.worth.is_none() {
            if self.policy.prices.is_unsaid() {
                return Ok(());
            }
            self.worth = Some(Box::new(self.ledger.clone()));
        }
        let ids: Vec<AllocationId> = self.allocations.keys().copied().collect();
        for id in ids {
            let Some((held, job)) =
                self.allocations.get(&id).and_then(|held| Some((held, self.jobs.get(&held.job.number)?)))
            else {
                continue;
            };
            let (before, now) = (held.worth.said().copied(), self.worth_of(&held.placement));
            let more = now.said().copied().unwrap_or(0) - before.unwrap_or(held.placement.milli());
            let whose = (job.spec.queue.clone(), job.owner.name.clone());
            self.charge_worth((&whose.0, &whose.1), more, at)?;
            self.change_allocation(id, |held| held.worth = now)?;
        }
        Ok(())
    }
}
