use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

const UUID: &str = "GPU-fa4e0000-0000-4000-8000-000000000000";

fn owner(user: &str) -> LockOwner {
    LockOwner { user: user.to_owned(), pool: format!("/home/{user}/.local/state/divvy") }
}

fn place() -> (tempfile::TempDir, Locks, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let locks = Locks::at(&folder.path().join("locks"));
    let file = folder.path().join("locks").join(format!("{UUID}.lock"));
    (folder, locks, file)
}

#[test]
fn a_second_pool_learns_who_has_the_device_and_gets_it_when_it_is_let_go() {
    let (_folder, locks, _) = place();
    assert_eq!(locks.query(UUID).unwrap(), None);
    let held = locks.acquire(UUID, &owner("ana")).unwrap();
    assert_eq!(locks.query(UUID).unwrap(), Some(owner("ana")));
    let error = locks.acquire(UUID, &owner("bo")).unwrap_err();
    assert!(matches!(&error, LockError::Held { owner: holder, .. } if *holder == owner("ana")), "{error}");
    assert!(error.to_string().contains("held by the pool of ana in /home/ana/"), "{error}");
    drop(held);
    assert_eq!(locks.query(UUID).unwrap(), None);
    drop(locks.acquire(UUID, &owner("bo")).unwrap());
}

#[test]
fn a_long_path_and_odd_characters_in_it_are_told_whole() {
    let (_folder, locks, _) = place();
    let pool = format!("/home/{}/\n", "ü".repeat(1000));
    let _held = locks.acquire(UUID, &LockOwner { user: "ana".to_owned(), pool }).unwrap();
    assert_eq!(locks.query(UUID).unwrap().unwrap().pool, format!("/home/{}/\u{FFFD}", "ü".repeat(1000)));
}

#[test]
fn the_lock_lives_as_long_as_any_copy_of_its_descriptor() {
    let (_folder, locks, _) = place();
    let held = locks.acquire(UUID, &owner("ana")).unwrap();
    let copy = held.as_fd().try_clone_to_owned().unwrap();
    drop(held);
    assert_eq!(locks.query(UUID).unwrap(), Some(owner("ana")));
    drop(DeviceLock::from_fd(UUID, copy));
    assert_eq!(locks.query(UUID).unwrap(), None);
}

#[test]
fn a_query_disturbs_neither_holder_nor_taker() {
    let (_folder, locks, _) = place();
    let _held = locks.acquire(UUID, &owner("ana")).unwrap();
    for _ in 0..100 {
        assert!(locks.query(UUID).unwrap().is_some());
    }
    assert!(matches!(locks.acquire(UUID, &owner("bo")), Err(LockError::Held { .. })));
}

#[test]
fn folder_and_file_are_everybodys_whatever_the_umask() {
    let (_folder, locks, file) = place();
    drop(locks.acquire(UUID, &owner("ana")).unwrap());
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o666);
    assert_eq!(fs::metadata(file.parent().unwrap()).unwrap().mode() & 0o7777, 0o1777);
    let names: Vec<_> =
        fs::read_dir(file.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 1, "a draft is left: {names:?}");
}

#[test]
fn hostile_text_in_a_lock_file_is_shown_harmless() {
    let (_folder, locks, file) = place();
    let _held = locks.acquire(UUID, &owner("ana")).unwrap();
    for text in
        [&b"user \x1b[2Jeve\npool \xff\xfe\n"[..], b"", b"\0\0\0", &[b'u'; 100_000], b"user \npool \n"]
    {
        fs::write(&file, text).unwrap();
        let shown = format!("{:?}", locks.query(UUID).unwrap().unwrap());
        assert!(!shown.contains("\\u{1b}") && shown.len() < 20_000, "{shown}");
    }
    let made_by = crate::foreign::user_name(rustix::process::geteuid().as_raw());
    assert_eq!(locks.query(UUID).unwrap().unwrap().user, made_by);
}

