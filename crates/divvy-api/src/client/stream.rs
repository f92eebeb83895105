//! Answers that come piece by piece: bytes, attach frames, server-sent events.

use std::path::PathBuf;

use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::{Bytes, Incoming};

use super::ClientError;
use crate::attach::{Frame, FrameReader};
use crate::paths;
use crate::types::Event;

/// The bytes of an answer as they come.
#[derive(Debug)]
pub struct ByteStream {
    socket: PathBuf,
    offset: Option<u64>,
    body: Incoming,
}

impl ByteStream {
    pub(super) fn new(socket: PathBuf, response: Response<Incoming>) -> Self {
        let header = response.headers().get(paths::OFFSET).and_then(|value| value.to_str().ok());
        let offset = header.and_then(|value| value.parse().ok());
        Self { socket, offset, body: response.into_body() }
    }

    /// The offset of the first byte, if the daemon sent it.
    pub fn offset(&self) -> Option<u64> {
        self.offset
    }

    /// The next bytes; `None` at the end. Can be dropped and called again without loss.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(source)) => return Err(ClientError::Broken { socket: self.socket.clone(), source }),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }
}

/// Attach frames as they come.
#[derive(Debug)]
pub struct FrameStream {
    bytes: ByteStream,
    reader: FrameReader,
}

impl FrameStream {
    /// Reads the bytes as frames.
    pub fn new(bytes: ByteStream) -> Self {
        Self { bytes, reader: FrameReader::default() }
    }

    /// The next frame; `None` at the end. Can be dropped and called again without loss.
    pub async fn next(&mut self) -> Result<Option<Frame>, ClientError> {
        loop {
            let unreadable = |error: crate::attach::FrameError| ClientError::Answer {
                path: "attach".into(),
                what: error.to_string(),
            };
            if let Some(frame) = self.reader.next_frame().map_err(unreadable)? {
                return Ok(Some(frame));
            }
            match self.bytes.next().await? {
                None => return Ok(None),
                Some(bytes) => self.reader.push(&bytes),
            }
        }
    }
}

/// The longest event that is kept while it arrives, in bytes.
const LONGEST_EVENT_BYTES: usize = 1 << 20;

/// Server-sent events as they come.
#[derive(Debug)]
pub struct EventStream {
    bytes: ByteStream,
    pending: EventReader,
}

impl EventStream {
    /// Reads the bytes as events.
    pub fn new(bytes: ByteStream) -> Self {
        Self { bytes, pending: EventReader::default() }
    }

    /// The next event; `None` at the end. Comments and kinds without data are skipped.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            if let Some(event) = self.pending.next_event() {
                return Ok(Some(event));
            }
            match self.bytes.next().await? {
                None => return Ok(None),
                Some(bytes) => self.pending.push(&bytes),
            }
        }
    }
}

/// Extracts events from bytes as they arrive.
#[derive(Debug, Default)]
struct EventReader {
    bytes: Vec<u8>,
}

impl EventReader {
    fn push(&mut self, bytes: &[u8]) {
        if self.bytes.len() + bytes.len() > LONGEST_EVENT_BYTES {
            self.bytes.clear();
        }
        self.bytes.extend_from_slice(bytes);
    }

    fn next_event(&mut self) -> Option<Event> {
        loop {
            let end = self.bytes.windows(2).position(|pair| pair == b"\n\n")?;
            let block: Vec<u8> = self.bytes.drain(..end + 2).collect();
            let text = String::from_utf8_lossy(&block);
            let data: Vec<&str> =
                text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim_start).collect();
            if let Ok(event) = serde_json::from_str(&data.join("\n")) {
                return Some(event);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn events_are_taken_out_of_pieces_and_comments_are_skipped() {
        let mut reader = EventReader::default();
        reader.push(b": hello\n\nid: 7\nevent: job\ndata: {\"position\":7,\"at_ms\":1,");
        assert!(reader.next_event().is_none());
        reader.push(b"\ndata: \"kind\":\"job\",\"text\":\"12 started\"}\n\nid: 8\n");
        let event = reader.next_event().unwrap();
        assert_eq!((event.position, event.text.as_str()), (7, "12 started"));
        assert!(reader.next_event().is_none());
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_event_reader_panic(pieces: Vec<Vec<u8>>) {
            let mut reader = EventReader::default();
            for piece in pieces {
                reader.push(&piece);
                while reader.next_event().is_some() {}
            }
        }
    }
}
