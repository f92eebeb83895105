//! The supervisor: one small process per task, which outlives the daemon.
//!
//! It is the daemon's own program with another first argument, checked before anything else is set up. It inherits the
//! descriptor of the record's lock, so the lock is held from before it exists until it dies: whoever can take the lock
//! knows that no supervisor is there, and none is coming.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::ExitCode;

use divvy_core::engine::{EndedHow, Isolation, LaunchFailure, TaskEnd, TaskStart, Usage};
use divvy_gpu::{DeviceLock, LockError, LockOwner, Locks};
use rustix::fs::FlockOperation;
use rustix::pipe::{PipeFlags, pipe_with};

use super::cgroup::{Entrance, Group, Limits, Parents};
use super::child::{self, Program, Standard};
use super::clock::{monotonic_ms, wall};
use super::environment::{JobEnvironment, compose};
use super::output::{self, OpenOutput};
use super::pty::Bridge;
use super::records::{
    ENDED, EndedRecord, LAUNCH, LOCK, LaunchRecord, RecordDir, STARTED, STOP, StartedRecord,
};
use super::watch::{Gone, Signals, Status, Watch, timespec};
use super::{devices, tree};

/// The first argument that makes the program a supervisor.
pub(crate) const SUPERVISE: &str = "__supervise";
/// The descriptor at which the record's lock is inherited.
pub(crate) const LOCK_FD: i32 = 3;

/// Becomes a supervisor if the program was started as one. To be called first in `main`, with the program's arguments.
pub fn supervisor_main(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter().skip(1);
    if arguments.next()? != SUPERVISE {
        return None;
    }
    let record = arguments.next().unwrap_or_default();
    Some(match supervise(Path::new(&record)) {
        Ok(()) => ExitCode::SUCCESS,
        // Nobody reads the code: the missing end in the record tells the daemon.
        Err(_) => ExitCode::FAILURE,
    })
}

fn supervise(directory: &Path) -> io::Result<()> {
    let signals = become_supervisor(directory)?;
    let record = RecordDir::here();
    let Some(_lock) = take_lock(&record)? else { return Ok(()) };
    let Some(order) = record.read::<LaunchRecord>(LAUNCH)? else { return Ok(()) };
    if record.has(ENDED) {
        return Ok(());
    }
    let task = Task { record: &record, directory, order: &order, signals: &signals };
    let end = task.run();
    record_end(&record, &EndedRecord { end, boot_id: order.boot_id.clone() });
    Ok(())
}

/// Cuts the ties to the daemon, and ties everything that the task starts to this process.
fn become_supervisor(directory: &Path) -> io::Result<Signals> {
    // SAFETY: closes descriptors that nothing in this new process uses, and sets attributes of the process.
    unsafe {
        libc::setsid();
        libc::syscall(libc::SYS_close_range, LOCK_FD + 1, libc::c_uint::MAX, 0);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        libc::prctl(libc::PR_SET_NAME, c"divvy-task".as_ptr());
    }
    std::env::set_current_dir(directory)?;
    Signals::block()
}

/// Takes over the inherited lock, or takes it anew; `None` if somebody else has it, and with it the task.
fn take_lock(record: &RecordDir) -> io::Result<Option<File>> {
    let lock = match inherited_lock(record) {
        Some(lock) => Some(lock),
        None => record.try_lock()?,
    };
    let Some(lock) = lock else { return Ok(None) };
    let mut lock = File::from(lock);
    if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(None);
    }
    lock.set_len(0)?;
    lock.rewind()?;
    lock.write_all(std::process::id().to_string().as_bytes())?;
    Ok(Some(lock))
}

fn inherited_lock(record: &RecordDir) -> Option<OwnedFd> {
    let expected = rustix::fs::stat(record.path().join(LOCK)).ok()?;
    // SAFETY: only looks; if the descriptor is closed the call fails.
    let inherited = rustix::fs::fstat(unsafe { std::os::fd::BorrowedFd::borrow_raw(LOCK_FD) }).ok()?;
    if (expected.st_dev, expected.st_ino) != (inherited.st_dev, inherited.st_ino) {
        return None;
    }
    // SAFETY: it is open, and nothing else in this process knows of it.
    let lock = unsafe { OwnedFd::from_raw_fd(LOCK_FD) };
    rustix::io::fcntl_setfd(&lock, rustix::io::FdFlags::CLOEXEC).ok()?;
    Some(lock)
}

/// Writes the end. If the disk is full despite the reserved space, retries until it can be written.
fn record_end(record: &RecordDir, ended: &EndedRecord) {
    while record.write(ENDED, ended).is_err() && record.path().join(LOCK).exists() {
        let _ = rustix::event::poll(&mut [], Some(&timespec(1000)));
    }
}

