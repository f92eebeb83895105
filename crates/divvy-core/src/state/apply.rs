//! The fold: one function per kind of event. Nothing is decided here.

use std::sync::Arc;

use super::digest::{Entity, Remembered, allocation_hash, fingerprint, job_hash, job_hashes, run_hash};
use super::{Allocation, ArrayRuns, Device, GaveUp, Job, Run, Runs, State, Stopping};
use crate::amount::{Holdings, Resource};
use crate::engine::TaskStart;
use crate::event::{Event, Stamped};
use crate::id::{AllocationId, ClassId, DeviceId, JobId, Position, Term};
use crate::ledger;
use crate::model::allocation::{AllocationState, Placement};
use crate::model::device::{DeviceSpec, Health, Occupant};
use crate::model::job::{JobState, Submission};
use crate::model::members::Members;
use crate::model::newer::Newer;
use crate::model::promise::Promise;
use crate::model::queue::Queue;
use crate::reason::Reason;
use crate::time::{Span, Time};

/// An event that does not fit the state: the log was damaged, or a law is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// It speaks of something that is not there.
    #[error("event {kind} at {position} speaks of {what}, which is not there")]
    Unknown {
        /// The event's kind.
        kind: &'static str,
        /// Its position.
        position: Position,
        /// What is missing.
        what: String,
    },
    /// It makes something that is there already, or that cannot be.
    #[error("event {kind} at {position} cannot be: {what}")]
    Impossible {
        /// The event's kind.
        kind: &'static str,
        /// Its position.
        position: Position,
        /// What is wrong.
        what: String,
    },
    /// The ledger would leave its range.
    #[error(transparent)]
    Ledger(#[from] ledger::OutOfRange),
}

/// What is wrong with one event, before its kind and position are added.
pub(super) enum Wrong {
    Unknown(String),
    Impossible(String),
    Ledger(ledger::OutOfRange),
}

impl From<ledger::OutOfRange> for Wrong {
    fn from(error: ledger::OutOfRange) -> Self {
        Wrong::Ledger(error)
    }
}

pub(super) type Applied = Result<(), Wrong>;

impl State {
    /// Lets time pass in which nothing happens: budgets are used, and renew. This is for questions that are asked of a copy between two events; the fold itself
    /// learns the time from the next of them.
    pub fn pass(&mut self, now: Time) {
        let now = now.max(self.now);
        self.renew_budgets(now);
        self.keep_pledges(now);
        self.end_relief(now);
        self.now = now;
    }

    /// Folds one event. After an error the state is not to be used any more.
    pub fn apply(&mut self, stamped: &Stamped) -> Result<(), Misfit> {
        let position = Position(self.position.0 + 1);
        let kind = stamped.event.kind();
        let at = stamped.at.max(self.now);
        let renewed = self.renew_budgets(at);
        let pledged = self.keep_pledges(at);
        let relieved = self.end_relief(at);
        let from_outside = stamped.event.comes_from_outside(|job| self.gives_way(job));
        self.news += u64::from(from_outside) + u64::from(relieved) + u64::from(pledged);
        let given_up = self.gives_up(&stamped.event);
        self.fold(&stamped.event, at).map_err(|wrong| match wrong {
            Wrong::Unknown(what) => Misfit::Unknown { kind, position, what },
            Wrong::Impossible(what) => Misfit::Impossible { kind, position, what },
            Wrong::Ledger(error) => Misfit::Ledger(error),
        })?;
        (self.position, self.now) = (position, at);
        match stamped.event {
            Event::Tick => self.ticked_at = at,
            // A task's start puts no job behind another: what the last cycle saw still holds.
            Event::TaskStarted { .. } if self.cycled_at.0 + 1 == position.0 => self.cycled_at = position,
            _ => {}
        }
        self.follow_relief(&stamped.event);
        // Time alone can matter: room kept for jobs may be foreseen for other moments, jobs that gave way before or had not run for long
        // may no longer be safe, and a job may have waited long enough for others to be moved or to go before all others.
        let by_time = self.policy.makes_safe() || self.policy.moves_any();
        let others = by_time || !self.pledges.is_empty() || self.may_relieve(at);
        let kept_anew = stamped.event == Event::Tick && (self.keeps_room() || others);
        let frees =
            stamped.event.frees() || self.draws(&stamped.event) || from_outside && self.may_take_again();
        self.note_news(&stamped.event, frees || kept_anew || renewed || relieved || pledged || given_up);
        Ok(())
    }

