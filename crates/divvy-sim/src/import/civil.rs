//! Times as clusters write them, mostly without a zone.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Returns the seconds since 1970 of a time like `2017-10-07 01:12:09` or `2017-10-07T01:12:09`, as if the clock never
/// changed for summer: where it did, the jobs of that night alone are an hour off. A time with an offset like `+01:00` is
/// the moment that it says. A number is taken as seconds (Slurm writes those with `SLURM_TIME_FORMAT=%s`).
pub(super) fn seconds(text: &str) -> Option<i64> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok().filter(|seconds| *seconds < crate::trace::LAST_SECOND);
    }
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Some(moment.as_second());
    }
    // The name of a zone would be ignored.
    let civil: DateTime = text.parse().ok().filter(|_| !text.contains('['))?;
    Some(civil.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second())
}

/// What to write into an error about such a time.
pub(super) const EXPECTED: &str = "a time like 2017-10-07 01:12:09, or seconds";

/// Whether a text means that there is no such time.
pub(super) fn is_none(text: &str) -> bool {
    matches!(
        text.trim(),
        "" | "None" | "none" | "null" | "NULL" | "Unknown" | "unknown" | "N/A" | "NaN" | "nan"
    )
}
