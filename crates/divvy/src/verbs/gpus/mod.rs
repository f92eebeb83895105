//! `divvy gpus`: what is there, who has it; taking GPUs and nodes out, and back in.

mod drain;

pub(crate) use drain::When;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use divvy_api::{Gpu, GpuLink, paths};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Column, Format, FormatFlag, Listing, Table, Tone, ago, gpus, memory_pair, say, told};
use crate::pool::{self, Place};

const EXAMPLES: &str = "\
Examples:
  divvy gpus                 every GPU and who has it
  divvy gpus -o wide         with UUIDs, PCI, NUMA, links to others, power
  divvy gpus -o json         for programs
  divvy gpus drain 3         GPU 3 takes no new jobs; who has it runs on
  divvy gpus undrain 3       it takes jobs again";

/// List GPUs and who has them; take some out for maintenance
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Gpus {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    format: FormatFlag,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Drain(drain::Drain),
    Undrain(drain::Undrain),
}

impl Gpus {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        match &self.verb {
            Some(Verb::Drain(drain)) => return drain.run(place),
            Some(Verb::Undrain(undrain)) => return undrain.run(place),
            None => {}
        }
        let rows = pool::with_client(place, async |mut client| pool::rows(&mut client, paths::GPUS).await)?;
        let format = self.format.output;
        // People are told; the output for programs does not change.
        let pretended = rows.iter().any(|row| row.get().contains("\"source\":\"pretend\""));
        Table { rows }.print::<Gpu>(format)?;
        if pretended && matches!(format, Format::Table | Format::Wide) {
            say("these GPUs are pretended: jobs get their UUIDs, but there is no such hardware");
        }
        Ok(Exit::Success)
    }
}

impl Listing for Gpu {
    const PATHS: &'static [&'static str] = &[
        "node",
        "index",
        "uuid",
        "model",
        "memory_mib",
        "memory_used_mib",
        "utilization_percent",
        "temperature_c",
        "power_w",
        "state",
        "free_milli",
        "allocations",
        "source",
    ];
    const EMPTY: &'static str = "the pool has no GPUs; jobs of cores alone can run";

    fn columns() -> Vec<Column<Self>> {
        vec![
            Column::<Self>::new("NODE", |gpu, _| gpu.node.clone()),
            Column::<Self>::new("GPU", |gpu, _| gpu.index.to_string()).right(),
            Column::<Self>::new("MODEL", |gpu, _| gpu.model.clone()),
            Column::<Self>::new("UUID", |gpu, _| gpu.uuid.clone()).wide(),
            Column::<Self>::new("PCI", |gpu, _| or_dash(gpu.pci_bus_id.clone())).wide(),
            Column::<Self>::new("NUMA", |gpu, _| or_dash(gpu.numa_node)).right().wide(),
            Column::<Self>::new("CC", |gpu, _| or_dash(gpu.compute_capability.clone())).wide(),
            Column::<Self>::new("MIG", |gpu, _| or_dash(gpu.mig_mode.clone())).wide(),
            Column::<Self>::new("BANDWIDTH", |gpu, _| {
                or_dash(gpu.memory_bandwidth_gb_s.map(|gb_s| format!("{gb_s}GB/s")))
            })
            .right()
            .wide(),
            Column::<Self>::new("NVLINKS", |gpu, _| joined(&gpu.nvlinks)).wide(),
            Column::<Self>::new("MEMORY", |gpu, _| memory_pair(gpu.memory_used_mib, gpu.memory_mib)).right(),
            Column::<Self>::new("UTIL", |gpu, _| {
                or_dash(gpu.utilization_percent.map(|percent| format!("{percent}%")))
            })
            .right()
            .spare(),
            Column::<Self>::new("TEMP", |gpu, _| {
                or_dash(gpu.temperature_c.map(|degrees| format!("{degrees}°C")))
            })
            .right()
            .spare(),
            Column::<Self>::new("POWER", |gpu, _| or_dash(gpu.power_w.map(|watts| format!("{watts}W"))))
                .right()
                .wide(),
            Column::<Self>::new("STATE", |gpu, _| gpu.state.to_string()).tone(|gpu| Tone::of_gpu(&gpu.state)),
            Column::<Self>::new("FREE", |gpu, _| gpus(gpu.free_milli.into())).right().wide(),
            Column::<Self>::new("FOR", |gpu, look| held_for(gpu, look.now_ms)).right().spare(),
            Column::<Self>::new("WHO", |gpu, _| who(gpu)),
            Column::<Self>::new("SOURCE", |gpu, _| gpu.source.clone()).wide(),
        ]
    }
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

/// The GPUs of the node that fast links connect to this one, most lanes first: `1-7×18`, `3,4×2 1,2×1`.
fn joined(links: &[GpuLink]) -> String {
    let mut by_lanes: BTreeMap<Reverse<u32>, Vec<u32>> = BTreeMap::new();
    for link in links {
        by_lanes.entry(Reverse(link.lanes)).or_default().extend(link.index);
    }
    let text = |(lanes, mut others): (Reverse<u32>, Vec<u32>)| {
        others.sort_unstable();
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for other in others {
            match runs.last_mut().filter(|(_, last)| *last + 1 == other) {
                Some((_, last)) => *last = other,
                None => runs.push((other, other)),
            }
        }
        let run = |(first, last): &(u32, u32)| match last - first {
            0 => first.to_string(),
            1 => format!("{first},{last}"),
            _ => format!("{first}-{last}"),
        };
        format!("{}×{}", runs.iter().map(run).collect::<Vec<_>>().join(","), lanes.0)
    };
    or_dash(
        Some(by_lanes.into_iter().map(text).collect::<Vec<_>>().join(" ")).filter(|text| !text.is_empty()),
    )
}

fn held_for(gpu: &Gpu, now_ms: i64) -> String {
    let since = gpu.allocations.iter().filter_map(|allocation| allocation.started_ms).min();
    since.map(|since| ago(since, now_ms)).unwrap_or_default()
}

/// Who has it: jobs with their users, or why nobody can have it.
pub(crate) fn who(gpu: &Gpu) -> String {
    let one = |held: &divvy_api::GpuAllocation| {
        let task = if held.task > 0 { format!(" task {}", held.task) } else { String::new() };
        format!("{} {} ({}){task}", held.job, held.name, held.user)
    };
    let jobs = gpu.allocations.iter().map(one).collect::<Vec<_>>().join(", ");
    let parts = [Some(jobs).filter(|jobs| !jobs.is_empty()), gpu.reason.as_deref().map(told)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_told_by_the_others_numbers_those_with_most_lanes_first() {
        let told = |links: &[(u32, u32)]| {
            let link = |(index, lanes): &(u32, u32)| GpuLink {
                lanes: *lanes,
                index: Some(*index),
                ..GpuLink::default()
            };
            joined(&links.iter().map(link).collect::<Vec<_>>())
        };
        assert_eq!(told(&[(1, 1), (2, 1), (3, 2), (4, 2)]), "3,4×2 1,2×1");
        assert_eq!(told(&[(0, 18), (1, 18), (2, 18), (4, 18)]), "0-2,4×18");
        assert_eq!((told(&[]), told(&[(1, 4)])), ("-".into(), "1×4".into()));
    }
}
