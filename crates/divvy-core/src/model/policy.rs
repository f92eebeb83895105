//! The policy: the settings of the planner, part of the state and changed by events like everything else.

use std::fmt;

use serde::{Deserialize, Serialize};

mod sound;
mod text;

pub use sound::{Nonsense, nonsense, nonsense_in_a_pool};
pub use text::{BadPolicy, parse, said};
use text::{cap, cap_said, newer_ms, spans_ms};
pub(super) use text::{place_of, span_ms, without_unit};

use super::borrowing::BorrowEvicts;
use super::moves::{First, Moves};
use super::newer::Newer;
use super::prices::Prices;
use super::score::Score;
use crate::time::Span;

/// How waiting (and, with preemption, running) jobs are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Priority, plus waiting time at one rate.
    #[default]
    Arrival,
    /// Priority, then the smallest size by estimate: see [`Shortest`].
    Shortest,
    /// Priority, then the least service attained, in levels: see [`Attained`].
    Attained,
}

/// What `shortest` compares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Shortest {
    /// The whole length, or what is left of it.
    pub of: Length,
    /// Whether lengths are multiplied by the devices asked for: device-time instead of time.
    pub by_devices: bool,
}

/// Which part of a job's length counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Length {
    /// All of it.
    #[default]
    Whole,
    /// What its progress has left; once nothing is left by the estimate, the progress itself.
    Remaining,
}

/// What `attained` compares.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Attained {
    /// Where levels end, rising, in device-milliseconds of service. Jobs in lower levels go first.
    #[serde(alias = "levels", deserialize_with = "spans_ms")]
    pub levels_device_ms: Vec<i64>,
    /// Service that every job starts with, per device: large jobs begin in a higher level.
    #[serde(alias = "head_start", deserialize_with = "span_ms")]
    pub head_start_ms: i64,
    /// The order inside a level.
    pub within: Within,
    /// How long a run goes before all other jobs, counted from its start.
    #[serde(alias = "hold", deserialize_with = "span_ms")]
    pub hold_ms: i64,
    /// What replaces all this for jobs whose estimate has an outlook.
    pub foreseen: Foreseen,
}

/// The order of jobs for which a forecast says how soon they end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Foreseen {
    /// Where levels end, rising, in milliseconds of device time per end. Within a level, jobs go by submission. Empty: outlooks are not
    /// looked at.
    #[serde(alias = "levels", deserialize_with = "spans_ms")]
    pub levels_device_ms: Vec<i64>,
    /// How long a run goes before all other jobs, counted from its start.
    #[serde(alias = "hold", deserialize_with = "span_ms")]
    pub hold_ms: i64,
}

/// The order inside a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Within {
    /// By submission.
    #[default]
    Submit,
    /// Running jobs before waiting ones, each by when it last arrived, started, was stopped or fell a level.
    Turn,
    /// The longest time since submission per device asked for; in a strict order, by submission.
    AgePerDevice,
}

/// Whether running jobs give way to jobs ahead of them in the order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preempt {
    /// Running jobs never give way.
    Off,
    /// Jobs are walked in order and chosen by count; running jobs that are not chosen give way where their places are wanted.
    Walk,
    /// A job that does not fit takes the places of the jobs that lose least: jobs of lower priority in its own queue, and jobs of queues
    /// beyond their due while its own queue stays within its due.
    #[default]
    LeastLoss,
}

/// From which jobs in its own queue a job may take devices, under `least_loss`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WithinQueue {
    /// None.
    Never,
    /// Jobs of lower priority.
    #[default]
    Lower,
    /// Jobs of lower priority, and jobs of equal priority that were submitted later.
    LowerOrNewer,
}

/// From which jobs a job may take devices in other queues that are beyond their due, under `least_loss`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reclaim {
    /// None.
    Never,
    /// Jobs of lower priority.
    Lower,
    /// All jobs.
    #[default]
    Any,
}

impl fmt::Display for Reclaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Never => "never",
            Self::Lower => "lower",
            Self::Any => "any",
        })
    }
}

/// How the pool is divided between queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// It is not divided: all jobs stand in one line.
    None,
    /// Guarantees first, then the surplus by weight, up to what each queue can use; each resource by itself.
    #[default]
    Fill,
    /// Guarantees first, then the surplus, so that what queues get beyond their guarantees is equal by weight; each queue is measured by
    /// the resource of which it gets the largest part of the whole.
    Dominant,
}

/// Which jobs go first among those that take their queues beyond what is guaranteed to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Surplus {
    /// Jobs of the queue that has least of what is due to it.
    Share,
    /// The first job overall in the order of the policy, whatever its queue has.
    Line,
}

