//! `divvy doctor`: checks the log of a pool, and repairs it when told so.

use std::io::Write;
use std::path::{Path, PathBuf};

use divvy_server::doctor::{self, Repair, Report};
use divvy_sim::scenario::Export;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{count, plain, say};
use crate::pool::Place;

const EXAMPLES: &str = "\
Examples:
  divvy doctor                          check the log; changes nothing
  divvy doctor --state /var/tmp/pool2   of another pool
  divvy doctor --repair                 cut a damaged log where it is still good; keeps a copy
  divvy doctor --export-scenario pool.dvy
                                        the pool as a scenario for a bug report, names replaced";

/// Check a pool's log, or repair it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Doctor {
    /// Cut the log at its last good place, write history anew where it is damaged, and keep a copy of what was there
    #[arg(long)]
    repair: bool,
    /// Write the pool as it stands as a scenario that `divvy sim run` runs, with all names replaced; `-` is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "repair")]
    export_scenario: Option<PathBuf>,
}

impl Doctor {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        let state = place.state_dir();
        if let Some(file) = &self.export_scenario {
            return export(&state, file);
        }
        let (text, exit) = if self.repair { repair(&state)? } else { check(&state)? };
        std::io::stdout().lock().write_all(text.as_bytes())?;
        Ok(exit)
    }
}

fn check(state: &Path) -> Result<(String, Exit), Failure> {
    let report = doctor::check(state).map_err(|error| Failure::log(&error))?;
    let exit = if report.is_whole() { Exit::Success } else { Exit::Unwell };
    Ok((render(&report), exit))
}

fn render(report: &Report) -> String {
    let mut text = format!(
        "{}\n  position {}, {}, {} of ended jobs, {}\n",
        plain(&report.file.display().to_string()),
        report.position,
        count(report.commits, "commit"),
        count(report.attempts, "attempt"),
        count(report.open_jobs, "open job"),
    );
    for remark in &report.remarks {
        text += &format!("  note: {}\n", plain(remark));
    }
    for broken in &report.broken {
        text += &format!("  wrong: the state breaks a law: {}\n", plain(broken));
    }
    for damage in report.damage.iter().chain(&report.beside) {
        text += &format!("  damaged: {}\n", plain(damage));
    }
    if report.is_whole() {
        text += "  the log is whole\n";
    } else if !report.is_good() || !report.beside.is_empty() {
        text += "  fix: divvy doctor --repair, with the daemon down\n";
    }
    text
}

fn export(state: &Path, file: &Path) -> Result<Exit, Failure> {
    let mut export = Export::default();
    let mut misfit = None;
    doctor::each_commit(state, |events| {
        if misfit.is_none() {
            misfit = export.commit(events).err();
        }
    })
    .map_err(|error| Failure::log(&error))?;
    if let Some(misfit) = misfit {
        return Err(Failure::new(Exit::BadData, format!("the log of {} cannot be folded", state.display()))
            .because(misfit.to_string())
            .fix("look closer with `divvy doctor`"));
    }
    let written = export.finish();
    let told: String = written
        .differences
        .iter()
        .map(|difference| format!("# not as in the pool: {difference}\n"))
        .collect();
    let text = told + &written.text;
    if file == Path::new("-") {
        std::io::stdout().lock().write_all(text.as_bytes())?;
    } else {
        std::fs::write(file, text).map_err(|error| Failure::making(file, &error))?;
        say(&format!(
            "wrote {}; look at it before you send it, and run it with `divvy sim run`",
            file.display()
        ));
    }
    written.differences.iter().for_each(|difference| say(&format!("not as in the pool: {difference}")));
    Ok(Exit::Success)
}

fn repair(state: &Path) -> Result<(String, Exit), Failure> {
    let Repair { position, damage, beside, copy } =
        doctor::repair(state).map_err(|error| Failure::log(&error))?;
    let mut text = match &damage {
        None => format!("the log is whole up to position {position}: nothing of it was changed\n"),
        Some(damage) => format!("cut at position {position}: {}\n", plain(damage)),
    };
    for damage in beside {
        text += &format!("written anew from what can be read: {}\n", plain(&damage));
    }
    if let Some(copy) = copy {
        text += &format!("what was there is kept in {}\n", plain(&copy.display().to_string()));
    }
    Ok((text, Exit::Success))
}
