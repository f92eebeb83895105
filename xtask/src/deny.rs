//! `cargo xtask deny`: licences, bans and sources of every dependency, by cargo-deny and deny.toml.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{cargo, metadata};

/// The release of cargo-deny that everyone uses; an unoptimised build takes a minute on two cores, and the check
/// itself then two seconds.
const VERSION: &str = "0.20.2";

/// Runs the check, installing the tool first where it is missing.
pub(crate) fn run() -> Result<()> {
    let tools = metadata::load()?.target_directory.join("tools");
    let tool = installed(&tools)?;
    // The advisory database is left out: it is a git repository, which closed networks can't reach.
    cargo::run(Command::new(tool).args(["check", "licenses", "bans", "sources"]).current_dir(cargo::root()))
}

/// Returns the tool's path, in the pinned version.
fn installed(tools: &Path) -> Result<PathBuf> {
    let tool = tools.join("bin/cargo-deny");
    if !is_pinned_version(&tool) {
        println!("installing cargo-deny {VERSION} into {} (once)", tools.display());
        install(tools)?;
    }
    Ok(tool)
}

fn is_pinned_version(tool: &Path) -> bool {
    let said = Command::new(tool).arg("--version").output();
    said.is_ok_and(|said| says_version(&String::from_utf8_lossy(&said.stdout), VERSION))
}

fn says_version(said: &str, version: &str) -> bool {
    said.split_whitespace().eq(["cargo-deny", version])
}

fn install(tools: &Path) -> Result<()> {
    let build = tools.join("build");
    cargo::run(
        cargo::cargo()
            .args(["install", "--quiet", "--locked", "--force", "--debug", "--root"])
            .arg(tools)
            .arg(format!("cargo-deny@{VERSION}"))
            // With link-time optimisation, as its own release profile has it, the build would take many times longer.
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_TARGET_DIR", &build)
            .env_remove("RUSTFLAGS"),
    )
    .with_context(|| format!("installing cargo-deny {VERSION} from crates.io; is the registry reachable?"))?;
    fs::remove_dir_all(&build).with_context(|| format!("removing {}", build.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_pinned_version_counts_as_installed() {
        assert!(says_version("cargo-deny 0.20.2\n", "0.20.2"));
        assert!(!says_version("cargo-deny 0.20.20\n", "0.20.2"));
        assert!(!says_version("", "0.20.2"));
    }

    #[test]
    fn a_missing_tool_is_not_installed() {
        assert!(!is_pinned_version(Path::new("/nonexistent/cargo-deny")));
    }
}
