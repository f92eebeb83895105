//! `divvy apply`: puts queues.yaml in force.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use divvy_api::client::Ask;
use divvy_api::{Applied, ClientError, paths};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{colour_wanted, plain};
use crate::pool::{self, Place};

const EXAMPLES: &str = "\
Examples:
  divvy apply -f queues.yaml             put it in force, show what changes
  divvy apply -f queues.yaml --dry-run   only show what would change

A queues.yaml:
  queues:
    vision: {limit: {any: 4}, submit: [group:vision]}
    nlp:    {limit: {h100: 2}, requeue: failure}";

/// Put a queues.yaml in force, and show what changes
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Apply {
    /// The file; `-` reads standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Only show what would change
    #[arg(long)]
    dry_run: bool,
}

impl Apply {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        let text = super::run::read_text(&self.file)?;
        let dry_run = self.dry_run.then(|| "true".to_owned());
        let ask = Ask::put_text(paths::with_query(paths::QUEUES, &[("dry_run", dry_run)]), text);
        let applied: Applied = pool::with_client(place, async |mut client| {
            client.ask(&ask).await.map_err(|error| self.in_file(error))
        })?;
        let colour = std::io::stdout().is_terminal() && colour_wanted();
        std::io::stdout().lock().write_all(render(&applied, self.dry_run, colour).as_bytes())?;
        Ok(Exit::Success)
    }

    /// What is wrong with the text is told with the file's name in front.
    fn in_file(&self, error: ClientError) -> Failure {
        let ClientError::Problem(problem) = error else { return error.into() };
        let place = match (problem.line, problem.column) {
            (Some(line), Some(column)) => format!("{}:{line}:{column}", self.file.display()),
            _ => self.file.display().to_string(),
        };
        let mut failure = Failure::from(*problem);
        failure.what = format!("{place}: {}", failure.what);
        failure
    }
}

fn render(applied: &Applied, dry_run: bool, colour: bool) -> String {
    let mut text = String::new();
    for line in &applied.diff {
        let line = plain(line);
        let paint = match line.as_bytes().first() {
            Some(b'+') => "\x1b[32m",
            Some(b'-') => "\x1b[31m",
            Some(b'~') => "\x1b[33m",
            _ => "",
        };
        if colour && !paint.is_empty() {
            text += &format!("{paint}{line}\x1b[0m\n");
        } else {
            text += &format!("{line}\n");
        }
    }
    for notice in &applied.notices {
        text += &format!("note: {}\n", plain(notice));
    }
    text += match (applied.diff.is_empty(), dry_run) {
        (true, _) => "nothing changes\n",
        (false, true) => "dry run: nothing was changed\n",
        (false, false) => "in force\n",
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn what_changes_is_shown_line_by_line() {
        let diff = vec!["+ vision limit any=4".into(), "~ default limit any: 8 → 4".into(), "- old".into()];
        let applied = Applied { applied: true, diff, notices: vec!["3 jobs of old run on".into()] };
        expect![[r#"
            + vision limit any=4
            ~ default limit any: 8 → 4
            - old
            note: 3 jobs of old run on
            in force
        "#]]
        .assert_eq(&render(&applied, false, false));
        assert_eq!(render(&Applied::default(), true, false), "nothing changes\n");
    }
}
