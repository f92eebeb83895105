//! `divvy history`: who used how much.

use divvy_api::{Usage, paths};
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Column, FormatFlag, Listing, Look, Table, bytes, mib, span};
use crate::pool::{self, Place};

const EXAMPLES: &str = "\
Examples:
  divvy history --since 30d --by user             GPU-hours of a month, by user
  divvy history --since 2026-11-01 --by queue,day
  divvy history --since 7d --by user,queue,project -o csv";

/// Sum up past use: GPU-hours, failures, waits
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct History {
    /// From when: a time before now (30d, 12h) or a date (2026-11-01, 2026-11-01T08:00)
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true, value_parser = moment)]
    since: Option<i64>,
    /// Until when
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true, value_parser = moment)]
    until: Option<i64>,
    /// What to group by, a column each: user,queue,project,kind,name,state,day
    #[arg(long, value_name = "KEYS", value_delimiter = ',', default_value = "user", value_parser = ["user", "queue", "project", "kind", "name", "state", "day"])]
    by: Vec<String>,
    #[command(flatten)]
    format: FormatFlag,
}

impl History {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        if let (Some(since), Some(until)) = (self.since, self.until)
            && since >= until
        {
            return Err(Failure::usage("--since names no earlier moment than --until")
                .fix("give the earlier one to --since: `divvy history --since 14d --until 7d`"));
        }
        let text = |ms: Option<i64>| ms.map(|ms| ms.to_string());
        let query = [
            ("since", text(self.since)),
            ("until", text(self.until)),
            ("by", Some(self.by.join(","))),
            ("utc_offset_minutes", Some((Zoned::now().offset().seconds() / 60).to_string())),
        ];
        let path = paths::with_query(paths::HISTORY, &query);
        let rows = pool::with_client(place, async |mut client| pool::rows(&mut client, &path).await)?;
        let keys = keys(&self.by);
        let columns = keys.iter().copied().map(Key::column).chain(Usage::columns()).collect();
        let paths: Vec<&str> = keys.iter().map(|key| key.path).chain(Usage::PATHS.iter().copied()).collect();
        Table { rows }.print_with::<Usage>(self.format.output, columns, &paths)?;
        Ok(Exit::Success)
    }
}

/// What rows can be grouped by.
#[derive(Clone, Copy, Debug)]
struct Key {
    path: &'static str,
    heading: &'static str,
    text: fn(&Usage, &Look) -> String,
}

const KEYS: [Key; 7] = [
    Key { path: "user", heading: "USER", text: |usage, _| named(&usage.user) },
    Key { path: "queue", heading: "QUEUE", text: |usage, _| named(&usage.queue) },
    Key { path: "project", heading: "PROJECT", text: |usage, _| named(&usage.project) },
    Key { path: "kind", heading: "KIND", text: |usage, _| named(&usage.kind) },
    Key { path: "name", heading: "NAME", text: |usage, _| named(&usage.name) },
    Key { path: "state", heading: "STATE", text: |usage, _| named(&usage.state) },
    Key { path: "day", heading: "DAY", text: |usage, _| named(&usage.day) },
];

impl Key {
    fn column(self) -> Column<Usage> {
        Column::new(self.heading, self.text)
    }
}

/// The keys asked for, in that order, each once.
fn keys(by: &[String]) -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::new();
    for key in by.iter().filter_map(|word| KEYS.into_iter().find(|key| key.path == word)) {
        if keys.iter().all(|other| other.path != key.path) {
            keys.push(key);
        }
    }
    keys
}

fn named(group: &Option<String>) -> String {
    group.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| "(none)".into())
}

/// Reads a time before now or a date, as milliseconds since 1970.
pub(super) fn moment(text: &str) -> Result<i64, String> {
    moment_in(text, &Zoned::now())
}

fn moment_in(text: &str, now: &Zoned) -> Result<i64, String> {
    let wrong = || format!("{text:?} is neither a time before now (30d, 12h) nor a date (2026-11-01)");
    let zone: TimeZone = now.time_zone().clone();
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(moment.as_millisecond());
    }
    let civil = text.parse::<DateTime>().or_else(|_| text.parse::<Date>().map(|date| date.at(0, 0, 0, 0)));
    if let Ok(civil) = civil {
        return civil.to_zoned(zone).map(|moment| moment.timestamp().as_millisecond()).map_err(|_| wrong());
    }
    let span: jiff::Span = text.parse().map_err(|_| wrong())?;
    now.checked_sub(span.abs()).map(|moment| moment.timestamp().as_millisecond()).map_err(|_| wrong())
}

impl Listing for Usage {
    /// Without the keys of the grouping, which come first.
    const PATHS: &'static [&'static str] = &[
        "jobs",
        "attempts",
        "failed",
        "gpu_hours",
        "idle_gpu_hours",
        "mean_utilization_percent",
        "cpu_hours",
        "peak_gpu_memory_mib",
        "peak_memory_bytes",
        "mean_wait_ms",
    ];
    const EMPTY: &'static str = "nothing ran in that time";

    fn columns() -> Vec<Column<Self>> {
        vec![
            Column::<Self>::new("JOBS", |usage, _| usage.jobs.to_string()).right(),
            Column::<Self>::new("RUNS", |usage, _| usage.attempts.to_string()).right().wide(),
            Column::<Self>::new("FAILED", |usage, _| usage.failed.to_string()).right(),
            Column::<Self>::new("GPU-HOURS", |usage, _| format!("{:.2}", usage.gpu_hours)).right(),
            Column::<Self>::new("IDLE", |usage, _| idle(usage)).right().spare(),
            Column::<Self>::new("UTIL", |usage, _| percent(usage.mean_utilization_percent)).right().spare(),
            Column::<Self>::new("CPU-HOURS", |usage, _| format!("{:.2}", usage.cpu_hours)).right().spare(),
            Column::<Self>::new("PEAK GPU MEM", |usage, _| {
                usage.peak_gpu_memory_mib.map(mib).unwrap_or_default()
            })
            .right()
            .wide(),
            Column::<Self>::new("PEAK MEM", |usage, _| peak(usage)).right().wide(),
            Column::<Self>::new("MEAN WAIT", |usage, _| usage.mean_wait_ms.map(span).unwrap_or_default())
                .right(),
        ]
    }
}

/// The part of the held hours in which the devices were idle.
fn idle(usage: &Usage) -> String {
    let share =
        usage.idle_gpu_hours.filter(|_| usage.gpu_hours > 0.0).map(|idle| 100.0 * idle / usage.gpu_hours);
    percent(share)
}

fn percent(percent: Option<f64>) -> String {
    percent.map(|percent| format!("{percent:.0}%")).unwrap_or_else(|| "-".into())
}

fn peak(usage: &Usage) -> String {
    usage.peak_memory_bytes.map(|peak| bytes(i64::try_from(peak).unwrap_or(i64::MAX))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_times_before_now_or_dates_where_one_is() {
        let now: Zoned = "2026-11-21T12:00:00+01:00[Europe/Berlin]".parse().unwrap();
        let day = 86_400_000;
        let now_ms = now.timestamp().as_millisecond();
        assert_eq!(moment_in("20d", &now), Ok(now_ms - 20 * day));
        assert_eq!(moment_in("12h", &now), Ok(now_ms - day / 2));
        assert_eq!(moment_in("2026-11-21", &now), Ok(now_ms - day / 2));
        assert_eq!(moment_in("2026-11-21T11:00:00Z", &now), Ok(now_ms));
        assert!(moment_in("yesterday-ish", &now).is_err() && moment_in("", &now).is_err());
    }
}
