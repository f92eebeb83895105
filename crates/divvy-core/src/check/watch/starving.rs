//! No job waits for ever: once in `starve_after` the job that has not run for the longest time gets a place, and keeps it for
//! the `quantum`.

use super::*;
use crate::model::ask::DrawAsk;
use crate::model::gang::Group;
use crate::model::job::JobSpec;
use crate::model::policy::Preempt;
use crate::state::{Job, Run, Runs};
use crate::time::Span;

/// The job that was chosen, and when.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Relieved {
    last: Option<Time>,
    open: Option<(JobId, Time)>,
    /// When its time is over, as of the last event; `None` until all of its tasks run. An event may end the run or set another `quantum`.
    ends: Option<Time>,
}

/// Where more classes than these wait, not all of them are looked at in a cycle.
const FEW_CLASSES: usize = 32;

/// Since when a job has not run, computed here independently.
fn idle_since(job: &Job) -> Time {
    let ends = match &job.runs {
        Runs::Single(run) => run.back_since,
        Runs::Array(array) => {
            array.touched.values().filter_map(|run| run.back_since).chain(array.ran_at).max()
        }
    };
    [job.spec.start_after, job.released_at, ends].into_iter().flatten().fold(job.submitted_at, Time::max)
}

impl Relieved {
    pub(super) fn of(state: &State) -> Self {
        let chosen = state.relief.open.and_then(|(job, _)| state.run(job));
        let ends = chosen.and_then(|run| Some(run.started_at? + state.policy.quantum()));
        Self { last: state.relief.last, open: state.relief.open, ends }
    }
}

impl Watch {
    /// The time of the chosen job is over before anything else happens at that moment; that is news.
    pub(super) fn pass_relief(&mut self, state: &State, at: Time) -> bool {
        let Some((job, _)) = self.relieved.open else { return false };
        let is_over = self.relieved.ends.is_some_and(|end| end <= at);
        let is_told = state.relief.open.is_none_or(|(other, _)| other != job);
        if is_over && is_told {
            self.relieved.open = None;
        }
        is_over && is_told
    }

    /// The chosen job has waited long enough, and longer than all jobs that are like it.
    pub(super) fn relieve(&mut self, state: &State, id: JobId, wrong: &mut Found) {
        let after = state.policy.starve_after().unwrap_or(Span(i64::MAX));
        let early = self.relieved.last.is_some_and(|last| last + after > self.at);
        let Some(job) = state.jobs.get(&id.number) else { return };
        let since = idle_since(job);
        let alike = state.jobs.values().filter(|other| other.class == job.class && is_idle(other));
        let longer =
            alike.filter(|other| idle_since(other) < since && other.waiting_members().next().is_some());
        let longer = longer.filter(|other| other.own_blockers(state, self.at).is_empty());
        if early || self.relieved.open.is_some() || since + after > self.at || longer.count() > 0 {
            wrong.push(found("starving", format!("job {id} goes before all others, and may not")));
        }
        (self.relieved.open, self.relieved.ends) = (Some((id, self.at)), None);
    }

    /// Follows what becomes of the chosen job.
    pub(super) fn follow_relief(&mut self, state: &State, event: &Event, wrong: &mut Found) {
        let Some((job, at)) = self.relieved.open else { return };
        let run = state.run(job);
        self.relieved.ends = run.and_then(|run| Some(run.started_at? + state.policy.quantum()));
        // All of its tasks run as soon as the last one has started, or gone.
        let may_begin =
            matches!(event, Event::TaskStarted { .. } | Event::Shrinking { .. } | Event::TaskEnded { .. });
        if may_begin && run.is_some_and(|run| run.started_at.is_some()) {
            self.relieved.last = Some(at);
        }
        match event {
            Event::Stopping { job: other, cause, by, .. }
            | Event::Shrinking { job: other, cause, by, .. }
                if *other == job && cause.is_planned() =>
            {
                let claimant = giving::claimant(state, by.as_deref()).filter(|_| *cause == Cause::Reclaimed);
                let grows = giving::grows(state, by.as_deref());
                // Nodes that a queue has for itself are its own, whichever jobs lie there.
                let is_owed = |claimant: &Job| {
                    is_strange(state, job, &claimant.spec.queue) || self.is_entitled(state, claimant, grows)
                };
                if !claimant.is_some_and(is_owed) {
                    wrong.push(found("starving", format!("job {job} was to keep its place for a while")));
                }
            }
            Event::Revoked { job: other }
            | Event::AttemptEnded { job: other, .. }
            | Event::Dropped { job: other, .. }
            | Event::Held { job: other, .. }
                if other.number == job.number && run.is_none_or(|run| !run.is_active() && !run.promised) =>
            {
                self.relieved.open = None;
                if matches!(event, Event::AttemptEnded { end, .. } if end.cause == Cause::Reclaimed) {
                    self.relieved.last = None;
                }
            }
            _ => {}
        }
    }

    /// A job that gives way because another one starves does so for the chosen job, and no other.
    pub(super) fn gives_way_to(&self, job: JobId, by: Option<&str>, wrong: &mut Found) {
        let chosen = self.relieved.open.map(|(chosen, _)| chosen.to_string());
        if chosen.as_deref() != by {
            wrong.push(found("starving", format!("job {job} gives way to {by:?}, who was not chosen")));
        }
    }

    /// Notes since when something has become free, as far as a cycle is to know.
    pub(super) fn note_freed(&mut self, state: &State) {
        if self.freed.last().is_none_or(|(_, freed)| *freed != state.freed) {
            self.freed.push((self.position, state.freed));
        }
    }