/// For which claims a job is stopped that straddles its queue's guarantee: part of it within, part beyond, so that the queue is left with
/// less than is guaranteed to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Straddling {
    /// For what is guaranteed to the claim's queue.
    Guaranteed,
    /// For whatever the claim may take back: also what is due to its queue.
    Due,
}

/// The settings of the planner.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// How jobs are ordered.
    pub order: Order,
    /// What `shortest` compares.
    pub shortest: Shortest,
    /// What `attained` compares.
    pub attained: Attained,
    /// Whether the first job that does not fit holds back all jobs behind it.
    pub strict: bool,
    /// How the pool is divided between queues.
    pub share: Share,
    /// The time after which past use counts half when the pool is divided, in milliseconds; 0 if the past does not count.
    #[serde(alias = "half_life", deserialize_with = "span_ms")]
    pub half_life_ms: i64,
    /// The time over which a queue catches up on what it missed, in milliseconds.
    #[serde(alias = "catch_up", deserialize_with = "span_ms")]
    pub catch_up_ms: i64,
    /// Whether running jobs give way.
    pub preempt: Preempt,
    /// From which jobs in its own queue a job may take devices, unless the queue says otherwise.
    pub within_queue: WithinQueue,
    /// From which jobs it may take devices in queues that are beyond their due, unless the queue says otherwise.
    pub reclaim: Reclaim,
    /// By what right a job takes devices of other queues beyond what is guaranteed to its own queue, unless the queue says otherwise.
    pub borrow_evicts: BorrowEvicts,
    /// For how many of the first jobs that wait for room it is kept at the earliest time that limits and estimates allow; other jobs run
    /// around them.
    pub reserve: u32,
    /// The waiting time, in milliseconds, after which devices that become free are collected for the first of those jobs whose start cannot
    /// be foretold.
    #[serde(alias = "collect_after", deserialize_with = "span_ms")]
    pub collect_after_ms: i64,
    /// How many devices may be collected for that job at most.
    pub collect_devices: u32,
    /// How long a run is safe from other queues, counted from its start, in milliseconds.
    #[serde(alias = "min_runtime", deserialize_with = "span_ms")]
    pub min_runtime_ms: i64,
    /// Whether jobs within their queue's guarantee go before those that borrow.
    pub guarantees_first: bool,
    /// Whether, among those that borrow, running jobs go before waiting ones.
    pub borrowers_run_on: bool,
    /// How long a job waits for one point of priority, in milliseconds. The default lets a normal job pass a high one that came a week later.
    #[serde(alias = "ageing", deserialize_with = "span_ms")]
    pub ageing_ms_per_point: i64,
    /// Changes of a running job's place in the order take effect at multiples of this much of its progress.
    #[serde(alias = "step", deserialize_with = "span_ms")]
    pub step_ms: i64,
    /// The grace before the rest of a broken gang is killed, in milliseconds: the job's own grace, but at most this.
    #[serde(alias = "broken_gang_grace", deserialize_with = "span_ms")]
    pub broken_gang_grace_ms: i64,
    /// How nodes and devices are chosen among those that fit.
    pub score: Score,
    /// Whether tasks may have shares of a device: only if the engine can keep them to their shares.
    pub shares: bool,
    /// Whether gangs may grow while they run: only if the engine can start and stop single tasks of a gang. Otherwise those that start run
    /// with their least number of tasks, and those that have more keep these until others claim them.
    pub elastic: bool,
    /// How many running jobs a cycle moves elsewhere at most, so that others have room; 0 for none.
    pub most_moves: u32,
    /// The least gain in work, in percent, for which jobs whose asks name speeds move to faster devices than they have; 0 for never.
    pub speedup_percent: u32,
    /// The time without running after which a job gets a place before all others, in milliseconds, and also the least time between two such
    /// places; 0 or unsaid for never.
    #[serde(
        alias = "starve_after",
        default,
        deserialize_with = "newer_ms",
        skip_serializing_if = "Newer::is_unsaid"
    )]
    pub starve_after_ms: Newer<i64>,
    /// How long the job keeps that place, in milliseconds; unsaid for an hour, or for `starve_after` if that is less.
    #[serde(
        alias = "quantum",
        default,
        deserialize_with = "newer_ms",
        skip_serializing_if = "Newer::is_unsaid"
    )]
    pub quantum_ms: Newer<i64>,
    /// How long a job that had to give way is safe once it runs again, in milliseconds; 0 or unsaid for no such time.
    #[serde(
        alias = "cool_down",
        default,
        deserialize_with = "newer_ms",
        skip_serializing_if = "Newer::is_unsaid"
    )]
    pub cool_down_ms: Newer<i64>,
    /// How often a job gives way at most; [`NO_CAP`] or unsaid for as often as other jobs have a claim.
    #[serde(
        default,
        deserialize_with = "cap",
        serialize_with = "cap_said",
        skip_serializing_if = "Newer::is_unsaid"
    )]
    pub most_restarts: Newer<u32>,
    /// What device-hours of the models cost: sets how an hour of one model compares with an hour of another in the past, in budgets and in
    /// guarantees of GPU-hours; unsaid if all count alike.
    #[serde(skip_serializing_if = "Newer::is_unsaid")]
    pub prices: Newer<Prices>,
    /// How often each job and each queue may be moved in this way; unsaid for an hour of running between two moves of a job, and for no
    /// bound per queue but that of the cycle.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub moves: Newer<Moves>,
    /// Which jobs go first beyond what is guaranteed; unsaid for those of the queue that has least of what is due to it.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub surplus: Newer<Surplus>,
    /// For which claims jobs are stopped that straddle their queue's guarantee; unsaid for what is guaranteed.
    #[serde(default, skip_serializing_if = "Newer::is_unsaid")]
    pub straddling: Newer<Straddling>,
}

