//! Names that say nothing: of crates, modules and types.

use super::edges::manifest;
use super::outline::{Named, Outline};
use super::{File, Finding};
use crate::metadata::Metadata;

/// What no crate (as a part of its name), module or file may be called.
const EMPTY: &[&str] =
    &["common", "util", "utils", "helper", "helpers", "manager", "managers", "info", "infos", "data", "misc"];

/// What no type's name may end in.
const ENDINGS: &[&str] = &["Manager", "Handler", "Helper", "Helpers", "Util", "Utils", "Info", "Data"];

pub(super) fn check_crates(metadata: &Metadata) -> Vec<Finding> {
    let is_empty = |name: &str| name.split(['-', '_']).any(|part| EMPTY.contains(&part));
    metadata
        .members()
        .filter(|package| is_empty(&package.name))
        .map(|package| {
            let what = format!("crate `{}` has a name that says nothing", package.name);
            Finding::new(&manifest(metadata, package), 1, what, "name it after what it does")
        })
        .collect()
}

/// Checks what the path of a Rust file calls its module.
pub(super) fn check_module_file(path: &str) -> Option<Finding> {
    let mut parts = path.rsplit('/');
    let stem = parts.next()?.trim_end_matches(".rs");
    let module = if stem == "mod" { parts.next()? } else { stem };
    EMPTY.contains(&module).then(|| empty_module(path, 1, module))
}

pub(super) fn check_types_and_modules(file: &File, outline: &Outline) -> Vec<Finding> {
    let modules = outline.modules.iter().filter(|module| EMPTY.contains(&module.name.as_str()));
    let types = outline.types.iter().filter_map(|named| check_type(&file.path, named));
    modules.map(|module| empty_module(&file.path, module.line, &module.name)).chain(types).collect()
}

fn empty_module(path: &str, line: usize, module: &str) -> Finding {
    let what = format!("module `{module}` has a name that says nothing");
    Finding::new(path, line, what, "name it after what it does, or move each item to where it is used")
}

fn check_type(path: &str, named: &Named) -> Option<Finding> {
    let ending = ENDINGS.iter().find(|ending| named.name.ends_with(**ending))?;
    let what = format!("type `{}` ends in `{ending}`, which says nothing", named.name);
    Some(Finding::new(path, named.line, what, "name it after what it is, with the word of the glossary"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::of_edges;

    fn found(text: &str) -> Vec<String> {
        let file = File::new("crates/x/src/lib.rs", text);
        let outline = Outline::of(&file).unwrap();
        check_types_and_modules(&file, &outline).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn crates_are_judged_by_every_part_of_their_name() {
        let metadata = of_edges(&[("divvy-utils", None, "serde"), ("divvy-database", None, "serde")]);
        let found = check_crates(&metadata);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].what, "crate `divvy-utils` has a name that says nothing");
    }

    #[test]
    fn files_are_judged_by_the_module_they_make() {
        assert!(check_module_file("crates/x/src/utils.rs").is_some());
        assert!(check_module_file("crates/x/tests/common/mod.rs").is_some());
        assert!(check_module_file("crates/x/src/information.rs").is_none());
        assert!(check_module_file("crates/x/src/data/reader.rs").is_none());
    }

    #[test]
    fn modules_and_types_inside_a_file_are_judged_too() {
        assert_eq!(found("mod helpers;\nstruct Job;\n"), ["module `helpers` has a name that says nothing"]);
        assert_eq!(found("enum JobInfo {}\n"), ["type `JobInfo` ends in `Info`, which says nothing"]);
        assert_eq!(found("struct Handlers; struct Database; fn data() {}\n").len(), 0);
    }
}
