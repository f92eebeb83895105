//! Scores that need nothing but the node and the task: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, section 6.1.
//! Each is an integer from 0 to 100; what is cut off is part of the rule, since it makes ties.

use super::facts::{Facts, Shape};
use crate::model::device::WHOLE_MILLI;
use crate::snapshot::task_kind;

/// The most cores and device-thousandths of any node of the pool: what amounts are measured by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub(super) cpu_milli: i64,
    pub(super) devices_milli: i64,
}

impl Scale {
    fn of(self, cpu_milli: i64, devices_milli: i64) -> (f64, f64) {
        let part = |amount: i64, most: i64| amount as f64 / most.max(1) as f64;
        (part(cpu_milli, self.cpu_milli), part(devices_milli, self.devices_milli))
    }
}

/// What a task draws of a node: milli-cores, and thousandths of all its devices.
pub(super) fn drawn(facts: &Facts, shape: &Shape) -> (i64, i64) {
    let unsaid = if shape.count == 0 { 1000.min(facts.cpu_milli.0) } else { 0 };
    (shape.cpu_milli.unwrap_or(unsaid), i64::from(shape.milli) * shape.count as i64)
}

/// Less left is better.
pub(super) fn best_fit(facts: &Facts, shape: &Shape, scale: Scale) -> i32 {
    let (cpu, devices) = drawn(facts, shape);
    let left = scale.of(facts.cpu_milli.1 - cpu, i64::from(facts.total_milli) - devices);
    (100.0 * (1.0 - (0.5 * left.0 + 0.5 * left.1))) as i32
}

/// The less the free resources point where the task points, the better.
pub(super) fn dot_product(facts: &Facts, shape: &Shape, scale: Scale) -> i32 {
    let (cpu, devices) = drawn(facts, shape);
    let free = scale.of(facts.cpu_milli.1, i64::from(facts.total_milli));
    let asked = scale.of(cpu, devices);
    (100.0 * (1.0 - (free.0 * asked.0 + free.1 * asked.1) / 2.0)) as i32
}

/// Open devices first, then free ones of used nodes, then those of idle nodes. `least_milli` is what is left
/// of the device that a share would get.
pub(super) fn gpu_packing(facts: &Facts, shape: &Shape, least_milli: i32) -> i32 {
    let whole = WHOLE_MILLI as i32;
    if shape.count == 0 {
        return 0;
    }
    if facts.left_milli.iter().all(|left| *left == whole) {
        let devices = facts.slots.len() as i32;
        return (33 - devices).max(devices);
    }
    if !shape.is_share() || least_milli == whole {
        return (50 - shape.count as i32).max(33);
    }
    let left_percent = shape.count as i32 * (least_milli * 100 / whole);
    (100 - left_percent / 10).max(50)
}

/// First nodes that run tasks of the same number of devices, then those that run none, then the others.
pub(super) fn gpu_clustering(facts: &Facts, shape: &Shape, scale: Scale) -> i32 {
    let Some(kind) = task_kind(shape.count, shape.is_share()) else { return 0 };
    let others = facts.tasks.iter().enumerate().any(|(other, count)| other != kind && *count > 0);
    let bonus = match (facts.tasks[kind] > 0, others) {
        (true, false) => 75,
        (true, true) => 50,
        (false, false) => 25,
        (false, true) => 0,
    };
    let most = scale.devices_milli.max(1);
    (25 * (most - i64::from(facts.total_milli)) / most) as i32 + bonus
}
