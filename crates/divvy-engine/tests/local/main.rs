//! The local engine with real processes.
//!
//! The tests bring their own `main`, since the supervisors are this very program. Arguments that do not start with a
//! dash pick tests by part of their name, as usual.

// Tests, though the compiler cannot know: they have a main of their own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod adoption;
mod cleanup;
mod contract;
mod environment;
mod fences;
mod isolation;
mod output;
mod pool;
mod stopping;
mod telemetry;
mod terminal;

use std::collections::VecDeque;
use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::Mutex;

/// A test: its name, and what it does.
type Test = (&'static str, fn());

/// Lists tests by their names.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        /// The tests of this module.
        pub(crate) const TESTS: &[crate::Test] = &[$((stringify!($name), $name)),*];
    };
}
pub(crate) use tests;

fn main() -> ExitCode {
    if let Some(code) = divvy_engine::local::supervisor_main(std::env::args_os()) {
        return code;
    }
    // The machine's own locks are not the tests' business.
    let locks = tempfile::tempdir().unwrap();
    // SAFETY: this is the only thread.
    unsafe { std::env::set_var("DIVVY_LOCKS", locks.path()) };
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    let modules = [
        adoption::TESTS,
        cleanup::TESTS,
        contract::TESTS,
        environment::TESTS,
        fences::TESTS,
        isolation::TESTS,
        output::TESTS,
        stopping::TESTS,
        telemetry::TESTS,
        terminal::TESTS,
    ];
    let tests: Vec<Test> =
        modules.into_iter().flatten().copied().filter(|(name, _)| is_wanted(name)).collect();
    if std::env::args().any(|argument| argument == "--list") {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let failed = run(tests);
    drop(locks);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the tests, some at a time since most of them wait; returns how many failed.
fn run(tests: Vec<Test>) -> usize {
    let (count, waiting, failed) = (tests.len(), Mutex::new(VecDeque::from(tests)), Mutex::new(0));
    let next = || waiting.lock().unwrap().pop_front();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while let Some((name, test)) = next() {
                    let is_ok = catch_unwind(test).is_ok();
                    println!("test {name} ... {}", if is_ok { "ok" } else { "FAILED" });
                    *failed.lock().unwrap() += usize::from(!is_ok);
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    println!("{} passed, {failed} failed", count - failed);
    failed
}
