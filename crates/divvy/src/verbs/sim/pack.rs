//! `divvy sim pack`: tasks arrive until nothing fits. How much of the pool ends up allocated?

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use divvy_sim::pack::{self, PackError, Packed, Packing};
use divvy_sim::trace::openb;
use serde::Serialize;

use super::progress;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::number::whole;
use crate::output::{Format, FormatFlag, count, plain};

const EXAMPLES: &str = "\
Examples:
  divvy sim pack --nodes nodes.csv --pods pods_default.csv --order default_42.bin --policy fgd
  divvy sim pack --nodes nodes.csv --pods pods_default.csv --order default_42.bin --policy divvy -o json";

/// Let tasks arrive until nothing fits: how much of the pool ends up allocated?
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Pack {
    /// The nodes: sn,cpu_milli,memory_mib,gpu,model
    #[arg(long, value_name = "FILE")]
    nodes: PathBuf,
    /// The tasks: name,cpu_milli,memory_mib,num_gpu,gpu_milli and, if there is one, gpu_spec
    #[arg(long, value_name = "FILE")]
    pods: PathBuf,
    /// In which order tasks arrive and nodes stand: little-endian 16-bit numbers
    #[arg(long, value_name = "FILE")]
    order: PathBuf,
    /// How nodes are chosen: fgd, best-fit, dot-product, gpu-packing, gpu-clustering, random or divvy
    #[arg(long, value_name = "POLICY", value_parser = known)]
    policy: String,
    /// What a random choice follows from
    #[arg(long, value_name = "N", default_value_t = 42, value_parser = whole::<u64>(..))]
    seed: u64,
    #[command(flatten)]
    format: FormatFlag,
}

/// The report for programs.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    packed: &'a Packed,
    wall_s: f64,
}

impl Pack {
    pub(crate) fn run(&self) -> Result<Exit, Failure> {
        let packing =
            Packing::named(&self.policy, self.seed).map_err(|error| Failure::usage(error.to_string()))?;
        let workload = openb::workload(&self.nodes, &self.pods, &self.order)?;
        let bar = progress::bar(workload.arrivals.len() as u64, "tasks");
        let start = Instant::now();
        let packed = pack::run(&workload, packing, |arrived| {
            // A terminal shows no more, and the bar's clock costs as much as a task.
            if arrived % 256 == 0 {
                bar.set_position(arrived as u64);
            }
        });
        bar.finish_and_clear();
        let (packed, wall_s) = (packed.map_err(|error| failed(&error))?, start.elapsed().as_secs_f64());
        let text = match self.format.output {
            Format::Json => serde_json::to_string(&Report { packed: &packed, wall_s })? + "\n",
            Format::Csv => csv(&packed),
            Format::Table | Format::Wide => table(&packed, wall_s),
        };
        std::io::stdout().lock().write_all(text.as_bytes())?;
        Ok(Exit::Success)
    }
}

fn known(name: &str) -> Result<String, String> {
    Packing::named(name, 0).map(|_| name.to_owned()).map_err(|error| error.to_string())
}

fn failed(error: &PackError) -> Failure {
    let exit = match error {
        PackError::NoGpu | PackError::Refused { .. } => Exit::BadData,
        PackError::Broken { .. } | PackError::Pool(_) => Exit::Internal,
    };
    Failure::new(exit, error.to_string())
}

/// A row per percent of the capacity that has arrived.
fn csv(packed: &Packed) -> String {
    let mut text =
        "arrived_percent,allocated_percent,frag_of_idle,frag_of_capacity,policy,knowledge\n".to_owned();
    let cell = |values: &[Option<f64>], bin: usize| {
        values.get(bin).copied().flatten().map(|value| value.to_string()).unwrap_or_default()
    };
    for (bin, percent) in packed.arrived_percent.iter().enumerate() {
        let cells = [&packed.allocated_percent, &packed.frag_of_idle, &packed.frag_of_capacity];
        let cells = cells.map(|values| cell(values, bin)).join(",");
        // Both names are single words.
        let _ = writeln!(text, "{percent},{cells},{},{}", packed.policy, packed.knowledge);
    }
    text
}

/// The percentages that people are shown.
const SHOWN: [usize; 7] = [50, 80, 90, 100, 110, 120, 130];

fn table(packed: &Packed, wall_s: f64) -> String {
    let mut text = format!(
        "{} ({}): {} of {} placed in {wall_s:.2} s, digest {}\n",
        plain(&packed.policy),
        packed.knowledge,
        packed.placed,
        count(packed.arrived, "task"),
        packed.digest
    );
    if packed.never_fit > 0 {
        let _ = writeln!(
            text,
            "  {} for which no node has room even when it is idle",
            count(packed.never_fit, "task")
        );
    }
    let classes = &packed.placed_by_class;
    let _ = writeln!(
        text,
        "  by GPUs: none {}, share {}, 1: {}, 2: {}, 4: {}, 8: {}\n",
        classes.none, classes.share, classes.one, classes.two, classes.four, classes.eight
    );
    text.push_str("ARRIVED  ALLOCATED  FRAGMENTED OF IDLE  OF CAPACITY\n");
    for bin in SHOWN {
        let cell = |values: &[Option<f64>]| {
            values.get(bin).copied().flatten().map_or("-".into(), |value| format!("{value:.2} %"))
        };
        let cells =
            [&packed.allocated_percent, &packed.frag_of_idle, &packed.frag_of_capacity].map(|all| cell(all));
        let _ =
            writeln!(text, "{:>7}  {:>9}  {:>18}  {:>11}", format!("{bin} %"), cells[0], cells[1], cells[2]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_of_a_csv_says_which_policy_it_is_of_and_what_that_knew() {
        let packed = Packed {
            policy: "fgd".into(),
            knowledge: "oracle".into(),
            arrived: 1,
            placed: 1,
            never_fit: 0,
            placed_by_class: Default::default(),
            digest: String::new(),
            arrived_percent: vec![0],
            allocated_percent: vec![Some(1.5)],
            frag_of_idle: vec![None],
            frag_of_capacity: vec![None],
        };
        let header = "arrived_percent,allocated_percent,frag_of_idle,frag_of_capacity,policy,knowledge";
        assert_eq!(csv(&packed), format!("{header}\n0,1.5,,,fgd,oracle\n"));
    }
}