impl Policy {
    /// Whether queues have anything of their own: a part of the pool, or a claim to take devices back.
    pub fn divides(&self) -> bool {
        self.share != Share::None || self.preempt == Preempt::LeastLoss
    }

    /// One line for all jobs, in which none gives way: what schedulers without queues do, and the baseline for settings from the
    /// literature.
    pub fn one_line() -> Self {
        Self {
            share: Share::None,
            preempt: Preempt::Off,
            reserve: 0,
            speedup_percent: 0,
            starve_after_ms: Newer(None),
            cool_down_ms: Newer(None),
            most_restarts: Newer(None),
            moves: Newer(None),
            ..Self::default()
        }
    }

    /// Fills in settings that a text leaves out and that older logs lack, too: in a log, a missing one means what held before the setting
    /// existed; in a text, it means the default.
    pub(crate) fn completed(self) -> Self {
        let usual = Self::default();
        Self {
            starve_after_ms: Newer(self.starve_after_ms.0.or(usual.starve_after_ms.0)),
            cool_down_ms: Newer(self.cool_down_ms.0.or(usual.cool_down_ms.0)),
            most_restarts: Newer(self.most_restarts.0.or(usual.most_restarts.0)),
            moves: Newer(self.moves.0.or(usual.moves.0)),
            ..self
        }
    }

    /// The same policy with all of these settings said, as a text has to say them.
    pub(crate) fn spelled_out(&self) -> Self {
        Self {
            // Nothing stands for the default.
            quantum_ms: Newer(self.quantum_ms.0.filter(|ms| *ms > 0)),
            starve_after_ms: Newer(self.starve_after_ms.0.or(Some(0))),
            cool_down_ms: Newer(self.cool_down_ms.0.or(Some(0))),
            most_restarts: Newer(self.most_restarts.0.or(Some(NO_CAP))),
            moves: Newer(self.moves.0.or(Some(Moves::default()))),
            ..self.clone()
        }
    }

    /// The same policy with all settings said, as they are in force.
    pub fn in_force(&self) -> Self {
        let moves = self.moves.0.unwrap_or_default();
        Self {
            moves: Newer(Some(Moves { first: Newer(moves.first.0.or(Some(First::Cheapest))), ..moves })),
            quantum_ms: Newer(Some(self.quantum().0)),
            surplus: Newer(self.surplus.0.or(Some(Surplus::Share))),
            straddling: Newer(self.straddling.0.or(Some(Straddling::Guaranteed))),
            ..self.spelled_out()
        }
    }

    /// The time without running after which a job gets a place before all others, if ever.
    pub fn starve_after(&self) -> Option<Span> {
        let said = self.starve_after_ms.said().filter(|_| self.preempt != Preempt::Off);
        said.filter(|ms| **ms > 0).map(|ms| Span(*ms))
    }

    /// Whether jobs can be safe from other jobs for some time.
    pub fn makes_safe(&self) -> bool {
        self.cool_down().is_some() || self.min_runtime_ms > 0
    }

    /// Whether what is guaranteed to no queue goes to the first job overall, whatever its queue has.
    pub fn lends_in_line(&self) -> bool {
        self.surplus.said() == Some(&Surplus::Line)
    }

