//! The cheapest fix for waiting jobs, searched beside the control loop: trying candidates takes up to a second.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use divvy_core::controller::Controller;
use divvy_core::explain::{self, Fix};
use divvy_core::id::{ClassId, JobId};
use divvy_core::reason::Reason;
use divvy_core::snapshot::Snapshot;
use divvy_core::state::State;

/// Searches for fixes on its own thread, one after the other.
pub(super) struct Advisor {
    questions: Sender<Question>,
    answers: Receiver<(Advised, Duration)>,
    /// Classes that wait for an answer, each with one of its jobs.
    wanted: BTreeMap<ClassId, u64>,
    is_busy: bool,
    /// No question is asked before this time.
    rests_until: Instant,
}

/// A question to the thread.
struct Question {
    state: State,
    snapshot: Snapshot,
    class: ClassId,
    job: u64,
}

/// What starts the jobs of a class, for the reason that the class waits for.
pub(super) struct Advised {
    pub(super) class: ClassId,
    /// The verdict that the fix is for.
    pub(super) reason: Reason,
    pub(super) fix: Fix,
}

/// The most nodes, devices, jobs and allocations together for which fixes are searched: each question copies them.
const LARGEST: usize = 20_000;
/// After an answer the thread rests this many times as long as it took: a tenth of one core is enough.
const RESTS: u32 = 9;

impl Advisor {
    /// Starts the thread, which ends when the advisor is dropped.
    pub(super) fn start() -> Self {
        let (questions, asked) = mpsc::channel::<Question>();
        let (answer, answers) = mpsc::channel();
        std::thread::spawn(move || {
            for question in asked {
                let started = Instant::now();
                let class = question.class;
                let advised = question.answered().unwrap_or(Advised {
                    class,
                    reason: Reason::NotPlanned,
                    fix: Fix::default(),
                });
                if answer.send((advised, started.elapsed())).is_err() {
                    return;
                }
            }
        });
        let (wanted, rests_until) = (BTreeMap::new(), Instant::now());
        Self { questions, answers, wanted, is_busy: false, rests_until }
    }

    /// Asks what would start a job of a class.
    pub(super) fn want(&mut self, class: ClassId, job: u64) {
        self.wanted.insert(class, job);
    }

    /// Returns what was found since the last call.
    pub(super) fn found(&mut self) -> Option<Advised> {
        let (advised, took) = self.answers.try_recv().ok()?;
        (self.is_busy, self.rests_until) = (false, Instant::now() + took * RESTS);
        (!advised.fix.changes.is_empty()).then_some(advised)
    }

    /// Sends the next question, if there is one and the last one is answered.
    pub(super) fn ask(&mut self, controller: &Controller) {
        if self.is_busy || self.wanted.is_empty() || Instant::now() < self.rests_until {
            return;
        }
        let state = controller.state();
        let size = state.nodes.len() + state.devices.len() + state.jobs.len() + state.allocations.len();
        let Some((class, job)) = self.wanted.pop_first().filter(|_| size <= LARGEST) else { return };
        let question = Question { state: state.clone(), snapshot: controller.snapshot().clone(), class, job };
        self.is_busy = self.questions.send(question).is_ok();
    }
}

impl Question {
    fn answered(self) -> Option<Advised> {
        let reason = self.state.verdicts.get(&self.class)?.clone();
        let advice = explain::advise(&self.state, &self.snapshot, JobId::single(self.job))?;
        Some(Advised { class: self.class, reason, fix: advice.remedy? })
    }
}
