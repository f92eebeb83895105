//! `cargo xtask tidy`: the project's own rules, each a small function over text that returns what it found.

mod edges;
mod fence;
mod links;
mod names;
mod outline;
mod places;
mod purity;
mod reasons;
mod size;
mod tests_wait;
mod tree;
mod unfinished;

use std::fmt;

use anyhow::{Result, bail};

use crate::metadata;
use outline::Outline;
use tree::{File, Tree};

/// One breach of a rule: where it is, what it is, what to do about it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    /// Counted from 1.
    line: usize,
    what: String,
    fix: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, what: what.into(), fix: fix.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}\n    {}", self.path, self.line, self.what, self.fix)
    }
}

/// Runs every check and prints what they found.
pub(crate) fn run() -> Result<()> {
    let tree = tree::load()?;
    let metadata = metadata::load()?;
    let mut findings = of_workspace(&tree, &metadata);
    findings.extend(tree.files.iter().flat_map(of_file));
    findings.sort();
    findings.dedup();
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("tidy found {} to put right", counted(findings.len(), "thing"));
    }
    println!("tidy: {} in order", counted(tree.files.len(), "file"));
    Ok(())
}

/// Checks that need more than one file.
fn of_workspace(tree: &Tree, metadata: &metadata::Metadata) -> Vec<Finding> {
    let mut findings = edges::check(metadata, tree);
    findings.extend(purity::check(metadata, tree));
    findings.extend(names::check_crates(metadata));
    findings.extend(reasons::check(tree));
    findings.extend(links::check(tree));
    findings.extend(places::check_planner_is_explained(tree));
    findings.extend(fence::check(tree));
    findings
}

/// Checks that see one file at a time.
fn of_file(file: &File) -> Vec<Finding> {
    let mut findings = places::check_paths(file);
    if !file.is_rust() {
        return findings;
    }
    findings.extend(size::check_file(file));
    findings.extend(names::check_module_file(&file.path));
    match Outline::of(file) {
        Ok(outline) => {
            findings.extend(size::check_functions(file, &outline));
            findings.extend(names::check_types_and_modules(file, &outline));
            findings.extend(unfinished::check(file, &outline));
            findings.extend(tests_wait::check(file, &outline));
        }
        Err(finding) => findings.push(finding),
    }
    findings
}

fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_where_what_and_what_to_do() {
        let finding = Finding::new("src/a.rs", 7, "a thing is wrong", "put it right");
        assert_eq!(finding.to_string(), "src/a.rs:7: a thing is wrong\n    put it right");
    }

    #[test]
    fn one_file_is_checked_against_every_rule_for_files() {
        let file = File::new("crates/x/src/utils.rs", "struct JobInfo;\nfn f() { todo!() }\n");
        let rules: Vec<usize> = of_file(&file).iter().map(|finding| finding.line).collect();
        assert_eq!(rules, [1, 1, 2]);
    }

    #[test]
    fn a_file_that_is_not_rust_is_only_checked_for_what_any_text_must_keep() {
        assert_eq!(of_file(&File::new("notes/utils.txt", "struct JobInfo;")), []);
    }
}
