//! Usage as `history` reports it.

use divvy_api as api;
use divvy_core::state::{Job, Run, Runs, State};
use divvy_core::time::Time;

use crate::store::{GroupBy, Grouping, OPEN, Sums, Window, kind_name};

/// Returns the row of one group.
pub(crate) fn row(by: &[GroupBy], group: &[String], sums: &Sums) -> api::Usage {
    let mut row = api::Usage {
        jobs: sums.jobs,
        attempts: sums.attempts,
        failed: sums.failed,
        gpu_hours: sums.held_milli_ms / 3.6e9,
        cpu_hours: sums.cpu_ms / 3.6e6,
        idle_gpu_hours: (sums.watched_ms > 0.0).then(|| idle_hours(sums)),
        mean_utilization_percent: (sums.watched_ms > 0.0).then_some(sums.busy_percent_ms / sums.watched_ms),
        peak_gpu_memory_mib: (sums.peak_gpu_memory_mib > 0).then_some(sums.peak_gpu_memory_mib),
        peak_memory_bytes: (sums.peak_memory_bytes > 0).then_some(sums.peak_memory_bytes),
        mean_wait_ms: (sums.waits > 0).then_some((sums.waited_ms / sums.waits as f64) as i64),
        ..api::Usage::default()
    };
    for (by, value) in by.iter().zip(group) {
        let value = Some(value.clone());
        match by {
            GroupBy::User => row.user = value,
            GroupBy::Queue => row.queue = value,
            GroupBy::Project => row.project = value,
            GroupBy::Kind => row.kind = value,
            GroupBy::Name => row.name = value,
            GroupBy::State => row.state = value,
            GroupBy::Day => row.day = value,
        }
    }
    row
}

/// Returns the GPU-hours held in which nothing was done, as far as they were watched. Samples cover whole devices: a holder of a
/// share counts that part of them, and never more than it held.
fn idle_hours(sums: &Sums) -> f64 {
    let held_ms = sums.held_milli_ms / 1000.0;
    sums.idle_ms / sums.watched_ms * sums.watched_ms.min(held_ms) / 3.6e6
}

/// Returns what running attempts have used so far, within a window, by groups.
pub(crate) fn running(
    state: &State,
    window: Window,
    grouping: &Grouping,
    now: Time,
) -> Vec<(Vec<String>, Sums)> {
    let mut groups: Vec<(Vec<String>, Sums)> = Vec::new();
    for job in state.jobs.values() {
        let runs: Vec<&Run> = match &job.runs {
            Runs::Single(run) => vec![run],
            Runs::Array(array) => array.touched.values().collect(),
        };
        for run in runs.into_iter().filter(|run| run.is_active()) {
            let Some(sums) = so_far(state, (job, run), window, now) else { continue };
            add(&mut groups, key(job, run, grouping), &sums);
        }
    }
    groups
}

/// Returns the device time that an attempt has held up to a moment, in milli-GPU·ms: each task while it had its devices.
pub(crate) fn held_milli_ms(state: &State, run: &Run, now: Time) -> i64 {
    let live = run.live.iter().filter_map(|id| state.allocations.get(id));
    let held = live.map(|held| held.placement.milli().saturating_mul(now.since(held.since).0));
    held.fold(run.held_milli_ms, i64::saturating_add)
}

fn so_far(state: &State, (job, run): (&Job, &Run), window: Window, now: Time) -> Option<Sums> {
    let from = run.placed_at?;
    let part = window.part(from, now);
    let first = run.attempt == 1;
    let waited = run.started_at.filter(|_| first).map(|at| at.since(job.submitted_at).0);
    (part > 0.0).then(|| Sums {
        // An earlier attempt of the job in the window is in history, and has counted it.
        jobs: u64::from(first || run.back_since.is_none_or(|back| back < window.since)),
        attempts: 1,
        held_milli_ms: held_milli_ms(state, run, now) as f64 * part,
        waited_ms: waited.unwrap_or(0) as f64,
        waits: u64::from(waited.is_some()),
        ..Sums::default()
    })
}

fn key(job: &Job, run: &Run, grouping: &Grouping) -> Vec<String> {
    let spec = &job.spec;
    let value = |by: &GroupBy| match by {
        GroupBy::User => job.owner.name.clone(),
        GroupBy::Queue => spec.queue.clone(),
        GroupBy::Project => spec.project.clone().unwrap_or_default(),
        GroupBy::Kind => kind_name(spec.kind).to_owned(),
        GroupBy::Name => spec.name.clone(),
        GroupBy::State => OPEN.to_owned(),
        GroupBy::Day => day(run.placed_at.unwrap_or_default(), grouping.utc_offset_ms),
    };
    grouping.by.iter().map(value).collect()
}

/// Returns the day of a moment by a clock that is ahead of UTC: `2026-11-21`.
fn day(at: Time, utc_offset_ms: i64) -> String {
    let moment = jiff::Timestamp::from_millisecond(at.0.saturating_add(utc_offset_ms)).unwrap_or_default();
    moment.to_zoned(jiff::tz::TimeZone::UTC).date().to_string()
}

/// Adds a group's sums to the existing groups.
pub(crate) fn add(groups: &mut Vec<(Vec<String>, Sums)>, key: Vec<String>, sums: &Sums) {
    match groups.iter_mut().find(|(group, _)| *group == key) {
        Some((_, there)) => there.add(sums),
        None => groups.push((key, sums.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_leaves_more_idle_than_he_held() {
        let hours = |held_milli: f64, watched: f64, idle: f64| {
            let (hour, held_milli_ms) = (3.6e6, held_milli * 3.6e6);
            let sums =
                Sums { held_milli_ms, watched_ms: watched * hour, idle_ms: idle * hour, ..Sums::default() };
            row(&[], &[], &sums).idle_gpu_hours
        };
        assert_eq!(hours(4000.0, 4.0, 1.0), Some(1.0));
        // Half of a device, of two that held it.
        assert_eq!(hours(500.0, 1.0, 1.0), Some(0.5));
        // A sample longer than the run, and less watched than held.
        assert_eq!(hours(1000.0, 1.25, 1.25), Some(1.0));
        assert_eq!(hours(4000.0, 2.0, 1.0), Some(1.0));
        assert_eq!(hours(4000.0, 0.0, 0.0), None);
    }
}
