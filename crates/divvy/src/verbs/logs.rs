//! `divvy logs`: the output of a job.

use divvy_api::client::{Ask, ByteStream};
use divvy_api::{ClientError, paths};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::number::whole;
use crate::pool::{self, Place};
use crate::verbs::run::write_through;

const EXAMPLES: &str = "\
Examples:
  divvy logs 12               all output of job 12
  divvy logs -f 12            and what comes, until it ends
  divvy logs -n 20 12_3       the last 20 lines of a member of an array
  divvy logs --task 2 15      what task 2 of a gang wrote";

/// Print a job's output
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Logs {
    /// The job
    #[arg(value_parser = super::job)]
    job: String,
    /// Go on as output comes, until the job ends
    #[arg(short, long)]
    follow: bool,
    /// The task of a gang, by its rank
    #[arg(long, value_name = "RANK", value_parser = whole::<u32>(..))]
    task: Option<u32>,
    /// Only so many of the last lines
    #[arg(short = 'n', long, value_name = "N", value_parser = whole::<u64>(..))]
    lines: Option<u64>,
}

impl Logs {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        pool::with_client(place, async |mut client| {
            let mut seen = Seen::default();
            loop {
                let ask = Ask::get(self.path(&seen));
                let stream = match self.follow {
                    true => pool::patiently(&mut client, async |client| client.stream(&ask).await).await?,
                    false => client.stream(&ask).await?,
                };
                match pass_on(stream, &mut seen).await {
                    Ok(()) => return Ok(Exit::Success),
                    // The daemon is restarting: the job writes on, and its file grows.
                    Err(Broken::Connection(error)) if self.follow && error.is_away() => {}
                    Err(Broken::Connection(error)) => return Err(error.into()),
                    Err(Broken::Output(failure)) => return Err(failure),
                }
            }
        })
    }

    fn path(&self, seen: &Seen) -> String {
        let text = |value: Option<u64>| value.map(|value| value.to_string());
        let lines = if seen.offset.is_none() { self.lines } else { None };
        paths::with_query(
            &paths::output(&self.job),
            &[
                ("task", text(self.task.map(u64::from))),
                ("from", text(seen.offset)),
                ("follow", self.follow.then(|| "true".into())),
                ("lines", text(lines)),
            ],
        )
    }
}

/// How much of the output has been passed on.
#[derive(Default)]
struct Seen {
    offset: Option<u64>,
}

enum Broken {
    Connection(ClientError),
    Output(Failure),
}

async fn pass_on(mut stream: ByteStream, seen: &mut Seen) -> Result<(), Broken> {
    let mut offset = stream.offset().or(seen.offset).unwrap_or(0);
    while let Some(bytes) = stream.next().await.map_err(Broken::Connection)? {
        write_through(&bytes).await.map_err(|error| Broken::Output(error.into()))?;
        offset += bytes.len() as u64;
        seen.offset = Some(offset);
    }
    Ok(())
}
