//! Where a job stands in the order of the policy: keys that stay the same while a job waits.

use super::running::RunView;
pub(crate) use super::steps::thresholds;
use super::steps::up_to_step;
use crate::id::JobId;
use crate::model::job::{Estimate, Prospect};
use crate::model::policy::{Attained, Length, Order, Policy, Preempt, Within};
use crate::state::{Job, Run, Runs};
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
pub(crate) struct Standing<'a> {
    pub(crate) priority: i32,
    pub(crate) submitted_at: Time,
    pub(crate) number: u64,
    pub(crate) milli: i64,
    pub(crate) progress_ms: i64,
    pub(crate) estimate: Option<&'a Estimate>,
    /// How many levels' ends its service has reached, where the order asks.
    pub(crate) level: i64,
    /// When it last arrived, started, was stopped or fell a level.
    pub(crate) turn: Time,
    pub(crate) waits: bool,
}

/// The key of a job, constant while it waits.
pub(crate) fn key(policy: &Policy, job: &Standing<'_>) -> OrderKey {
    let rank = -i64::from(job.priority);
    let (rank, first, second) = match policy.order {
        Order::Arrival => {
            let head_start = i64::from(job.priority).saturating_mul(policy.ageing_ms_per_point);
            (0, job.submitted_at.0.saturating_sub(head_start), 0)
        }
        Order::Shortest => (rank, length(policy, job), 0),
        Order::Attained => match policy.attained.within {
            // The two kinds of levels have different measures: at the same level, foreseen jobs go first.
            _ if !outlook(policy, job.estimate).is_empty() => (rank, job.level * 2, job.submitted_at.0),
            Within::Submit | Within::AgePerDevice => (rank, job.level * 2 + 1, job.submitted_at.0),
            Within::Turn => (rank, job.level * 2 + i64::from(job.waits), job.turn.0),
        },
    };
    OrderKey { rank, first, second, number: job.number }
}

/// The key of a waiting job; `run` is its waiting run, or `None` for one that has not run.
pub(crate) fn of_waiting(policy: &Policy, job: &Job, run: Option<&Run>) -> OrderKey {
    let (milli, progress_ms) = (job.spec.most_milli(), run.map_or(0, |run| run.attained_ms));
    let estimate = job.estimate.as_deref();
    let standing = Standing {
        priority: job.spec.priority,
        submitted_at: job.submitted_at,
        number: job.number,
        milli,
        progress_ms,
        level: level(policy, estimate, milli, progress_ms),
        estimate,
        turn: run.and_then(|run| run.back_since).unwrap_or(job.submitted_at),
        waits: true,
    };
    key(policy, &standing)
}

/// The waiting runs of a job, each with its key, in the order in which they start. Members of an array that have run before
/// stand where their service puts them, or they would give way and come back for ever.
pub(crate) fn starts<'a>(
    policy: &Policy,
    job: &'a Job,
) -> Box<dyn Iterator<Item = (OrderKey, Option<u32>)> + 'a> {
    let unrun = of_waiting(policy, job, None);
    let array = match &job.runs {
        Runs::Single(run) => {
            let key = of_waiting(policy, job, Some(run));
            return Box::new(run.waits().then_some((key, None)).into_iter());
        }
        Runs::Array(array) => array,
    };
    if policy.order == Order::Arrival {
        return Box::new(job.waiting_members().map(move |member| (unrun, member)));
    }
    let waits = array.touched.iter().filter(|(_, run)| run.waits());
    let mut touched: Vec<(OrderKey, Option<u32>)> =
        waits.map(|(member, run)| (of_waiting(policy, job, Some(run)), Some(*member))).collect();
    touched.sort_unstable();
    let fresh = array.held.is_none().then(|| array.fresh.iter()).into_iter().flatten();
    let mut fresh = fresh.map(move |member| (unrun, Some(member))).peekable();
    let mut touched = touched.into_iter().peekable();
    Box::new(std::iter::from_fn(move || match (fresh.peek(), touched.peek()) {
        (Some(first), Some(other)) if first > other => touched.next(),
        (Some(_), _) => fresh.next(),
        (None, _) => touched.next(),
    }))
}

