//! The fold of ends: of tasks, of attempts, of jobs that waited, and of what is forgotten with them.

use std::sync::Arc;

use super::apply::{Applied, Wrong};
use super::digest::{allocation_hash, job_hashes, run_hash};
use super::{Outcome, Run, Runs, State};
use crate::engine::{EndedHow, TaskEnd};
use crate::event::seen_end;
use crate::id::{AllocationId, JobId};
use crate::model::allocation::AllocationState;
use crate::model::job::{Cause, JobState, LastEnd};
use crate::model::members::Members;
use crate::time::Time;

impl State {
    /// Ends a task: what it held becomes free, and is charged up to its end, however late that was seen.
    pub(super) fn end_task(
        &mut self,
        id: AllocationId,
        end: &TaskEnd,
        (ended_at, at): (Option<Time>, Time),
    ) -> Applied {
        let held = self.allocations.remove(&id).ok_or_else(|| Wrong::Unknown(format!("allocation {id}")))?;
        self.minus(allocation_hash(id, &held));
        let milli = held.placement.milli();
        let until = seen_end(ended_at, at).max(held.since);
        let milli_ms = i128::from(milli) * i128::from(until.since(held.since).0);
        // If it failed, either the other tasks are told to stop, or it had been told to go.
        let begins = end.how == EndedHow::Exited(0) && self.begins_without(held.job);
        self.change_run(held.job, |run| {
            run.live.retain(|live| *live != id);
            if held.state == AllocationState::Stopping && run.stopping.is_none() {
                // A task that was told to go is no part of the gang any more: how it ends is not the job's end.
                run.placements.retain(|placement| placement.allocation != id);
            } else {
                run.over.push((held.placement.rank, end.clone()));
            }
            run.held_milli_ms = run.held_milli_ms.saturating_add(i64::try_from(milli_ms).unwrap_or(i64::MAX));
            if begins {
                run.begins(at);
            }
        })?;
        let job =
            self.jobs.get(&held.job.number).ok_or_else(|| Wrong::Unknown(format!("job {}", held.job)))?;
        let (spec, owner) = (Arc::clone(&job.spec), Arc::clone(&job.owner));
        let whose = (spec.queue.as_str(), owner.name.as_str());
        self.ledger.close(milli_ms);
        self.charge_until(whose, (milli, held.worth.said().copied().unwrap_or(milli)), (until, at))
    }

    /// Ends an attempt; a job that is not over waits for the next one.
    pub(super) fn end_attempt(
        &mut self,
        id: JobId,
        end: &LastEnd,
        state: JobState,
        (ended_at, at): (Option<Time>, Time),
    ) -> Applied {
        if state.is_ended() {
            return self.end_run(id, state, Some(at));
        }
        // Further tasks were for the gang that ran: a new attempt begins with the minimum.
        if self.promises.get(&id).is_some_and(|promise| promise.grows) {
            self.revoke(id)?;
        }
        let (moves, ended) = (self.policy.moves, seen_end(ended_at, at));
        self.change_run(id, |run| {
            // A job that saves its work and asks to be run again behaves well, unless it does nothing else.
            let asked = end.cause == Cause::Checkpointed && run.has_done_something(ended);
            let wished = asked || run.stopping.as_ref().is_some_and(|stopping| stopping.requeue);
            *run = Run {
                attempt: run.attempt + 1,
                restarts: run.restarts + u32::from(!wished),
                last_end: Some(end.clone()),
                attained_ms: run.progress_ms(ended),
                back_since: Some(at),
                promised: run.promised,
                taken_at: run.taken_at,
                gave_way: run.gave_way,
                moved: run.moved_by(&moves, at),
                ..Run::fresh(None)
            };
        })
    }

    /// Takes an ended run out of the state; with the last one the job goes, too.
    fn end_run(&mut self, id: JobId, state: JobState, ran_at: Option<Time>) -> Applied {
        if self.promises.contains_key(&id) {
            self.revoke(id)?;
        }
        let Some(member) = id.member else {
            return self.forget_job(id.number, state == JobState::Completed, None);
        };
        self.change_run(id, |_| ())?;
        let unknown = || Wrong::Unknown(format!("job {id}"));
        let job = self.jobs.get_mut(&id.number).ok_or_else(unknown)?;
        let Runs::Array(array) = &mut job.runs else { return Err(unknown()) };
        let less = array.touched.remove(&member).map_or(0, |run| run_hash(id, &run));
        array.ended.entry(state).or_default().insert(member);
        array.ran_at = ran_at.or(array.ran_at);
        let gone = array.fresh.is_empty() && array.touched.is_empty();
        self.minus(less);
        if gone { self.forget_array(id.number) } else { Ok(()) }
    }

    fn forget_array(&mut self, number: u64) -> Applied {
        let completed = self.jobs.get(&number).and_then(|job| match &job.runs {
            Runs::Array(array) => {
                let all_well = array.ended.keys().all(|state| *state == JobState::Completed);
                Some((all_well, array.ended.get(&JobState::Completed).cloned()))
            }
            Runs::Single(_) => None,
        });
        let (all_well, completed) = completed.unwrap_or_default();
        self.forget_job(number, all_well, completed)
    }

    fn forget_job(&mut self, number: u64, well: bool, completed: Option<Members>) -> Applied {
        let job = self.jobs.remove(&number).ok_or_else(|| Wrong::Unknown(format!("job {number}")))?;
        self.minus(job_hashes(&job));
        self.outcomes.note(number, if well { Outcome::Ok } else { Outcome::Fail }, completed);
        Ok(())
    }

    pub(super) fn drop_waiting(&mut self, id: JobId, state: JobState) -> Applied {
        let is_array = self.jobs.get(&id.number).is_some_and(|job| matches!(job.runs, Runs::Array(_)));
        if !is_array || id.member.is_some() {
            return self.end_run(id, state, None);
        }
        let promised: Vec<JobId> =
            self.promises.keys().filter(|job| job.number == id.number).copied().collect();
        promised.into_iter().try_for_each(|job| self.revoke(job))?;
        let mut gone = true;
        self.change_job(id.number, |job| {
            let Runs::Array(array) = &mut job.runs else { return };
            let waiting: Vec<u32> =
                array.touched.iter().filter(|(_, run)| !run.is_active()).map(|(member, _)| *member).collect();
            let ended = array.ended.entry(state).or_default();
            std::mem::take(&mut array.fresh)
                .iter()
                .chain(waiting.iter().copied())
                .for_each(|member| ended.insert(member));
            array.touched.retain(|_, run| run.is_active());
            gone = array.touched.is_empty();
        })?;
        if gone { self.forget_array(id.number) } else { Ok(()) }
    }
}
