//! What a task used of its devices, summed up from samples.

use std::collections::{BTreeMap, BTreeSet};

use divvy_core::engine::DeviceUsage;
use divvy_gpu::DeviceSample;

/// Sums up what one task used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meter {
    devices: BTreeMap<String, Sum>,
    xid: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sum {
    watched_ms: i64,
    idle_ms: i64,
    /// Percent × milliseconds.
    utilization_ms: i64,
    peak_memory_mib: u64,
}

impl Meter {
    /// Adds a sample of a device of the task; `own` are the task's processes on it.
    pub(crate) fn add(&mut self, sample: &DeviceSample, own: &BTreeSet<u32>, passed_ms: i64) {
        self.xid = self.xid.or(sample.xids.first().copied());
        let sum = self.devices.entry(sample.uuid.clone()).or_default();
        if let Some(memory_mib) = memory_of(sample, own) {
            sum.peak_memory_mib = sum.peak_memory_mib.max(memory_mib);
        }
        // A device that reports no utilisation does not count as watched.
        let Some(percent) = sample.utilization_percent else { return };
        sum.watched_ms += passed_ms;
        sum.utilization_ms += passed_ms * i64::from(percent);
        if percent == 0 {
            sum.idle_ms += passed_ms;
        }
    }

    /// The first Xid that was seen.
    pub(crate) fn xid(&self) -> Option<u64> {
        self.xid
    }

    /// The sums, by device.
    pub(crate) fn usage(&self) -> Vec<DeviceUsage> {
        let usage = |(uuid, sum): (&String, &Sum)| DeviceUsage {
            uuid: uuid.clone(),
            watched_ms: sum.watched_ms,
            idle_ms: sum.idle_ms,
            mean_utilization_percent: mean(sum.utilization_ms, sum.watched_ms),
            peak_memory_mib: sum.peak_memory_mib,
        };
        self.devices.iter().map(usage).collect()
    }
}

fn mean(sum: i64, count: i64) -> u32 {
    if count <= 0 { 0 } else { u32::try_from((sum + count / 2) / count).unwrap_or(0) }
}

/// Returns the memory of the task's own processes where the driver reports it by process, else all memory in use: the
/// task has the device alone.
fn memory_of(sample: &DeviceSample, own: &BTreeSet<u32>) -> Option<u64> {
    let ours = sample.processes.iter().filter(|process| own.contains(&process.pid));
    let by_process: Option<Vec<u64>> = ours.map(|process| process.used_memory_mib).collect();
    match by_process {
        Some(parts) if !parts.is_empty() => Some(parts.iter().sum()),
        _ => sample.memory_used_mib,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_gpu::{DeviceProcess, Health, ProcessKind};

    fn sample(percent: Option<u32>, used_mib: u64) -> DeviceSample {
        DeviceSample {
            utilization_percent: percent,
            memory_used_mib: Some(used_mib),
            ..DeviceSample::unknown("GPU-1", Health::Ok)
        }
    }

    #[test]
    fn a_mean_is_weighted_by_time_and_idle_time_is_counted() {
        let mut meter = Meter::default();
        meter.add(&sample(Some(100), 10), &BTreeSet::new(), 1000);
        meter.add(&sample(Some(0), 30), &BTreeSet::new(), 3000);
        meter.add(&sample(None, 20), &BTreeSet::new(), 9000);
        let usage = &meter.usage()[0];
        assert_eq!((usage.watched_ms, usage.idle_ms, usage.mean_utilization_percent), (4000, 3000, 25));
        assert_eq!(usage.peak_memory_mib, 30);
    }

    #[test]
    fn memory_is_that_of_the_tasks_own_processes_where_the_driver_tells() {
        let mut shared = sample(Some(5), 900);
        let process = |pid, mib| DeviceProcess { pid, kind: ProcessKind::Compute, used_memory_mib: mib };
        shared.processes = vec![process(1, Some(100)), process(2, Some(50)), process(3, Some(700))];
        assert_eq!(memory_of(&shared, &BTreeSet::from([1, 2])), Some(150));
        shared.processes[0].used_memory_mib = None;
        assert_eq!(memory_of(&shared, &BTreeSet::from([1, 2])), Some(900));
    }

    #[test]
    fn the_first_xid_is_kept() {
        let mut meter = Meter::default();
        meter.add(&DeviceSample { xids: vec![31, 79], ..sample(None, 0) }, &BTreeSet::new(), 1);
        meter.add(&DeviceSample { xids: vec![13], ..sample(None, 0) }, &BTreeSet::new(), 1);
        assert_eq!(meter.xid(), Some(31));
    }
}
