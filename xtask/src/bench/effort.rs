//! How much is measured.

/// How often each thing is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Runs of each measure; a figure is the median of its runs.
    pub(super) runs: usize,
    /// Programs started per run: enough for a 99th percentile.
    pub(super) starts: usize,
    /// Members of the array that measures throughput.
    pub(super) jobs: usize,
    /// The same for peers, which take seconds for what takes Divvy a tenth of that.
    pub(super) peer_jobs: usize,
    /// Jobs that wait.
    pub(super) waiting: usize,
    /// Planning cycles per run.
    pub(super) cycles: usize,
    /// How long an idle daemon is watched, in seconds.
    pub(super) idle_s: u64,
    /// Rounds of the bare loop per run.
    pub(super) rounds: usize,
}

impl Effort {
    /// What the published figures are made with.
    pub(super) const FULL: Effort = Effort {
        runs: 5,
        starts: 200,
        jobs: 2_000,
        peer_jobs: 200,
        waiting: 100_000,
        cycles: 100,
        idle_s: 10,
        rounds: 500,
    };

    /// Enough to see that everything works.
    pub(super) const QUICK: Effort = Effort {
        runs: 1,
        starts: 20,
        jobs: 200,
        peer_jobs: 40,
        waiting: 10_000,
        cycles: 20,
        idle_s: 2,
        rounds: 100,
    };
}
