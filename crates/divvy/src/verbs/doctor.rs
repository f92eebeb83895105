//! `divvy doctor`: checks the log of a pool, and repairs it when told so.

use std::io::Write;
use std::path::Path;

use divvy_server::doctor::{self, Repair, Report};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::plain;
use crate::pool::Place;

const EXAMPLES: &str = "\
Examples:
  divvy doctor                          check the log; changes nothing
  divvy doctor --state /var/tmp/pool2   of another pool
  divvy doctor --repair                 cut a damaged log where it is still good; keeps a copy";

/// Check a pool's log, or repair it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Doctor {
    /// Cut the log at its last good place, and keep a copy of what was there
    #[arg(long)]
    repair: bool,
}

impl Doctor {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        let state = place.state_dir();
        let (text, exit) = if self.repair { repair(&state)? } else { check(&state)? };
        std::io::stdout().lock().write_all(text.as_bytes())?;
        Ok(exit)
    }
}

fn check(state: &Path) -> Result<(String, Exit), Failure> {
    let report = doctor::check(state).map_err(|error| Failure::told(Exit::BadData, &error.to_string()))?;
    let exit = if report.is_good() { Exit::Success } else { Exit::Unwell };
    Ok((render(&report), exit))
}

fn render(report: &Report) -> String {
    let mut text = format!(
        "{}\n  position {}, {} commits, {} attempts of ended jobs, {} open jobs\n",
        plain(&report.file.display().to_string()),
        report.position,
        report.commits,
        report.attempts,
        report.open_jobs,
    );
    for remark in &report.remarks {
        text += &format!("  note: {}\n", plain(remark));
    }
    text + &match &report.damage {
        None => "  the log is whole\n".to_owned(),
        Some(damage) => {
            format!("  damaged: {}\n  fix: divvy doctor --repair, with the daemon down\n", plain(damage))
        }
    }
}

fn repair(state: &Path) -> Result<(String, Exit), Failure> {
    let Repair { position, damage, copy } =
        doctor::repair(state).map_err(|error| Failure::told(Exit::BadData, &error.to_string()))?;
    let mut text = match damage {
        None => format!("the log is whole up to position {position}: nothing was changed\n"),
        Some(damage) => format!("cut at position {position}: {}\n", plain(&damage)),
    };
    if let Some(copy) = copy {
        text += &format!("what was there is kept in {}\n", plain(&copy.display().to_string()));
    }
    Ok((text, Exit::Success))
}
