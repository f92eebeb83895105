//! The checker in its incremental form: it follows the log with books of its own, and after each event looks at what the event
//! touched, so that a check costs what has changed. Like [`super::check`] it shares nothing with the planner; it keeps nothing
//! that the fold keeps, either: the state is what it compares its books with.

mod affinity;
mod domains;
mod given;
mod giving;
mod islands;
mod leaves;
mod ledger;
mod lent;
mod models;
mod moving;
mod order;
mod spread;
mod starving;

use std::collections::{BTreeMap, BTreeSet};

use self::ledger::Account;
use super::reckon::{
    always_guaranteed_milli, counts, guaranteed_milli, keeps_from, kept_milli, limits_at, mib, stand,
};
use super::reckon::{is_strange, lies_at_home};
use super::{Violation, gang};
use crate::amount::{Amount, Resource};
use crate::event::{Event, Stamped};
use crate::id::{AllocationId, DeviceId, JobId, NodeId, Position, Term};
use crate::model::allocation::{AllocationState, Placement};
use crate::model::device::{Health, WHOLE_MILLI};
use crate::model::job::{Cause, JobState};
use crate::model::node::NodeState;
use crate::model::promise::Promise;
use crate::model::queue::lineage;
use crate::state::State;
use crate::time::Time;

/// Books that follow the log beside the state.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    at: Time,
    position: Position,
    term: Term,
    holds: BTreeMap<AllocationId, Hold>,
    /// What is drawn of each device: milli, MiB, holders.
    devices: BTreeMap<DeviceId, (i64, i64, u32)>,
    /// What is drawn of each host: milli-cores, bytes, tasks.
    hosts: BTreeMap<NodeId, (i64, i64, u32)>,
    /// How many tasks of a job hold something.
    tasks: BTreeMap<JobId, u32>,
    accounts: Vec<Account>,
    account_of: BTreeMap<String, BTreeMap<String, usize>>,
    closed_milli_ms: i128,
    /// What each queue and those below it hold of each resource.
    queues: BTreeMap<String, BTreeMap<Resource, i64>>,
    promises: BTreeMap<JobId, Vec<Placement>>,
    promised: BTreeMap<DeviceId, i64>,
    /// Ids up to this one were given before the last cycle.
    floor: AllocationId,
    /// Ids given since.
    recent: BTreeSet<AllocationId>,
    /// What is on its way out, and what of it each queue has.
    leaving: BTreeSet<AllocationId>,
    leaves: BTreeMap<String, BTreeMap<Resource, i64>>,
    /// What is on its way out of jobs that move: of it only the models are among what leaves.
    moving_out: BTreeSet<AllocationId>,
    /// The jobs whose devices were taken since something last came from outside.
    taken: BTreeSet<JobId>,
    /// When what queues missed was last news, and what it was.
    stepped: (Time, BTreeMap<String, i128>),
    /// What was last guaranteed to queues that are behind their pledges, in thousandths of devices.
    floors: BTreeMap<String, i64>,
    /// The job that goes before all others, because it has not run for a long time.
    relieved: starving::Relieved,
    /// From which positions on something had become free, and from which on not.
    freed: Vec<(Position, bool)>,
    /// The jobs that give way and have not ended yet.
    giving_way: BTreeSet<JobId>,
    moving: moving::Moving,
    /// Whether any job selects others by labels.
    tells: bool,
    /// The jobs that were told to make room since the last cycle, and what they hold.
    preempted: Vec<(JobId, Cause, Vec<AllocationId>)>,
}

/// What a task holds.
#[derive(Clone, Debug)]
struct Hold {
    job: JobId,
    queue: String,
    /// Its queue, or its user's seat there.
    stand: String,
    account: usize,
    since: Time,
    placement: Placement,
    counted: Vec<(Resource, i64)>,
}

/// What is found wrong on the way.
type Found = Vec<Violation>;

fn found(law: &'static str, text: String) -> Violation {
    Violation { law, text }
}

