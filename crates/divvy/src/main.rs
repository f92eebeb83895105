//! A fair, queued, accounted GPU pool in one binary.
//!
//! Before anything else exists, `main` branches off into the supervisor of a task. Otherwise it reads the command line
//! and runs one of [`verbs`]. Each verb is a file: it prints through [`output`], ends with an [`exit::Exit`], and reports
//! what goes wrong as a [`failure::Failure`].

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
