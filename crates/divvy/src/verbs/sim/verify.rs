//! `divvy sim verify`: folds a pool's log, and plans every recorded cycle again.

use std::io::Write;
use std::path::Path;

use divvy_server::doctor;
use divvy_sim::verify::{Verified, Verify as Verifier};

use super::form::FormFlag;
use super::progress;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{count, plain};
use crate::pool::Place;

const EXAMPLES: &str = "\
Examples:
  divvy sim verify                            this machine's pool, running or not
  divvy sim verify --state /var/tmp/pool2 -o json";

/// Fold a pool's log and plan every recorded cycle again: the same digests?
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Verify {
    #[command(flatten)]
    form: FormFlag,
}

impl Verify {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        let state = place.state_dir();
        let found = verify(&state)?;
        let exit = if found.differences == 0 { Exit::Success } else { Exit::Unwell };
        let text = self.form.text(&found, || render(&state, &found))?;
        std::io::stdout().lock().write_all(text.as_bytes())?;
        Ok(exit)
    }
}

fn verify(state: &Path) -> Result<Verified, Failure> {
    let mut verifier = Verifier::new(env!("CARGO_PKG_VERSION"));
    let mut misfit = None;
    let bar = progress::bar(doctor::length(state).map_err(|error| Failure::log(&error))?, "events");
    let walked = doctor::each_commit(state, |events| {
        if misfit.is_none() {
            misfit = verifier.commit(events).err();
        }
        bar.inc(events.len() as u64);
    });
    bar.finish_and_clear();
    walked.map_err(|error| Failure::log(&error))?;
    match misfit {
        None => Ok(verifier.finish()),
        Some(misfit) => {
            Err(Failure::new(Exit::BadData, format!("the log of {} cannot be folded", state.display()))
                .because(misfit.to_string())
                .fix("look closer with `divvy doctor`"))
        }
    }
}

fn render(state: &Path, found: &Verified) -> String {
    let mut text = format!(
        "{}\n  {}, {}, {}, state {}\n  {}: {} planned again, {} of them from nothing\n",
        plain(&state.display().to_string()),
        count(found.commits, "commit"),
        count(found.events, "event"),
        count(found.terms, "start"),
        found.digest,
        count(found.cycles, "cycle"),
        found.planned_again,
        found.planned_cold,
    );
    if found.of_other_versions > 0 {
        text += &format!(
            "  {} cycles are of other versions of divvy: folded, not planned again\n",
            found.of_other_versions
        );
    }
    for difference in &found.first {
        text +=
            &format!("  position {}: {}: {}\n", difference.position, difference.law, plain(&difference.text));
    }
    text + &match found.differences {
        0 => "  every digest is the same\n".to_owned(),
        1 => "  1 difference\n".to_owned(),
        count => format!("  {count} differences\n"),
    }
}
