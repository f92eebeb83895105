//! Lengths of time as users ask for them.

use divvy_api::Problem;
use divvy_core::time::Span;

use super::incoming::bad;

/// The longest that may be asked for: a hundred years. Whatever is longer is a slip of the keyboard.
const LONGEST: Span = Span(36_600 * 86_400_000);

/// Reads a length of time.
pub(super) fn length(field: &str, text: &str) -> Result<Span, Problem> {
    match text.parse::<Span>() {
        Ok(span) if span > LONGEST => {
            Err(bad(field, format!("{text:?} is too long: a hundred years at most")))
        }
        read => read.map_err(|error| bad(field, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_keyboard_is_no_length_of_time() {
        assert_eq!(length("for", "36600d"), Ok(LONGEST));
        for text in ["36601d", "99999w", "99999999w", "x"] {
            assert_eq!(length("for", text).unwrap_err().field.unwrap(), "for", "{text}");
        }
    }
}
