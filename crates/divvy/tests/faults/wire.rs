//! Requests over the socket as bytes, for what the real client would never send.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;

use crate::site::PATIENCE;

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The body as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Connects.
pub(crate) fn connect(socket: &Path) -> UnixStream {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends a request with additional header lines, and reads the answer.
pub(crate) fn request(socket: &Path, line: &str, head: &str, body: &[u8]) -> Answer {
    let mut stream = connect(socket);
    let length = body.len();
    let text = format!(
        "{line} HTTP/1.1\r\nhost: divvy\r\nconnection: close\r\ncontent-length: {length}\r\n{head}\r\n"
    );
    stream.write_all(text.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    answer(&mut stream)
}

/// Reads an answer up to the end of the connection.
pub(crate) fn answer(stream: &mut UnixStream) -> Answer {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(&bytes)));
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status =
        head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{head}"));
    let body = bytes.split_off(end + 4);
    let body =
        if head.to_lowercase().contains("transfer-encoding: chunked") { unchunked(&body) } else { body };
    Answer { status, head, body }
}

fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|window| window == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap().trim(), 16).unwrap();
        if size == 0 {
            break;
        }
        whole.extend_from_slice(&body[end + 2..end + 2 + size]);
        body = &body[end + 4 + size..];
    }
    whole
}

/// Asks for a path; the answer has to be JSON.
#[track_caller]
pub(crate) fn get(socket: &Path, path: &str) -> Value {
    let answer = request(socket, &format!("GET {path}"), "", b"");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}
