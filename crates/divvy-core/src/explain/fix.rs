//! Fixes: changes that together do it, with what they cost.

use std::fmt;

use super::change::{Change, Cost, Tier, merged};
use super::ends::expected_end;
use crate::id::JobId;
use crate::model::ask::Alternative;
use crate::model::job::JobSpec;
use crate::state::State;
use crate::time::Time;

/// Changes that together lift what keeps a job waiting, the dearest last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fix {
    /// At least one, each at most once.
    pub changes: Vec<Change>,
    /// What they cost together.
    pub cost: Cost,
}

impl Fix {
    /// The fix of these changes to a job, with its cost in this state.
    pub fn of(state: &State, spec: &JobSpec, changes: &[Change]) -> Self {
        let changes = merged(changes);
        let cost = changes.iter().map(|change| cost(state, spec, change)).fold(Cost::default(), Cost::with);
        Self { changes, cost }
    }

    /// The highest tier of its changes: of all that it needs, the hardest to bring about.
    pub fn tier(&self) -> Tier {
        self.changes.iter().map(Change::tier).max().unwrap_or(Tier::Own)
    }

    /// Who can bring it about. A change that costs others something, but that the user may make within the queue's bounds, is the user's.
    pub fn who(&self) -> Tier {
        let own = |change: &Change| match change {
            Change::Prioritise { .. } => Tier::Own,
            other => other.tier(),
        };
        self.changes.iter().map(own).max().unwrap_or(Tier::Own)
    }

    /// The jobs whose ends it waits for.
    pub fn ends(&self) -> impl Iterator<Item = JobId> {
        self.changes
            .iter()
            .filter_map(|change| if let Change::End { job } = change { Some(*job) } else { None })
    }

    /// When what it waits for can be expected; `None` where it waits for nothing, or that is unknown.
    pub fn until(&self) -> Option<Time> {
        (1..i64::MAX).contains(&self.cost.until_ms).then_some(Time(self.cost.until_ms))
    }
}

/// What one change of a job costs.
pub fn cost(state: &State, spec: &JobSpec, change: &Change) -> Cost {
    let none = Cost::default();
    let role = |name: &str| spec.gang.roles().into_iter().find(|role| role.name == *name);
    let devices =
        |name: &str| role(name).and_then(|role| role.ask.alternatives.first()).map_or(0, Alternative::milli);
    let grant = |granted: i64| Cost { grants: 1, granted, ..none };
    match change {
        change if change.is_waiver() => Cost { waived: 1, ..none },
        Change::FewerDevices { role: name, from, to } => {
            let ask = role(name).and_then(|role| role.ask.alternatives.first()?.devices.as_ref());
            let each = ask.map_or(0, |ask| i64::from(ask.milli()));
            let tasks = role(name).map_or(1, |role| i64::from(role.minimum));
            Cost { fewer_milli: i64::from(from - to) * each * tasks, ..none }
        }
        Change::FewerTasks { role, from, to } => match devices(role) {
            0 => Cost { less_host: part(i64::from(from - to), i64::from(*from)), ..none },
            each => Cost { fewer_milli: i64::from(from - to) * each, ..none },
        },
        Change::LessHost { from, to, .. } => Cost { less_host: part(from - to, *from), ..none },
        Change::TimeLimit { from_ms, to_ms } => {
            Cost { less_time_ms: (from_ms.unwrap_or(UNSAID_LIMIT_MS) - to_ms).max(1), ..none }
        }
        Change::Wait { until }
        | Change::AwaitCalendar { until, .. }
        | Change::AwaitSafety { until }
        | Change::AwaitBudget { until, .. } => Cost { until_ms: until.0, ..none },
        Change::AwaitStop { jobs, until, .. } => {
            Cost { until_ms: until.map_or(i64::MAX, |at| at.0.max(1)), ends: jobs.len() as u32, ..none }
        }
        Change::End { job } => {
            let until_ms = expected_end(state, *job).map_or(i64::MAX, |at| at.0.max(1));
            Cost { until_ms, ends: 1, ..none }
        }
        Change::RaiseLimit(raise)
        | Change::RaiseUserLimit(raise)
        | Change::RaiseGuarantee(raise)
        | Change::RaiseBorrow(raise)
        | Change::RaiseLend(raise) => grant(raise.by()),
        // A part of what is left is less than any guarantee.
        Change::Weigh { .. } => grant(1),
        Change::RaiseBudget { from, to, .. } => grant(to.saturating_sub(*from)),
        Change::EndDrain | Change::Undrain { .. } | Change::EndReservation { .. } => grant(0),
        Change::Repair { .. } | Change::Vacate { .. } => grant(0),
        // Others wait longer for it, by as much as the job asks for; the higher it goes, the more of them do.
        Change::Prioritise { to } => {
            let by = i64::from(*to).saturating_sub(i64::from(spec.priority));
            grant(spec.milli_asked().saturating_add(by.max(1)))
        }
        // It changes the order for everybody.
        Change::AnyOrder => grant(i64::from(u32::MAX)),
        Change::AddRoom { tasks, devices, .. } => {
            Cost { bought: tasks.saturating_mul((*devices).max(1)), ..none }
        }
        _ => Cost { accepted: 1, ..none },
    }
}

/// Four weeks: how long a job without a time limit may run, as far as costs are concerned.
const UNSAID_LIMIT_MS: i64 = 28 * 86_400_000;

/// A part in thousandths, at least one.
fn part(less: i64, whole: i64) -> i64 {
    let milli = i128::from(less) * 1000 / i128::from(whole.max(1));
    i64::try_from(milli).unwrap_or(i64::MAX).max(1)
}

/// What to do, in one sentence without its full stop.
impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        for tier in [Tier::Own, Tier::Time, Tier::Grant] {
            let plain = |change: &&Change| change.tier() == tier && !matches!(change, Change::End { .. });
            parts.extend(self.changes.iter().filter(plain).map(ToString::to_string));
            let ends: Vec<JobId> = self.ends().collect();
            if tier == Tier::Time && !ends.is_empty() {
                let noun = if ends.len() == 1 { "job" } else { "jobs" };
                parts.push(format!("wait for {noun} {} to end", listed(&ends)));
            }
        }
        match parts.split_last() {
            Some((last, [])) => f.write_str(last),
            Some((last, others)) => write!(f, "{} and {last}", others.join(", ")),
            None => Ok(()),
        }
    }
}

/// How many jobs are named before the rest is counted.
const MOST_NAMED: usize = 6;

/// Jobs in words: `1, 2, 3`.
pub(super) fn listed(jobs: &[JobId]) -> String {
    let named: Vec<String> = jobs.iter().take(MOST_NAMED).map(ToString::to_string).collect();
    match jobs.len() {
        ..=MOST_NAMED => named.join(", "),
        all => format!("{} and {} more", named.join(", "), all - MOST_NAMED),
    }
}