/// The waiting runs of a job, in the order in which they start.
pub(crate) fn members<'a>(policy: &Policy, job: &'a Job) -> impl Iterator<Item = Option<u32>> + use<'a> {
    let (single, array) = match &job.runs {
        Runs::Single(run) => (run.waits().then_some(None), None),
        Runs::Array(_) => (None, Some(starts(policy, job))),
    };
    single.into_iter().chain(array.into_iter().flatten().map(|(_, member)| member))
}

/// The key of the waiting run of a job that starts first, if there is one.
pub(crate) fn first_start(policy: &Policy, job: &Job) -> Option<OrderKey> {
    match &job.runs {
        Runs::Single(run) => run.waits().then(|| of_waiting(policy, job, Some(run))),
        Runs::Array(_) => starts(policy, job).next().map(|(key, _)| key),
    }
}

/// The place in the line at this moment: the key, with age per device in place of the time of submission where the order goes by that.
/// Among jobs with as many devices both give the same order. Foreseen jobs, those with an even `first`, keep the time of submission.
/// So do all in a strict order: where the first keeps back those behind it, no job passes it merely because time does (L10).
pub(crate) fn place(policy: &Policy, key: OrderKey, milli: i64, now: Time) -> OrderKey {
    let by_age = policy.order == Order::Attained && policy.attained.within == Within::AgePerDevice;
    if !by_age || policy.strict || key.first % 2 == 0 {
        return key;
    }
    let age = i128::from(now.0 - key.second) * 1_000_000 / i128::from(milli.max(1));
    OrderKey { second: -i64::try_from(age).unwrap_or(i64::MAX), ..key }
}

/// Returns when the running jobs with so many devices, in thousandths, that stand behind a place in the line at its level were
/// submitted at the earliest. Where that does not tell, it is the beginning of time.
pub(crate) fn submitted_behind(policy: &Policy, place: OrderKey, milli: i64, now: Time) -> Time {
    if !by_submission(policy) {
        return Time(i64::MIN);
    }
    if policy.attained.within == Within::Submit || policy.strict || place.first % 2 == 0 {
        return Time(place.second);
    }
    // The greatest age that is rounded to the same age per device.
    let age = (i128::from(place.second).saturating_neg() + 1) * i128::from(milli.max(1)) / 1_000_000 + 1;
    Time(i64::try_from(i128::from(now.0) - age).unwrap_or(i64::MIN))
}

/// Whether jobs at the same level stand by when they were submitted, or by their age per device.
fn by_submission(policy: &Policy) -> bool {
    policy.order == Order::Attained && policy.attained.within != Within::Turn
}

/// Whether a running job at the same level as a place in the line stands behind it, by its id, when it was submitted, and how many
/// devices it has, in thousandths; `true` where these do not tell.
pub(crate) fn is_behind(
    policy: &Policy,
    line: OrderKey,
    (job, submitted_at, milli): (JobId, Time, i64),
    now: Time,
) -> bool {
    let key = OrderKey { second: submitted_at.0, number: job.number, ..line };
    !by_submission(policy) || line < place(policy, key, milli, now)
}

/// Whether running jobs are walked in an order in which a place stays the same between two crossings: it counts neither the length
/// that is left, nor age per device, nor when a job had its turn, and holds no job at its place for a while.
pub(crate) fn lasts(policy: &Policy) -> bool {
    let Attained { within, hold_ms, foreseen, .. } = &policy.attained;
    let lasts = match policy.order {
        Order::Arrival => true,
        Order::Shortest => false,
        Order::Attained => *within == Within::Submit && *hold_ms == 0 && foreseen.hold_ms == 0,
    };
    policy.preempt == Preempt::Walk && lasts
}

/// Whether running jobs are walked in an order by what is left of each, which shrinks with time by as much for all that run.
pub(crate) fn shrinks(policy: &Policy) -> bool {
    let by_time = policy.shortest.of == Length::Remaining && !policy.shortest.by_devices;
    policy.preempt == Preempt::Walk && policy.order == Order::Shortest && by_time
}

/// Whether a running job keeps its place before all others of its priority, where the order of the walk would change as it runs:
/// it would lose all its work each time, and two such jobs could take each other's places for ever without finishing.
pub(crate) fn stands_fast(policy: &Policy, view: &RunView) -> bool {
    let changes = policy.preempt == Preempt::Walk && policy.order != Order::Arrival;
    changes && view.loses_all()
}

