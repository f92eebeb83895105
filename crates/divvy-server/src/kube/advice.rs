//! The cheapest fix of those who wait, reckoned beside the control loop: what is tried to find it takes its time, up to a second.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use divvy_core::controller::Controller;
use divvy_core::explain::{self, Fix};
use divvy_core::id::{ClassId, JobId};
use divvy_core::reason::Reason;
use divvy_core::snapshot::Snapshot;
use divvy_core::state::State;

/// Whoever looks for fixes, one after the other.
pub(super) struct Advisor {
    questions: Sender<Question>,
    answers: Receiver<(Advised, Duration)>,
    /// Classes that wait for an answer, each with a job of it.
    wanted: BTreeMap<ClassId, u64>,
    is_busy: bool,
    /// Not before this is anything asked again.
    rests_until: Instant,
}

/// What is asked.
struct Question {
    state: State,
    snapshot: Snapshot,
    class: ClassId,
    job: u64,
}

/// What starts the jobs of a class that waits for a reason.
pub(super) struct Advised {
    pub(super) class: ClassId,
    /// The verdict that it is about.
    pub(super) reason: Reason,
    pub(super) fix: Fix,
}

/// How many nodes, devices, jobs and allocations there are at most where fixes are looked for: each question copies them.
const LARGEST: usize = 20_000;
/// For how many times as long as it took there is rest after an answer: a tenth of one core is enough for this.
const RESTS: u32 = 9;

impl Advisor {
    /// Begins to wait for questions; ends with the one who asks.
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

    /// Wants to know what starts a job of a class.
    pub(super) fn want(&mut self, class: ClassId, job: u64) {
        self.wanted.insert(class, job);
    }

    /// What was found since the last call.
    pub(super) fn found(&mut self) -> Option<Advised> {
        let (advised, took) = self.answers.try_recv().ok()?;
        (self.is_busy, self.rests_until) = (false, Instant::now() + took * RESTS);
        (!advised.fix.changes.is_empty()).then_some(advised)
    }

    /// Asks the next question, if there is one and the last is answered.
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
