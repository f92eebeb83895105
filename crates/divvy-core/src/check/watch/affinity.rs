//! Tasks that want to lie near others, or apart from them, do so when they get their places: by the labels of all that hold something.

use std::collections::BTreeMap;

use super::{Found, Watch, found};
use crate::event::Event;
use crate::id::{AllocationId, JobId, NodeId};
use crate::model::affinity::{Affinity, Others};
use crate::model::allocation::Placement;
use crate::model::job::JobSpec;
use crate::state::State;

/// A task as others see it.
struct Seen<'a> {
    id: AllocationId,
    node: NodeId,
    affinity: &'a Affinity,
    labels: BTreeMap<String, String>,
}

/// A task of a rank, as others see it.
fn seen<'a>(spec: &'a JobSpec, placement: &Placement) -> Option<Seen<'a>> {
    let (role, _) = spec.gang.role_of(placement.rank)?;
    let affinity = role.ask.affinity();
    let labels = spec.labels.clone().into_iter().chain(affinity.labels.clone()).collect();
    Some(Seen { id: placement.allocation, node: placement.node, affinity, labels })
}

/// The domain of a node: what all of its nodes say alike. A node that says nothing is in none.
fn domain(state: &State, within: &str, id: NodeId) -> Option<String> {
    let spec = &state.nodes.get(&id)?.spec;
    let level = spec.domains.iter().find(|(level, _)| level == within);
    let said = level.map(|(_, domain)| domain).or_else(|| spec.face.labels.get(within));
    let alone = || (within == "node").then(|| format!("node {id}"));
    said.map(|domain| format!("domain {domain}")).or_else(alone)
}

fn are_together(state: &State, others: &Others, (one, other): (NodeId, NodeId)) -> bool {
    let here = domain(state, &others.within, one);
    here.is_some() && here == domain(state, &others.within, other)
}

fn is_one_of(others: &Others, task: &Seen) -> bool {
    others.who.iter().all(|condition| condition.holds(&task.labels))
}

impl Watch {
    /// Whether any job wants to lie near others, or apart from them: from the first such job on, affinity is looked at.
    pub(super) fn tells_others(&self, state: &State) -> bool {
        self.tells || state.jobs.values().any(|job| job.spec.has_affinity())
    }

    /// Looks at what an event is about to give, before the books know of it.
    pub(super) fn affinity(&mut self, state: &State, event: &Event, wrong: &mut Found) {
        if let Event::Submitted(submission) = event {
            self.tells |= submission.spec.has_affinity();
        }
        if !self.tells {
            return;
        }
        let (job, placements, waits_for): (JobId, &[Placement], &[AllocationId]) = match event {
            Event::Placed { job, placements, .. } | Event::Grown { job, placements } => {
                (*job, placements, &[])
            }
            Event::Promised(promise) => (promise.job, &promise.placements, &promise.waits_for),
            _ => return,
        };
        let is_given = !self.promises.contains_key(&job);
        let held = self.holds.iter().filter(|(id, _)| !waits_for.contains(id));
        let held = held.map(|(_, hold)| (hold.job, &hold.placement));
        // A promised place counts like a held one, but no task is near it yet.
        let promised = self.promises.iter().filter(|(other, _)| **other != job);
        let promised = promised.flat_map(|(job, all)| all.iter().map(move |one| (*job, one)));
        let spec = |job: JobId| state.jobs.get(&job.number).map(|job| &*job.spec);
        let of = |(job, placement)| seen(spec(job)?, placement);
        let held: Vec<Seen> = held.filter_map(of).collect();
        let promised: Vec<Seen> = promised.filter_map(of).collect();
        let own: Vec<Seen> = placements.iter().filter_map(|placement| seen(spec(job)?, placement)).collect();
        for task in &own {
            for other in held.iter().chain(&promised).chain(&own).filter(|other| other.id != task.id) {
                apart(state, (job, task), other, wrong);
            }
            if is_given {
                near(state, (job, task), (&held, &promised, &own), wrong);
            }
        }
    }
}

/// Neither wants the other out of its domain.
fn apart(state: &State, (job, task): (JobId, &Seen), other: &Seen, wrong: &mut Found) {
    let wishes = task.affinity.apart.iter().filter(|others| is_one_of(others, other));
    let of_other = other.affinity.apart.iter().filter(|others| is_one_of(others, task));
    let nodes = (task.node, other.node);
    if let Some(others) = wishes.chain(of_other).find(|others| are_together(state, others, nodes)) {
        let text = format!("a task of job {job} lies with allocation {}, apart from {others}", other.id);
        wrong.push(found("affinity", text));
    }
}

/// A task of each kind that it wants is near it, or none is anywhere and it is of that kind itself.
fn near(
    state: &State,
    (job, task): (JobId, &Seen),
    (held, promised, own): (&[Seen], &[Seen], &[Seen]),
    wrong: &mut Found,
) {
    for others in &task.affinity.near {
        let together = |other: &&Seen| are_together(state, others, (task.node, other.node));
        let mut near = held.iter().chain(own.iter().filter(|other| other.id != task.id));
        let has_one = near.any(|other| is_one_of(others, other) && together(&other));
        // Ids rise in the order in which places are given: the events of one plan may stand in another order.
        let mut before = held.iter().chain(promised).filter(|other| other.id < task.id);
        let is_anywhere = before.any(|other| is_one_of(others, other));
        let is_first = !is_anywhere && is_one_of(others, task) && together(&task);
        // The others of its gang lie near the first.
        let leads = own.iter().find(|other| is_one_of(others, other)).is_none_or(|first| first.id == task.id);
        if !(has_one || is_first && leads) {
            wrong.push(found("affinity", format!("a task of job {job} lies near nobody with {others}")));
        }
    }
}
