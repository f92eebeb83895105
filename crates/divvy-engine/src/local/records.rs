//! What is kept on disk about each task, so that it outlives the daemon.
//!
//! `STATE/tasks/<allocation>/` is made exclusively: its existence means that the allocation was launched, or never may be.
//! The holder of its `lock` is in charge of the task. Each record is renamed into place. Nothing is synced: records are read
//! again only under the boot in which they were written.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use divvy_core::action::{Fence, Launch, Stop};
use divvy_core::engine::{TaskEnd, TaskStart};
use divvy_core::id::AllocationId;
use rustix::fs::{FlockOperation, RenameFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::cgroup::Parents;
use super::clock::monotonic_ms;
use super::signal;

/// The launch order, written before the supervisor is started.
pub(crate) const LAUNCH: &str = "launch.json";
/// Written when the task runs.
pub(crate) const STARTED: &str = "started.json";
/// Written when nothing is left of the task.
pub(crate) const ENDED: &str = "ended.json";
/// The latest stop order.
pub(crate) const STOP: &str = "stop.json";
/// Held for life by the supervisor; its text is the supervisor's pid, once it runs.
pub(crate) const LOCK: &str = "lock";
/// Prefix of the names of retired directories, so that they are not taken for tasks.
const SPARE: &str = "spare-";

/// The order to launch a task, with what the supervisor needs to know of its pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LaunchRecord {
    pub(crate) fence: Fence,
    pub(crate) launch: Launch,
    pub(crate) boot_id: String,
    pub(crate) pool: Pool,
    pub(crate) cgroups: Parents,
}

/// The pool that a task belongs to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Pool {
    /// The name of the user whose pool it is.
    pub(crate) user: String,
    /// The state directory.
    pub(crate) state: PathBuf,
    /// The daemon's socket, for the task's environment.
    pub(crate) socket: PathBuf,
    /// The most bytes of a kept output file.
    pub(crate) kept_output_most_bytes: u64,
}

/// How a task started, and how to recognise it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StartedRecord {
    pub(crate) start: TaskStart,
    /// The first process's start time in clock ticks since boot: with it, a pid names one process only.
    pub(crate) pid_start_ticks: u64,
    pub(crate) supervisor: u32,
    pub(crate) boot_id: String,
    /// The monotonic clock when it started, in milliseconds.
    pub(crate) monotonic_ms: i64,
}

/// How a task ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EndedRecord {
    pub(crate) end: TaskEnd,
    pub(crate) boot_id: String,
}

/// A stop order. The greater fence is the later one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StopRecord {
    pub(crate) fence: Fence,
    pub(crate) signal: String,
    /// When the whole tree is killed, on the monotonic clock, which all processes of a boot share.
    pub(crate) kill_at_ms: i64,
}

impl StopRecord {
    /// Makes the record of an order that is given now. It does not put off an earlier order's end of grace.
    pub(crate) fn new(fence: Fence, stop: &Stop, former: Option<&StopRecord>) -> Self {
        let grace_ms =
            if signal::number(&stop.signal) == Some(libc::SIGKILL) { 0 } else { stop.grace_ms.max(0) };
        let kill_at_ms = monotonic_ms().saturating_add(grace_ms);
        let kill_at_ms = former.map_or(kill_at_ms, |former| former.kill_at_ms.min(kill_at_ms));
        Self { fence, signal: stop.signal.to_string(), kill_at_ms }
    }
}

/// The directory of one task.
#[derive(Clone, Debug)]
pub(crate) struct RecordDir {
    path: PathBuf,
}

impl RecordDir {
    /// Names the directory of an allocation.
    pub(crate) fn of(state: &Path, allocation: AllocationId) -> Self {
        Self { path: state.join("tasks").join(allocation.to_string()) }
    }

    /// Returns the directory that the process is in.
    pub(crate) fn here() -> Self {
        Self { path: PathBuf::from(".") }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the directory; `false` if it is there already.
    pub(crate) fn make(&self) -> io::Result<bool> {
        match DirBuilder::new().mode(0o700).create(&self.path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.path.join(name).exists()
    }

    /// Takes the lock; `None` if somebody holds it.
    pub(crate) fn try_lock(&self) -> io::Result<Option<OwnedFd>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(self.path.join(LOCK))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file.into())),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the supervisor's pid, if the supervisor has written it.
    pub(crate) fn supervisor(&self) -> Option<u32> {
        fs::read_to_string(self.path.join(LOCK)).ok()?.trim().parse().ok()
    }

    /// Reads a record; `None` if it is not there.
    pub(crate) fn read<T: DeserializeOwned>(&self, name: &str) -> io::Result<Option<T>> {
        match fs::read(self.path.join(name)) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a record beside its place and renames it.
    pub(crate) fn write<T: Serialize>(&self, name: &str, record: &T) -> io::Result<()> {
        let bytes = serde_json::to_vec(record)?;
        let beside = self.path.join(format!("{name}.new"));
        // Not truncated on opening: on a full disk, space that was reserved here must not be given back.
        let mut file = OpenOptions::new();
        let mut file = file.write(true).create(true).truncate(false).mode(0o600).open(&beside)?;
        file.write_all(&bytes)?;
        file.set_len(bytes.len() as u64)?;
        fs::rename(beside, self.path.join(name))
    }

    /// Reserves space for a record that must be written later, even on a full disk.
    pub(crate) fn reserve(&self, name: &str) -> io::Result<()> {
        /// A record is below 2 KiB but for the path of the output, which is 4 KiB at most.
        const RECORD_BYTES: u64 = 8192;
        let file: File = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.path.join(format!("{name}.new")))?;
        match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, RECORD_BYTES) {
            // A filesystem that cannot reserve space may still be able to write.
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Takes the record away from the tasks and makes it ready for another task; `None` if that fails: then it is
    /// removed.
    ///
    /// Making and removing files hundreds of times a second costs more than the rest of the launch: before ext4 makes a
    /// file, it goes over all that were removed within the last minutes.
    pub(crate) fn retire(&self) -> io::Result<Option<Self>> {
        let name = self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let spare = Self { path: self.path.with_file_name(format!("{SPARE}{name}")) };
        // From here on the directory belongs to no task, whatever happens.
        match fs::rename(&self.path, &spare.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            // A stop that came after the task was forgotten has made the directory again.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                return self.remove().map(|()| None);
            }
            other => other?,
        }
        match spare.clear() {
            Ok(()) => Ok(Some(spare)),
            Err(_) => spare.remove().map(|()| None),
        }
    }

