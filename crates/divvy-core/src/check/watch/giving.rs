//! Who gives way to whom: only to those that may take (L8, L9), and never in turns (L10).

use super::*;

impl Watch {
    /// Whether it did not follow from what was planned: the end of an attempt did if the job was told to make room and is not over.
    pub(super) fn is_from_outside(&mut self, state: &State, event: &Event) -> bool {
        match event {
            Event::AttemptEnded { job, .. } => !self.giving_way.remove(job) || state.run(*job).is_none(),
            event => event.comes_from_outside(|_| true),
        }
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