impl Watch {
    /// Opens books on a state: what it holds is taken as it is, what comes is checked.
    pub fn new(state: &State) -> Self {
        let mut watch = Self {
            at: state.now,
            position: state.position,
            term: state.term,
            closed_milli_ms: state.ledger.closed_milli_ms(),
            floor: AllocationId(state.next_allocation.0.saturating_sub(1)),
            stepped: giving::last_step(state),
            floors: giving::floors(state),
            relieved: starving::Relieved::of(state),
            moving: moving::Moving::of(state),
            ..Self::default()
        };
        watch.tells = watch.tells_others(state);
        for (queue, user, account) in state.ledger.accounts() {
            let book = watch.account(queue, user);
            watch.accounts[book] =
                Account { base_milli_ms: account.charged_at(state.now), rate_milli: account.rate_milli };
            watch.accounts[book].base_milli_ms -= i128::from(account.rate_milli) * i128::from(state.now.0);
        }
        for held in state.allocations.values() {
            watch.hold(state, held.job, &held.placement, held.since);
        }
        let stops = state.allocations.iter().filter(|(_, held)| held.state == AllocationState::Stopping);
        let stops: Vec<AllocationId> = stops.map(|(id, _)| *id).collect();
        watch.leave(&stops);
        let stopped = state.allocations.values().map(|held| held.job);
        let takes = |job: &JobId| {
            let stopping = state.run(*job).and_then(|run| run.stopping.as_ref());
            stopping.is_some_and(|stopping| stopping.cause.is_planned())
        };
        watch.giving_way = stopped.filter(takes).collect();
        for promise in state.promises.values() {
            watch.note_promise(promise.job, promise.placements.clone());
        }
        watch
    }

    /// Follows one event that the state has just folded, and returns what is wrong now that was right before.
    pub fn follow(&mut self, state: &State, stamped: &Stamped) -> Vec<Violation> {
        let mut wrong = self.clock(state, stamped);
        self.affinity(state, &stamped.event, &mut wrong);
        domains::look(state, &stamped.event, &mut wrong);
        islands::look(state, &stamped.event, &mut wrong);
        self.spread(state, &stamped.event, &mut wrong);
        let is_over = self.pass_relief(state, state.now);
        if self.is_from_outside(state, &stamped.event) || is_over {
            self.taken.clear();
        }
        match &stamped.event {
            Event::TermBegan { term, .. } => {
                if *term <= self.term {
                    wrong.push(found("L5", format!("term {term} follows term {}", self.term)));
                }
                self.term = *term;
            }
            Event::Placed { job, placements, .. } => self.placed(state, *job, placements, &mut wrong),
            Event::Adopted { job, placements, .. } => {
                self.begin(state, *job, (placements, false), &mut wrong)
            }
            Event::Promised(promise) => {
                self.promised(state, (promise.job, promise.grows), &promise.placements, &mut wrong);
                if !promise.waits_for.iter().any(|id| state.allocations.contains_key(id)) {
                    wrong.push(found("L7", format!("the promise to job {} waits for nothing", promise.job)));
                }
            }
            Event::Grown { job, placements } => self.grown(state, *job, placements, &mut wrong),
            Event::Shrinking { job, allocations, cause, by } => {
                self.again(state, (*job, *cause, by.as_deref()), &mut wrong);
                self.taking_back(state, *job, (*cause, by.as_deref()), &mut wrong);
                if cause.is_planned() {
                    self.preempted.push((*job, *cause, allocations.clone()));
                }
                self.leave(allocations);
            }
            Event::Stopping { job, cause, by, .. } => {
                self.again(state, (*job, *cause, by.as_deref()), &mut wrong);
                self.taking_back(state, *job, (*cause, by.as_deref()), &mut wrong);
                self.stopping(state, *job, *cause, &mut wrong);
            }
            Event::TaskEnded { allocation, ended_at, .. } => {
                self.task_ended(state, (*allocation, *ended_at), &mut wrong);
            }
            Event::QueuesSet { .. } => self.seat_anew(state),
            Event::Relieved { job } => self.relieve(state, *job, &mut wrong),
            Event::Planned { saw, .. } => self.planned(state, *saw, &mut wrong),
            _ => {}
        }
        self.follow_relief(state, &stamped.event, &mut wrong);
        self.moving.follow(state, &stamped.event);
        self.note_freed(state);
        if let Some(job) = job_of(state, &stamped.event) {
            self.forget_promises(state, job, &mut wrong);
            self.run_agrees(state, job, &mut wrong);
        }
        wrong
    }

