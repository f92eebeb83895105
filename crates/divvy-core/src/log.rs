//! The log: append-only, durable before any effect.

use crate::event::Stamped;
use crate::id::{Position, Term};

/// The events of one commit, in order. Either all of them are in the log or none is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Commit {
    /// The term that appends it.
    pub term: Term,
    /// The position of the last event before it.
    pub after: Position,
    /// At least one event.
    pub events: Vec<Stamped>,
}

/// Why a commit is not in the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// There is no room for it; it may be tried again later.
    #[error("the log cannot grow: {0}")]
    Full(String),
    /// Another writer has appended meanwhile, or a later term has begun.
    #[error("the log has moved on: {0}")]
    Overtaken(String),
    /// Anything else.
    #[error("the log cannot be written: {0}")]
    Failed(String),
}

/// An append-only log. When `append` returns, the commit survives a power cut; when it fails, the log holds none of it.
pub trait Log {
    /// Appends one commit and makes it durable.
    fn append(&mut self, commit: &Commit) -> Result<Position, LogError>;
}