    /// After a cycle: the chosen job has a place, or will; and no job waits that should have been chosen.
    pub(super) fn nobody_starves(&mut self, state: &State, saw: Position, wrong: &mut Found) {
        let freed = self.freed.iter().rev().find(|(from, _)| *from <= saw).is_none_or(|(_, freed)| *freed);
        self.freed.clear();
        if let Some((job, _)) = self.relieved.open
            && state.run(job).is_none_or(|run| !run.is_active() && !run.promised)
        {
            wrong.push(found("starving", format!("job {job} was chosen, and has no place")));
        }
        if (self.relieved.last, self.relieved.open) != (state.relief.last, state.relief.open) {
            wrong.push(found("starving", format!("{:?} is not {:?}", state.relief, self.relieved)));
        }
        let Some(after) = state.policy.starve_after().filter(|_| is_simple(state)) else { return };
        let is_time = self.relieved.last.is_none_or(|last| last + after <= self.at);
        // Another plan of this cycle follows: in this one, no job gave way, or something has become free by it.
        if state.freed
            || !freed
            || !is_time
            || self.relieved.open.is_some()
            || state.verdicts.len() > FEW_CLASSES
        {
            return;
        }
        let waits =
            |job: &&Job| idle_since(job) + after <= self.at && is_idle(job) && waits(state, job, self.at);
        for job in state.jobs.values().filter(waits) {
            let Some(devices) = plain_devices(&job.spec) else { continue };
            if let Some(node) = state.nodes.keys().find(|node| could_have(state, **node, devices, self.at)) {
                let text = format!("job {} could have had node {node}, and has waited for long", job.number);
                wrong.push(found("starving", text));
            }
        }
    }
}

fn is_idle(job: &Job) -> bool {
    let is_active = |run: &Run| run.is_active() || run.promised;
    match &job.runs {
        Runs::Single(run) => !is_active(run),
        Runs::Array(array) => !array.touched.values().any(is_active),
    }
}

/// Whether a job waits for nothing but room.
fn waits(state: &State, job: &Job, now: Time) -> bool {
    let single = matches!(&job.runs, Runs::Single(run) if run.waits());
    single && job.own_blockers(state, now).is_empty()
}

/// Whether queues say nothing that keeps a job back, jobs give way, and no job wants others near it or apart.
fn is_simple(state: &State) -> bool {
    let says = |queue: &crate::model::queue::Queue| {
        let amounts = [&queue.limit, &queue.guarantee, &queue.borrow, &queue.lend];
        amounts.into_iter().any(|said| !said.is_empty())
            || !queue.budget.is_unsaid()
            || !queue.users.is_unsaid()
    };
    let policy = &state.policy;
    let alone = state.heeded.is_empty();
    alone && !state.draining && policy.preempt != Preempt::Off && !state.queues.values().any(says)
}

/// How many devices of any kind its one task asks for, if it asks for nothing else.
fn plain_devices(spec: &JobSpec) -> Option<usize> {
    let Group::Role(role) = &*spec.gang else { return None };
    let [only] = role.ask.alternatives.as_slice() else { return None };
    let ask = only.devices.as_ref().filter(|ask| ask.draw == DrawAsk::Whole)?;
    let any_class = ask.class == Default::default() && role.ask.nodes.is_any();
    let any_class = any_class && ask.required_island().is_none();
    let plain = only.cpu_milli.is_none() && only.memory_bytes.is_none() && only.extras.is_empty();
    let one = role.minimum == 1 && role.maximum == 1;
    let anywhere = role.topology.is_none() && role.spread.is_unsaid();
    let usual = !spec.exclusive && spec.preemptible && spec.may_preempt();
    (any_class && plain && one && anywhere && usual).then_some(ask.count as usize)
}

/// Whether so many devices of a node could be had if all on it gave way that may, and nothing else keeps them.
fn could_have(state: &State, id: NodeId, devices: usize, now: Time) -> bool {
    let Some(node) = state.nodes.get(&id) else { return false };
    let plain = state.takes_tasks(id) && node.others.is_nothing() && node.spec.most_tasks.is_none();
    let works = |(device_id, device): &(&DeviceId, &crate::state::Device)| {
        let is_well = device.node == id && device.health == Health::Ok && device.occupant.is_none();
        is_well && !state.is_reserved(id, **device_id)
    };
    let on_node = |placement: &Placement| placement.node == id;
    let promised = || state.promises.values().flat_map(|promise| &promise.placements).any(on_node);
    let held = || state.allocations.values().filter(|held| held.placement.node == id);
    let goes = |held: &crate::state::Allocation| {
        let known = state.jobs.get(&held.job.number).zip(state.run(held.job));
        known.is_some_and(|(job, run)| {
            let saves = job.spec.resumable || job.spec.checkpoint.is_some() || run.checkpointed_at.is_some();
            let again = run.last_end.as_ref().is_some_and(|end| end.cause == Cause::Starved);
            let runs_on = run.stopping.is_none() && !run.promised && held.since < now;
            let whole = held.state != AllocationState::Stopping && !job.spec.gang.is_elastic();
            // A job that had to give way before may be safe for a while, or for ever.
            let never = state.policy.restarts_cap() == Some(0);
            let counts = never || state.policy.counts_restarts() && run.gave_way > 0;
            job.spec.preemptible && runs_on && whole && (saves || !again) && !counts
        })
    };
    plain && state.devices.iter().filter(works).count() >= devices && !promised() && held().all(goes)
}
