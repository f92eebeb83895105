//! Device locks between processes.
#![allow(clippy::unwrap_used, reason = "what a test's own functions can't set up has failed the test")]

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use divvy_gpu::{LockError, LockOwner, Locks};

const UUID: &str = "GPU-fa4e0000-0000-4000-8000-000000000000";

/// The user of other processes if this one is root: nobody.
const OTHER_UID: u32 = 65_534;

fn owner(user: &str) -> LockOwner {
    LockOwner { user: user.to_owned(), pool: format!("/home/{user}/divvy") }
}

/// A forked process holds copies of all descriptors, and so the locks of other tests, until it runs its own program:
/// so only one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn locks(folder: &tempfile::TempDir) -> Locks {
    // Others must be able to reach the folder below.
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    Locks::at(&folder.path().join("locks"))
}

/// Runs `act` in a forked process, as another user if this one is root, and returns its answer.
fn elsewhere(act: impl FnOnce() -> u8) -> i32 {
    // SAFETY: the child runs only `act`, which takes no lock that another thread may have held at the fork, and leaves
    // without running this process's exit functions.
    unsafe {
        match libc::fork() {
            0 => {
                if libc::geteuid() == 0 && (libc::setgid(OTHER_UID) != 0 || libc::setuid(OTHER_UID) != 0) {
                    libc::_exit(99);
                }
                libc::_exit(i32::from(act()))
            }
            child => {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &mut status, 0), child, "{}", io::Error::last_os_error());
                assert!(libc::WIFEXITED(status), "ended by a signal: {status}");
                libc::WEXITSTATUS(status)
            }
        }
    }
}

const TAKEN: u8 = 1;
const HELD: u8 = 2;

fn try_to_take(locks: &Locks, holder: &LockOwner) -> u8 {
    match locks.acquire(UUID, &owner("bo")) {
        Ok(_) => TAKEN,
        Err(LockError::Held { owner, .. }) if owner == *holder => HELD,
        Err(_) => 3,
    }
}

#[test]
fn another_users_process_is_refused_and_told_by_whom() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let locks = locks(&folder);
    let held = locks.acquire(UUID, &owner("ana")).unwrap();
    assert_eq!(elsewhere(|| try_to_take(&locks, &owner("ana"))), i32::from(HELD));
    drop(held);
    assert_eq!(elsewhere(|| try_to_take(&locks, &owner("ana"))), i32::from(TAKEN));
}

#[test]
fn a_file_that_another_user_made_can_be_locked_by_all() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let locks = locks(&folder);
    // The folder, as root makes it.
    drop(locks.acquire("GPU-0", &owner("root")).unwrap());
    assert_eq!(elsewhere(|| try_to_take(&locks, &owner("bo"))), i32::from(TAKEN));
    drop(locks.acquire(UUID, &owner("ana")).unwrap());
}

#[test]
fn a_process_that_is_killed_lets_go() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let locks = locks(&folder);
    let mut holder = held_by_another_program(&locks, true);
    assert_eq!(locks.query(UUID).unwrap(), Some(owner("ana")));
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(locks.query(UUID).unwrap(), None);
}

#[test]
fn a_program_that_is_run_does_not_get_the_lock_unless_asked() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let locks = locks(&folder);
    let mut job = held_by_another_program(&locks, false);
    assert_eq!(locks.query(UUID).unwrap(), None);
    job.kill().unwrap();
    job.wait().unwrap();
}

/// Takes the lock, starts a program, and releases its own copy.
fn held_by_another_program(locks: &Locks, inherit: bool) -> std::process::Child {
    let lock = locks.acquire(UUID, &owner("ana")).unwrap();
    lock.set_inherit_on_exec(inherit).unwrap();
    // The call returns once the program has been executed, so after descriptors were closed on it.
    Command::new(Path::new("/bin/sleep")).arg("1000").stdin(Stdio::null()).spawn().unwrap()
}

#[test]
fn of_many_takers_at_once_one_wins() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let locks = locks(&folder);
    for round in 0..50 {
        let uuid = format!("GPU-{round}");
        let barrier = std::sync::Barrier::new(4);
        let won: Vec<_> = std::thread::scope(|scope| {
            let takers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.wait();
                        locks.acquire(&uuid, &owner("ana")).ok()
                    })
                })
                .collect();
            takers.into_iter().map(|taker| taker.join().unwrap()).collect()
        });
        assert_eq!(won.iter().flatten().count(), 1, "round {round}");
    }
}
