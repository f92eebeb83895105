//! Links in Markdown files that lead nowhere.

use std::collections::BTreeSet;

use super::{File, Finding, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let pages = tree.files.iter().filter(|file| file.path.ends_with(".md"));
    pages.flat_map(|page| of_page(tree, page)).collect()
}

fn of_page(tree: &Tree, page: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in prose(page) {
        for target in targets(&line).into_iter().filter(|target| !is_outside(target)) {
            if let Some(what) = broken(tree, page, &target) {
                findings.push(Finding::new(
                    &page.path,
                    number,
                    what,
                    "correct the link, or what it leads to",
                ));
            }
        }
    }
    findings
}

/// Returns the lines that are not code, with the code in them blanked out.
fn prose(page: &File) -> impl Iterator<Item = (usize, String)> {
    let mut fence: Option<&str> = None;
    page.lines().filter_map(move |(number, line)| {
        let mark = ["```", "~~~"].into_iter().find(|mark| line.trim_start().starts_with(mark));
        match (fence, mark) {
            (None, None) => return Some((number, without_code(line))),
            (None, Some(_)) => fence = mark,
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
        }
        None
    })
}

fn without_code(line: &str) -> String {
    let closed = line.matches('`').count() / 2 * 2;
    let parts = line.split('`').enumerate();
    parts.filter(|(index, _)| index % 2 == 0 || *index > closed).map(|(_, text)| text).collect()
}

/// Returns where the links of a line lead: `](…)`, `[name]: …`, and the two attributes of HTML.
fn targets(line: &str) -> Vec<String> {
    let mut found: Vec<String> = [("](", ')'), ("src=\"", '"'), ("href=\"", '"')]
        .into_iter()
        .flat_map(|(open, close)| between(line, open, close))
        .collect();
    if let Some((_, target)) = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
        found.push(target.to_owned());
    }
    // A title may follow the target, and angle brackets may enclose it.
    let address = |target: String| {
        let first = target.split_whitespace().next().unwrap_or_default();
        first.trim_start_matches('<').trim_end_matches('>').to_owned()
    };
    found.into_iter().map(address).collect()
}

fn between(line: &str, open: &str, close: char) -> Vec<String> {
    let after = line.split(open).skip(1);
    after.filter_map(|rest| rest.split_once(close)).map(|(target, _)| target.to_owned()).collect()
}

fn is_outside(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:") || target.starts_with("data:")
}

/// Says what is wrong with a link, if something is.
fn broken(tree: &Tree, page: &File, target: &str) -> Option<String> {
    let (path, heading) = target.split_once('#').map_or((target, None), |(path, h)| (path, Some(h)));
    let Some(resolved) = resolve(&page.path, path) else {
        return Some(format!("the link `{target}` leads out of the repository"));
    };
    if !tree.paths.contains(&resolved) && !tree.has_folder(&resolved) {
        return Some(format!("the link `{target}` leads nowhere: there is no {resolved}"));
    }
    let heading = heading?;
    let there = tree.file(&resolved).filter(|file| file.path.ends_with(".md"))?;
    (!headings(there).contains(heading))
        .then(|| format!("the link `{target}` leads nowhere: {resolved} has no heading `#{heading}`"))
}

/// Resolves a link against the page it stands on; `None` if it leaves the root.
fn resolve(page: &str, link: &str) -> Option<String> {
    if link.is_empty() {
        return Some(page.to_owned());
    }
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let base = if link.starts_with('/') { "" } else { folder };
    let mut parts: Vec<&str> = Vec::new();
    for part in base.split('/').chain(link.split('/')).filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop()?;
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}

/// Returns the anchors of a page: its headings as code hosts write them, and explicit ones.
fn headings(page: &File) -> BTreeSet<String> {
    let mut anchors: BTreeSet<String> = page
        .lines()
        .flat_map(|(_, line)| [between(line, "id=\"", '"'), between(line, "name=\"", '"')].concat())
        .collect();
    let fenced: BTreeSet<usize> = prose(page).map(|(number, _)| number).collect();
    let titles = page.lines().filter(|(number, line)| fenced.contains(number) && line.starts_with('#'));
    for (_, title) in titles {
        let anchor = anchor(title);
        // The second heading of the same name gets -1, the third -2.
        let repeated = (1..).map(|n| format!("{anchor}-{n}"));
        let free = std::iter::once(anchor.clone()).chain(repeated).find(|a| !anchors.contains(a));
        anchors.extend(free);
    }
    anchors
}

fn anchor(title: &str) -> String {
    let text = title.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::of_files;

    fn found(text: &str) -> Vec<String> {
        let tree = of_files(&[
            ("docs/start.md", text),
            ("docs/laws.md", "# The laws\n## L1: log first\n## Again\n## Again\n```\n# no heading\n```\n"),
            ("README.md", "# Divvy\n"),
        ]);
        check(&tree).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn links_to_files_folders_and_headings_pass() {
        let text = "[a](laws.md) [b](../README.md#divvy) [c](../docs/) [d](/README.md \"title\")\n\
                    [e](laws.md#l1-log-first) [f](laws.md#again-1) <img src=\"laws.md\">\n# Here\n[g](#here)\n\
                    [h]: laws.md\n";
        assert_eq!(found(text), Vec::<String>::new());
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        assert_eq!(found("[a](law.md)"), ["the link `law.md` leads nowhere: there is no docs/law.md"]);
        assert_eq!(found("[h]: law.md")[0], "the link `law.md` leads nowhere: there is no docs/law.md");
        assert_eq!(found("![a](../../x.png)"), ["the link `../../x.png` leads out of the repository"]);
        assert_eq!(found("[a](laws.md#no-heading)").len(), 1);
        assert_eq!(found("text\n<a href=\"gone.md\">").len(), 1);
    }

    #[test]
    fn addresses_and_code_are_no_links_to_check() {
        assert!(found("[a](https://example.org/x.md) [b](mailto:a@example.org)").is_empty());
        assert!(found("`[a](gone.md)`\n```\n[a](gone.md)\n```\n").is_empty());
    }

    #[test]
    fn the_finding_points_at_the_line() {
        let tree = of_files(&[("a.md", "one\n\n[a](gone.md)\n")]);
        assert_eq!(check(&tree)[0].line, 3);
    }
}
