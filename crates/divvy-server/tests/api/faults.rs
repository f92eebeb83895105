//! What must do no harm: hostile clients, a full disk, restarts, a second daemon.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use divvy_server::Kind;
use serde_json::json;

use crate::Sentence;
use crate::daemon::{Daemon, ask, connect, read_reply, submission};
use crate::small_disk::SmallDisk;

pub(crate) const TESTS: &[Sentence] = &[
    ("bad_requests_are_refused_with_place_and_remedy", bad_requests_are_refused_with_place_and_remedy),
    ("a_request_of_100_mib_is_refused", a_request_of_100_mib_is_refused),
    (
        "hostile_bytes_and_a_thousand_idle_connections_do_no_harm",
        hostile_bytes_and_a_thousand_idle_connections_do_no_harm,
    ),
    ("a_slow_client_holds_up_nobody", a_slow_client_holds_up_nobody),
    ("a_body_that_nobody_reads_breaks_no_connection", a_body_that_nobody_reads_breaks_no_connection),
    ("jobs_outlive_the_daemon_and_are_taken_over", jobs_outlive_the_daemon_and_are_taken_over),
    (
        "a_second_daemon_on_the_same_state_is_refused_and_names_the_pid",
        a_second_daemon_on_the_same_state_is_refused_and_names_the_pid,
    ),
    (
        "a_drained_pool_starts_nothing_new_and_ends_with_its_last_job",
        a_drained_pool_starts_nothing_new_and_ends_with_its_last_job,
    ),
    (
        "a_full_disk_refuses_submissions_and_the_pool_recovers_by_itself",
        a_full_disk_refuses_submissions_and_the_pool_recovers_by_itself,
    ),
    ("a_stream_ends_at_once_when_its_job_does", a_stream_ends_at_once_when_its_job_does),
];

fn bad_requests_are_refused_with_place_and_remedy() {
    let daemon = Daemon::start();
    let post = |body: &str| ask(&daemon.socket(), "POST", "/v1/jobs", &[], body.as_bytes());
    let unknown = post("{\"job\":\n {\"comand\": \"x\"}, \"directory\": \"/tmp\"}");
    assert!(
        unknown.code() == "bad-request" && unknown.json()["line"] == 2 && unknown.text().contains("command"),
        "{unknown:?}"
    );
    for body in ["", "{", "[]", "null", "{\"job\":{\"command\":\"x\",\"command\":\"y\"}}", "\u{0}"] {
        assert_eq!(post(body).code(), "bad-request", "{body:?}");
    }
    let too_many = daemon.post("/v1/jobs", &submission(json!({"command": "true", "gpus": 9})));
    assert!(too_many.code() == "cannot-fit" && too_many.text().contains("2 h100"), "{too_many:?}");
    let model = daemon.post("/v1/jobs", &submission(json!({"command": "true", "gpus": "a100:1"})));
    assert!(model.code() == "cannot-fit" && model.text().contains("--wait-for-capacity"), "{model:?}");
    let waits = daemon.submit(json!({"command": "true", "gpus": "a100:1", "wait_for_capacity": true}));
    assert_eq!(daemon.get(&format!("/v1/jobs/{waits}/explain")).json()["verdict"], "no_fit");
    let field = daemon.post("/v1/jobs", &submission(json!({"command": "true", "time_limit": "60"})));
    assert!(field.code() == "bad-spec" && field.json()["field"] == "time_limit", "{field:?}");
    assert_eq!(daemon.get("/v1/jobs?limit=many").code(), "bad-request");
    assert_eq!(daemon.get("/v1/jobs/%00/wait").code(), "bad-spec");
}

fn a_request_of_100_mib_is_refused() {
    let daemon = Daemon::start();
    let body = vec![b' '; 100 << 20];
    let refused = ask(&daemon.socket(), "POST", "/v1/jobs", &[], &body);
    assert!(refused.status == 413 && refused.code() == "too-large", "{refused:?}");
    assert_eq!(daemon.get("/v1/pool").status, 200);
}

fn hostile_bytes_and_a_thousand_idle_connections_do_no_harm() {
    let daemon = Daemon::start();
    let idle: Vec<_> = (0..1000).map(|_| connect(&daemon.socket())).collect();
    for bytes in [
        &b"\0\xff\xfe\r\n\r\n"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        &[b'A'; 200_000],
        b"POST /v1/jobs HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
    ] {
        let mut stream = connect(&daemon.socket());
        // The daemon may hang up before all is written.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(
            answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"),
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }
    let began = Instant::now();
    let id = daemon.submit(json!({"command": "true"}));
    daemon.wait(&id);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    drop(idle);
}

