//! Which jobs give way to which: only to those that may take (L8, L9), and never in turns (L10).

use super::*;
use crate::amount::Amount;
use crate::model::allocation::AllocationState;
use crate::model::ask::Alternative;
use crate::model::gang::Role;
use crate::model::node::NodeState;
use crate::model::policy::{Preempt, WithinQueue};
use crate::model::queue::Queue;
use crate::state::{Job, Node, Record};

/// When what queues missed was last news, by the state's own word, and what it was then.
pub(super) fn last_step(state: &State) -> (Time, BTreeMap<String, i128>) {
    let credits = state.past.records().map(|(queue, record)| (queue.to_owned(), record.stepped_milli_ms));
    (state.past.stepped_at(), credits.collect())
}

/// Whether what is promised to a job makes it faster than what it has.
fn is_faster(state: &State, id: JobId) -> bool {
    let job = state.jobs.get(&id.number).zip(state.run(id)).zip(state.promises.get(&id));
    job.is_some_and(|((job, run), promise)| {
        job.spec.pace_percent(&promise.placements) > job.spec.pace_percent(&run.placements)
    })
}

/// What is guaranteed to queues because they are behind their pledges.
pub(super) fn floors(state: &State) -> BTreeMap<String, i64> {
    let pledged = state.queues.iter().filter(|(_, queue)| !queue.pledge.is_unsaid());
    pledged.map(|(path, _)| (path.clone(), state.floor_milli(path))).collect()
}

impl Watch {
    /// Nothing with devices starts in a queue that has used up its budget, or below one.
    pub(super) fn budgets(&self, state: &State, (job, placements): (JobId, &[Placement]), wrong: &mut Found) {
        if placements.iter().map(Placement::milli).sum::<i64>() == 0 {
            return;
        }
        let queue = state.jobs.get(&job.number).map(|job| job.spec.queue.clone()).unwrap_or_default();
        for path in lineage(&queue) {
            let Some((budget, spent)) = state.budget_of(path) else { continue };
            let books = self.account_of.iter().filter(|(queue, _)| lineage(queue).any(|above| above == path));
            let books = books.flat_map(|(_, users)| users.values());
            let own: i128 = books.map(|book| self.accounts[*book].charged_at(state.now)).sum();
            // With prices the checker has no books of its own: that the state's agree with what is held is checked elsewhere (L11).
            let is_below = |queue: &&str| lineage(queue).any(|above| above == path);
            let charged = state.worth.as_ref().map_or(own, |worth| {
                worth.queues().filter(is_below).map(|queue| worth.charged(queue, state.now)).sum()
            });
            let most = i128::from(budget.milli_gpu_hours) * 3_600_000 + spent.carried_milli_ms;
            if charged - spent.charged_milli_ms >= most {
                let text = format!("job {job} was placed, and queue {path} has used its budget");
                wrong.push(found("budget", text));
            }
        }
    }

    /// No job, or part of one, gives way more often than the policy says, nor shortly after having done so: except for what is
    /// guaranteed to another queue.
    pub(super) fn again(
        &mut self,
        state: &State,
        (job, cause, by): (JobId, Cause, Option<&str>),
        wrong: &mut Found,
    ) {
        self.in_vain(state, (job, cause, by), wrong);
        let policy = &state.policy;
        // A job that changes places with a running one does so for speed; a part of a gang never does.
        let stops = state.run(job).is_some_and(|run| run.stopping.is_some());
        let for_speed = stops && grows(state, by);
        if cause == Cause::Moved && !for_speed && self.moving.is_enough(job, state.now) {
            wrong.push(found("moves", format!("job {job} is moved again, which it does not bear so soon")));
        }
        if !cause.is_planned() || !policy.counts_restarts() {
            return;
        }
        let claimant = claimant(state, by).filter(|_| matches!(cause, Cause::Reclaimed | Cause::Moved));
        if claimant.is_some_and(|claimant| {
            is_strange(state, job, &claimant.spec.queue)
                || !is_of_own(state, job, claimant) && self.is_entitled(state, claimant, grows(state, by))
        }) {
            return;
        }
        let Some(run) = state.run(job) else { return };
        // The stop of a whole job is counted already.
        let before = run.gave_way - u32::from(run.stopping.is_some());
        let most = policy.restarts_cap().unwrap_or(u32::MAX);
        let cool_down_ms = policy.cool_down().map_or(0, |span| span.0);
        let ran_ms = run.started_at.map_or(0, |started| state.now.since(started).0);
        if before >= most || before > 0 && ran_ms < cool_down_ms {
            let for_whom = by.unwrap_or("nobody");
            let text = format!(
                "job {job} gives way to {for_whom} ({cause:?}) after having done so {before} times, {ran_ms} ms ago"
            );
            wrong.push(found("restarts", text));
        }
    }

