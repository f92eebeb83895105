//! Groups whose tasks must lie within one domain of a level get places in one such domain: computed from what the nodes say of
//! themselves.

use std::collections::BTreeSet;
use std::ops::Range;

use super::{Found, found};
use crate::event::Event;
use crate::id::{JobId, NodeId};
use crate::model::allocation::Placement;
use crate::model::gang::Group;
use crate::model::topology::NODE;
use crate::state::State;

/// Looks at what an event gives.
pub(super) fn look(state: &State, event: &Event, wrong: &mut Found) {
    let (job, placements): (JobId, &[Placement]) = match event {
        Event::Placed { job, placements, .. } | Event::Grown { job, placements } => (*job, placements),
        Event::Promised(promise) => (promise.job, &promise.placements),
        _ => return,
    };
    let Some(spec) = state.jobs.get(&job.number).map(|job| &job.spec) else { return };
    let mut bound = Vec::new();
    required(&spec.gang, 0, &mut bound);
    for (ranks, level) in bound {
        let tasks = placements.iter().filter(|placement| ranks.contains(&placement.rank));
        let domains: BTreeSet<Option<String>> =
            tasks.map(|placement| domain(state, level, placement.node)).collect();
        if domains.len() > 1 || domains.contains(&None) {
            let text = format!("tasks of job {job} must lie within one {level}, and lie in {domains:?}");
            wrong.push(found("topology", text));
        }
    }
}

/// The ranks of a group's tasks, and of those of the groups below it, that must lie within one domain of a level.
fn required<'a>(group: &'a Group, first: u32, found: &mut Vec<(Range<u32>, &'a str)>) {
    if let Some(ask) = group.topology().filter(|ask| ask.required) {
        found.push((first..first + group.most_tasks(), &ask.within));
    }
    if let Group::Branch(branch) = group {
        let mut first = first;
        for below in &branch.groups {
            required(below, first, found);
            first += below.most_tasks();
        }
    }
}

/// The domain of a level that a node names; a node is a domain of its own if it names none of the finest level.
fn domain(state: &State, level: &str, id: NodeId) -> Option<String> {
    let spec = &state.nodes.get(&id)?.spec;
    let named = spec.domains.iter().find(|(known, _)| known == level).map(|(_, domain)| domain.clone());
    named.or_else(|| (level == NODE).then(|| format!("node {}", spec.name)))
}
