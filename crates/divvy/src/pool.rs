//! Reaching the pool: finding its socket, and sending requests.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use divvy_api::client::Ask;
use divvy_api::{Client, ClientError, JobsQuery, Page, Sockets, paths};
use serde_json::value::RawValue;

use crate::exit::Exit;
use crate::failure::Failure;

/// Which pool is meant.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Place {
    /// The daemon's socket
    #[arg(long, global = true, value_name = "PATH", help_heading = "Pool")]
    pub(crate) socket: Option<PathBuf>,
    /// The pool's state directory
    #[arg(long, global = true, value_name = "DIR", help_heading = "Pool")]
    pub(crate) state: Option<PathBuf>,
}

impl Place {
    /// The sockets to try.
    pub(crate) fn sockets(&self) -> Sockets {
        Sockets::from_env(self.socket.clone(), self.state.clone())
    }

    /// The state directory: from the command line, from the environment, or the default.
    pub(crate) fn state_dir(&self) -> PathBuf {
        let variable = || self.sockets().state_variable.map(PathBuf::from);
        self.state.clone().or_else(variable).unwrap_or_else(divvy_server::usual_state)
    }
}

/// Connects to the pool and does some asynchronous work with it, on this thread.
pub(crate) fn with_client<T>(
    place: &Place,
    work: impl AsyncFnOnce(Client) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let sockets = place.sockets();
    runtime()?.block_on(async {
        let client = Client::connect(&sockets).await?;
        work(client).await
    })
}

/// A runtime on this thread: nothing starts that the verb does not need.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Internal, format!("cannot start: {error}")))
}

/// The rows of a listing that is not paged.
pub(crate) async fn rows(client: &mut Client, path: &str) -> Result<Vec<Box<RawValue>>, Failure> {
    Ok(client.get(path).await?)
}

/// The most rows per request.
const PAGE_ROWS: u32 = 1000;

/// The rows of all pages, up to `limit`. The second value says whether there are more.
pub(crate) async fn jobs(
    client: &mut Client,
    query: &JobsQuery,
    limit: Option<u64>,
) -> Result<(Vec<Box<RawValue>>, bool), Failure> {
    let mut rows: Vec<Box<RawValue>> = Vec::new();
    let mut query = query.clone();
    loop {
        let left = limit.map_or(u64::MAX, |limit| limit.saturating_sub(rows.len() as u64));
        query.limit = Some(u32::try_from(left).unwrap_or(PAGE_ROWS).clamp(1, PAGE_ROWS));
        let page: Page<Box<RawValue>> = client.ask(&Ask::get(jobs_path(&query))).await?;
        rows.extend(page.items);
        let full = limit.is_some_and(|limit| rows.len() as u64 >= limit);
        match page.next {
            // A cursor that does not advance would loop for ever.
            Some(next) if !full && query.after.as_ref() != Some(&next) => query.after = Some(next),
            next => return Ok((rows, next.is_some())),
        }
    }
}

/// The newest `limit` jobs, oldest first. The second value says whether there are more.
pub(crate) async fn newest_jobs(
    client: &mut Client,
    query: &JobsQuery,
    limit: u64,
) -> Result<(Vec<Box<RawValue>>, bool), Failure> {
    let query = JobsQuery { newest: true, ..query.clone() };
    // Two rows at least: a single one does not show in which order the daemon lists.
    let (mut rows, mut more) = jobs(client, &query, Some(limit.max(2))).await?;
    if more && !begins_with_the_newest(&rows) {
        // A daemon that does not know `newest` begins with the oldest job: then all jobs are requested.
        rows = jobs(client, &JobsQuery { newest: false, ..query }, None).await?.0;
    }
    rows.sort_by_key(|row| order(row));
    let surplus = rows.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
    more |= surplus > 0;
    rows.drain(..surplus);
    Ok((rows, more))
}

/// Whether the rows show that the daemon lists the newest job first. Fewer than two do not show it.
fn begins_with_the_newest(rows: &[Box<RawValue>]) -> bool {
    matches!(rows, [first, .., last] if order(first) >= order(last))
}

/// The sort key of a job: jobs in the order of submission, members of an array by index.
fn order(row: &RawValue) -> (u64, u64) {
    #[derive(serde::Deserialize)]
    struct Named {
        id: String,
    }
    let id = serde_json::from_str::<Named>(row.get()).map(|named| named.id).unwrap_or_default();
    let (number, member) = id.split_once('_').unwrap_or((&id, "0"));
    (number.parse().unwrap_or(u64::MAX), member.parse().unwrap_or(u64::MAX))
}

/// The path that lists jobs.
pub(crate) fn jobs_path(query: &JobsQuery) -> String {
    let flag = |flag: bool| flag.then(|| "true".to_owned());
    paths::with_query(
        paths::JOBS,
        &[
            ("all", flag(query.all)),
            ("user", query.user.clone()),
            ("queue", query.queue.clone()),
            ("state", query.state.clone()),
            ("job", query.job.clone()),
            ("limit", query.limit.map(|limit| limit.to_string())),
            ("after", query.after.clone()),
            ("newest", flag(query.newest)),
            ("start", flag(query.start)),
        ],
    )
}

/// How long a daemon may be away before it counts as gone: a restart with a log of a million events takes 2 s.
const AWAY_MOST: Duration = Duration::from_secs(60);

/// Asks, and repeats the request while the daemon is away, for example during an upgrade. Jobs run on meanwhile. The
/// request must be safe to repeat.
pub(crate) async fn patiently<T>(
    client: &mut Client,
    mut ask: impl AsyncFnMut(&mut Client) -> Result<T, ClientError>,
) -> Result<T, Failure> {
    let begun = Instant::now();
    loop {
        match ask(client).await {
            Ok(answer) => return Ok(answer),
            Err(error) if error.is_away() && begun.elapsed() < AWAY_MOST => reconnect(client).await?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reconnects, as soon as a daemon listens.
pub(crate) async fn reconnect(client: &mut Client) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(20);
    loop {
        match client.reconnect().await {
            Ok(()) => return Ok(()),
            Err(error) if begun.elapsed() > AWAY_MOST => return Err(error.into()),
            Err(_) => tokio::time::sleep(pause).await,
        }
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_row_does_not_show_in_which_order_a_daemon_lists() {
        let rows = |ids: &[&str]| -> Vec<Box<RawValue>> {
            ids.iter().map(|id| RawValue::from_string(format!(r#"{{"id":"{id}"}}"#)).unwrap()).collect()
        };
        assert!(
            begins_with_the_newest(&rows(&["3", "2"]))
                && begins_with_the_newest(&rows(&["10_2", "10_1", "9"]))
        );
        assert!(!begins_with_the_newest(&rows(&["2", "3"])));
        assert!(!begins_with_the_newest(&rows(&["3"])) && !begins_with_the_newest(&rows(&[])));
    }
}
