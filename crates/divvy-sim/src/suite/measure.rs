//! How the suites' trees and labels read as Divvy's paths and domains.

use std::collections::BTreeMap;

/// The paths of queues, from their names and parents. A parent that is not listed is none.
pub(super) fn paths<'a>(
    queues: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> BTreeMap<String, String> {
    let parents: BTreeMap<&str, Option<&str>> = queues.collect();
    let path = |name: &str| {
        let known = |name: &&str| parents.contains_key(*name);
        let above = |name: &&str| parents.get(*name).copied().flatten().filter(known);
        // No deeper than there are queues: this ends even if parents go round in a circle.
        let line = std::iter::successors(Some(name), |name| above(name)).take(parents.len());
        let mut parts: Vec<String> = line.map(|part| part.replace('/', ".")).collect();
        parts.reverse();
        parts.join("/")
    };
    parents.keys().map(|name| ((*name).to_owned(), path(name))).collect()
}

/// A node's domain on each level of a topology; none if it lacks a level's label: then it is outside. A domain's name begins
/// with that of the wider domain around it, so that rack 1 of one block is not rack 1 of another.
pub(super) fn domains(levels: &[String], labels: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let mut wider = String::new();
    let mut domains = Vec::new();
    for level in levels {
        let Some(value) = labels.get(level) else { return Vec::new() };
        wider = if wider.is_empty() { value.clone() } else { format!("{wider}/{value}") };
        domains.push((level.clone(), wider.clone()));
    }
    domains
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queues_path_names_all_above_it() {
        let paths = paths(
            [("top", None), ("a/b", Some("top")), ("c", Some("a/b")), ("d", Some("nobody"))].into_iter(),
        );
        assert_eq!([&paths["c"], &paths["d"]], ["top/a.b/c", "d"]);
    }

    #[test]
    fn parents_in_a_circle_end_somewhere() {
        let paths = paths([("a", Some("b")), ("b", Some("a"))].into_iter());
        assert_eq!(paths["a"], "b/a");
    }

    #[test]
    fn a_node_without_a_label_is_outside_the_topology() {
        let labels =
            BTreeMap::from([("block".to_owned(), "b1".to_owned()), ("rack".to_owned(), "r1".to_owned())]);
        let levels = ["block".to_owned(), "rack".to_owned()];
        assert_eq!(domains(&levels, &labels)[1], ("rack".to_owned(), "b1/r1".to_owned()));
        assert!(domains(&["zone".to_owned(), "rack".to_owned()], &labels).is_empty());
    }
}
