//! Pools and workloads from a seed: the same recipe gives the same bytes, on any machine.
//!
//! The shape follows what studies of GPU clusters report (Philly, ATC '19; Helios, SC '21): few users submit most jobs,
//! most jobs ask for one GPU and few for very many, durations spread over orders of magnitude, people run the same
//! thing again and again, submit sweeps, and sleep at night.

use std::str::FromStr;

use crate::dice::Dice;
use crate::trace::cluster::ClusterNode;
use crate::trace::jobs::{Arrival, Fate, TraceJob};
use crate::trace::{LAST_SECOND, MOST_GPUS, MOST_GPUS_OF_NODE};

/// What to make.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Nodes in groups of equals.
    pub nodes: Vec<NodeGroup>,
    /// How many jobs.
    pub jobs: u64,
    /// What tells one workload from another of the same recipe.
    pub seed: u64,
    /// The work that arrives in the mean over seeds, in percent of what all GPUs can do in that time.
    pub load_percent: u32,
    /// How many teams share the pool. Each is a queue and owns its part of the nodes.
    pub teams: u32,
    /// How many users there are over all teams.
    pub users: u32,
}

impl Default for Recipe {
    fn default() -> Self {
        let node = NodeGroup { count: 8, model: "generic".into(), gpus: 8 };
        Self { nodes: vec![node], jobs: 1000, seed: 0, load_percent: 80, teams: 1, users: 20 }
    }
}

/// A number of nodes, each with so many GPUs of one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeGroup {
    /// How many nodes.
    pub count: u32,
    /// The model of their GPUs.
    pub model: String,
    /// GPUs of each node.
    pub gpus: u32,
}

/// A text that is no [`NodeGroup`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} names no nodes: write 8x8 (eight nodes of eight GPUs) or 2xh100:8; at most 1,000,000 nodes of 1,024 GPUs"
)]
pub struct NotNodes(String);

impl FromStr for NodeGroup {
    type Err = NotNodes;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || NotNodes(text.chars().take(40).collect());
        let (count, node) = text.trim().split_once('x').ok_or_else(wrong)?;
        let (model, gpus) = node.rsplit_once(':').unwrap_or(("generic", node));
        let number = |text: &str, most: u32| text.parse().ok().filter(|number| (1..=most).contains(number));
        let (count, gpus) =
            number(count, 1_000_000).zip(number(gpus, MOST_GPUS_OF_NODE)).ok_or_else(wrong)?;
        let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let model = Some(model).filter(|model| !model.is_empty() && model.chars().all(word));
        Ok(Self { count, model: model.ok_or_else(wrong)?.to_owned(), gpus })
    }
}

/// Cores and memory of a node for each of its GPUs: the usual proportion of machines with eight.
const CPU_MILLI_PER_GPU: i64 = 12_000;
const MEMORY_MIB_PER_GPU: i64 = 65_536;

/// Returns the nodes of a recipe. Teams own them in order, in equal numbers, give or take one.
pub fn cluster(recipe: &Recipe) -> Vec<ClusterNode> {
    let total: u64 = recipe.nodes.iter().map(|group| u64::from(group.count)).sum();
    let all = recipe.nodes.iter().flat_map(|group| (0..group.count).map(move |_| group));
    let node = |(at, group): (usize, &NodeGroup)| ClusterNode {
        node: format!("node-{at:05}"),
        model: group.model.clone(),
        gpus: group.gpus,
        cpu_milli: i64::from(group.gpus) * CPU_MILLI_PER_GPU,
        memory_mib: i64::from(group.gpus) * MEMORY_MIB_PER_GPU,
        pool: team_name((at as u64 * u64::from(recipe.teams.max(1)) / total) as u32),
    };
    all.enumerate().map(node).collect()
}

fn team_name(team: u32) -> String {
    format!("team-{}", team + 1)
}

/// Returns the jobs of a recipe, sorted by submission; endless recipes cost no memory.
pub fn jobs(recipe: &Recipe) -> impl Iterator<Item = TraceJob> + use<> {
    Workload::new(recipe).take(usize::try_from(recipe.jobs).unwrap_or(usize::MAX))
}

/// Something that a user runs again and again.
struct Application {
    user: String,
    queue: String,
    name: String,
    gpus: u32,
    /// The median of its durations.
    median_s: f64,
}

/// The median over applications of their medians, and how widely both spread (as sigma of the logarithm).
const MEDIAN_S: f64 = 1800.0;
const SPREAD_OF_APPLICATIONS: f64 = 1.5;
const SPREAD_OF_RUNS: f64 = 0.5;

