//! At what progress a job that runs changes its place in the order: always at whole steps of the policy.

use crate::model::policy::Policy;

/// The progress in milliseconds at which a job of so many devices enters each further level, rising.
pub(crate) fn thresholds(policy: &Policy, milli: i64) -> impl Iterator<Item = i64> {
    let (head_start, step) = (policy.attained.head_start_ms, policy.step_ms);
    let milli = milli.max(1);
    policy.attained.levels_device_ms.iter().map(move |level| {
        threshold(*level, milli, (head_start, step))
            .unwrap_or_else(|| large_threshold(*level, milli, (head_start, step)))
    })
}

/// One threshold, where everything stays within 64 bits: true of all but absurd ones, and several times as fast.
fn threshold(level: i64, milli: i64, (head_start, step): (i64, i64)) -> Option<i64> {
    let progress = level.checked_mul(1000)?.checked_sub(head_start.checked_mul(milli)?)?;
    let whole = milli.checked_mul(step)?;
    progress.checked_add(whole - 1)?.div_euclid(whole).checked_mul(step)
}

fn large_threshold(level: i64, milli: i64, (head_start, step): (i64, i64)) -> i64 {
    let progress = i128::from(level) * 1000 - i128::from(head_start) * i128::from(milli);
    let whole = i128::from(milli) * i128::from(step);
    let steps = (progress + whole - 1).div_euclid(whole);
    i64::try_from(steps * i128::from(step)).unwrap_or(i64::MAX)
}

pub(super) fn up_to_step(span_ms: i64, step_ms: i64) -> i64 {
    span_ms.saturating_add(step_ms - 1) / step_ms * step_ms
}

/// The progress at which a job changes its place in an order by length: when its estimate is used up, and whenever its progress
/// has doubled since.
pub(super) fn doublings(first_ms: i64, step_ms: i64) -> impl Iterator<Item = i64> {
    let doubled = std::iter::successors(Some(first_ms), |next| Some(next.saturating_mul(2)));
    doubled.map(move |next| up_to_step(next, step_ms))
}
