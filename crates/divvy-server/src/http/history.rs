//! Usage over time.

use std::sync::Arc;

use axum::extract::State as Shared;
use divvy_api::{HistoryQuery, Problem, ProblemCode, Usage, paths};
use divvy_core::time::Time;

use super::answer::{Answer, Words, ok, vanished};
use crate::clock;
use crate::pool::Pool;
use crate::store::{GroupBy, Grouping, Window};
use crate::wire::{refusal, usage};

/// Sums up what was used: attempts that are over, from history, and those that run, up to now.
#[utoipa::path(get, path = paths::HISTORY, tag = "pool", params(HistoryQuery),
    responses((status = 200, body = Vec<Usage>), (status = 422, body = Problem, content_type = paths::PROBLEM_TYPE)))]
pub(super) async fn history(Shared(pool): Shared<Arc<Pool>>, Words(query): Words<HistoryQuery>) -> Answer {
    let grouping = Grouping {
        by: keys(query.by.as_deref().unwrap_or_default())?,
        utc_offset_ms: utc_offset_ms(query.utc_offset_minutes.unwrap_or(0))?,
    };
    let window =
        Window { since: Time(query.since.unwrap_or(0)), until: Time(query.until.unwrap_or(i64::MAX)) };
    let running = usage::running(pool.controller.read().await.state(), window, &grouping, clock::now());
    let (asked, groups) = (pool.clone(), grouping.clone());
    let past = pool.blocking(move || asked.reader.usage(window, &groups)).await.ok_or_else(vanished)?;
    let mut rows = past.map_err(|error| refusal::store(&error))?;
    for (group, sums) in running {
        usage::add(&mut rows, group, &sums);
    }
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    ok(&rows.iter().map(|(group, sums)| usage::row(&grouping.by, group, sums)).collect::<Vec<_>>())
}

/// No clock on earth is further from UTC than this, in minutes.
const FARTHEST_FROM_UTC_MINUTES: i64 = 18 * 60;

fn utc_offset_ms(minutes: i64) -> Result<i64, Problem> {
    if minutes.abs() <= FARTHEST_FROM_UTC_MINUTES {
        return Ok(minutes * 60_000);
    }
    let text = format!("no clock is {minutes} minutes from UTC: 18 hours (1080) are the most");
    Err(Problem::new(ProblemCode::BadSpec, text).with_field("utc_offset_minutes"))
}

fn keys(text: &str) -> Result<Vec<GroupBy>, Problem> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    let mut by = Vec::new();
    for word in words {
        let known = GroupBy::ALL.into_iter().find(|known| known.name() == word);
        let names = || GroupBy::ALL.map(GroupBy::name).join(", ");
        let wrong = || {
            Problem::new(ProblemCode::BadSpec, format!("cannot group by {word:?}, only by {}", names()))
                .with_field("by")
        };
        let known = known.ok_or_else(wrong)?;
        if !by.contains(&known) {
            by.push(known);
        }
    }
    Ok(by)
}
