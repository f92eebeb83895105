//! The part of `cargo metadata` that the checks read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::cargo;

/// The workspace and everything it depends on, as cargo resolved it.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
    pub(crate) target_directory: PathBuf,
    pub(crate) workspace_root: PathBuf,
    resolve: Resolve,
}

/// A crate, of the workspace or from elsewhere.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) manifest_path: PathBuf,
    /// Dependencies as the manifest declares them.
    pub(crate) dependencies: Vec<Dependency>,
}

/// One line of a manifest's dependencies.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None` for a product dependency, else `dev` or `build`.
    pub(crate) kind: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Debug, Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<EdgeKind>,
}

#[derive(Debug, Deserialize)]
struct EdgeKind {
    kind: Option<String>,
}

impl Edge {
    /// Tells whether what it leads to is linked into the product.
    fn is_linked(&self) -> bool {
        self.dep_kinds.iter().any(|kind| kind.kind.is_none())
    }
}

/// Asks cargo for the workspace's metadata.
pub(crate) fn load() -> Result<Metadata> {
    // One platform, so that what only Windows or WebAssembly pulls in is neither downloaded nor judged.
    let bytes = cargo::output(cargo::cargo().args([
        "metadata",
        "--format-version=1",
        "--filter-platform=x86_64-unknown-linux-gnu",
    ]))?;
    serde_json::from_slice(&bytes).context("reading the output of `cargo metadata`")
}

impl Metadata {
    /// Returns the crates of the workspace.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        let ids: BTreeSet<&str> = self.workspace_members.iter().map(String::as_str).collect();
        self.packages.iter().filter(move |package| ids.contains(package.id.as_str()))
    }

    /// Returns, for every crate linked into the product of `member`, the shortest chain of names that leads to it.
    pub(crate) fn linked_by(&self, member: &str) -> BTreeMap<&str, Vec<&str>> {
        let name: BTreeMap<&str, &str> =
            self.packages.iter().map(|package| (package.id.as_str(), package.name.as_str())).collect();
        let node: BTreeMap<&str, &Node> =
            self.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
        let start = self.members().find(|package| package.name == member);
        let mut waiting: VecDeque<(&str, Vec<&str>)> =
            start.map(|package| (package.id.as_str(), vec![])).into_iter().collect();
        let mut seen = BTreeSet::new();
        let mut chains = BTreeMap::new();
        while let Some((id, mut chain)) = waiting.pop_front() {
            if !seen.insert(id) {
                continue;
            }
            chain.push(name.get(id).copied().unwrap_or(id));
            for edge in node.get(id).iter().flat_map(|node| &node.deps).filter(|edge| edge.is_linked()) {
                waiting.push_back((&edge.pkg, chain.clone()));
            }
            chains.entry(chain[chain.len() - 1]).or_insert(chain);
        }
        chains
    }
}

/// Builds metadata for tests from `(crate, kind, dependency)`; names that never stand first are from the registry.
#[cfg(test)]
pub(crate) fn of_edges(edges: &[(&str, Option<&str>, &str)]) -> Metadata {
    let members: BTreeSet<&str> = edges.iter().map(|edge| edge.0).filter(|name| is_own(name)).collect();
    let all: BTreeSet<&str> =
        edges.iter().flat_map(|edge| [edge.0, edge.2]).filter(|n| !n.is_empty()).collect();
    let packages = all.iter().map(|name| Package {
        id: (*name).into(),
        name: (*name).into(),
        manifest_path: format!("/r/crates/{name}/Cargo.toml").into(),
        dependencies: edges
            .iter()
            .filter(|edge| edge.0 == *name && !edge.2.is_empty())
            .map(|edge| Dependency { name: edge.2.into(), kind: edge.1.map(Into::into) })
            .collect(),
    });
    let nodes = all.iter().map(|name| Node {
        id: (*name).into(),
        deps: edges
            .iter()
            .filter(|edge| edge.0 == *name && !edge.2.is_empty())
            .map(|edge| Edge {
                pkg: edge.2.into(),
                dep_kinds: vec![EdgeKind { kind: edge.1.map(Into::into) }],
            })
            .collect(),
    });
    Metadata {
        packages: packages.collect(),
        workspace_members: members.into_iter().map(Into::into).collect(),
        target_directory: "/r/target".into(),
        workspace_root: "/r".into(),
        resolve: Resolve { nodes: nodes.collect() },
    }
}

#[cfg(test)]
fn is_own(name: &str) -> bool {
    name.starts_with("divvy") || ["fake-nvml", "xtask"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_found_through_others_with_the_chain_that_leads_to_it() {
        let metadata = of_edges(&[
            ("divvy-core", None, "yaml"),
            ("yaml", None, "libc"),
            ("divvy-core", Some("dev"), "proptest"),
            ("proptest", None, "rand"),
        ]);
        let linked = metadata.linked_by("divvy-core");
        assert_eq!(linked["libc"], ["divvy-core", "yaml", "libc"]);
        assert!(!linked.contains_key("rand"), "what only tests use is not linked into the product");
    }

    #[test]
    fn a_crate_that_does_not_exist_yet_links_nothing() {
        assert!(of_edges(&[]).linked_by("divvy-core").is_empty());
    }
}
