//! Machine-wide locks on devices, so that two pools on one machine cannot hand out the same device.
//!
//! There is one file per device, in a folder that everybody can write; the holder of the write lock on it holds the
//! device. The locks belong to the open file and not to the process (`F_OFD_SETLK`): they survive `fork`, and are
//! released when the last descriptor of the file is closed, however the processes end. The file's text only says who
//! the holder claims to be; whether there is a holder, the kernel tells.
//!
//! **Invariant:** no lock file is ever removed; otherwise a second file of that name could be locked, too.

mod file;
mod place;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use place::Place;

/// The holder of a device. Other pools see it as `foreign: pool of ana`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockOwner {
    /// The name of the user whose pool it is.
    pub user: String,
    /// The pool's state directory.
    pub pool: String,
}

/// Why a device can't be locked or asked about.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another pool, or another allocation of this one, holds the device.
    #[error("locking device {uuid}: it is held by the pool of {} in {}", .owner.user, .owner.pool)]
    Held {
        /// The device.
        uuid: String,
        /// The claimed holder.
        owner: LockOwner,
    },
    /// The device's name can't be a file name.
    #[error("locking device {uuid:?}: a device's name is of letters, digits, '-' and '/', 128 at most")]
    BadName {
        /// The name, printable.
        uuid: String,
    },
    /// There is no place for lock files.
    #[error("locking device {uuid}: none of {} can hold lock files; make one with `install -d -m 1777 /run/lock/divvy` as root, or set DIVVY_LOCKS to a folder that all pools of this machine share", .tried.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "))]
    NoPlace {
        /// The device.
        uuid: String,
        /// The folders tried.
        tried: Vec<PathBuf>,
    },
    /// The lock file can't be used as it is.
    #[error("locking device {uuid}: {} {problem}; remove it as root when no pool is running", path.display())]
    Unusable {
        /// The device.
        uuid: String,
        /// The lock file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

/// The places of the machine's device locks.
#[derive(Debug, Clone)]
pub struct Locks {
    places: Vec<Place>,
}

impl Locks {
    /// Uses the machine's own places, or the folder that `DIVVY_LOCKS` names.
    pub fn from_env() -> Self {
        match std::env::var_os("DIVVY_LOCKS") {
            Some(folder) if !folder.is_empty() => Self::at(Path::new(&folder)),
            _ => Self { places: place::of_the_machine() },
        }
    }

    /// Uses one folder, which is made if it is missing.
    pub fn at(folder: &Path) -> Self {
        Self { places: vec![Place::own(folder)] }
    }

    /// Locks a device, or says who holds it. The lock is held until all copies of the returned descriptor are closed.
    pub fn acquire(&self, uuid: &str, owner: &LockOwner) -> Result<DeviceLock, LockError> {
        let name = file_name(uuid)?;
        let place =
            self.places.iter().find(|place| place.prepare().is_ok()).ok_or_else(|| LockError::NoPlace {
                uuid: uuid.to_owned(),
                tried: self.places.iter().map(|place| place.folder().to_owned()).collect(),
            })?;
        let path = place.file(&name);
        let unusable = |error: io::Error| unusable(uuid, &path, &error);
        let Some(fd) = file::lock(&path).map_err(unusable)? else {
            return Err(self.held(uuid, &path));
        };
        // A pool that could not use this place took the next one. Both pools look at all places after they took
        // theirs: both may give up, but never both hold the device.
        for other in self.places.iter().map(|place| place.file(&name)).filter(|other| *other != path) {
            if file::is_locked(&other).unwrap_or(false) {
                return Err(self.held(uuid, &other));
            }
        }
        file::write_owner(&fd, owner).map_err(unusable)?;
        Ok(DeviceLock { uuid: uuid.to_owned(), fd })
    }

    /// Returns who holds a device, without taking it.
    pub fn query(&self, uuid: &str) -> Result<Option<LockOwner>, LockError> {
        let name = file_name(uuid)?;
        for place in &self.places {
            let path = place.file(&name);
            match file::is_locked(&path) {
                Ok(true) => return Ok(Some(file::read_owner(&path))),
                Err(error) if place.is_trusted() => return Err(unusable(uuid, &path, &error)),
                Ok(false) | Err(_) => {}
            }
        }
        Ok(None)
    }

    fn held(&self, uuid: &str, path: &Path) -> LockError {
        LockError::Held { uuid: uuid.to_owned(), owner: file::read_owner(path) }
    }
}

fn unusable(uuid: &str, path: &Path, error: &io::Error) -> LockError {
    LockError::Unusable { uuid: uuid.to_owned(), path: path.to_owned(), problem: error.to_string() }
}

/// Turns a device's name into a file name. (The names of MIG instances have slashes in older drivers.)
fn file_name(uuid: &str) -> Result<String, LockError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '/');
    if uuid.is_empty() || uuid.len() > 128 || !uuid.chars().all(is_plain) {
        return Err(LockError::BadName { uuid: crate::printable(uuid) });
    }
    Ok(format!("{}.lock", uuid.replace('/', "_")))
}

/// A held device: an open lock file. It is always inherited by `fork`, and closed on `exec` unless asked otherwise.
#[derive(Debug)]
pub struct DeviceLock {
    uuid: String,
    fd: OwnedFd,
}

impl DeviceLock {
    /// Takes over a descriptor that was inherited, with the lock that is on it.
    pub fn from_fd(uuid: &str, fd: OwnedFd) -> Self {
        Self { uuid: uuid.to_owned(), fd }
    }

    /// Returns the device.
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// Sets whether the descriptor, and so the lock, survives when this process, or a child of it, runs another
    /// program: yes for the supervisor, no for a job.
    pub fn set_inherit_on_exec(&self, inherit: bool) -> io::Result<()> {
        let flags = if inherit { rustix::io::FdFlags::empty() } else { rustix::io::FdFlags::CLOEXEC };
        Ok(rustix::io::fcntl_setfd(&self.fd, flags)?)
    }

    /// Gives the descriptor away; the lock stays on it.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

impl AsFd for DeviceLock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for DeviceLock {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests;
