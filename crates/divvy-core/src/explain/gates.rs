//! Gates: what a job has to pass before it starts. Each reason names one; what it says of it may change with the numbers.

use super::change::Change;
use super::world::World;
use crate::amount::Resource;
use crate::id::JobId;
use crate::model::job::JobState;
use crate::model::queue::user_at;
use crate::plan;
use crate::reason::Reason;
use crate::state::{Job, Run, Runs, State};

/// What two reasons have in common that speak of the same gate. What nodes and devices lack is one gate: which of it is named
/// first depends on numbers.
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
    Budget,
    Guarantee,
    Loans,
    InLine,
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
            Reason::OverBudget(..) => Gate::Budget,
            Reason::BeyondGuarantee(..) => Gate::Guarantee,
            Reason::BorrowLimit(..) | Reason::NotLent(..) | Reason::LentOut(..) => Gate::Loans,
            Reason::InLine | Reason::Reserved(_) => Gate::InLine,
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
            (Gate::Budget, grant) => matches!(grant, Change::RaiseBudget { .. }),
            (Gate::PoolDraining, grant) => *grant == Change::EndDrain,
            (Gate::Guarantee, grant) => matches!(grant, Change::RaiseGuarantee(_)),
            (Gate::Loans, Change::RaiseGuarantee(_) | Change::RaiseBorrow(_) | Change::RaiseLend(_)) => true,
            (Gate::Limit(..) | Gate::UserLimit(..) | Gate::Loans, _) => false,
            (Gate::Capacity | Gate::InLine | Gate::Other(_), grant) => {
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

/// All that keeps a job (or member) from starting: of its own, its place in the line, limits and guarantees, capacity.
pub(super) fn reasons(
    state: &State,
    snapshot: &crate::snapshot::Snapshot,
    job: &Job,
    run: &Run,
) -> Vec<Reason> {
    let mut found = own(state, job, run);
    let in_line = || state.verdicts.get(&job.class).filter(|reason| !reason.is_its_own()).cloned();
    if found.is_empty() {
        found.extend(in_line());
    }
    found.extend(plan::blockers(state, snapshot, &job.spec).0);
    found
}

/// Likewise in a world of whose next cycle the verdict is known, where the place in the line matters.
pub(crate) fn of_world(world: &World, verdict: Option<&Reason>) -> Vec<Reason> {
    let Some((job, run)) = world.job().and_then(|job| Some((job, run_of(job, world.target())?))) else {
        return Vec::new();
    };
    let state = world.state();
    let mut found = own(state, job, &run);
    if found.is_empty() {
        found.extend(verdict.filter(|reason| !reason.is_its_own()).cloned());
    }
    found.extend(plan::blockers(state, world.snapshot(), &job.spec).0);
    found
}

/// The run that is meant: of an array as a whole the first that waits, else the first that has not ended.
pub(super) fn run_of(job: &Job, id: JobId) -> Option<Run> {
    match (&job.runs, id.member) {
        (Runs::Array(_), None) => {
            job.run(job.waiting_members().next().or_else(|| job.open_members().next())?)
        }
        _ => job.run(id.member),
    }
}

/// What keeps the job back by itself.
pub(super) fn own(state: &State, job: &Job, run: &Run) -> Vec<Reason> {
    let held = (run.state == JobState::Held).then(|| Reason::Held(run.held_by.clone().unwrap_or_default()));
    let mut own: Vec<Reason> = held.into_iter().chain(job.own_blockers(state, state.now)).collect();
    if let (Some(0), Runs::Array(array)) = (job.members_left(), &job.runs) {
        own.push(Reason::ArrayLimit(array.array.at_most.unwrap_or(0)));
    }
    own
}