#[test]
fn links_pipes_and_files_with_a_second_name_are_refused_untouched() {
    let (folder, locks, file) = place();
    drop(locks.acquire("GPU-other", &owner("ana")).unwrap());
    let victim = folder.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let plants: [fn(&Path, &Path); 3] = [
        |victim, file| symlink(victim, file).unwrap(),
        |victim, file| fs::hard_link(victim, file).unwrap(),
        |_, file| {
            rustix::fs::mknodat(rustix::fs::CWD, file, rustix::fs::FileType::Fifo, 0o666.into(), 0).unwrap()
        },
    ];
    for plant in plants {
        plant(&victim, &file);
        let error = locks.acquire(UUID, &owner("ana")).unwrap_err();
        assert!(matches!(error, LockError::Unusable { .. }), "{error}");
        assert!(locks.query(UUID).is_err());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn names_that_are_no_devices_never_become_paths() {
    let (_folder, locks, _) = place();
    for name in ["", "../../etc/passwd", "GPU-\0", "a b", &"x".repeat(129)] {
        assert!(matches!(locks.query(name), Err(LockError::BadName { .. })), "{name:?}");
    }
    // An instance's name in older drivers.
    drop(locks.acquire("MIG-GPU-fa4e0000/1/0", &owner("ana")).unwrap());
}

#[test]
fn a_pool_that_had_to_lock_elsewhere_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (Place::own(&folder.path().join("run")), Place::own(&folder.path().join("tmp")));
    let both = Locks { places: vec![first, second.clone()] };
    let kept_out = Locks { places: vec![second] };
    let held = kept_out.acquire(UUID, &owner("ana")).unwrap();
    assert!(
        matches!(both.acquire(UUID, &owner("bo")), Err(LockError::Held { owner: o, .. }) if o == owner("ana"))
    );
    assert_eq!(both.query(UUID).unwrap(), Some(owner("ana")));
    drop(held);
    drop(both.acquire(UUID, &owner("bo")).unwrap());
}

#[test]
fn a_plant_in_a_place_that_is_not_ours_keeps_nobody_out() {
    let folder = tempfile::tempdir().unwrap();
    let (run, tmp) = (folder.path().join("run"), folder.path().join("tmp"));
    fs::create_dir(&tmp).unwrap();
    fs::set_permissions(&tmp, fs::Permissions::from_mode(0o1777)).unwrap();
    symlink("/etc/passwd", tmp.join(format!("divvy-{UUID}.lock"))).unwrap();
    let locks = Locks { places: vec![Place::own(&run), Place::shared(&tmp)] };
    assert_eq!(locks.query(UUID).unwrap(), None);
    let _held = locks.acquire(UUID, &owner("ana")).unwrap();
    assert_eq!(locks.query(UUID).unwrap(), Some(owner("ana")));
}

#[test]
fn a_held_file_is_kept_from_those_who_clean_up_folders() {
    let (_folder, locks, file) = place();
    let _held = locks.acquire(UUID, &owner("ana")).unwrap();
    let cleaner = fs::File::open(&file).unwrap();
    assert!(rustix::fs::flock(&cleaner, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err());
}

#[test]
fn where_no_folder_can_be_had_the_error_says_how_to_make_one() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let locks = Locks::at(&folder.path().join("file/locks"));
    let error = locks.acquire(UUID, &owner("ana")).unwrap_err().to_string();
    assert!(error.contains("install -d -m 1777") && error.contains("DIVVY_LOCKS"), "{error}");
}

#[test]
fn a_folder_with_a_wrong_mode_is_mended() {
    let (_folder, locks, file) = place();
    fs::create_dir(file.parent().unwrap()).unwrap();
    fs::set_permissions(file.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    drop(locks.acquire(UUID, &owner("ana")).unwrap());
    assert_eq!(fs::metadata(file.parent().unwrap()).unwrap().mode() & 0o7777, 0o1777);
}
