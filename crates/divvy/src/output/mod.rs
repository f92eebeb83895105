//! Output for people and programs: tables, JSON and CSV; escaped, coloured only on a terminal, with times in the local zone.

mod amount;
mod csv;
mod json;
mod table;
mod text;
mod time;

use std::io::{self, IsTerminal};

use clap::ValueEnum;
use divvy_api::{GpuState, JobState};

pub(crate) use amount::{bytes, cores, count, gpus, memory_pair, mib};
pub(crate) use csv::write_csv;
pub(crate) use json::{write_json, write_json_array};
pub(crate) use table::{Column, Listing, Look, Table, render};
pub(crate) use text::plain;
pub(crate) use time::{ago, foreseen, local, near, now_ms, span, told};

/// How a listing is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// For people with wide screens: all columns.
    Wide,
    /// One array of objects.
    Json,
    /// With a line of names on top.
    Csv,
}

/// The formats in which something can be written.
pub(crate) trait Written: ValueEnum + Default + Send + Sync + 'static {
    /// The names of the formats, as the help lists them.
    const NAMES: &'static str;
    /// The name of the default format.
    const USUAL: &'static str;
}

impl Written for Format {
    const NAMES: &'static str = "table, wide, json or csv";
    const USUAL: &'static str = "table";
}

/// `-o`, wherever there is one.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct FormatFlag<F: Written = Format> {
    #[arg(
        short = 'o',
        long = "output",
        value_name = "FORMAT",
        value_enum,
        default_value = F::USUAL,
        help = F::NAMES,
        hide_possible_values = true
    )]
    pub(crate) output: F,
}

/// A colour that shows a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// As it should be.
    Good,
    /// Waits, or is about to change.
    Pending,
    /// Went wrong.
    Bad,
    /// Of little interest.
    Faint,
    /// Nothing to say.
    Plain,
}

impl Tone {
    /// Returns the tone for a job in this state.
    pub(crate) fn of_job(state: &JobState) -> Self {
        match state {
            JobState::Running | JobState::Completed => Self::Good,
            JobState::Pending | JobState::Starting | JobState::Stopping | JobState::Resuming => Self::Pending,
            JobState::Failed | JobState::Timeout | JobState::Lost => Self::Bad,
            JobState::Held | JobState::Cancelled | JobState::Paused | JobState::Pausing => Self::Faint,
            JobState::Other(_) => Self::Plain,
        }
    }

    /// Returns the tone for a device in this state.
    pub(crate) fn of_gpu(state: &GpuState) -> Self {
        match state {
            GpuState::Free => Self::Faint,
            GpuState::Allocated | GpuState::Shared => Self::Good,
            GpuState::Promised | GpuState::Draining | GpuState::Reserved => Self::Pending,
            GpuState::Foreign | GpuState::Down => Self::Bad,
            GpuState::Other(_) => Self::Plain,
        }
    }
}

/// Returns how tables look on standard output, and whether they may be coloured.
pub(crate) fn look(format: Format) -> Look {
    let terminal = io::stdout().is_terminal();
    let width = if terminal { crossterm::terminal::size().ok().map(|(columns, _)| columns) } else { None };
    // A terminal whose width was never set reports 0.
    let width = width.filter(|columns| *columns > 0);
    Look { colour: terminal && colour_wanted(), width, wide: format == Format::Wide, now_ms: now_ms() }
}

/// Returns whether colour is wanted: not with a `NO_COLOR` that is not empty, and not with `TERM=dumb`.
pub(crate) fn colour_wanted() -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    !no_color && !dumb
}

/// Prints a message for a person, beside the output. If standard error is gone, there is nobody to tell.
pub(crate) fn say(text: &str) {
    let _ = io::Write::write_all(&mut io::stderr(), format!("divvy: {}\n", plain(&told(text))).as_bytes());
}