    /// Where device time is pledged, a job that saves nothing and made room before makes room for another queue, or is moved, only once it
    /// has run for as long as it did in vain; except for what is guaranteed to that queue whatever it has used.
    fn in_vain(&self, state: &State, (job, cause, by): (JobId, Cause, Option<&str>), wrong: &mut Found) {
        let known = state.jobs.get(&job.number).zip(state.run(job));
        let Some((spec, run)) = known.map(|(job, run)| (&job.spec, run)) else { return };
        let made_room = run.last_end.as_ref().is_some_and(|end| end.cause.is_planned());
        let is_saved = spec.resumable || spec.checkpoint.is_some() || run.checkpointed_at.is_some();
        let is_pledged = state.queues.values().any(|queue| !queue.pledge.is_unsaid());
        let ran_ms = run.started_at.map_or(0, |started| state.now.since(started).0);
        let for_others = matches!(cause, Cause::Reclaimed | Cause::Moved);
        if !for_others || !is_pledged || !made_room || is_saved || ran_ms >= run.attained_ms {
            return;
        }
        let claimant = claimant(state, by);
        if claimant.is_none_or(|claimant| {
            !is_strange(state, job, &claimant.spec.queue)
                && !self.stays_within(state, (claimant, grows(state, by)), always_guaranteed_milli)
        }) {
            let text = format!(
                "job {job} gives way to {by:?} after {ran_ms} ms, and has run for {} in vain",
                run.attained_ms
            );
            wrong.push(found("L10", text));
        }
    }

    /// Where queues are divided differently than before, moves what is held to where it now stands.
    pub(super) fn seat_anew(&mut self, state: &State) {
        let stand = |hold: &Hold| Some(stand(state, state.jobs.get(&hold.job.number)?));
        let stands = self.holds.iter().map(|(id, hold)| (*id, stand(hold)));
        let moved = stands.filter(|(id, stand)| stand.as_ref() != Some(&self.holds[id].stand));
        for (id, stand) in moved.collect::<Vec<_>>() {
            let (Some(mut hold), Some(stand)) = (self.holds.remove(&id), stand) else { continue };
            let before = std::mem::replace(&mut hold.stand, stand);
            self.charge_queues(&before, &hold.counted, -1);
            self.charge_queues(&hold.stand, &hold.counted, 1);
            if self.leaving.contains(&id) {
                count(&mut self.leaves, &before, &hold.counted, -1);
                count(&mut self.leaves, &hold.stand, &hold.counted, 1);
            }
            self.holds.insert(id, hold);
        }
    }

    /// Whether an event did not follow from a plan: the end of an attempt did if the job was told to make room and is not over.
    pub(super) fn is_from_outside(&mut self, state: &State, event: &Event) -> bool {
        let floors = floors(state);
        let are_others = std::mem::replace(&mut self.floors, floors) != self.floors;
        let is_from_outside = match event {
            Event::AttemptEnded { job, .. } => !self.giving_way.remove(job) || state.run(*job).is_none(),
            Event::Tick => self.is_step(state),
            Event::PolicySet { .. } | Event::QueuesSet { .. } if !state.remembers() => {
                self.stepped = Default::default();
                true
            }
            event => event.comes_from_outside(|_| true),
        };
        // Queues fall behind their pace, or catch up with it, as time passes.
        is_from_outside || are_others
    }