/// A task in the care of its supervisor.
struct Task<'a> {
    record: &'a RecordDir,
    /// The record directory, absolute.
    directory: &'a Path,
    order: &'a LaunchRecord,
    signals: &'a Signals,
}

/// What is prepared before the fork.
struct Ready {
    /// Held until this process ends.
    _locks: Vec<DeviceLock>,
    output: OpenOutput,
    program: Program,
    group: Option<Group>,
    isolation: Isolation,
}

impl Task<'_> {
    /// Runs the task from start to end.
    fn run(&self) -> TaskEnd {
        // A signal that comes after this check waits until the task is watched.
        if self.record.has(STOP) || !self.signals.drain().is_empty() {
            return ended(EndedHow::NeverStarted);
        }
        let ready = match self.prepare() {
            Ok(ready) => ready,
            Err(failure) => return ended(EndedHow::LaunchFailed(failure)),
        };
        let begun_ms = monotonic_ms();
        let end = match self.start_and_watch(&ready, begun_ms) {
            Ok(gone) => self.conclude(&ready, gone, begun_ms),
            Err(failure) => ended(EndedHow::LaunchFailed(failure)),
        };
        if let Some(group) = &ready.group {
            group.remove();
        }
        end
    }

    fn prepare(&self) -> Result<Ready, LaunchFailure> {
        let (launch, pool) = (&self.order.launch, &self.order.pool);
        self.reserve()?;
        let locks = self.lock_devices()?;
        let submitted = JobEnvironment::read(&pool.state, launch.job.number)?;
        let environment = compose(submitted, self.order, self.directory);
        let program = Program::prepare(&launch.process, &environment)?;
        let output = output::open(launch, &pool.state)?;
        let (group, isolation) = isolate(self.order);
        Ok(Ready { _locks: locks, output, program, group, isolation })
    }

    fn reserve(&self) -> Result<(), LaunchFailure> {
        let reserved = self.record.reserve(STARTED).and_then(|()| self.record.reserve(ENDED));
        reserved.map_err(|error| {
            let directory = self.directory.display();
            LaunchFailure::Other(format!("reserving space for the job's records in {directory}: {error}"))
        })
    }

    fn lock_devices(&self) -> Result<Vec<DeviceLock>, LaunchFailure> {
        let locks = Locks::from_env();
        let pool = &self.order.pool;
        let owner = LockOwner { user: pool.user.clone(), pool: pool.state.to_string_lossy().into_owned() };
        let acquire = |uuid: &str| {
            locks.acquire(uuid, &owner).map_err(|error| match error {
                LockError::Held { uuid, owner } => LaunchFailure::DeviceLocked(uuid, owner.user, owner.pool),
                other => LaunchFailure::Other(other.to_string()),
            })
        };
        self.order.launch.devices.iter().map(|device| acquire(&device.uuid)).collect()
    }

    fn start_and_watch(&self, ready: &Ready, begun_ms: i64) -> Result<Gone, LaunchFailure> {
        let launch = &self.order.launch;
        let failed = |doing: &str, error: io::Error| LaunchFailure::Other(format!("{doing}: {error}"));
        let (bridge, standard) =
            standard(self.order, &ready.output).map_err(|e| failed("opening a terminal", e))?;
        let (report, said) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(|error| failed("making a pipe", error.into()))?;
        let mut entrance = match &ready.group {
            Some(group) => group.entrance().unwrap_or(Entrance::None),
            None => Entrance::None,
        };
        let first = child::fork(&ready.program, launch, &standard, (&mut entrance, File::from(said)))
            .map_err(|error| failed("starting a process", error))?;
        drop((entrance, standard));
        let (record, order) = (self.record, self.order);
        let watch = Watch {
            signals: self.signals,
            group: ready.group.as_ref(),
            output: &ready.output,
            bridge,
            first,
            report: Some(File::from(report)),
            kept_output_most_bytes: order.pool.kept_output_most_bytes,
        };
        let started = || record_start(record, order, ready, (first, begun_ms));
        Ok(watch.until_gone(started, || tell_daemon(order)))
    }

    fn conclude(&self, ready: &Ready, gone: Gone, begun_ms: i64) -> TaskEnd {
        let ran_ms = (monotonic_ms() - begun_ms).max(0);
        if let Some(failure) = gone.failure {
            return TaskEnd { ran_ms: 0, ..ended(EndedHow::LaunchFailed(failure)) };
        }
        let out_of_memory = ready.group.as_ref().and_then(Group::out_of_memory);
        let how = match (gone.status, out_of_memory) {
            // A task that survived the loss of a process did not end because of it.
            (Status::Exited(0), _) => EndedHow::Exited(0),
            (_, Some((peak, limit))) => EndedHow::OutOfMemory(peak, limit),
            (Status::Exited(code), None) => EndedHow::Exited(code),
            (Status::Signalled(signal), None) => EndedHow::Signalled(signal),
        };
        let has_failed = how != EndedHow::Exited(0);
        let out_of_gpu_memory = has_failed && ready.output.speaks_of_gpu_memory(&self.order.launch);
        ready.output.trim(self.order.pool.kept_output_most_bytes);
        let mut usage = usage_of_children();
        if let Some(peak) = ready.group.as_ref().and_then(Group::peak_bytes) {
            usage.peak_memory_bytes = peak;
        }
        TaskEnd { at: wall(), how, ran_ms, usage: Usage { out_of_gpu_memory, ..usage } }
    }
}