/// The place of a job that stands fast.
pub(crate) fn fast(key: OrderKey) -> OrderKey {
    OrderKey { first: i64::MIN, ..key }
}

/// The place of a running job in an order that shrinks, reckoned back to moment 0, as long as it has not outrun its estimate.
pub(crate) fn shrinking(policy: &Policy, id: JobId, view: &RunView, now: Time) -> Option<OrderKey> {
    let shrinks = shrinks(policy) && !stands_fast(policy, view);
    let estimate_ms = view.estimate.as_ref().filter(|_| shrinks)?.p50_ms;
    let left_ms = estimate_ms.checked_sub(view.attained_ms).filter(|left| *left > 0)?;
    // Like all changes of a place, outrunning the estimate takes effect at a whole step.
    let within = view.progress_ms(now) < up_to_step(estimate_ms, policy.step_ms);
    let (rank, first) = (-i64::from(view.priority), view.started_at?.0.checked_add(left_ms)?);
    within.then_some(OrderKey { rank, first, second: 0, number: id.number })
}

/// Whether jobs give way by least loss, and running jobs give way to those of their own queue that stand before them in the order.
pub(crate) fn displaces(policy: &Policy) -> bool {
    policy.preempt == Preempt::LeastLoss && policy.order != Order::Arrival
}

/// An upper bound, until its next crossing, for what is compared first of a running job that has reached so many levels' ends.
pub(crate) fn first_at_most(policy: &Policy, id: JobId, (view, level): (&RunView, i64)) -> i64 {
    match policy.order {
        Order::Attained => lasting(policy, id, (view, level)).first,
        Order::Arrival | Order::Shortest => i64::MAX,
    }
}

/// The place of a running job that has reached so many levels' ends, where places last.
pub(crate) fn lasting(policy: &Policy, id: JobId, (view, level): (&RunView, i64)) -> OrderKey {
    let standing = Standing {
        priority: view.priority,
        submitted_at: view.submitted_at,
        number: id.number,
        milli: view.order_milli(),
        progress_ms: view.attained_ms,
        estimate: view.estimate.as_deref(),
        level,
        turn: view.placed_at,
        waits: false,
    };
    let key = key(policy, &standing);
    if stands_fast(policy, view) { fast(key) } else { key }
}

/// How many levels' ends it has reached, where the order asks.
pub(crate) fn level(policy: &Policy, estimate: Option<&Estimate>, milli: i64, progress_ms: i64) -> i64 {
    if policy.order != Order::Attained {
        return 0;
    }
    match outlook(policy, estimate) {
        [] => thresholds(policy, milli).take_while(|threshold| *threshold <= progress_ms).count() as i64,
        outlook => foreseen_level(policy, outlook, progress_ms),
    }
}

/// Until when a running job goes before all others, where the policy says so: without an end before all of its tasks run.
pub(crate) fn held_until(policy: &Policy, view: &RunView) -> Option<Time> {
    let hold_ms = match outlook(policy, view.estimate.as_deref()) {
        [] => policy.attained.hold_ms,
        _ => policy.attained.foreseen.hold_ms,
    };
    let holds = policy.order == Order::Attained && hold_ms > 0;
    holds.then(|| view.started_at.map_or(Time(i64::MAX), |started| Time(started.0.saturating_add(hold_ms))))
}

/// What is foreseen of a job, where the policy looks at it.
pub(crate) fn outlook<'a>(policy: &Policy, estimate: Option<&'a Estimate>) -> &'a [Prospect] {
    match estimate {
        Some(estimate) if !policy.attained.foreseen.levels_device_ms.is_empty() => &estimate.outlook,
        _ => &[],
    }
}

/// The level after so much progress. Like all changes of a place, those of the outlook take effect at whole steps.
pub(crate) fn foreseen_level(policy: &Policy, outlook: &[Prospect], progress_ms: i64) -> i64 {
    let passed = passed(policy, outlook, progress_ms);
    let cost = outlook.get(passed.saturating_sub(1)).map_or(0, |prospect| prospect.per_end_device_ms);
    policy.attained.foreseen.levels_device_ms.partition_point(|level| *level <= cost) as i64
}

