//! `divvy gpus`: what is there, who has it; taking GPUs and nodes out, and back in.

mod drain;

pub(crate) use drain::When;

use divvy_api::{Gpu, paths};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Column, Format, FormatFlag, Listing, Table, Tone, ago, gpus, memory_pair, say};
use crate::pool::{self, Place};

const EXAMPLES: &str = "\
Examples:
  divvy gpus                 every GPU and who has it
  divvy gpus -o wide         with UUIDs, PCI, NUMA, power
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
        // Said out loud, but not into what a program reads.
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
            Column::<Self>::new("NVLINKS", |gpu, _| gpu.nvlinks.len().to_string()).right().wide(),
            Column::<Self>::new("MEMORY", |gpu, _| memory_pair(gpu.memory_used_mib, gpu.memory_mib)).right(),
            Column::<Self>::new("UTIL", |gpu, _| {
                or_dash(gpu.utilization_percent.map(|percent| format!("{percent}%")))
            })
            .right(),
            Column::<Self>::new("TEMP", |gpu, _| {
                or_dash(gpu.temperature_c.map(|degrees| format!("{degrees}°C")))
            })
            .right(),
            Column::<Self>::new("POWER", |gpu, _| or_dash(gpu.power_w.map(|watts| format!("{watts}W"))))
                .right()
                .wide(),
            Column::<Self>::new("STATE", |gpu, _| gpu.state.to_string()).tone(|gpu| Tone::of_gpu(&gpu.state)),
            Column::<Self>::new("FREE", |gpu, _| gpus(gpu.free_milli.into())).right().wide(),
            Column::<Self>::new("FOR", |gpu, look| held_for(gpu, look.now_ms)).right(),
            Column::<Self>::new("WHO", |gpu, _| who(gpu)),
            Column::<Self>::new("SOURCE", |gpu, _| gpu.source.clone()).wide(),
        ]
    }
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

fn held_for(gpu: &Gpu, now_ms: i64) -> String {
    let since = gpu.allocations.iter().filter_map(|allocation| allocation.started_ms).min();
    since.map(|since| ago(since, now_ms)).unwrap_or_default()
}

/// Whose it is: jobs with their users, or why nobody can have it.
pub(crate) fn who(gpu: &Gpu) -> String {
    let one = |held: &divvy_api::GpuAllocation| {
        let task = if held.task > 0 { format!(" task {}", held.task) } else { String::new() };
        format!("{} {} ({}){task}", held.job, held.name, held.user)
    };
    let jobs = gpu.allocations.iter().map(one).collect::<Vec<_>>().join(", ");
    let parts = [Some(jobs).filter(|jobs| !jobs.is_empty()), gpu.reason.clone()];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}
