//! The pool as a whole.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A version of the API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApiVersion {
    /// A different major version is a different API.
    pub major: u32,
    /// Rises when something is added.
    pub minor: u32,
}

impl ApiVersion {
    /// Parses `1.0`.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }

    /// Returns whether a client of this version works with a daemon of that one.
    pub fn works_with(self, daemon: ApiVersion) -> bool {
        self.major == daemon.major && self.minor.abs_diff(daemon.minor) <= 1
    }
}

impl std::fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The pool: who serves it, from where, and how much of it there is.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Pool {
    /// The API that the daemon speaks.
    pub api: ApiVersion,
    /// The daemon's version.
    pub version: String,
    /// The daemon's process id.
    pub pid: u32,
    /// When the daemon started.
    pub started_ms: i64,
    /// The machine's name.
    pub node: String,
    /// The state directory.
    pub state: String,
    /// The socket that clients use.
    pub socket: String,
    /// Where the devices come from: `nvml`, `pretend` or `none`.
    pub source: String,
    /// Whether the daemon is root: then every user may submit, and jobs run as their submitter.
    pub as_root: bool,
    /// The only user who may submit, where the daemon is not root.
    pub user: Option<String>,
    /// Devices in the pool.
    pub gpus: u64,
    /// Of these, free.
    pub gpus_free: u64,
    /// Milli-cores of the pool.
    pub cpu_milli: i64,
    /// Milli-cores held by jobs.
    pub cpu_held_milli: i64,
    /// Bytes of host memory of the pool.
    pub memory_bytes: i64,
    /// Bytes of host memory held by jobs.
    pub memory_held_bytes: i64,
    /// Jobs that run, start or stop.
    pub running: u64,
    /// Jobs that wait or are held.
    pub waiting: u64,
    /// The last position in the log.
    pub position: u64,
    /// Whether the pool takes submissions; otherwise `warnings` says why not.
    pub accepts: bool,
    /// What a person should know: pretended devices, a full disk, a recovered tail of the log.
    pub warnings: Vec<String>,
}

/// What the checker of the laws found.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Check {
    /// Empty if every law held.
    pub violations: Vec<Violation>,
    /// Events in the log.
    pub events: u64,
    /// Cycles planned.
    pub cycles: u64,
}

/// A law that did not hold.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Violation {
    /// Its name: `L7`.
    pub law: String,
    /// What was found.
    pub text: String,
}

/// How the daemon is asked to end.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Shutdown {
    /// What happens to the jobs.
    pub mode: ShutdownMode,
}

/// What happens to the jobs when the daemon ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ShutdownMode {
    /// They run on; the next daemon takes them over.
    Leave,
    /// Nothing new starts; the daemon ends when the last one has ended.
    Drain,
    /// They are stopped first.
    Kill,
}

/// The daemon's answer to a shutdown; it ends after that.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ShutdownBegun {
    /// The daemon's process id, so that its end can be awaited.
    pub pid: u32,
    /// Jobs that run, start or stop.
    pub running: u64,
    /// Jobs that wait.
    pub waiting: u64,
}

/// A page about a code that can be a job's reason.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ReasonPage {
    /// The code: `DV-OVER-QUOTA`.
    pub code: String,
    /// What it means, in a sentence.
    pub text: String,
    /// What to do about it.
    pub fix: String,
}

/// One page of a listing.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// Goes into `after` of the next request; null on the last page.
    #[serde(default)]
    pub next: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_minor_version_apart_works_and_another_major_does_not() {
        let version = |major, minor| ApiVersion { major, minor };
        assert!(version(1, 0).works_with(version(1, 1)) && version(1, 2).works_with(version(1, 1)));
        assert!(!version(1, 0).works_with(version(1, 2)) && !version(1, 0).works_with(version(2, 0)));
    }

    #[test]
    fn keys_that_a_newer_daemon_adds_or_an_older_one_lacks_do_no_harm() {
        let pool: Pool = serde_json::from_str(r#"{"version":"9","moon":"full"}"#).unwrap();
        assert_eq!((pool.version.as_str(), pool.gpus), ("9", 0));
    }
}
