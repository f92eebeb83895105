//! Calls of cargo from a program that cargo itself has started.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Returns the root of the checkout that `cargo xtask` was called in.
pub(crate) fn root() -> PathBuf {
    // Cargo sets the variable for what it runs; the compiled-in value serves a binary that is started by hand.
    let xtask =
        env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| OsString::from(env!("CARGO_MANIFEST_DIR")));
    Path::new(&xtask).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Returns the same cargo that runs this program, to be started at the root.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.current_dir(root());
    // Cargo's variables about xtask would otherwise reach other packages' build scripts, and rebuild them.
    for (name, _) in env::vars_os() {
        if is_about_this_package(&name.to_string_lossy()) {
            command.env_remove(&name);
        }
    }
    command
}

fn is_about_this_package(variable: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"]
        .iter()
        .any(|prefix| variable.starts_with(prefix))
}

/// Runs a command with this program's output and fails unless it succeeds.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = shown(command);
    let status = command.status().with_context(|| format!("starting `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// Runs a command and returns what it wrote to its standard output.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let line = shown(command);
    let output = command.output().with_context(|| format!("starting `{line}`"))?;
    if !output.status.success() {
        bail!("`{line}` failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

/// Writes a command as a person would type it: the program by its name alone.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_about_this_package_are_kept_from_what_it_starts() {
        assert!(is_about_this_package("CARGO_PKG_VERSION"));
        assert!(is_about_this_package("CARGO_MANIFEST_DIR"));
        assert!(!is_about_this_package("CARGO_TARGET_DIR"));
        assert!(!is_about_this_package("CARGO_HOME"));
    }

    #[test]
    fn a_command_is_shown_by_the_name_of_its_program() {
        assert_eq!(shown(Command::new("/opt/bin/cargo").args(["fmt", "--check"])), "cargo fmt --check");
    }

    #[test]
    fn a_failed_command_is_named_in_the_error() {
        let error = run(&mut Command::new("false")).unwrap_err();
        assert!(error.to_string().starts_with("`false` failed"), "{error}");
    }
}
