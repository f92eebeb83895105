//! Tests wait for conditions, never for time.

use super::outline::{Mark, Outline};
use super::{File, Finding};

/// Functions that may sleep in tests: they ask for a condition again and again, until a deadline.
const WAITING: &[&str] = &["wait", "until", "poll", "eventually"];

pub(super) fn check(file: &File, outline: &Outline) -> Vec<Finding> {
    let sleeps = outline.marks.iter().filter(|(mark, _)| *mark == Mark::Sleep).map(|(_, line)| *line);
    sleeps
        .filter(|line| file.is_of_tests() || outline.is_test(*line))
        .filter(|line| !outline.function_at(*line).is_some_and(|function| waits(&function.name)))
        .map(|line| {
            let fix = "wait for the condition itself, with a deadline, in a function named `wait_…`";
            Finding::new(&file.path, line, "a test that sleeps", fix)
        })
        .collect()
}

fn waits(function: &str) -> bool {
    function.split('_').any(|word| WAITING.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        let file = File::new(path, text);
        check(&file, &Outline::of(&file).unwrap()).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_sleep_in_a_test_is_found_by_attribute_module_or_place() {
        assert_eq!(found("crates/x/src/a.rs", "#[test]\nfn a() {\n  sleep(d);\n}\n"), [3]);
        assert_eq!(found("crates/x/src/a.rs", "#[cfg(test)]\nmod t {\n  fn a() { sleep(d) }\n}\n"), [3]);
        assert_eq!(found("crates/x/tests/a.rs", "fn a() {\n  std::thread::sleep(d);\n}\n"), [2]);
    }

    #[test]
    fn a_sleep_inside_a_macro_is_found_too() {
        assert_eq!(found("crates/x/tests/a.rs", "proptest! {\n  fn a() { sleep(d) }\n}\n"), [2]);
    }

    #[test]
    fn the_product_may_sleep_and_so_may_a_function_that_waits_for_a_condition() {
        assert!(found("crates/x/src/a.rs", "fn a() { sleep(d) }\n").is_empty());
        assert!(found("crates/x/tests/a.rs", "fn wait_for_state() { sleep(d) }\n").is_empty());
    }
}
