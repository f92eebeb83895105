//! Files that the simulator reads and writes.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

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
    write(&mut out)?;
    out.flush().map_err(|error| Failure::file("write", path, &error))
}

/// Whether a file can be written when there is something to write, which may be hours from now. What stands in it stays.
pub(super) fn will_be_written(path: &Path) -> Result<(), Failure> {
    let tried = match std::fs::metadata(path) {
        Ok(there) if there.is_file() || there.is_dir() => File::options().write(true).open(path).map(drop),
        // A pipe is opened once.
        Ok(_) => Ok(()),
        Err(_) => File::create_new(path).and_then(|_| std::fs::remove_file(path)),
    };
    tried.map_err(|error| Failure::making(path, &error))
}
