//! Starting supervisors.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::supervisor::{LOCK_FD, SUPERVISE};
use super::tree::RECORD_VARIABLE;

/// Descriptors below this are for the new process.
const FIRST_OWN_FD: i32 = 10;

/// The program that supervisors run: opened once, so that they are of the daemon's own version when the file is replaced.
#[derive(Debug)]
pub(crate) struct Program {
    path: CString,
    /// The daemon's environment variables that supervisors need: Divvy's own.
    environment: Vec<CString>,
    _file: OwnedFd,
}

/// A supervisor that was started.
#[derive(Debug)]
pub(crate) struct Spawned {
    pub(crate) pid: u32,
    pub(crate) pidfd: OwnedFd,
}

impl Program {
    /// Opens the program.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = above(std::fs::File::open(path)?.into())?;
        // The record variable must not be passed on if the daemon is itself a job of an outer pool: it would mix the
        // outer pool's marks with ours. The supervisor still descends from the outer job.
        let is_wanted = |name: &str| name.starts_with("DIVVY_") && name != RECORD_VARIABLE;
        let variables = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_wanted));
        let entries = variables.filter_map(|(name, value)| {
            CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok()
        });
        Ok(Self {
            path: CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?,
            environment: entries.collect(),
            _file: file,
        })
    }

    /// Starts the supervisor of a record, which inherits the record's lock.
    pub(crate) fn supervise(&self, record: &Path, lock: OwnedFd) -> io::Result<Spawned> {
        let lock = above(lock)?;
        let record_text = CString::new(record.as_os_str().as_bytes())?;
        let mark = CString::new([RECORD_VARIABLE.as_bytes(), b"=", record_text.as_bytes()].concat())?;
        let supervise = CString::new(SUPERVISE)?;
        let arguments = [c"divvy".as_ptr(), supervise.as_ptr(), record_text.as_ptr(), std::ptr::null()];
        let environment = self.environment.iter().map(|entry| entry.as_ptr());
        let environment: Vec<_> = environment.chain([mark.as_ptr(), std::ptr::null()]).collect();
        let pid = spawn(&self.path, &arguments, &environment, lock.as_raw_fd())?;
        let child = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
        // The pid stays valid until the child is reaped, which only this thread does.
        Ok(Spawned { pid: pid.unsigned_abs(), pidfd: pidfd_open(child, PidfdFlags::empty())? })
    }
}

fn above(fd: OwnedFd) -> io::Result<OwnedFd> {
    match fd.as_raw_fd() >= FIRST_OWN_FD {
        true => Ok(fd),
        false => Ok(rustix::io::fcntl_dupfd_cloexec(&fd, FIRST_OWN_FD)?),
    }
}

/// Spawns in a session of its own with all signals blocked and nothing open but the lock. (`Command` has no
/// way to ask for a session without forking the whole address space of the daemon.)
fn spawn(
    path: &CString,
    arguments: &[*const libc::c_char],
    environment: &[*const libc::c_char],
    lock: i32,
) -> io::Result<i32> {
    // SAFETY: both structs are initialised before use and destroyed after; all pointers outlive the calls.
    unsafe {
        let mut actions: libc::posix_spawn_file_actions_t = std::mem::zeroed();
        let mut attributes: libc::posix_spawnattr_t = std::mem::zeroed();
        check(libc::posix_spawn_file_actions_init(&raw mut actions))?;
        check(libc::posix_spawnattr_init(&raw mut attributes))?;
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        let mut default: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut default);
        // If it were ignored, children would vanish before their end is known.
        libc::sigaddset(&raw mut default, libc::SIGCHLD);
        let flags =
            i32::from(libc::POSIX_SPAWN_SETSID) | libc::POSIX_SPAWN_SETSIGMASK | libc::POSIX_SPAWN_SETSIGDEF;
        libc::posix_spawnattr_setsigmask(&raw mut attributes, &raw const all);
        libc::posix_spawnattr_setsigdefault(&raw mut attributes, &raw const default);
        libc::posix_spawnattr_setflags(&raw mut attributes, libc::c_short::try_from(flags).unwrap_or(0));
        libc::posix_spawn_file_actions_adddup2(&raw mut actions, lock, LOCK_FD);
        for (fd, mode) in [(0, libc::O_RDONLY), (1, libc::O_WRONLY), (2, libc::O_WRONLY)] {
            libc::posix_spawn_file_actions_addopen(&raw mut actions, fd, c"/dev/null".as_ptr(), mode, 0);
        }
        let mut pid = 0;
        let spawned = libc::posix_spawn(
            &raw mut pid,
            path.as_ptr(),
            &raw const actions,
            &raw const attributes,
            arguments.as_ptr().cast(),
            environment.as_ptr().cast(),
        );
        libc::posix_spawnattr_destroy(&raw mut attributes);
        libc::posix_spawn_file_actions_destroy(&raw mut actions);
        check(spawned).map(|()| pid)
    }
}

fn check(error: i32) -> io::Result<()> {
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}
