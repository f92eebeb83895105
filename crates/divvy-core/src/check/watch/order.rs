//! Which job goes before which in the order of a queue, reckoned anew from what the jobs have had (L9).

use crate::id::JobId;
use crate::model::allocation::Placement;
use crate::model::policy::{Length, Order, Policy};
use crate::state::State;

/// What the order compares of a job.
struct Had {
    milli: i64,
    progress_ms: i64,
    /// How long it runs, if that is estimated.
    length_ms: Option<i64>,
    /// Whether it stands by how soon jobs like it end.
    is_foreseen: bool,
}

impl Had {
    fn of(state: &State, id: JobId) -> Option<Self> {
        let job = state.jobs.get(&id.number)?;
        let run = job.run(id.member)?;
        let held: i64 = run.placements.iter().map(Placement::milli).sum();
        let looks = !state.policy.attained.foreseen.levels_device_ms.is_empty();
        Some(Self {
            // What a gang has beyond what it starts with changes nothing of its place, nor what comes with a node of one's own.
            milli: match job.spec.gang.is_elastic() || job.spec.exclusive {
                true => job.spec.most_milli().min(if held > 0 { held } else { i64::MAX }),
                false if held > 0 => held,
                false => job.spec.most_milli(),
            },
            progress_ms: run.progress_ms(state.now),
            length_ms: job.estimate.as_ref().map(|estimate| estimate.p50_ms),
            is_foreseen: looks && job.estimate.as_ref().is_some_and(|estimate| !estimate.outlook.is_empty()),
        })
    }

    /// How many levels' ends its service has reached, at whole steps of its progress.
    fn level(&self, policy: &Policy) -> usize {
        let attained = &policy.attained;
        let steps = i128::from(self.progress_ms / policy.step_ms) * i128::from(policy.step_ms);
        let service = i128::from(self.milli) * (steps + i128::from(attained.head_start_ms));
        attained.levels_device_ms.iter().take_while(|end| i128::from(**end) * 1000 <= service).count()
    }

    /// How long it still has to run; once it has outrun its estimate, as long as it has run.
    fn left_ms(&self) -> Option<i64> {
        let length_ms = self.length_ms?;
        Some(if self.progress_ms < length_ms { length_ms - self.progress_ms } else { self.progress_ms })
    }
}

/// Whether a job that waits goes before one that runs.
pub(super) fn goes_before(state: &State, waits: JobId, runs: JobId) -> bool {
    let Some((waits, runs)) = Had::of(state, waits).zip(Had::of(state, runs)) else { return false };
    let policy = &state.policy;
    match policy.order {
        Order::Arrival => false,
        // Levels of the two kinds are not compared here.
        Order::Attained if waits.is_foreseen || runs.is_foreseen => true,
        Order::Attained => waits.level(policy) <= runs.level(policy),
        Order::Shortest => {
            let part = |had: &Had| match policy.shortest.of {
                Length::Whole => had.length_ms,
                Length::Remaining => had.left_ms(),
            };
            let weight = |had: &Had| if policy.shortest.by_devices { had.milli.max(1) } else { 1 };
            let cost = |had: &Had, ms: Option<i64>| ms.map_or(i64::MAX, |ms| ms.saturating_mul(weight(had)));
            cost(&waits, part(&waits)) <= cost(&runs, runs.left_ms())
        }
    }
}