    /// Positions follow each other; time never falls (L3).
    fn clock(&mut self, state: &State, stamped: &Stamped) -> Found {
        let mut wrong = Found::new();
        if state.position.0 != self.position.0 + 1 || state.now < self.at || stamped.at > state.now {
            let text = format!(
                "position {} at {} follows {} at {}",
                state.position, state.now.0, self.position, self.at.0
            );
            wrong.push(found("L3", text));
        }
        (self.position, self.at) = (state.position, state.now);
        wrong
    }

    /// A gang starts whole, on what is there, whole, free and allowed.
    fn placed(&mut self, state: &State, job: JobId, placements: &[Placement], wrong: &mut Found) {
        let taken_up = self.drop_promise(job);
        if taken_up.as_ref().is_some_and(|promised| promised != placements) {
            wrong.push(found("L5", format!("job {job} was given other things than were promised")));
        }
        let Some(spec) = state.jobs.get(&job.number).map(|job| job.spec.clone()) else {
            wrong.push(found("L6", format!("job {job} was placed and is not there")));
            return;
        };
        let ranks: BTreeSet<u32> = placements.iter().map(|placement| placement.rank).collect();
        let count = placements.len();
        if !gang::may_run(&spec.gang, &ranks) || ranks.len() != count {
            wrong.push(found(
                "L8",
                format!("job {job}: {count} tasks were placed, {}", gang::words(&spec.gang)),
            ));
        }
        // What was promised was found to be allowed then.
        if taken_up.is_none() {
            self.budgets(state, (job, placements), wrong);
        }
        at_home(state, (job, placements), wrong);
        self.begin(state, job, (placements, taken_up.is_some()), wrong);
        if taken_up.is_none() {
            self.lent(state, (job, placements), wrong);
        }
        self.limits(state, job, wrong);
        if state.jobs.get(&job.number).is_some_and(|job| {
            matches!(&job.runs, crate::state::Runs::Array(array) if array.array.at_most.is_some_and(|most| job.active_members() > most))
        }) {
            wrong.push(found("L12", format!("array {} runs more members than it may", job.number)));
        }
    }

    /// A gang gets no more tasks than it may have.
    fn grown(&mut self, state: &State, job: JobId, placements: &[Placement], wrong: &mut Found) {
        let taken_up = self.drop_promise(job);
        if taken_up.as_ref().is_some_and(|promised| promised != placements) {
            wrong.push(found("L5", format!("job {job} was given other things than were promised")));
        }
        let known = state.jobs.get(&job.number).zip(state.run(job));
        let Some((spec, run)) = known.map(|(job, run)| (job.spec.clone(), run)) else {
            wrong.push(found("L6", format!("job {job} grew and is not there")));
            return;
        };
        let ranks: BTreeSet<u32> = run.placements.iter().map(|placement| placement.rank).collect();
        if ranks.len() != run.placements.len()
            || ranks.last().is_none_or(|last| *last >= gang::most(&spec.gang))
        {
            wrong.push(found("L8", format!("job {job} grew beyond what it may have")));
        }
        at_home(state, (job, placements), wrong);
        self.begin(state, job, (placements, taken_up.is_some()), wrong);
        if taken_up.is_none() {
            self.lent(state, (job, placements), wrong);
        }
        self.limits(state, job, wrong);
    }

