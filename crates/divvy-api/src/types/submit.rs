//! Submitting a job.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Blocker, FunnelStep, JobFile, MadeRoom, Verdict};

/// A request to run a job: what is wanted, and what the submitting shell has.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Submit {
    /// What is wanted.
    pub job: JobFile,
    /// The working directory, absolute; `job.directory` is relative to it.
    #[serde(default)]
    pub directory: String,
    /// Permissions that new files do not get.
    #[serde(default = "usual_umask")]
    pub umask: u32,
    /// Limits of the submitting shell.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// The whole environment of the job, secret. `job.env` is in it already.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// A unix socket on which a terminal waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<String>,
    /// Whether someone watches: the answer is a stream of attach frames, and the output is kept in the state directory.
    #[serde(default)]
    pub attached: bool,
    /// Whether to only say what would happen: the answer is a [`Trial`], and nothing is logged.
    #[serde(default)]
    pub dry_run: bool,
}

fn usual_umask() -> u32 {
    0o022
}

/// Shows all but the values of the environment: they are secret.
impl fmt::Debug for Submit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submit")
            .field("job", &self.job)
            .field("directory", &self.directory)
            .field("environment", &self.environment.keys().collect::<Vec<_>>())
            .field("attached", &self.attached)
            .field("dry_run", &self.dry_run)
            .finish_non_exhaustive()
    }
}

/// A limit of the submitting shell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Limit {
    /// As in `prlimit`: `NOFILE`.
    pub name: String,
    /// What applies; `u64::MAX` is no limit.
    pub soft: u64,
    /// How far the job may raise it.
    pub hard: u64,
}

/// The answer to a submission.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Submitted {
    /// The job, or the array as a whole.
    pub id: String,
    /// The members of an array; 0 for a single job.
    pub members: u64,
    /// What the user should know: `gets 8 cores and 32Gi: its share of the node for 1 GPU; say -c and --mem to choose`.
    pub notices: Vec<String>,
}

/// The answer to a dry run.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Trial {
    /// What the next cycle would find.
    pub verdict: Verdict,
    /// All that stands in its way, in order.
    #[serde(default)]
    pub blockers: Vec<Blocker>,
    /// How many devices were left after each filter.
    #[serde(default)]
    pub funnel: Vec<FunnelStep>,
    /// Where each task would go, if it could start now.
    #[serde(default)]
    pub placements: Vec<TrialPlacement>,
    /// Who would give way for it.
    #[serde(default)]
    pub made_room: Vec<MadeRoom>,
    /// What the user should know.
    #[serde(default)]
    pub notices: Vec<String>,
}

/// Where a task would go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct TrialPlacement {
    /// The task's rank.
    pub task: u32,
    /// The machine.
    pub node: String,
    /// Numbers of its devices on that machine.
    pub indices: Vec<u32>,
    /// The same by UUID.
    pub devices: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_never_shows_in_debug_output() {
        let mut submit = Submit::default();
        submit.environment.insert("TOKEN".into(), "s3cret".into());
        let shown = format!("{submit:?}");
        assert!(shown.contains("TOKEN") && !shown.contains("s3cret"), "{shown}");
    }
}