    /// Whether what a queue missed has changed, since it last did, by what one device does in the time in which queues catch up; that
    /// counts once in a quarter of that time at most.
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

    /// A job gives way only to one that may take from it: inside a queue to one of higher priority; across queues only if its queue
    /// holds more devices than are guaranteed to it, compared where the paths part (L9).
    pub(super) fn taking_back(
        &mut self,
        state: &State,
        job: JobId,
        (cause, by): (Cause, Option<&str>),
        wrong: &mut Found,
    ) {
        let claimant = claimant(state, by);
        let is_polite = |claimant: &&Job| !claimant.spec.may_preempt() && claimant.number != job.number;
        if let Some(polite) =
            claimant.filter(|_| state.policy.preempt == Preempt::LeastLoss).filter(is_polite)
        {
            wrong.push(found(
                "L9",
                format!("job {job} gives way to {}, for which nobody is to", polite.number),
            ));
        }
        if cause == Cause::Order && state.policy.preempt == Preempt::LeastLoss {
            self.by_order(state, (job, by), wrong);
        }
        if !cause.takes() {
            return;
        }
        let (Some(claimant), Some(victim)) = (claimant, state.jobs.get(&job.number)) else {
            wrong.push(found("L8", format!("job {job} is taken back for nobody")));
            return;
        };
        self.taken.insert(job);
        let is_entitled = self.is_entitled(state, claimant, grows(state, by));
        if cause == Cause::Starved {
            self.gives_way_to(job, by, wrong);
        } else if cause == Cause::Reclaimed
            && !is_entitled
            && by.and_then(|by| by.parse().ok()).is_some_and(|by| self.taken.contains(&by))
        {
            let text = format!("job {job} gives way to {by:?}, whose devices were taken since the last news");
            wrong.push(found("L10", text));
        }
        // A job on nodes that are kept for others has no guarantee there.
        if cause == Cause::Reclaimed && is_strange(state, job, &claimant.spec.queue) {
            return;
        }
        let (own, other) = (&stand(state, claimant), &stand(state, victim));
        if cause == Cause::Preempted {
            if own != other || !goes_before(state, claimant, victim) {
                wrong.push(found("L10", format!("job {job} is preempted by {}", claimant.number)));
            }
            return;
        }
        // In its own queue all jobs give way to it; by the walk, those of all queues do.
        let anyone = own == other || state.policy.preempt == Preempt::Walk;
        if cause == Cause::Starved && anyone {
            return;
        }
        let is_entitled = is_entitled || self.is_entitled_above(state, (claimant, grows(state, by)), other);
        let spares = !is_entitled && cause == Cause::Reclaimed;
        if spares {
            self.borrowing(state, (claimant, victim), job, wrong);
        }
        let apart = lineage(&claimant.spec.queue).filter(|path| !lineage(other).any(|above| above == *path));
        let apart = (!is_entitled).then(|| apart.collect::<Vec<_>>());
        let models = self.entitled_to(state, (claimant, grows(state, by)), apart.as_deref());
        self.across((state, job, spares), (own, other), (claimant, &models), wrong);
    }

    /// By the order of its queue a job gives way only to one of the same priority there that stands before it, and only if it can go on
    /// from where it was (L9).
    fn by_order(&self, state: &State, (job, by): (JobId, Option<&str>), wrong: &mut Found) {
        let parties = claimant(state, by).zip(state.jobs.get(&job.number));
        let first = by.and_then(|by| by.parse().ok());
        let may = parties.zip(first).is_some_and(|((claimant, victim), first)| {
            stand(state, claimant) == stand(state, victim)
                && claimant.spec.priority == victim.spec.priority
                && victim.spec.saves()
                && order::goes_before(state, first, job)
        });
        if !may {
            let text = format!("job {job} gives way to {by:?}, which does not go before it");
            wrong.push(found("L9", text));
        }
    }

