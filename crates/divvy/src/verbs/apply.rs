//! `divvy apply`: puts queues.yaml in force, or an earlier state of the queues.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use divvy_api::client::Ask;
use divvy_api::{Applied, ClientError, paths};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{colour_wanted, local, plain};
use crate::pool::{self, Place};
use crate::verbs::queues::AsOf;

const EXAMPLES: &str = "\
Examples:
  divvy apply -f queues.yaml             put it in force, show what changes
  divvy apply -f queues.yaml --dry-run   only show what would change
  divvy apply -f queues.yaml --note 'vision has a deadline'
  divvy apply --as-of 3                  undo: the queues as they were after change 3
  divvy apply --as-of 2d --dry-run       what that of two days ago would change

A queues.yaml:
  queues:
    vision: {limit: {any: 4}, submit: [group:vision]}
    nlp:    {limit: {h100: 2}, requeue: failure}

`divvy queues -o yaml` writes the one in force, `divvy queues --history` lists the changes.";

/// Put a queues.yaml in force, or an earlier one again, and show what changes
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Apply {
    /// The file; `-` reads standard input
    #[arg(short, long, value_name = "FILE", required_unless_present = "as_of", conflicts_with = "as_of")]
    file: Option<PathBuf>,
    /// What was in force after that change (a number) or at that time (3d, 2026-11-01)
    #[arg(long, value_name = "CHANGE|WHEN", value_parser = AsOf::read)]
    as_of: Option<AsOf>,
    #[command(flatten)]
    change: Change,
}

/// How a change of the queues is meant.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Change {
    /// Only show what would change
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Why, for those who look back
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
}

impl Change {
    /// The path of the request.
    pub(crate) fn path(&self) -> String {
        let dry_run = self.dry_run.then(|| "true".to_owned());
        paths::with_query(paths::QUEUES, &[("dry_run", dry_run), ("note", self.note.clone())])
    }
}

impl Apply {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        let text = self.text(place)?;
        let ask = Ask::put_text(self.noted().path(), text);
        let applied: Applied = pool::with_client(place, async |mut client| {
            client.ask(&ask).await.map_err(|error| self.in_file(error))
        })?;
        show(&applied, self.change.dry_run)
    }

    fn text(&self, place: &Place) -> Result<String, Failure> {
        match (&self.file, self.as_of) {
            (Some(file), _) => super::run::read_text(file),
            (None, Some(as_of)) => {
                Ok(String::from_utf8_lossy(&super::queues::file_as_of(place, as_of)?).into_owned())
            }
            (None, None) => Err(Failure::usage("say -f FILE, or --as-of")),
        }
    }

    /// Adds a note to a change that goes back, unless it has one.
    fn noted(&self) -> Change {
        let back = match self.as_of {
            Some(AsOf::Change(change)) => Some(format!("as of change {change}")),
            Some(AsOf::At(at_ms)) => Some(format!("as of {}", local(at_ms))),
            None => None,
        };
        Change { note: self.change.note.clone().or(back), ..self.change.clone() }
    }

    /// Puts the file's name in front of an error in its text.
    fn in_file(&self, error: ClientError) -> Failure {
        let (ClientError::Problem(problem), Some(file)) = (&error, &self.file) else { return error.into() };
        let place = match (problem.line, problem.column) {
            (Some(line), Some(column)) => format!("{}:{line}:{column}", file.display()),
            _ => file.display().to_string(),
        };
        let mut failure = Failure::from((**problem).clone());
        failure.what = format!("{place}: {}", failure.what);
        failure
    }
}

/// Prints what changes, or what would change.
pub(crate) fn show(applied: &Applied, dry_run: bool) -> Result<Exit, Failure> {
    let colour = std::io::stdout().is_terminal() && colour_wanted();
    std::io::stdout().lock().write_all(render(applied, dry_run, colour).as_bytes())?;
    Ok(Exit::Success)
}

/// A line of a difference, coloured by what it does.
pub(crate) fn painted(line: &str, colour: bool) -> String {
    let line = plain(line);
    match line.as_bytes().first() {
        Some(b'+') if colour => format!("\x1b[32m{line}\x1b[0m"),
        Some(b'-') if colour => format!("\x1b[31m{line}\x1b[0m"),
        Some(b'~') if colour => format!("\x1b[33m{line}\x1b[0m"),
        _ => line.into_owned(),
    }
}

fn render(applied: &Applied, dry_run: bool, colour: bool) -> String {
    let mut text = String::new();
    for line in &applied.diff {
        text += &painted(line, colour);
        text.push('\n');
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
