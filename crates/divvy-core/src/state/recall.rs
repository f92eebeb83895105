//! The past of queues, given out to be kept elsewhere and taken in again where a log begins.

use std::collections::BTreeMap;

use super::State;
use super::spending::Spending;
use crate::model::device::WHOLE_MILLI;
use crate::model::queue::{Budget, user_at};
use crate::model::recollection::{Recollection, Spent};
use crate::time::{Span, Time};

/// What is older is forgotten.
const LONGEST: Span = Span::seconds(366 * 86_400);

impl State {
    /// What is to be remembered of queues and their users, by where jobs stand, as of a moment; decayed up to then. What users use
    /// who are not told apart is their queue's, whatever is below it.
    pub fn recollections(&self, now: Time) -> BTreeMap<String, Recollection> {
        let mut all: BTreeMap<String, Recollection> = BTreeMap::new();
        for (path, record) in self.past_at(now).records() {
            let path = user_at(path).filter(|(_, user)| user.is_empty()).map_or(path, |(queue, _)| queue);
            let known = all.entry(path.to_owned()).or_default();
            (known.used_gpu_ms, known.credit_gpu_ms) =
                (gpu_ms(record.used_milli_ms), gpu_ms(record.credit_milli_ms));
        }
        for (path, spent) in &self.spending {
            let used = self.charged_below(path, now) - spent.charged_milli_ms;
            all.entry(path.clone()).or_default().spent = Some(Spent {
                used_gpu_ms: gpu_ms(used),
                carried_gpu_ms: gpu_ms(spent.carried_milli_ms),
                until: spent.until,
            });
        }
        for (path, pledged) in self.pledges.iter() {
            let used = self.charged_below(path, now) - pledged.charged_milli_ms;
            all.entry(path.clone()).or_default().pledged = Some((gpu_ms(used), pledged.until));
        }
        all.retain(|_, known| *known != Recollection::default());
        all
    }

    /// Takes in what was remembered as of a moment.
    pub(super) fn recall(&mut self, of: Time, known: &BTreeMap<String, Recollection>, now: Time) {
        let of = of.min(now);
        if now.since(of) > LONGEST {
            return;
        }
        self.recall_past(of, known, now);
        for (path, spent) in known.iter().filter_map(|(path, known)| Some((path, known.spent?))) {
            let Some(budget) = self.queues.get(path).and_then(|queue| queue.budget.said()) else { continue };
            let spending = Spending {
                charged_milli_ms: self.charged_below(path, now) - milli_ms(spent.used_gpu_ms),
                carried_milli_ms: milli_ms(spent.carried_gpu_ms),
                until: until(budget, of, spent, now),
            };
            self.spending.insert(path.clone(), spending);
        }
        self.renew_budgets(now);
        for (path, (used, until)) in known.iter().filter_map(|(path, known)| Some((path, known.pledged?))) {
            self.recall_pledge(path, milli_ms(used), until, now);
        }
    }
}

/// When a budget of which this much was used renews; if its period has changed, at the end of the present one.
fn until(budget: &Budget, of: Time, spent: Spent, now: Time) -> Time {
    match budget.every.ends_after(of) {
        until if until == spent.until => until,
        _ => budget.every.ends_after(now),
    }
}

fn gpu_ms(milli_ms: i128) -> i64 {
    let most = i128::from(i64::MAX);
    (milli_ms / i128::from(WHOLE_MILLI)).clamp(-most, most) as i64
}

