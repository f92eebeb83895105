//! What must not be linked into the core: anything async, and anything that reaches the machine.

use super::edges::manifest;
use super::{Finding, Tree};
use crate::metadata::Metadata;

const CORE: &str = "divvy-core";

/// Crates by what they would let in. The standard library's ways out are fenced by the core's clippy.toml.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("async code", &["tokio", "async-std", "smol", "futures", "futures-util", "hyper", "axum", "tower"]),
    ("I/O", &["rusqlite", "rustix", "libc", "nix", "mio", "socket2", "tempfile", "memmap2", "libloading"]),
    ("entropy", &["rand", "rand_core", "getrandom", "fastrand", "ahash"]),
    ("a clock", &["jiff", "chrono", "time", "quanta"]),
    ("threads", &["rayon", "rayon-core", "crossbeam-channel", "parking_lot", "dashmap"]),
    ("global state", &["tracing", "log"]),
];

pub(super) fn check(metadata: &Metadata, tree: &Tree) -> Vec<Finding> {
    let linked = metadata.linked_by(CORE);
    let Some(core) = metadata.members().find(|package| package.name == CORE) else { return vec![] };
    let path = manifest(metadata, core);
    let mut findings = Vec::new();
    for (brings, names) in FORBIDDEN {
        for chain in names.iter().filter_map(|name| linked.get(name)) {
            let direct = chain.get(1).copied().unwrap_or(CORE);
            let line = tree.file(&path).map_or(1, |file| file.line_of(direct));
            findings.push(Finding::new(
                &path,
                line,
                format!("the core links {brings}: {}", chain.join(" → ")),
                format!(
                    "drop `{direct}` or its feature that asks for it; what needs it belongs in the shell"
                ),
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::of_edges;

    #[test]
    fn a_crate_that_reaches_the_machine_is_found_through_others() {
        let metadata = of_edges(&[("divvy-core", None, "yaml"), ("yaml", None, "libc")]);
        let findings = check(&metadata, &Tree::default());
        assert_eq!(findings[0].what, "the core links I/O: divvy-core → yaml → libc");
        assert_eq!(findings.len(), 1);
    }

    #[test]
    fn what_only_tests_or_other_crates_link_is_free() {
        let metadata = of_edges(&[
            ("divvy-core", Some("dev"), "proptest"),
            ("proptest", None, "rand"),
            ("divvy-server", None, "tokio"),
        ]);
        assert_eq!(check(&metadata, &Tree::default()), []);
    }

    #[test]
    fn without_a_core_there_is_nothing_to_check() {
        assert_eq!(check(&of_edges(&[]), &Tree::default()), []);
    }
}
