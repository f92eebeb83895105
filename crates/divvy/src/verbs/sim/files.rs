//! Files that the simulator reads and writes.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use divvy_sim::trace::TraceError;

use crate::exit::Exit;
use crate::failure::Failure;

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        let exit = match &error {
            TraceError::Open { source, .. } if source.kind() == io::ErrorKind::NotFound => Exit::NotFound,
            TraceError::Open { .. } | TraceError::Read { .. } => Exit::Io,
            _ => Exit::BadData,
        };
        Self::new(exit, error.to_string())
    }
}

/// The streams that are open for writing from the start.
#[derive(Clone, Copy)]
enum Stream {
    Output,
    Error,
}

impl Stream {
    /// Recognizes the system's names for the streams. Opening such a name would open the file behind the stream anew, and
    /// write over it from its beginning.
    fn of(path: &Path) -> Option<Self> {
        match path.to_str()? {
            "/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1" => Some(Self::Output),
            "/dev/stderr" | "/dev/fd/2" | "/proc/self/fd/2" => Some(Self::Error),
            _ => None,
        }
    }

    /// Writes after what is there.
    fn open(self) -> Box<dyn Write> {
        match self {
            Self::Output => Box::new(io::stdout().lock()),
            Self::Error => Box::new(io::stderr().lock()),
        }
    }
}

/// Writes a file with what `write` writes, or standard output where there is none.
pub(super) fn write_to(
    path: Option<&Path>,
    write: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Some(path) = path.filter(|path| Stream::of(path).is_none()) else {
        let stream = path.and_then(Stream::of).unwrap_or(Stream::Output);
        let mut out = BufWriter::new(stream.open());
        write(&mut out)?;
        return Ok(out.flush()?);
    };
    let mut out = BufWriter::new(File::create(path).map_err(|error| Failure::making(path, &error))?);
    write(&mut out).map_err(|failure| failure.because(format!("while writing {}", path.display())))?;
    out.flush().map_err(|error| Failure::file("write", path, &error))
}

/// The identity of a file, whichever of its names is used.
#[derive(PartialEq, Eq)]
enum Which {
    /// Device and inode of an existing file.
    There(u64, u64),
    /// Where a new file would be made.
    New(PathBuf),
}

impl Which {
    /// `None` for what is not a file: several writers may share a pipe or a terminal.
    fn of(path: &Path) -> Option<Self> {
        match std::fs::metadata(path) {
            Ok(there) => there.is_file().then(|| Self::There(there.dev(), there.ino())),
            Err(_) => {
                let path = end_of(path);
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                let folder = std::fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()?;
                Some(Self::New(folder.join(path.file_name()?)))
            }
        }
    }

    /// The file that is read, or the one behind standard input.
    fn read(path: &Path) -> Option<Self> {
        if path == Path::new("-") { Self::behind(io::stdin().as_fd()) } else { Self::of(path) }
    }

    /// The file behind an open descriptor.
    fn behind(open: BorrowedFd<'_>) -> Option<Self> {
        let there = File::from(open.try_clone_to_owned().ok()?).metadata().ok()?;
        there.is_file().then(|| Self::There(there.dev(), there.ino()))
    }
}

/// Where links lead that end at a file that does not exist yet: that file would be made.
fn end_of(path: &Path) -> PathBuf {
    /// As many as the system follows.
    const MOST_LINKS: usize = 40;
    let mut end = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(next) = std::fs::read_link(&end) else { break };
        end = end.parent().unwrap_or(Path::new("")).join(next);
    }
    end
}

/// Refuses to write over an input or over the file that takes the figures or messages, and to write twice into one file: its content
/// would be lost. `-` is read from standard input.
pub(super) fn must_differ<'a>(
    read: impl IntoIterator<Item = &'a Path>,
    written: impl IntoIterator<Item = &'a Path>,
) -> Result<(), Failure> {
    let streams = [
        (Which::behind(io::stdout().as_fd()), "standard output of"),
        (Which::behind(io::stderr().as_fd()), "standard error of"),
    ];
    let streams = streams.into_iter().filter_map(|(which, how)| Some((which?, how)));
    let read = read.into_iter().filter_map(Which::read).map(|which| (which, "read by"));
    let mut taken: Vec<(Which, &str)> = read.chain(streams).collect();
    for path in written.into_iter().filter(|path| Stream::of(path).is_none()) {
        let Some(which) = Which::of(path) else { continue };
        if let Some((_, how)) = taken.iter().find(|(other, _)| *other == which) {
            let what = format!("{} is {how} the same command, and would be written over", path.display());
            return Err(Failure::usage(what).fix("write to another file"));
        }
        taken.push((which, "written by"));
    }
    Ok(())
}

/// Checks that a file can be written when the time comes, which may be hours from now. Its content stays.
pub(super) fn will_be_written(path: &Path) -> Result<(), Failure> {
    if path == Path::new("-") {
        return Err(Failure::usage("standard output has the figures").fix("name a file, or /dev/stderr"));
    }
    if Stream::of(path).is_some() {
        return Ok(());
    }
    let tried = match std::fs::metadata(path) {
        Ok(there) if there.is_file() || there.is_dir() => File::options().write(true).open(path).map(drop),
        // A pipe is opened once.
        Ok(_) => Ok(()),
        Err(_) => {
            let end = end_of(path);
            File::create_new(&end).and_then(|_| std::fs::remove_file(&end))
        }
    };
    tried.map_err(|error| Failure::making(path, &error))
}
