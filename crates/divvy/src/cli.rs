//! The command line.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{Arg, Command, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::exit::{EXIT_CODES, Exit};
use crate::failure::Failure;
use crate::pool::Place;
use crate::verbs;

const EXAMPLES: &str = "\
Examples:
  divvy demo                              see it work, on any machine
  divvy up --detach                       start a pool on this machine
  divvy run -g 1 -- python train.py       run when a GPU is free; stream the output
  divvy run -d -g h100:2 -t 2h -- ./job   queue it, print its id
  divvy ps                                what waits and what runs
  divvy explain 12                        why job 12 waits
";

/// A fair, queued, accounted GPU pool in one binary.
#[derive(Debug, Parser)]
#[command(name = "divvy", version, about, after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n{EXIT_CODES}\n\n{PLACES}"))]
#[command(disable_help_subcommand = true, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

const PLACES: &str = "\
Where the daemon is looked for, first match wins: --socket, --state, DIVVY_SOCKET, DIVVY_STATE,
/run/divvy/divvy.sock (a pool for everyone), $XDG_RUNTIME_DIR/divvy/divvy.sock (your own pool).
NO_COLOR turns colours off; they are on only where output goes to a terminal.";

/// What can be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Demo(verbs::demo::Demo),
    Up(verbs::up::Up),
    Down(verbs::down::Down),
    Run(Box<verbs::run::Run>),
    Ps(verbs::ps::Ps),
    Show(verbs::show::Show),
    Logs(verbs::logs::Logs),
    Wait(verbs::wait::Wait),
    Cancel(verbs::change::Cancel),
    Hold(verbs::change::Hold),
    Release(verbs::change::Release),
    Set(verbs::change::Set),
    Checkpointed(verbs::change::Checkpointed),
    Tasks(verbs::tasks::Tasks),
    Explain(verbs::explain::Explain),
    Queues(verbs::queues::Queues),
    Apply(verbs::apply::Apply),
    Gpus(verbs::gpus::Gpus),
    Reserve(verbs::reserve::Reserve),
    Top(verbs::top::Top),
    History(verbs::history::History),
    Sim(verbs::sim::Sim),
    Doctor(verbs::doctor::Doctor),
    #[cfg(feature = "kubernetes")]
    Kube(verbs::kube::Kube),
    Completion(verbs::completion::Completion),
}

impl Verb {
    /// Runs the command.
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        match self {
            Self::Demo(demo) => demo.run(),
            Self::Up(up) => up.run(place),
            Self::Down(down) => down.run(place),
            Self::Run(run) => run.run(place),
            Self::Ps(ps) => ps.run(place),
            Self::Show(show) => show.run(place),
            Self::Logs(logs) => logs.run(place),
            Self::Wait(wait) => wait.run(place),
            Self::Cancel(cancel) => cancel.run(place),
            Self::Hold(hold) => hold.run(place),
            Self::Release(release) => release.run(place),
            Self::Set(set) => set.run(place),
            Self::Checkpointed(checkpointed) => checkpointed.run(place),
            Self::Tasks(tasks) => tasks.run(place),
            Self::Explain(explain) => explain.run(place),
            Self::Queues(queues) => queues.run(place),
            Self::Apply(apply) => apply.run(place),
            Self::Gpus(gpus) => gpus.run(place),
            Self::Reserve(reserve) => reserve.run(place),
            Self::Top(top) => top.run(place),
            Self::History(history) => history.run(place),
            Self::Sim(sim) => sim.run(place),
            Self::Doctor(doctor) => doctor.run(place),
            #[cfg(feature = "kubernetes")]
            Self::Kube(kube) => kube.run(),
            Self::Completion(completion) => completion.run(),
        }
    }
}

/// Reads the command line; help, version and mistakes are printed here.
pub(crate) fn read(args: impl IntoIterator<Item = OsString>) -> Result<Cli, Exit> {
    parsed(args).map_err(|error| {
        // It is no mistake to stop reading the help early.
        let _ = error.print();
        if error.use_stderr() { Exit::Usage } else { Exit::Success }
    })
}

fn parsed(args: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut command = with_negative_numbers(Cli::command());
    let args: Vec<OsString> = args.into_iter().collect();
    let matches = command.try_get_matches_from_mut(&args)?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    if let Verb::Run(run) = &cli.verb
        && let Some(word) = value_taken_for_the_command(&args, &run.command)
    {
        let what = format!("the value of --requeue is joined to it: --requeue={word}");
        return Err(command.error(ErrorKind::InvalidValue, what));
    }
    Ok(cli)
}

/// The word that would be run as the command where `--requeue failure` was written.
fn value_taken_for_the_command<'a>(args: &[OsString], command: &'a [String]) -> Option<&'a String> {
    let word = command.first().filter(|first| verbs::run::REQUEUE_WORDS.contains(&first.as_str()))?;
    let is_joined =
        |two: &[OsString]| matches!(two, [flag, value] if flag == "--requeue" && value == word.as_str());
    args.windows(2).any(is_joined).then_some(word)
}

