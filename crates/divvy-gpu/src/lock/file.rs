//! One lock file: opened with care, since anybody may have put it there.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use super::LockOwner;
use crate::foreign::user_name;
use crate::printable::{printable, printable_path};

/// The most bytes of a lock file that are read: a user's name and a path of maximum length fit.
const MOST_BYTES: u64 = 8192;

/// How often a file may be replaced while it is opened before that counts as intent.
const MOST_TRIES: u32 = 16;

/// Locks the file at `path`, made if it is missing; `None` if another holder has it.
pub(super) fn lock(path: &Path) -> io::Result<Option<OwnedFd>> {
    for _ in 0..MOST_TRIES {
        let file = match open(path, true) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create(path)?;
                continue;
            }
            other => other?,
        };
        if !take(&file)? {
            return Ok(None);
        }
        if is_still_at(&file, path)? {
            keep_from_cleaners(&file);
            return Ok(Some(OwnedFd::from(file)));
        }
    }
    Err(io::Error::other("is replaced again and again by somebody"))
}

/// Returns whether somebody holds the file at `path`, without disturbing the holder.
pub(super) fn is_locked(path: &Path) -> io::Result<bool> {
    match open(path, false) {
        Ok(file) => {
            let mut question = whole_file();
            fcntl(&file, libc::F_OFD_GETLK, &mut question)?;
            Ok(i32::from(question.l_type) != libc::F_UNLCK)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Opens without making: where `fs.protected_regular` is set, not even root may open another user's file in a
/// shared folder with `O_CREAT`. Links are not followed, and only a plain file with one name is accepted: nobody
/// can make this process write another file or wait for a pipe.
fn open(path: &Path, write: bool) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY;
    let file = fs::OpenOptions::new().read(true).write(write).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.nlink() > 1 {
        return Err(io::Error::other("is not a plain file with one name"));
    }
    Ok(file)
}

/// Makes the file under a name of its own first, so that it never exists under its proper name with a mode that keeps
/// other users out.
fn create(path: &Path) -> io::Result<()> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = format!(".{name}.{}.{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let draft = path.with_file_name(draft);
    let file = File::create_new(&draft)?;
    let named = file.set_permissions(Permissions::from_mode(0o666)).and_then(|()| rename_new(&draft, path));
    match named {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => fs::remove_file(&draft),
        Err(error) => fs::remove_file(&draft).and(Err(error)),
        Ok(()) => Ok(()),
    }
}

fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let flags = rustix::fs::RenameFlags::NOREPLACE;
    Ok(rustix::fs::renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, flags)?)
}

fn take(file: &File) -> io::Result<bool> {
    match fcntl(file, libc::F_OFD_SETLK, &mut whole_file()) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
        Ok(()) => Ok(true),
    }
}

/// Takes a shared lock of the other kind, which programs that remove old files from /tmp respect (systemd-tmpfiles
/// does): if a held file were removed, a second holder could use its name. Without this lock the device lock still
/// holds.
fn keep_from_cleaners(file: &File) {
    let _ = rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockShared);
}

/// Returns whether the locked file is still the one at `path`.
fn is_still_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn whole_file() -> libc::flock {
    // SAFETY: plain integers, for which zero is a value; a length of zero means up to the end.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}

fn fcntl(file: &File, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the descriptor is open and the commands take a pointer to this struct.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Writes who holds the lock.
pub(super) fn write_owner(fd: &OwnedFd, owner: &LockOwner) -> io::Result<()> {
    let mut file = File::from(fd.try_clone()?);
    file.set_len(0)?;
    let text = format!("user {}\npool {}\n", printable(&owner.user), printable_path(&owner.pool));
    file.write_all(text.as_bytes())
}

/// Reads who claims to hold the lock; what the text does not state properly is filled from the file's owner.
pub(super) fn read_owner(path: &Path) -> LockOwner {
    let file = open(path, false);
    let made_by =
        file.as_ref().ok().and_then(|file| file.metadata().ok()).map(|metadata| user_name(metadata.uid()));
    let mut bytes = Vec::new();
    if let Ok(file) = file {
        // If reading fails midway, the text read until then counts.
        let _ = file.take(MOST_BYTES).read_to_end(&mut bytes);
    }
    let text = String::from_utf8_lossy(&bytes);
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        Some(value).filter(|value| !value.trim().is_empty())
    };
    LockOwner {
        user: field("user").map(printable).or(made_by).unwrap_or_else(|| "unknown".to_owned()),
        pool: field("pool").map_or_else(|| "an unknown place".to_owned(), printable_path),
    }
}
