//! Files that the simulator reads and writes.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use divvy_sim::trace::TraceError;
use tempfile::NamedTempFile;

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
    let target = Target::open(path).map_err(|error| Failure::making(path, &error))?;
    let mut out = BufWriter::new(target);
    write(&mut out).map_err(|failure| failure.because(format!("while writing {}", path.display())))?;
    let target = out.into_inner().map_err(io::IntoInnerError::into_error);
    target.and_then(Target::finish).map_err(|error| Failure::file("write", path, &error))
}

/// Where the content of a file goes.
enum Target {
    /// To a new file beside it, which takes its place at the end: whatever keeps it from being finished, its old content stays.
    Beside(NamedTempFile, PathBuf),
    /// Into it: a pipe, a device, a file with several names or one in a folder that takes no new file.
    Itself(File),
}

impl Target {
    fn open(path: &Path) -> io::Result<Self> {
        let (end, there) = match std::fs::metadata(path) {
            Ok(there) => {
                // What may not be written is not replaced either.
                let file = File::options().write(true).open(path)?;
                if !there.is_file() || there.nlink() > 1 {
                    return Self::into_emptied(file, &there);
                }
                let Ok(end) = std::fs::canonicalize(path) else { return Self::into_emptied(file, &there) };
                (end, Some((file, there)))
            }
            Err(_) => (end_of(path), None),
        };
        let folder = end.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mode = Permissions::from_mode(there.as_ref().map_or(0o666, |(_, there)| there.mode() & 0o777));
        let made = tempfile::Builder::new().prefix(".divvy-").permissions(mode.clone()).tempfile_in(folder);
        match (made, there) {
            (Ok(beside), None) => Ok(Self::Beside(beside, end)),
            (Ok(beside), Some((file, there))) => {
                let is_same_owner = beside.as_file().metadata().is_ok_and(|made| made.uid() == there.uid());
                // A file of somebody else stays theirs.
                if !is_same_owner {
                    return Self::into_emptied(file, &there);
                }
                beside.as_file().set_permissions(mode)?;
                Ok(Self::Beside(beside, end))
            }
            (Err(_), Some((file, there))) => Self::into_emptied(file, &there),
            (Err(_), None) => File::create(&end).map(Self::Itself),
        }
    }

    fn into_emptied(file: File, there: &Metadata) -> io::Result<Self> {
        if there.is_file() {
            file.set_len(0)?;
        }
        Ok(Self::Itself(file))
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::Beside(file, end) => file.persist(end).map(drop).map_err(|failed| failed.error),
            Self::Itself(_) => Ok(()),
        }
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Beside(file, _) => file.write(bytes),
            Self::Itself(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(name: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        (folder, path)
    }

    fn names(folder: &Path) -> usize {
        std::fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn a_file_that_is_not_finished_keeps_its_old_content() {
        let (folder, path) = folder_with("jobs.csv", 0o640);
        let failed = write_to(Some(&path), |to| {
            to.write_all(&[b'x'; 100_000])?;
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
            Err(io::Error::other("no space left").into())
        });
        assert!(failed.is_err());
        assert_eq!((std::fs::read_to_string(&path).unwrap().as_str(), names(folder.path())), ("old", 1));
        write_to(Some(&path), |to| Ok(to.write_all(b"new")?)).unwrap();
        assert_eq!((std::fs::read_to_string(&path).unwrap().as_str(), names(folder.path())), ("new", 1));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
    }

    #[test]
    fn links_stay_links_and_all_names_of_a_file_show_the_same() {
        let (folder, path) = folder_with("jobs.csv", 0o644);
        let write = |to: &Path| {
            write_to(Some(to), |out| Ok(out.write_all(to.as_os_str().as_encoded_bytes())?)).unwrap()
        };
        let (link, dangling, other) =
            (folder.path().join("link"), folder.path().join("dangling"), folder.path().join("other"));
        std::os::unix::fs::symlink("jobs.csv", &link).unwrap();
        std::os::unix::fs::symlink("made.csv", &dangling).unwrap();
        write(&link);
        write(&dangling);
        assert!(link.is_symlink() && dangling.is_symlink());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), link.display().to_string());
        assert_eq!(
            std::fs::read_to_string(folder.path().join("made.csv")).unwrap(),
            dangling.display().to_string()
        );
        std::fs::hard_link(&path, &other).unwrap();
        write(&other);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), other.display().to_string());
        write(Path::new("/dev/null"));
    }
}