/// Makes `--limit -1` a wrong limit, not an unknown flag `-1`.
fn with_negative_numbers(command: Command) -> Command {
    let is_valued = |arg: &Arg| arg.get_long().is_some() && arg.get_action().takes_values();
    let valued = |arg: Arg| if is_valued(&arg) { arg.allow_negative_numbers(true) } else { arg };
    command.mut_args(valued).mut_subcommands(with_negative_numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_explains_itself_with_examples() {
        for verb in Cli::command().get_subcommands().filter(|verb| !verb.is_hide_set()) {
            assert!(verb.get_about().is_some(), "{} says nothing about itself", verb.get_name());
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(
                help.contains(&format!("divvy {}", verb.get_name())),
                "{} has no examples",
                verb.get_name()
            );
        }
    }

    #[test]
    fn every_verb_takes_the_place_of_the_pool() {
        let needed = |verb: &str| match verb {
            "apply" => vec!["-f", "x"],
            "completion" => vec!["bash"],
            "show" | "logs" | "wait" | "cancel" | "hold" | "release" | "checkpointed" | "tasks"
            | "explain" => {
                vec!["1"]
            }
            "set" => vec!["1", "--priority", "high"],
            "sim" => vec!["suite", "x"],
            "kube" => vec!["manifests"],
            _ => vec![],
        };
        for verb in Cli::command().get_subcommands() {
            let words = ["divvy", verb.get_name(), "--state", "/s", "--socket", "/t"].into_iter();
            let cli = parsed(words.chain(needed(verb.get_name())).map(OsString::from)).unwrap();
            assert_eq!(cli.place.state, Some("/s".into()), "{}", verb.get_name());
        }
    }

    #[test]
    fn the_jobs_own_flags_stay_its_own() {
        let read = |words: &[&str]| parsed(words.iter().map(OsString::from));
        let cli = read(&["divvy", "run", "-g", "1", "python", "-u", "train.py", "--state", "x"]).unwrap();
        let Verb::Run(run) = cli.verb else { panic!("not run") };
        assert_eq!(run.command, ["python", "-u", "train.py", "--state", "x"]);
        assert!(read(&["divvy", "run", "--bogus", "--", "true"]).is_err());
        assert!(read(&["divvy", "run", "-d", "--pty", "true"]).is_err());
        let cli = read(&["divvy", "run", "-g", "1", "--", "tail", "-5", "--lines", "-1"]).unwrap();
        let Verb::Run(run) = cli.verb else { panic!("not run") };
        assert_eq!(run.command, ["tail", "-5", "--lines", "-1"]);
    }

    #[test]
    fn a_priority_may_be_below_zero() {
        for line in ["run -p -5 -- true", "run --priority=-5 -- true", "set 12 --priority -5"] {
            let words = std::iter::once("divvy").chain(line.split(' ')).map(OsString::from);
            assert!(parsed(words).is_ok(), "{line}");
        }
    }

    #[test]
    fn the_value_of_requeue_is_not_taken_for_the_command() {
        let read = |line: &str| parsed(line.split(' ').map(OsString::from));
        let error = read("divvy run --requeue failure -- ./job").unwrap_err();
        assert!(error.to_string().contains("--requeue=failure"), "{error}");
        for line in ["run --requeue -- failure", "run --requeue=lost -- lost", "run x --requeue failure"] {
            assert!(read(&format!("divvy {line}")).is_ok(), "{line}");
        }
    }

    #[test]
    fn a_wrong_number_is_told_what_to_write() {
        for (line, told) in [
            ("ps --limit -1", "invalid value '-1' for '--limit <N>': write a whole number, 1 or more"),
            ("queues --history -n all", "invalid value 'all' for '--limit <N>': write a whole number"),
            (
                "reserve --cancel all",
                "for '--cancel <ID>': reservations have numbers; `divvy reserve` lists them",
            ),
            ("reserve -g -2 -q a", "invalid value '-2' for '--gpus <N>': write a whole number, 1 or more"),
            ("run -t -5s -- x", "invalid value '-5s' for '--time <TIME>': a time cannot be negative"),
            (
                "run --estimate -1h -- x",
                "invalid value '-1h' for '--estimate <TIME>': a time cannot be negative",
            ),
            ("run -t -n name -- x", "invalid value '-n' for '--time <TIME>': a time was expected before -n"),
            ("run --mem -4G -- x", "invalid value '-4G' for '--mem <SIZE>': a size cannot be negative"),
            (
                "run -p -n name -- x",
                "invalid value '-n' for '--priority <PRIORITY>': a priority was expected",
            ),
            (
                "reserve -g 1 -q a --for -1h",
                "invalid value '-1h' for '--for <TIME>': a time cannot be negative",
            ),
            ("gpus drain 0 --at -2h", "invalid value '-2h' for '--at <WHEN>': a time cannot be negative"),
            ("queues set a --max-time -1h", "invalid value '-1h' for '--max-time <TIME>': a time cannot"),
        ] {
            let words = std::iter::once("divvy").chain(line.split(' ')).map(OsString::from);
            let error = parsed(words).unwrap_err().to_string();
            assert!(error.contains(told), "{line}: {error}");
        }
    }
}
