//! The engine's thread: carries out actions, and learns how tasks ended by waiting for their supervisors.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use divvy_core::action::{Action, Fence, Launch, Stop};
use divvy_core::engine::{EndedHow, LaunchFailure, Observation, TaskEnd, TaskStart};
use divvy_core::id::{AllocationId, Term};
use rustix::event::epoll;
use rustix::process::{WaitId, WaitIdOptions, waitid};

use super::adopt;
use super::cgroup::Parents;
use super::clock::{monotonic_ms, wall};
use super::engine::{Command, Commands};
use super::orders::{self, Delivery};
use super::outbox::Outbox;
use super::output;
use super::processes::{Held, Processes};
use super::records::{
    ENDED, EndedRecord, LAUNCH, LaunchRecord, Pool, RecordDir, STARTED, StartedRecord, StopRecord,
};
use super::settings::{OpenError, keep_term};
use super::spawn::Program;
use super::watch::timespec;

/// Marks the bell among the awaited descriptors; allocation numbers never get that high.
const BELL: u64 = u64::MAX;
/// Marks the socket on which supervisors report that their task has started.
const SOCKET: u64 = u64::MAX - 1;
/// How often to look for old output files.
const SWEEP_PAUSE_MS: i64 = 86_400_000;
/// How soon a failed step is retried.
const RETRY_PAUSE_MS: i64 = 200;
/// How soon to look again at a supervisor that has not written its pid yet: that takes it microseconds.
const SETTLE_PAUSE_MS: i64 = 10;

/// How many records of forgotten tasks are kept for reuse: more than the tasks that end between two launches.
const MOST_SPARES: usize = 128;

/// What the thread needs to know of the pool.
#[derive(Debug)]
pub(crate) struct PoolSettings {
    pub(crate) state: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) term: Term,
    pub(crate) kept_output_most_bytes: u64,
    pub(crate) kept_output_age: Duration,
}

/// The engine's thread.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(super) settings: PoolSettings,
    pub(super) boot_id: String,
    pub(super) parents: Parents,
    pub(super) tasks: BTreeMap<AllocationId, Task>,
    pub(super) outbox: Outbox,
    user: String,
    program: Program,
    epoll: OwnedFd,
    socket: UnixDatagram,
    commands: Commands,
    processes: Processes,
    /// Tasks whose stop order could not be delivered yet.
    undelivered: BTreeSet<AllocationId>,
    /// Records of forgotten tasks, kept for reuse.
    spares: Vec<RecordDir>,
    sweep_at_ms: i64,
}

/// A task that the engine knows of.
#[derive(Debug)]
pub(crate) struct Task {
    pub(super) record: RecordDir,
    pub(super) stage: Stage,
    pub(super) started: Option<TaskStart>,
    pub(super) stop: Option<StopRecord>,
}

/// How far a task is, as far as the engine knows.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Its supervisor is watched.
    Supervised { supervisor: OwnedFd, is_child: bool },
    /// Its supervisor exists, or did a moment ago; which process it is, is not known yet.
    Unsettled,
    /// Its supervisor is gone without having written the end; what is left of the task is being killed.
    Cleaning,
    /// Nothing is left of it.
    Over(TaskEnd),
}

impl Worker {
    /// Sets up the thread and adopts the existing tasks.
    pub(crate) fn open(
        settings: PoolSettings,
        program: &Path,
        (commands, outbox, processes): (Commands, Outbox, Processes),
    ) -> Result<Self, OpenError> {
        let program =
            Program::open(program).map_err(OpenError::state("opening the supervisor's program", program))?;
        let socket = bind(&settings.state)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
        let add = |fd: &dyn std::os::fd::AsFd, mark| {
            epoll::add(&epoll, fd.as_fd(), epoll::EventData::new_u64(mark), epoll::EventFlags::IN)
        };
        add(commands.bell(), BELL).map_err(io::Error::from)?;
        add(&socket, SOCKET).map_err(io::Error::from)?;
        let mut worker = Self {
            boot_id: divvy_gpu::boot_id()?,
            parents: Parents::find(&settings.state),
            tasks: BTreeMap::new(),
            user: user_name(),
            undelivered: BTreeSet::new(),
            spares: Vec::new(),
            sweep_at_ms: monotonic_ms(),
            settings,
            outbox,
            program,
            epoll,
            socket,
            commands,
            processes,
        };
        adopt::adopt(&mut worker)?;
        Ok(worker)
    }