fn a_slow_client_holds_up_nobody() {
    let daemon = Daemon::start();
    let big = daemon.submit(json!({"command": "head -c 50000000 /dev/zero"}));
    // One client asks for all output and reads nothing, one asks for all events, one sends half a request.
    let mut output = connect(&daemon.socket());
    write!(output, "GET /v1/jobs/{big}/output?follow=true HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut events = connect(&daemon.socket());
    write!(events, "GET /v1/events HTTP/1.1\r\nhost: x\r\nlast-event-id: 0\r\n\r\n").unwrap();
    let mut half = connect(&daemon.socket());
    write!(half, "POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{{").unwrap();
    daemon.wait(&big);
    daemon.submit(json!({"command": "true", "array": "0-50"}));
    daemon.wait("2");
    assert_eq!(daemon.get("/v1/pool").status, 200);
}

fn a_body_that_nobody_reads_breaks_no_connection() {
    let daemon = Daemon::start();
    let mut stream = connect(&daemon.socket());
    let head = "POST /v1/jobs/9/cancel HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 2\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    // The daemon has read the head by the time it answers a later client.
    assert_eq!(daemon.get("/v1/pool").status, 200);
    stream.write_all(b"{}").unwrap();
    assert_eq!(read_reply(&mut stream).code(), "no-such-job");
}

fn jobs_outlive_the_daemon_and_are_taken_over() {
    let mut daemon = Daemon::start();
    let gate = daemon.state.join("gate");
    let waits = format!("while ! test -e {}; do sleep 0.02; done; exit 4", gate.display());
    let runs = daemon.submit(json!({"command": waits, "gpus": 2}));
    let waiting = daemon.submit(json!({"command": "true", "gpus": 1}));
    daemon.events_until(0, |event| event["job"] == "1" && event["state"] == "running");
    let mut stream = connect(&daemon.socket());
    write!(stream, "GET /v1/jobs/{runs}/wait?timeout_ms=60000 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    assert_eq!(daemon.leave().tasks, 1);
    let again = Daemon::on(&daemon.state).unwrap();
    let row = again.get(&format!("/v1/jobs/{runs}")).json();
    assert_eq!((&row["state"], &row["attempt"]), (&json!("running"), &json!(1)));
    std::fs::write(&gate, "").unwrap();
    assert_eq!(again.wait(&runs)["exit_code"], 4);
    assert_eq!(again.wait(&waiting)["exit_code"], 0);
    assert_eq!(again.get("/v1/pool/check").json()["violations"], json!([]));
}

fn a_second_daemon_on_the_same_state_is_refused_and_names_the_pid() {
    let daemon = Daemon::start();
    let refused = Daemon::on(&daemon.state).err().unwrap();
    assert_eq!(refused.kind(), Kind::Taken);
    assert!(refused.to_string().contains(&format!("pid {}", std::process::id())), "{refused}");
    assert_eq!(daemon.get("/v1/pool").status, 200, "the first goes on");
}

fn a_drained_pool_starts_nothing_new_and_ends_with_its_last_job() {
    let daemon = Daemon::start();
    let gate = daemon.state.join("gate");
    daemon.submit(
        json!({"command": format!("while ! test -e {}; do sleep 0.02; done", gate.display()), "gpus": 2}),
    );
    let waiting = daemon.submit(json!({"command": "true", "gpus": 2}));
    daemon.events_until(0, |event| event["job"] == "1" && event["state"] == "running");
    assert_eq!(daemon.post("/v1/shutdown", &json!({"mode": "drain"})).json()["waiting"], 1);
    assert_eq!(daemon.post("/v1/jobs", &submission(json!({"command": "true"}))).code(), "shutting-down");
    std::fs::write(&gate, "").unwrap();
    let mut stopped = daemon;
    assert_eq!(stopped.ended().tasks, 0);
    let again = Daemon::on(&stopped.state).unwrap();
    assert_eq!(again.wait(&waiting)["exit_code"], 0);
}

fn a_full_disk_refuses_submissions_and_the_pool_recovers_by_itself() {
    let Some(disk) = SmallDisk::of_kib(4 << 10) else { return };
    let state = disk.0.path().join("state");
    let daemon = Daemon::on(&state).unwrap();
    let gate = tempfile::tempdir().unwrap();
    let open = gate.path().join("open");
    let runs = daemon.submit(json!({"command": format!("while ! test -e {}; do sleep 0.02; done; exit 5", open.display()), "gpus": 1}));
    daemon.events_until(0, |event| event["job"] == "1" && event["state"] == "running");
    let ballast = disk.0.path().join("ballast");
    let mut file = std::fs::File::create(&ballast).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    while file.write_all(&[0]).is_ok() {}
    drop(file);
    let refused = loop {
        // Space that SQLite has reserved may take one or two more.
        let reply = daemon.post("/v1/jobs", &submission(json!({"command": "true"})));
        if reply.status != 201 {
            break reply;
        }
    };
    assert!(refused.status == 507 && refused.code() == "disk-full", "{refused:?}");
    assert_eq!(daemon.get(&format!("/v1/jobs/{runs}")).json()["state"], "running");
    std::fs::write(&open, "").unwrap();
    std::fs::remove_file(&ballast).unwrap();
    assert_eq!(daemon.wait(&runs)["exit_code"], 5);
    let id = daemon.submit(json!({"command": "true"}));
    assert_eq!(daemon.wait(&id)["exit_code"], 0);
    assert_eq!(daemon.get("/v1/pool").json()["accepts"], true);
    assert_eq!(daemon.get("/v1/pool/check").json()["violations"], json!([]));
}

fn a_stream_ends_at_once_when_its_job_does() {
    let daemon = Daemon::start();
    let mut times: Vec<Duration> = (0..20)
        .map(|_| {
            let began = Instant::now();
            let mut body = submission(json!({"command": ["true"], "gpus": 1}));
            body["attached"] = json!(true);
            let mut stream = connect(&daemon.socket());
            let body = body.to_string();
            write!(
                stream,
                "POST /v1/jobs HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
            assert_eq!(read_reply(&mut stream).status, 200);
            began.elapsed()
        })
        .collect();
    times.sort();
    // Far above what it takes (about 10 ms), far below any timer.
    assert!(times[10] < Duration::from_millis(250), "{times:?}");
}
