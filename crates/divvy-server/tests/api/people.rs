//! Users, and that they can do nothing to each other.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::Sentence;
use crate::daemon::{Daemon, Reply, ask, submission};

pub(crate) const TESTS: &[Sentence] = &[
    (
        "another_users_job_is_seen_by_name_and_nothing_of_it_leaks",
        another_users_job_is_seen_by_name_and_nothing_of_it_leaks,
    ),
    (
        "a_job_runs_as_its_submitter_with_that_users_rights",
        a_job_runs_as_its_submitter_with_that_users_rights,
    ),
    ("a_directory_that_the_user_cannot_enter_is_refused", a_directory_that_the_user_cannot_enter_is_refused),
    ("only_administrators_end_the_daemon_and_set_queues", only_administrators_end_the_daemon_and_set_queues),
    (
        "output_is_never_read_with_more_rights_than_its_owner_has",
        output_is_never_read_with_more_rights_than_its_owner_has,
    ),
];

const NOBODY: u32 = 65_534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs something on a thread that the kernel takes for another user's.
fn as_nobody<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: the system calls themselves change this thread alone, which ends after this.
            let changed = unsafe {
                libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()) == 0
                    && libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY) == 0
                    && libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) == 0
            };
            assert!(changed);
            act()
        });
        thread.join().unwrap()
    })
}

fn nobody_asks(daemon: &Daemon, method: &str, path: &str, body: &str) -> Reply {
    as_nobody(|| ask(&daemon.socket(), method, path, &[], body.as_bytes()))
}

fn another_users_job_is_seen_by_name_and_nothing_of_it_leaks() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start();
    let id = daemon.submit(json!({"command": ["sh", "-c", "echo private-output; sleep 60 # private-command"], "name": "visible"}));
    daemon.events_until(0, |event| event["state"] == "running");
    for path in
        ["/v1/jobs", "/v1/jobs?all=true", &format!("/v1/jobs/{id}"), &format!("/v1/jobs/{id}/explain")]
    {
        let text = nobody_asks(&daemon, "GET", path, "").text();
        assert!(text.contains("visible") && !text.contains("private"), "{path}: {text}");
    }
    for (method, path) in [
        ("GET", "output"),
        ("GET", "output?follow=true"),
        ("GET", "attach"),
        ("POST", "cancel"),
        ("POST", "hold"),
        ("POST", "release"),
    ] {
        let reply = nobody_asks(&daemon, method, &format!("/v1/jobs/{id}/{path}"), "");
        assert!(
            reply.status == 403 && reply.code() == "not-yours" && !reply.text().contains("private"),
            "{path}: {reply:?}"
        );
    }
    daemon.post(&format!("/v1/jobs/{id}/cancel"), &json!({}));
    daemon.wait(&id);
    for path in [format!("/v1/jobs/{id}"), "/v1/jobs?all=true".into()] {
        assert!(!nobody_asks(&daemon, "GET", &path, "").text().contains("private"));
    }
    let detail = nobody_asks(&daemon, "GET", &format!("/v1/jobs/{id}"), "").json();
    assert_eq!((&detail["directory"], &detail["argv"]), (&serde_json::Value::Null, &json!([])));
    assert_eq!(nobody_asks(&daemon, "GET", &format!("/v1/jobs/{id}/output"), "").code(), "not-yours");
}

fn a_job_runs_as_its_submitter_with_that_users_rights() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start();
    let body = submission(json!({"command": "id -u; id -g"})).to_string();
    let id = nobody_asks(&daemon, "POST", "/v1/jobs", &body).json()["id"].as_str().unwrap().to_owned();
    daemon.wait(&id);
    let output = nobody_asks(&daemon, "GET", &format!("/v1/jobs/{id}/output"), "");
    assert_eq!(output.text(), "65534\n65534\n");
    assert_eq!(
        daemon.get(&format!("/v1/jobs/{id}")).json()["argv"][2],
        "id -u; id -g",
        "root sees everything"
    );
}

fn a_directory_that_the_user_cannot_enter_is_refused() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start();
    let closed = tempfile::tempdir().unwrap();
    std::fs::set_permissions(closed.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut body = submission(json!({"command": "true"}));
    body["directory"] = json!(closed.path());
    let refused = nobody_asks(&daemon, "POST", "/v1/jobs", &body.to_string());
    assert!(refused.status == 422 && refused.code() == "bad-directory", "{refused:?}");
    assert_eq!(daemon.post("/v1/jobs", &body).status, 201, "its owner can");
}

fn only_administrators_end_the_daemon_and_set_queues() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start();
    assert_eq!(nobody_asks(&daemon, "POST", "/v1/shutdown", "{\"mode\":\"kill\"}").code(), "not-member");
    assert_eq!(nobody_asks(&daemon, "PUT", "/v1/queues", "queues:\n  mine: {}\n").code(), "not-member");
    let closed =
        ask(&daemon.socket(), "PUT", "/v1/queues", &[], b"queues:\n  default: {submit: ['user:root']}\n");
    assert_eq!(closed.status, 200);
    let refused =
        nobody_asks(&daemon, "POST", "/v1/jobs", &submission(json!({"command": "true"})).to_string());
    assert_eq!(refused.code(), "not-member");
}

fn output_is_never_read_with_more_rights_than_its_owner_has() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start();
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let (log, secret) = (folder.path().join("out.log"), folder.path().join("secret"));
    let body = submission(json!({"command": "echo mine", "log": log})).to_string();
    let id = nobody_asks(&daemon, "POST", "/v1/jobs", &body).json()["id"].as_str().unwrap().to_owned();
    daemon.wait(&id);
    let path = format!("/v1/jobs/{id}/output");
    assert_eq!(nobody_asks(&daemon, "GET", &path, "").text(), "mine\n");
    std::fs::write(&secret, "root's own").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::remove_file(&log).unwrap();
    std::os::unix::fs::symlink(&secret, &log).unwrap();
    let reply = nobody_asks(&daemon, "GET", &path, "");
    assert!(reply.code() == "no-output" && !reply.text().contains("root's own"), "{reply:?}");
    let shown = nobody_asks(&daemon, "GET", &format!("/v1/jobs/{id}"), "").text();
    assert!(!shown.contains("root's own"), "{shown}");
}
