//! `divvy wait`: until jobs are over.

use std::io::Write;
use std::time::Duration;

use divvy_api::client::{Ask, USUAL_DEADLINE};
use divvy_api::{Client, JobState, Waited, paths};

use super::ps::over_in_short;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::plain;
use crate::pool::{self, Place};

const EXAMPLES: &str = "\
Examples:
  divvy wait 12                      ends with job 12's exit code
  divvy wait 12 13 && ./evaluate     the first that failed decides
  id=$(divvy run -d -- ./job); divvy wait $id";

/// Wait until jobs are over; ends with the exit code of the first that failed
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Wait {
    /// Jobs: 12; 12_3 is a member of an array, 12 all of it
    #[arg(required = true, value_name = "JOB", value_parser = super::job)]
    jobs: Vec<String>,
    /// Say nothing
    #[arg(long)]
    quiet: bool,
}

/// How long the daemon may hold one request. After that it is repeated, so that a daemon that hangs is noticed.
const ONE_QUESTION: Duration = Duration::from_secs(60);

impl Wait {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        pool::with_client(place, async |mut client| {
            if let [_, _, ..] = &self.jobs[..] {
                all_there(&mut client, &self.jobs).await?;
            }
            let mut exit = Exit::Success;
            for job in &self.jobs {
                let waited = until_over(&mut client, job).await?;
                if !self.quiet {
                    writeln!(std::io::stdout(), "{}", line(&waited))?;
                }
                if exit == Exit::Success {
                    exit = exit_of(&waited);
                }
            }
            Ok(exit)
        })
    }
}

/// Looks whether all jobs are there, so that a wrong number is told now and not when the jobs before it have ended.
async fn all_there(client: &mut Client, jobs: &[String]) -> Result<(), Failure> {
    for job in jobs {
        let ask = Ask::get(paths::with_query(&paths::wait(job), &[("timeout_ms", Some("0".into()))]));
        pool::patiently(client, async |client| client.ask::<Waited>(&ask).await).await?;
    }
    Ok(())
}

/// Waits for one job; asks again if the daemon restarts meanwhile.
pub(crate) async fn until_over(client: &mut Client, job: &str) -> Result<Waited, Failure> {
    let timeout = ONE_QUESTION.as_millis().to_string();
    let path = paths::with_query(&paths::wait(job), &[("timeout_ms", Some(timeout))]);
    let ask = Ask::get(path).within(ONE_QUESTION + USUAL_DEADLINE);
    loop {
        let waited: Waited = pool::patiently(client, async |client| client.ask(&ask).await).await?;
        if waited.ended {
            return Ok(waited);
        }
    }
}

/// The exit code that stands for a job's end: its own, 128 + n for signal n. A job that did not complete never gives
/// 0: a job that met its time limit and exited with 0 gives 124, as `timeout` does; others give 1.
pub(crate) fn exit_of(waited: &Waited) -> Exit {
    let own = waited.exit_code.map(|code| u8::try_from(code).unwrap_or(u8::MAX));
    match (waited.signal, own, &waited.state) {
        (Some(signal), ..) if own.is_none_or(|code| code == 0 || i32::from(code) == 128 + signal) => {
            Exit::of_signal(signal)
        }
        (_, Some(0) | None, JobState::Completed) => Exit::Success,
        (_, Some(code), _) if code != 0 => Exit::Job(code),
        (_, _, JobState::Timeout) => Exit::Job(124),
        // Cancelled before it ran: as if SIGTERM had ended it.
        (_, _, JobState::Cancelled) => Exit::of_signal(15),
        _ => Exit::Job(1),
    }
}

fn line(waited: &Waited) -> String {
    let (id, state) = (plain(&waited.id), plain(waited.state.as_str()));
    match &waited.last_end {
        Some(end) if waited.state != JobState::Completed => {
            let short = over_in_short(end, waited.exit_code);
            match short.strip_prefix(state.as_ref()) {
                Some(more) => format!("{id} {state}{}", plain(more)),
                None => format!("{id} {state}: {}", plain(&short)),
            }
        }
        _ => format!("{id} {state}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_api::{Cause, LastEnd};

    fn waited(state: JobState, exit_code: Option<i32>, signal: Option<i32>) -> Waited {
        Waited { id: "12".into(), state, ended: true, exit_code, signal, failed_task: None, last_end: None }
    }

    #[test]
    fn the_exit_code_is_the_jobs_own_and_never_zero_for_one_that_did_not_complete() {
        let code = |state, exit_code, signal| exit_of(&waited(state, exit_code, signal)).code();
        assert_eq!(code(JobState::Completed, Some(0), None), 0);
        assert_eq!(code(JobState::Failed, Some(3), None), 3);
        assert_eq!(code(JobState::Failed, Some(137), Some(9)), 137);
        assert_eq!(code(JobState::Failed, None, Some(11)), 139);
        assert_eq!(code(JobState::Timeout, Some(0), None), 124);
        assert_eq!(code(JobState::Cancelled, None, None), 143);
        assert_eq!(code(JobState::Lost, None, None), 1);
    }

    #[test]
    fn an_end_is_told_in_a_line() {
        let mut end = waited(JobState::Cancelled, None, None);
        end.last_end =
            Some(LastEnd { cause: Cause::Cancelled, by: Some("ana\x1b".into()), signal: None, detail: None });
        assert_eq!(line(&end), "12 cancelled by ana\\u{1b}");
        let mut failed = waited(JobState::Failed, Some(3), None);
        failed.last_end = Some(LastEnd { cause: Cause::Exit, by: None, signal: None, detail: None });
        assert_eq!(line(&failed), "12 failed: exit 3");
        failed.exit_code = Some(85);
        failed.last_end = Some(LastEnd { cause: Cause::Checkpointed, by: None, signal: None, detail: None });
        assert_eq!(line(&failed), "12 failed: no restarts left");
        assert_eq!(line(&waited(JobState::Completed, Some(0), None)), "12 completed");
    }
}
