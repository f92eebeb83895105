//! Text from others, made safe for the user's terminal.

use std::borrow::Cow;

/// Escapes whatever in a text could move the cursor, change colours or reorder what is read: control characters,
/// characters that change the direction of writing, and characters without a width.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hostile) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_hostile(c) { escaped.extend(c.escape_default()) } else { escaped.push(c) }
    }
    Cow::Owned(escaped)
}

fn is_hostile(c: char) -> bool {
    c.is_control()
        // Marks and overrides of direction, line and paragraph separators, invisible joiners, byte order mark.
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{061c}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_cannot_steer_the_terminal() {
        assert_eq!(plain("\x1b]0;owned\x07"), "\\u{1b}]0;owned\\u{7}");
        assert_eq!(plain("a\nb\tc\u{9b}2J"), "a\\nb\\tc\\u{9b}2J");
        assert_eq!(plain("abc\u{202e}txt.exe"), "abc\\u{202e}txt.exe");
        assert!(matches!(plain("Übung äöü 試験 🙂"), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn no_text_leaves_a_control_character(text in "(?s).*") {
            prop_assert!(!plain(&text).chars().any(char::is_control));
        }
    }
}
