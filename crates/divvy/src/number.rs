//! Numbers, times and sizes on the command line. The error for any other text says what to write.

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

/// Reads a length of time, or a moment. The daemon says what is wrong with one that it cannot read.
pub(crate) fn time(text: &str) -> Result<String, String> {
    not_below_zero(text, "a time")
}

/// Reads an amount of memory, as `time` reads times.
pub(crate) fn size(text: &str) -> Result<String, String> {
    not_below_zero(text, "a size")
}

/// Reads bytes per second, as `time` reads times.
pub(crate) fn speed(text: &str) -> Result<String, String> {
    not_below_zero(text, "a speed")
}

/// Reads a number of cores, as `time` reads times.
pub(crate) fn cores(text: &str) -> Result<String, String> {
    not_below_zero(text, "a number of cores")
}

/// Reads a priority, which may be below zero.
pub(crate) fn priority(text: &str) -> Result<String, String> {
    if text.strip_prefix('-').is_some_and(|rest| !begins_a_number(rest)) {
        return Err(flag_instead_of(text, "a priority"));
    }
    Ok(text.to_owned())
}

/// Refuses a value that begins with `-`: it is below zero, or the next flag where the value was forgotten.
fn not_below_zero(text: &str, what: &str) -> Result<String, String> {
    match text.strip_prefix('-') {
        None => Ok(text.to_owned()),
        Some(rest) if begins_a_number(rest) => Err(format!("{what} cannot be negative")),
        Some(_) => Err(flag_instead_of(text, what)),
    }
}

fn begins_a_number(text: &str) -> bool {
    text.trim_start_matches('.').starts_with(|first: char| first.is_ascii_digit())
}

fn flag_instead_of(text: &str, what: &str) -> String {
    format!("{what} was expected before {text}")
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
    fn a_value_below_zero_is_told_apart_from_the_next_flag() {
        assert_eq!(time("1h30m"), Ok("1h30m".into()));
        assert_eq!(time("-5s"), Err("a time cannot be negative".into()));
        assert_eq!(size("-.5G"), Err("a size cannot be negative".into()));
        assert_eq!(time("-n"), Err("a time was expected before -n".into()));
        assert_eq!([priority("-5"), priority("low")], [Ok("-5".into()), Ok("low".into())]);
        assert_eq!(priority("--name"), Err("a priority was expected before --name".into()));
    }

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