    /// Works until told to quit.
    pub(crate) fn run(mut self) {
        let mut events = Vec::with_capacity(256);
        loop {
            self.keep_time();
            events.clear();
            let timeout = self.timeout();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return tracing::error!("waiting for supervisors: {error}; restart the daemon"),
            }
            for event in &events {
                match event.data.u64() {
                    BELL | SOCKET => {}
                    allocation => self.supervisor_ended(AllocationId(allocation)),
                }
            }
            self.hear_of_starts();
            if self.obey() {
                return self.leave();
            }
        }
    }

    /// Leaves no empty groups when a pool is given up, such as a demo's. Groups of running or starting tasks stay.
    fn leave(self) {
        if self.tasks.values().all(|task| matches!(task.stage, Stage::Over(_))) {
            self.parents.remove();
        }
    }

    fn timeout(&self) -> Option<rustix::event::Timespec> {
        let is_unsettled = self.tasks.values().any(|task| matches!(task.stage, Stage::Unsettled));
        let wait_ms = if is_unsettled {
            SETTLE_PAUSE_MS
        } else if !self.undelivered.is_empty() {
            RETRY_PAUSE_MS
        } else {
            (self.sweep_at_ms - monotonic_ms()).max(0)
        };
        Some(timespec(wait_ms))
    }

    /// Does the work that was put off.
    fn keep_time(&mut self) {
        let unsettled = self.tasks.iter().filter(|(_, task)| matches!(task.stage, Stage::Unsettled));
        for allocation in unsettled.map(|(allocation, _)| *allocation).collect::<Vec<_>>() {
            self.settle(allocation);
        }
        for allocation in std::mem::take(&mut self.undelivered) {
            self.deliver(allocation);
        }
        if self.sweep_at_ms <= monotonic_ms() {
            self.sweep_at_ms = monotonic_ms() + SWEEP_PAUSE_MS;
            self.sweep_output();
        }
    }

    /// Carries out what was submitted; true when the thread has to end.
    fn obey(&mut self) -> bool {
        for command in self.commands.take() {
            match command {
                Command::Quit => return true,
                Command::Cleaned(allocation, end) => self.over(allocation, end),
                Command::Act(action) => {
                    if self.is_current(action.fence()) {
                        self.act(action);
                    }
                }
            }
        }
        false
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Launch(fence, launch) => self.launch(fence, *launch),
            Action::Bind(fence, _) => self.refuse(fence.allocation),
            Action::Stop(fence, stop) => self.stop(fence, stop),
            Action::Forget(fence) => self.forget(fence.allocation),
        }
    }

    /// Refuses actions of an earlier daemon.
    fn is_current(&mut self, fence: Fence) -> bool {
        if fence.term < self.settings.term {
            let (given, seen) = (fence.term, self.settings.term);
            tracing::warn!(
                "refusing an action of term {given} about allocation {}: {seen} is seen",
                fence.allocation
            );
            return false;
        }
        if fence.term > self.settings.term {
            self.settings.term = fence.term;
            if let Err(error) = keep_term(&self.settings.state, fence.term) {
                tracing::warn!("keeping term {} in {}: {error}", fence.term, self.settings.state.display());
            }
        }
        true
    }

    fn launch(&mut self, fence: Fence, launch: Launch) {
        if self.tasks.contains_key(&fence.allocation) {
            return self.repeat(fence.allocation);
        }
        let record = RecordDir::of(&self.settings.state, fence.allocation);
        let devices = launch.devices.iter().map(|device| device.uuid.clone()).collect();
        let stage = match self.start(&record, fence, launch) {
            Ok((pid, supervisor)) => {
                let held = Held { supervisor: pid, devices, ..Held::default() };
                self.processes.held().insert(fence.allocation, held);
                Stage::Supervised { supervisor, is_child: true }
            }
            Err(error) => {
                let path = record.path().display();
                let failure = LaunchFailure::Other(format!("starting a supervisor in {path}: {error}"));
                self.conclude_unstarted(&record, fence.allocation, EndedHow::LaunchFailed(failure))
            }
        };
        self.tasks.insert(fence.allocation, Task { record, stage, started: None, stop: None });
    }

    /// Ends an allocation that is not a process: nothing else runs on this machine.
    fn refuse(&mut self, allocation: AllocationId) {
        let record = RecordDir::of(&self.settings.state, allocation);
        let failure = LaunchFailure::Other("this pool runs processes, and none was named".into());
        let stage = self.conclude_unstarted(&record, allocation, EndedHow::LaunchFailed(failure));
        self.tasks.insert(allocation, Task { record, stage, started: None, stop: None });
    }

    fn start(&mut self, record: &RecordDir, fence: Fence, launch: Launch) -> io::Result<(u32, OwnedFd)> {
        let is_made = match self.spares.pop() {
            Some(spare) => record.make_of(&spare).or_else(|_| record.make()),
            None => record.make(),
        };
        if !is_made? {
            return Err(io::Error::other(
                "the directory is there already, and is not a task's that is known",
            ));
        }
        let lock =
            record.try_lock()?.ok_or_else(|| io::Error::other("somebody holds the lock of a new record"))?;
        let pool = Pool {
            user: self.user.clone(),
            state: self.settings.state.clone(),
            socket: self.settings.socket.clone(),
            kept_output_most_bytes: self.settings.kept_output_most_bytes,
        };
        let order = LaunchRecord {
            fence,
            launch,
            boot_id: self.boot_id.clone(),
            pool,
            cgroups: self.parents.clone(),
        };
        record.write(LAUNCH, &order)?;
        let spawned = self.program.supervise(record.path(), lock)?;
        self.watch(fence.allocation, &spawned.pidfd)?;
        Ok((spawned.pid, spawned.pidfd))
    }

    fn watch(&self, allocation: AllocationId, supervisor: &OwnedFd) -> io::Result<()> {
        let mark = epoll::EventData::new_u64(allocation.0);
        Ok(epoll::add(&self.epoll, supervisor, mark, epoll::EventFlags::IN)?)
    }

    /// Ends a task that has no process, so that it stays ended: in the record if that can be written, else only
    /// until this daemon ends.
    fn conclude_unstarted(&self, record: &RecordDir, allocation: AllocationId, how: EndedHow) -> Stage {
        let end = TaskEnd { at: wall(), how, ..TaskEnd::default() };
        let ended = EndedRecord { end: end.clone(), boot_id: self.boot_id.clone() };
        if let Err(error) = record.make().and_then(|_| record.write(ENDED, &ended)) {
            tracing::warn!("writing the end of a task into {}: {error}", record.path().display());
            // On a full disk, a half-made directory would rightly be taken for a launch that never began.
            let _ = record.remove();
        }
        self.outbox.put([Observation::Ended(allocation, end.clone())]);
        Stage::Over(end)
    }

    fn stop(&mut self, fence: Fence, stop: Stop) {
        let allocation = fence.allocation;
        let Some(task) = self.tasks.get_mut(&allocation) else { return self.fence_off(allocation) };
        if matches!(task.stage, Stage::Over(_)) {
            return self.repeat(allocation);
        }
        if task.stop.as_ref().is_none_or(|former| fence > former.fence) {
            task.stop = Some(StopRecord::new(fence, &stop, task.stop.as_ref()));
            self.deliver(allocation);
        }
    }

    /// Makes it impossible to launch an allocation that was stopped before its launch.
    fn fence_off(&mut self, allocation: AllocationId) {
        let record = RecordDir::of(&self.settings.state, allocation);
        let stage = self.conclude_unstarted(&record, allocation, EndedHow::NeverStarted);
        self.tasks.insert(allocation, Task { record, stage, started: None, stop: None });
    }

    fn deliver(&mut self, allocation: AllocationId) {
        let Some(Task { record, stage, stop: Some(stop), .. }) = self.tasks.get(&allocation) else { return };
        let delivery = match stage {
            Stage::Supervised { supervisor, .. } => orders::give(record, stop, Some(supervisor)),
            Stage::Unsettled => orders::give(record, stop, None),
            Stage::Cleaning | Stage::Over(_) => Delivery::Done,
        };
        if delivery == Delivery::Failed {
            self.undelivered.insert(allocation);
        }
    }

    fn forget(&mut self, allocation: AllocationId) {
        let Some(task) = self.tasks.get(&allocation) else { return };
        if !matches!(task.stage, Stage::Over(_)) {
            return tracing::warn!("told to forget allocation {allocation}, which has not ended: it is kept");
        }
        match task.record.retire() {
            Ok(Some(spare)) if self.spares.len() < MOST_SPARES => self.spares.push(spare),
            Ok(Some(spare)) => drop(spare.remove()),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!("removing {}: {error}; remove it by hand", task.record.path().display());
            }
        }
        self.tasks.remove(&allocation);
    }

    /// Reports again what is known of a task.
    pub(super) fn repeat(&self, allocation: AllocationId) {
        let Some(task) = self.tasks.get(&allocation) else { return };
        let started = task.started.clone().map(|start| Observation::Started(allocation, start));
        let ended = match &task.stage {
            Stage::Over(end) => Some(Observation::Ended(allocation, end.clone())),
            _ => None,
        };
        self.outbox.put(started.into_iter().chain(ended));
    }

    fn hear_of_starts(&mut self) {
        let mut buffer = [0; 32];
        while let Ok(length) = self.socket.recv(&mut buffer) {
            let text = std::str::from_utf8(&buffer[..length]).ok();
            if let Some(allocation) = text.and_then(|text| text.parse().ok()) {
                self.look_for_start(AllocationId(allocation));
            }
        }
    }

    /// Reports that a task runs, if its record says so and this was not reported yet.
    pub(super) fn look_for_start(&mut self, allocation: AllocationId) {
        let Some(task) = self.tasks.get_mut(&allocation).filter(|task| task.started.is_none()) else {
            return;
        };
        if let Ok(Some(record)) = task.record.read::<StartedRecord>(STARTED) {
            task.started = Some(record.start.clone());
            self.outbox.put([Observation::Started(allocation, record.start)]);
        }
    }

    fn supervisor_ended(&mut self, allocation: AllocationId) {
        let Some(task) = self.tasks.get(&allocation) else { return };
        let Stage::Supervised { supervisor, is_child } = &task.stage else { return };
        if *is_child {
            let _ = waitid(WaitId::PidFd(std::os::fd::AsFd::as_fd(supervisor)), WaitIdOptions::EXITED);
        }
        self.conclude(allocation);
    }

    /// Finds out how a task ended whose supervisor is gone.
    pub(super) fn conclude(&mut self, allocation: AllocationId) {
        self.look_for_start(allocation);
        let Some(task) = self.tasks.get_mut(&allocation) else { return };
        if let Ok(Some(ended)) = task.record.read::<EndedRecord>(ENDED) {
            return self.over(allocation, ended.end);
        }
        task.stage = Stage::Cleaning;
        let order = task.record.read::<LaunchRecord>(LAUNCH).ok().flatten();
        let lost = adopt::Lost {
            allocation,
            record: task.record.clone(),
            parents: order.map_or_else(|| self.parents.clone(), |order| order.cgroups),
            boot_id: self.boot_id.clone(),
        };
        let commands = self.commands.clone();
        // A process that sleeps in the kernel may take long to die; the other tasks must not wait for it.
        let clean = move || {
            let end = lost.clean();
            commands.give([Command::Cleaned(allocation, end)]);
        };
        if let Err(error) = std::thread::Builder::new().name("divvy-clean".into()).spawn(clean) {
            tracing::warn!("cleaning up after a lost supervisor: {error}; trying again");
            self.set_stage(allocation, Stage::Unsettled);
        }
    }

    pub(super) fn set_stage(&mut self, allocation: AllocationId, stage: Stage) {
        if let Some(task) = self.tasks.get_mut(&allocation) {
            task.stage = stage;
        }
    }

    fn over(&mut self, allocation: AllocationId, mut end: TaskEnd) {
        if let Some(held) = self.processes.held().remove(&allocation) {
            end.usage.devices = held.meter.usage();
            end.usage.xid = held.meter.xid();
        }
        self.set_stage(allocation, Stage::Over(end.clone()));
        let locked = match &end.how {
            EndedHow::LaunchFailed(LaunchFailure::DeviceLocked(uuid, ..)) => Some(uuid.clone()),
            _ => None,
        };
        self.outbox.put([Observation::Ended(allocation, end)]);
        // After the end, since this makes the pool believe that the device is another's: the next look tells.
        if let Some(uuid) = locked {
            self.processes.doubt(&uuid);
        }
    }

    /// Finds the supervisor's process, or finds that there is none.
    pub(super) fn settle(&mut self, allocation: AllocationId) {
        let Some(task) = self.tasks.get(&allocation) else { return };
        match adopt::find_supervisor(&task.record) {
            adopt::Found::Nobody => self.conclude(allocation),
            adopt::Found::NotYet => {}
            adopt::Found::Supervisor(pid, supervisor) => {
                if self.watch(allocation, &supervisor).is_err() {
                    return;
                }
                if let Some(held) = self.processes.held().get_mut(&allocation) {
                    held.supervisor = pid;
                }
                self.set_stage(allocation, Stage::Supervised { supervisor, is_child: false });
                // The supervisor may have looked for an order's file before the order was given.
                self.deliver(allocation);
                self.look_for_start(allocation);
            }
        }
    }

    pub(super) fn hold(&self, allocation: AllocationId, devices: Vec<String>) {
        self.processes.held().insert(allocation, Held { devices, ..Held::default() });
    }

    /// Removes old output, beside the other work. Files of running tasks are kept however old they are.
    fn sweep_output(&self) {
        let alive = self.tasks.values().filter(|task| !matches!(task.stage, Stage::Over(_)));
        let job = |task: &Task| Some(task.record.read::<LaunchRecord>(LAUNCH).ok()??.launch.job.to_string());
        let alive: BTreeSet<String> = alive.filter_map(job).collect();
        let (state, age) = (self.settings.state.clone(), self.settings.kept_output_age);
        let sweep = move || output::remove_old(&state, age, &alive);
        if let Err(error) = std::thread::Builder::new().name("divvy-sweep".into()).spawn(sweep) {
            tracing::warn!("removing old output files: {error}; trying again tomorrow");
        }
    }
}

