//! Gates: what a job has to pass before it starts. Each reason names one gate; its details may change with the numbers.

use super::change::Change;
use super::never;
use super::world::World;
use crate::amount::Resource;
use crate::id::JobId;
use crate::model::job::{JobSpec, JobState};
use crate::model::queue::user_at;
use crate::plan::{self, Funnel};
use crate::reason::{Reason, Verdict};
use crate::snapshot::Snapshot;
use crate::state::{Job, Run, Runs, State};

/// A gate: what reasons have in common that speak of the same obstacle. What nodes and devices lack is one gate: which part of it
/// is named first depends on numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Held,
    Promised,
    Dependency(JobId),
    StartAfter,
    ArrayLimit,
    PoolDraining,
    Limit(String, Resource),
    UserLimit(String, Resource),
    Budget(String),
    Guarantee,
    Loans,
    InLine,
    /// What the pool has nowhere, not even while it is idle.
    Size,
    Capacity,
    Other(&'static str),
}

impl Gate {
    /// The gate that a reason speaks of.
    pub(crate) fn of(reason: &Reason) -> Self {
        match reason {
            Reason::Held(_) => Gate::Held,
            Reason::Promised(_) => Gate::Promised,
            Reason::Dependency(job, _) => Gate::Dependency(*job),
            Reason::StartAfter(_) => Gate::StartAfter,
            Reason::ArrayLimit(_) => Gate::ArrayLimit,
            Reason::PoolDraining => Gate::PoolDraining,
            Reason::QueueLimit(queue, resource, ..) => Gate::Limit(queue.clone(), resource.clone()),
            Reason::UserLimit(seat, resource, ..) => {
                let queue = user_at(seat).map_or(seat.as_str(), |(queue, _)| queue);
                Gate::UserLimit(queue.to_owned(), resource.clone())
            }
            Reason::OverBudget(queue, ..) => Gate::Budget(queue.clone()),
            Reason::BeyondGuarantee(..) => Gate::Guarantee,
            Reason::BorrowLimit(..) | Reason::NotLent(..) | Reason::LentOut(..) | Reason::Scarce(..) => {
                Gate::Loans
            }
            Reason::InLine | Reason::Reserved(_) => Gate::InLine,
            reason if reason.is_of_capacity() && reason.verdict() == Verdict::NoFit => Gate::Size,
            reason if reason.is_of_capacity() => Gate::Capacity,
            other => Gate::Other(other.code()),
        }
    }
}

impl Gate {
    /// Whether a grant is of the kind that can lift this gate by itself.
    pub(crate) fn is_opened_by(&self, grant: &Change) -> bool {
        match (self, grant) {
            (Gate::Limit(queue, resource), Change::RaiseLimit(raise)) => {
                (queue, resource) == (&raise.queue, &raise.resource)
            }
            (Gate::UserLimit(queue, resource), Change::RaiseUserLimit(raise)) => {
                (queue, resource) == (&raise.queue, &raise.resource)
            }
            (Gate::Budget(own), Change::RaiseBudget { queue, .. }) => own == queue,
            (Gate::PoolDraining, grant) => *grant == Change::EndDrain,
            (Gate::Guarantee, grant) => matches!(grant, Change::RaiseGuarantee(_)),
            (Gate::Loans, Change::RaiseGuarantee(_) | Change::RaiseBorrow(_) | Change::RaiseLend(_)) => true,
            (Gate::Limit(..) | Gate::UserLimit(..) | Gate::Budget(_) | Gate::Loans, _) => false,
            (Gate::Size | Gate::Capacity | Gate::InLine | Gate::Other(_), grant) => {
                let opens_another = matches!(
                    grant,
                    Change::RaiseLimit(_)
                        | Change::RaiseUserLimit(_)
                        | Change::RaiseBudget { .. }
                        | Change::EndDrain
                );
                !opens_another
            }
            _ => false,
        }
    }
}

/// All that keeps a job (or member) from starting: what is its own, its place in the line, limits and guarantees, capacity.
pub(super) fn reasons(state: &State, snapshot: &Snapshot, job: &Job, run: (JobId, &Run)) -> Vec<Reason> {
    let mut found = own(state, job, run);
    // What is promised to it is kept from all others.
    if run.1.promised {
        return found;
    }
    let in_line = || state.verdicts.get(&job.class).filter(|reason| !reason.is_its_own()).cloned();
    if found.is_empty() {
        found.extend(in_line());
    }
    found.extend(of_pool(state, snapshot, &job.spec).0);
    let verdict = || state.verdicts.get(&job.class);
    if found.is_empty() {
        found.extend(instead(state, snapshot, &job.spec, verdict()));
    }
    found
}

/// What is said in place of the verdict of a cycle, which may be about a way that the pool can never hold: its queue may not have the
/// others at the moment.
fn instead(state: &State, snapshot: &Snapshot, spec: &JobSpec, verdict: Option<&Reason>) -> Vec<Reason> {
    let is_of_a_way = verdict.is_some_and(is_beyond_the_pool) && spec.gang.has_alternatives();
    let found = is_of_a_way.then(|| by_a_possible_way(state, snapshot, spec)).flatten();
    found.unwrap_or_default()
}

