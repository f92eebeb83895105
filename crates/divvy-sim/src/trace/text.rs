//! Bytes of a file, gzipped or not, with a bound on how much one record may take.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::TraceError;

/// The largest record that makes sense: a quote that is never closed would otherwise swallow the rest of the file.
pub(crate) const LONGEST_RECORD: u64 = 4 << 20;

/// How much is read at once; of little use when larger.
const BUFFER: usize = 64 << 10;

/// The two bytes that begin every gzip file, whatever its name.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Opens a file of records for reading; unpacks it on the way if it is gzipped.
pub(crate) fn open(path: &Path) -> Result<Bounded, TraceError> {
    Ok(Bounded { inner: open_unbounded(path)?, since_record: 0, lines: Lines::default() })
}

/// Opens a file whose reader cannot tell records apart.
pub(crate) fn open_unbounded(path: &Path) -> Result<Box<dyn Read + Send>, TraceError> {
    let cannot = |source| TraceError::Open { path: path.to_owned(), source };
    let mut packed = BufReader::with_capacity(BUFFER, File::open(path).map_err(cannot)?);
    let gzipped = packed.fill_buf().map_err(cannot)?.starts_with(&GZIP);
    Ok(if gzipped { Box::new(MultiGzDecoder::new(packed)) } else { Box::new(packed) })
}

/// A reader that fails once a single record takes more than [`LONGEST_RECORD`].
pub(crate) struct Bounded {
    inner: Box<dyn Read + Send>,
    since_record: u64,
    lines: Lines,
}

impl Bounded {
    /// Notes that a record ended.
    pub(crate) fn record_ended(&mut self) {
        self.since_record = 0;
    }

    /// The line of a record that begins at this byte or, where blank lines precede it, after it. The lines before it are
    /// forgotten: records are asked for in their order.
    pub(crate) fn line_of(&mut self, byte: u64) -> Option<u64> {
        self.lines.pass_to(byte)
    }
}

/// Where the lines begin that hold something, of those that were read and not passed yet. A reader of records counts a line
/// only when it has read its `\n`: after a `\r`, or before blank lines, it is behind.
#[derive(Default)]
struct Lines {
    /// The first byte of each, and its number.
    starts: VecDeque<(u64, u64)>,
    bytes: u64,
    /// How many lines have ended.
    ended: u64,
    last: Option<u8>,
}

impl Lines {
    fn read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let after_return = self.last == Some(b'\r');
            let is_first = after_return || matches!(self.last, None | Some(b'\n'));
            self.ended += u64::from(*byte == b'\n' || after_return);
            if is_first && !matches!(byte, b'\n' | b'\r') {
                self.starts.push_back((self.bytes, self.ended + 1));
            }
            self.bytes += 1;
            self.last = Some(*byte);
        }
    }

    fn pass_to(&mut self, byte: u64) -> Option<u64> {
        while self.starts.front().is_some_and(|(start, _)| *start < byte) {
            self.starts.pop_front();
        }
        self.starts.front().map(|(_, line)| *line)
    }
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.since_record > LONGEST_RECORD {
            let what = "one record is larger than 4 MiB; is there a quote that is never closed?";
            return Err(io::Error::other(what));
        }
        let count = self.inner.read(buffer)?;
        self.since_record += count as u64;
        self.lines.read(&buffer[..count]);
        Ok(count)
    }
}