/// One run in seven ends within a minute: a wrong path, too little memory.
const FAILED_EARLY: f64 = 0.15;
const EARLY_S: f64 = 60.0;

/// One submission in ten is a sweep of 2 to 16 runs.
const SWEEPS: f64 = 0.1;
const MOST_OF_SWEEP: u64 = 16;
const MEAN_OF_SUBMISSION: f64 = 1.0 + SWEEPS * (1.0 + MOST_OF_SWEEP as f64) / 2.0;

/// By how much submissions rise in the afternoon and fall at night.
const SWING: f64 = 0.6;
const DAY_S: f64 = 86_400.0;

/// No run is longer than this: clusters have limits.
const LONGEST_S: f64 = 30.0 * DAY_S;

/// The most applications that a user has.
const MOST_APPLICATIONS: u64 = 8;

/// The GPUs that an application asks for, and how many applications in a hundred do.
const SIZES: [(u32, u32); 7] = [(1, 50), (2, 12), (4, 12), (8, 16), (16, 6), (32, 3), (64, 1)];

/// An endless stream of jobs.
struct Workload {
    draws: Draws,
    applications: Vec<Application>,
    /// Running sums of the applications' weights: few users submit most jobs, mostly of few applications.
    weights: Vec<f64>,
    /// Mean submissions per second; a sweep is one.
    submissions_per_s: f64,
    now_s: f64,
    /// The runs of the sweep that are still to be submitted, and their application.
    sweep: (u64, usize),
    count: u64,
}

impl Workload {
    fn new(recipe: &Recipe) -> Self {
        let mut draws = Draws(Dice::new(recipe.seed));
        let nodes = cluster(recipe);
        let (applications, weights) = applications(recipe, &nodes, &mut draws);
        let gpus: f64 = nodes.iter().map(|node| f64::from(node.gpus)).sum();
        let work = mean_gpu_s(&applications, &weights) * MEAN_OF_SUBMISSION;
        let load = f64::from(recipe.load_percent.max(1)) / 100.0;
        let submissions_per_s = gpus * load / work;
        let span_s = recipe.jobs as f64 / MEAN_OF_SUBMISSION / submissions_per_s;
        let submissions_per_s = submissions_per_s / mean_of_swing(span_s);
        Self { draws, applications, weights, submissions_per_s, now_s: 0.0, sweep: (0, 0), count: 0 }
    }

    /// Moves on to the next submission: a Poisson process whose rate swings with the day, made by thinning one at
    /// the highest rate.
    fn wait(&mut self) {
        let most_per_s = self.submissions_per_s * (1.0 + SWING);
        loop {
            self.now_s += -libm::log(1.0 - self.draws.unit()) / most_per_s;
            let phase = self.now_s / DAY_S * std::f64::consts::TAU;
            let rate = self.submissions_per_s * (1.0 - SWING * libm::cos(phase));
            if self.draws.unit() * most_per_s <= rate || self.now_s >= LAST_SECOND as f64 {
                return;
            }
        }
    }

    fn duration_s(&mut self, median_s: f64) -> (i64, &'static str) {
        if self.draws.unit() < FAILED_EARLY {
            return (1 + self.draws.below(EARLY_S as u64) as i64, "failed");
        }
        let seconds = median_s * libm::exp(SPREAD_OF_RUNS * self.draws.normal());
        (seconds.clamp(1.0, LONGEST_S) as i64, "completed")
    }
}

impl Iterator for Workload {
    type Item = TraceJob;

    fn next(&mut self) -> Option<TraceJob> {
        if self.sweep.0 == 0 {
            self.wait();
            let application = self.draws.weighted(&self.weights);
            let runs = if self.draws.unit() < SWEEPS { 2 + self.draws.below(MOST_OF_SWEEP - 1) } else { 1 };
            self.sweep = (runs, application);
        }
        self.sweep.0 -= 1;
        self.count += 1;
        if self.now_s >= LAST_SECOND as f64 {
            return None;
        }
        let application = self.sweep.1;
        let (duration_s, status) = self.duration_s(self.applications[application].median_s);
        let Application { user, queue, name, gpus, .. } = &self.applications[application];
        let arrival = Arrival {
            id: format!("j{:07}", self.count),
            submit_s: self.now_s as i64,
            gpus: *gpus,
            queue: queue.clone(),
            user: user.clone(),
            name: name.clone(),
        };
        Some(TraceJob { arrival, fate: Fate::new(duration_s, status.into()) })
    }
}

/// The part of a day's mean submissions that a trace of this length sees: it begins when fewest are made. A trace of a day or
/// more sees nearly all of them.
fn mean_of_swing(span_s: f64) -> f64 {
    let turn = span_s / DAY_S * std::f64::consts::TAU;
    if turn > 0.0 && span_s < DAY_S { 1.0 - SWING * libm::sin(turn) / turn } else { 1.0 }
}

