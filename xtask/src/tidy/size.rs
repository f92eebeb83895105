//! How long functions and files may be.

use super::outline::{Function, Outline};
use super::{File, Finding};

/// A function that fits on a screen can be checked by eye; the median here is far below.
const FUNCTION_LINES: usize = 70;
const FILE_LINES: usize = 600;
/// Tables of cases are long without being hard.
const TEST_FILE_LINES: usize = 1000;

pub(super) fn check_file(file: &File) -> Option<Finding> {
    let limit = if file.is_of_tests() { TEST_FILE_LINES } else { FILE_LINES };
    let lines = file.lines().count();
    (lines > limit).then(|| {
        let what = format!("the file has {lines} lines, more than {limit}");
        Finding::new(&file.path, limit + 1, what, "split it where it changes its subject")
    })
}

pub(super) fn check_functions(file: &File, outline: &Outline) -> Vec<Finding> {
    let lines: Vec<&str> = file.text.lines().collect();
    let too_long = |function: &&Function| lines_of_code(&lines, function) > FUNCTION_LINES;
    outline
        .functions
        .iter()
        .filter(too_long)
        .map(|function| {
            let number = lines_of_code(&lines, function);
            let what = format!("`{}` has {number} lines of code, more than {FUNCTION_LINES}", function.name);
            let fix = "keep the branching here and move what it does into functions of their own";
            Finding::new(&file.path, *function.lines.start(), what, fix)
        })
        .collect()
}

/// Counts what stands between a function's braces, as clippy does: comments and empty lines are free.
fn lines_of_code(lines: &[&str], function: &Function) -> usize {
    let is_code = |line: &&&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    let inside = *function.body.start()..function.body.end().saturating_sub(1);
    lines.get(inside).map_or(0, |inside| inside.iter().filter(is_code).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(body: &str) -> Vec<Finding> {
        let file = File::new("a.rs", format!("/// Does.\nfn long(\n) {{\n{body}}}\n"));
        check_functions(&file, &Outline::of(&file).unwrap())
    }

    #[test]
    fn a_function_may_have_seventy_lines_of_code() {
        assert_eq!(found(&"x();\n".repeat(70)), []);
        let findings = found(&"x();\n".repeat(71));
        assert_eq!(findings[0].line, 2);
        assert_eq!(findings[0].what, "`long` has 71 lines of code, more than 70");
    }

    #[test]
    fn comments_and_empty_lines_are_free() {
        assert_eq!(found(&"x();\n// why\n\n".repeat(70)), []);
    }

    #[test]
    fn a_function_on_one_line_has_no_lines_inside() {
        let file = File::new("a.rs", "fn a() { b() }\n");
        assert_eq!(check_functions(&file, &Outline::of(&file).unwrap()), []);
    }

    #[test]
    fn files_of_tests_may_be_longer() {
        let text = "//\n".repeat(601);
        assert!(check_file(&File::new("crates/x/src/a.rs", &*text)).is_some());
        assert!(check_file(&File::new("crates/x/tests/a.rs", &*text)).is_none());
        assert!(check_file(&File::new("crates/x/tests/a.rs", "//\n".repeat(1001))).is_some());
        assert!(check_file(&File::new("crates/x/src/a.rs", "//\n".repeat(600))).is_none());
    }
}
