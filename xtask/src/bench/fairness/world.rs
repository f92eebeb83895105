//! What is simulated: a pool, a tree of queues in three levels, and a month of jobs, more than the pool can do.

use divvy_core::amount::{Amount, Limits, Resource};
use divvy_core::model::queue::Queue;
use divvy_sim::generate::{NodeGroup, Recipe, cluster, jobs};
use divvy_sim::trace::cluster::ClusterNode;
use divvy_sim::trace::jobs::TraceJob;

use super::water::Vessel;

/// A pool with its queues and jobs.
pub(super) struct World {
    pub(super) nodes: Vec<ClusterNode>,
    pub(super) jobs: Vec<TraceJob>,
    /// The tree as the core takes it.
    pub(super) queues: Vec<Queue>,
    /// The same tree for the water-filling: first the pool, then one vessel per queue.
    pub(super) vessels: Vec<Vessel>,
    /// The queues that jobs are submitted to: path and vessel.
    pub(super) leaves: Vec<(String, usize)>,
}

/// Thirty days.
pub(super) const MONTH_S: i64 = 30 * 86_400;

/// The work that arrives, in percent of what the pool can do: more than all, so that somebody always waits.
const LOAD_PERCENT: u32 = 120;

/// Users in each queue.
const USERS_PER_QUEUE: u32 = 4;

/// The part of the pool that is guaranteed, to all queues together.
const GUARANTEED: f64 = 0.5;

/// Makes the world of so many queues from a seed. A queue has ten GPUs on average, so that its jobs fit it.
pub(super) fn world(leaves: u32, seed: u64) -> World {
    let node = NodeGroup { count: (leaves * 10).div_ceil(8).max(8), model: "h100".into(), gpus: 8 };
    let users = leaves * USERS_PER_QUEUE;
    // More jobs than a month has; the rest is cut.
    let recipe =
        Recipe { nodes: vec![node], jobs: 1_000_000, seed, load_percent: LOAD_PERCENT, teams: leaves, users };
    let nodes = cluster(&recipe);
    let gpus = nodes.iter().map(|node| node.gpus).sum();
    let mut world = tree(leaves, gpus);
    world.nodes = nodes;
    world.jobs = jobs(&recipe).take_while(|job| job.arrival.submit_s < MONTH_S).collect();
    for job in &mut world.jobs {
        job.arrival.queue = path_of_team(&job.arrival.queue, leaves);
    }
    world
}

/// How many queues there are on the first level.
fn tops(leaves: u32) -> u32 {
    (leaves / 8).clamp(2, 6)
}

/// The path of a leaf, from 0: the first and second level take turns.
fn path(leaf: u32, leaves: u32) -> [String; 3] {
    let (top, middle) = (leaf % tops(leaves), leaf / tops(leaves) % 2);
    let first = format!("org-{}", top + 1);
    let second = format!("{first}/lab-{}", middle + 1);
    let third = format!("{second}/team-{}", leaf + 1);
    [first, second, third]
}

fn path_of_team(team: &str, leaves: u32) -> String {
    let number = team.rsplit('-').next().and_then(|number| number.parse::<u32>().ok()).unwrap_or(1);
    let [_, _, path] = path(number - 1, leaves);
    path
}

/// The tree: weights of one to three; half of the pool guaranteed, by weight, in whole GPUs; a parent's guarantee is the
/// sum of its children's.
fn tree(leaves: u32, gpus: u32) -> World {
    let pool = Vessel { parent: None, guarantee: 0.0, weight: 1.0 };
    let (nodes, jobs, queues) = (Vec::new(), Vec::new(), Vec::new());
    let mut world = World { nodes, jobs, queues, vessels: vec![pool], leaves: Vec::new() };
    let weights: u32 = (0..leaves).map(weight).sum();
    for leaf in 0..leaves {
        let guarantee = (GUARANTEED * f64::from(gpus * weight(leaf)) / f64::from(weights)).floor();
        let mut parent = 0;
        for (level, path) in (0..).zip(path(leaf, leaves)) {
            let known = world.queues.iter().position(|queue| queue.path == path).map(|at| at + 1);
            let weight = if level == 2 { weight(leaf) } else { weight(leaf % tops(leaves) + level) };
            parent = known.unwrap_or_else(|| world.add(&path, parent, weight));
            world.vessels[parent].guarantee += guarantee;
        }
        world.leaves.push((world.queues[parent - 1].path.clone(), parent));
    }
    for (queue, vessel) in world.queues.iter_mut().zip(&world.vessels[1..]) {
        let amount = Amount::Finite(vessel.guarantee as i64 * 1000);
        queue.guarantee = Limits::from([(Resource::Any, amount)]);
    }
    world
}

fn weight(number: u32) -> u32 {
    number % 3 + 1
}

impl World {
    /// Adds a queue and its vessel; returns the vessel's index.
    fn add(&mut self, path: &str, parent: usize, weight: u32) -> usize {
        self.queues.push(Queue { weight, ..Queue::named(path) });
        self.vessels.push(Vessel { parent: Some(parent), guarantee: 0.0, weight: f64::from(weight) });
        self.vessels.len() - 1
    }

    /// The GPUs of the pool.
    pub(super) fn gpus(&self) -> u32 {
        self.nodes.iter().map(|node| node.gpus).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_has_three_levels_and_promises_no_more_than_half_of_the_pool() {
        for leaves in [5, 20, 50] {
            let world = world(leaves, 1);
            assert_eq!((world.leaves.len(), world.vessels.len()), (leaves as usize, world.queues.len() + 1));
            assert!(world.leaves.iter().all(|(path, _)| path.split('/').count() == 3));
            let top = |vessel: &&Vessel| vessel.parent == Some(0);
            let promised: f64 = world.vessels.iter().filter(top).map(|vessel| vessel.guarantee).sum();
            assert!(promised <= f64::from(world.gpus()) / 2.0 && promised > f64::from(world.gpus()) / 3.0);
            let known = |job: &TraceJob| world.leaves.iter().any(|(path, _)| *path == job.arrival.queue);
            assert!(world.jobs.iter().all(known));
            assert!(world.jobs.last().is_some_and(|job| job.arrival.submit_s > MONTH_S - 86_400));
        }
    }
}
