//! The kernel's lists of CPUs: `0-3,8,10-11`.

/// The most CPUs that a list may name; the kernel is built for 8192 at most.
const MOST: u32 = 65_536;

/// Reads a list; what can't be read is left out.
pub(super) fn parse(list: &str) -> Vec<u32> {
    let mut cpus: Vec<u32> = list.trim().split(',').filter_map(range).flatten().collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

fn range(text: &str) -> Option<std::ops::RangeInclusive<u32>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (last < MOST).then_some(first..=last)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_and_single_numbers_are_read() {
        assert_eq!(parse("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse("\t5\n"), [5]);
        assert_eq!(parse("\n"), [0u32; 0]);
        assert_eq!(parse("3-1,x,0-99999999999,2"), [2]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "[0-9,\\- x]{0,40}") {
            parse(&text);
        }
    }
}
