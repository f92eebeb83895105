//! How far a long run has come, and when it will be over.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// How often a spinner turns.
const TURN: Duration = Duration::from_millis(100);

/// A bar of so many things, and when the rest will be done; hidden where nobody looks at a terminal.
pub(super) fn bar(of: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(of);
    let style =
        ProgressStyle::with_template(&format!("{{bar:30}} {{human_pos}} of {{human_len}} {what}, {{eta}} left"));
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Shows that work of unknown length goes on, and for how long it has; hidden where nobody looks at a terminal.
pub(super) fn spinner(what: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let spinner = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template(&format!("{{spinner}} {what}, {{elapsed}}"));
    spinner.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    spinner.enable_steady_tick(TURN);
    spinner
}
