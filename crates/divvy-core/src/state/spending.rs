//! What queues have used of their budgets. The fold computes it from the ledger: a budget renews at its time, whether or not anyone looks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::State;
use crate::model::queue::{Budget, lineage};
use crate::time::{Span, Time};

/// A queue's spending in the current period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Spending {
    /// What had been charged to the queue and those below it when the period began, in milli-GPU·ms.
    pub charged_milli_ms: i128,
    /// What is carried over from the previous period; below zero if that used more than it was allowed.
    pub carried_milli_ms: i128,
    /// When the budget renews.
    pub until: Time,
}

impl State {
    /// What is charged to a queue and those below it up to a moment, in milli-GPU·ms.
    pub(super) fn charged_below(&self, path: &str, now: Time) -> i128 {
        self.charging().charged_below(path, now)
    }

    /// A queue's budget and its spending, if it has one.
    pub fn budget_of(&self, queue: &str) -> Option<(&Budget, &Spending)> {
        Some((self.queues.get(queue)?.budget.said()?, self.spending.get(queue)?))
    }

    /// What is left of a queue's budget at a moment, in milli-GPU·ms; below zero where more was used. `None` without a budget.
    pub fn budget_left(&self, queue: &str, now: Time) -> Option<i128> {
        let (budget, spent) = self.budget_of(queue)?;
        let used = self.charged_below(queue, now) - spent.charged_milli_ms;
        Some(budget.milli_ms() + spent.carried_milli_ms - used)
    }

    /// The queues that have used up their budgets, and when these have renewed so far that something is left again: what was used beyond a
    /// budget is taken off the following ones.
    pub fn spent_out(&self, now: Time) -> BTreeMap<&str, (&Budget, Time)> {
        let of = |(queue, spent): (&'_ String, &Spending)| {
            let left = self.budget_left(queue, now).filter(|left| *left <= 0)?;
            let (queue, known) = self.queues.get_key_value(queue)?;
            let budget = known.budget.said()?;
            Some((queue.as_str(), (budget, renewed_at(budget, left, spent.until))))
        };
        self.spending.iter().filter_map(of).collect()
    }

    /// When the next budget renews.
    pub fn next_renewal(&self) -> Option<Time> {
        self.spending.values().map(|spent| spent.until).min()
    }

    /// Whether devices for a queue's jobs would be used beyond its budget, or one of a queue above it, at a moment.
    pub(super) fn is_spent_out(&self, queue: &str, now: Time) -> bool {
        !self.spending.is_empty()
            && lineage(queue).any(|path| self.budget_left(path, now).is_some_and(|left| left <= 0))
    }

    /// Renews the budgets whose periods have ended by now; says whether there were any.
    pub(super) fn renew_budgets(&mut self, now: Time) -> bool {
        let ended = self.spending.iter().filter(|(_, spent)| spent.until <= now);
        let ended: Vec<(String, Spending)> = ended.map(|(queue, spent)| (queue.clone(), *spent)).collect();
        for (queue, spent) in &ended {
            let budget = self.queues.get(queue).and_then(|queue| queue.budget.said());
            match budget.map(|budget| self.renewed(queue, (budget, *spent), now)) {
                Some(next) => drop(self.spending.insert(queue.clone(), next)),
                None => drop(self.spending.remove(queue)),
            }
        }
        !ended.is_empty()
    }

    /// The spending in the period that contains a moment. What is carried over follows from the period before.
    fn renewed(&self, queue: &str, (budget, mut spent): (&Budget, Spending), now: Time) -> Spending {
        while spent.until <= now {
            let charged_milli_ms = self.charged_below(queue, spent.until);
            let left =
                budget.milli_ms() + spent.carried_milli_ms - (charged_milli_ms - spent.charged_milli_ms);
            let (carried_milli_ms, until) = (budget.carried(left), budget.every.ends_after(spent.until));
            spent = Spending { charged_milli_ms, carried_milli_ms, until };
            spent = self.passed(queue, (budget, spent), now).unwrap_or(spent);
        }
        spent
    }

    /// Skips to the period that contains a moment, or the one before it, in one step: nothing has happened since the last event, so each
    /// period used as much as the others. `None` if that is not so, or if no whole period has passed.
    fn passed(&self, queue: &str, (budget, spent): (&Budget, Spending), now: Time) -> Option<Spending> {
        let length = budget.every.length().filter(|length| spent.until - *length >= self.now)?;
        let periods = (now.since(spent.until).0 / length.0).checked_sub(1).filter(|periods| *periods > 0)?;
        let used = self.charged_below(queue, spent.until) - spent.charged_milli_ms;
        let left = (budget.milli_ms() - used).saturating_mul(i128::from(periods));
        let until = spent.until + Span(length.0 * periods);
        Some(Spending {
            charged_milli_ms: self.charged_below(queue, until - length),
            carried_milli_ms: budget.carried(spent.carried_milli_ms.saturating_add(left)),
            until,
        })
    }

    /// Corrects the spending when a queue held less from a moment on than was charged to it: the part before this period is no gain in it,
    /// but was left over when earlier periods ended.
    pub(super) fn spent_less(&mut self, queue: &str, milli: i64, from: Time) {
        for path in lineage(queue) {
            let Some(budget) = self.queues.get(path).and_then(|queue| queue.budget.said()) else { continue };
            let Some(spent) = self.spending.get_mut(path) else { continue };
            let began = budget.every.begins_before(spent.until - Span(1));
            if began <= from {
                continue;
            }
            let before = i128::from(milli) * i128::from(began.since(from).0);
            spent.charged_milli_ms -= before;
            spent.carried_milli_ms = budget.carried(spent.carried_milli_ms + before);
        }
    }

    /// Begins new budgets, and forgets those that are gone. A budget whose period has changed keeps what was used.
    pub(super) fn review_budgets(&mut self, now: Time) {
        let mut spending = BTreeMap::new();
        for (path, queue) in &self.queues {
            let Some(budget) = queue.budget.said() else { continue };
            let until = budget.every.ends_after(now);
            let begin =
                || Spending { charged_milli_ms: self.charged_below(path, now), carried_milli_ms: 0, until };
            let known = self.spending.get(path).map(|known| Spending { until, ..*known });
            spending.insert(path.clone(), known.unwrap_or_else(begin));
        }
        self.spending = spending;
    }
}

/// How many periods are looked ahead at most.
const MOST_PERIODS: usize = 1000;

/// When something is left again of a budget that is used up, if nothing more is used.
fn renewed_at(budget: &Budget, left: i128, until: Time) -> Time {
    let next = |(at, left): &(Time, i128)| Some((budget.every.ends_after(*at), left + budget.milli_ms()));
    let mut renewals =
        std::iter::successors(Some((until, left + budget.milli_ms())), next).take(MOST_PERIODS);
    // Of a budget of 0, nothing ever is: it is asked about at its next renewal.
    renewals.find(|(_, left)| *left > 0).map_or(until, |(at, _)| at)
}
