//! A promise: devices assigned to a job that are not free yet.

use serde::{Deserialize, Serialize};

use super::allocation::Placement;
use crate::id::{AllocationId, JobId};

/// Devices that a job gets when the allocations that hold them now have ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Promise {
    /// For whom.
    pub job: JobId,
    /// What it will get.
    pub placements: Vec<Placement>,
    /// Where the gang's tasks will meet.
    pub port: u16,
    /// What must end first.
    pub waits_for: Vec<AllocationId>,
}