/// The applications of all users, with the running sums of their weights.
fn applications(recipe: &Recipe, nodes: &[ClusterNode], draws: &mut Draws) -> (Vec<Application>, Vec<f64>) {
    let teams = recipe.teams.max(1);
    let sizes: Vec<_> = (0..teams).map(|team| sizes(nodes, &team_name(team))).collect();
    let (mut applications, mut weights, mut sum) = (Vec::new(), Vec::new(), 0.0);
    for user in 0..recipe.users.max(teams) {
        let team = user % teams;
        for application in 0..1 + draws.below(MOST_APPLICATIONS) {
            // Zipf's law over the users of a team, and over what each of them runs.
            sum += 1.0 / (f64::from(1 + user / teams) * (1 + application) as f64);
            weights.push(sum);
            applications.push(Application {
                user: format!("user-{}", user + 1),
                queue: team_name(team),
                name: format!("app-{}", application + 1),
                gpus: draws.size(&sizes[team as usize]),
                median_s: MEDIAN_S * libm::exp(SPREAD_OF_APPLICATIONS * draws.normal()),
            });
        }
    }
    (applications, weights)
}

/// The sizes that fit the nodes of a team (of the pool, if it owns none): on one node, or on whole nodes of eight.
fn sizes(nodes: &[ClusterNode], team: &str) -> Vec<(u32, u32)> {
    let own: Vec<_> = nodes.iter().filter(|node| node.pool == team).collect();
    let nodes = if own.is_empty() { nodes.iter().collect() } else { own };
    let largest = nodes.iter().map(|node| node.gpus).max().unwrap_or(1);
    let eights = nodes.iter().filter(|node| node.gpus == 8).count();
    let fits = |gpus: u32| gpus <= largest.min(8) || (gpus > 8 && (gpus / 8) as usize <= eights);
    let sizes: Vec<_> = SIZES.into_iter().filter(|(gpus, _)| *gpus <= MOST_GPUS && fits(*gpus)).collect();
    if sizes.is_empty() { vec![(1, 1)] } else { sizes }
}

/// The mean work of a job, in GPU seconds.
fn mean_gpu_s(applications: &[Application], weights: &[f64]) -> f64 {
    let mean_of_runs = libm::exp(SPREAD_OF_RUNS * SPREAD_OF_RUNS / 2.0);
    let (mut sum, mut before) = (0.0, 0.0);
    for (application, weight) in applications.iter().zip(weights) {
        let mean_s = (application.median_s * mean_of_runs).min(LONGEST_S);
        let mean_s = FAILED_EARLY * EARLY_S / 2.0 + (1.0 - FAILED_EARLY) * mean_s;
        sum += (weight - before) * mean_s * f64::from(application.gpus);
        before = *weight;
    }
    sum / before
}

/// Draws from distributions. Logarithms are libm's, so that they are the same on every machine.
struct Draws(Dice);