    /// Tasks get what is there, whole, free and allowed.
    fn begin(
        &mut self,
        state: &State,
        job: JobId,
        (placements, promised): (&[Placement], bool),
        wrong: &mut Found,
    ) {
        for placement in placements {
            // What was promised got its id then.
            if !promised {
                self.fresh(placement.allocation, wrong);
            }
            self.charge(state, job, placement);
            self.hold(state, job, placement, state.now);
            self.room(state, placement, wrong);
            given::as_asked(state, (job, placement), promised, wrong);
            if let Some(id) = keeps_from(state, job, placement) {
                wrong.push(found("calendar", format!("job {job} was given what reservation {id} keeps")));
            }
            let most = state.nodes.get(&placement.node).and_then(|node| node.spec.most_tasks);
            let tasks = self.hosts.get(&placement.node).map_or(0, |host| host.2);
            // What was promised was counted then.
            if !promised && most.is_some_and(|most| tasks > most) {
                let text = format!("node {} has {tasks} tasks, more than it takes", placement.node);
                wrong.push(found("L7", text));
            }
            if state.allocations.get(&placement.allocation).is_none_or(|held| {
                !matches!(held.state, AllocationState::Starting | AllocationState::Held)
                    || held.job != job
                    || held.placement != *placement
            }) {
                wrong
                    .push(found("L7", format!("allocation {} is not what was placed", placement.allocation)));
            }
        }
    }

    /// Begins to charge a task to its account.
    fn charge(&mut self, state: &State, job: JobId, placement: &Placement) {
        let Some(owner) = state.jobs.get(&job.number) else { return };
        let account = self.account(&owner.spec.queue, &owner.owner.name);
        self.accounts[account].change(placement.milli(), state.now);
    }

    /// Notes what a task holds.
    fn hold(&mut self, state: &State, job: JobId, placement: &Placement, since: Time) {
        let Some(owner) = state.jobs.get(&job.number) else { return };
        let (queue, account) = (owner.spec.queue.clone(), self.account(&owner.spec.queue, &owner.owner.name));
        for (device, draw) in &placement.devices {
            let drawn = self.devices.entry(*device).or_default();
            *drawn = (drawn.0 + i64::from(draw.milli), drawn.1 + mib(draw), drawn.2 + 1);
        }
        let host = self.hosts.entry(placement.node).or_default();
        *host = (host.0 + placement.cpu_milli, host.1 + placement.memory_bytes, host.2 + 1);
        *self.tasks.entry(job).or_default() += 1;
        let counted = counts(state, placement);
        let stand = stand(state, owner);
        self.charge_queues(&stand, &counted, 1);
        let hold = Hold { job, queue, stand, account, since, placement: placement.clone(), counted };
        self.holds.insert(placement.allocation, hold);
    }

    fn charge_queues(&mut self, queue: &str, counted: &[(Resource, i64)], sign: i64) {
        count(&mut self.queues, queue, counted, sign);
    }

    /// What was given is there, works, takes tasks, and is not drawn beyond what it is (L7).
    fn room(&self, state: &State, placement: &Placement, wrong: &mut Found) {
        let node = state.nodes.get(&placement.node);
        let host = self.hosts.get(&placement.node).copied().unwrap_or_default();
        if node.is_none_or(|node| {
            node.state != NodeState::Ready || host.0 > node.spec.cpu_milli || host.1 > node.spec.memory_bytes
        }) {
            let text = format!(
                "node {} takes no task, or has less than {} milli-cores and {} bytes",
                placement.node, host.0, host.1
            );
            wrong.push(found("L7", text));
        }
        for (id, draw) in &placement.devices {
            let drawn = self.devices.get(id).copied().unwrap_or_default();
            let good = state.devices.get(id).is_some_and(|device| {
                device.node == placement.node
                    && device.health == Health::Ok
                    && device.occupant.is_none()
                    && drawn.0 <= i64::from(WHOLE_MILLI)
                    && (drawn.1 <= i64::try_from(device.spec.memory_mib).unwrap_or(i64::MAX)
                        || drawn.2 == 1 && drawn.1 == mib(draw))
            });
            if !good {
                let text = format!(
                    "device {id} was given and is elsewhere, unusable, or drawn to {} milli and {} MiB",
                    drawn.0, drawn.1
                );
                wrong.push(found("L7", text));
            }
        }
    }