    /// Across queues each keeps its guarantee: where the paths part, and on each level below that has one.
    fn across(
        &self,
        (state, job, spares): (&State, JobId, bool),
        (own, other): (&str, &str),
        (claimant, models): (&Job, &[Resource]),
        wrong: &mut Found,
    ) {
        let mut upwards: Vec<&str> = lineage(other).collect();
        upwards.reverse();
        upwards.retain(|path| !lineage(own).any(|above| above == *path));
        // A queue above that nobody has made is none.
        upwards.retain(|path| *path == other || state.queues.contains_key(*path));
        if upwards.is_empty() {
            let text = format!("job {job} of {other} is reclaimed by {own}, one above the other");
            wrong.push(found("L9", text));
        }
        let gone_milli = self.going_milli(state, job);
        let of_devices = gone_milli > 0 && claimant.spec.milli_asked() > 0;
        for (level, path) in upwards.into_iter().enumerate() {
            if !of_devices && self.exceeds_else(state, job, path) {
                continue;
            }
            // What is kept there for those who do not use it is no part of what the others there may have.
            let taken = self.takes(state, path, (&Resource::Any, &kept_milli));
            let guarantee = guaranteed_milli(state, path);
            let is_within = (level == 0 || guarantee > 0)
                && taken <= guarantee
                && !models.iter().any(|model| self.exceeds(state, (job, path), model));
            // Only a job that is guaranteed what it takes leaves others with less than is guaranteed to them, if the policy says no more.
            let spares = spares && !state.policy.leaves_short();
            let falls_below = spares && taken - gone_milli < guarantee;
            if is_within || falls_below {
                let (has, gives) = self.held_milli(own);
                let text = format!(
                    "queue {path} takes {taken} of its guarantee of {guarantee}, and job {job} with {gone_milli} is reclaimed by {} of {own}, which holds {has}−{gives}",
                    claimant.number
                );
                wrong.push(found("L9", text));
            }
        }
    }

    /// Whether a queue has more than is guaranteed to it of another resource, one that a job holds and that queues speak of.
    fn exceeds_else(&self, state: &State, job: JobId, path: &str) -> bool {
        let live = state.run(job).map(|run| run.live.as_slice()).unwrap_or_default();
        let counted = live.iter().filter_map(|id| self.holds.get(id)).flat_map(|hold| &hold.counted);
        let named = |resource: &Resource| {
            let says = |said: &Queue| {
                [&said.guarantee, &said.borrow, &said.lend].iter().any(|it| it.contains_key(resource))
            };
            *resource != Resource::Any && state.queues.values().any(says)
        };
        let held = |resource: &Resource| self.queues.get(path)?.get(resource).copied();
        let guarantee = |resource: &Resource| match state.queues.get(path)?.guarantee.get(resource)? {
            Amount::Finite(amount) => Some(*amount),
            Amount::Unlimited => Some(i64::MAX),
        };
        counted
            .filter(|(resource, amount)| *amount > 0 && named(resource))
            .any(|(resource, _)| held(resource) > Some(guarantee(resource).unwrap_or(0)))
    }

    /// The devices that a job was just told to give up, in thousandths.
    fn going_milli(&self, state: &State, job: JobId) -> i64 {
        let live = state.run(job).map(|run| run.live.as_slice()).unwrap_or_default();
        let goes = |id: &&AllocationId| {
            let held = state.allocations.get(*id);
            !self.leaving.contains(*id) && held.is_some_and(|held| held.state == AllocationState::Stopping)
        };
        live.iter().filter(goes).filter_map(|id| Some(self.holds.get(id)?.placement.milli())).sum()
    }

    /// The devices that a queue holds, and those of them that are being stopped, in thousandths.
    pub(super) fn held_milli(&self, path: &str) -> (i64, i64) {
        self.held_of(path, &Resource::Any)
    }

    /// Likewise of one resource.
    pub(super) fn held_of(&self, path: &str, resource: &Resource) -> (i64, i64) {
        let of = |books: &BTreeMap<String, BTreeMap<Resource, i64>>| {
            books.get(path).and_then(|held| held.get(resource)).copied().unwrap_or(0)
        };
        (of(&self.queues), of(&self.leaves))
    }

