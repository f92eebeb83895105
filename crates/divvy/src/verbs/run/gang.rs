//! The output of a gang that is attached: lines, each with its task in front.

use divvy_api::client::{Ask, ByteStream};
use divvy_api::{Client, JobFile, Sockets, paths};
use tokio::sync::mpsc;

use crate::output::say;
use crate::pool;

/// How many tasks are streamed. Each but the first takes a connection, and the daemon serves 4,096 at once.
const MOST_STREAMED: u32 = 256;

/// The longest line that is waited for. A longer one is broken, so that a task cannot fill the memory.
const LONGEST_LINE_BYTES: usize = 64 << 10;

/// How many pieces of other tasks may wait to be written.
const PIECES_WAITING: usize = 16;

/// The most tasks that a job has at once.
pub(super) fn most_tasks(job: &JobFile) -> u32 {
    if job.roles.is_empty() {
        return job.max_tasks.or(job.tasks).unwrap_or(1);
    }
    job.roles.iter().map(|role| role.max_tasks.or(role.tasks).unwrap_or(1)).fold(0, u32::saturating_add)
}

/// The output of one task as lines with the task in front.
#[derive(Debug)]
pub(super) struct Lines {
    rank: u32,
    begun: Vec<u8>,
}

impl Lines {
    /// Of this task.
    pub(super) fn of(rank: u32) -> Self {
        Self { rank, begun: Vec::new() }
    }

    /// Takes further bytes, and returns the lines that they complete.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut done = Vec::with_capacity(bytes.len());
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.move_to(&mut done);
            } else if self.begun.len() >= LONGEST_LINE_BYTES {
                done.extend(self.finish());
            }
        }
        done
    }

    /// Returns the last line, if the output does not end with a line break.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let mut done = Vec::new();
        if !self.begun.is_empty() {
            self.begun.push(b'\n');
            self.move_to(&mut done);
        }
        done
    }

    fn move_to(&mut self, done: &mut Vec<u8>) {
        done.extend_from_slice(format!("[t{}] ", self.rank).as_bytes());
        done.append(&mut self.begun);
    }
}

/// Streams the other tasks of a job, and returns their lines as they come. They end when the job has.
pub(super) fn others(sockets: &Sockets, id: &str, tasks: u32) -> mpsc::Receiver<Vec<u8>> {
    if tasks > MOST_STREAMED {
        say(&format!(
            "only the first {MOST_STREAMED} tasks are streamed; divvy logs --task N {id} shows another"
        ));
    }
    let (to, others) = mpsc::channel(PIECES_WAITING);
    for rank in 1..tasks.min(MOST_STREAMED) {
        tokio::spawn(follow(sockets.clone(), id.to_owned(), rank, to.clone()));
    }
    others
}

/// Passes on the lines of a task until its job has ended.
async fn follow(sockets: Sockets, id: String, rank: u32, to: mpsc::Sender<Vec<u8>>) {
    let Ok(mut client) = Client::connect(&sockets).await else { return };
    let mut lines = Lines::of(rank);
    let mut offset = 0;
    loop {
        let from = [
            ("task", Some(rank.to_string())),
            ("from", Some(u64::to_string(&offset))),
            ("follow", Some("true".into())),
        ];
        let ask = Ask::get(paths::with_query(&paths::output(&id), &from));
        let Some(mut stream) = stream_of(&mut client, &ask).await else { return };
        offset = stream.offset().unwrap_or(offset);
        loop {
            match stream.next().await {
                Ok(Some(bytes)) => {
                    offset += bytes.len() as u64;
                    if to.send(lines.take(&bytes)).await.is_err() {
                        return;
                    }
                }
                Ok(None) => return drop(to.send(lines.finish()).await),
                // The daemon is being restarted. The job writes on.
                Err(error) if error.is_away() => break,
                Err(_) => return,
            }
        }
    }
}

/// Begins a stream, as soon as a daemon answers. A task that never ran has no output.
async fn stream_of(client: &mut Client, ask: &Ask) -> Option<ByteStream> {
    loop {
        match client.stream(ask).await {
            Ok(stream) => return Some(stream),
            Err(error) if error.is_away() => pool::reconnect(client).await.ok()?,
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_arrive_whole_with_their_task_in_front() {
        let mut lines = Lines::of(3);
        assert_eq!(lines.take(b"one\ntw"), b"[t3] one\n");
        assert_eq!(lines.take(b"o\n\nthr"), b"[t3] two\n[t3] \n");
        assert_eq!(lines.finish(), b"[t3] thr\n");
        assert!(lines.finish().is_empty());
        let long = lines.take(&[b'x'; LONGEST_LINE_BYTES]);
        assert!(long.len() > LONGEST_LINE_BYTES && long.ends_with(b"x\n"));
    }

    #[test]
    fn the_tasks_of_all_roles_are_counted() {
        let job = |text: &str| most_tasks(&divvy_api::read::job_file(text).unwrap());
        assert_eq!([job("command: x"), job("tasks: 4"), job("tasks: 2\nmax_tasks: 6")], [1, 4, 6]);
        assert_eq!(job("roles:\n  - {name: a, tasks: 2}\n  - {name: b}\n"), 3);
    }
}
