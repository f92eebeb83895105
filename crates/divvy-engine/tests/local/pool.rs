//! A pool of one engine in a directory of its own, and what tests ask of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use divvy_core::action::{Action, ExposedDevice, Fence, Launch, Stop};
use divvy_core::engine::{EndedHow, Engine, Observation, TaskEnd, TaskStart};
use divvy_core::id::{AllocationId, JobId, Term};
use divvy_core::model::device::Draw;
use divvy_core::model::job::{Owner, Process};
use divvy_engine::local::{JobEnvironment, LocalEngine, Settings};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// No event takes that long on a machine that works.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Pool {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) engine: Option<LocalEngine>,
    pub(crate) seen: Vec<Observation>,
    pub(crate) term: Term,
    pub(crate) kept_output_most_bytes: u64,
    /// The devices of the next engine that is opened.
    pub(crate) devices: Option<divvy_gpu::Source>,
    bell: Option<Receiver<()>>,
    seq: u32,
}

impl Pool {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["state", "work"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let mut pool = Self {
            folder,
            engine: None,
            seen: Vec::new(),
            term: Term(1),
            kept_output_most_bytes: 1 << 30,
            devices: None,
            bell: None,
            seq: 0,
        };
        pool.open();
        pool
    }

    /// A pool with the devices of a machine.
    pub(crate) fn on(machine: &divvy_gpu::testing::FakeMachine) -> Self {
        let mut pool = Self::new();
        pool.close();
        pool.devices = Some(machine.source());
        pool.open();
        pool
    }

    pub(crate) fn settings(&self, term: Term, wake: impl Fn() + Send + Sync + 'static) -> Settings {
        let mut settings = Settings::new(self.state(), "/run/divvy/socket", term, wake);
        settings.kept_output_most_bytes = self.kept_output_most_bytes;
        settings
    }

    pub(crate) fn open(&mut self) {
        let (bell, heard) = channel();
        let mut settings = self.settings(self.term, move || {
            let _ = bell.send(());
        });
        settings.devices = self.devices.take();
        settings.sample_every = Duration::from_millis(20);
        self.engine = Some(LocalEngine::open(settings).unwrap());
        self.bell = Some(heard);
    }

    /// Ends the daemon's part and starts it again; what was seen before is forgotten.
    pub(crate) fn restart(&mut self) {
        self.close();
        self.open();
    }

    pub(crate) fn close(&mut self) {
        self.engine = None;
        self.seen.clear();
        self.term.0 += 1;
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("state").canonicalize().unwrap()
    }

    /// A folder for the files of jobs.
    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    pub(crate) fn record(&self, allocation: u64) -> PathBuf {
        self.state().join("tasks").join(allocation.to_string())
    }

    pub(crate) fn fence(&mut self, allocation: u64) -> Fence {
        self.seq += 1;
        Fence { term: self.term, allocation: AllocationId(allocation), seq: self.seq }
    }

    pub(crate) fn submit(&mut self, action: Action) {
        self.engine.as_mut().unwrap().submit(&[action]);
    }

    pub(crate) fn launch(&mut self, allocation: u64, launch: Launch) {
        let environment = JobEnvironment { base: environment(), roles: BTreeMap::new() };
        environment.write(&self.state(), launch.job.number).unwrap();
        let fence = self.fence(allocation);
        self.submit(Action::Launch(fence, Box::new(launch)));
    }

    /// Launches a shell script, in the folder for the files of jobs.
    pub(crate) fn script(&mut self, allocation: u64, script: &str) {
        let launch = self.shell(allocation, script);
        self.launch(allocation, launch);
    }

    pub(crate) fn shell(&self, allocation: u64, script: &str) -> Launch {
        let mut launch = launch(allocation, &["/bin/sh", "-c", script]);
        launch.process.directory = self.work().to_str().unwrap().into();
        launch
    }

    pub(crate) fn stop(&mut self, allocation: u64, signal: &str, grace_ms: i64) {
        let fence = self.fence(allocation);
        self.submit(Action::Stop(fence, Stop { signal: signal.to_owned().into(), grace_ms }));
    }

