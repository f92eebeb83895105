//! Whole numbers on the command line. The error for any other text says what to write.

use std::ops::{Bound, RangeBounds};

/// Reads a whole number within bounds.
pub(crate) fn whole<N: TryFrom<u64>>(
    within: impl RangeBounds<u64> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| within.contains(number));
        let number = number.and_then(|number| N::try_from(number).ok());
        number.ok_or_else(|| largest::<N>(text, &within).unwrap_or_else(|| expected(&within)))
    }
}

fn expected(within: &impl RangeBounds<u64>) -> String {
    let from = if let Bound::Included(from) = within.start_bound() { *from } else { 0 };
    match within.end_bound() {
        Bound::Included(to) => format!("write a whole number from {from} to {to}"),
        _ => format!("write a whole number, {from} or more"),
    }
}

/// The error for a number that is too large for its type, where no upper bound is set.
fn largest<N: TryFrom<u64>>(text: &str, within: &impl RangeBounds<u64>) -> Option<String> {
    let has_end = !matches!(within.end_bound(), Bound::Unbounded);
    let is_large = text.len() > 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    if has_end || !is_large {
        return None;
    }
    let kinds = [u64::from(u8::MAX), u64::from(u16::MAX), u64::from(u32::MAX)];
    let to = kinds.into_iter().find(|to| N::try_from(to + 1).is_err()).unwrap_or(u64::MAX);
    Some(format!("that is too large: write a whole number up to {to}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_within_bounds_is_told_what_to_write() {
        assert_eq!(whole::<u64>(1..)("12"), Ok(12));
        assert_eq!(whole::<u16>(1..=9)("9"), Ok(9));
        for text in ["-1", "all", "", "1.5", "0"] {
            assert_eq!(whole::<u32>(1..)(text), Err("write a whole number, 1 or more".into()), "{text}");
        }
        let told = "that is too large: write a whole number up to 4294967295";
        assert_eq!(whole::<u32>(1..)("99999999999"), Err(told.into()));
        assert_eq!(whole::<u32>(1..=9)("10"), Err("write a whole number from 1 to 9".into()));
    }
}
