//! A reservation: capacity promised from a time on.

use serde::{Deserialize, Serialize};

use crate::id::{JobId, NodeId};
use crate::time::Time;

/// Capacity kept for a waiting gang, or on the calendar.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reservation {
    /// The waiting job it is for; `None` for one on the calendar.
    pub job: Option<JobId>,
    /// From when.
    pub from: Time,
    /// Until when, if that is known.
    pub until: Option<Time>,
    /// Milli of devices on each node.
    pub nodes: Vec<(NodeId, i64)>,
}
