//! Files that the simulator reads and writes.

use std::fs::File;
use std::io::{self, BufWriter, Write};
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

/// Writes a file with what `write` writes, or standard output where there is none.
pub(super) fn write_to(
    path: Option<&Path>,
    write: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Some(path) = path else {
        let mut out = BufWriter::new(io::stdout().lock());
        write(&mut out)?;
        return Ok(out.flush()?);
    };
    let mut out = BufWriter::new(File::create(path).map_err(|error| Failure::making(path, &error))?);
    write(&mut out).map_err(|failure| failure.because(format!("while writing {}", path.display())))?;
    out.flush().map_err(|error| Failure::file("write", path, &error))
}

/// A file by what it is, whichever of its names it is called by.
#[derive(PartialEq, Eq)]
enum Which {
    /// Device and number of one that is there.
    There(u64, u64),
    /// Where one would be made.
    New(PathBuf),
}

impl Which {
    /// Nothing for what is no file: into a pipe or a terminal several may write.
    fn of(path: &Path) -> Option<Self> {
        match std::fs::metadata(path) {
            Ok(there) => there.is_file().then(|| Self::There(there.dev(), there.ino())),
            Err(_) => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                let folder = std::fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()?;
                Some(Self::New(folder.join(path.file_name()?)))
            }
        }
    }
}

/// Refuses to write over what is read, and to write twice into one file: what was there would be gone.
pub(super) fn must_differ<'a>(
    read: impl IntoIterator<Item = &'a Path>,
    written: impl IntoIterator<Item = &'a Path>,
) -> Result<(), Failure> {
    let mut taken: Vec<(Which, &str)> =
        read.into_iter().filter_map(Which::of).map(|which| (which, "read")).collect();
    for path in written {
        let Some(which) = Which::of(path) else { continue };
        if let Some((_, how)) = taken.iter().find(|(other, _)| *other == which) {
            let what = format!("{} is {how} by the same command, and would be written over", path.display());
            return Err(Failure::usage(what).fix("write to another file"));
        }
        taken.push((which, "written"));
    }
    Ok(())
}

/// Whether a file can be written when there is something to write, which may be hours from now. What stands in it stays.
pub(super) fn will_be_written(path: &Path) -> Result<(), Failure> {
    if path == Path::new("-") {
        return Err(Failure::usage("standard output has the figures").fix("name a file, or /dev/stderr"));
    }
    let tried = match std::fs::metadata(path) {
        Ok(there) if there.is_file() || there.is_dir() => File::options().write(true).open(path).map(drop),
        // A pipe is opened once.
        Ok(_) => Ok(()),
        Err(_) => File::create_new(path).and_then(|_| std::fs::remove_file(path)),
    };
    tried.map_err(|error| Failure::making(path, &error))
}
