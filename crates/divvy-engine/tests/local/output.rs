//! Where output goes, and what is made of it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use divvy_core::engine::EndedHow;
use divvy_core::id::JobId;
use divvy_core::model::job::Output;

use crate::pool::{Pool, is_root, launch};

crate::tests![
    kept_output_is_appended_over_attempts,
    a_path_is_expanded_and_appended_to,
    a_path_that_cannot_be_opened_is_replaced_by_one_in_the_state_directory,
    a_users_file_is_opened_with_the_users_rights,
    a_pipe_nobody_reads_does_not_hold_up_the_start,
    a_gibibyte_of_output_is_kept_to_its_limit,
    exhausted_device_memory_is_recognised_in_the_last_lines_of_a_failure,
    a_file_of_the_users_is_searched_too,
];

fn kept_output_is_appended_over_attempts() {
    let mut pool = Pool::new();
    for (allocation, word) in [(1, "first"), (2, "second")] {
        let mut order = pool.shell(allocation, &format!("echo {word}; echo to-error >&2"));
        order.job = JobId::single(1);
        pool.launch(allocation, order);
        let path = pool.started(allocation).output.unwrap();
        assert_eq!(path, pool.state().join("output/1/0.log").to_str().unwrap());
        pool.ended(allocation);
    }
    assert_eq!(pool.log(1), "first\nto-error\nsecond\nto-error\n");
}

fn a_path_is_expanded_and_appended_to() {
    let mut pool = Pool::new();
    let mut order = pool.shell(1, "echo hello");
    (order.job, order.name) = (JobId::member(12, 3), "../x".into());
    let pattern = pool.work().join("divvy-%j-%A-%a-%x-%u.out");
    order.process.output = Output::Path(pattern.to_str().unwrap().into());
    order.process.umask = 0o077;
    let expected = pool.work().join("divvy-12_3-12-3-.._x-tester.out");
    fs::write(&expected, "before\n").unwrap();
    pool.launch(1, order);
    assert_eq!(pool.started(1).output.as_deref(), expected.to_str());
    pool.ended(1);
    assert_eq!(fs::read_to_string(expected).unwrap(), "before\nhello\n");
}

fn a_path_that_cannot_be_opened_is_replaced_by_one_in_the_state_directory() {
    let mut pool = Pool::new();
    for (allocation, path) in [(1, "/no/such/folder/x.out"), (2, "relative.out"), (3, "/")] {
        let mut order = pool.shell(allocation, "echo hello");
        order.process.output = Output::Path(path.into());
        pool.launch(allocation, order);
        let output = pool.started(allocation).output.unwrap();
        assert!(output.starts_with(pool.state().to_str().unwrap()), "{output}");
        assert_eq!(pool.how(allocation), EndedHow::Exited(0));
        assert_eq!(pool.log(allocation), "hello\n");
    }
}

fn a_users_file_is_opened_with_the_users_rights() {
    if !is_root() {
        return println!("not root: tasks of other users are not tried");
    }
    let mut pool = Pool::new();
    // The user must get as far as their own folder.
    fs::set_permissions(pool.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let folder = pool.work().join("home");
    fs::create_dir(&folder).unwrap();
    chown(&folder, Some(54_321), Some(54_321)).unwrap();
    let precious = pool.work().join("precious");
    fs::write(&precious, "precious").unwrap();
    std::os::unix::fs::symlink(&precious, folder.join("link")).unwrap();
    for (allocation, name) in [(1, "own"), (2, "link")] {
        let mut order = launch(allocation, &["echo", "hello"]);
        (order.owner.uid, order.owner.gid) = (54_321, 54_321);
        order.process.umask = 0o077;
        order.process.output = Output::Path(folder.join(name).to_str().unwrap().into());
        pool.launch(allocation, order);
        assert_eq!(pool.how(allocation), EndedHow::Exited(0));
    }
    let own = fs::metadata(folder.join("own")).unwrap();
    assert_eq!((own.uid(), own.mode() & 0o777, own.len()), (54_321, 0o600, 6));
    assert_eq!(fs::read_to_string(precious).unwrap(), "precious");
    assert_eq!(pool.log(2), "hello\n");
}

fn a_pipe_nobody_reads_does_not_hold_up_the_start() {
    let mut pool = Pool::new();
    pool.script(1, "mkfifo pipe");
    assert_eq!(pool.how(1), EndedHow::Exited(0));
    let mut order = pool.shell(2, "echo hello");
    order.process.output = Output::Path(pool.work().join("pipe").to_str().unwrap().into());
    pool.launch(2, order);
    assert_eq!(pool.how(2), EndedHow::Exited(0));
    assert_eq!(pool.log(2), "hello\n");
}

fn a_gibibyte_of_output_is_kept_to_its_limit() {
    let mut pool = Pool::new();
    pool.close();
    pool.kept_output_most_bytes = 32 << 20;
    pool.open();
    pool.script(1, "head -c 1G /dev/zero | tr '\\0' x; echo; echo the end");
    assert_eq!(pool.how(1), EndedHow::Exited(0));
    let path = divvy_engine::local::kept_output(&pool.state(), JobId::single(1), 0);
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(metadata.len(), (1 << 30) + 9);
    assert!(metadata.blocks() * 512 <= 33 << 20, "{} MiB", metadata.blocks() >> 11);
}

fn exhausted_device_memory_is_recognised_in_the_last_lines_of_a_failure() {
    let mut pool = Pool::new();
    let oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB";
    for (allocation, script, expected) in [
        (1, format!("echo '{oom}' >&2; exit 1"), true),
        (2, format!("echo '{oom}' >&2; exit 0"), false),
        (3, format!("echo '{oom}'; head -c 200000 /dev/zero; exit 1"), false),
        (4, "echo nothing of the kind; exit 1".into(), false),
    ] {
        pool.script(allocation, &script);
        assert_eq!(pool.ended(allocation).usage.out_of_gpu_memory, expected, "{script}");
    }
    // What an earlier attempt said does not count for the next.
    let mut order = pool.shell(5, "exit 1");
    order.job = JobId::single(1);
    pool.launch(5, order);
    assert!(!pool.ended(5).usage.out_of_gpu_memory);
}

fn a_file_of_the_users_is_searched_too() {
    let mut pool = Pool::new();
    let mut order = pool.shell(1, "echo RuntimeError: CUDA error: CUDA_ERROR_OUT_OF_MEMORY; exit 1");
    order.process.output = Output::Path(pool.work().join("x.out").to_str().unwrap().into());
    pool.launch(1, order);
    assert!(pool.ended(1).usage.out_of_gpu_memory);
}