fn milli_ms(gpu_ms: i64) -> i128 {
    i128::from(gpu_ms) * i128::from(WHOLE_MILLI)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, Stamped};
    use crate::id::{DeviceId, NodeId};
    use crate::model::device::DeviceSpec;
    use crate::model::newer::Newer;
    use crate::model::policy::Policy;
    use crate::model::queue::{self, Queue};
    use crate::state::State;

    const HOUR_MS: i64 = 3_600_000;

    /// A pool with two queues, one of them with a budget of ten GPU-hours a day of which five are carried.
    fn pool() -> State {
        let text = "queues: {vision: {budget: {gpu_hours: 10, every: day, carry: 5}}, nlp: {}}";
        let mut queues: Vec<Queue> = queue::parse(text).unwrap().queues;
        // More than the budget allows, so that the queue is behind whatever it used.
        let pledge = queue::Pledge { milli_gpu_hours: 48_000, every: queue::Period::Day };
        let vision = queues.iter_mut().filter(|queue| queue.path == "vision");
        vision.for_each(|vision| vision.pledge = Newer(Some(pledge)));
        let mut state = State::default();
        let policy = Policy { half_life_ms: 24 * HOUR_MS, ..Policy::default() };
        tell(&mut state, 1, Event::PolicySet { policy: Box::new(policy), by: "root".into(), note: None });
        tell(&mut state, 1, Event::QueuesSet { queues, by: "root".into(), note: None });
        // A credit is bounded by what the pool has.
        for number in 0..8 {
            let spec = DeviceSpec { uuid: number.to_string(), ..DeviceSpec::default() };
            tell(
                &mut state,
                1,
                Event::DeviceSeen { device: DeviceId(number), node: NodeId(1), spec: spec.into() },
            );
        }
        state
    }

    fn tell(state: &mut State, at: i64, event: Event) {
        state.apply(&Stamped { at: Time(at), event }).unwrap();
    }

    /// What one queue had too much of the other missed.
    fn recalled(of: i64, vision: Recollection) -> Event {
        let nlp =
            Recollection { credit_gpu_ms: vision.credit_gpu_ms.saturating_neg(), ..Recollection::default() };
        let known = [("vision".to_owned(), vision), ("nlp".to_owned(), nlp)];
        Event::Recalled { of: Time(of), known: known.into() }
    }

    fn spent(used_hours: i64, carried_hours: i64, until_hours: i64) -> Option<Spent> {
        Some(Spent {
            used_gpu_ms: used_hours * HOUR_MS,
            carried_gpu_ms: carried_hours * HOUR_MS,
            until: Time(until_hours * HOUR_MS),
        })
    }

    #[test]
    fn what_is_given_out_is_taken_in_again_and_what_decays_has_decayed() {
        let mut state = pool();
        let pledged = |used| Some((used * HOUR_MS, Time(24 * HOUR_MS)));
        let known = Recollection {
            used_gpu_ms: 8 * HOUR_MS,
            credit_gpu_ms: -2 * HOUR_MS,
            spent: spent(4, 1, 24),
            pledged: pledged(3),
        };
        tell(&mut state, HOUR_MS, recalled(HOUR_MS, known));
        assert_eq!(state.recollections(Time(HOUR_MS))["vision"], known);
        // A day later half of it is left, and of the budget what may be carried of what was left: 10 + 1 − 4, at most 5.
        let mut later = pool();
        tell(&mut later, 25 * HOUR_MS, recalled(HOUR_MS, known));
        let halved = Recollection {
            used_gpu_ms: 4 * HOUR_MS,
            credit_gpu_ms: -HOUR_MS,
            spent: spent(0, 5, 48),
            pledged: Some((0, Time(48 * HOUR_MS))),
        };
        assert_eq!(later.recollections(Time(25 * HOUR_MS))["vision"], halved);
        assert_eq!(later.budget_left("vision", Time(25 * HOUR_MS)), Some(milli_ms(15 * HOUR_MS)));
    }

    #[test]
    fn a_budget_of_another_period_keeps_what_was_used_and_what_is_older_than_a_year_is_forgotten() {
        let of_a_week = Recollection { spent: spent(4, 0, 96), ..Recollection::default() };
        let mut state = pool();
        tell(&mut state, 2 * HOUR_MS, recalled(HOUR_MS, of_a_week));
        assert_eq!(state.recollections(Time(2 * HOUR_MS))["vision"].spent, spent(4, 0, 24));
        let mut state = pool();
        let after = 400 * 24 * HOUR_MS + HOUR_MS;
        tell(&mut state, after, recalled(1, Recollection { used_gpu_ms: i64::MAX, ..of_a_week }));
        assert_eq!(state.recollections(Time(after))["vision"].spent.map(|spent| spent.used_gpu_ms), Some(0));
    }

    #[test]
    fn whatever_is_remembered_breaks_nothing() {
        for extreme in [i64::MIN, i64::MAX] {
            let known = Recollection {
                used_gpu_ms: extreme,
                credit_gpu_ms: extreme,
                spent: Some(Spent { used_gpu_ms: extreme, carried_gpu_ms: extreme, until: Time(extreme) }),
                pledged: Some((extreme, Time(24 * HOUR_MS))),
            };
            let mut state = pool();
            tell(&mut state, HOUR_MS, recalled(extreme, known));
            tell(&mut state, 30 * HOUR_MS, Event::Tick);
            assert!(state.recollections(Time(30 * HOUR_MS)).contains_key("vision"));
        }
    }
}