impl Draws {
    /// A number from 0 up to, but not including, 1.
    fn unit(&mut self) -> f64 {
        (self.0.any() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number from 0 up to, but not including, a bound.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.0.any()) * u128::from(bound)) >> 64) as u64
    }

    /// A normally distributed number, with mean 0 and deviation 1 (Box and Muller).
    fn normal(&mut self) -> f64 {
        let (radius, angle) = (1.0 - self.unit(), self.unit());
        libm::sqrt(-2.0 * libm::log(radius)) * libm::cos(std::f64::consts::TAU * angle)
    }

    /// A random index into running sums of weights.
    fn weighted(&mut self, sums: &[f64]) -> usize {
        let at = self.unit() * sums.last().copied().unwrap_or_default();
        sums.partition_point(|sum| *sum <= at).min(sums.len().saturating_sub(1))
    }

    fn size(&mut self, sizes: &[(u32, u32)]) -> u32 {
        let total: u32 = sizes.iter().map(|(_, parts)| parts).sum();
        let mut at = self.below(total.into()) as u32;
        for (gpus, parts) in sizes {
            if at < *parts {
                return *gpus;
            }
            at -= parts;
        }
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use siphasher::sip::SipHasher13;
    use std::hash::Hasher;

    fn bytes(recipe: &Recipe) -> Vec<u8> {
        let mut text = Vec::new();
        crate::trace::cluster::write(&cluster(recipe), &mut text).unwrap();
        let jobs: Vec<_> = jobs(recipe).collect();
        crate::trace::jobs::write(&jobs, &mut text).unwrap();
        text
    }

    #[test]
    fn one_seed_gives_one_workload_everywhere() {
        let recipe = Recipe { seed: 7, teams: 3, ..Recipe::default() };
        let mut hasher = SipHasher13::new();
        hasher.write(&bytes(&recipe));
        assert_eq!(
            hasher.finish(),
            11_666_003_893_422_314_656,
            "who changes the generator changes all that was made with it: say so"
        );
        assert_ne!(bytes(&recipe), bytes(&Recipe { seed: 8, ..recipe.clone() }));
    }

    #[test]
    fn the_load_is_about_what_was_asked_for() {
        let recipe = Recipe { jobs: 40_000, users: 200, ..Recipe::default() };
        let (mut work, mut last_s) = (0, 0);
        for job in jobs(&recipe) {
            work += job.fate.duration_s() * i64::from(job.arrival.gpus);
            last_s = job.arrival.submit_s;
        }
        let load = work as f64 / (64.0 * last_s as f64);
        assert!((0.72..0.88).contains(&load), "{load}");
    }

    #[test]
    fn the_load_of_a_trace_of_some_hours_is_about_what_was_asked_for_too() {
        let nodes = vec!["10000x8".parse().unwrap()];
        let (mut work, mut room) = (0, 0);
        for seed in 0..8 {
            let recipe = Recipe { nodes: nodes.clone(), jobs: 2000, users: 200, seed, ..Recipe::default() };
            let (mut last_s, mut own) = (0, 0);
            for job in jobs(&recipe) {
                own += job.fate.duration_s() * i64::from(job.arrival.gpus);
                last_s = job.arrival.submit_s;
            }
            (work, room) = (work + own, room + 80_000 * last_s);
        }
        let load = work as f64 / room as f64;
        assert!((0.64..0.96).contains(&load), "{load}");
    }

    #[test]
    fn teams_own_the_nodes_in_order_and_no_job_is_larger_than_its_teams_nodes() {
        let recipe = Recipe { teams: 3, jobs: 3000, ..Recipe::default() };
        let nodes = cluster(&recipe);
        let pools: Vec<_> = nodes.iter().map(|node| node.pool.as_str()).collect();
        assert_eq!(pools.join(" "), "team-1 team-1 team-1 team-2 team-2 team-2 team-3 team-3");
        for job in jobs(&recipe) {
            let own = nodes.iter().filter(|node| node.pool == job.arrival.queue).map(|node| node.gpus);
            assert!(job.arrival.gpus <= own.sum(), "{job:?}");
        }
        let one = Recipe { nodes: vec!["1x4".parse().unwrap()], jobs: 500, ..Recipe::default() };
        assert!(jobs(&one).all(|job| job.arrival.gpus <= 4));
    }

    #[test]
    fn ten_thousand_nodes_of_eight_are_made() {
        let recipe = Recipe { nodes: vec!["10000xh100:8".parse().unwrap()], teams: 50, ..Recipe::default() };
        assert_eq!(cluster(&recipe).iter().map(|node| node.gpus).sum::<u32>(), 80_000);
        assert_eq!(jobs(&recipe).count(), 1000);
    }

    #[test]
    fn nodes_are_named_by_count_model_and_gpus() {
        let group = |count, model: &str, gpus| NodeGroup { count, model: model.into(), gpus };
        assert_eq!("8x4".parse(), Ok(group(8, "generic", 4)));
        assert_eq!("2xh100:8".parse(), Ok(group(2, "h100", 8)));
        for text in ["", "8", "x", "0x8", "8x0", "-1x8", "8x:8", "8xa b:8", "99999999x8"] {
            assert!(text.parse::<NodeGroup>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn no_text_makes_the_parser_of_nodes_panic(text in ".*") {
            let _ = text.parse::<NodeGroup>();
        }

        #[test]
        fn what_is_made_can_be_read(
            seed in any::<u64>(), count in 1u32..40, gpus in 1u32..17, teams in 0u32..60, users in 0u32..30,
            load_percent in 0u32..300,
        ) {
            let nodes = vec![NodeGroup { count, model: "m".into(), gpus }];
            let recipe = Recipe { nodes, jobs: 50, seed, load_percent, teams, users };
            let made: Vec<_> = jobs(&recipe).collect();
            prop_assert_eq!(made.len(), 50);
            prop_assert!(made.is_sorted_by_key(|job| job.arrival.submit_s));
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("jobs.csv");
            crate::trace::jobs::write(&made, std::fs::File::create(&path).unwrap()).unwrap();
            let read: Vec<_> = crate::trace::jobs::read(&path).unwrap().map(Result::unwrap).collect();
            prop_assert_eq!(read, made);
        }
    }
}
