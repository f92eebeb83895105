//! What a task finds when it starts.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use divvy_core::action::Action;
use divvy_core::engine::{EndedHow, LaunchFailure};

use crate::pool::{Pool, device, is_root, launch};

crate::tests![
    the_environment_is_the_submitted_one_and_divvys,
    a_missing_environment_is_a_launch_failure,
    a_command_that_does_not_exist_is_127,
    a_file_that_is_not_executable_is_126,
    a_directory_that_cannot_be_entered_is_a_launch_failure,
    the_jobs_own_path_is_searched,
    a_directory_of_path_that_the_user_may_not_search_holds_no_command,
    the_task_leads_a_session_and_has_no_open_files_of_the_supervisor,
    umask_and_limits_are_the_submitters,
    a_task_of_another_user_has_that_users_rights,
    secrets_are_in_no_record,
    a_device_that_another_pool_holds_is_a_launch_failure,
];

fn the_environment_is_the_submitted_one_and_divvys() {
    let mut pool = Pool::new();
    let mut launch = pool.shell(12, "env");
    launch.devices = vec![device("GPU-env-a"), device("GPU-env-b")];
    pool.launch(12, launch);
    assert_eq!(pool.how(12), EndedHow::Exited(0));
    let log = pool.log(12);
    let record = format!("DIVVY_RECORD={}", pool.record(12).display());
    for line in [
        "SECRET=s3cret",
        "CUDA_VISIBLE_DEVICES=GPU-env-a,GPU-env-b",
        "NVIDIA_VISIBLE_DEVICES=GPU-env-a,GPU-env-b",
        "CUDA_DEVICE_ORDER=PCI_BUS_ID",
        "DIVVY_JOB_ID=12",
        "DIVVY_ALLOCATION=12",
        "DIVVY_SOCKET=/run/divvy/socket",
        &record,
    ] {
        assert!(log.lines().any(|found| found == line), "no {line} in {log}");
    }
}

fn a_missing_environment_is_a_launch_failure() {
    let mut pool = Pool::new();
    let (fence, order) = (pool.fence(5), launch(5, &["true"]));
    pool.submit(Action::Launch(fence, Box::new(order)));
    assert!(matches!(pool.how(5), EndedHow::LaunchFailed(LaunchFailure::Environment(_))));
}

fn a_command_that_does_not_exist_is_127() {
    let mut pool = Pool::new();
    for (allocation, command) in [(1, "no-such-command"), (2, "/no/such/command"), (3, "./none")] {
        pool.launch(allocation, launch(allocation, &[command]));
        let EndedHow::LaunchFailed(failure) = pool.how(allocation) else { panic!("{command} ran") };
        assert_eq!(failure, LaunchFailure::CommandNotFound(command.into()));
        assert_eq!(failure.exit_code(), 127);
    }
}

fn a_file_that_is_not_executable_is_126() {
    let mut pool = Pool::new();
    let write = |name: &str, text: &str, mode: u32| {
        let path = pool.work().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let plain = write("plain", "echo", 0o644);
    let no_line = write("no-line", "echo hello", 0o755);
    let no_interpreter = write("no-interpreter", "#!/no/such/interpreter\n", 0o755);
    let directory = pool.work().to_str().unwrap().to_owned();
    for (allocation, command) in (1..).zip([plain, no_line, no_interpreter, directory]) {
        pool.launch(allocation, launch(allocation, &[&command]));
        let how = pool.how(allocation);
        assert!(matches!(how, EndedHow::LaunchFailed(LaunchFailure::NotExecutable(_))), "{command}: {how:?}");
    }
}

fn a_directory_that_cannot_be_entered_is_a_launch_failure() {
    let mut pool = Pool::new();
    let mut order = launch(1, &["true"]);
    order.process.directory = "/no/such/directory".into();
    pool.launch(1, order);
    let how = pool.how(1);
    assert!(
        matches!(&how, EndedHow::LaunchFailed(LaunchFailure::Directory(text)) if text.contains("/no/such"))
    );
    assert!(!pool.seen.iter().any(|seen| matches!(seen, divvy_core::engine::Observation::Started(..))));
}

fn the_jobs_own_path_is_searched() {
    let mut pool = Pool::new();
    let folder = pool.work().join("bin");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("mine"), "#!/bin/sh\nexit 42\n").unwrap();
    fs::set_permissions(folder.join("mine"), fs::Permissions::from_mode(0o755)).unwrap();
    let base = [("PATH".into(), format!("/nowhere:{}", folder.display()))].into();
    divvy_engine::local::JobEnvironment { base, roles: Default::default() }.write(&pool.state(), 9).unwrap();
    let (fence, order) = (pool.fence(9), launch(9, &["mine"]));
    pool.submit(Action::Launch(fence, Box::new(order)));
    assert_eq!(pool.how(9), EndedHow::Exited(42));
}

