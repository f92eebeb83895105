//! Which crate of the workspace may use which.

use std::collections::BTreeSet;

use super::{Finding, Tree};
use crate::metadata::{Metadata, Package};

/// What each crate may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    ("divvy-core", &[]),
    ("divvy-api", &[]),
    ("divvy-sim", &["divvy-core", "divvy-insight"]),
    ("divvy-gpu", &["divvy-core"]),
    ("divvy-engine", &["divvy-core", "divvy-gpu"]),
    ("divvy-insight", &["divvy-core"]),
    ("divvy-server", &["divvy-core", "divvy-engine", "divvy-gpu", "divvy-insight", "divvy-sim", "divvy-api"]),
    ("divvy", &["divvy-api", "divvy-server", "divvy-sim", "divvy-engine"]),
    ("fake-nvml", &[]),
];

/// The one crate that may use any other.
const UNBOUND: &str = "xtask";

/// What no release contains, and so only tests may use.
const FOR_TESTS: &str = "fake-nvml";

pub(super) fn check(metadata: &Metadata, tree: &Tree) -> Vec<Finding> {
    metadata
        .members()
        .filter(|package| package.name != UNBOUND)
        .flat_map(|p| of_crate(metadata, tree, p))
        .collect()
}

fn of_crate(metadata: &Metadata, tree: &Tree, package: &Package) -> Vec<Finding> {
    let path = manifest(metadata, package);
    let Some(allowed) = allowed(&package.name) else {
        let what = format!("crate `{}` has no line in the table of allowed edges", package.name);
        return vec![Finding::new(&path, 1, what, "add it to xtask/src/tidy/edges.rs with what it may use")];
    };
    let members: BTreeSet<&str> = metadata.members().map(|member| member.name.as_str()).collect();
    let mut findings = Vec::new();
    for dependency in package.dependencies.iter().filter(|d| members.contains(d.name.as_str())) {
        let name = dependency.name.as_str();
        let is_for_tests = dependency.kind.as_deref() == Some("dev");
        if allowed.contains(&name) || (is_for_tests && tests_may_use(&package.name, name)) {
            continue;
        }
        let line = tree.file(&path).map_or(1, |file| file.line_of(name));
        let may =
            if allowed.is_empty() { "no crate of the workspace".to_owned() } else { allowed.join(", ") };
        findings.push(Finding::new(
            &path,
            line,
            format!("`{}` must not depend on `{name}`", package.name),
            format!("it may use {may}; move the code, or pass what it needs as an argument"),
        ));
    }
    findings
}

/// Tests may also use what their crate reaches through others, which tells the product nothing new.
fn tests_may_use(from: &str, to: &str) -> bool {
    to == FOR_TESTS || from == to || reached(from).contains(to)
}

fn reached(from: &str) -> BTreeSet<&'static str> {
    let direct = allowed(from).unwrap_or_default();
    direct.iter().copied().chain(direct.iter().flat_map(|next| reached(next))).collect()
}

fn allowed(name: &str) -> Option<&'static [&'static str]> {
    ALLOWED.iter().find(|(from, _)| *from == name).map(|(_, to)| *to)
}

/// Returns the path of a crate's manifest, relative to the root.
pub(super) fn manifest(metadata: &Metadata, package: &Package) -> String {
    let path = package.manifest_path.strip_prefix(&metadata.workspace_root).unwrap_or(&package.manifest_path);
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::of_edges;
    use crate::tidy::tree::of_files;

    fn found(edges: &[(&str, Option<&str>, &str)]) -> Vec<String> {
        check(&of_edges(edges), &Tree::default()).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn the_edges_of_the_table_pass() {
        let none: Vec<String> = vec![];
        assert_eq!(found(&[("divvy-engine", None, "divvy-gpu"), ("divvy-gpu", None, "divvy-core")]), none);
        assert_eq!(found(&[("xtask", None, "divvy"), ("divvy-core", None, "serde")]), none);
    }

    #[test]
    fn the_wire_types_and_the_core_do_not_know_each_other() {
        assert_eq!(
            found(&[("divvy-api", None, "divvy-core"), ("divvy-core", None, "serde")]),
            ["`divvy-api` must not depend on `divvy-core`"]
        );
    }

    #[test]
    fn tests_of_a_crate_may_use_what_it_reaches_through_others_and_the_pretended_library() {
        assert_eq!(
            found(&[("divvy", Some("dev"), "divvy-gpu"), ("divvy", Some("dev"), "fake-nvml")]).len(),
            0
        );
        assert_eq!(
            found(&[("divvy-api", Some("dev"), "divvy-core"), ("divvy-core", None, "serde")]).len(),
            1
        );
        assert_eq!(found(&[("divvy-gpu", None, "fake-nvml"), ("fake-nvml", None, "libc")]).len(), 1);
    }

    #[test]
    fn a_crate_without_a_line_is_named() {
        assert_eq!(
            found(&[("divvy-new", None, "serde")]),
            ["crate `divvy-new` has no line in the table of allowed edges"]
        );
    }

    #[test]
    fn the_finding_points_at_the_line_of_the_manifest() {
        let tree =
            of_files(&[("crates/divvy-api/Cargo.toml", "[dependencies]\ndivvy-core.workspace = true\n")]);
        let metadata = of_edges(&[("divvy-api", None, "divvy-core"), ("divvy-core", None, "serde")]);
        assert_eq!(check(&metadata, &tree)[0].line, 2);
    }
}