    /// Whether a queue may be left with less than is guaranteed to it for a claim that is not guaranteed itself.
    pub fn leaves_short(&self) -> bool {
        self.straddling.said() == Some(&Straddling::Due)
    }

    /// Whether jobs may be moved so that others have room in one piece.
    pub fn moves_any(&self) -> bool {
        self.preempt == Preempt::LeastLoss && self.most_moves > 0
    }

    /// How long a job that had to give way is safe once it runs again, if at all.
    pub fn cool_down(&self) -> Option<Span> {
        self.cool_down_ms.said().filter(|ms| **ms > 0).map(|ms| Span(*ms))
    }

    /// How often a job gives way at most, if there is a bound.
    pub fn restarts_cap(&self) -> Option<u32> {
        self.most_restarts.said().copied().filter(|most| *most != NO_CAP)
    }

    /// Whether it matters how often jobs had to give way.
    pub fn counts_restarts(&self) -> bool {
        self.cool_down().is_some() || self.restarts_cap().is_some()
    }

    /// How long a job keeps that place.
    pub fn quantum(&self) -> Span {
        let most_ms = self.starve_after().map_or(QUANTUM_MS, |after| after.0);
        let said = self.quantum_ms.said().copied().filter(|ms| *ms > 0);
        Span(said.unwrap_or(QUANTUM_MS).min(most_ms))
    }
}

/// A week for the hundred points between normal and high.
const AGEING_MS_PER_POINT: i64 = 7 * 86_400_000 / 100;

/// Few: a move costs its job a restart.
const MOST_MOVES: u32 = 4;

/// Below that, restarts cost more than speed gives: on a trace of three models 15 and 60 percent both did worse.
const SPEEDUP_PERCENT: u32 = 30;

/// An hour: restarts cost little of it.
const QUANTUM_MS: i64 = 3_600_000;

/// A week: a job that waits that long is in a pool that is asked for more than it has, and would wait for ever.
const STARVE_AFTER_MS: i64 = 7 * 86_400_000;

/// A minute: a job that has to load its work again gets to do some of it. A longer time would keep what is due from small queues.
const COOL_DOWN_MS: i64 = 60_000;

/// As often as other jobs have a claim.
pub const NO_CAP: u32 = u32::MAX;

/// A week: people remember the last one.
const HALF_LIFE_MS: i64 = 7 * 86_400_000;

/// An hour: jobs larger than what is due to their queue take turns about that often.
const CATCH_UP_MS: i64 = 3_600_000;

/// A second: finer would only add cycles.
const STEP_MS: i64 = 1000;

impl Default for Policy {
    fn default() -> Self {
        Self {
            order: Order::Arrival,
            shortest: Shortest::default(),
            attained: Attained::default(),
            strict: false,
            share: Share::default(),
            half_life_ms: HALF_LIFE_MS,
            catch_up_ms: CATCH_UP_MS,
            preempt: Preempt::default(),
            within_queue: WithinQueue::default(),
            reclaim: Reclaim::default(),
            borrow_evicts: BorrowEvicts::DUE,
            reserve: 4,
            collect_after_ms: 3_600_000,
            collect_devices: 64,
            min_runtime_ms: 0,
            guarantees_first: false,
            borrowers_run_on: false,
            ageing_ms_per_point: AGEING_MS_PER_POINT,
            step_ms: STEP_MS,
            broken_gang_grace_ms: 10_000,
            score: Score::KeepWhole,
            shares: false,
            elastic: true,
            most_moves: MOST_MOVES,
            speedup_percent: SPEEDUP_PERCENT,
            starve_after_ms: Newer(Some(STARVE_AFTER_MS)),
            quantum_ms: Newer::default(),
            cool_down_ms: Newer(Some(COOL_DOWN_MS)),
            most_restarts: Newer(Some(NO_CAP)),
            prices: Newer::default(),
            moves: Newer(Some(Moves::default())),
            surplus: Newer(None),
            straddling: Newer(None),
        }
    }
}

impl Default for Attained {
    /// Few, wide levels: once past a level's start, jobs run to completion instead of taking turns. None ends between 71 and 889
    /// device-hours, where most long runs end: there, all would pause shortly before their ends.
    fn default() -> Self {
        let levels_device_s =
            [2_000, 16_000, 145_000, 255_000, 3_200_000, 8_000_000, 20_000_000, 160_000_000];
        Self {
            levels_device_ms: levels_device_s.map(|seconds: i64| seconds * 1000).to_vec(),
            head_start_ms: 840_000,
            within: Within::AgePerDevice,
            hold_ms: 0,
            foreseen: Foreseen::default(),
        }
    }
}
