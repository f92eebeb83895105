//! A fair, queued, accounted GPU pool in one binary.
//!
//! `main` branches off into the supervisor of a task before anything else exists; then the command line is read and
//! one of [`verbs`] runs. Each verb is a file; what they print goes through [`output`], how they end is an
//! [`exit::Exit`], what goes wrong a [`failure::Failure`].

mod cli;
mod exit;
mod failure;
mod number;
mod output;
mod pool;
mod verbs;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = divvy_engine::local::supervisor_main(std::env::args_os()) {
        return code;
    }
    match cli::read(std::env::args_os()) {
        Ok(cli) => match cli.verb.run(&cli.place) {
            Ok(exit) => exit.into(),
            Err(failure) => {
                failure.report();
                failure.exit.into()
            }
        },
        Err(exit) => exit.into(),
    }
}
