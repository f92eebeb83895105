//! A promise: devices assigned to a job that are not free yet.

use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

use super::allocation::Placement;
use crate::id::{AllocationId, JobId};

/// Devices that a job gets when the allocations that hold them now have ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// The job that gets them.
    pub job: JobId,
    /// What it will get.
    pub placements: Vec<Placement>,
    /// The port at which the gang's tasks will meet.
    pub port: u16,
    /// The allocations that must end first.
    pub waits_for: Vec<AllocationId>,
    /// Whether these are further tasks of a running gang, rather than its start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub grows: bool,
}

/// Hashes what came with elastic gangs only where it is used: all other digests stay as they were.
impl Hash for Promise {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        // Destructured without `..`, so that a new field is not forgotten here.
        let Self { job, placements, port, waits_for, grows } = self;
        (job, placements, port, waits_for).hash(hasher);
        if *grows {
            grows.hash(hasher);
        }
    }
}