fn passed(policy: &Policy, outlook: &[Prospect], progress_ms: i64) -> usize {
    outlook.partition_point(|prospect| up_to_step(prospect.after_ms, policy.step_ms) <= progress_ms)
}

/// The progress at which a job of which this is foreseen changes its level next, if it does.
pub(crate) fn next_foreseen(policy: &Policy, outlook: &[Prospect], progress_ms: i64) -> Option<i64> {
    let now = foreseen_level(policy, outlook, progress_ms);
    let later = outlook.get(passed(policy, outlook, progress_ms)..)?;
    let mut moments = later.iter().map(|prospect| up_to_step(prospect.after_ms, policy.step_ms));
    moments.find(|moment| foreseen_level(policy, outlook, *moment) != now)
}

/// What `shortest` compares. A job without an estimate goes last.
fn length(policy: &Policy, job: &Standing<'_>) -> i64 {
    length_of(policy.shortest.of, policy, job)
}

/// What is left of a job by that measure, whatever `shortest` compares.
pub(crate) fn left(policy: &Policy, job: &Standing<'_>) -> i64 {
    length_of(Length::Remaining, policy, job)
}

fn length_of(part: Length, policy: &Policy, job: &Standing<'_>) -> i64 {
    let Some(estimate) = job.estimate.map(|estimate| estimate.p50_ms) else { return i64::MAX };
    let left = match part {
        Length::Whole => estimate,
        Length::Remaining if job.progress_ms < estimate => estimate - job.progress_ms,
        Length::Remaining => job.progress_ms,
    };
    if policy.shortest.by_devices { left.saturating_mul(job.milli.max(1)) } else { left }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::policy::{Attained, Foreseen};

    fn policy() -> Policy {
        let foreseen = Foreseen { levels_device_ms: vec![10_000, 100_000], hold_ms: 0 };
        let attained = Attained { foreseen, ..Attained::default() };
        Policy { order: Order::Attained, attained, ..Policy::default() }
    }

    /// A job that is near its end at first and, once it has outlived the short ones like it, far from it.
    fn outlived() -> Estimate {
        let prospect = |after_ms, per_end_device_ms| Prospect { after_ms, per_end_device_ms };
        let outlook = vec![prospect(0, 5_000), prospect(8_000, 9_999), prospect(19_001, 500_000)];
        Estimate { p50_ms: 5_000, p90_ms: 9_000, model: "spread".into(), outlook }
    }

    fn key_after(policy: &Policy, progress_ms: i64, estimate: Option<&Estimate>) -> OrderKey {
        let (submitted_at, turn) = (Time(7_000), Time(7_000));
        let (priority, number, milli, waits) = (0, 1, 1000, true);
        let level = level(policy, estimate, milli, progress_ms);
        let standing =
            Standing { priority, submitted_at, number, milli, progress_ms, level, estimate, turn, waits };
        key(policy, &standing)
    }

    #[test]
    fn a_foreseen_job_stands_by_how_soon_its_like_end() {
        let (policy, estimate) = (policy(), outlived());
        let at = |progress_ms| key_after(&policy, progress_ms, Some(&estimate)).first;
        assert_eq!([0, 19_999, 20_000].map(at), [0, 0, 4]);
    }

    #[test]
    fn its_place_changes_only_where_its_level_does_and_at_whole_steps() {
        let (policy, estimate) = (policy(), outlived());
        assert_eq!(next_foreseen(&policy, &estimate.outlook, 0), Some(20_000));
        assert_eq!(next_foreseen(&policy, &estimate.outlook, 20_000), None);
    }

    #[test]
    fn an_outlook_counts_only_where_the_policy_has_levels_for_it() {
        let without = Policy { attained: Attained::default(), ..policy() };
        let estimate = outlived();
        assert_eq!(key_after(&without, 50_000, Some(&estimate)), key_after(&without, 50_000, None));
        assert!(outlook(&without, Some(&estimate)).is_empty());
    }

    #[test]
    fn age_per_device_leaves_foreseen_jobs_in_the_order_of_submission() {
        let (policy, estimate) = (policy(), outlived());
        let placed = |estimate| place(&policy, key_after(&policy, 0, estimate), 4000, Time(9_000)).second;
        assert_eq!(placed(Some(&estimate)), 7_000);
        assert_eq!(placed(None), -500_000);
    }
}
