//! A task's output, starting at a byte, for as long as its job lasts.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::body::Bytes;
use divvy_core::id::JobId;
use divvy_core::model::job::Owner;
use rustix::fs::SeekFrom;
use tokio::sync::watch;

use super::answer::Refused;
use super::show;
use crate::growth::Following;
use crate::guise;
use crate::pool::Pool;

/// How much is read and sent at once.
const PIECE_BYTES: usize = 64 << 10;

/// An output that is read.
pub(super) struct Follow {
    pool: Arc<Pool>,
    id: JobId,
    rank: u32,
    owner: Owner,
    news: watch::Receiver<u64>,
    file: Option<File>,
    grown: Option<Following>,
    at: u64,
    over: bool,
    /// Whether to wait for output that is not written yet.
    follows: bool,
}

/// What happened next while following.
pub(super) enum Step {
    /// Bytes of output.
    Bytes(Bytes),
    /// News about the job: its state may have changed.
    News,
    /// The job has ended for good, and all output was sent.
    Over,
}

impl Follow {
    /// Opens the output of a job's task at a byte. The caller must have checked who may read it.
    pub(super) async fn new(
        pool: Arc<Pool>,
        id: JobId,
        owner: Owner,
        (rank, from): (u32, u64),
        follows: bool,
    ) -> Result<Self, Refused> {
        let news = pool.watchers.subscribe(id.number);
        let (file, grown, at, over) = (None, None, from, false);
        let mut follow = Self { pool, id, rank, owner, news, file, grown, at, over, follows };
        follow.look().await?;
        Ok(follow)
    }

    /// Returns where the next byte comes from, as far as is known: earlier output may be gone.
    pub(super) fn at(&mut self) -> io::Result<u64> {
        if let Some(file) = &self.file {
            self.at = data_from(file, self.at)?.unwrap_or(self.at);
        }
        Ok(self.at)
    }

    /// Whether there is a file yet.
    pub(super) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Whether the job has ended for good.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Moves to the beginning of the last lines.
    pub(super) fn skip_to_last_lines(&mut self, lines: u64) -> io::Result<()> {
        if let Some(file) = &self.file {
            self.at = start_of_last_lines(file, lines)?;
        }
        Ok(())
    }

    /// Returns what is there now, without waiting; `None` at the end.
    pub(super) fn read_on(&mut self) -> io::Result<Option<Bytes>> {
        let Some(file) = &self.file else { return Ok(None) };
        let Some(at) = data_from(file, self.at)? else { return Ok(None) };
        let mut piece = vec![0; PIECE_BYTES];
        let read = file.read_at(&mut piece, at)?;
        piece.truncate(read);
        self.at = at + read as u64;
        Ok((read > 0).then(|| piece.into()))
    }

    /// Waits for what happens next.
    pub(super) async fn next(&mut self) -> io::Result<Step> {
        loop {
            if let Some(bytes) = self.read_piece().await? {
                return Ok(Step::Bytes(bytes));
            }
            if self.over {
                return Ok(Step::Over);
            }
            let grown = async {
                match &mut self.grown {
                    Some(grown) => grown.grown().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                told = self.news.changed() => {
                    if told.is_err() {
                        self.news = self.pool.watchers.subscribe(self.id.number);
                    }
                    self.look().await.map_err(|refused| io::Error::other(refused.0.to_string()))?;
                    return Ok(Step::News);
                }
                () = grown => {}
            }
        }
    }

    /// A user's file may be on slow storage: such reads must not hold up others.
    async fn read_piece(&mut self) -> io::Result<Option<Bytes>> {
        tokio::task::block_in_place(|| self.read_on())
    }

    /// Finds out whether the job is over, and opens its output as soon as there is a file.
    async fn look(&mut self) -> Result<(), Refused> {
        let open = {
            let controller = self.pool.controller.read().await;
            let job = controller.state().jobs.get(&self.id.number);
            let run = job.and_then(|job| job.run(self.id.member));
            run.map(|run| run.outputs.get(&self.rank).cloned())
        };
        let path = match open {
            // Between two attempts only the last one's output exists. A follower goes on with the next one's.
            Some(None) if !self.follows && self.file.is_none() => self.past_output().await?,
            Some(path) => path,
            None => {
                self.over = true;
                if self.file.is_some() {
                    return Ok(());
                }
                self.past_output().await?
            }
        };
        if let (None, Some(path)) = (&self.file, path) {
            self.open(PathBuf::from(path)).await;
        }
        Ok(())
    }

    async fn past_output(&self) -> Result<Option<String>, Refused> {
        let output = |attempt: &divvy_core::model::attempt::Attempt| {
            attempt.outputs.get(self.rank as usize).cloned().flatten()
        };
        if let Some(ending) = self.pool.watchers.ending(self.id) {
            return Ok(output(&ending));
        }
        Ok(show::past(&self.pool, self.id).await?.iter().rev().find_map(output))
    }

    async fn open(&mut self, path: PathBuf) {
        let opened = open(&self.pool, &self.owner, path).await;
        if let Ok(file) = opened {
            self.grown = self
                .pool
                .growth
                .follow(&file)
                .inspect_err(|error| tracing::warn!("cannot follow a file: {error}"))
                .ok();
            self.file = Some(file);
        }
    }
}

/// Opens output: a kept file as the daemon, any other file as the user whose job wrote it.
pub(super) async fn open(pool: &Arc<Pool>, owner: &Owner, path: PathBuf) -> io::Result<File> {
    if is_kept(&pool.settings.state, &path) {
        return File::open(&path);
    }
    let owner = owner.clone();
    pool.blocking(move || guise::open(&owner, &path))
        .await
        .unwrap_or_else(|| Err(io::ErrorKind::Other.into()))
}

fn is_kept(state: &Path, path: &Path) -> bool {
    path.starts_with(state.join("output"))
        && !path.components().any(|part| part == std::path::Component::ParentDir)
}

/// Returns the first byte from `at` on that still exists: the beginning may have been released. `None` at the end.
fn data_from(file: &File, at: u64) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(found) => Ok(Some(found)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        // A file system without support for holes has none.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => Ok(Some(at)),
        Err(error) => Err(error.into()),
    }
}

