//! How far a long run has come, and when it will be over; hidden where nobody looks at a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// How often a spinner turns.
const TURN: Duration = Duration::from_millis(100);

/// A bar of so many things that are done one by one.
pub(super) fn bar(of: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(of);
    let text = format!("{{bar:30}} {{human_pos}} of {{human_len}} {what}, {{eta}} left");
    bar.set_style(ProgressStyle::with_template(&text).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// A sign that work of unknown length goes on.
pub(super) fn spinner(text: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let spinner = ProgressBar::new_spinner();
    spinner
        .set_style(ProgressStyle::with_template(text).unwrap_or_else(|_| ProgressStyle::default_spinner()));
    spinner.enable_steady_tick(TURN);
    spinner
}
