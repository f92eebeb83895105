//! Who gives way to whom: only to those that may take (L8, L9), and never in turns (L10).

use super::*;
use crate::state::Record;

/// When what queues missed was news for the last time, by the state's own word, and what it was then.
pub(super) fn last_step(state: &State) -> (Time, BTreeMap<String, i128>) {
    let credits = state.past.records().map(|(queue, record)| (queue.to_owned(), record.stepped_milli_ms));
    (state.past.stepped_at(), credits.collect())
}

impl Watch {
    /// Whether it did not follow from what was planned: the end of an attempt did if the job was told to make room and is not over.
    pub(super) fn is_from_outside(&mut self, state: &State, event: &Event) -> bool {
        match event {
            Event::AttemptEnded { job, .. } => !self.giving_way.remove(job) || state.run(*job).is_none(),
            Event::Tick => self.is_step(state),
            Event::PolicySet { .. } | Event::QueuesSet { .. } if !state.remembers() => {
                self.stepped = Default::default();
                true
            }
            event => event.comes_from_outside(|_| true),
        }
    }

    /// Whether what a queue missed has changed by what a device does in the time in which queues catch up, since the last time
    /// that it had; that counts every quarter of that time at most.
    fn is_step(&mut self, state: &State) -> bool {
        let catch_up_ms = state.policy.catch_up_ms;
        let (before_at, before) = &self.stepped;
        let has_changed = |(queue, record): (&str, &Record)| {
            let change = record.credit_milli_ms - before.get(queue).copied().unwrap_or(0);
            change.unsigned_abs() >= 1000 * u128::from(catch_up_ms.unsigned_abs())
        };
        let is_time = self.at.since(*before_at).0 >= (catch_up_ms + 3) / 4;
        if !state.remembers() || !is_time || !state.past.records().any(has_changed) {
            return false;
        }
        let credits = state.past.records().map(|(queue, record)| (queue.to_owned(), record.credit_milli_ms));
        self.stepped = (self.at, credits.collect());
        true
    }

    /// A job is taken back only by one that may: inside a queue by one of higher priority; across queues only from a queue that
    /// holds more devices than are guaranteed to it, compared where the paths part (L9).
    pub(super) fn taking_back(
        &mut self,
        state: &State,
        job: JobId,
        (cause, by): (Cause, Option<&str>),
        wrong: &mut Found,
    ) {
        if !matches!(cause, Cause::Preempted | Cause::Reclaimed) {
            return;
        }
        let claimant = by.and_then(|by| by.parse::<JobId>().ok()).and_then(|by| state.jobs.get(&by.number));
        let (Some(claimant), Some(victim)) = (claimant, state.jobs.get(&job.number)) else {
            wrong.push(found("L8", format!("job {job} is taken back for nobody")));
            return;
        };
        self.taken.insert(job);
        if by.and_then(|by| by.parse().ok()).is_some_and(|by| self.taken.contains(&by)) {
            let text = format!("job {job} gives way to {by:?}, whose devices were taken since the last news");
            wrong.push(found("L10", text));
        }
        let (own, other) = (&claimant.spec.queue, &victim.spec.queue);
        if cause == Cause::Preempted {
            if own != other || claimant.spec.priority <= victim.spec.priority {
                wrong.push(found("L10", format!("job {job} is preempted by {}", claimant.number)));
            }
            return;
        }
        let mut upwards: Vec<&str> = lineage(other).collect();
        upwards.reverse();
        let is_shared = |path: &&str| lineage(own).any(|above| above == *path);
        let Some(sibling) = upwards.into_iter().find(|path| !is_shared(path)) else {
            wrong.push(found(
                "L9",
                format!("job {job} of {other} is reclaimed by {own}, one above the other"),
            ));
            return;
        };
        let held = self.queues.get(sibling).and_then(|held| held.get(&Resource::Any)).copied().unwrap_or(0);
        let leaving = self.leaving_milli.get(sibling).copied().unwrap_or(0);
        let guarantee = guaranteed_milli(state, sibling);
        if claimant.spec.milli_asked() > 0 && held - leaving <= guarantee {
            let text = format!(
                "queue {sibling} holds {held}−{leaving} of its guarantee of {guarantee}, and job {job} is reclaimed"
            );
            wrong.push(found("L9", text));
        }
    }
}