fn ended(how: EndedHow) -> TaskEnd {
    TaskEnd { at: wall(), how, ..TaskEnd::default() }
}

/// A terminal if one is asked for, else the output file.
fn standard(order: &LaunchRecord, output: &OpenOutput) -> io::Result<(Option<Bridge>, Standard)> {
    match &order.launch.process.terminal {
        Some(socket) => {
            let (bridge, lower) = Bridge::open(&order.launch.owner, socket)?;
            Ok((Some(bridge), Standard::Terminal(lower)))
        }
        None => Ok((None, Standard::File(output.file.try_clone()?.into()))),
    }
}

/// Makes the task's group, and says which limits are really enforced.
fn isolate(order: &LaunchRecord) -> (Option<Group>, Isolation) {
    let launch = &order.launch;
    let files = devices::list(Path::new("/dev"));
    let denied = devices::denied(&files, &launch.devices);
    let limits = Limits {
        memory_bytes: launch.memory_bytes,
        cpu_milli: launch.cpu_milli,
        cpu_is_ceiling: launch.cpu_is_ceiling,
        denied,
    };
    let group = order.cgroups.make(order.fence.allocation, &limits);
    let mut reasons: Vec<String> = Vec::new();
    match (&group, &order.cgroups) {
        (Some(group), _) => reasons.extend(group.shortfalls.iter().cloned()),
        (None, Parents::Nowhere(why)) => reasons.push(why.clone()),
        (None, _) => reasons.push("the control group could not be made".into()),
    }
    reasons.extend(devices::why_advisory(&files, &launch.devices));
    if reasons.is_empty() && launch.owner.uid == 0 {
        reasons.push("limits are set, but root can lift them".into());
    }
    let isolation = match reasons.is_empty() {
        true => Isolation::Enforced,
        false => Isolation::Advisory(reasons.join("; ").into()),
    };
    (group, isolation)
}

fn record_start(record: &RecordDir, order: &LaunchRecord, ready: &Ready, (first, begun_ms): (u32, i64)) {
    let start = TaskStart {
        at: wall(),
        pid: first,
        isolation: ready.isolation.clone(),
        output: Some(ready.output.path.to_string_lossy().into_owned()),
    };
    let started = StartedRecord {
        start,
        pid_start_ticks: tree::look(first).map_or(0, |seen| seen.start_ticks),
        supervisor: std::process::id(),
        boot_id: order.boot_id.clone(),
        monotonic_ms: begun_ms,
    };
    // Its space is reserved. If writing still fails, the end of the task shows that it ran.
    let _ = record.write(STARTED, &started);
}

/// Tells the daemon to look at the record. False if its queue is full; a daemon that is not there will look by itself.
fn tell_daemon(order: &LaunchRecord) -> bool {
    let told = UnixDatagram::unbound().and_then(|socket| {
        socket.set_nonblocking(true)?;
        // The path is relative to the record directory.
        socket.send_to(order.fence.allocation.to_string().as_bytes(), "../../engine.sock")
    });
    !told.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

fn usage_of_children() -> Usage {
    // SAFETY: the struct is plain numbers, for which zero is a value, and outlives the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let ms = |time: libc::timeval| time.tv_sec.saturating_mul(1000).saturating_add(time.tv_usec / 1000);
    Usage {
        cpu_ms: ms(usage.ru_utime).saturating_add(ms(usage.ru_stime)),
        // The kernel gives KiB, of the largest single process.
        peak_memory_bytes: usage.ru_maxrss.saturating_mul(1024),
        ..Usage::default()
    }
}
