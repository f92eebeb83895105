//! Where lock files are.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Everybody may make files; nobody may remove those of other users.
const SHARED: u32 = 0o1777;

/// A folder for lock files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    folder: PathBuf,
    /// The prefix of lock files' names, in folders that are not Divvy's own.
    prefix: &'static str,
    /// Whether the folder is Divvy's own, to be made if it is missing.
    is_own: bool,
}

/// Lists the places of a machine, the best first. Which one is used depends on who came first: if ordinary users
/// may not write to /run/lock, and root has made no folder for them, they use /tmp.
pub(super) fn of_the_machine() -> Vec<Place> {
    vec![
        Place::own(Path::new("/run/lock/divvy")),
        Place::shared(Path::new("/run/lock")),
        Place::shared(Path::new("/tmp")),
    ]
}

impl Place {
    /// Describes a folder of Divvy's own.
    pub(super) fn own(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), prefix: "", is_own: true }
    }

    /// Describes a folder that others use too.
    pub(super) fn shared(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), prefix: "divvy-", is_own: false }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{}{name}", self.prefix))
    }

    /// Makes the folder if it is missing and lets everybody use it, so that no pool is kept out of it and locks
    /// elsewhere.
    pub(super) fn prepare(&self) -> io::Result<()> {
        if self.is_own {
            self.make()?;
        }
        if self.is_shared()? {
            return Ok(());
        }
        if !self.is_own {
            return Err(io::Error::other("is not writable by everybody"));
        }
        // It was made a moment ago under a umask, or wrongly; only its owner and root can fix that.
        fs::set_permissions(&self.folder, Permissions::from_mode(SHARED))
    }

    /// Returns whether an unusable lock file here is an error. In a folder that everybody can write it may be
    /// planted, or the folder itself may be: both are passed over when a place is chosen.
    pub(super) fn is_trusted(&self) -> bool {
        self.is_own && self.is_shared().unwrap_or(false)
    }

    fn is_shared(&self) -> io::Result<bool> {
        let metadata = fs::symlink_metadata(&self.folder)?;
        if !metadata.is_dir() {
            return Err(io::Error::other("is not a folder"));
        }
        Ok(metadata.mode() & SHARED == SHARED)
    }

    fn make(&self) -> io::Result<()> {
        match DirBuilder::new().mode(0o777).create(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }
}
