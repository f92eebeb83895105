//! `divvy cancel`, `hold`, `release`, `set` and `checkpointed`: changes of jobs by their ids.

use std::io::Write;

use divvy_api::client::Ask;
use divvy_api::{Changed, Client, JobChange, JobState, Scalar, paths};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::number::priority;
use crate::output::plain;
use crate::pool::{self, Place};

const CANCEL_EXAMPLES: &str = "\
Examples:
  divvy cancel 12            tell job 12 to stop; it is killed when its grace is over
  divvy cancel 12_3 14       a member of an array, and another job
  divvy cancel $(divvy ps -u me -o json | jq -r '.[].id')";

/// Cancel jobs: those that run are stopped, those that wait leave the queue
#[derive(Debug, clap::Args)]
#[command(after_help = CANCEL_EXAMPLES)]
pub(crate) struct Cancel {
    #[command(flatten)]
    jobs: Jobs,
}

/// Keep waiting jobs from starting
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  divvy hold 12        job 12 keeps its place, but does not start\n  divvy release 12     lets it go on"
)]
pub(crate) struct Hold {
    #[command(flatten)]
    jobs: Jobs,
}

/// Let held jobs start
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  divvy release 12")]
pub(crate) struct Release {
    #[command(flatten)]
    jobs: Jobs,
}

/// Give jobs another priority
///
/// A job's user may do so within what the job's queue allows, as when it is submitted; administrators for all.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  divvy set 12 --priority high     from now on before those of its queue that are normal\n  divvy set 12 14 --priority 10"
)]
pub(crate) struct Set {
    #[command(flatten)]
    jobs: Jobs,
    /// low, normal, high, urgent or a whole number
    #[arg(long, short, allow_hyphen_values = true, value_parser = priority)]
    priority: String,
}

impl Set {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        let asked = JobChange { priority: Scalar::from(self.priority.as_str()) };
        pool::with_client(place, async |mut client| {
            let mut worst = Exit::Success;
            for job in &self.jobs.jobs {
                let set = client.ask::<Changed>(&Ask::post(paths::change(job, "set"), &asked)).await;
                match set.map_err(Failure::from) {
                    Ok(changed) => writeln!(std::io::stdout(), "{}", self.line(&changed))?,
                    Err(failure) => {
                        failure.report();
                        worst = failure.exit;
                    }
                }
            }
            Ok(worst)
        })
    }

    fn line(&self, changed: &Changed) -> String {
        let (id, state) = (plain(&changed.id), plain(changed.state.as_str()));
        match (changed.changed, changed.state.is_ended()) {
            (true, _) => format!("{id} {state}, with priority {}", plain(&self.priority)),
            (false, true) => format!("{id} had ended: {state}"),
            (false, false) => format!("{id} has that priority already"),
        }
    }
}

/// Say that a running job's work is saved, so that a stop loses only what comes after
///
/// A job says it of itself, without naming a job, each time it has written a checkpoint.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  divvy checkpointed         inside a job, after a checkpoint was written\n  divvy checkpointed 12      for job 12"
)]
pub(crate) struct Checkpointed {
    /// The job: 12, or 12_3 for a member of an array; unsaid, the job that this runs in
    #[arg(env = "DIVVY_JOB_ID", value_name = "JOB", value_parser = super::job)]
    job: String,
}

impl Checkpointed {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        pool::with_client(place, async |mut client| {
            let changed = change(&mut client, &self.job, "checkpointed").await?;
            writeln!(std::io::stdout(), "{}: what it has done up to now is safe", plain(&changed.id))?;
            Ok(Exit::Success)
        })
    }
}

/// Jobs by their ids.
#[derive(Debug, clap::Args)]
struct Jobs {
    /// Jobs: 12; 12_3 is a member of an array, 12 all of it
    #[arg(required = true, value_name = "JOB", value_parser = super::job)]
    jobs: Vec<String>,
}

impl Cancel {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        self.jobs.change(place, "cancel")
    }
}

impl Hold {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        self.jobs.change(place, "hold")
    }
}

impl Release {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        self.jobs.change(place, "release")
    }
}

impl Jobs {
    /// Changes every job; a job that cannot be changed does not keep the others from it.
    fn change(&self, place: &Place, verb: &str) -> Result<Exit, Failure> {
        pool::with_client(place, async |mut client| {
            let mut worst = Exit::Success;
            for job in &self.jobs {
                match change(&mut client, job, verb).await {
                    Ok(changed) => writeln!(std::io::stdout(), "{}", line(&changed))?,
                    Err(failure) => {
                        failure.report();
                        worst = failure.exit;
                    }
                }
            }
            Ok(worst)
        })
    }
}

/// Asks for one change of one job.
pub(crate) async fn change(client: &mut Client, job: &str, verb: &str) -> Result<Changed, Failure> {
    Ok(client.ask(&Ask::post(paths::change(job, verb), &serde_json::Map::new())).await?)
}

fn line(changed: &Changed) -> String {
    let (id, state) = (plain(&changed.id), plain(changed.state.as_str()));
    if !changed.changed && changed.state.is_ended() {
        format!("{id} had ended: {state}")
    } else if !changed.changed {
        format!("{id} stays {state}")
    } else if changed.members > 1 {
        format!("{id} {state}: {} members", changed.members)
    } else if changed.state == JobState::Stopping {
        format!("{id} stopping; `divvy wait {id}` waits for its end")
    } else {
        format!("{id} {state}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_in_a_line() {
        let changed = |state, changed, members| Changed { id: "12".into(), state, changed, members };
        assert_eq!(line(&changed(JobState::Cancelled, true, 1)), "12 cancelled");
        assert_eq!(line(&changed(JobState::Cancelled, true, 40)), "12 cancelled: 40 members");
        assert_eq!(line(&changed(JobState::Completed, false, 0)), "12 had ended: completed");
        assert_eq!(line(&changed(JobState::Running, false, 0)), "12 stays running");
    }
}
