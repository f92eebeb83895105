//! Which devices the running tasks hold when a case begins: a case names nodes, and devices only if they are shared.

use std::collections::BTreeMap;

use divvy_core::id::{DeviceId, NodeId};
use divvy_core::model::ask::{Alternative, DeviceAsk, DrawAsk};
use divvy_core::model::device::{Draw, WHOLE_MILLI};
use divvy_core::model::gang::Role;
use divvy_core::state::State;

use super::answer::Obstacle;
use super::stage::{Actor, Running, Seat, roles_by_rank};

/// What a task draws of devices.
pub(super) type Draws = Vec<(DeviceId, Draw)>;

/// The devices of all nodes, and who sits on them.
pub(super) struct Seating {
    chairs: BTreeMap<NodeId, Vec<Chair>>,
    /// For each actor that runs, by rank.
    pub(super) draws: BTreeMap<usize, Vec<Draws>>,
}

/// A device, and how much of it is taken.
struct Chair {
    device: DeviceId,
    index: u32,
    model: String,
    memory_mib: u64,
    taken_milli: u32,
    label: Option<String>,
}

/// The order of seating: tasks whose device has a name, other shares, then tasks that want whole devices.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Named,
    Shared,
    Whole,
}

impl Seating {
    /// Seats all tasks that run.
    pub(super) fn of(state: &State, actors: &[Actor]) -> Result<Self, Obstacle> {
        let mut chairs: BTreeMap<NodeId, Vec<Chair>> = BTreeMap::new();
        for (id, device) in &state.devices {
            chairs.entry(device.node).or_default().push(Chair {
                device: *id,
                index: device.spec.index,
                model: device.spec.model.clone(),
                memory_mib: device.spec.memory_mib,
                taken_milli: 0,
                label: None,
            });
        }
        let mut seating = Self { chairs, draws: BTreeMap::new() };
        for turn in [Turn::Named, Turn::Shared, Turn::Whole] {
            for (index, actor) in actors.iter().enumerate() {
                if let Some(running) = &actor.running {
                    seating.seat(state, (index, actor, running), turn)?;
                }
            }
        }
        Ok(seating)
    }

    fn seat(
        &mut self,
        state: &State,
        (index, actor, running): (usize, &Actor, &Running),
        turn: Turn,
    ) -> Result<(), Obstacle> {
        self.draws.entry(index).or_insert_with(|| vec![Draws::new(); running.seats.len()]);
        for (rank, (role, seat)) in roles_by_rank(actor).into_iter().zip(&running.seats).enumerate() {
            let Some(seat) = seat else { continue };
            let Some(ask) = &alternative(role, seat)?.devices else { continue };
            if turn_of(ask, seat) != turn || running.over.contains(&(rank as u32)) {
                continue;
            }
            let node = node_named(state, &seat.node)?;
            let draws = self.take(node, ask, seat).ok_or_else(|| {
                Obstacle::Broken(format!(
                    "the case cannot be staged: {} does not fit on {}",
                    actor.name, seat.node
                ))
            })?;
            if let Some(all) = self.draws.get_mut(&index) {
                all[rank] = draws;
            }
        }
        Ok(())
    }

    fn take(&mut self, node: NodeId, ask: &DeviceAsk, seat: &Seat) -> Option<Draws> {
        let chairs = self.chairs.get_mut(&node)?;
        (0..ask.count as usize).map(|place| chair(chairs, ask, seat.labels.get(place))).collect()
    }
}

fn turn_of(ask: &DeviceAsk, seat: &Seat) -> Turn {
    match ask.draw {
        DrawAsk::Whole => Turn::Whole,
        _ if seat.labels.is_empty() => Turn::Shared,
        _ => Turn::Named,
    }
}

/// Takes one device: the one of that name, or the one with that name as its index, or the first with room.
fn chair(chairs: &mut [Chair], ask: &DeviceAsk, label: Option<&String>) -> Option<(DeviceId, Draw)> {
    let milli = match ask.draw {
        DrawAsk::Share { milli, .. } => milli,
        _ => WHOLE_MILLI,
    };
    let fits = |chair: &&mut Chair| {
        chair.taken_milli + milli <= WHOLE_MILLI
            && (ask.class.models.is_empty() || ask.class.models.contains(&chair.model))
    };
    let rank = |chair: &&mut Chair| match label {
        Some(label) if chair.label.as_ref() == Some(label) => 0,
        Some(label) if chair.label.is_none() && chair.index.to_string() == *label => 1,
        Some(_) if chair.label.is_none() => 2,
        None => 0,
        Some(_) => 3,
    };
    let best = chairs.iter_mut().filter(fits).min_by_key(rank)?;
    best.taken_milli += milli;
    best.label = best.label.take().or_else(|| label.cloned());
    let memory_mib = match ask.draw {
        DrawAsk::Share { memory_mib: Some(mib), .. } => mib,
        _ => best.memory_mib * u64::from(milli) / u64::from(WHOLE_MILLI),
    };
    Some((best.device, Draw { milli, memory_mib, partition: None }))
}

/// The alternative that a seat has.
pub(super) fn alternative<'a>(role: &'a Role, seat: &Seat) -> Result<&'a Alternative, Obstacle> {
    let found = role.ask.alternatives.get(seat.alternative as usize);
    found.ok_or_else(|| {
        Obstacle::Broken(format!(
            "the case cannot be staged: {} has no alternative {}",
            role.name, seat.alternative
        ))
    })
}

/// The node of this name.
pub(super) fn node_named(state: &State, name: &str) -> Result<NodeId, Obstacle> {
    state
        .node_by_name(name)
        .ok_or_else(|| Obstacle::Broken(format!("the case cannot be staged: there is no node {name:?}")))
}