/// How far back to search for the beginning of the last lines.
const FURTHEST_BACK_BYTES: u64 = 16 << 20;

/// Returns where the last lines begin. A last line without a newline counts.
pub(super) fn start_of_last_lines(file: &File, lines: u64) -> io::Result<u64> {
    let end = file.metadata()?.len();
    let first = data_from(file, 0)?.unwrap_or(end).max(end.saturating_sub(FURTHEST_BACK_BYTES));
    let (mut at, mut ends) = (end, 0);
    let mut piece = vec![0; PIECE_BYTES];
    if lines == 0 {
        return Ok(end);
    }
    while at > first {
        let from = at.saturating_sub(PIECE_BYTES as u64).max(first);
        let length = usize::try_from(at - from).unwrap_or(PIECE_BYTES);
        file.read_exact_at(&mut piece[..length], from)?;
        for (index, byte) in piece[..length].iter().enumerate().rev() {
            let place = from + index as u64;
            // The newline of the last line itself ends no line before it.
            if *byte == b'\n' && place + 1 < end {
                ends += 1;
                if ends == lines {
                    return Ok(place + 1);
                }
            }
        }
        at = from;
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_last_lines_begin_where_they_begin() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"one\ntwo\nthree\n").unwrap();
        let start = |lines| start_of_last_lines(&file, lines).unwrap();
        assert_eq!((start(0), start(1), start(2), start(3), start(9)), (14, 8, 4, 0, 0));
        file.write_all_at(b"four", 14).unwrap();
        assert_eq!(start_of_last_lines(&file, 1).unwrap(), 14);
    }

    #[test]
    fn lines_longer_than_a_piece_are_found() {
        let mut file = tempfile::tempfile().unwrap();
        let long = vec![b'x'; 3 * PIECE_BYTES];
        file.write_all(&long).unwrap();
        file.write_all(b"\n").unwrap();
        file.write_all(&long).unwrap();
        assert_eq!(start_of_last_lines(&file, 1).unwrap(), 3 * PIECE_BYTES as u64 + 1);
    }

    #[test]
    fn what_was_released_is_skipped() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"tail", 1 << 20).unwrap();
        let first = data_from(&file, 5).unwrap().unwrap();
        assert!(first > 5 && first <= 1 << 20);
        assert_eq!(data_from(&file, (1 << 20) + 4).unwrap(), None);
    }

    #[test]
    fn only_what_lies_in_the_folder_of_kept_output_is_opened_as_the_daemon() {
        let state = Path::new("/s");
        assert!(is_kept(state, Path::new("/s/output/12/0.log")));
        for other in
            ["/s/output/../divvy.db", "/s/environments/1.json", "/home/ana/divvy-1.out", "/s/outputs/x"]
        {
            assert!(!is_kept(state, Path::new(other)), "{other}");
        }
    }
}