/// Binds the socket on which supervisors report starts. It is bound before records are read, so that no start is missed.
fn bind(state: &Path) -> Result<UnixDatagram, OpenError> {
    let path = state.join("engine.sock");
    let error =
        |source| OpenError::State { doing: "binding the engine's socket", path: path.clone(), source };
    match std::fs::remove_file(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(error(source)),
        _ => {}
    }
    // Uses a descriptor: the path itself may be too long for a socket address.
    let folder = std::fs::File::open(state).map_err(error)?;
    let short = format!("/proc/self/fd/{}/engine.sock", std::os::fd::AsRawFd::as_raw_fd(&folder));
    let socket = UnixDatagram::bind(short).map_err(error)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Returns the name of the user whose pool it is, or the uid if it has no name.
fn user_name() -> String {
    let uid = rustix::process::geteuid().as_raw();
    let mut buffer = vec![0; 16 * 1024];
    let mut found = std::ptr::null_mut();
    // SAFETY: the struct is plain pointers and numbers; struct and buffer outlive the call and what is read after it.
    let name = unsafe {
        let mut entry: libc::passwd = std::mem::zeroed();
        let error = libc::getpwuid_r(uid, &raw mut entry, buffer.as_mut_ptr(), buffer.len(), &raw mut found);
        (error == 0 && !found.is_null())
            .then(|| std::ffi::CStr::from_ptr(entry.pw_name).to_string_lossy().into_owned())
    };
    name.unwrap_or_else(|| uid.to_string())
}
