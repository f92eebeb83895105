//! When a waiting job will start: the very core, run forward from a pool as it is. How long each open job still runs is drawn by
//! lot, several times over, from what is known: how long it has run, its limit, what its user says, and jobs like it that have
//! ended. Nothing is known of jobs that are yet to arrive.

mod asked;
mod experience;
mod forward;
mod lots;

use std::collections::{BTreeMap, BTreeSet};

use divvy_core::controller::Broken;
use divvy_core::id::JobId;
use divvy_core::state::{Job, State};
use divvy_core::time::Time;
use divvy_insight::{Lengths, Likeness};

use crate::engine::Costs;

pub use asked::{Ask, Asked, Truth, ask};
pub use experience::{Expected, Experience};

/// What a forecast is made from.
pub struct Known<'a> {
    /// The pool as it is.
    pub state: &'a State,
    /// What time it is.
    pub now: Time,
    /// How long finished jobs have run.
    pub lengths: &'a Lengths,
    /// What a job has in common with those that have ended.
    pub likeness: &'a dyn Fn(&Job) -> Likeness,
    /// What every attempt costs besides its work.
    pub costs: Costs,
}

/// How far a forecast looks.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How many courses of the future are drawn.
    pub samples: u32,
    /// How far into the future each is followed, in milliseconds.
    pub horizon_ms: i64,
    /// How many moments at which something happens are followed in each.
    pub moments: u64,
    /// What the lots are drawn with.
    pub seed: u64,
    /// By how much all jobs of a future may end sooner or later than those before: the rate of their ends is multiplied by up to
    /// the exponential of this, or divided by it.
    pub doubt: f64,
}

impl Default for Bounds {
    /// Fifteen futures of four weeks: the second and the fourteenth of fifteen starts stand for the tenth and the ninetieth
    /// percentile. Where jobs end up to half as fast again as before, or as slowly, the traces of the benchmarks are met best
    /// before anything was learned from errors.
    fn default() -> Self {
        Self { samples: 15, horizon_ms: 28 * 86_400_000, moments: 20_000, seed: 0, doubt: 0.5 }
    }
}

/// What a forecast rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Basis {
    /// How many finished jobs are like those that run.
    pub finished: u64,
    /// How many jobs run of which somebody says how long.
    pub said: u64,
    /// How many run of which nothing at all is known: they hold what they have for as long as is looked ahead.
    pub unknown: u64,
}

/// When jobs start, in each future.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// The pool was looked at then.
    pub as_of: Time,
    /// The last cycle before.
    pub cycle: u64,
    /// What it rests on.
    pub basis: Basis,
    /// Up to when every future was followed, unless all that was asked for had started before.
    pub until: Time,
    /// When each job that was asked for starts, in each future; absent where it does not.
    starts: Vec<BTreeMap<JobId, Time>>,
}

impl Forecast {
    /// How long a job waits in each future from now on, in milliseconds, rising; `None`, at the end, where it does not start.
    pub fn waits_ms(&self, job: JobId) -> Vec<Option<i64>> {
        let wait = |starts: &BTreeMap<JobId, Time>| starts.get(&job).map(|at| at.since(self.as_of).0);
        let mut waits: Vec<Option<i64>> = self.starts.iter().map(wait).collect();
        waits.sort_unstable_by_key(|wait| wait.unwrap_or(i64::MAX));
        waits
    }

    /// How many futures were followed to their end.
    pub fn samples(&self) -> usize {
        self.starts.len()
    }
}

/// Runs the core forward until the wanted jobs have started. `gives_up` is asked from time to time: once it says so, what was found
/// up to then is all, and a future that is not at its end is none.
pub fn forecast(
    known: &Known<'_>,
    wanted: &BTreeSet<JobId>,
    bounds: &Bounds,
    gives_up: &dyn Fn() -> bool,
) -> Result<Forecast, Broken> {
    let as_of = known.now.max(known.state.now);
    let lots = lots::Lots::new(known, as_of);
    let cycle = known.state.cycles;
    let (mut starts, mut until) = (Vec::new(), Time(i64::MAX));
    for sample in 0..bounds.samples {
        let Bounds { samples: of, seed, doubt, .. } = *bounds;
        let courses = lots.draw(lots::Draw { sample, of, seed, doubt });
        let future = forward::Future { known, as_of, wanted, bounds, gives_up };
        let Some(seen) = future.follow(courses)? else { break };
        until = until.min(seen.until);
        starts.push(seen.starts);
    }
    Ok(Forecast { as_of, cycle, basis: lots.basis(), until, starts })
}

#[cfg(test)]
mod tests;