    fn fold(&mut self, event: &Event, at: Time) -> Applied {
        match event {
            Event::TermBegan { term, boot_id, .. } => self.begin_term(*term, boot_id, at),
            Event::NodeSeen { node, spec, state } => self.see_node(*node, spec, *state),
            Event::OthersHold { node, hold, .. } => return self.leave_to_others(*node, hold),
            Event::DeviceSeen { device, node, spec } => self.see_device(*device, *node, spec),
            Event::DeviceChanged { device, health, occupant } => {
                return self.change_device(*device, health, occupant);
            }
            Event::QueuesSet { queues, .. } => {
                return self.change_queues(queues, at);
            }
            Event::PolicySet { policy, .. } => {
                self.policy = (**policy).clone();
                self.remember_settings();
                self.reprice(at)?;
                self.review_past(at);
            }
            Event::DrainSet { on, .. } => self.draining = *on,
            Event::ReservationMade(made) => return self.reserve(made),
            Event::ReservationBegan { id } => return self.begin_reservation(*id),
            Event::ReservationEnded { id, .. } => return self.end_reservation(*id).map(drop),
            Event::Submitted(submission) => return self.submit(submission, at),
            Event::Held { job, by } => return self.hold(*job, Some(by)),
            Event::Released { job, .. } => return self.release(*job, at),
            Event::Checkpointed { job, .. } => {
                return self.change_run(*job, |run| run.checkpointed_at = Some(at));
            }
            Event::Prioritised { job, priority, .. } => return self.prioritise(job.number, *priority),
            Event::Estimated { job, estimate } => {
                return self.change_job(job.number, |job| job.estimate = Some(Arc::new(estimate.clone())));
            }
            Event::Promised(promise) => return self.promise(promise),
            Event::Revoked { job } => return self.revoke(*job),
            Event::Relieved { job } => self.relief.open = Some((*job, at)),
            Event::Placed { job, placements, port } => return self.place(*job, placements, *port, at),
            Event::Adopted { job, placements, since } => {
                return self.adopt(*job, placements, *since, at);
            }
            Event::Grown { job, placements } => return self.grow(*job, placements, at),
            Event::Shrinking { job, allocations, cause, by } => {
                let gives_up = GaveUp { tasks: allocations.len() as u32, cause: *cause, by: by.clone(), at };
                return self.shrink(*job, allocations, gives_up);
            }
            Event::TaskStarted { allocation, start } => return self.start_task(*allocation, start, at),
            Event::Stopping { job, cause, by, order, requeue } => {
                let stopping =
                    Stopping { cause: *cause, by: by.clone(), order: order.clone(), requeue: *requeue };
                return self.stop(*job, stopping, at);
            }
            Event::Overdue { allocation } => return self.miss(*allocation, at),
            Event::TaskEnded { allocation, end, ended_at } => {
                return self.end_task(*allocation, end, (*ended_at, at));
            }
            Event::AttemptEnded { job, end, state, ended_at, .. } => {
                return self.end_attempt(*job, end, *state, (*ended_at, at));
            }
            Event::Dropped { job, state, .. } => return self.drop_waiting(*job, *state),
            Event::Judged { classes } => {
                classes.iter().for_each(|(class, reason)| self.judge(*class, reason.as_ref()))
            }
            Event::Tick => self.pass_tick(at),
            Event::Due { queues } => self.note_due(queues),
            Event::Planned { saw, .. } => self.end_cycle(*saw),
            Event::Recalled { of, known } => self.recall(*of, known, at),
        }
        Ok(())
    }

    fn begin_term(&mut self, term: Term, boot_id: &str, at: Time) {
        (self.term, self.boot_id, self.draining) = (term, boot_id.to_owned(), false);
        self.next_allocation = self.next_allocation.max(AllocationId::first_of(term));
        self.tell_again(at);
    }