    /// A queue, and those above it, hold no more than they may when something was just given to it.
    fn limits(&self, state: &State, job: JobId, wrong: &mut Found) {
        let Some(stand) = state.jobs.get(&job.number).map(|job| stand(state, job)) else { return };
        for path in lineage(&stand) {
            let Some((known, held)) = limits_at(state, path).zip(self.queues.get(path)) else { continue };
            for (resource, limit) in known {
                let held = held.get(resource).copied().unwrap_or(0);
                if let Amount::Finite(most) = limit
                    && held > *most
                {
                    let text =
                        format!("job {job} was placed: {path} holds {held} of {resource}, limit {most}");
                    wrong.push(found("limit", text));
                }
            }
        }
    }

    fn promised(
        &mut self,
        state: &State,
        (job, grows): (JobId, bool),
        placements: &[Placement],
        wrong: &mut Found,
    ) {
        let gang = state.jobs.get(&job.number).map(|job| &job.spec.gang);
        let ranks: BTreeSet<u32> = placements.iter().map(|placement| placement.rank).collect();
        let count = placements.len();
        if gang.is_none_or(|gang| !grows && !gang::may_run(gang, &ranks)) || ranks.len() != count {
            wrong.push(found("L8", format!("{count} tasks of job {job} are promised something")));
        }
        for placement in placements {
            self.fresh(placement.allocation, wrong);
        }
        at_home(state, (job, placements), wrong);
        self.note_promise(job, placements.to_vec());
        for (device, _) in placements.iter().flat_map(|placement| &placement.devices) {
            let sum = self.promised.get(device).copied().unwrap_or(0);
            if sum > i64::from(WHOLE_MILLI) {
                wrong.push(found("L7", format!("device {device}: {sum} milli are promised")));
            }
        }
    }

    fn note_promise(&mut self, job: JobId, placements: Vec<Placement>) {
        for (device, draw) in placements.iter().flat_map(|placement| &placement.devices) {
            *self.promised.entry(*device).or_default() += i64::from(draw.milli);
        }
        self.promises.insert(job, placements);
    }

    /// Ends a promise, kept or not; returns what it was.
    fn drop_promise(&mut self, job: JobId) -> Option<Vec<Placement>> {
        let placements = self.promises.remove(&job)?;
        for (device, draw) in placements.iter().flat_map(|placement| &placement.devices) {
            let left = self.promised.entry(*device).or_default();
            *left -= i64::from(draw.milli);
            if *left == 0 {
                self.promised.remove(device);
            }
        }
        Some(placements)
    }

    fn stopping(&mut self, state: &State, job: JobId, cause: Cause, wrong: &mut Found) {
        let live = state.run(job).map(|run| run.live.clone()).unwrap_or_default();
        let stops = |id: &AllocationId| {
            state.allocations.get(id).is_some_and(|held| held.state == AllocationState::Stopping)
        };
        if !live.iter().all(stops) {
            wrong.push(found("L8", format!("job {job} is being stopped, but not all of its tasks are")));
        }
        if cause.is_planned() {
            self.giving_way.insert(job);
            self.preempted.push((job, cause, live.clone()));
        }
        // A job that moves goes on elsewhere: its queue loses nothing by it, but maybe what it has of a model.
        match cause {
            Cause::Moved | Cause::Faster => self.move_out(&live),
            _ => self.leave(&live),
        }
    }

    /// What a task held is free, and was charged to the millisecond until it ended (L11).
    fn task_ended(&mut self, state: &State, (id, ended_at): (AllocationId, Option<Time>), wrong: &mut Found) {
        self.moved_out(id);
        let Some(hold) = self.holds.remove(&id) else {
            wrong.push(found("L7", format!("allocation {id} ended and was never given")));
            return;
        };
        let milli = hold.placement.milli();
        let until = ended_at.map_or(state.now, |ended| ended.min(state.now)).max(hold.since);
        self.accounts[hold.account].change(-milli, until);
        self.closed_milli_ms += i128::from(milli) * i128::from(until.since(hold.since).0);
        for (device, draw) in &hold.placement.devices {
            let drawn = self.devices.entry(*device).or_default();
            *drawn = (drawn.0 - i64::from(draw.milli), drawn.1 - mib(draw), drawn.2 - 1);
        }
        let host = self.hosts.entry(hold.placement.node).or_default();
        *host = (host.0 - hold.placement.cpu_milli, host.1 - hold.placement.memory_bytes, host.2 - 1);
        self.charge_queues(&hold.stand, &hold.counted, -1);
        if self.leaving.remove(&id) {
            count(&mut self.leaves, &hold.stand, &hold.counted, -1);
        }
        if let Some(left) = self.tasks.get_mut(&hold.job) {
            *left -= 1;
            if *left == 0 {
                self.tasks.remove(&hold.job);
            }
        }
        if state.allocations.contains_key(&id) {
            wrong.push(found("L7", format!("allocation {id} ended and is still held")));
        }
        self.ledger_agrees(state, &hold, wrong);
    }