    fn clear(&self) -> io::Result<()> {
        OpenOptions::new().write(true).open(self.path.join(LOCK))?.set_len(0)?;
        for name in [LAUNCH, STARTED, ENDED, STOP] {
            match fs::rename(self.path.join(name), self.path.join(format!("{name}.new"))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes the directory out of a retired one; `false` if it exists already.
    pub(crate) fn make_of(&self, spare: &Self) -> io::Result<bool> {
        let here = rustix::fs::CWD;
        match rustix::fs::renameat_with(here, &spare.path, here, &self.path, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::EXIST) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes what earlier daemons retired below the state directory.
    pub(crate) fn remove_retired(state: &Path) {
        let entries = fs::read_dir(state.join("tasks")).into_iter().flatten().flatten();
        for entry in
            entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(SPARE)))
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }

    /// Removes the directory and all that is in it.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_core::id::Term;

    fn dir() -> (tempfile::TempDir, RecordDir) {
        let state = tempfile::tempdir().unwrap();
        fs::create_dir(state.path().join("tasks")).unwrap();
        let record = RecordDir::of(state.path(), AllocationId(7));
        (state, record)
    }

    #[test]
    fn a_directory_is_made_once() {
        let (_state, record) = dir();
        assert!(record.make().unwrap());
        assert!(!record.make().unwrap());
    }

    #[test]
    fn a_retired_record_is_a_new_one_for_the_next_task() {
        let (state, record) = dir();
        record.make().unwrap();
        fs::write(record.path().join(LOCK), "123456").unwrap();
        record.write(LAUNCH, &"a long order that is longer than the next one").unwrap();
        record.write(ENDED, &"end").unwrap();
        let spare = record.retire().unwrap().unwrap();
        assert!(!record.path().exists());
        let next = RecordDir::of(state.path(), AllocationId(8));
        assert!(next.make_of(&spare).unwrap());
        assert!(![LAUNCH, STARTED, ENDED, STOP].iter().any(|name| next.has(name)));
        assert_eq!(next.supervisor(), None);
        next.write(LAUNCH, &"short").unwrap();
        assert_eq!(next.read::<String>(LAUNCH).unwrap().as_deref(), Some("short"));
        let again = RecordDir::of(state.path(), AllocationId(9));
        again.make().unwrap();
        assert!(!next.make_of(&again).unwrap());
    }

    #[test]
    fn retired_records_of_earlier_daemons_are_removed() {
        let (state, record) = dir();
        record.make().unwrap();
        fs::write(record.path().join(LOCK), "").unwrap();
        let spare = record.retire().unwrap().unwrap();
        RecordDir::remove_retired(state.path());
        assert!(!spare.path().exists());
    }

    #[test]
    fn a_lock_is_held_by_one() {
        let (_state, record) = dir();
        record.make().unwrap();
        let held = record.try_lock().unwrap();
        assert!(held.is_some());
        assert!(record.try_lock().unwrap().is_none());
        drop(held);
        assert!(record.try_lock().unwrap().is_some());
    }

    #[test]
    fn a_record_in_reserved_space_reads_back_as_written() {
        let (_state, record) = dir();
        record.make().unwrap();
        record.reserve(STOP).unwrap();
        let fence = Fence { term: Term(1), allocation: AllocationId(7), seq: 2 };
        let order = StopRecord::new(fence, &Stop { signal: "TERM".into(), grace_ms: 5 }, None);
        assert!(!record.has(STOP));
        record.write(STOP, &order).unwrap();
        assert_eq!(record.read::<StopRecord>(STOP).unwrap(), Some(order));
    }

    #[test]
    fn a_later_order_shortens_the_grace_and_does_not_lengthen_it() {
        let fence = |seq| Fence { term: Term(1), allocation: AllocationId(7), seq };
        let stop = |signal: &str, grace_ms| Stop { signal: signal.to_owned().into(), grace_ms };
        let first = StopRecord::new(fence(2), &stop("TERM", 60_000), None);
        let longer = StopRecord::new(fence(3), &stop("TERM", 600_000), Some(&first));
        assert_eq!(longer.kill_at_ms, first.kill_at_ms);
        let kill = StopRecord::new(fence(4), &stop("KILL", 600_000), Some(&longer));
        assert!(kill.kill_at_ms <= monotonic_ms());
    }

    #[test]
    fn a_torn_record_is_an_error_and_a_missing_one_is_not() {
        let (_state, record) = dir();
        record.make().unwrap();
        assert!(record.read::<StopRecord>(STOP).unwrap().is_none());
        fs::write(record.path().join(STOP), "{\"fence\":").unwrap();
        assert!(record.read::<StopRecord>(STOP).is_err());
    }
}
