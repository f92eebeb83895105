//! Makes text from outside fit for display.

/// The most characters that are kept; names of products, users and processes are far shorter.
const MAX_CHARS: usize = 128;

/// Returns `text` with control and direction-changing characters replaced, cut to 128 characters, so that a hostile
/// process or product name can neither move the cursor nor reorder a line.
pub fn printable(text: &str) -> String {
    harmless(text).take(MAX_CHARS).collect()
}

/// Returns a path as [`printable`] does, but uncut: its reader has bounded `text`.
pub(crate) fn printable_path(text: &str) -> String {
    harmless(text).collect()
}

fn harmless(text: &str) -> impl Iterator<Item = char> {
    text.chars().map(|c| if is_harmful(c) { '\u{FFFD}' } else { c })
}

fn is_harmful(c: char) -> bool {
    // Besides control characters: the marks, embeddings and isolates that change the direction of writing,
    // line separators, zero-width characters and the byte-order mark.
    c.is_control()
        || matches!(c, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{061C}' | '\u{FEFF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_and_direction_marks_do_not_survive() {
        assert_eq!(printable("a\x1b[31mb\nc\u{202E}d\u{7f}"), "a\u{FFFD}[31mb\u{FFFD}c\u{FFFD}d\u{FFFD}");
    }

    #[test]
    fn ordinary_text_is_left_alone() {
        assert_eq!(printable("NVIDIA H100 80GB HBM3 – Zürich"), "NVIDIA H100 80GB HBM3 – Zürich");
    }

    #[test]
    fn long_text_is_cut() {
        assert_eq!(printable(&"x".repeat(1000)).chars().count(), MAX_CHARS);
    }
}
