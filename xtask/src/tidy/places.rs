//! What must be where: no path of one machine in the sources, and a page beside the planner.

use super::{File, Finding, Tree};

/// Folders of one developer's or build machine, in two halves so that this file does not find itself.
const OF_ONE_MACHINE: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/")];

/// Where large traces lie beside the checkout. Only CI says so; everything else reads DIVVY_DATA.
const TRACES: &str = concat!("../shared", "/data");
const CI: &str = ".ci/run";

const PLANNER: &str = "crates/divvy-core/src/plan";

pub(super) fn check_paths(file: &File) -> Vec<Finding> {
    file.lines().filter_map(|(number, line)| in_line(file, number, line)).collect()
}

fn in_line(file: &File, number: usize, line: &str) -> Option<Finding> {
    if file.path != CI && line.contains(TRACES) {
        let what = format!("`{TRACES}` is named outside {CI}");
        return Some(Finding::new(&file.path, number, what, "read the environment variable DIVVY_DATA"));
    }
    let folder = OF_ONE_MACHINE.iter().find(|folder| starts_with_folder(line, folder))?;
    let what = format!("`{folder}` is a folder of one machine");
    Some(Finding::new(&file.path, number, what, "name a path below the repository, or a made-up one"))
}

/// Tells whether an absolute path in the line begins with the folder; in the middle of a path it is another folder.
fn starts_with_folder(line: &str, folder: &str) -> bool {
    let is_start = |before: &str| {
        !before.ends_with(|c: char| {
            c.is_ascii_alphanumeric() || ['.', '_', '-', '~', '}', ')', '/'].contains(&c)
        })
    };
    line.match_indices(folder).any(|(at, _)| is_start(&line[..at]))
}

/// The planner is the hardest part to read, so a page beside it explains it.
pub(super) fn check_planner_is_explained(tree: &Tree) -> Option<Finding> {
    let page = format!("{PLANNER}/README.md");
    (tree.has_folder(PLANNER) && !tree.paths.contains(&page)).then(|| {
        let fix = "write it: the problem, the model, the phases, and what is not done";
        Finding::new(&page, 1, "the planner has no page beside it", fix)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::of_files;

    fn found(path: &str, text: &str) -> Vec<usize> {
        check_paths(&File::new(path, text)).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn paths_of_one_machine_are_found_in_any_file() {
        for folder in OF_ONE_MACHINE {
            assert_eq!(found("docs/a.md", &format!("one\nsee `{folder}x`\n")), [2], "{folder}");
        }
    }

    #[test]
    fn the_same_word_inside_another_path_is_free() {
        for folder in OF_ONE_MACHINE {
            let text = format!("/proc/1{folder}\n..{folder}a\n$HOME{folder}a\n${{DIR}}{folder}a\n");
            assert!(found("docs/a.md", &text).is_empty(), "{folder}");
        }
    }

    #[test]
    fn only_ci_knows_where_the_traces_lie() {
        let text = format!("A=\"{TRACES}/x\"\n");
        assert_eq!(found("xtask/src/main.rs", &text), [1]);
        assert!(found(CI, &text).is_empty());
    }

    #[test]
    fn a_planner_needs_its_page() {
        let planner = ("crates/divvy-core/src/plan/place.rs", "");
        assert!(check_planner_is_explained(&of_files(&[planner])).is_some());
        let page = ("crates/divvy-core/src/plan/README.md", "");
        assert!(check_planner_is_explained(&of_files(&[planner, page])).is_none());
        assert!(check_planner_is_explained(&of_files(&[])).is_none());
    }
}
