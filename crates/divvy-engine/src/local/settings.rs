//! The settings with which a local engine is opened, and what can be wrong with them.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use divvy_core::id::Term;
use divvy_gpu::{HostError, Source, SourceError};

/// What a local engine needs to know of its pool.
pub struct Settings {
    /// The state directory, which exists. Environments, output and records of the tasks are kept in it.
    pub state: PathBuf,
    /// The daemon's socket, for the environment of the tasks.
    pub socket: PathBuf,
    /// The program whose `main` calls [`supervisor_main`](super::supervisor_main) first. It is opened once.
    pub program: PathBuf,
    /// The daemon's term, above that of all earlier daemons on this state.
    pub term: Term,
    /// What the node is called.
    pub node: String,
    /// The source of the machine's devices; without it, neither node nor devices are observed.
    pub devices: Option<Source>,
    /// Whether free devices are checked for use by others.
    pub foreign: bool,
    /// How often devices are sampled.
    pub sample_every: Duration,
    /// How much of an output file in the state directory is kept at most, in bytes: its end.
    pub kept_output_most_bytes: u64,
    /// How long output files in the state directory are kept after they were last written to.
    pub kept_output_age: Duration,
    /// Called when there is something to observe, from any thread; must not block.
    pub wake: Box<dyn Fn() + Send + Sync>,
}

impl Settings {
    /// The usual settings: this very program, no devices, 1 GiB of output kept for 30 days.
    pub fn new(
        state: impl Into<PathBuf>,
        socket: impl Into<PathBuf>,
        term: Term,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self {
            state: state.into(),
            socket: socket.into(),
            program: "/proc/self/exe".into(),
            term,
            node: "local".into(),
            devices: None,
            foreign: true,
            sample_every: Duration::from_secs(1),
            kept_output_most_bytes: 1 << 30,
            kept_output_age: Duration::from_secs(30 * 86_400),
            wake: Box::new(wake),
        }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Settings");
        shown
            .field("state", &self.state)
            .field("term", &self.term)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

/// Why a local engine cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Something of the state directory cannot be used.
    #[error("{doing} {}: {source}; the state directory must be on a local disk and belong to the pool's user", path.display())]
    State {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A later daemon has been here.
    #[error(
        "opening the engine with term {given}: term {seen} has been seen here; another daemon uses this state directory"
    )]
    StaleTerm {
        /// The term given.
        given: Term,
        /// The highest one seen.
        seen: Term,
    },
    /// The system refused something that the engine's thread needs.
    #[error("starting the engine: {0}; look at the limits of open files and processes (`ulimit -a`)")]
    System(#[from] io::Error),
    /// The machine's devices cannot be found out.
    #[error(transparent)]
    Devices(#[from] SourceError),
    /// The machine cannot be identified.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl OpenError {
    /// Makes the error of a step on a path.
    pub(crate) fn state(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::State { doing, path, source }
    }
}

/// Returns the highest term that an engine on this state has seen.
pub fn last_term(state: &Path) -> io::Result<Option<Term>> {
    match fs::read_to_string(state.join("term")) {
        Ok(text) => text.trim().parse().map(|term| Some(Term(term))).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Keeps a term, renamed into place.
pub(crate) fn keep_term(state: &Path, term: Term) -> io::Result<()> {
    let mut private = OpenOptions::new();
    private.write(true).create(true).truncate(true).mode(0o600);
    private.open(state.join("term.new"))?.write_all(term.to_string().as_bytes())?;
    fs::rename(state.join("term.new"), state.join("term"))
}
