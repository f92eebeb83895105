//! Quantities in Kubernetes notation: `500m`, `1.5`, `40Gi`, `12e6`. Parsed exactly, into whole numbers of a unit.

/// Parses a quantity into thousandths, rounded up: a request is never less than what was written.
pub(super) fn milli_up(text: &str) -> Option<i64> {
    scaled(text, 1000, true)
}

/// Parses a quantity into thousandths, rounded down: an offer is never more than what was written.
pub(super) fn milli_down(text: &str) -> Option<i64> {
    scaled(text, 1000, false)
}

/// Parses a quantity into whole units, rounded up.
pub(super) fn whole_up(text: &str) -> Option<i64> {
    scaled(text, 1, true)
}

/// Parses a quantity into whole units, rounded down.
pub(super) fn whole_down(text: &str) -> Option<i64> {
    scaled(text, 1, false)
}

/// Returns `None` for anything that is no quantity or negative. Values beyond an i64 become the largest i64.
fn scaled(text: &str, unit: u128, up: bool) -> Option<i64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && !"+-.".contains(c)).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let number = number.strip_prefix('+').unwrap_or(number);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    // More digits than any real quantity has: refused rather than computed.
    if digits.is_empty() || digits.len() > 30 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let (times, tens) = suffix_of(suffix)?;
    let tens = tens - i32::try_from(fraction.len()).ok()?;
    let product = digits.parse::<u128>().ok()?.checked_mul(unit).and_then(|it| it.checked_mul(times));
    let Some(product) = product else { return Some(i64::MAX) };
    Some(shifted(product, tens, up))
}

/// A number times ten to a power.
fn shifted(number: u128, tens: i32, up: bool) -> i64 {
    let power = 10u128.checked_pow(tens.unsigned_abs());
    let result = match (power, tens >= 0) {
        (Some(power), true) => number.saturating_mul(power),
        (Some(power), false) if up => number.div_ceil(power),
        (Some(power), false) => number / power,
        (None, true) => {
            if number == 0 {
                0
            } else {
                u128::MAX
            }
        }
        (None, false) => u128::from(up && number > 0),
    };
    i64::try_from(result).unwrap_or(i64::MAX)
}

/// What a suffix multiplies by: a power of two, and a power of ten.
fn suffix_of(suffix: &str) -> Option<(u128, i32)> {
    let decimal = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    if let Some(place) = (0i32..).zip(decimal).find_map(|(place, name)| (name == suffix).then_some(place)) {
        return Some((1, 3 * place - 9));
    }
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if let Some(place) = (1u32..).zip(binary).find_map(|(place, name)| (name == suffix).then_some(place)) {
        return Some((1 << (10 * place), 0));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    exponent.parse().ok().filter(|tens| (-100..=100).contains(tens)).map(|tens| (1, tens))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_are_read_as_kubernetes_writes_them() {
        for (text, milli) in [
            ("1", 1000),
            ("500m", 500),
            ("1.5", 1500),
            (".5", 500),
            ("+2", 2000),
            ("0", 0),
            ("100n", 1),
            ("2k", 2_000_000),
            ("1e3", 1_000_000),
            ("1E", 1_000_000_000_000_000_000_000u128.min(i64::MAX as u128) as i64),
        ] {
            assert_eq!(milli_up(text), Some(milli), "{text}");
        }
        assert_eq!(whole_up("40Gi"), Some(40 << 30));
        assert_eq!((whole_up("1500m"), whole_down("1500m")), (Some(2), Some(1)));
        assert_eq!(whole_up("0.5Ki"), Some(512));
        assert_eq!(whole_up("12e-1"), Some(2));
    }

    #[test]
    fn what_is_no_quantity_is_not_read() {
        for text in ["", "-1", "1.2.3", "Gi", "1gi", "1 Gi", "one", "1e", "1e999", "--", "1-2"] {
            assert_eq!(milli_up(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in ".{0,40}") {
            let _ = (milli_up(&text), whole_down(&text));
        }

        #[test]
        fn a_whole_number_is_itself_in_any_unit(number in 0i64..1_000_000_000) {
            prop_assert_eq!(whole_up(&number.to_string()), Some(number));
            prop_assert_eq!(whole_up(&format!("{number}Ki")), Some(number * 1024));
            prop_assert_eq!(milli_down(&format!("{number}m")), Some(number));
        }
    }
}
