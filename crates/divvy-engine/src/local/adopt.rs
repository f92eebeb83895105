//! Adoption after a start: what earlier daemons left, whether running, ended or broken off.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;

use divvy_core::engine::{EndedHow, Observation, TaskEnd, Usage};
use divvy_core::id::AllocationId;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::cgroup::{Group, Parents};
use super::clock::{monotonic_ms, wall};
use super::records::{ENDED, EndedRecord, LAUNCH, LaunchRecord, RecordDir, STARTED, STOP, StartedRecord};
use super::settings::OpenError;
use super::supervisor::SUPERVISE;
use super::tree::{self, Marks};
use super::worker::{Stage, Task, Worker};

/// Takes over all tasks that have a record, reports what is known of them, and then which they are.
pub(crate) fn adopt(worker: &mut Worker) -> Result<(), OpenError> {
    RecordDir::remove_retired(&worker.settings.state);
    let folder = worker.settings.state.join("tasks");
    let entries =
        fs::read_dir(&folder).map_err(OpenError::state("reading the records of tasks in", &folder))?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for allocation in names.map(AllocationId).collect::<BTreeSet<_>>() {
        adopt_one(worker, allocation);
    }
    worker.parents.clean(&worker.tasks.keys().copied().collect());
    worker.outbox.put([Observation::Inventory(worker.tasks.keys().copied().collect())]);
    Ok(())
}

fn adopt_one(worker: &mut Worker, allocation: AllocationId) {
    let record = RecordDir::of(&worker.settings.state, allocation);
    let Some(stage) = stage_of(&record, &worker.boot_id) else {
        if let Err(error) = record.remove() {
            tracing::warn!("removing the half-made {}: {error}", record.path().display());
        }
        return;
    };
    let stop = record.read(STOP).ok().flatten();
    let started = record.read::<StartedRecord>(STARTED).ok().flatten().map(|record| record.start);
    let launch = record.read::<LaunchRecord>(LAUNCH).ok().flatten();
    let is_over = matches!(stage, Stage::Over(_));
    let (is_unsettled, is_lost) = (matches!(stage, Stage::Unsettled), matches!(stage, Stage::Cleaning));
    // Said by `repeat` with the end, and else by `look_for_start`.
    let started = started.filter(|_| is_over);
    worker.tasks.insert(allocation, Task { record, stage, started, stop });
    if !is_over {
        worker.look_for_start(allocation);
        let devices = launch.map(|order| order.launch.devices).unwrap_or_default();
        worker.hold(allocation, devices.into_iter().map(|device| device.uuid).collect());
    }
    match (is_unsettled, is_lost) {
        (true, _) => worker.settle(allocation),
        (_, true) => worker.conclude(allocation),
        _ => worker.repeat(allocation),
    }
}

/// Returns how far the task of a record is; `None` if it never began, and never will.
fn stage_of(record: &RecordDir, boot_id: &str) -> Option<Stage> {
    let ended = record.read::<EndedRecord>(ENDED).ok().flatten();
    let is_held = || !matches!(record.try_lock(), Ok(Some(_)));
    if let Some(ended) = ended {
        // With the end written, a supervisor of this boot may be about to exit; its devices are free when it has.
        return Some(if ended.boot_id == boot_id && is_held() {
            Stage::Unsettled
        } else {
            Stage::Over(ended.end)
        });
    }
    if !record.has(LAUNCH) {
        return None;
    }
    let order = record.read::<LaunchRecord>(LAUNCH).ok().flatten();
    if order.is_none_or(|order| order.boot_id != boot_id) {
        return Some(Stage::Over(reboot(record)));
    }
    let Ok(Some(_lock)) = record.try_lock() else { return Some(Stage::Unsettled) };
    if record.supervisor().is_some() {
        return Some(Stage::Cleaning);
    }
    // The supervisor writes its pid before it does anything, and inherits the lock before it is one.
    record
        .has(STOP)
        .then(|| Stage::Over(TaskEnd { at: wall(), how: EndedHow::NeverStarted, ..TaskEnd::default() }))
}

/// Ends a task of another boot, also in its record, so that the next report says the same.
fn reboot(record: &RecordDir) -> TaskEnd {
    let end = TaskEnd { at: wall(), how: EndedHow::NodeReboot, ..TaskEnd::default() };
    if let Err(error) = record.write(ENDED, &EndedRecord { end: end.clone(), boot_id: String::new() }) {
        tracing::warn!("writing the end of a task into {}: {error}", record.path().display());
    }
    end
}

/// Who is in charge of a record.
#[derive(Debug)]
pub(crate) enum Found {
    /// This process.
    Supervisor(u32, OwnedFd),
    /// A supervisor that has not written its pid yet, or is about to exit.
    NotYet,
    /// The lock is free.
    Nobody,
}

/// Finds the supervisor's process. The lock says whether there is one, the lock's text which.
pub(crate) fn find_supervisor(record: &RecordDir) -> Found {
    let supervisor = record.supervisor().and_then(|pid| {
        let pidfd = pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()?;
        // Checked after the pidfd is open, so the answer cannot be about another process.
        is_supervisor_of(pid, record).then_some((pid, pidfd))
    });
    match (supervisor, record.try_lock()) {
        (_, Ok(Some(_))) => Found::Nobody,
        (Some((pid, pidfd)), _) => Found::Supervisor(pid, pidfd),
        (None, _) => Found::NotYet,
    }
}

fn is_supervisor_of(pid: u32, record: &RecordDir) -> bool {
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut arguments = arguments.split(|byte| *byte == 0).skip(1);
    arguments.next() == Some(SUPERVISE.as_bytes())
        && arguments.next() == Some(record.path().as_os_str().as_encoded_bytes())
}

/// A task whose supervisor is gone without having written the end.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) allocation: AllocationId,
    pub(crate) record: RecordDir,
    pub(crate) parents: Parents,
    pub(crate) boot_id: String,
}

impl Lost {
    /// Kills what is left of the task, and writes its end.
    pub(crate) fn clean(&self) -> TaskEnd {
        let started = self.record.read::<StartedRecord>(STARTED).ok().flatten();
        let group = self.parents.existing(self.allocation);
        let mut marks = Marks {
            record: tree::record_name(self.record.path()),
            first: started.as_ref().map(|started| (started.start.pid, started.pid_start_ticks)),
            in_cgroup: Vec::new(),
        };
        tree::kill_left_behind(&mut marks, || {
            let group = group.as_ref();
            group.inspect(|group| group.kill());
            group.map(Group::pids).unwrap_or_default()
        });
        let peak_memory_bytes = group.as_ref().and_then(Group::peak_bytes).unwrap_or(0);
        if let Some(group) = &group {
            group.remove();
        }
        let end = TaskEnd {
            at: wall(),
            how: EndedHow::SupervisorLost,
            ran_ms: started.map_or(0, |started| (monotonic_ms() - started.monotonic_ms).max(0)),
            usage: Usage { peak_memory_bytes, ..Usage::default() },
        };
        let ended = EndedRecord { end: end.clone(), boot_id: self.boot_id.clone() };
        if let Err(error) = self.record.write(ENDED, &ended) {
            tracing::warn!("writing the end of a task into {}: {error}", self.record.path().display());
        }
        end
    }
}