fn is_beyond_the_pool(reason: &Reason) -> bool {
    reason.verdict() == Verdict::NoFit
}

/// What limits, guarantees and capacity have against a job by the first of its ways that may start with time, if any may. A way that
/// the pool can never hold says nothing about a job that may be served in another.
fn by_a_possible_way(state: &State, snapshot: &Snapshot, spec: &JobSpec) -> Option<Vec<Reason>> {
    let most = spec.gang.roles().iter().map(|role| role.ask.alternatives.len()).max()?;
    let way = |number| JobSpec { gang: spec.gang.by_alternative(number).into(), ..spec.clone() };
    let reasons = (0..most).map(|number| of_one_way(state, snapshot, &way(number)).0);
    reasons.into_iter().find(|reasons| !reasons.is_empty() && !reasons.iter().any(Reason::is_for_good))
}

/// What limits, guarantees and capacity have against a job. What no end of other jobs lifts comes first: whatever else goes before
/// that does, the job still waits.
pub(super) fn of_pool(state: &State, snapshot: &Snapshot, spec: &JobSpec) -> (Vec<Reason>, Funnel) {
    let (found, funnel) = of_one_way(state, snapshot, spec);
    if !spec.gang.has_alternatives() || !found.iter().any(is_beyond_the_pool) {
        return (found, funnel);
    }
    (by_a_possible_way(state, snapshot, spec).unwrap_or(found), funnel)
}

/// The same for a job that is served in one way, or by what is said first about its ways.
fn of_one_way(state: &State, snapshot: &Snapshot, spec: &JobSpec) -> (Vec<Reason>, Funnel) {
    let (passing, funnel) = plan::blockers(state, snapshot, spec);
    let mut found = never::as_set(state, snapshot, spec);
    for reason in passing {
        match found.iter_mut().find(|known| Gate::of(known) == Gate::of(&reason)) {
            Some(known) => *known = reason,
            None => found.push(reason),
        }
    }
    (found, funnel)
}

/// The verdict on a job with these reasons: it never starts where it asks for more than is allowed at all, whatever it gets of what it
/// accepts. A reason speaks of the first of these ways only, and others may still do.
pub(super) fn verdict<'a>(
    (state, snapshot): (&State, &Snapshot),
    spec: &JobSpec,
    reasons: impl Iterator<Item = &'a Reason>,
) -> Verdict {
    let of = |reason: &Reason| match reason {
        Reason::OverBudget(_, 0, _) => Verdict::NoFit,
        other => other.verdict(),
    };
    let by_reasons = reasons.map(of).min();
    match never::as_set(state, snapshot, spec).is_empty() {
        true => by_reasons.unwrap_or(Verdict::Fit),
        false => Verdict::NoFit,
    }
}

/// All that keeps the job of a world from starting; `verdict` is that of the next cycle, where the place in the line matters.
pub(crate) fn of_world(world: &World, verdict: Option<&Reason>) -> Vec<Reason> {
    let Some((job, (id, run))) = world.job().and_then(|job| Some((job, run_of(job, world.target())?))) else {
        return Vec::new();
    };
    let state = world.state();
    let mut found = own(state, job, (id, &run));
    if found.is_empty() {
        found.extend(verdict.filter(|reason| !reason.is_its_own()).cloned());
    }
    found.extend(of_pool(state, world.snapshot(), &job.spec).0);
    if found.is_empty() {
        found.extend(instead(state, world.snapshot(), &job.spec, verdict));
    }
    found
}

/// The run that an id means, and its full id: for an array as a whole, the first that waits, else the first that has not ended.
pub(super) fn run_of(job: &Job, id: JobId) -> Option<(JobId, Run)> {
    let member = match (&job.runs, id.member) {
        (Runs::Array(_), None) => job.waiting_members().next().or_else(|| job.open_members().next())?,
        _ => id.member,
    };
    Some((JobId { member, ..id }, job.run(member)?))
}

/// What keeps the job (or member) back by itself.
pub(super) fn own(state: &State, job: &Job, (id, run): (JobId, &Run)) -> Vec<Reason> {
    let held = (run.state == JobState::Held).then(|| Reason::Held(run.held_by.clone().unwrap_or_default()));
    // What is promised to the job itself is among its own blockers.
    let promise = id.member.and_then(|_| state.promises.get(&id));
    let promised = promise.map(|promise| Reason::Promised(state.awaited_by(promise)));
    let before = held.into_iter().chain(promised);
    let mut own: Vec<Reason> = before.chain(job.own_blockers(state, state.now)).collect();
    // A member with a promise counts among those that run.
    if let (Some(0), Runs::Array(array), None) = (job.members_left(), &job.runs, promise) {
        own.push(Reason::ArrayLimit(array.array.at_most.unwrap_or(0)));
    }
    own
}
