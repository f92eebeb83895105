//! Chaos: whole lives of a pool from seeds, with faults, and then a quiet phase in which everything that fits must run. A life
//! is first made as data ([`life::Life`]); living it checks every law on the way ([`live`]); a life that breaks a law is made
//! small ([`shrink`]) and kept as a test.

pub mod calendar;
mod company;
mod generate;
mod islands;
pub mod life;
mod pools;
mod shrink;
mod world;

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use serde::Serialize;

pub use generate::life;
pub use shrink::shrink;
pub use world::{Lived, live};

/// The result of several lives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// How many lives.
    pub seeds: u64,
    /// Events in them, in total.
    pub events: u64,
    /// The hash of all decisions in them.
    pub digest: String,
    /// Laws that were broken.
    pub violations: Vec<Broken>,
}

/// A law that a life broke.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Broken {
    /// The life's seed.
    pub seed: u64,
    /// The law: `L7`, `limit`, `liveness`.
    pub law: &'static str,
    /// After how many events.
    pub event: u64,
    /// What was found.
    pub text: String,
}

/// Lives the lives of these seeds on a number of threads. The report does not depend on that number.
pub fn run(seeds: Range<u64>, events: u64, threads: usize) -> Report {
    run_told(seeds, events, threads, &mut |_, _| ControlFlow::Continue(()))
}

/// Likewise. `told` hears how many lives are over and what the last of them broke, and may stop the run. The lives under way are then
/// lived to their ends: the report is that of the first seeds, as if no more had been asked for.
pub fn run_told(
    seeds: Range<u64>,
    events: u64,
    threads: usize,
    told: &mut dyn FnMut(u64, Option<Broken>) -> ControlFlow<()>,
) -> Report {
    let next = AtomicU64::new(seeds.start);
    let mut lives: Vec<(u64, Lived)> = Vec::new();
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..threads.max(1) {
            let (sender, next, end) = (sender.clone(), &next, seeds.end);
            scope.spawn(move || {
                loop {
                    // The counter stops at the end: there is no seed after the largest one.
                    let one_more = |next: u64| (next < end).then_some(next.saturating_add(1));
                    let taken = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
                    let Ok(seed) = taken else { return };
                    if sender.send((seed, live(&life(seed, events)))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for lived in receiver {
            let broken = broken(&lived);
            lives.push(lived);
            if told(lives.len() as u64, broken).is_break() {
                next.store(seeds.end, Ordering::Relaxed);
            }
        }
    });
    lives.sort_by_key(|(seed, _)| *seed);
    report(&lives)
}

/// Returns the result of one life.
pub fn report_of(life: &life::Life) -> Report {
    report(&[(life.seed, live(life))])
}

fn report(lives: &[(u64, Lived)]) -> Report {
    let digests: Vec<u64> = lives.iter().map(|(_, lived)| lived.digest).collect();
    Report {
        seeds: lives.len() as u64,
        events: lives.iter().map(|(_, lived)| lived.events).sum(),
        digest: format!("{:016x}", divvy_core::state::fingerprint(&digests)),
        violations: lives.iter().filter_map(broken).collect(),
    }
}

/// The law that a life broke, if any.
fn broken((seed, lived): &(u64, Lived)) -> Option<Broken> {
    let (event, violation) = lived.violation.clone()?;
    Some(Broken { seed: *seed, law: violation.law, event, text: violation.text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_life_of_the_first_seeds_breaks_a_law() {
        let report = run(0..48, 1200, 2);
        assert_eq!(report.violations, []);
        assert!(report.events > 48 * 600, "{report:?}");
    }

    #[test]
    fn the_report_does_not_depend_on_the_number_of_threads() {
        assert_eq!(run(0..8, 300, 1), run(0..8, 300, 2));
    }

    #[test]
    fn who_stops_early_gets_the_report_of_the_first_seeds() {
        let mut stop = |over, _: Option<Broken>| match over {
            0..3 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        };
        let stopped = run_told(0..1000, 300, 2, &mut stop);
        assert!((3..1000).contains(&stopped.seeds), "{}", stopped.seeds);
        assert_eq!(stopped, run(0..stopped.seeds, 300, 1));
    }

    #[test]
    fn the_last_seeds_that_there_are_come_to_an_end() {
        assert_eq!(run(u64::MAX - 1..u64::MAX, 50, 3).seeds, 1);
    }

    #[test]
    fn a_life_is_the_same_after_it_was_stored() {
        let life = life(3, 1000);
        let text = serde_json::to_string(&life).unwrap();
        assert_eq!(serde_json::from_str::<life::Life>(&text).unwrap(), life);
    }

    #[test]
    fn a_life_that_no_pool_could_live_is_told_so() {
        let life = life(3, 100);
        assert_eq!(life.wrong(), None);
        let policy = divvy_core::model::policy::Policy { step_ms: 0, ..life.policy.clone() };
        let step = life::Life { policy, ..life.clone() };
        let queue = divvy_core::model::queue::Queue::named("q");
        let twice = life::Life { queues: vec![queue.clone(), queue], ..life.clone() };
        let nodes = life.nodes.iter().cloned();
        let nodes = nodes.map(|node| life::NodeLine { joined: Some(islands::Joined::Each(0)), ..node });
        let joined = life::Life { nodes: nodes.collect(), ..life.clone() };
        assert!([step, twice, joined].iter().all(|life| life.wrong().is_some()));
    }
}
