//! Users inside a queue: what is due to its own jobs is divided among their users, as if these were queues below it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Bounds;
use crate::amount::Limits;

/// How a queue is divided among its users, and what it allows each of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Users {
    /// Weights by user name; users who are not named have 1 each.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub weight: BTreeMap<String, u32>,
    /// What jobs of one user may hold at most.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limit: Limits,
    /// What it allows the jobs of each user.
    #[serde(skip_serializing_if = "Bounds::is_unsaid")]
    pub bounds: Bounds,
}

impl Users {
    /// The weight of a user.
    pub fn weight_of(&self, user: &str) -> u32 {
        self.weight.get(user).copied().unwrap_or(1)
    }
}

/// What separates a queue's path from a user's name; no queue's name begins with it.
const USER: &str = "/@";

/// A user's seat in a queue that is divided among its users: `lab/vision/@ana`. It is below the queue as another queue would be.
pub fn seat(queue: &str, user: &str) -> String {
    // A path is cut at its slashes.
    format!("{queue}{USER}{}", user.replace('/', "%2F"))
}

/// The queue and the user of a seat.
pub fn user_at(seat: &str) -> Option<(&str, &str)> {
    seat.split_once(USER)
}
