//! A crate's clippy.toml replaces the workspace's, so it must repeat what that says.

use super::{File, Finding, Tree};

const WORKSPACE: &str = "clippy.toml";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(workspace) = tree.file(WORKSPACE) else { return vec![] };
    let of_crates = tree.files.iter().filter(|file| file.path.ends_with("/clippy.toml"));
    of_crates.flat_map(|file| missing(workspace, file)).collect()
}

fn missing(workspace: &File, file: &File) -> Vec<Finding> {
    let is_setting = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let has = |setting: &str| file.text.lines().any(|line| line.trim() == setting);
    let settings = workspace.text.lines().map(str::trim).filter(is_setting);
    settings
        .filter(|setting| !has(setting))
        .map(|setting| {
            let what = format!("`{setting}` of the workspace's {WORKSPACE} is not repeated");
            Finding::new(&file.path, 1, what, "repeat it: clippy reads only the nearest file")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::of_files;

    #[test]
    fn a_setting_that_is_not_repeated_is_found() {
        let workspace = ("clippy.toml", "# why\na = 1\nb = 2\n");
        let tree = of_files(&[workspace, ("crates/x/clippy.toml", "b = 2\nc = 3\n")]);
        let found: Vec<String> = check(&tree).into_iter().map(|finding| finding.what).collect();
        assert_eq!(found, ["`a = 1` of the workspace's clippy.toml is not repeated"]);
    }

    #[test]
    fn without_a_fence_there_is_nothing_to_check() {
        assert_eq!(check(&of_files(&[("clippy.toml", "a = 1\n")])), []);
    }
}
