//! A command line and a daemon that are one minor version apart.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;

use serde_json::json;

use crate::pool::Said;
use crate::site::Site;
use crate::wire;

#[test]
fn a_client_of_the_next_minor_version_is_served() {
    let site = Site::start();
    for version in ["1.1", "1.0"] {
        let head = format!("x-divvy-api: {version}\r\nx-divvy-moon: full\r\n");
        let answer = wire::request(&site.socket(), "GET /v1/pool?moon=full", &head, b"");
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.head.to_lowercase().contains("x-divvy-api: 1."), "{answer:?}");
        assert_eq!(wire::request(&site.socket(), "GET /v1/jobs?moon=full&all=true", &head, b"").status, 200);
    }
}

#[test]
fn what_a_newer_client_asks_for_and_this_daemon_does_not_know_is_refused_by_name() {
    let site = Site::start();
    let body = json!({"job": {"command": ["true"], "moon": "full"}, "directory": "/"}).to_string();
    let answer = wire::request(&site.socket(), "POST /v1/jobs", "x-divvy-api: 1.1\r\n", body.as_bytes());
    assert_eq!(answer.status, 400, "what a job asks for is never dropped in silence: {answer:?}");
    assert!(String::from_utf8_lossy(&answer.body).contains("moon"), "{answer:?}");
}

/// Answers each request with what a daemon of another version would say.
fn other_daemon(site: &Site, version: &'static str) -> UnixListener {
    std::fs::create_dir(site.state()).unwrap();
    let listener = UnixListener::bind(site.socket()).unwrap();
    let own = listener.try_clone().unwrap();
    std::thread::spawn(move || {
        for stream in own.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while let Some(path) = request(&mut reader) {
                    let body = said(&path).to_string();
                    let head = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-divvy-api: {version}\r\ncontent-length: {}\r\n\r\n",
                        body.len()
                    );
                    if stream
                        .write_all(head.as_bytes())
                        .and_then(|()| stream.write_all(body.as_bytes()))
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
    });
    listener
}

/// Reads a request up to the end of its body, and returns its path.
fn request(reader: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        let mut head = String::new();
        reader.read_line(&mut head).ok()?;
        if let Some(value) = head.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if head.trim().is_empty() {
            reader.read_exact(&mut vec![0; length]).ok()?;
            return Some(path);
        }
    }
}

/// The answer of a newer daemon, with keys, states and causes that this program has never heard of.
fn said(path: &str) -> serde_json::Value {
    let job = json!({
        "id": "7", "name": "n", "user": "ana", "queue": "q", "state": "levitating", "moon": {"phase": "full"},
        "gpus": 2, "gpu_milli": 2000, "devices": ["GPU-1"], "nodes": ["here"], "tasks": 1, "attempt": 1,
        "priority": 0, "labels": {}, "submitted_ms": 1_700_000_000_000_i64, "kind": "astrology",
        "last_end": {"cause": "eclipse", "moon": 1}, "reason": {"code": "DV-MOON", "text": "the moon is full"},
    });
    match path.split('?').next().unwrap_or_default() {
        "/v1/pool" => {
            json!({"api": {"major": 1, "minor": 1}, "version": "0.2.0", "pid": 1, "gpus": 8, "moon": "full"})
        }
        "/v1/jobs" => json!({"items": [job], "next": null, "moon": "full"}),
        "/v1/gpus" => json!([{"node": "here", "index": 0, "uuid": "GPU-1", "model": "x100", "memory_mib": 1,
            "state": "entangled", "free_milli": 1000, "allocations": [], "source": "oracle", "moon": 1}]),
        "/v1/jobs/7/explain" => {
            json!({"job": "7", "verdict": "astral", "blockers": [{"code": "DV-MOON", "text": "t",
            "fix": "f", "moon": 1}], "funnel": [{"step": "under the moon", "devices": 1, "nodes": 1}]})
        }
        "/v1/jobs/7" => job,
        _ => json!([]),
    }
}

#[test]
fn a_daemon_of_the_next_minor_version_is_understood_with_all_that_is_new_in_its_answers() {
    let site = Site::unstarted();
    let listener = other_daemon(&site, "1.1");
    for line in
        ["ps", "ps -o wide", "ps -o csv", "gpus", "gpus -o wide", "show 7", "explain 7", "queues", "history"]
    {
        let said: Said = site.say(line);
        assert_eq!(said.code, 0, "{line}: {said:?}");
    }
    let jobs = site.say("ps -o json").json();
    assert_eq!((&jobs[0]["state"], &jobs[0]["moon"]["phase"]), (&json!("levitating"), &json!("full")));
    assert!(site.say("ps").out.contains("levitating"));
    drop(listener);
}

#[test]
fn a_daemon_of_another_major_version_is_refused_by_both_versions() {
    let site = Site::unstarted();
    let listener = other_daemon(&site, "2.0");
    let said = site.say("ps");
    assert!(said.code != 0 && said.err.contains("2.0") && said.err.contains("1."), "{said:?}");
    drop(listener);
}
