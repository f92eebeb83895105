//! The least that has to be granted. The menu has one amount of each setting, beside what is held and asked for now; the other
//! changes of a fix may leave less of it to be granted.

use super::change::{Change, Raise};
use super::search::{Goal, Search};
use crate::amount::Resource;

impl Search<'_> {
    /// The same changes, with each granted amount lowered in turn as far as the changes still do it.
    pub(super) fn lowered(&mut self, mut changes: Vec<Change>) -> Vec<Change> {
        // What lifts one gate alone may stand beside various ways past the gates behind it.
        if self.meter.is_scarce || self.goal != Goal::Starts {
            return changes;
        }
        for place in 0..changes.len() {
            let Some(raise) = raise(&mut changes[place]).map(|raise| raise.clone()) else { continue };
            let unit = unit(&raise.resource);
            let steps = raise.to.saturating_sub(raise.from).saturating_sub(1) / unit + 1;
            let (mut fails, mut does) = (0, steps);
            // Usually nothing less does it.
            let mut next = steps - 1;
            while does - fails > 1 {
                let mut less = changes.clone();
                if let Some(lower) = self::raise(&mut less[place]) {
                    lower.to = raise.from + next * unit;
                }
                if self.does(&less) {
                    (does, changes) = (next, less);
                } else {
                    fails = next;
                }
                next = fails + (does - fails) / 2;
            }
        }
        changes
    }
}

/// The setting that a change raises.
fn raise(change: &mut Change) -> Option<&mut Raise> {
    match change {
        Change::RaiseLimit(raise)
        | Change::RaiseUserLimit(raise)
        | Change::RaiseGuarantee(raise)
        | Change::RaiseBorrow(raise)
        | Change::RaiseLend(raise) => Some(raise),
        _ => None,
    }
}

/// The unit in which settings are raised: whole devices and cores, GiB, pieces.
fn unit(resource: &Resource) -> i64 {
    match resource {
        Resource::Any | Resource::Model(_) | Resource::Cpu => 1000,
        Resource::Memory | Resource::Storage => 1 << 30,
        Resource::Pods | Resource::Extended(_) => 1,
    }
}
