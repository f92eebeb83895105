//! The files of the checkout that belong to the project.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use anyhow::Result;

use crate::cargo;

/// A text file of the project.
#[derive(Debug)]
pub(super) struct File {
    /// Relative to the root, with slashes.
    pub(super) path: String,
    pub(super) text: String,
}

impl File {
    pub(super) fn new(path: impl Into<String>, text: impl Into<String>) -> File {
        File { path: path.into(), text: text.into() }
    }

    pub(super) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Tells whether the whole file is made of tests.
    pub(super) fn is_of_tests(&self) -> bool {
        let folders = self.path.rsplit_once('/').map_or("", |(folders, _)| folders);
        let stem = self.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
        folders.split('/').any(|folder| folder == "tests" || folder == "benches")
            || stem == "tests"
            || stem.ends_with("_tests")
    }

    /// Returns the lines, counted from 1.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// Returns the line on which `words` first stand, or the first line.
    pub(super) fn line_of(&self, words: &str) -> usize {
        self.lines().find(|(_, line)| line.contains(words)).map_or(1, |(number, _)| number)
    }
}

/// Everything that git tracks, or would track once added.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// The text files.
    pub(super) files: Vec<File>,
    /// The paths of all files, binary ones too.
    pub(super) paths: BTreeSet<String>,
}

impl Tree {
    pub(super) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Tells whether anything lies below a folder.
    pub(super) fn has_folder(&self, folder: &str) -> bool {
        let below = format!("{}/", folder.trim_end_matches('/'));
        folder.is_empty() || self.paths.range(below.clone()..).next().is_some_and(|p| p.starts_with(&below))
    }
}

/// Reads the checkout. Files that git would not track, such as what a build leaves, are no part of it.
pub(super) fn load() -> Result<Tree> {
    let root = cargo::root();
    let listed = cargo::output(
        Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&root),
    )?;
    let mut tree = Tree::default();
    for path in String::from_utf8_lossy(&listed).split('\0').filter(|path| !path.is_empty()) {
        // A file that is tracked but deleted, or a link to a folder, can't be read and is not there to be checked.
        let Ok(bytes) = fs::read(root.join(path)) else { continue };
        tree.paths.insert(path.to_owned());
        if let Ok(text) = String::from_utf8(bytes) {
            tree.files.push(File::new(path, text));
        }
    }
    Ok(tree)
}

/// Builds a tree for tests from `(path, text)`.
#[cfg(test)]
pub(super) fn of_files(files: &[(&str, &str)]) -> Tree {
    Tree {
        files: files.iter().map(|(path, text)| File::new(*path, *text)).collect(),
        paths: files.iter().map(|(path, _)| (*path).to_owned()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_tests_are_known_by_their_place_or_name() {
        for path in ["crates/a/tests/gang.rs", "crates/a/src/plan/tests.rs", "crates/a/src/share_tests.rs"] {
            assert!(File::new(path, "").is_of_tests(), "{path}");
        }
        for path in ["crates/a/src/plan.rs", "crates/a/src/attests.rs", "crates/tests_wait/src/lib.rs"] {
            assert!(!File::new(path, "").is_of_tests(), "{path}");
        }
    }

    #[test]
    fn a_folder_is_there_if_a_file_is_below_it() {
        let tree = of_files(&[("docs/reasons/a.md", ""), ("docs.md", "")]);
        assert!(tree.has_folder("docs") && tree.has_folder("docs/reasons") && tree.has_folder(""));
        assert!(!tree.has_folder("doc") && !tree.has_folder("docs/reasons/a"));
    }
}
