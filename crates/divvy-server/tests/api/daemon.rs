//! A daemon in this process, and a client that speaks plain HTTP.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use divvy_server::{RunError, Settings, Stopped};
use serde_json::{Value, json};

/// Nothing here takes longer, unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon and its state directory, which others may enter.
pub(crate) struct Daemon {
    pub(crate) state: PathBuf,
    thread: Option<JoinHandle<Result<Stopped, RunError>>>,
    _dir: Option<tempfile::TempDir>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Daemon {
    /// Starts a pool of two pretended devices.
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut daemon = Self::on(&dir.path().join("state")).unwrap();
        daemon._dir = Some(dir);
        daemon
    }

    /// Starts a daemon on a state directory.
    pub(crate) fn on(state: &Path) -> Result<Self, RunError> {
        let settings =
            Settings { state: Some(state.to_owned()), gpus: "pretend:2xH100".into(), ..Settings::default() };
        let (ready, started) = mpsc::channel();
        let thread = std::thread::spawn(move || divvy_server::run(settings, |_| ready.send(()).unwrap()));
        match started.recv_timeout(PATIENCE) {
            Ok(()) => Ok(Self { state: state.to_owned(), thread: Some(thread), _dir: None }),
            Err(_) => Err(thread.join().unwrap().unwrap_err()),
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.state.join("divvy.sock")
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        ask(&self.socket(), "GET", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        ask(&self.socket(), "POST", path, &[], body.to_string().as_bytes())
    }

    /// Submits a job and returns its id.
    pub(crate) fn submit(&self, job: Value) -> String {
        let reply = self.post("/v1/jobs", &submission(job));
        assert_eq!(reply.status, 201, "{reply:?}");
        reply.json()["id"].as_str().unwrap().to_owned()
    }

    /// Waits for a job's end.
    pub(crate) fn wait(&self, id: &str) -> Value {
        let waited = self.get(&format!("/v1/jobs/{id}/wait?timeout_ms=60000")).json();
        assert_eq!(waited["ended"], true, "{waited}");
        waited
    }

    /// Reads the log as a stream of events until the one looked for.
    pub(crate) fn events_until(&self, after: u64, found: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut stream = connect(&self.socket());
        write!(stream, "GET /v1/events HTTP/1.1\r\nhost: x\r\nlast-event-id: {after}\r\n\r\n").unwrap();
        let (mut text, mut events, mut taken) = (String::new(), Vec::new(), 0);
        let mut piece = [0; 4096];
        loop {
            let read = stream.read(&mut piece).unwrap();
            assert!(read > 0, "the stream ended: {text}");
            text.push_str(&String::from_utf8_lossy(&piece[..read]));
            while let Some(end) = text[taken..].find("\n\n") {
                let block = &text[taken..taken + end];
                taken += end + 2;
                let data = block.lines().find_map(|line| line.strip_prefix("data: "));
                let Some(event) = data.map(|data| serde_json::from_str::<Value>(data).unwrap()) else {
                    continue;
                };
                let stop = found(&event);
                events.push(event);
                if stop {
                    return events;
                }
            }
        }
    }

    /// Ends the daemon and leaves its jobs running.
    pub(crate) fn leave(&mut self) -> Stopped {
        let reply = self.post("/v1/shutdown", &json!({"mode": "leave"}));
        assert_eq!(reply.status, 200, "{reply:?}");
        self.ended()
    }

    /// Waits for the daemon's end, which has begun already.
    pub(crate) fn ended(&mut self) -> Stopped {
        self.thread.take().unwrap().join().unwrap().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = self.post("/v1/shutdown", &json!({"mode": "kill"}));
            let _ = thread.join();
        }
    }
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the stable code of a problem.
    pub(crate) fn code(&self) -> String {
        assert!(self.head.contains("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status, "{problem}");
        problem["code"].as_str().unwrap().to_owned()
    }
}

/// Returns a job with what the submitting shell adds. The pool keeps its output unless the job names a file.
pub(crate) fn submission(mut job: Value) -> Value {
    if job.get("log").is_none() {
        // A folder in which nobody can write: the output goes to the state directory.
        job["log"] = json!("/proc/divvy-%j.out");
    }
    json!({"job": job, "directory": "/tmp", "environment": {"PATH": "/usr/bin:/bin", "TOKEN": "s3cret-value"}})
}

pub(crate) fn connect(socket: &Path) -> UnixStream {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends one request and returns the whole answer.
pub(crate) fn ask(socket: &Path, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    let mut stream = connect(socket);
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    read_reply(&mut stream)
}

/// Reads the whole answer, until the daemon closes.
pub(crate) fn read_reply(stream: &mut UnixStream) -> Reply {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end =
        bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or_else(|| panic!("no head: {bytes:?}"));
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = &bytes[end + 4..];
    let body = if head.contains("transfer-encoding: chunked") { unchunked(body) } else { body.to_vec() };
    Reply { status, head, body }
}

fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|two| two == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        if length == 0 {
            break;
        }
        whole.extend_from_slice(&body[end + 2..end + 2 + length]);
        body = &body[end + 2 + length + 2..];
    }
    whole
}