    /// Whether a job's queue stays within its guarantee with the job, by the smallest of its alternatives, since which one it gets is said
    /// only later; where a user's part is what counts, whether there is any guarantee.
    pub(super) fn is_entitled(&self, state: &State, claimant: &Job, grows: bool) -> bool {
        self.stays_within(state, (claimant, grows), guaranteed_milli)
            || !self.entitled_to(state, (claimant, grows), Some(&[&claimant.spec.queue])).is_empty()
            || self.is_entitled_to_hosts(state, claimant)
    }

    /// Whether a queue above a job's, that is not above the other path, stays within its guarantee with the job.
    fn is_entitled_above(&self, state: &State, (claimant, grows): (&Job, bool), other: &str) -> bool {
        let milli = least_asked(state, claimant, grows);
        let apart = |path: &&str| !lineage(other).any(|above| above == *path);
        let above: Vec<&str> = lineage(&claimant.spec.queue).skip(1).filter(apart).collect();
        let of_models = || !self.entitled_to(state, (claimant, grows), Some(&above)).is_empty();
        above.iter().any(|path| {
            let (guarantee, (held, leaving)) = (guaranteed_milli(state, path), self.held_milli(path));
            milli > 0 && guarantee > 0 && held - leaving + milli <= guarantee
        }) || of_models()
    }

    fn stays_within(
        &self,
        state: &State,
        (claimant, grows): (&Job, bool),
        guaranteed_milli: fn(&State, &str) -> i64,
    ) -> bool {
        let queue = &claimant.spec.queue;
        let milli = least_asked(state, claimant, grows);
        let guarantee = guaranteed_milli(state, queue);
        let (held, leaving) = self.held_milli(queue);
        milli > 0
            && guarantee > 0
            && (stand(state, claimant) != *queue || held - leaving + milli <= guarantee)
    }

    /// Every job that was told to make room does so for one that is promised it, and nobody waits for a task that does not end (L8).
    pub(super) fn planned(&mut self, state: &State, saw: Position, wrong: &mut Found) {
        for promise in state.promises.values().filter(|promise| state.waits_in_vain(promise)) {
            let text = format!("the promise to job {} waits for a task that does not end", promise.job);
            wrong.push(found("L8", text));
        }
        for (job, cause, live) in std::mem::take(&mut self.preempted) {
            let waits = |promise: &&Promise| promise.waits_for.iter().any(|id| live.contains(id));
            let for_others = cause == Cause::Moved;
            let for_someone =
                state.promises.values().filter(waits).any(|promise| !for_others || promise.job != job);
            if !for_someone && !live.is_empty() {
                wrong.push(found("L8", format!("job {job} was preempted for nobody")));
            }
            let goes_on = matches!(cause, Cause::Moved | Cause::Faster);
            let stops = state.run(job).is_some_and(|run| run.stopping.is_some());
            // A part of a gang goes on as a part of it.
            if goes_on && state.promises.get(&job).is_none_or(|promise| promise.grows == stops) {
                wrong.push(found("L8", format!("job {job} has to move, and has no place to go")));
            }
            let tasks = live.iter().filter(|id| !self.leaving.contains(*id)).count();
            let goes_on_with = state.promises.get(&job).map_or(tasks, |promise| promise.placements.len());
            if for_others && stops && goes_on_with < tasks {
                let text = format!("job {job} has to move, and goes on with {goes_on_with} of {tasks} tasks");
                wrong.push(found("L8", text));
            }
            if cause == Cause::Faster && !is_faster(state, job) {
                wrong.push(found("L8", format!("job {job} has to move, and goes on no faster")));
            }
        }
        self.nobody_starves(state, saw, wrong);
        self.floor = self.floor.max(self.recent.last().copied().unwrap_or_default());
        self.recent.clear();
    }
}

