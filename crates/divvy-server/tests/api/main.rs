//! The daemon as its clients see it: real sockets, real processes, pretended devices.
//!
//! This program is its own supervisor, as `divvy` is. So it has no test harness, only a list of sentences.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is a test: a failure is its message"
)]

mod daemon;
mod everyday;
mod faults;
mod people;
#[path = "../../src/store/small_disk.rs"]
mod small_disk;

use std::panic::catch_unwind;
use std::process::ExitCode;

/// A test: a sentence, and the function that checks it.
pub(crate) type Sentence = (&'static str, fn());

fn main() -> ExitCode {
    if let Some(code) = divvy_engine::local::supervisor_main(std::env::args_os()) {
        return code;
    }
    let filter: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let all = [everyday::TESTS, people::TESTS, faults::TESTS].concat();
    let wanted = |name: &str| filter.is_empty() || filter.iter().any(|word| name.contains(word.as_str()));
    let mut failed = 0;
    for (name, test) in all.into_iter().filter(|(name, _)| wanted(name)) {
        let passed = catch_unwind(test).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += u32::from(!passed);
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
