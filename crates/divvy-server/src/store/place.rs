//! The state directory as a place: on a local file system, private, and used by one daemon at a time.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock, statfs};

use super::error::StoreError;

/// What is wrong with a place for a state directory.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The directory is reached over a network or through a program: locks and fsync cannot be trusted there.
    #[error(
        "the state directory {} is on {kind}, where file locks and fsync cannot be relied on; use a local disk: --state {}",
        path.display(), proposal.display()
    )]
    NotLocal {
        /// The directory.
        path: PathBuf,
        /// The kind of file system.
        kind: &'static str,
        /// A suitable local directory.
        proposal: PathBuf,
    },
    /// Another daemon uses it.
    #[error("the state directory {} is used by another divvy daemon{}: stop that one first (`divvy down`), or use another --state", path.display(), with_pid(*pid))]
    Taken {
        /// The directory.
        path: PathBuf,
        /// The daemon's process id, if it could be read.
        pid: Option<u32>,
    },
    /// Other users could change it.
    #[error("the state directory {} belongs to user {owner}, not to you: use another --state", path.display())]
    NotYours {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
}

fn with_pid(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

/// Exclusive use of a state directory by this process, until dropped.
#[derive(Debug)]
pub struct Claim {
    lock: File,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // A child that was just forked also has the file until it runs another program: unlocking frees it for all. If this fails,
        // closing the file releases the lock.
        let _ = flock(&self.lock, FlockOperation::NonBlockingUnlock);
    }
}

/// Makes the directory if it does not exist, and claims it. `mode` is its mode: 0700, or 0711 where others must reach the socket
/// in it.
pub fn claim(state: &Path, mode: u32) -> Result<Claim, StoreError> {
    refuse_remote(state)?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(state)
        .map_err(StoreError::io("make the state directory", state))?;
    refuse_others(state)?;
    let permissions = Permissions::from_mode(mode);
    std::fs::set_permissions(state, permissions).map_err(StoreError::io("set the permissions of", state))?;
    let lock = lock(state)?;
    Ok(Claim { lock })
}

/// Claims an existing directory without changing its permissions.
pub fn claim_as_is(state: &Path) -> Result<Claim, StoreError> {
    refuse_others(state)?;
    Ok(Claim { lock: lock(state)? })
}

/// Refuses a directory on a file system that is not local.
pub fn refuse_remote(state: &Path) -> Result<(), StoreError> {
    let existing = state.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
    let existing = if existing.as_os_str().is_empty() { Path::new(".") } else { existing };
    let magic = magic_of(existing).map_err(StoreError::io("look at the file system of", existing))?;
    match remote_kind(magic) {
        None => Ok(()),
        Some(kind) => Err(PlaceError::NotLocal { path: state.to_owned(), kind, proposal: proposal() }.into()),
    }
}

fn magic_of(path: &Path) -> io::Result<u32> {
    // The magic is 32 bits wide on every architecture; its field is not.
    Ok((statfs(path)?.f_type as u64 & 0xffff_ffff) as u32)
}

/// Returns the kind of a refused file system, by its magic number (`statfs(2)`, `linux/magic.h`).
pub fn remote_kind(magic: u32) -> Option<&'static str> {
    let kinds = [
        (0x6969, "NFS"),
        (0x0bd0_0bd0, "Lustre"),
        (0x6573_5546, "FUSE"),
        (0x0102_1997, "9p"),
        (0x517b, "SMB"),
        (0xfe53_4d42, "SMB"),
        (0xff53_4d42, "CIFS"),
        (0x00c3_6400, "Ceph"),
        (0x5346_414f, "AFS"),
        (0x6b41_4653, "AFS"),
        (0x4750_4653, "GPFS"),
        (0x1983_0326, "BeeGFS"),
        (0xaad7_aaea, "PanFS"),
        (0x7461_636f, "OCFS2"),
        (0x0116_1970, "GFS2"),
        (0x7375_7245, "Coda"),
        (0x786f_4256, "VirtualBox shared folders"),
        (0x564c, "NCP"),
    ];
    kinds.iter().find(|(known, _)| *known == magic).map(|(_, kind)| *kind)
}