/// The least that a job asks for, in thousandths of devices. By how much a gang grows is not said: by a part of a device at least. A
/// task that wants its node for itself counts with all of the largest that would do.
pub(super) fn least_asked(state: &State, claimant: &Job, grows: bool) -> i64 {
    let asked = claimant.spec.milli_asked();
    match (grows, claimant.spec.exclusive) {
        (true, _) => asked.min(1),
        (false, false) => claimant.spec.least_milli().max(asked.min(1)),
        (false, true) => least_alone(state, claimant).max(claimant.spec.least_milli()),
    }
}

/// Likewise of a job that wants its nodes for itself. Where it may have more tasks than it needs, others may give way for the first of
/// these as well: then it has a place, which may be on the smallest nodes that would do.
fn least_alone(state: &State, claimant: &Job) -> i64 {
    let gang = &claimant.spec.gang;
    let nodes = |role: &Role| {
        let each = role.ask.alternatives.iter().map(|way| nodes_for(state, way));
        each.reduce(|one, other| (one.0.min(other.0), one.1.min(other.1))).unwrap_or_default()
    };
    let required = gang.required_roles();
    let all = |of: fn((i64, i64)) -> i64| -> i64 {
        let of_role = |role: &&Role| of(nodes(role)).saturating_mul(i64::from(role.minimum));
        required.iter().map(of_role).sum()
    };
    let (smallest, largest) = (all(|nodes| nodes.0), all(|nodes| nodes.1));
    let one_more = gang.roles().into_iter().map(|role| nodes(role).1).min();
    match one_more.filter(|_| gang.is_elastic()) {
        Some(one_more) => largest.min(smallest.saturating_add(one_more)),
        None => largest,
    }
}

/// The devices of the smallest and of the largest node that has what an alternative asks for, in thousandths.
fn nodes_for(state: &State, way: &Alternative) -> (i64, i64) {
    let has_room = |node: &Node| {
        node.state != NodeState::Gone
            && way.cpu_milli <= Some(node.spec.cpu_milli)
            && way.memory_bytes <= Some(node.spec.memory_bytes)
    };
    let roomy = state.nodes.iter().filter(|(_, node)| has_room(node));
    let mut nodes: BTreeMap<NodeId, (i64, i64)> = roomy.map(|(id, _)| (*id, (0, 0))).collect();
    for device in state.devices.values() {
        let will_do = way.devices.as_ref().is_some_and(|ask| !given::is_other(&ask.class, &device.spec));
        let Some((all, good)) = nodes.get_mut(&device.node) else { continue };
        (*all, *good) = (*all + 1000, *good + i64::from(will_do));
    }
    let count = way.devices.as_ref().map_or(0, |ask| i64::from(ask.count));
    let enough = nodes.into_values().filter(|(_, good)| *good >= count).map(|(all, _)| all);
    let span = enough.fold(None, |span, all| {
        let (least, most) = span.unwrap_or((all, all));
        Some((all.min(least), all.max(most)))
    });
    span.unwrap_or_default()
}

/// The job to which another gives way.
pub(super) fn claimant<'a>(state: &'a State, by: Option<&str>) -> Option<&'a Job> {
    state.jobs.get(&by?.parse::<JobId>().ok()?.number)
}

/// Whether that job runs already, and is to have more.
pub(super) fn grows(state: &State, by: Option<&str>) -> bool {
    by.and_then(|by| state.run(by.parse().ok()?)).is_some_and(|run| !run.live.is_empty())
}

/// Whether a job may take the devices of another one in its queue: it has a higher priority or, where its queue says that this
/// suffices, the same priority and is older.
fn goes_before(state: &State, claimant: &Job, victim: &Job) -> bool {
    let own = state.queues.get(&claimant.spec.queue).and_then(|queue| queue.within_queue);
    let or_older = own.unwrap_or(state.policy.within_queue) == WithinQueue::LowerOrNewer;
    let (one, other) = (claimant.spec.priority, victim.spec.priority);
    one > other || or_older && one == other && claimant.number < victim.number
}

/// Whether a running job is of the claimant's own line.
fn is_of_own(state: &State, id: JobId, claimant: &Job) -> bool {
    state.jobs.get(&id.number).is_some_and(|job| stand(state, job) == stand(state, claimant))
}
