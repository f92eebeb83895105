//! The last acknowledged position, kept beside the database: events up to it that the log lacks were lost.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use divvy_core::id::Position;

use super::chain::{Link, checksum};

/// The file's name in the state directory.
const NAME: &str = "acked";

/// Position, link and a checksum of both.
const BYTES: usize = 24;

/// The last commit that was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acked {
    pub(crate) position: Position,
    pub(crate) link: Link,
}

/// The open file.
#[derive(Debug)]
pub(crate) struct AckedFile(File);

impl AckedFile {
    /// Opens the file, or makes it; returns what it holds. Unreadable content counts as none.
    pub(crate) fn open(state: &Path) -> io::Result<(Self, Option<Acked>)> {
        let path = state.join(NAME);
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let held = read(&file);
        Ok((Self(file), held))
    }

    /// Notes what is acknowledged from now on. When this returns the kernel has it, so it survives the daemon. A power cut may lose
    /// it: then only the means to notice another loss is gone.
    pub(crate) fn note(&self, acked: Acked) -> io::Result<()> {
        let mut bytes = [0u8; BYTES];
        bytes[..8].copy_from_slice(&acked.position.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&acked.link.0.to_le_bytes());
        let sum = checksum(&bytes[..16]);
        bytes[16..].copy_from_slice(&sum.to_le_bytes());
        self.0.write_all_at(&bytes, 0)
    }
}

/// Reads the record of a state directory without changing anything.
pub(crate) fn held(state: &Path) -> Option<Acked> {
    File::open(state.join(NAME)).ok().and_then(|file| read(&file))
}

fn read(file: &File) -> Option<Acked> {
    let mut bytes = [0u8; BYTES];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let number = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok();
    let good = number(16)? == checksum(&bytes[..16]);
    good.then_some(Acked { position: Position(number(0)?), link: Link(number(8)?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_read_again_and_what_is_torn_counts_as_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (file, before) = AckedFile::open(dir.path()).unwrap();
        assert_eq!(before, None);
        let acked = Acked { position: Position(41), link: Link(u64::MAX) };
        file.note(acked).unwrap();
        assert_eq!(held(dir.path()), Some(acked));
        file.0.write_all_at(&[9], 3).unwrap();
        assert_eq!(held(dir.path()), None);
    }
}
