//! `cargo xtask bench chaos`: how many events of lives with faults one core checks in a second of processor time.

use std::path::Path;

use anyhow::Result;
use clap::Args;
use divvy_sim::chaos;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::report::aligned;
use super::{Output, machine};

/// What to measure.
#[derive(Args)]
pub(super) struct Chaos {
    /// How many lives, from seed 0 on
    #[arg(long, default_value_t = 64, value_name = "N")]
    lives: u64,
    /// About how many events each has
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    events: u64,
    /// Prints a table, or JSON
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

/// What was measured.
#[derive(Serialize)]
struct Figures {
    machine: machine::Machine,
    lives: u64,
    /// How many end early because they break a law.
    broken: u64,
    events: u64,
    cpu_s: f64,
    events_per_s: f64,
    /// Of the slowest life.
    least_events_per_s: f64,
}

pub(super) fn run(asked: &Chaos, target: &Path) -> Result<()> {
    let machine = machine::describe(target)?;
    let (mut events, mut broken, mut cpu_s, mut least) = (0, 0, 0.0, f64::INFINITY);
    for seed in 0..asked.lives.max(1) {
        let begun = processor_s();
        let lived = chaos::live(&chaos::life(seed, asked.events));
        let took_s = processor_s() - begun;
        broken += u64::from(lived.violation.is_some());
        events += lived.events;
        cpu_s += took_s;
        least = least.min(lived.events as f64 / took_s);
    }
    let figures = Figures {
        machine,
        lives: asked.lives.max(1),
        broken,
        events,
        cpu_s,
        events_per_s: events as f64 / cpu_s,
        least_events_per_s: least,
    };
    match asked.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&figures)?),
        Output::Table => print!("{}", figures.text()),
    }
    Ok(())
}

/// The processor time of this thread: a life is lived on one.
fn processor_s() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

impl Figures {
    fn text(&self) -> String {
        let head =
            ["lives", "break a law", "events", "CPU s", "events/s", "of the slowest life"].map(str::to_owned);
        let row = vec![
            self.lives.to_string(),
            self.broken.to_string(),
            self.events.to_string(),
            format!("{:.1}", self.cpu_s),
            format!("{:.0}", self.events_per_s),
            format!("{:.0}", self.least_events_per_s),
        ];
        format!("{}\n\n{}", self.machine, aligned(vec![head.to_vec(), row]))
    }
}
