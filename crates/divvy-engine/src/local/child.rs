//! From fork to exec: what the new process does to itself before it becomes the task.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use divvy_core::action::Launch;
use divvy_core::engine::LaunchFailure;
use divvy_core::model::job::{Owner, Process};

use super::cgroup::Entrance;
use super::environment::USUAL_PATH;
use super::guise;

/// All that the new process needs, made before the fork.
#[derive(Debug)]
pub(crate) struct Program {
    arguments: Vec<CString>,
    /// Where the program may be, in this order.
    candidates: Vec<CString>,
    environment: Vec<CString>,
    directory: CString,
}

/// What the new process has open as its standard input, output and error.
#[derive(Debug)]
pub(crate) enum Standard {
    /// Nothing to read; both outputs go to one file.
    File(OwnedFd),
    /// The lower end of a terminal.
    Terminal(OwnedFd),
}

impl Program {
    /// Makes a program ready to be run with an environment.
    pub(crate) fn prepare(
        process: &Process,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, LaunchFailure> {
        let Some(name) = process.argv.first().filter(|name| !name.is_empty()) else {
            return Err(LaunchFailure::CommandNotFound("the command is empty".into()));
        };
        let path = environment.get("PATH").map_or(USUAL_PATH, String::as_str);
        let entries = environment.iter().map(|(name, value)| format!("{name}={value}"));
        Ok(Self {
            arguments: process.argv.iter().map(|word| text(word)).collect::<Result<_, _>>()?,
            candidates: candidates(name, path).iter().map(|word| text(word)).collect::<Result<_, _>>()?,
            environment: entries.map(|entry| text(&entry)).collect::<Result<_, _>>()?,
            directory: text(&process.directory)?,
        })
    }
}

fn text(text: &str) -> Result<CString, LaunchFailure> {
    let message = || LaunchFailure::Other("the command, directory or environment holds a zero byte".into());
    CString::new(text).map_err(|_| message())
}

/// A name with a slash is a path; others are looked for in `PATH`, in which an empty part is the working directory.
fn candidates(name: &str, path: &str) -> Vec<String> {
    if name.contains('/') {
        return vec![name.to_owned()];
    }
    let directories = path.split(':').map(|directory| if directory.is_empty() { "." } else { directory });
    directories.map(|directory| format!("{directory}/{name}")).collect()
}

/// Forks a process that becomes the task, and returns its pid. A failure on the way is written to `report`, which
/// closes on success.
pub(crate) fn fork(
    program: &Program,
    launch: &Launch,
    standard: &Standard,
    (entrance, report): (&mut Entrance, File),
) -> io::Result<u32> {
    let pid = fork_into(entrance)?;
    if pid != 0 {
        return Ok(pid.unsigned_abs());
    }
    let failure = become_task(program, launch, standard, entrance);
    if let Ok(bytes) = serde_json::to_vec(&failure) {
        let _ = (&report).write_all(&bytes);
    }
    // SAFETY: ends this process without running what belongs to the supervisor.
    unsafe { libc::_exit(failure.exit_code()) }
}

/// Forks; into a control group of version 2 directly where the kernel can (5.7), since moving later is slow.
fn fork_into(entrance: &mut Entrance) -> io::Result<i32> {
    if let Entrance::Directory(directory) = entrance {
        match clone_into(directory) {
            Ok(pid) => return Ok(pid),
            // The group is not at fault, or the kernel is older: it goes on without the group.
            Err(_) => *entrance = Entrance::None,
        }
    }
    // SAFETY: the supervisor has one thread, so that the child may do all that its parent could.
    match unsafe { libc::fork() } {
        pid if pid >= 0 => Ok(pid),
        _ => Err(io::Error::last_os_error()),
    }
}

fn clone_into(directory: &OwnedFd) -> io::Result<i32> {
    /// `struct clone_args` of <linux/sched.h>, all 64 bits wide.
    #[repr(C)]
    #[derive(Default)]
    struct CloneArguments {
        flags: u64,
        pidfd: u64,
        child_tid: u64,
        parent_tid: u64,
        exit_signal: u64,
        stack: u64,
        stack_size: u64,
        tls: u64,
        set_tid: u64,
        set_tid_size: u64,
        cgroup: u64,
    }
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    let arguments = CloneArguments {
        flags: CLONE_INTO_CGROUP,
        exit_signal: libc::SIGCHLD.unsigned_abs().into(),
        cgroup: directory.as_raw_fd().unsigned_abs().into(),
        ..CloneArguments::default()
    };
    // SAFETY: without shared memory this is a fork; the supervisor has one thread.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<CloneArguments>()) };
    match i32::try_from(pid) {
        Ok(pid) if pid >= 0 => Ok(pid),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns only if it fails.
fn become_task(
    program: &Program,
    launch: &Launch,
    standard: &Standard,
    entrance: &Entrance,
) -> LaunchFailure {
    let process = &launch.process;
    enter_group(entrance);
    // SAFETY: makes a session for this process alone.
    unsafe { libc::setsid() };
    if let Err(error) = take_standard(standard) {
        return LaunchFailure::Other(format!("connecting the job's output: {error}"));
    }
    if let Err(error) = become_user(&launch.owner) {
        return LaunchFailure::Other(format!("becoming user {}: {error}", launch.owner.name));
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(process.umask));
    apply_limits(&process.limits);
    if let Err(error) = rustix::process::chdir(program.directory.as_c_str()) {
        return LaunchFailure::Directory(format!("entering {}: {error}", process.directory));
    }
    reset_signals();
    execute(program, process)
}

/// A task that could not enter its group is found by descent, and its limits are not in force. This is accepted,
/// since it is rare (the group was made a moment ago).
fn enter_group(entrance: &Entrance) {
    if let Entrance::Files(files) = entrance {
        for mut file in files {
            let _ = file.write_all(b"0");
        }
    }
}

fn take_standard(standard: &Standard) -> io::Result<()> {
    match standard {
        Standard::File(output) => {
            rustix::stdio::dup2_stdout(output)?;
            rustix::stdio::dup2_stderr(output)?;
        }
        Standard::Terminal(lower) => {
            rustix::process::ioctl_tiocsctty(lower)?;
            rustix::stdio::dup2_stdin(lower)?;
            rustix::stdio::dup2_stdout(lower)?;
            rustix::stdio::dup2_stderr(lower)?;
        }
    }
    Ok(())
}

fn become_user(owner: &Owner) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    if !guise::set_groups(&owner.groups) {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: these take only numbers. The groups are set first, while that is still permitted.
    let is_done = unsafe {
        libc::setresgid(owner.gid, owner.gid, owner.gid) == 0
            && libc::setresuid(owner.uid, owner.uid, owner.uid) == 0
    };
    if is_done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Applies the limits of the submitting shell, lowered to what this process may set.
fn apply_limits(limits: &[(String, u64, u64)]) {
    for (name, soft, hard) in limits {
        let Some(resource) = resource(name) else { continue };
        let mut current = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the struct outlives both calls.
        unsafe {
            if libc::getrlimit(resource, &raw mut current) == 0 {
                let hard = (*hard).min(current.rlim_max);
                let wanted = libc::rlimit { rlim_cur: (*soft).min(hard), rlim_max: hard };
                libc::setrlimit(resource, &raw const wanted);
            }
        }
    }
}

fn resource(name: &str) -> Option<libc::__rlimit_resource_t> {
    let resources = [
        ("AS", libc::RLIMIT_AS),
        ("CORE", libc::RLIMIT_CORE),
        ("CPU", libc::RLIMIT_CPU),
        ("DATA", libc::RLIMIT_DATA),
        ("FSIZE", libc::RLIMIT_FSIZE),
        ("LOCKS", libc::RLIMIT_LOCKS),
        ("MEMLOCK", libc::RLIMIT_MEMLOCK),
        ("MSGQUEUE", libc::RLIMIT_MSGQUEUE),
        ("NICE", libc::RLIMIT_NICE),
        ("NOFILE", libc::RLIMIT_NOFILE),
        ("NPROC", libc::RLIMIT_NPROC),
        ("RSS", libc::RLIMIT_RSS),
        ("RTPRIO", libc::RLIMIT_RTPRIO),
        ("RTTIME", libc::RLIMIT_RTTIME),
        ("SIGPENDING", libc::RLIMIT_SIGPENDING),
        ("STACK", libc::RLIMIT_STACK),
    ];
    resources.iter().find(|(known, _)| *known == name).map(|(_, resource)| *resource)
}

/// Gives the new program what a login shell would: no signal ignored, none blocked.
fn reset_signals() {
    const LAST_SIGNAL: i32 = 64;
    /// The kernel's `struct sigaction` for the default: all of it zero.
    const DEFAULT: [u64; 4] = [0; 4];
    const MASK_BYTES: usize = 8;
    // SAFETY: sets dispositions and mask of this process, which is about to exec; KILL and STOP just fail. By system
    // call, since the library hides two signals of its own, which it leaves ignored.
    unsafe {
        for signal in 1..=LAST_SIGNAL {
            let nowhere = std::ptr::null_mut::<u64>();
            libc::syscall(libc::SYS_rt_sigaction, signal, DEFAULT.as_ptr(), nowhere, MASK_BYTES);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Tries the candidates in turn, as a shell would; returns only if none could be run.
fn execute(program: &Program, process: &Process) -> LaunchFailure {
    let arguments = pointers(&program.arguments);
    let environment = pointers(&program.environment);
    let mut denied = None;
    for candidate in &program.candidates {
        // SAFETY: all are zero-terminated lists of zero-terminated strings that outlive the call.
        unsafe { libc::execve(candidate.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
        let error = io::Error::last_os_error();
        let path = Path::new(OsStr::from_bytes(candidate.to_bytes()));
        // A file in a PATH directory that the user may not search counts as missing, as for a shell.
        let is_hidden = program.candidates.len() > 1 && std::fs::symlink_metadata(path).is_err();
        let is_absent = matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) || is_hidden;
        if !is_absent {
            denied.get_or_insert_with(|| format!("{}: {}", path.display(), in_words(&error, path)));
        } else if path.is_file() {
            denied.get_or_insert_with(|| format!("{}: its interpreter is missing", path.display()));
        }
    }
    match denied {
        Some(why) => LaunchFailure::NotExecutable(why),
        None => LaunchFailure::CommandNotFound(process.argv.first().cloned().unwrap_or_default()),
    }
}

fn in_words(error: &io::Error, path: &Path) -> String {
    match error.raw_os_error() {
        Some(libc::ENOEXEC) => "it is no program, and has no #! line".into(),
        Some(libc::EACCES) if path.is_dir() => "it is a directory".into(),
        _ => error.to_string(),
    }
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_for_in_path_and_paths_are_not() {
        assert_eq!(candidates("python", "/a::/b"), ["/a/python", "./python", "/b/python"]);
        assert_eq!(candidates("./run.sh", "/a:/b"), ["./run.sh"]);
    }

    #[test]
    fn an_empty_command_and_a_zero_byte_are_refused() {
        let process = |argv: &[&str]| Process {
            argv: argv.iter().map(|word| (*word).into()).collect(),
            directory: "/".into(),
            ..Process::default()
        };
        for argv in [&[][..], &[""][..]] {
            let refused = Program::prepare(&process(argv), &BTreeMap::new());
            assert!(matches!(refused, Err(LaunchFailure::CommandNotFound(_))));
        }
        let refused = Program::prepare(&process(&["a\0b"]), &BTreeMap::new());
        assert!(matches!(refused, Err(LaunchFailure::Other(_))));
    }
}
