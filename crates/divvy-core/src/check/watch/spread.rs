//! Tasks that must be spread are so when they get their places: counted from the ranks of all tasks that the gang has.

use std::collections::BTreeMap;

use super::{Found, Watch, found};
use crate::event::Event;
use crate::id::{JobId, NodeId};
use crate::model::allocation::Placement;
use crate::model::gang::Group;
use crate::state::State;

/// A group that may have no more than so many tasks in one domain of a level, and the ranks of its tasks.
struct Bound<'a> {
    over: &'a str,
    most: usize,
    ranks: Vec<u32>,
}

/// What a gang requires, in the order of its groups; `first` is the rank of its first task.
fn bounds<'a>(group: &'a Group, first: u32, found: &mut Vec<Bound<'a>>) -> u32 {
    let (spread, mut next) = match group {
        Group::Role(role) => (role.spread.said(), first + role.maximum),
        Group::Branch(branch) => (branch.spread.said(), first),
    };
    if let Group::Branch(branch) = group {
        for group in &branch.groups {
            next = bounds(group, next, found);
        }
    }
    if let Some(spread) = spread.filter(|spread| spread.required)
        && let Some(most) = spread.most
    {
        found.push(Bound { over: &spread.over, most: most as usize, ranks: (first..next).collect() });
    }
    next
}

/// The domain of a node: what all of its nodes say alike. A node that says nothing is in none.
fn domain(state: &State, over: &str, id: NodeId) -> Option<String> {
    let domains = &state.nodes.get(&id)?.spec.domains;
    let said = domains.iter().find(|(level, _)| level == over).map(|(_, domain)| format!("domain {domain}"));
    said.or_else(|| (over == "node").then(|| format!("node {id}")))
}

impl Watch {
    /// Looks at what an event is about to give, before the books know of it. What was promised was looked at then.
    pub(super) fn spread(&self, state: &State, event: &Event, wrong: &mut Found) {
        let (job, placements, grows): (JobId, &[Placement], bool) = match event {
            Event::Placed { job, placements, .. } => (*job, placements, false),
            Event::Grown { job, placements } => (*job, placements, true),
            Event::Promised(promise) => (promise.job, &promise.placements, promise.grows),
            _ => return,
        };
        let mut all = Vec::new();
        let Some(spec) = state.jobs.get(&job.number).map(|job| &job.spec) else { return };
        bounds(&spec.gang, 0, &mut all);
        let is_taken_up = self.promises.contains_key(&job) && !matches!(event, Event::Promised(_));
        if all.is_empty() || is_taken_up {
            return;
        }
        let has =
            self.holds.iter().filter(|(id, hold)| grows && hold.job == job && !self.leaving.contains(id));
        let has: Vec<&Placement> = has.map(|(_, hold)| &hold.placement).collect();
        for Bound { over, most, ranks } in all {
            let is_of = |placement: &&Placement| ranks.contains(&placement.rank);
            let mut counts: BTreeMap<Option<String>, usize> = BTreeMap::new();
            for placement in has.iter().copied().chain(placements).filter(is_of) {
                *counts.entry(domain(state, over, placement.node)).or_default() += 1;
            }
            // What runs stays where it is, whatever is said of its nodes later: what is new is looked at.
            let mut new = placements.iter().filter(is_of).map(|it| domain(state, over, it.node));
            if new.any(|domain| domain.is_none() || counts.get(&domain).is_some_and(|count| *count > most)) {
                let text =
                    format!("a task of job {job} lies outside every {over}, or in one with more than {most}");
                wrong.push(found("spread", text));
            }
        }
    }
}
