//! When a waiting job will start: the same core, run forward from a pool as it is. How much longer each open job runs is drawn
//! by lot, several times over, from what is known: how long it has run, its limit, what its user says, and jobs like it that
//! have ended. Nothing is known of jobs that are yet to arrive.

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
    /// How long finished jobs ran.
    pub lengths: &'a Lengths,
    /// Returns what a job has in common with jobs that have ended.
    pub likeness: &'a dyn Fn(&Job) -> Likeness,
    /// What every attempt costs besides its work.
    pub costs: Costs,
}

/// How far a forecast looks.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How many futures are drawn.
    pub samples: u32,
    /// How far into the future each is followed, in milliseconds.
    pub horizon_ms: i64,
    /// How many moments at which something happens are followed in each, at most.
    pub moments: u64,
    /// The seed of the lots.
    pub seed: u64,
    /// How much sooner or later than those before all jobs of a future may end: the rate of their ends is multiplied or divided
    /// by up to the exponential of this.
    pub doubt: f64,
}

impl Default for Bounds {
    /// Fifteen futures of four weeks: the second and the fourteenth of fifteen starts stand for the tenth and the ninetieth
    /// percentile. A doubt of 0.5 met the traces of the benchmarks best before anything was learned from errors.
    fn default() -> Self {
        Self { samples: 15, horizon_ms: 28 * 86_400_000, moments: 20_000, seed: 0, doubt: 0.5 }
    }
}

/// What a forecast rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Basis {
    /// How many finished jobs are like those that run.
    pub finished: u64,
    /// How many running jobs have a length or a limit that somebody stated.
    pub said: u64,
    /// How many running jobs nothing at all is known of: they keep what they hold up to the horizon.
    pub unknown: u64,
}

/// When jobs start, in each future.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// When the pool was looked at.
    pub as_of: Time,
    /// The last cycle before that.
    pub cycle: u64,
    /// What it rests on.
    pub basis: Basis,
    /// The time up to which every future was followed, unless all jobs asked about had started before.
    pub until: Time,
    /// When each job asked about starts, in each future; absent where it does not.
    starts: Vec<BTreeMap<JobId, Time>>,
}

impl Forecast {
    /// Returns how long a job still waits in each future, in milliseconds, ascending; `None`, at the end, if it never starts.
    pub fn waits_ms(&self, job: JobId) -> Vec<Option<i64>> {
        let wait = |starts: &BTreeMap<JobId, Time>| starts.get(&job).map(|at| at.since(self.as_of).0);
        let mut waits: Vec<Option<i64>> = self.starts.iter().map(wait).collect();
        waits.sort_unstable_by_key(|wait| wait.unwrap_or(i64::MAX));
        waits
    }

    /// Returns how many futures were followed to their end.
    pub fn samples(&self) -> usize {
        self.starts.len()
    }
}

/// Runs the core forward until the wanted jobs have started. `gives_up` is asked from time to time: once it says so, the forecast
/// is what was found up to then, without the unfinished future.
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
