//! Where a job stands in the order of the policy: keys that stay the same while a job waits.

pub(crate) use super::running::thresholds;
use crate::model::policy::{Length, Order, Policy, Within};
use crate::time::Time;

/// Where a job stands: lower goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderKey {
    /// Priority, where the order puts it first: its negative.
    pub rank: i64,
    /// What the policy compares first.
    pub first: i64,
    /// What it compares next.
    pub second: i64,
    /// The number of the job: earlier submissions first.
    pub number: u64,
}

/// What the order looks at.
pub(crate) struct Standing {
    pub(crate) priority: i32,
    pub(crate) submitted_at: Time,
    pub(crate) number: u64,
    pub(crate) milli: i64,
    pub(crate) progress_ms: i64,
    pub(crate) estimate_ms: Option<i64>,
    /// How many levels' ends its service has reached, where the order asks.
    pub(crate) level: i64,
    /// When it last arrived, started, was stopped or fell a level.
    pub(crate) turn: Time,
    pub(crate) waits: bool,
}

/// The key of a job, constant while it waits.
pub(crate) fn key(policy: &Policy, job: &Standing) -> OrderKey {
    let rank = -i64::from(job.priority);
    let (rank, first, second) = match policy.order {
        Order::Arrival => {
            let head_start = i64::from(job.priority).saturating_mul(policy.ageing_ms_per_point);
            (0, job.submitted_at.0.saturating_sub(head_start), 0)
        }
        Order::Shortest => (rank, length(policy, job), 0),
        Order::Attained => match policy.attained.within {
            Within::Submit | Within::AgePerDevice => (rank, job.level, job.submitted_at.0),
            Within::Turn => (rank, job.level * 2 + i64::from(job.waits), job.turn.0),
        },
    };
    OrderKey { rank, first, second, number: job.number }
}

/// The place in the line at this moment: the key, but where the order goes by age per device, that age instead of the time of
/// submission. Among jobs of as many devices both give the same order.
pub(crate) fn place(policy: &Policy, key: OrderKey, milli: i64, now: Time) -> OrderKey {
    if policy.order != Order::Attained || policy.attained.within != Within::AgePerDevice {
        return key;
    }
    let age = i128::from(now.0 - key.second) * 1_000_000 / i128::from(milli.max(1));
    OrderKey { second: -i64::try_from(age).unwrap_or(i64::MAX), ..key }
}

/// How many levels' ends the service has reached, where the order asks.
pub(crate) fn level(policy: &Policy, milli: i64, progress_ms: i64) -> i64 {
    if policy.order != Order::Attained {
        return 0;
    }
    thresholds(policy, milli).take_while(|threshold| *threshold <= progress_ms).count() as i64
}

/// What `shortest` compares. A job of which nobody foresees anything goes last.
fn length(policy: &Policy, job: &Standing) -> i64 {
    let Some(estimate) = job.estimate_ms else { return i64::MAX };
    let left = match policy.shortest.of {
        Length::Whole => estimate,
        Length::Remaining if job.progress_ms < estimate => estimate - job.progress_ms,
        Length::Remaining => job.progress_ms,
    };
    if policy.shortest.by_devices { left.saturating_mul(job.milli.max(1)) } else { left }
}
