//! The environments of jobs: files for the daemon only, from submission until the job has ended. They never enter the log.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use divvy_engine::local::JobEnvironment;

/// An environment on the disk, whose job has no number yet. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct Arrived {
    path: Option<PathBuf>,
    state: PathBuf,
}

impl Arrived {
    /// Writes the file and makes it durable: after a power cut, each job in the log has its environment, too.
    pub(crate) fn write(state: &Path, environment: &JobEnvironment) -> io::Result<Self> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let folder = state.join("environments");
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let path = folder.join(format!("new-{}", COUNTER.fetch_add(1, Ordering::Relaxed)));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        let arrived = Self { path: Some(path), state: state.to_owned() };
        file.write_all(&serde_json::to_vec(environment)?)?;
        file.sync_all()?;
        Ok(arrived)
    }

    /// Gives the file to the job with this number.
    pub(crate) fn belong_to(mut self, number: u64) -> io::Result<()> {
        match self.path.take() {
            Some(path) => fs::rename(path, JobEnvironment::path(&self.state, number)),
            None => Ok(()),
        }
    }
}

impl Drop for Arrived {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes all files except those of jobs that have not ended.
pub(crate) fn sweep(state: &Path, is_open: impl Fn(u64) -> bool) -> io::Result<()> {
    let entries = match fs::read_dir(state.join("environments")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let number =
            name.to_str().and_then(|name| name.strip_suffix(".json")).and_then(|name| name.parse().ok());
        if !number.is_some_and(&is_open) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_environment_is_private_and_goes_with_its_job() {
        let dir = tempfile::tempdir().unwrap();
        let environment =
            JobEnvironment { base: [("TOKEN".into(), "s3cret".into())].into(), ..JobEnvironment::default() };
        Arrived::write(dir.path(), &environment).unwrap().belong_to(7).unwrap();
        Arrived::write(dir.path(), &environment).unwrap().belong_to(8).unwrap();
        drop(Arrived::write(dir.path(), &environment).unwrap());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&JobEnvironment::path(dir.path(), 7)), 0o600);
        assert_eq!(mode(&dir.path().join("environments")), 0o700);
        assert_eq!(fs::read_dir(dir.path().join("environments")).unwrap().count(), 2);
        sweep(dir.path(), |number| number == 8).unwrap();
        assert!(
            !JobEnvironment::path(dir.path(), 7).exists() && JobEnvironment::path(dir.path(), 8).exists()
        );
    }
}
