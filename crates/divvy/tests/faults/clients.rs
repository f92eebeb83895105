//! Clients that mean harm, or are merely slow.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::site::{PATIENCE, Site};
use crate::wire;

/// The pool answers as usual and at once, within a bound that leaves room for slow machines.
#[track_caller]
fn assert_well(site: &Site) {
    let begun = Instant::now();
    assert_eq!(site.pool()["gpus"], 8);
    assert!(begun.elapsed() < PATIENCE / 12, "an answer took {:?}", begun.elapsed());
    assert_eq!(site.divvy(["run", "-g", "1", "--", "true"]).code, 0);
    site.assert_lawful();
}

/// Attacks a daemon; its process must be the same afterwards.
fn unharmed(attack: impl FnOnce(&Site)) {
    let site = Site::start();
    let daemon = site.daemon();
    attack(&site);
    assert_well(&site);
    assert_eq!(site.daemon(), daemon, "it is the same process");
}

#[test]
fn hostile_bytes_do_no_harm() {
    unharmed(|site| {
        let noise: Vec<u8> =
            (0..65536_u32).map(|at| u8::try_from(at.wrapping_mul(2_654_435_761) >> 24).unwrap()).collect();
        let long_line = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(1 << 20));
        let many_heads = format!("GET /v1/pool HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(20_000));
        let attacks: Vec<&[u8]> = vec![
            &noise,
            &[0; 4096],
            b"\r\n\r\n\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
            b"POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999999999\r\n\r\n",
            b"POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
            b"POST /v1/jobs HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\nx",
            b"GET /v1/jobs/%00%ff%1b HTTP/1.1\r\nhost: \x00\r\n\r\n",
            long_line.as_bytes(),
            many_heads.as_bytes(),
        ];
        for attack in attacks {
            let mut stream = wire::connect(&site.socket());
            // The daemon may hang up in the middle of it.
            let _ = stream.write_all(attack);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
}

#[test]
fn requests_that_make_no_sense_are_answered_with_problems() {
    unharmed(|site| {
        let socket = site.socket();
        let deep = format!("{{\"job\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        let cases: Vec<(&str, &[u8], u16)> = vec![
            ("GET /nowhere", b"", 404),
            ("GET /v1/jobs/999999999999999999999999", b"", 422),
            ("GET /v1/jobs/1%2e%2e%2f", b"", 422),
            ("GET /v1/jobs/77", b"", 404),
            ("GET /v1/jobs?limit=-1", b"", 400),
            ("GET /v1/jobs?limit=abc", b"", 400),
            ("DELETE /v1/pool", b"", 405),
            ("POST /v1/jobs", b"", 400),
            ("POST /v1/jobs", b"{", 400),
            ("POST /v1/jobs", b"[]", 400),
            ("POST /v1/jobs", b"\xff\xfe", 400),
            ("POST /v1/jobs", deep.as_bytes(), 400),
            (
                "POST /v1/jobs",
                br#"{"job":{"command":["true"],"gpus":"18446744073709551616"},"directory":"/"}"#,
                422,
            ),
            ("POST /v1/jobs", br#"{"job":{"command":[]},"directory":"/"}"#, 422),
            (
                "POST /v1/jobs",
                br#"{"job":{"command":["true"],"array":"0-999999999999"},"directory":"/"}"#,
                422,
            ),
            ("POST /v1/jobs", br#"{"job":{"command":["tr\u0000ue"]},"directory":"/"}"#, 422),
            ("PUT /v1/queues", b"queues: [", 422),
            ("PUT /v1/queues", b"&a [*a, *a]", 422),
        ];
        for (line, body, status) in cases {
            let answer = wire::request(&socket, line, "", body);
            let shown = &body[..body.len().min(80)];
            assert_eq!(answer.status, status, "{line} {:?}: {answer:?}", String::from_utf8_lossy(shown));
            let problem = answer.json();
            assert!(problem["code"].is_string() && problem["title"].is_string(), "{problem}");
            assert!(answer.head.contains("application/problem+json"), "{answer:?}");
        }
        assert_eq!(site.say("ps -a -o json").json(), json!([]));
    });
}

#[test]
fn a_request_of_a_hundred_mebibytes_is_refused_and_not_kept() {
    unharmed(|site| {
        let before = memory_peak_kib(site.daemon());
        let answer = wire::request(&site.socket(), "POST /v1/jobs", "", &vec![b' '; 100 << 20]);
        assert_eq!(answer.status, 413, "{answer:?}");
        assert_eq!(answer.json()["code"], "too-large");
        let taken = memory_peak_kib(site.daemon()).saturating_sub(before);
        assert!(taken < 64 << 10, "it took {taken} KiB more");
        let many = "- x: &a [x]\n".repeat(400_000);
        assert_eq!(wire::request(&site.socket(), "PUT /v1/queues", "", many.as_bytes()).status, 422);
    });
}

fn memory_peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_thousand_idle_connections_keep_nobody_waiting() {
    unharmed(|site| {
        let idle: Vec<UnixStream> = (0..1000).map(|_| wire::connect(&site.socket())).collect();
        assert_well(site);
        drop(idle);
    });
}

#[test]
fn slow_clients_keep_nobody_waiting() {
    unharmed(|site| {
        site.submit("--array 0-2999 --hold", "true");
        // One client never ends its head, one never sends its body, and one never reads its answers.
        let mut head = wire::connect(&site.socket());
        head.write_all(b"GET /v1/pool HTTP/1.1\r\nhost: ").unwrap();
        let mut body = wire::connect(&site.socket());
        body.write_all(b"POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{").unwrap();
        let mut deaf = wire::connect(&site.socket());
        deaf.set_nonblocking(true).unwrap();
        while deaf.write_all(b"GET /v1/jobs?limit=1000 HTTP/1.1\r\nhost: x\r\n\r\n").is_ok() {}
        let mut events = wire::connect(&site.socket());
        events.write_all(b"GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        assert_well(site);
        let id = site.submit("--array 0-19", "true");
        assert_eq!(site.divvy(["wait", &id]).code, 0);
        assert_well(site);
        drop((head, body, deaf, events));
    });
}

#[test]
fn a_reader_of_output_that_stops_reading_harms_neither_the_job_nor_the_others() {
    let site = Site::start();
    let mut slow = site.command();
    slow.args(["run", "-g", "1", "--", "sh", "-c", "head -c 50000000 /dev/zero; exit 3"]);
    let mut slow =
        slow.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let mut one = [0];
    slow.stdout.as_mut().unwrap().read_exact(&mut one).unwrap();
    assert_eq!(site.say("wait 1").code, 3, "the job does not wait for its reader");
    assert_well(&site);
    let mut rest = Vec::new();
    slow.stdout.as_mut().unwrap().read_to_end(&mut rest).unwrap();
    assert_eq!((rest.len(), slow.wait().unwrap().code()), (49_999_999, Some(3)));
}

#[test]
fn clients_that_are_killed_at_any_moment_leave_no_connection_and_no_half_job() {
    unharmed(|site| {
        for round in 0..30 {
            let mut client = site.command();
            client.args(["run", "-g", "1", "-n", &format!("round-{round}"), "--", "true"]);
            let mut client = client
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null())
                .spawn()
                .unwrap();
            wait_for_moment(Duration::from_millis(round));
            client.kill().unwrap();
            client.wait().unwrap();
        }
        let jobs = site.say("ps -a -o json").json();
        for job in jobs.as_array().unwrap() {
            assert_eq!(site.divvy(["wait", job["id"].as_str().unwrap()]).code, 0, "{job}");
        }
        site.assert_all_free();
    });
}

/// The timing itself is under test: nothing shows how far another program has come.
fn wait_for_moment(after: Duration) {
    std::thread::sleep(after);
}

#[test]
fn the_same_key_submits_once_even_across_a_crash() {
    let site = Site::start();
    let body = json!({
        "job": {"command": ["sh", "-c", "echo once >> ran"], "name": "once"},
        "directory": site.work(), "environment": {"PATH": "/usr/bin:/bin"},
    });
    let body = serde_json::to_vec(&body).unwrap();
    let submit = || {
        let answer = wire::request(&site.socket(), "POST /v1/jobs", "idempotency-key: k-1\r\n", &body);
        assert!(answer.status == 201, "{answer:?}");
        answer.json()["id"].as_str().unwrap().to_owned()
    };
    let id = submit();
    assert_eq!(submit(), id);
    site.crash(|| ());
    assert_eq!(submit(), id);
    assert_eq!(site.divvy(["wait", &id]).code, 0);
    assert_eq!(submit(), id, "also when it has ended");
    let ran = Command::new("wc").arg("-l").arg(site.work().join("ran")).output().unwrap();
    assert!(String::from_utf8_lossy(&ran.stdout).starts_with("1 "));
    assert_eq!(site.say("ps -a -o json").json().as_array().unwrap().len(), 1);
}