    /// Waits for an observation.
    pub(crate) fn wait<T>(&mut self, what: &str, pick: impl Fn(&Observation) -> Option<T>) -> T {
        let until = Instant::now() + PATIENCE;
        loop {
            self.seen.extend(self.engine.as_mut().unwrap().observe());
            if let Some(found) = self.seen.iter().find_map(&pick) {
                return found;
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.bell.as_ref().unwrap().recv_timeout(left) {
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => panic!("no {what} among {:?}", self.seen),
                Err(RecvTimeoutError::Disconnected) => panic!("the engine is gone"),
            }
        }
    }

    pub(crate) fn started(&mut self, allocation: u64) -> TaskStart {
        self.wait(&format!("start of {allocation}"), |observation| match observation {
            Observation::Started(id, start) if id.0 == allocation => Some(start.clone()),
            _ => None,
        })
    }

    pub(crate) fn ended(&mut self, allocation: u64) -> TaskEnd {
        self.wait(&format!("end of {allocation}"), |observation| match observation {
            Observation::Ended(id, end) if id.0 == allocation => Some(end.clone()),
            _ => None,
        })
    }

    pub(crate) fn how(&mut self, allocation: u64) -> EndedHow {
        self.ended(allocation).how
    }

    pub(crate) fn inventory(&mut self) -> Vec<u64> {
        self.wait("inventory", |observation| match observation {
            Observation::Inventory(all) => Some(all.iter().map(|allocation| allocation.0).collect()),
            _ => None,
        })
    }

    /// Waits for the bell of the engine.
    pub(crate) fn hear(&self) {
        self.bell.as_ref().unwrap().recv_timeout(PATIENCE).unwrap();
    }

    pub(crate) fn log(&self, allocation: u64) -> String {
        let path = divvy_engine::local::kept_output(&self.state(), JobId::single(allocation), 0);
        String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
    }

    /// The pids that scripts wrote into a file of theirs.
    pub(crate) fn pids(&self, file: &str) -> Vec<u32> {
        let text = fs::read_to_string(self.work().join(file)).unwrap_or_default();
        text.lines().filter_map(|line| line.trim().parse().ok()).collect()
    }

    pub(crate) fn assert_all_gone(&self, file: &str, least: usize) {
        let pids = self.pids(file);
        assert!(pids.len() >= least, "only {pids:?} in {file}");
        for pid in pids {
            assert!(!is_alive(pid), "process {pid} of the task is still alive");
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Nothing of a failed test stays behind.
        let records = fs::read_dir(self.folder.path().join("state/tasks")).into_iter().flatten().flatten();
        let supervisors = records.filter_map(|record| fs::read_to_string(record.path().join("lock")).ok());
        for pid in supervisors.filter_map(|text| text.trim().parse::<u32>().ok()) {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if String::from_utf8_lossy(&command).contains("__supervise") {
                kill_tree(pid);
            }
        }
    }
}

fn kill_tree(supervisor: u32) {
    let children =
        fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).unwrap_or_default();
    send(supervisor, libc::SIGKILL);
    children
        .split_ascii_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .for_each(|pid| send(pid, libc::SIGKILL));
}

pub(crate) fn environment() -> BTreeMap<String, String> {
    [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("SECRET", "s3cret")].map(|(k, v)| (k.into(), v.into())).into()
}

/// A task of one process without devices, of whoever runs the tests.
pub(crate) fn launch(job: u64, argv: &[&str]) -> Launch {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    Launch {
        job: JobId::single(job),
        name: "test".into(),
        attempt: 1,
        restart: 0,
        rank: 0,
        world_size: 1,
        is_elastic: false,
        role: "task".into(),
        role_rank: (0, 1),
        local_rank: (0, 1),
        node: "local".into(),
        devices: Vec::new(),
        cpu_milli: 0,
        cpu_is_ceiling: false,
        memory_bytes: 0,
        owner: Owner { name: "tester".into(), uid, gid, groups: Vec::new() },
        queue: "default".into(),
        process: Process {
            argv: argv.iter().map(|word| (*word).into()).collect(),
            directory: "/".into(),
            umask: 0o022,
            ..Process::default()
        },
        rendezvous: (String::new(), 0),
    }
}

pub(crate) fn device(uuid: &str) -> ExposedDevice {
    ExposedDevice {
        uuid: uuid.into(),
        minor: None,
        draw: Draw { milli: 1000, memory_mib: 80_000, partition: None },
    }
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether a process is there and no zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

pub(crate) fn send(pid: u32, signal: i32) {
    // SAFETY: no memory is involved; the pid is a process of the test's.
    unsafe { libc::kill(i32::try_from(pid).unwrap(), signal) };
}

/// Waits until a process has ended.
pub(crate) fn await_end(pid: u32) {
    let Ok(pidfd) = pidfd_open(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), PidfdFlags::empty())
    else {
        return;
    };
    let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&patience)).unwrap();
    assert_eq!(ready, 1, "process {pid} does not end");
}

/// Waits until a file is there (and, with a length, at least that long), by looking again and again.
pub(crate) fn await_file(path: &Path, least_bytes: u64) {
    let until = Instant::now() + PATIENCE;
    while fs::metadata(path).map_or(true, |metadata| metadata.len() < least_bytes) {
        assert!(Instant::now() < until, "{} does not come", path.display());
        std::thread::yield_now();
    }
}

/// Waits until a record is there, or about to be.
pub(crate) fn await_record(path: &Path) {
    let beside = path.with_extension("json.new");
    let until = Instant::now() + PATIENCE;
    while !path.exists() && !beside.exists() {
        assert!(Instant::now() < until, "{} does not come", path.display());
        std::thread::yield_now();
    }
}

/// Waits until there are that many lines in a file.
pub(crate) fn await_lines(path: &Path, count: usize) {
    let until = Instant::now() + PATIENCE;
    while fs::read_to_string(path).map_or(true, |text| text.matches('\n').count() < count) {
        assert!(Instant::now() < until, "{} does not get {count} lines", path.display());
        std::thread::yield_now();
    }
}

/// Waits until nobody holds the lock of a record. (Other tests' engines are in the same process: what they spawn at the
/// same time may hold a copy for a moment.)
pub(crate) fn await_unlocked(record: &Path) {
    let lock = fs::File::open(record.join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
}

/// Returns the supervisor of a task that has started.
pub(crate) fn supervisor(pool: &Pool, allocation: u64) -> u32 {
    fs::read_to_string(pool.record(allocation).join("lock")).unwrap().trim().parse().unwrap()
}