    /// Drops the promises that an event has ended beside those it names.
    fn forget_promises(&mut self, state: &State, job: JobId, wrong: &mut Found) {
        let first = JobId { number: job.number, member: None };
        let gone = |(id, _): (&JobId, _)| (!state.promises.contains_key(id)).then_some(*id);
        let gone: Vec<JobId> = self
            .promises
            .range(first..)
            .take_while(|(id, _)| id.number == job.number)
            .filter_map(gone)
            .collect();
        for job in gone {
            self.drop_promise(job);
            self.moves_no_more(state, job);
        }
        if state.promises.contains_key(&job) && !self.promises.contains_key(&job) {
            wrong.push(found("L7", format!("something is promised to job {job}, and nobody said so")));
        }
    }

    /// The run that an event is about has what the books say, and a state that goes with it.
    fn run_agrees(&self, state: &State, job: JobId, wrong: &mut Found) {
        let held = self.tasks.get(&job).copied().unwrap_or(0);
        let Some(run) = state.run(job) else {
            if held > 0 {
                wrong.push(found("L7", format!("job {job} is over and holds {held} allocations")));
            }
            return;
        };
        let waits = matches!(run.state, JobState::Pending | JobState::Held);
        let live = run.live.len() as u32;
        // Between the end of its last task and the end of the attempt a run has neither.
        let between = !waits && live == 0 && run.over.len() == run.placements.len();
        if live != held || run.state.is_ended() || waits != (live == 0) && !between {
            let text = format!("job {job} is {} with {live} allocations, {held} are held", run.state.name());
            wrong.push(found("L6", text));
        }
        if run.promised != state.promises.contains_key(&job) {
            wrong.push(found("L7", format!("job {job} and what is promised to it do not agree")));
        }
    }
}

/// Counts what is held in a queue for it and those above it.
fn count(
    queues: &mut BTreeMap<String, BTreeMap<Resource, i64>>,
    queue: &str,
    counted: &[(Resource, i64)],
    sign: i64,
) {
    for path in lineage(queue) {
        if !queues.contains_key(path) {
            queues.insert(path.to_owned(), BTreeMap::new());
        }
        let Some(held) = queues.get_mut(path) else { continue };
        for (resource, amount) in counted {
            match held.get_mut(resource) {
                Some(sum) => *sum += sign * amount,
                None => drop(held.insert(resource.clone(), sign * amount)),
            }
        }
    }
}

/// Nothing new lies on nodes that are kept for another queue, nor outside those that are kept for its own.
fn at_home(state: &State, (job, placements): (JobId, &[Placement]), wrong: &mut Found) {
    for placement in placements.iter().filter(|placement| !lies_at_home(state, job, placement)) {
        let text = format!("job {job} was given what is not for its queue on node {}", placement.node);
        wrong.push(found("nodes", text));
    }
}

/// The job that an event is about.
fn job_of(state: &State, event: &Event) -> Option<JobId> {
    match event {
        Event::Placed { job, .. }
        | Event::Adopted { job, .. }
        | Event::Grown { job, .. }
        | Event::Shrinking { job, .. }
        | Event::Stopping { job, .. }
        | Event::AttemptEnded { job, .. }
        | Event::Dropped { job, .. }
        | Event::Held { job, .. }
        | Event::Released { job, .. }
        | Event::Checkpointed { job, .. }
        | Event::Revoked { job } => Some(*job),
        Event::Promised(promise) => Some(promise.job),
        Event::TaskStarted { allocation, .. } => state.allocations.get(allocation).map(|held| held.job),
        _ => None,
    }
}