/// Returns the first usual place that is local.
fn proposal() -> PathBuf {
    let uid = rustix::process::getuid().as_raw();
    let places = [
        PathBuf::from("/var/lib/divvy"),
        PathBuf::from(format!("/var/tmp/divvy-{uid}")),
        PathBuf::from(format!("/tmp/divvy-{uid}/state")),
    ];
    let mine = if uid == 0 { &places[..] } else { &places[1..] };
    let local = |path: &&PathBuf| {
        let existing = path.ancestors().find(|path| path.exists());
        existing.and_then(|path| magic_of(path).ok()).is_some_and(|magic| remote_kind(magic).is_none())
    };
    mine.iter().find(local).unwrap_or(&mine[0]).clone()
}

fn refuse_others(state: &Path) -> Result<(), StoreError> {
    let status = rustix::fs::stat(state).map_err(|error| StoreError::io("look at", state)(error.into()))?;
    let me = rustix::process::geteuid().as_raw();
    if status.st_uid != me && me != 0 {
        return Err(PlaceError::NotYours { path: state.to_owned(), owner: status.st_uid }.into());
    }
    Ok(())
}

/// How long to wait for the lock of a dead owner. A daemon killed during a launch leaves a child that holds a copy of the lock
/// until its `exec`: milliseconds, more on a machine under load.
const DEAD_OWNER_WITHIN: Duration = Duration::from_secs(10);

/// Locks the directory for this process; the kernel releases it when the process is gone, however it ended.
fn lock(state: &Path) -> Result<File, StoreError> {
    let path = state.join("lock");
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let mut file = open.map_err(StoreError::io("open", &path))?;
    let until = Instant::now() + DEAD_OWNER_WITHIN;
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let pid = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
        if pid.is_none_or(is_alive) || Instant::now() > until {
            return Err(PlaceError::Taken { path: state.to_owned(), pid }.into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let note = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    note.map_err(StoreError::io("write", &path))?;
    Ok(file)
}

/// Returns whether a process exists and is not merely waiting to be reaped.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which is in brackets and may contain anything.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_that_are_not_local_are_known_by_their_magic() {
        assert_eq!(remote_kind(0x6969), Some("NFS"));
        assert_eq!(remote_kind(0x0bd0_0bd0), Some("Lustre"));
        assert_eq!(remote_kind(0x6573_5546), Some("FUSE"));
        for local in [0xef53u32, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630] {
            assert_eq!(remote_kind(local), None, "{local:x}");
        }
    }

    #[test]
    fn a_second_claim_is_refused_and_names_the_pid() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("a/b");
        let first = claim(&state, 0o700).unwrap();
        let refused = claim(&state, 0o700).unwrap_err().to_string();
        assert!(refused.contains(&format!("pid {}", std::process::id())), "{refused}");
        drop(first);
        claim(&state, 0o700).unwrap();
        assert_eq!(std::fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_lock_that_a_dead_daemon_left_with_a_child_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let file = File::create(&path).unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        let mut dead = std::process::Command::new("true").spawn().unwrap();
        dead.wait().unwrap();
        std::fs::write(&path, format!("{}\n", dead.id())).unwrap();
        // The child holds the lock for a moment longer than its parent lives.
        let child = std::process::Command::new("sleep").arg("0.1").stdin(file).spawn().unwrap();
        claim(dir.path(), 0o700).unwrap();
        drop(child.wait_with_output().unwrap());
    }

    #[test]
    fn a_proposed_place_is_local() {
        let place = proposal();
        assert!(place.is_absolute());
        refuse_remote(&place).unwrap();
    }
}
