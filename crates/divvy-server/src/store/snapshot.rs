//! Snapshots: the state at a position, kept as a cache, so that opening folds only the tail of the log. A bad snapshot is
//! ignored: the log is the truth.

use std::fs::{self, OpenOptions};
use std::hash::Hasher;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use divvy_core::event;
use divvy_core::id::Position;
use divvy_core::state::State;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::chain::{Link, checksum};

/// How many are kept: the newest, and one more in case the newest is unreadable.
const KEPT: usize = 2;

/// The first line of a snapshot; the state follows as JSON, and eight bytes of checksum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// The program's version: another version may keep a different state.
    pub(crate) program: String,
    /// The version of the events' forms.
    pub(crate) version: u16,
    /// The position of the state.
    pub(crate) position: Position,
    /// The chain up to that position: a log with other events has another one.
    pub(crate) link: u64,
    /// The state's own digest.
    pub(crate) digest: u64,
}

/// Writes a snapshot and removes all but the newest.
pub(crate) fn write(state_dir: &Path, link: Link, state: &State) -> io::Result<()> {
    let dir = directory(state_dir)?;
    let head = Head {
        program: program(),
        version: event::VERSION,
        position: state.position,
        link: link.0,
        digest: state.digest(),
    };
    let (made, path) = (dir.join("new"), dir.join(format!("{:020}", state.position.0)));
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&made)?;
    let mut out =
        Summing { inner: BufWriter::with_capacity(64 << 10, file), hasher: XxHash3_64::with_seed(0) };
    serde_json::to_writer(&mut out, &head)?;
    out.write_all(b"\n")?;
    serde_json::to_writer(&mut out, state)?;
    let sum = out.hasher.finish();
    out.inner.write_all(&sum.to_le_bytes())?;
    out.inner.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    fs::rename(&made, &path)?;
    for old in kept(&dir)?.into_iter().skip(KEPT) {
        fs::remove_file(old)?;
    }
    Ok(())
}

/// Returns the newest state that fits the log; `fits` returns the chain at a position.
pub(crate) fn newest(state_dir: &Path, fits: impl Fn(Position) -> Option<Link>) -> Option<(State, Link)> {
    let found = kept(&state_dir.join("snapshots")).ok()?;
    found.iter().find_map(|path| read(path, &fits))
}

fn read(path: &Path, fits: impl Fn(Position) -> Option<Link>) -> Option<(State, Link)> {
    let bytes = fs::read(path).ok()?;
    let (bytes, sum) = bytes.split_last_chunk::<8>()?;
    if checksum(bytes) != u64::from_le_bytes(*sum) {
        return None;
    }
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let head: Head = serde_json::from_slice(&bytes[..end]).ok()?;
    let link = fits(head.position)?;
    if head.program != program() || head.version != event::VERSION || head.link != link.0 {
        return None;
    }
    let state: State = serde_json::from_slice(&bytes[end + 1..]).ok()?;
    (state.position == head.position && state.digest() == head.digest).then_some((state, link))
}

/// Passes bytes on and computes their checksum.
struct Summing<W> {
    inner: W,
    hasher: XxHash3_64,
}

impl<W: Write> Write for Summing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hasher.write(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn directory(state_dir: &Path) -> io::Result<PathBuf> {
    let dir = state_dir.join("snapshots");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
    Ok(dir)
}

/// The snapshots in a directory, newest first.
fn kept(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            found.push(entry.path());
        }
    }
    found.sort_unstable_by(|a, b| b.cmp(a));
    Ok(found)
}

fn program() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}