    fn see_device(&mut self, id: DeviceId, node: crate::id::NodeId, spec: &Arc<DeviceSpec>) {
        let old = self.devices.remove(&id);
        if let Some(old) = &old {
            self.minus(fingerprint(&Entity::Device(id.0, old)));
            self.uuids.remove(&old.spec.uuid);
        }
        self.uuids.insert(spec.uuid.clone(), id);
        let (health, occupant) = old.map_or((Health::Ok, None), |old| (old.health, old.occupant));
        let device = Device { node, spec: Arc::clone(spec), health, occupant };
        self.plus(fingerprint(&Entity::Device(id.0, &device)));
        self.devices.insert(id, device);
    }

    fn change_device(&mut self, id: DeviceId, health: &Health, occupant: &Option<Occupant>) -> Applied {
        let mut device = self.devices.remove(&id).ok_or_else(|| Wrong::Unknown(format!("device {id}")))?;
        self.minus(fingerprint(&Entity::Device(id.0, &device)));
        (device.health, device.occupant) = (health.clone(), occupant.clone());
        self.plus(fingerprint(&Entity::Device(id.0, &device)));
        self.devices.insert(id, device);
        Ok(())
    }

    pub(super) fn set_queues(&mut self, queues: Vec<Queue>) {
        for queue in std::mem::take(&mut self.queues).into_values() {
            self.minus(fingerprint(&Entity::Queue(&queue)));
        }
        for queue in queues {
            self.plus(fingerprint(&Entity::Queue(&queue)));
            self.queues.insert(queue.path.clone(), queue);
        }
        self.remember_settings();
    }

    fn submit(&mut self, submission: &Submission, at: Time) -> Applied {
        let Submission { number, owner, spec, array, token, held } = submission;
        if self.jobs.contains_key(number) || *number < self.next_job {
            return Err(Wrong::Impossible(format!("job {number} is there already")));
        }
        let held = held.then(|| owner.name.clone());
        let runs = match array {
            None => Runs::Single(Run::fresh(held)),
            Some(array) => {
                let fresh = Members::of(array);
                Runs::Array(ArrayRuns {
                    array: array.clone(),
                    held,
                    fresh,
                    touched: Default::default(),
                    ended: Default::default(),
                    ran_at: None,
                })
            }
        };
        let mut spec = Arc::clone(spec);
        let stand = (self.seat_in(&spec.queue, &owner.name), self.kept_to(&spec.queue));
        if spec.seat != stand.0 || spec.kept_to != stand.1 {
            self.seats.extend(stand.0.said().map(|seat| seat.to_string()));
            let spec = Arc::make_mut(&mut spec);
            (spec.seat, spec.kept_to) = stand;
        }
        let class = self.classify(*number, &spec)?;
        let mut job = Job {
            number: *number,
            owner: Arc::clone(owner),
            spec,
            submitted_at: at,
            class,
            released_at: None,
            estimate: None,
            runs,
            hash: Remembered::default(),
        };
        job.hash = Remembered(Some(job_hash(&job)));
        self.plus(job_hashes(&job));
        self.jobs.insert(*number, job);
        self.next_job = number + 1;
        self.note_arrivals(submission);
        if let Some(token) = token {
            self.tokens.note(&owner.name, token, *number);
        }
        Ok(())
    }

    /// Changes a job with all its runs, and updates the digest.
    pub(super) fn change_job(&mut self, number: u64, change: impl FnOnce(&mut Job)) -> Applied {
        let job = self.jobs.get_mut(&number).ok_or_else(|| Wrong::Unknown(format!("job {number}")))?;
        let less = job_hashes(job);
        change(job);
        job.hash = Remembered(Some(job_hash(job)));
        job.forget_run_hashes();
        let more = job_hashes(job);
        self.minus(less);
        self.plus(more);
        Ok(())
    }

    /// Changes one run and updates the digest; an untouched member becomes touched. Returns what the change returns.
    pub(super) fn change_run<T>(
        &mut self,
        id: JobId,
        change: impl FnOnce(&mut Run) -> T,
    ) -> Result<T, Wrong> {
        let unknown = || Wrong::Unknown(format!("job {id}"));
        let job = self.jobs.get_mut(&id.number).ok_or_else(unknown)?;
        let (mut less, mut more) = (0u64, 0u64);
        let run = match (&mut job.runs, id.member) {
            (Runs::Single(run), None) => run,
            (Runs::Array(array), Some(member)) => {
                if array.fresh.contains(member) {
                    less = fingerprint(&Entity::Fresh(id.number, &array.held, &array.fresh));
                    array.fresh.remove(member);
                    more = fingerprint(&Entity::Fresh(id.number, &array.held, &array.fresh));
                    let run = Run::fresh(array.held.clone());
                    more = more.wrapping_add(run_hash(id, &run));
                    array.touched.insert(member, run);
                }
                array.touched.get_mut(&member).ok_or_else(unknown)?
            }
            _ => return Err(unknown()),
        };
        less = less.wrapping_add(run_hash(id, run));
        let result = change(run);
        let hash = fingerprint(&Entity::Run(id, run));
        run.hash = Remembered(Some(hash));
        more = more.wrapping_add(hash);
        self.minus(less);
        self.plus(more);
        Ok(result)
    }

