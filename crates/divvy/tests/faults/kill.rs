//! The daemon killed at random moments under load. `cargo xtask kill` does it a thousand times; here it is forty, and in
//! the second half supervisors are killed as well.

use std::process::Command;

use crate::pool::DIVVY;

#[test]
fn a_daemon_that_is_killed_at_forty_random_moments_loses_and_doubles_nothing() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        // Cargo's variables about this package would make it build other packages anew.
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"]
            .iter()
            .any(|about| name.starts_with(about))
        {
            command.env_remove(name.as_ref());
        }
    }
    command.args([
        "run",
        "--quiet",
        "--package",
        "xtask",
        "--",
        "kill",
        "--rounds",
        "40",
        "--seed",
        "20",
        "--program",
        DIVVY,
    ]);
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
}
