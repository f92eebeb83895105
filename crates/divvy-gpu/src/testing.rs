//! Machines of fake devices for tests of this crate and of crates that use it: the real backend over fake-nvml.
//! Behind the feature `testing`, which no product enables.
#![allow(clippy::expect_used, clippy::panic, reason = "a test that can't be set up has failed")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::{Choice, Source};

/// A machine that a text describes (fake-nvml's README says how), with a copy of the library to itself, so that tests
/// in one process don't see each other's machines. Programs under test get [`Self::library`] as `DIVVY_NVML`.
#[derive(Debug)]
pub struct FakeMachine {
    folder: tempfile::TempDir,
}

impl FakeMachine {
    /// Sets up a machine.
    pub fn new(description: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the machine");
        fs::copy(fake_nvml(), folder.path().join("libnvidia-ml.so.1")).expect("a copy of the library");
        let machine = Self { folder };
        machine.describe(description);
        machine
    }

    /// Changes the machine, also for programs that are running on it.
    pub fn describe(&self, description: &str) {
        let draft = self.folder.path().join("draft.toml");
        fs::write(&draft, description).expect("a description");
        // Renamed into place, so that a half-written one is never read.
        fs::rename(draft, self.folder.path().join("machine.toml")).expect("a description in its place");
    }

    /// Returns the library, for `DIVVY_NVML`.
    pub fn library(&self) -> PathBuf {
        self.folder.path().join("libnvidia-ml.so.1")
    }

    /// Opens the machine as a source of devices in this process.
    pub fn source(&self) -> Source {
        let libraries = [self.library()];
        Source::open_from(&Choice::Nvml, self.folder.path(), &libraries).expect("a machine that answers")
    }
}

/// Builds fake-nvml, once per process, and returns the library. Cargo does nothing if it is up to date.
pub fn fake_nvml() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(build)
}

/// Builds into the folder that the running test was built into, whatever set that (`CARGO_TARGET_DIR`, a config file,
/// `--target-dir`, `--target`): a test is at TARGET/PROFILE/deps/NAME, an example or binary one folder higher.
fn build() -> PathBuf {
    let me = env::current_exe().expect("the path of this test");
    let profile_folder = me
        .ancestors()
        .skip(1)
        .find(|folder| !folder.ends_with("deps") && !folder.ends_with("examples"))
        .expect("a folder of a profile");
    let target_folder = profile_folder.parent().expect("a target folder");
    let profile = match profile_folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--package", "fake-nvml", "--profile", profile, "--target-dir"])
        .arg(target_folder)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        // Set for this package while its tests run; it must not affect another package's build.
        .env_remove("CARGO_MANIFEST_DIR")
        .output()
        .expect("cargo, to build fake-nvml");
    assert!(built.status.success(), "building fake-nvml: {}", String::from_utf8_lossy(&built.stderr));
    let library = profile_folder.join("libfake_nvml.so");
    assert!(library.exists(), "fake-nvml was built, but not to {}", library.display());
    library
}
