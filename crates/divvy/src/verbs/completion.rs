//! `divvy completion`: what a shell needs to complete commands.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::Exit;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  divvy completion bash > ~/.local/share/bash-completion/completions/divvy
  divvy completion zsh > \"${fpath[1]}/_divvy\"
  divvy completion fish > ~/.config/fish/completions/divvy.fish";

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Completion {
    /// bash, zsh or fish
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(["bash", "zsh", "fish"]))]
    shell: String,
}

impl Completion {
    pub(crate) fn run(&self) -> Result<Exit, Failure> {
        let shell = match self.shell.as_str() {
            "zsh" => Shell::Zsh,
            "fish" => Shell::Fish,
            _ => Shell::Bash,
        };
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "divvy", &mut script);
        std::io::stdout().lock().write_all(&script)?;
        Ok(Exit::Success)
    }
}
