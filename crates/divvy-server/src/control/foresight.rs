//! Estimates of how long jobs run. They come from the users; where the policy's order depends on lengths, they also come from
//! jobs that have ended. The estimates are written to the log, and the planner uses nothing else.

use divvy_core::controller::{Broken, Controller};
use divvy_core::decide::Command;
use divvy_core::id::JobId;
use divvy_core::model::attempt::Attempt;
use divvy_core::model::job::Estimate;
use divvy_core::model::policy::{Order, Policy};
use divvy_core::state::{Job, State};
use divvy_core::time::{Span, Time};
use divvy_insight::History;

use crate::alike;
use crate::store::{Reader, StoreError};

/// How many jobs of a queue must have ended before the lengths of its other jobs are foreseen.
const ENDED_AT_LEAST: u64 = 10;

/// An estimate stays until the forecast differs from it by more than one part in this many.
const NEWS_FROM: i64 = 10;

/// What an order depends on.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum GoesBy {
    /// Nothing that has to be foreseen.
    #[default]
    Nothing,
    /// How long jobs run.
    Length,
    /// How soon jobs can be expected to end.
    Outlook,
}

/// Learns from the jobs that have ended, and foresees those that have not.
#[derive(Default)]
pub(super) struct Foresight {
    history: Option<History>,
    /// What the policy depended on when all jobs were last foreseen.
    goes_by: GoesBy,
}

impl Foresight {
    /// Foresees a job that was just submitted.
    pub(super) fn foresee(
        &mut self,
        reader: &Reader,
        controller: &mut Controller,
        number: u64,
        now: Time,
    ) -> Result<(), Broken> {
        if goes_by(&controller.state().policy) != GoesBy::Nothing {
            self.learn(reader, controller.state());
        }
        let job = controller.state().jobs.get(&number);
        let Some(estimate) = job.and_then(|job| self.estimate(controller.state(), job)) else {
            return Ok(());
        };
        // A job that was submitted before (same token) may be over.
        controller.take(&Command::Estimate(JobId::single(number), estimate), now).map(drop)
    }

    /// Learns from the attempts that ended for good in a commit.
    pub(super) fn note(&mut self, reader: &Reader, attempts: &[Attempt]) {
        // Nothing is lost: attempts that are not learned now are read later, with all others.
        let Some(history) = &mut self.history else { return };
        for attempt in attempts.iter().filter(|attempt| attempt.state.is_ended()) {
            match reader.length_of(attempt.job) {
                Ok(length) => length.iter().for_each(|(job, length_ms)| history.note_end(job, *length_ms)),
                Err(error) => not_learned(&error),
            }
        }
    }

    /// Foresees all jobs anew, when enough others have ended since or the policy now depends on something else.
    pub(super) fn renew(
        &mut self,
        reader: &Reader,
        controller: &mut Controller,
        now: Time,
    ) -> Result<(), Broken> {
        let goes_by = goes_by(&controller.state().policy);
        let turned = goes_by != std::mem::replace(&mut self.goes_by, goes_by);
        if goes_by == GoesBy::Nothing {
            return Ok(());
        }
        self.learn(reader, controller.state());
        if !self.history.as_mut().is_some_and(History::renews) && !turned {
            return Ok(());
        }
        let state = controller.state();
        let news = state.jobs.iter().filter_map(|(number, job)| {
            let estimate = self.estimate(state, job)?;
            is_news(job.estimate.as_deref(), &estimate).then_some((*number, estimate))
        });
        let news: Vec<_> = news.collect();
        for (number, estimate) in news {
            let _ = controller.take(&Command::Estimate(JobId::single(number), estimate), now)?;
        }
        Ok(())
    }

    fn learn(&mut self, reader: &Reader, state: &State) {
        if self.history.is_some() {
            return;
        }
        match reader.lengths(alike::LEARNED_FROM) {
            Ok(lengths) => {
                let devices = u32::try_from(state.devices.len()).unwrap_or(u32::MAX);
                let mut history = History::new(devices);
                lengths.iter().for_each(|(job, length_ms)| history.note_end(job, *length_ms));
                self.history = Some(history);
            }
            Err(error) => not_learned(&error),
        }
    }

    /// Takes the length from the user, else from ended jobs; how soon a job may end comes from ended jobs only.
    fn estimate(&mut self, state: &State, job: &Job) -> Option<Estimate> {
        let alike = alike::likeness(job);
        let goes_by = goes_by(&state.policy);
        let history = self.history.as_mut().filter(|history| {
            goes_by != GoesBy::Nothing && history.ended_of_queue(&alike.queue) >= ENDED_AT_LEAST
        });
        let mut shown = history.and_then(|history| history.foresee(&alike));
        if let Some(shown) = shown.as_mut().filter(|_| goes_by == GoesBy::Length) {
            shown.outlook.clear();
        }
        let Some(Span(length_ms)) = job.spec.estimate else { return shown };
        // A single number says nothing about how far off it may be.
        let outlook = shown.map(|shown| shown.outlook).unwrap_or_default();
        Some(Estimate { p50_ms: length_ms, p90_ms: length_ms, model: "user".into(), outlook })
    }
}

fn goes_by(policy: &Policy) -> GoesBy {
    match policy.order {
        Order::Shortest => GoesBy::Length,
        Order::Attained if !policy.attained.foreseen.levels_device_ms.is_empty() => GoesBy::Outlook,
        Order::Attained | Order::Arrival => GoesBy::Nothing,
    }
}

fn is_news(stands: Option<&Estimate>, foreseen: &Estimate) -> bool {
    let Some(stands) = stands else { return true };
    let first = |estimate: &Estimate| estimate.outlook.first().map_or(0, |first| first.per_end_device_ms);
    let pairs = [
        (stands.p50_ms, foreseen.p50_ms),
        (stands.p90_ms, foreseen.p90_ms),
        (first(stands), first(foreseen)),
    ];
    pairs.iter().any(|(stands, foreseen)| {
        stands.abs_diff(*foreseen) > stands.max(foreseen).unsigned_abs() / NEWS_FROM as u64
    })
}

fn not_learned(error: &StoreError) {
    tracing::warn!("nothing can be learned from history: {error}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_stands_until_what_is_foreseen_differs_by_a_tenth() {
        let of = |p50_ms, p90_ms| Estimate { p50_ms, p90_ms, model: "spread".into(), outlook: Vec::new() };
        let stands = of(1000, 5000);
        assert!(is_news(None, &stands));
        assert!(!is_news(Some(&stands), &of(1090, 4600)));
        assert!(is_news(Some(&stands), &of(880, 5000)));
        assert!(is_news(Some(&stands), &of(1000, 6000)));
        assert!(!is_news(Some(&of(0, 0)), &of(0, 0)));
    }
}
