//! File access as a user: with exactly that user's rights on the file system, never root's.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use divvy_core::model::job::Owner;
use rustix::fs::{Mode, OFlags};

/// Runs `act` with a user's rights, on this thread only. A daemon that is not root can only use its own rights.
pub(crate) fn as_user<T>(owner: &Owner, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    if !rustix::process::geteuid().is_root() || owner.uid == 0 {
        return act();
    }
    let guise = Guise::put_on(owner)?;
    let done = act();
    drop(guise);
    done
}

/// The thread's own identity, put back when dropped.
struct Guise {
    groups: Vec<libc::gid_t>,
}

impl Guise {
    fn put_on(owner: &Owner) -> io::Result<Self> {
        let groups = rustix::process::getgroups()?.into_iter().map(rustix::process::Gid::as_raw).collect();
        let guise = Self { groups };
        set_thread_groups(&owner.groups)?;
        // SAFETY: these change only this thread's file system identity; the kernel drops the matching capabilities.
        // They report no errors, so passing an impossible id reads the result back.
        let done = unsafe {
            libc::setfsgid(owner.gid);
            libc::setfsuid(owner.uid);
            (libc::setfsgid(u32::MAX) as u32, libc::setfsuid(u32::MAX) as u32)
        };
        if done == (owner.gid, owner.uid) { Ok(guise) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }
}

impl Drop for Guise {
    fn drop(&mut self) {
        // SAFETY: as above.
        let back = unsafe {
            libc::setfsuid(0);
            libc::setfsgid(0);
            (libc::setfsgid(u32::MAX), libc::setfsuid(u32::MAX))
        };
        if back != (0, 0) || set_thread_groups(&self.groups).is_err() {
            // A thread that kept another identity would do other users' work with the wrong rights.
            std::process::abort();
        }
    }
}

/// Makes the system call itself: the C library's function would change all threads.
fn set_thread_groups(groups: &[libc::gid_t]) -> io::Result<()> {
    // SAFETY: the pointer and length are those of a slice.
    let done = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Checks whether the user can enter a directory; the error says why not.
pub(crate) fn can_enter(owner: &Owner, directory: &Path) -> io::Result<()> {
    // Resolving `.` in it needs the search permission that `chdir` needs.
    let inside: PathBuf = directory.join(".");
    as_user(owner, || {
        rustix::fs::open(&inside, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(())
    })
}

/// Says whether the user can make files in a directory, and if not, why.
pub(crate) fn can_write(owner: &Owner, directory: &Path) -> io::Result<()> {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    as_user(owner, || Ok(accessat(CWD, directory, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)?))
}

/// Returns whether there is something at the path that the user can write to.
pub(crate) fn can_write_to(owner: &Owner, path: &Path) -> bool {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    as_user(owner, || Ok(accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)?)).is_ok()
}

/// Opens a file for reading as the user. Only plain files: opening others could block or do something.
pub(crate) fn open(owner: &Owner, path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = as_user(owner, || Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?)))?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a plain file")) }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn nobody() -> Owner {
        Owner { name: "nobody".into(), uid: 65_534, gid: 65_534, groups: vec![65_534] }
    }

    #[test]
    fn another_user_gets_no_further_than_the_file_system_lets_that_user() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let closed = dir.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::write(closed.join("secret"), "s").unwrap();
        fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
        assert_eq!(can_enter(&nobody(), &closed).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(
            open(&nobody(), &closed.join("secret")).unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
        assert!(can_write(&nobody(), dir.path()).is_err());
        assert!(!can_write_to(&nobody(), &dir.path().join("absent")));
        assert!(
            can_write(&nobody(), Path::new("/dev")).is_err()
                && can_write_to(&nobody(), Path::new("/dev/null"))
        );
        can_enter(&nobody(), dir.path()).unwrap();
        // And back again: root still can.
        fs::read(closed.join("secret")).unwrap();
        let root = Owner { name: "root".into(), uid: 0, gid: 0, groups: vec![0] };
        can_enter(&root, &closed).unwrap();
        assert!(can_write(&root, &closed).is_ok());
    }

    #[test]
    fn what_is_no_plain_file_is_not_opened() {
        let root = Owner { name: "me".into(), uid: rustix::process::geteuid().as_raw(), ..Owner::default() };
        assert!(open(&root, Path::new("/dev/null")).is_err());
        assert!(can_enter(&root, Path::new("/proc/self/exe")).is_err());
    }
}
