//! The command line in a folder, without a pool.

use std::path::Path;
use std::process::Command;

/// What a command said.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs a command in a folder.
pub(crate) fn divvy(folder: &Path, line: &str) -> Said {
    let output =
        Command::new(env!("CARGO_BIN_EXE_divvy")).args(line.split(' ')).current_dir(folder).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

/// Likewise for a command that must succeed; returns what it wrote.
#[track_caller]
pub(crate) fn done(folder: &Path, line: &str) -> String {
    let said = divvy(folder, line);
    assert_eq!(said.code, 0, "{line}: {}", said.err);
    said.out
}