    fn hold(&mut self, id: JobId, by: Option<&String>) -> Applied {
        let turn = |run: &mut Run| {
            if !run.is_active() {
                run.state = if by.is_some() { JobState::Held } else { JobState::Pending };
                run.held_by = by.cloned();
            }
        };
        let is_array = self.jobs.get(&id.number).is_some_and(|job| matches!(job.runs, Runs::Array(_)));
        if is_array && id.member.is_none() {
            return self.change_job(id.number, |job| {
                if let Runs::Array(array) = &mut job.runs {
                    array.held = by.cloned();
                    array.touched.values_mut().for_each(turn);
                }
            });
        }
        self.change_run(id, turn)
    }

    fn release(&mut self, id: JobId, at: Time) -> Applied {
        self.hold(id, None)?;
        self.change_job(id.number, |job| job.released_at = Some(at))
    }

    fn promise(&mut self, promise: &Promise) -> Applied {
        self.change_run(promise.job, |run| run.promised = true)?;
        let last = promise.placements.iter().map(|placement| placement.allocation.0).max();
        self.next_allocation = self.next_allocation.max(AllocationId(last.unwrap_or(0) + 1));
        self.plus(fingerprint(&Entity::Promise(promise)));
        match self.promises.insert(promise.job, promise.clone()) {
            None => Ok(()),
            Some(_) => Err(Wrong::Impossible(format!("job {} has a promise already", promise.job))),
        }
    }

    pub(super) fn revoke(&mut self, id: JobId) -> Applied {
        let promise = self.promises.remove(&id).ok_or_else(|| Wrong::Unknown(format!("promise to {id}")))?;
        self.minus(fingerprint(&Entity::Promise(&promise)));
        self.change_run(id, |run| run.promised = false)
    }

    pub(super) fn place(&mut self, id: JobId, placements: &[Placement], port: u16, at: Time) -> Applied {
        if self.promises.contains_key(&id) {
            self.revoke(id)?;
        }
        let job = self.jobs.get(&id.number).ok_or_else(|| Wrong::Unknown(format!("job {id}")))?;
        let (spec, owner) = (Arc::clone(&job.spec), Arc::clone(&job.owner));
        self.change_run(id, |run| {
            if run.is_active() {
                return Err(Wrong::Impossible(format!("job {id} has devices already")));
            }
            run.state = JobState::Starting;
            run.placed_at = Some(at);
            (run.started_at, run.checkpointed_at) = (None, None);
            run.live = placements.iter().map(|placement| placement.allocation).collect();
            run.placements = placements.to_vec();
            run.port = port;
            Ok(())
        })??;
        self.allocate(id, placements, at)?;
        self.charge((&spec.queue, &owner.name), placements, at)
    }

    /// Charges a user of a queue for what these placements hold from now on.
    pub(super) fn charge(
        &mut self,
        (queue, user): (&str, &str),
        placements: &[Placement],
        at: Time,
    ) -> Applied {
        let milli = placements.iter().map(Placement::milli).sum();
        self.ledger.change(queue, user, milli, at)?;
        let worth = placements.iter().filter_map(|placement| self.worth_of(placement).said().copied()).sum();
        self.charge_worth((queue, user), worth, at)
    }

    /// Gives a job's tasks what they hold from now on.
    pub(super) fn allocate(&mut self, id: JobId, placements: &[Placement], at: Time) -> Applied {
        for placement in placements {
            let mut held = Allocation {
                job: id,
                placement: placement.clone(),
                state: AllocationState::Starting,
                since: at,
                seq: 1,
                worth: self.worth_of(placement),
                stops_by: None,
                overdue_since: Newer(None),
                hash: Remembered::default(),
            };
            self.plus(held.hash_anew(placement.allocation));
            if self.allocations.insert(placement.allocation, held).is_some() {
                return Err(Wrong::Impossible(format!(
                    "allocation {} is there already",
                    placement.allocation
                )));
            }
            self.next_allocation = self.next_allocation.max(AllocationId(placement.allocation.0 + 1));
        }
        Ok(())
    }

