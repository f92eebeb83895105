//! Deciding on how a gang asks to be spread: what contradicts itself, or the topology that the gang asks for, is refused.

use std::ops::Range;

use super::Rejection;
use crate::model::gang::Group;
use crate::model::job::JobSpec;
use crate::model::node::NodeState;
use crate::model::topology::{Spread, Topology, levels_of};
use crate::state::State;

/// Tasks that have to lie within one domain of a level.
struct Together<'a> {
    ranks: Range<u32>,
    within: &'a str,
    /// How many of them start together.
    tasks: u32,
}

pub(super) fn sense(state: &State, spec: &JobSpec) -> Result<(), Rejection> {
    let spreads = spec.gang.spreads();
    if spreads.is_empty() {
        return Ok(());
    }
    let (levels, together) = (levels(state), together(&spec.gang));
    match spreads.into_iter().find_map(|of_group| wrong(of_group, &levels, &together)) {
        None => Ok(()),
        Some(what) => Err(Rejection::BadSpec { field: "spread", what }),
    }
}

fn wrong(
    (ranks, spread, group): (Range<u32>, &Spread, &Group),
    levels: &[String],
    together: &[Together],
) -> Option<String> {
    let Spread { over, most, required } = spread;
    if over.is_empty() {
        return Some("name the level over which tasks are spread, like rack or node".into());
    }
    if *most == Some(0) {
        return Some(format!(
            "nothing can start with none in a {over}: at least one may lie in each, most: 1"
        ));
    }
    if *required && most.is_none() {
        return Some(format!(
            "say how many may lie in one {over} at most (most: 2), or leave out `required`"
        ));
    }
    let most = spread.bound()?;
    // What lies in one domain also lies in one domain of each wider level.
    let holds = |within: &str| {
        let place = |name: &str| levels.iter().position(|level| level == name);
        within == over || place(over).zip(place(within)).is_some_and(|(over, within)| over < within)
    };
    let of_both = |other: &Together| match other.ranks.start < ranks.end && ranks.start < other.ranks.end {
        true => other.tasks.min(group.tasks()),
        false => 0,
    };
    let clash = together.iter().find(|other| holds(other.within) && of_both(other) > most)?;
    let (tasks, within) = (of_both(clash), clash.within);
    Some(format!(
        "{tasks} tasks must lie within one {within}, and no more than {most} of them may lie in one {over}"
    ))
}

/// All parts of a gang that must each lie in one domain: groups, and blocks of tasks.
fn together(gang: &Group) -> Vec<Together<'_>> {
    let mut found = Vec::new();
    gang.visit(0, &mut |ranks, group| {
        let Some(ask) = group.topology() else { return };
        let blocks = ask.slices.iter().map(|slice| (slice.within.as_str(), slice.tasks));
        let whole = ask.required.then_some((ask.within.as_str(), group.tasks()));
        let all = blocks.chain(whole);
        found.extend(all.map(|(within, tasks)| Together { ranks: ranks.clone(), within, tasks }));
    });
    found
}

/// The levels of the pool, coarse to fine, as far as any node names them; else the usual ones.
fn levels(state: &State) -> Vec<String> {
    let nodes = state.nodes.values().filter(|node| node.state != NodeState::Gone);
    let named = nodes.map(|node| &*node.spec.domains);
    match named.clone().all(<[_]>::is_empty) {
        true => Topology::default().levels,
        false => levels_of(named),
    }
}
