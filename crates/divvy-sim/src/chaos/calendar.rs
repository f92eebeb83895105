//! What a life keeps on the calendar.

use divvy_core::decide::{Command, Person, Reserve, Wanted};
use divvy_core::model::reservation::Purpose;
use divvy_core::state::State;
use divvy_core::time::{Span, Time};
use serde::{Deserialize, Serialize};

/// Nodes or devices that are kept for a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// For which queue; `None` for work on them.
    pub queue: Option<String>,
    /// A node as a whole, or a device of it, as commands name them; `None` for a number of devices.
    pub target: Option<String>,
    /// How many devices, where no target is named.
    pub devices: u32,
    /// From when.
    pub after_ms: i64,
    /// For how long; `None` for until the end.
    pub for_ms: Option<i64>,
    /// Whether what runs there is stopped.
    pub evicts: bool,
}

impl Kept {
    pub(super) fn command(&self, now: Time, by: Person) -> Command {
        let from = now + Span(self.after_ms);
        let named = self.target.clone().map(|target| Wanted::Named(vec![target]));
        let reserve = Reserve {
            purpose: self.queue.clone().map_or(Purpose::Maintenance, Purpose::Queue),
            what: named.unwrap_or(Wanted::Devices(self.devices, None)),
            from,
            until: self.for_ms.map(|length| from + Span(length)),
            evicts: self.evicts,
            note: None,
        };
        Command::Reserve(Box::new(reserve), by)
    }
}

/// A drain of a node as a whole, from now on.
pub(super) fn drain(node: &str, now: Time, by: Person) -> Command {
    let target = Some(node.to_owned());
    Kept { queue: None, target, devices: 0, after_ms: 0, for_ms: None, evicts: false }.command(now, by)
}

/// Takes back everything that is kept.
pub(super) fn all_back(state: &State, by: &Person) -> Vec<Command> {
    state.reservations.iter().map(|kept| Command::EndReservation(kept.id, by.clone())).collect()
}
