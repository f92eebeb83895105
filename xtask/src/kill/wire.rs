//! Requests to the daemon that tell whether the whole answer came: an answer is a promise.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// A daemon that is not killed answers within milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// A whole answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Value,
}

/// Sends a request. An error says that no answer came: the request was carried out, or not.
pub(super) fn ask(socket: &Path, line: &str, key: Option<&str>, body: &str) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let key = key.map(|key| format!("idempotency-key: {key}\r\n")).unwrap_or_default();
    let length = body.len();
    let head = format!(
        "{line} HTTP/1.1\r\nhost: divvy\r\nconnection: close\r\ncontent-length: {length}\r\n{key}\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    read(&bytes).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Asks for a path.
pub(super) fn get(socket: &Path, path: &str) -> io::Result<Answer> {
    ask(socket, &format!("GET {path}"), None, "")
}

/// Reads an answer; `None` if it broke off.
fn read(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(bytes.get(..end)?).ok()?.to_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length: usize =
        head.lines().find_map(|line| line.strip_prefix("content-length:"))?.trim().parse().ok()?;
    let body = bytes.get(end + 4..)?;
    let whole = body.len() == length;
    whole.then(|| Answer { status, body: serde_json::from_slice(body).unwrap_or(Value::Null) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_broke_off_is_none() {
        let whole = b"HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\n{\"id\":\"7\"}";
        let answer = read(whole).unwrap();
        assert_eq!((answer.status, answer.body["id"].as_str()), (201, Some("7")));
        assert!((0..whole.len()).all(|length| read(&whole[..length]).is_none()));
    }
}
