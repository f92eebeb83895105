//! The text of a queue's budget in queues.yaml.

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::text::{BadQueues, Scalar};
use super::{Budget, Period};
use crate::amount::{is_cut_to_nothing, scaled};
use crate::time::Span;

/// `budget: {gpu_hours: 2000, every: week, carry: 500}`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BudgetText {
    gpu_hours: Spanned<Scalar>,
    every: Spanned<Scalar>,
    carry: Option<Spanned<Scalar>>,
}

/// An hour: a shorter period would be over before anyone noticed.
const SHORTEST: Span = Span::seconds(3600);

/// Reads a queue's budget.
pub(super) fn budget(text: BudgetText) -> Result<Budget, BadQueues> {
    Ok(Budget {
        milli_gpu_hours: gpu_hours("gpu_hours", &text.gpu_hours)?,
        every: period(&text.every)?,
        carry_milli: text.carry.map_or(Ok(Some(0)), |carry| match carry.value.0.as_str() {
            "all" => Ok(None),
            "none" => Ok(Some(0)),
            _ => gpu_hours("carry", &carry).map(Some),
        })?,
    })
}

fn gpu_hours(name: &str, text: &Spanned<Scalar>) -> Result<i64, BadQueues> {
    let (line, column) = (text.referenced.line(), text.referenced.column());
    let or = if name == "carry" { ", all or none" } else { "" };
    let what = format!("{name}: {:?} is no number of GPU-hours: write 2000 or 0.5{or}", text.value.0);
    milli_hours(&text.value.0).ok_or(BadQueues { line, column, what })
}

/// Reads thousandths of GPU-hours; less than one of them is none.
pub(super) fn milli_hours(text: &str) -> Option<i64> {
    scaled(text, 1000).filter(|milli| !is_cut_to_nothing(text, *milli))
}

fn period(text: &Spanned<Scalar>) -> Result<Period, BadQueues> {
    let (line, column) = (text.referenced.line(), text.referenced.column());
    period_of(&text.value.0).map_err(|what| BadQueues { line, column, what })
}

/// Reads a period, or says what is wrong with it.
pub(super) fn period_of(text: &str) -> Result<Period, String> {
    let span = match text {
        "day" => return Ok(Period::Day),
        "week" => return Ok(Period::Week),
        "month" => return Ok(Period::Month),
        other => other.parse::<Span>().ok().filter(|span| *span >= SHORTEST),
    };
    span.map(Period::Span)
        .ok_or_else(|| format!("every: {text:?} is no period: write day, week, month or a time from 1h on"))
}
