//! Code that says of itself that it isn't done, and tests that don't run.

use super::outline::{Mark, Outline};
use super::{File, Finding};

/// Written in two halves, so that this file does not find itself.
const NOTES: &[&str] = &[concat!("FIX", "ME"), concat!("TO", "DO")];

pub(super) fn check(file: &File, outline: &Outline) -> Vec<Finding> {
    let marks = outline.marks.iter().filter_map(|(mark, line)| of_mark(file, *mark, *line));
    marks.chain(file.lines().filter_map(|(number, line)| of_comment(file, number, line))).collect()
}

fn of_mark(file: &File, mark: Mark, line: usize) -> Option<Finding> {
    let (what, fix) = match mark {
        Mark::Ignore => ("an ignored test", "make it run everywhere, or delete it"),
        Mark::Todo => ("a macro in place of code", "write the code, or leave out what leads to it"),
        Mark::Sleep => return None,
    };
    Some(Finding::new(&file.path, line, what, fix))
}

fn of_comment(file: &File, number: usize, line: &str) -> Option<Finding> {
    let comment =
        line.trim_start().strip_prefix("//").or_else(|| line.split_once(" // ").map(|(_, rest)| rest))?;
    let is_note = comment.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| NOTES.contains(&word));
    is_note.then(|| {
        let fix = "do it now, or say in a sentence what is not done and why";
        Finding::new(&file.path, number, "a comment that puts work off", fix)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<usize> {
        let file = File::new("a.rs", text);
        check(&file, &Outline::of(&file).unwrap()).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn code_to_be_written_and_ignored_tests_are_found() {
        assert_eq!(found("fn a() {\n  unimplemented!()\n}\n#[test]\n#[ignore]\nfn b() {}\n"), [2, 5]);
    }

    #[test]
    fn comments_that_put_work_off_are_found_as_words() {
        let note = NOTES[0];
        assert_eq!(found(&format!("// {note}: later\nfn a() {{}} // {note}\n")), [1, 2]);
        assert_eq!(found("// METHODOLOGY, AUTODOC\nfn a() {}\n"), Vec::<usize>::new());
    }
}
