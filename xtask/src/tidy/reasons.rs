//! Every reason has a page that says what to do and a test that provokes it; every page has its code.

use std::collections::BTreeMap;

use super::outline::Outline;
use super::{File, Finding, Tree};

/// Where the codes of reasons are declared: the file, or the folder that it may grow into.
const DECLARED: &str = "crates/divvy-core/src/reason";
const PAGES: &str = "docs/reasons/";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let declared = declared(tree);
    let mut findings = Vec::new();
    for (code, (path, line)) in &declared {
        let page = format!("{PAGES}{code}.md");
        if !tree.paths.contains(&page) {
            let what = format!("the reason {code} has no page");
            findings.push(Finding::new(
                path,
                *line,
                what,
                format!("write {page}: what it means and what to do"),
            ));
        }
        if !tree.files.iter().any(|file| test_names(file, code)) {
            let what = format!("no test names the reason {code}");
            findings.push(Finding::new(
                path,
                *line,
                what,
                "add a test that provokes it and expects its code",
            ));
        }
    }
    findings.extend(pages_without_a_code(tree));
    findings
}

/// Returns the codes with the place that declares each.
fn declared(tree: &Tree) -> BTreeMap<String, (&str, usize)> {
    let mut codes = BTreeMap::new();
    for file in tree.files.iter().filter(|file| declares(file)) {
        for (number, line) in file.lines() {
            // A quoted code is one of the enum's; what comments say about a code declares nothing.
            for code in codes_in(line).filter(|code| line.contains(&format!("\"{code}\""))) {
                codes.entry(code.to_owned()).or_insert((file.path.as_str(), number));
            }
        }
    }
    codes
}

fn declares(file: &File) -> bool {
    file.is_rust() && file.path.strip_prefix(DECLARED).is_some_and(|rest| rest.starts_with(['.', '/']))
}

/// Returns the words of a line that have the form of a code: `DV-` and capitals, digits and hyphens.
fn codes_in(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '-'))
        .map(|word| word.trim_end_matches('-'))
        .filter(|word| word.strip_prefix("DV-").is_some_and(|rest| !rest.is_empty()))
}

/// Tells whether a test names a code: a file of tests, of any kind, or the tests inside a Rust file. The list of all
/// codes beside their declaration is no such test.
fn test_names(file: &File, code: &str) -> bool {
    let is_named =
        || file.text.contains(code) && file.lines().any(|(_, line)| codes_in(line).any(|c| c == code));
    if declares(file) || file.path.starts_with(PAGES) || !is_named() {
        return false;
    }
    if file.is_of_tests() || file.path.starts_with("testdata/") || file.path.starts_with("scenarios/") {
        return true;
    }
    file.is_rust()
        && Outline::of(file).is_ok_and(|outline| {
            file.lines().any(|(number, line)| outline.is_test(number) && codes_in(line).any(|c| c == code))
        })
}

/// Finds pages whose code appears in no source: left behind by a reason that is gone, or misspelt.
fn pages_without_a_code(tree: &Tree) -> Vec<Finding> {
    let sources: Vec<&File> = tree.files.iter().filter(|file| file.is_rust()).collect();
    let mut findings = Vec::new();
    for path in tree.paths.iter().filter(|path| path.starts_with(PAGES)) {
        let Some(code) = path[PAGES.len()..].strip_suffix(".md").filter(|code| code.starts_with("DV-"))
        else {
            continue;
        };
        if !sources.iter().any(|file| file.lines().any(|(_, line)| codes_in(line).any(|c| c == code))) {
            let what = format!("no source has the code {code}");
            findings.push(Finding::new(path, 1, what, "rename the page to its code, or delete it"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::of_files;

    const REASON: (&str, &str) =
        ("crates/divvy-core/src/reason.rs", "// See DV-OLD.\nmatch self { A => \"DV-NO-FIT\" }\n");
    const PAGE: (&str, &str) = ("docs/reasons/DV-NO-FIT.md", "# DV-NO-FIT\n");

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        check(&of_files(files)).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn a_reason_needs_a_page_and_a_test() {
        assert_eq!(
            found(&[REASON]),
            ["the reason DV-NO-FIT has no page", "no test names the reason DV-NO-FIT"]
        );
    }

    #[test]
    fn a_test_may_be_a_file_or_stand_inside_one() {
        let by_file = ("crates/divvy-core/tests/gang.rs", "// place refuses: DV-NO-FIT\n");
        let inside = (
            "crates/divvy-core/src/plan.rs",
            "#[cfg(test)]\nmod tests {\n  const A: &str = \"DV-NO-FIT\";\n}\n",
        );
        let by_text = ("crates/divvy-core/tests/scenarios/gang.txt", "wait j1 DV-NO-FIT\n");
        for test in [by_file, inside, by_text] {
            assert!(found(&[REASON, PAGE, test]).is_empty(), "{test:?}");
        }
    }

    #[test]
    fn what_is_no_test_or_names_a_longer_code_does_not_count() {
        let product = ("crates/divvy/src/main.rs", "const A: &str = \"DV-NO-FIT\";\n");
        let longer = ("crates/divvy-core/tests/gang.rs", "// DV-NO-FIT-EVER\n");
        for test in [product, longer] {
            assert_eq!(found(&[REASON, PAGE, test]), ["no test names the reason DV-NO-FIT"], "{test:?}");
        }
    }

    #[test]
    fn a_page_without_a_code_is_found_and_an_index_is_not() {
        let stale = ("docs/reasons/DV-GONE.md", "");
        assert_eq!(found(&[stale, ("docs/reasons/README.md", "")]), ["no source has the code DV-GONE"]);
    }

    #[test]
    fn without_reasons_there_is_nothing_to_check() {
        assert!(found(&[("crates/divvy-core/src/reasoning.rs", "\"DV-NO-FIT\"")]).is_empty());
    }
}