    /// Changes one allocation and updates the digest.
    pub(super) fn change_allocation<T>(
        &mut self,
        id: AllocationId,
        change: impl FnOnce(&mut Allocation) -> T,
    ) -> Result<T, Wrong> {
        let held = self.allocations.get_mut(&id).ok_or_else(|| Wrong::Unknown(format!("allocation {id}")))?;
        let less = allocation_hash(id, held);
        let result = change(held);
        let more = held.hash_anew(id).wrapping_sub(less);
        self.plus(more);
        Ok(result)
    }

    fn start_task(&mut self, id: AllocationId, start: &TaskStart, at: Time) -> Applied {
        let (job, rank) = self.change_allocation(id, |held| {
            if held.state == AllocationState::Starting {
                held.state = AllocationState::Held;
            }
            (held.job, held.placement.rank)
        })?;
        let all_run = !self.has_starting(job);
        self.change_run(job, |run| {
            run.outputs.extend(start.output.clone().map(|output| (rank, output)));
            if run.isolation.as_ref() != Some(&start.isolation) {
                run.isolation = Some(start.isolation.clone());
            }
            if all_run {
                run.begins(at);
            }
        })
    }

    fn stop(&mut self, id: JobId, stopping: Stopping, at: Time) -> Applied {
        let (news, counts) = (self.news, self.policy.counts_restarts());
        let stops_by = at + Span(stopping.order.grace_ms);
        if stopping.cause.takes() {
            self.taken.insert(id);
        }
        let live = self.change_run(id, |run| {
            run.is_told(stopping, (news, counts));
            run.live.clone()
        })?;
        live.into_iter().try_for_each(|id| self.change_allocation(id, |held| held.is_told(stops_by)))
    }

    fn judge(&mut self, class: ClassId, reason: Option<&Reason>) {
        if let Some(old) = self.verdicts.remove(&class) {
            self.minus(fingerprint(&Entity::Verdict(class.0, &old)));
        }
        if let Some(reason) = reason {
            self.plus(fingerprint(&Entity::Verdict(class.0, reason)));
            self.verdicts.insert(class, reason.clone());
        }
    }
}

/// What an allocation counts against queue limits: devices by model and in total, cores, memory and extras.
pub fn counted<'a>(placement: &Placement, model: impl Fn(DeviceId) -> Option<&'a str>) -> Holdings {
    let mut held = Holdings::default();
    count(placement, model, |resource, amount| *held.0.entry(resource).or_default() += amount);
    held
}

/// The same, one resource at a time: each once, and only resources of which something is drawn.
pub fn count<'a>(
    placement: &Placement,
    model: impl Fn(DeviceId) -> Option<&'a str>,
    mut add: impl FnMut(Resource, i64),
) {
    let mut all_milli = 0;
    // A task's devices are of one model or a few: each model is named once, and the first needs no list.
    let mut first: Option<(&str, i64)> = None;
    let mut others: Vec<(&str, i64)> = Vec::new();
    for (device, draw) in &placement.devices {
        let (name, milli) = (model(*device), i64::from(draw.milli));
        all_milli += milli;
        let Some(name) = name else { continue };
        let (first_name, sum) = first.get_or_insert((name, 0));
        if *first_name == name {
            *sum += milli;
            continue;
        }
        match others.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += milli,
            None => others.push((name, milli)),
        }
    }
    let models = first.into_iter().chain(others);
    let models = models.map(|(name, milli)| (Resource::Model(name.to_owned()), milli));
    let host = [(Resource::Cpu, placement.cpu_milli), (Resource::Memory, placement.memory_bytes)];
    let extras = placement.extras.iter().map(|(resource, amount)| (resource.clone(), amount));
    let all = [(Resource::Any, all_milli)].into_iter().chain(models).chain(host).chain(extras);
    all.filter(|(_, amount)| *amount != 0).for_each(|(resource, amount)| add(resource, amount));
}
