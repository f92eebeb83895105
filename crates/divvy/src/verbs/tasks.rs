//! `divvy tasks`: the tasks that a job has now, and how they change. This is how a gang learns that it grows or shrinks.

use std::io::Write;

use divvy_api::client::{Ask, EventStream};
use divvy_api::{Client, ClientError, JobDetail, Task, paths};
use serde_json::json;
use serde_json::value::RawValue;

use super::explain::OneObject;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Column, Format, Listing, look, render, write_json};
use crate::pool::{self, Place};

const EXAMPLES: &str = "\
Examples:
  divvy tasks 12                 the tasks that job 12 has
  divvy tasks --follow           inside a job: and whenever they change, until it ends
  divvy tasks -f -o json | while read -r now; do ./resize \"$now\"; done";

/// List the tasks that a job has now, and how they change
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Tasks {
    /// The job: 12, or 12_3 for a member of an array; unsaid, the job that this runs in
    #[arg(env = "DIVVY_JOB_ID", value_name = "JOB", value_parser = super::job)]
    job: String,
    /// Go on, and list them whenever they change, until the job ends
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    format: OneObject,
}

impl Tasks {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        let sockets = place.sockets();
        pool::with_client(place, async |mut client| {
            let mut last = Vec::new();
            let mut seen = false;
            loop {
                // Listen before looking: no event between the two is missed.
                let mut events = match self.follow {
                    true => Some(self.listen(&mut Client::connect(&sockets).await?).await?),
                    false => None,
                };
                loop {
                    let now = self.look(&mut client).await?;
                    let there = there(&now);
                    if !seen || there != last {
                        self.print(&now, &there)?;
                    }
                    (seen, last) = (true, there);
                    if now.job.state.is_ended() || !self.follow {
                        return Ok(Exit::Success);
                    }
                    let Some(events) = events.as_mut() else { break };
                    if !is_news(events.next().await)? {
                        break;
                    }
                }
                // The daemon is being restarted.
                pool::reconnect(&mut client).await?;
            }
        })
    }

    async fn listen(&self, client: &mut Client) -> Result<EventStream, Failure> {
        let path = paths::with_query(paths::EVENTS, &[("job", Some(self.job.clone()))]);
        Ok(EventStream::new(client.stream(&Ask::get(path)).await?))
    }

    async fn look(&self, client: &mut Client) -> Result<JobDetail, Failure> {
        let ask = Ask::get(paths::job(&self.job));
        pool::patiently(client, async |client| client.ask(&ask).await).await
    }

    fn print(&self, now: &JobDetail, there: &[(u32, String)]) -> Result<(), Failure> {
        let tasks = now.attempts.last().map(|attempt| attempt.tasks.as_slice()).unwrap_or_default();
        let tasks: Vec<&Task> =
            tasks.iter().filter(|task| there.iter().any(|(rank, _)| *rank == task.task)).collect();
        if self.format.is_json() {
            let object = json!({"job": now.job.id, "size": tasks.len(), "tasks": tasks});
            return Ok(write_json(&RawValue::from_string(object.to_string())?)?);
        }
        let rows: Vec<Row> = tasks.into_iter().cloned().map(Row).collect();
        let text = render(&rows, &look(Format::Table));
        Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
    }
}

/// Whether the stream of events goes on.
fn is_news<T>(event: Result<Option<T>, ClientError>) -> Result<bool, Failure> {
    match event {
        Ok(event) => Ok(event.is_some()),
        Err(error) if error.is_away() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The tasks that a job has, without those that were told to stop: they are on their way out.
fn there(job: &JobDetail) -> Vec<(u32, String)> {
    let tasks = job.attempts.last().map(|attempt| attempt.tasks.as_slice()).unwrap_or_default();
    let stays = tasks.iter().filter(|task| ["starting", "running", "paused"].contains(&task.state.as_str()));
    stays.map(|task| (task.task, task.state.clone())).collect()
}

#[derive(serde::Deserialize)]
#[serde(transparent)]
struct Row(Task);

impl Listing for Row {
    const PATHS: &'static [&'static str] = &["task", "role", "state", "node", "pid"];
    const EMPTY: &'static str = "no tasks";

    fn columns() -> Vec<Column<Self>> {
        vec![
            Column::<Self>::new("TASK", |row, _| row.0.task.to_string()).right(),
            Column::<Self>::new("ROLE", |row, _| row.0.role.clone()),
            Column::<Self>::new("STATE", |row, _| row.0.state.clone()),
            Column::<Self>::new("NODE", |row, _| row.0.node.clone()),
            Column::<Self>::new("GPUS", |row, _| gpus_of(&row.0)),
        ]
    }
}

fn gpus_of(task: &Task) -> String {
    let indices = task.devices.iter().map(|device| device.index.to_string());
    indices.collect::<Vec<_>>().join(",")
}
