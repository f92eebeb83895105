//! `divvy sim generate`: a made-up pool with a made-up workload.

use std::path::{Path, PathBuf};

use divvy_sim::generate::{NodeGroup, Recipe, cluster, jobs};
use divvy_sim::trace;

use super::files::write_to;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::number::whole;
use crate::output::{count, say};

const EXAMPLES: &str = "\
Examples:
  divvy sim generate --out small                        8 nodes of 8 GPUs, 1,000 jobs
  divvy sim generate --nodes 64xh100:8 --nodes 32xa100:8 --jobs 50000 --teams 6 --users 120 --seed 7 --out large
  divvy sim replay --cluster small/cluster.csv --trace small/jobs.csv --policy divvy";

/// Make up a pool and a workload from a seed
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Generate {
    /// Nodes: 8x8 are eight of eight GPUs, 2xh100:8 two with a model; may be repeated
    #[arg(long, value_name = "NODES", default_value = "8x8")]
    nodes: Vec<NodeGroup>,
    /// How many jobs
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = whole::<u64>(1..))]
    jobs: u64,
    /// What tells one workload from another of the same kind
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>(..))]
    seed: u64,
    /// The work that arrives in the mean over seeds, in percent of what the GPUs can do
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = whole::<u32>(1..=1000))]
    load: u32,
    /// Teams that share the pool: each is a queue and owns a part of the nodes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u32>(1..=10_000))]
    teams: u32,
    /// Users over all teams
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = whole::<u32>(1..=100_000))]
    users: u32,
    /// The folder for cluster.csv and jobs.csv
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Write over the files that are there
    #[arg(long)]
    force: bool,
}

impl Generate {
    pub(crate) fn run(&self) -> Result<Exit, Failure> {
        let recipe = Recipe {
            nodes: self.nodes.clone(),
            jobs: self.jobs,
            seed: self.seed,
            load_percent: self.load,
            teams: self.teams,
            users: self.users,
        };
        let nodes: u64 = self.nodes.iter().map(|group| u64::from(group.count)).sum();
        if u64::from(self.teams) > nodes {
            let what = format!("{} teams cannot each own a node of {nodes}", self.teams);
            return Err(Failure::usage(what).fix("ask for more --nodes, or for fewer --teams"));
        }
        std::fs::create_dir_all(&self.out).map_err(|error| Failure::making(&self.out, &error))?;
        let [nodes_to, jobs_to] = ["cluster.csv", "jobs.csv"].map(|name| self.out.join(name));
        if let Some(there) =
            [&nodes_to, &jobs_to].into_iter().find(|path| path.exists()).filter(|_| !self.force)
        {
            let what = format!("{} is there already, and would be written over", there.display());
            return Err(Failure::usage(what).fix("name another folder with --out, or say --force"));
        }
        let nodes = cluster(&recipe);
        write(&nodes_to, |to| trace::cluster::write(&nodes, to))?;
        write(&jobs_to, |to| trace::jobs::write(jobs(&recipe), to))?;
        say(&format!(
            "{} in {}, {} in {}",
            count(nodes.len(), "node"),
            nodes_to.display(),
            count(self.jobs, "job"),
            jobs_to.display()
        ));
        Ok(Exit::Success)
    }
}

fn write<E: Into<Failure>>(
    path: &Path,
    write: impl FnOnce(&mut dyn std::io::Write) -> Result<(), E>,
) -> Result<(), Failure> {
    write_to(Some(path), |to| write(to).map_err(Into::into))
}
