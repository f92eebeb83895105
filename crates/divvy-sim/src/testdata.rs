//! Where tests and benchmarks find data that is too large for the repository.

use std::path::PathBuf;

/// The variable that names the folder of such data.
pub const VARIABLE: &str = "DIVVY_DATA";

/// Returns the path of a file (or folder) there. `None`, after a line that says so, where the variable is not set; in
/// continuous integration (`CI` is set) a missing file is an error, so that no check is skipped unnoticed.
#[allow(clippy::panic, reason = "for tests, which fail by panicking")]
pub fn shared(path: &str) -> Option<PathBuf> {
    let found = std::env::var_os(VARIABLE).map(|folder| PathBuf::from(folder).join(path));
    let there = found.filter(|found| found.exists());
    if there.is_none() {
        let strict = std::env::var_os("CI").is_some();
        assert!(!strict, "{VARIABLE} names no folder that holds {path}");
        eprintln!("skipped: set {VARIABLE} to the folder that holds {path}");
    }
    there
}
