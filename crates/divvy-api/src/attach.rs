//! Attach frames: the answer to a submission that someone watches, and to `GET /v1/jobs/{id}/attach`.
//!
//! The body is a stream of frames: one byte of type, the payload's length as four bytes (big endian), the payload.
//! It begins with `Submitted` (also on `GET`), brings the output of the first task byte for byte as it comes, each
//! change of the job's state or reason, and ends with `Ended`. A stream that breaks off before `Ended` is taken up
//! again with `GET …/attach?from=` the number of output bytes seen. Unknown types are skipped.

use crate::types::{JobState, Reason, Submitted, Waited};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The longest payload that a reader takes, in bytes. Writers send output in pieces of at most 64 KiB.
pub const LONGEST_PAYLOAD_BYTES: usize = 1 << 20;

/// The bytes in front of a payload.
pub const HEADER_BYTES: usize = 5;

/// One message of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Type 0, JSON: the job is in the log.
    Submitted(Submitted),
    /// Type 1: bytes of output of the first task.
    Output(Vec<u8>),
    /// Type 2, JSON: the job is somewhere else, or waits for something else.
    Progress(Progress),
    /// Type 3, JSON: the job is over. Nothing follows.
    Ended(Waited),
}

/// Where a job is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    /// Where it is in its life.
    pub state: JobState,
    /// Why it waits.
    #[serde(default)]
    pub reason: Option<Reason>,
    /// Place among the waiting jobs, from 1.
    #[serde(default)]
    pub position: Option<u64>,
    /// The machines that it runs on.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// The devices that it has.
    #[serde(default)]
    pub devices: Vec<String>,
}

/// What is wrong with a stream of frames.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// Longer than any frame is.
    #[error("the daemon sent a frame of {0} bytes: is it another version?")]
    TooLong(usize),
    /// JSON that does not fit.
    #[error("the daemon sent a frame that cannot be read: {0}")]
    Payload(#[from] serde_json::Error),
}

impl Frame {
    /// The frame as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let json = |value: serde_json::Result<Vec<u8>>| value.unwrap_or_default();
        match self {
            Self::Submitted(submitted) => framed(0, &json(serde_json::to_vec(submitted))),
            Self::Output(bytes) => framed(1, bytes),
            Self::Progress(progress) => framed(2, &json(serde_json::to_vec(progress))),
            Self::Ended(waited) => framed(3, &json(serde_json::to_vec(waited))),
        }
    }

    /// Output as a frame, without a copy in between.
    pub fn encode_output(bytes: &[u8]) -> Vec<u8> {
        framed(1, bytes)
    }
}

fn framed(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEADER_BYTES + payload.len());
    frame.push(kind);
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Extracts frames from bytes as they arrive.
#[derive(Debug, Default)]
pub struct FrameReader {
    bytes: Vec<u8>,
    taken: usize,
}

impl FrameReader {
    /// Adds bytes that have arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame, if it is there.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        loop {
            let rest = &self.bytes[self.taken..];
            let Some((&[kind, a, b, c, d], rest)) = rest.split_first_chunk::<HEADER_BYTES>() else {
                return Ok(None);
            };
            let length = u32::from_be_bytes([a, b, c, d]) as usize;
            if length > LONGEST_PAYLOAD_BYTES {
                return Err(FrameError::TooLong(length));
            }
            let Some(payload) = rest.get(..length) else { return Ok(None) };
            let frame = match kind {
                0 => Some(Frame::Submitted(serde_json::from_slice(payload)?)),
                1 => Some(Frame::Output(payload.to_vec())),
                2 => Some(Frame::Progress(serde_json::from_slice(payload)?)),
                3 => Some(Frame::Ended(serde_json::from_slice(payload)?)),
                _ => None,
            };
            self.taken += HEADER_BYTES + length;
            if frame.is_some() {
                return Ok(frame);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames() -> Vec<Frame> {
        vec![
            Frame::Submitted(Submitted { id: "12".into(), ..Submitted::default() }),
            Frame::Output(b"\0\xffhello".to_vec()),
            Frame::Progress(Progress {
                state: JobState::Pending,
                reason: None,
                position: Some(3),
                nodes: vec![],
                devices: vec![],
            }),
            Frame::Output(vec![]),
            Frame::Ended(Waited {
                id: "12".into(),
                state: JobState::Completed,
                ended: true,
                exit_code: Some(0),
                signal: None,
                last_end: None,
                failed_task: None,
            }),
        ]
    }

    proptest! {
        #[test]
        fn frames_arrive_whole_however_the_bytes_are_cut(cuts in proptest::collection::vec(1usize..40, 1..200)) {
            let mut bytes: Vec<u8> = frames().iter().flat_map(Frame::encode).collect();
            // A frame of a type that a newer daemon may send.
            bytes.extend(framed(9, b"from the future"));
            bytes.extend(Frame::encode_output(b"last"));
            let (mut reader, mut read, mut at) = (FrameReader::default(), Vec::new(), 0);
            for cut in cuts.iter().cycle() {
                let end = (at + cut).min(bytes.len());
                reader.push(&bytes[at..end]);
                at = end;
                while let Some(frame) = reader.next_frame().unwrap() {
                    read.push(frame);
                }
                if at == bytes.len() {
                    break;
                }
            }
            let mut expected = frames();
            expected.push(Frame::Output(b"last".to_vec()));
            prop_assert_eq!(read, expected);
        }

        #[test]
        fn no_bytes_make_the_frame_reader_panic(bytes: Vec<u8>) {
            let mut reader = FrameReader::default();
            reader.push(&bytes);
            while let Ok(Some(_)) = reader.next_frame() {}
        }
    }

    #[test]
    fn a_frame_of_four_gigabytes_is_refused_before_it_is_kept() {
        let mut reader = FrameReader::default();
        reader.push(&[1, 0xff, 0xff, 0xff, 0xff]);
        assert!(matches!(reader.next_frame(), Err(FrameError::TooLong(_))));
    }
}
