//! Reservations on the calendar: drains, and nodes or devices kept for a queue.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::open::open_enum;

open_enum! {
    /// Where a reservation is in its life.
    ReservationState {
        /// Its time has not come.
        Planned = "planned",
        /// It keeps its GPUs.
        Active = "active",
    }
}

/// Nodes or devices that are kept for a time.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Reservation {
    /// Its number.
    pub id: u64,
    /// Where it is in its life.
    pub state: ReservationState,
    /// The queue that it is for; null for a drain: work on the devices.
    #[serde(default)]
    pub queue: Option<String>,
    /// What is kept: `node` as a whole, or devices as `node:index`.
    pub on: Vec<String>,
    /// How many devices these are.
    pub gpus: u64,
    /// From when.
    pub from_ms: i64,
    /// Until when; null until it is taken back.
    #[serde(default)]
    pub until_ms: Option<i64>,
    /// Whether what runs there when it begins is stopped.
    pub evicts: bool,
    /// Jobs that are not meant to be there and still are.
    #[serde(default)]
    pub jobs: Vec<String>,
    /// Who made it.
    pub by: String,
    /// Why.
    #[serde(default)]
    pub note: Option<String>,
}

/// What is to be kept: named nodes and devices, or so many GPUs wherever that costs others least.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Reserve {
    /// The queue that it is for; without one it is a drain.
    pub queue: Option<String>,
    /// A node, `node:index`, an index where there is one node, or a UUID.
    pub on: Vec<String>,
    /// How many GPUs, where none are named.
    pub gpus: Option<u32>,
    /// Their model.
    pub model: Option<String>,
    /// From when: a moment (RFC 3339) or a time from now (`2h`); now, if unsaid.
    pub from: Option<String>,
    /// For how long, counted from `from`: `4h`; until it is taken back, if unsaid.
    #[serde(rename = "for")]
    pub length: Option<String>,
    /// Whether what runs there when it begins is stopped. What is kept for a queue always is made free.
    pub evict: bool,
    /// Why.
    pub note: Option<String>,
}

/// Which reservations are taken back.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EndReservation {
    /// By its number.
    pub id: Option<u64>,
    /// Or all drains of this node or device.
    pub drained: Option<String>,
}
