//! Moments and lengths of time as people read them.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Now, in milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// A moment in local time with its offset: `2026-11-21 18:00:00+01:00`.
pub(crate) fn local(ms: i64) -> String {
    in_zone(ms, TimeZone::system())
}

/// A moment near now, to the minute, in local time: `14:20`, on another day `Nov 22 14:20`.
pub(crate) fn near(ms: i64, now_ms: i64) -> String {
    near_in_zone(ms, now_ms, TimeZone::system())
}

/// A moment and between which moments it lies in four cases of five: `≈ 14:20 (13:50–16:10)`.
pub(crate) fn foreseen(at: i64, (low, high): (Option<i64>, Option<i64>), now_ms: i64) -> String {
    let near = |ms: i64| near(ms, now_ms);
    let from = low.map_or_else(|| near(at), near);
    let to = high.map_or_else(|| "open".to_owned(), near);
    let spread = if from == to { String::new() } else { format!(" ({from}–{to})") };
    format!("≈ {}{spread}", near(at))
}

/// A message of the pool, with its moments (`2026-11-21 18:00 UTC`) written as `near` writes them.
pub(crate) fn told(text: &str) -> String {
    told_in_zone(text, now_ms(), &TimeZone::system())
}

fn told_in_zone(text: &str, now_ms: i64, zone: &TimeZone) -> String {
    const FORM: (&str, usize) = ("%Y-%m-%d %H:%M", "2026-11-21 18:00".len());
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(end) = rest.find(" UTC") {
        let (before, after) = (&rest[..end], &rest[end + " UTC".len()..]);
        let begin = before.len().checked_sub(FORM.1).filter(|begin| before.is_char_boundary(*begin));
        let moment =
            begin.and_then(|begin| Some((begin, DateTime::strptime(FORM.0, &before[begin..]).ok()?)));
        match moment.and_then(|(begin, moment)| Some((begin, moment.to_zoned(TimeZone::UTC).ok()?))) {
            Some((begin, moment)) => {
                let near = near_in_zone(moment.timestamp().as_millisecond(), now_ms, zone.clone());
                told.extend([&before[..begin], near.as_str()]);
            }
            None => told.extend([before, " UTC"]),
        }
        rest = after;
    }
    told + rest
}

fn near_in_zone(ms: i64, now_ms: i64, zone: TimeZone) -> String {
    let moment = |ms| Timestamp::from_millisecond(ms).map(|moment| moment.to_zoned(zone.clone()));
    let (Ok(moment), Ok(now)) = (moment(ms), moment(now_ms)) else { return format!("{ms} ms") };
    let form = match (moment.date() == now.date(), moment.year() == now.year()) {
        (true, _) => "%H:%M",
        (false, true) => "%b %-d %H:%M",
        (false, false) => "%Y-%m-%d %H:%M",
    };
    moment.strftime(form).to_string()
}

fn in_zone(ms: i64, zone: TimeZone) -> String {
    match Timestamp::from_millisecond(ms) {
        Ok(moment) => moment.to_zoned(zone).strftime("%Y-%m-%d %H:%M:%S%:z").to_string(),
        Err(_) => format!("{ms} ms"),
    }
}

/// A length of time in its two largest units: `3d4h`, `12m05s`, `0.3s`.
pub(crate) fn span(ms: i64) -> String {
    let ms = ms.max(0);
    let (days, hours, minutes, seconds) =
        (ms / 86_400_000, ms / 3_600_000 % 24, ms / 60_000 % 60, ms / 1000 % 60);
    if days > 0 {
        format!("{days}d{hours:02}h")
    } else if hours > 0 {
        format!("{hours}h{minutes:02}m")
    } else if minutes > 0 {
        format!("{minutes}m{seconds:02}s")
    } else if ms >= 10_000 {
        format!("{seconds}s")
    } else {
        format!("{}.{}s", ms / 1000, ms % 1000 / 100)
    }
}

/// How long ago a moment was.
pub(crate) fn ago(ms: i64, now_ms: i64) -> String {
    span(now_ms - ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_carry_their_offset() {
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        assert_eq!(in_zone(1_795_280_400_123, zone), "2026-11-21 18:00:00+01:00");
        assert_eq!(in_zone(i64::MAX, TimeZone::UTC), format!("{} ms", i64::MAX));
    }

    #[test]
    fn near_moments_leave_out_what_goes_without_saying() {
        let zone = || TimeZone::fixed(jiff::tz::offset(1));
        let near = |after_ms: i64| near_in_zone(1_795_280_400_123 + after_ms, 1_795_280_400_123, zone());
        assert_eq!(near(80_000), "18:01");
        assert_eq!(near(86_400_000), "Nov 22 18:00");
        assert_eq!(near(60 * 86_400_000), "2027-01-20 18:00");
        assert_eq!(near_in_zone(i64::MAX, 0, zone()), format!("{} ms", i64::MAX));
    }

    #[test]
    fn moments_in_what_the_pool_says_are_in_local_time() {
        let told = |text| told_in_zone(text, 1_795_280_400_123, &TimeZone::fixed(jiff::tz::offset(1)));
        assert_eq!(told("reserved from 2026-11-21 18:30 UTC on"), "reserved from 19:30 on");
        assert_eq!(
            told("from 2026-11-21 23:30 UTC until 2026-11-23 00:00 UTC"),
            "from Nov 22 00:30 until Nov 23 01:00"
        );
        for other in
            ["", " UTC", "in UTC", "é026-11-21 18:30 UTC", "2026-13-21 18:30 UTC", "2026-11-21 18:30"]
        {
            assert_eq!(told(other), other);
        }
    }

    #[test]
    fn spans_show_their_two_largest_units() {
        let cases = [
            (-5, "0.0s"),
            (340, "0.3s"),
            (12_000, "12s"),
            (725_000, "12m05s"),
            (3_660_000, "1h01m"),
            (273_600_000, "3d04h"),
        ];
        for (ms, text) in cases {
            assert_eq!(span(ms), text);
        }
    }
}
