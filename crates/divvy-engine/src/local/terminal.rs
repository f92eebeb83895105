//! The protocol between a terminal and a supervisor over a unix socket.
//!
//! A frame is a byte for its kind (0 data, 1 window size), two bytes for the length of the rest (big-endian), and the rest
//! itself: raw bytes, or columns and rows of two bytes each. The terminal's side listens; the supervisor connects when the job
//! starts, and sends only data.

/// A frame of the conversation between a terminal and a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Bytes typed, or written by the task: 65,535 at most.
    Data(Vec<u8>),
    /// The size of the terminal's window, in characters.
    Size {
        /// Characters in a line.
        columns: u16,
        /// Lines.
        rows: u16,
    },
}

/// The bytes on the socket are no frame; the connection is of no further use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the other side of the terminal's socket does not speak its language: unknown frame (kind {kind}, {length} bytes)"
)]
pub struct BadFrame {
    kind: u8,
    length: u16,
}

const DATA: u8 = 0;
const SIZE: u8 = 1;
const HEADER_BYTES: usize = 3;

impl Frame {
    /// Appends the frame to a buffer. Data beyond 65,535 bytes becomes several frames.
    pub fn encode(&self, buffer: &mut Vec<u8>) {
        match self {
            Self::Data(bytes) => encode_data(bytes, buffer),
            Self::Size { columns, rows } => {
                buffer.extend([SIZE, 0, 4]);
                buffer.extend(columns.to_be_bytes());
                buffer.extend(rows.to_be_bytes());
            }
        }
    }
}

/// Appends frames with the bytes to a buffer.
pub fn encode_data(bytes: &[u8], buffer: &mut Vec<u8>) {
    for chunk in bytes.chunks(usize::from(u16::MAX)) {
        let length = u16::try_from(chunk.len()).unwrap_or(u16::MAX);
        buffer.push(DATA);
        buffer.extend(length.to_be_bytes());
        buffer.extend(chunk);
    }
}

/// Extracts frames from a stream of bytes that arrives in pieces.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
}

impl Decoder {
    /// Takes in what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend(bytes);
    }

    /// Returns the next whole frame, if there is one.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, BadFrame> {
        let [kind, high, low, ..] = self.buffer[..] else { return Ok(None) };
        let length = u16::from_be_bytes([high, low]);
        if !(kind == DATA || kind == SIZE && length == 4) {
            return Err(BadFrame { kind, length });
        }
        let end = HEADER_BYTES + usize::from(length);
        let Some(body) = self.buffer.get(HEADER_BYTES..end) else { return Ok(None) };
        let frame = match (kind, body) {
            (SIZE, &[c1, c2, r1, r2]) => {
                Frame::Size { columns: u16::from_be_bytes([c1, c2]), rows: u16::from_be_bytes([r1, r2]) }
            }
            _ => Frame::Data(body.to_vec()),
        };
        self.buffer.drain(..end);
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames() -> impl Strategy<Value = Vec<Frame>> {
        let data = proptest::collection::vec(any::<u8>(), 0..100).prop_map(Frame::Data);
        let size = (any::<u16>(), any::<u16>()).prop_map(|(columns, rows)| Frame::Size { columns, rows });
        // Data without bytes is no frame at all.
        let data = data.prop_filter("empty", |frame| *frame != Frame::Data(Vec::new()));
        proptest::collection::vec(prop_oneof![data, size], 0..8)
    }

    fn decode_all(decoder: &mut Decoder) -> Vec<Frame> {
        std::iter::from_fn(|| decoder.next_frame().unwrap()).collect()
    }

    proptest! {
        #[test]
        fn frames_read_back_as_written_however_the_stream_is_cut(frames in frames(), cut in 1usize..50) {
            let mut bytes = Vec::new();
            frames.iter().for_each(|frame| frame.encode(&mut bytes));
            let mut decoder = Decoder::default();
            let mut read = Vec::new();
            for piece in bytes.chunks(cut) {
                decoder.push(piece);
                read.extend(decode_all(&mut decoder));
            }
            prop_assert_eq!(read, frames);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic_or_spin(bytes: Vec<u8>) {
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            let mut count = 0;
            while let Ok(Some(_)) = decoder.next_frame() {
                count += 1;
            }
            prop_assert!(count <= bytes.len());
        }
    }

    #[test]
    fn long_data_becomes_several_frames() {
        let mut bytes = Vec::new();
        Frame::Data(vec![7; 70_000]).encode(&mut bytes);
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        let lengths: Vec<usize> = decode_all(&mut decoder)
            .iter()
            .map(|frame| match frame {
                Frame::Data(bytes) => bytes.len(),
                Frame::Size { .. } => 0,
            })
            .collect();
        assert_eq!(lengths, [65_535, 4_465]);
    }
}