fn a_directory_of_path_that_the_user_may_not_search_holds_no_command() {
    if !is_root() {
        return println!("not root: tasks of other users are not tried");
    }
    let mut pool = Pool::new();
    let closed = pool.work().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let base = [("PATH".into(), format!("{}:/nowhere", closed.display()))].into();
    divvy_engine::local::JobEnvironment { base, roles: Default::default() }.write(&pool.state(), 9).unwrap();
    let mut order = launch(9, &["mine"]);
    (order.owner.uid, order.owner.gid) = (54_321, 54_322);
    order.process.directory = "/".into();
    let fence = pool.fence(9);
    pool.submit(Action::Launch(fence, Box::new(order)));
    assert_eq!(pool.how(9), EndedHow::LaunchFailed(LaunchFailure::CommandNotFound("mine".into())));
}

fn the_task_leads_a_session_and_has_no_open_files_of_the_supervisor() {
    let mut pool = Pool::new();
    pool.script(
        1,
        "cut -d' ' -f1,5,6 /proc/$$/stat; ls /proc/$$/fd; grep -E 'SigBlk|SigIgn' /proc/self/status",
    );
    assert_eq!(pool.how(1), EndedHow::Exited(0));
    let log = pool.log(1);
    let lines: Vec<&str> = log.lines().collect();
    let ids: Vec<&str> = lines[0].split(' ').collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{log}");
    assert_eq!(lines[1..4], ["0", "1", "2"], "{log}");
    assert!(lines[4..].iter().all(|line| line.ends_with("0000000000000000")), "{log}");
}

fn umask_and_limits_are_the_submitters() {
    let mut pool = Pool::new();
    let mut order = pool.shell(1, "umask; ulimit -Sn; ulimit -Hn; ulimit -c");
    order.process.umask = 0o027;
    // The last hard limit is beyond what may be set: it is lowered, not refused.
    order.process.limits =
        vec![("NOFILE".into(), 100, 200), ("CORE".into(), 0, u64::MAX), ("NONSENSE".into(), 1, 1)];
    pool.launch(1, order);
    assert_eq!(pool.how(1), EndedHow::Exited(0));
    assert_eq!(pool.log(1).lines().collect::<Vec<_>>(), ["0027", "100", "200", "0"]);
}

fn a_task_of_another_user_has_that_users_rights() {
    if !is_root() {
        return println!("not root: tasks of other users are not tried");
    }
    let mut pool = Pool::new();
    let mut order =
        launch(1, &["/bin/sh", "-c", "id -u; id -g; id -G; cat /etc/shadow; cat $DIVVY_RECORD/launch.json"]);
    (order.owner.uid, order.owner.gid, order.owner.groups) = (54_321, 54_322, vec![54_322, 54_323]);
    pool.launch(1, order);
    assert_eq!(pool.how(1), EndedHow::Exited(1));
    let log = pool.log(1);
    assert!(log.starts_with("54321\n54322\n54322 54323\n"), "{log}");
    assert_eq!(log.matches("ermission denied").count(), 2, "{log}");
    let metadata = fs::metadata(divvy_engine::local::kept_output(&pool.state(), order_job(), 0)).unwrap();
    assert_eq!((metadata.uid(), metadata.mode() & 0o777), (54_321, 0o600));
}

fn order_job() -> divvy_core::id::JobId {
    divvy_core::id::JobId::single(1)
}

fn secrets_are_in_no_record() {
    let mut pool = Pool::new();
    pool.script(1, "exit 0");
    pool.ended(1);
    let records = fs::read_dir(pool.record(1)).unwrap().flatten();
    let files: Vec<_> = records.filter(|entry| entry.file_type().unwrap().is_file()).collect();
    assert!(files.len() >= 4);
    for file in files {
        let text = fs::read_to_string(file.path()).unwrap();
        assert!(!text.contains("s3cret"), "{:?}", file.path());
    }
}

/// Children that other tests fork have a copy of every open file, and with it the lock, until they run their program.
fn wait_until_free(uuid: &str) {
    let locks = divvy_gpu::Locks::from_env();
    for _ in 0..5000 {
        if locks.query(uuid).unwrap().is_none() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("{uuid} stays locked");
}

fn a_device_that_another_pool_holds_is_a_launch_failure() {
    let mut pool = Pool::new();
    let owner = divvy_gpu::LockOwner { user: "ana".into(), pool: "/elsewhere".into() };
    let held = divvy_gpu::Locks::from_env().acquire("GPU-of-ana", &owner).unwrap();
    let mut order = launch(1, &["true"]);
    order.devices = vec![device("GPU-free"), device("GPU-of-ana")];
    pool.launch(1, order);
    let EndedHow::LaunchFailed(LaunchFailure::DeviceLocked(uuid, owner, state)) = pool.how(1) else {
        panic!("it ran")
    };
    assert_eq!((uuid.as_str(), owner.as_str(), state.as_str()), ("GPU-of-ana", "ana", "/elsewhere"));
    drop(held);
    wait_until_free("GPU-of-ana");
    let mut order = launch(2, &["true"]);
    order.devices = vec![device("GPU-free"), device("GPU-of-ana")];
    pool.launch(2, order);
    assert_eq!(pool.how(2), EndedHow::Exited(0));
}
