//! Lives a life: the daemon's loop in memory, over the simulated engine and its faults, with a check of every law.

mod quiet;

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};

use divvy_core::action::Action;
use divvy_core::check::{self, Violation};
use divvy_core::controller::{Batch, Broken, Controller};
use divvy_core::decide::{Command, Person, Submit};
use divvy_core::engine::{EndedHow, Engine, Observation};
use divvy_core::event::{Event, Stamped};
use divvy_core::id::{JobId, Term};
use divvy_core::model::device::Health;
use divvy_core::model::job::{Estimate, JobState, Prospect};
use divvy_core::model::policy::Preempt;
use divvy_core::plan;
use divvy_core::reason::Reason;
use divvy_core::snapshot::Snapshot;
use divvy_core::state::{Runs, State, fingerprint};
use divvy_core::time::Time;

use super::calendar;
use super::life::{Blow, Crash, JobLine, Life, Step, What, node_name, user_name};
use crate::dice::Dice;
use crate::engine::{Costs, Course, SimulatedEngine};
use crate::faults::{Answers, FaultyEngine};
use crate::verify::Verify;

/// The result of a life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lived {
    /// Events in its log.
    pub events: u64,
    /// The hash of all that was decided.
    pub digest: u64,
    /// The law that was broken first, if one was, and at which event.
    pub violation: Option<(u64, Violation)>,
}

/// After about this many events everything is checked: the state, the snapshot against a new one, and planning again.
const LOOK_EVERY_EVENTS: u64 = 700;
/// One restart in this many folds the log from its very beginning; the others fold it from the last restart on. What that one
/// continued from is such a fold as well, and the end of a life folds the whole log once more: seldom is enough.
const WHOLE_FOLD_EVERY: u64 = 64;
/// One life in this many is read back from its text and planned again cycle by cycle.
const VERIFY_EVERY_LIFE: u64 = 16;
/// How often the daemon lets time pass in its log.
const TICK_MS: i64 = 60_000;
/// A job that is still busy this many turns after the faults never ends: no life takes nearly as many turns.
const MOST_QUIET_TURNS: u64 = 200_000;
/// How many turns at one moment mean that something goes round in circles.
const MOST_TURNS_AT_ONCE: u64 = 1000;

type Done = Result<(), Violation>;
/// What was submitted and accepted in a turn, each with its number.
type Submitted<'a> = [(&'a Submit, u64)];

/// Lives a life to its end, or to the first law that is broken.
pub fn live(life: &Life) -> Lived {
    let mut world = World::new(life);
    // A bug that panics is found, reported and made small like any other.
    let lived = panic::catch_unwind(AssertUnwindSafe(|| world.live(life)));
    let outcome = lived.unwrap_or_else(|payload| Err(broken("panic", words_of(payload.as_ref()))));
    Lived {
        events: world.log.len() as u64,
        digest: world.digest,
        violation: outcome.err().map(|violation| (world.log.len() as u64, violation)),
    }
}

/// The daemon, its log, and the machines.
struct World {
    controller: Controller,
    engine: FaultyEngine,
    log: Vec<Stamped>,
    /// Where each commit begins.
    commits: Vec<usize>,
    /// The state when the daemon last started, and how much of the log is in it.
    kept: (State, usize),
    /// What was seen and is not in the log yet.
    observed: Vec<Observation>,
    now: Time,
    /// Under which number each line was submitted.
    numbers: BTreeMap<u32, u64>,
    crash: Option<Crash>,
    disk_full: bool,
    ticked: u64,
    restarts: u64,
    look_at: u64,
    dice: Dice,
    /// What was asked of the daemon while it was busy.
    asked: Vec<Command>,
    /// Whether it is busy, how often, and the dice for that.
    is_busy: bool,
    busy: (u32, Dice),
    digest: u64,
    seed: u64,
}

fn root() -> Person {
    Person::administrator("root")
}

fn broken(law: &'static str, text: impl Into<String>) -> Violation {
    Violation { law, text: text.into() }
}

/// What a panic said.
fn words_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".into())
}

fn of_controller(error: Broken) -> Violation {
    match error {
        Broken::Misfit(misfit) => broken("L2", misfit.to_string()),
        Broken::Laws(violations) => {
            violations.into_iter().next().unwrap_or_else(|| broken("L12", "a law is broken"))
        }
    }
}

impl World {
    fn new(life: &Life) -> Self {
        let now = Time(0);
        let nodes: Vec<_> = (0..).zip(&life.nodes).map(|(node, line)| line.hardware(node)).collect();
        let costs = Costs { start_ms: 1000, restart_ms: 5000 };
        let inner = SimulatedEngine::new(now, costs, BTreeMap::new());
        Self {
            controller: Controller::open(State::default()),
            engine: FaultyEngine::new(inner, now, nodes),
            log: Vec::new(),
            commits: Vec::new(),
            kept: (State::default(), 0),
            observed: Vec::new(),
            now,
            numbers: BTreeMap::new(),
            crash: None,
            disk_full: false,
            ticked: 0,
            restarts: 0,
            look_at: 0,
            dice: Dice::new(life.seed ^ 0x0010_05e5),
            asked: Vec::new(),
            is_busy: false,
            busy: (life.busy_percent, Dice::new(!life.seed)),
            digest: 0,
            seed: life.seed,
        }
    }

    fn live(&mut self, life: &Life) -> Done {
        self.start(State::default())?;
        let mut settings = vec![Command::SetPolicy(Box::new(life.policy.clone()), root())];
        if !life.queues.is_empty() {
            settings.push(Command::SetQueues(life.queues.clone(), root()));
        }
        self.turns(settings)?;
        for step in &life.steps {
            match self.is_busy {
                true => self.pass_to(Time(step.at_ms)),
                false => self.run_until(Time(step.at_ms))?,
            }
            self.take_step(step)?;
        }
        let asked = std::mem::take(&mut self.asked);
        self.turns(asked)?;
        self.be_quiet()?;
        self.all_that_fits_has_run()?;
        self.the_log_gives_the_state()
    }

    /// Lets everything happen that is due by a time.
    fn run_until(&mut self, until: Time) -> Done {
        while let Some(due) = self.next_due().filter(|due| *due <= until) {
            self.pass_to(due);
            self.turns(Vec::new())?;
        }
        self.pass_to(until);
        Ok(())
    }

    fn next_due(&self) -> Option<Time> {
        let later = |due: Time| due.max(self.now);
        [self.engine.next_due(), self.controller.due()].into_iter().flatten().min().map(later)
    }

    fn pass_to(&mut self, at: Time) {
        self.now = self.now.max(at);
        self.engine.advance_to(self.now);
    }

    fn take_step(&mut self, step: &Step) -> Done {
        let commands = self.happen(&step.what);
        self.asked.extend(commands);
        let (percent, dice) = &mut self.busy;
        self.is_busy = *percent > 0 && dice.below(100) < u64::from(*percent);
        if self.is_busy {
            return Ok(());
        }
        let asked = std::mem::take(&mut self.asked);
        self.turns(asked)
    }

    /// Returns what a step asks of the daemon; what the step does to the machines is done here.
    fn happen(&mut self, what: &What) -> Vec<Command> {
        let mut commands = Vec::new();
        match what {
            What::Submit(line) => commands.extend(self.submit(line)),
            What::Cancel(line, member, admin) => {
                commands.extend(self.about(*line, *member, *admin).map(|(job, by)| Command::Cancel(job, by)));
            }
            What::Hold(line, member, admin) => {
                commands.extend(self.about(*line, *member, *admin).map(|(job, by)| Command::Hold(job, by)));
            }
            What::Release(line, member, admin) => {
                commands
                    .extend(self.about(*line, *member, *admin).map(|(job, by)| Command::Release(job, by)));
            }
            What::Prioritise(line, to, admin) => {
                commands.extend(
                    self.about(*line, None, *admin).map(|(job, by)| Command::Prioritise(job, *to, by)),
                );
            }
            What::Queues(queues) => commands.push(Command::SetQueues(queues.clone(), root())),
            What::Policy(policy) => commands.push(Command::SetPolicy(policy.clone(), root())),
            What::Drain(on) => commands.push(Command::SetDrain(*on, root())),
            What::DrainNode(node, true) => {
                commands.push(calendar::drain(&node_name(*node), self.now, root()))
            }
            What::DrainNode(node, false) => commands.push(Command::Undrain(node_name(*node), root())),
            What::Keep(kept) => commands.push(kept.command(self.now, root())),
            other => self.fault(other),
        }
        commands
    }

    fn fault(&mut self, what: &What) {
        let engine = &mut self.engine;
        match what {
            What::Crash(crash) => self.crash = Some(*crash),
            What::DiskFull => self.disk_full = true,
            What::NodeDies(node) => engine.kill_node(*node as usize),
            What::NodeReturns(node) => engine.raise_node(*node as usize),
            What::DeviceDies(node, place) => engine.break_device(*node as usize, *place as usize),
            What::DeviceVanishes(node, place) => engine.lose_device(*node as usize, *place as usize),
            What::DeviceTaken(node, place) => engine.occupy_device(*node as usize, *place as usize),
            What::DeviceHeals(node, place) => engine.heal_device(*node as usize, *place as usize),
            What::LaunchesFail(count) => engine.fail_launches(*count),
            What::AnswersLost(count) => engine.set_answers(Answers { lost: *count, ..Answers::default() }),
            What::AnswersDoubled(count) => {
                engine.set_answers(Answers { doubled: *count, ..Answers::default() })
            }
            What::AnswersLate(count, ms) => {
                engine.set_answers(Answers { late: (*count, *ms), ..Answers::default() });
            }
            What::Struck(nth, blow) => engine.strike(*nth, how(*blow)),
            _ => {}
        }
    }

    fn submit(&mut self, line: &JobLine) -> Option<Command> {
        Some(Command::Submit(Box::new(line.submit(self.now, &self.numbers)?)))
    }

    fn about(&self, line: u32, member: Option<u32>, admin: bool) -> Option<(JobId, Person)> {
        let number = *self.numbers.get(&line)?;
        let owner = self.controller.state().jobs.get(&number).map(|job| job.owner.name.clone());
        let by = if admin { root() } else { Person::user(&owner.unwrap_or_else(|| user_name(0))) };
        Some((JobId { number, member }, by))
    }

    /// Turns until nothing more follows at this moment.
    fn turns(&mut self, commands: Vec<Command>) -> Done {
        self.turn(commands)?;
        for _ in 0..MOST_TURNS_AT_ONCE {
            self.observed.extend(self.engine.observe());
            if self.observed.is_empty() {
                return Ok(());
            }
            self.turn(Vec::new())?;
        }
        Err(broken("rest", "the pool is never done with one moment"))
    }

    /// One turn of the daemon's loop: see, take, plan, commit, act.
    fn turn(&mut self, commands: Vec<Command>) -> Done {
        self.observed.extend(self.engine.observe());
        for observation in &self.observed {
            self.controller.see(observation, self.now).map_err(of_controller)?;
        }
        let mut submitted: Vec<(&Submit, u64)> = Vec::new();
        for command in &commands {
            let answer = self.controller.take(command, self.now).map_err(of_controller)?;
            if let (Command::Submit(submit), Ok(answer)) = (command, answer) {
                submitted.extend(answer.job.map(|number| (&**submit, number)));
            }
        }
        self.foresee(&submitted)?;
        self.tick()?;
        self.controller.cycle(self.now).map_err(of_controller)?;
        self.look_closer()?;
        let Some(batch) = self.controller.drain() else {
            self.observed.clear();
            // A daemon with nothing to write can die, too.
            return if self.crash.take().is_some() { self.restart() } else { Ok(()) };
        };
        self.commit(batch, &submitted)
    }

    /// Turns what a user thinks into an estimate, as the predictor would log it.
    fn foresee(&mut self, submitted: &Submitted) -> Done {
        for (submit, number) in submitted {
            let Some(p50) = submit.spec.estimate else { continue };
            let (p50_ms, p90_ms, model) = (p50.0, p50.0 * 2, "user".into());
            let prospect = |after_ms, per_end_device_ms| Prospect { after_ms, per_end_device_ms };
            let outlook = vec![prospect(0, p50_ms), prospect(p50_ms.max(1), p50_ms * 20)];
            let estimate = Estimate { p50_ms, p90_ms, model, outlook };
            let command = Command::Estimate(JobId::single(*number), estimate);
            let _ = self.controller.take(&command, self.now).map_err(of_controller)?;
        }
        Ok(())
    }

    fn tick(&mut self) -> Done {
        let since = self.now.since(self.controller.state().now).0;
        if self.log.len() as u64 > self.ticked && since >= TICK_MS {
            let _ = self.controller.take(&Command::Tick, self.now).map_err(of_controller)?;
            self.ticked = self.log.len() as u64 + 1;
        }
        Ok(())
    }

    fn commit(&mut self, batch: Batch, submitted: &Submitted) -> Done {
        if std::mem::take(&mut self.disk_full) {
            // Nothing was written: the daemon goes back to the state in the log, and sees again what it saw.
            let state = self.fold()?;
            self.open(state);
            return Ok(());
        }
        match self.crash.take() {
            Some(Crash::BeforeCommit) => self.restart(),
            Some(Crash::AfterActions(sent)) => {
                let actions = self.append(batch, submitted);
                let sent = actions.len().min(sent as usize);
                self.engine.submit(&actions[..sent]);
                self.restart_as_it_was()
            }
            None => {
                let actions = self.append(batch, submitted);
                self.engine.submit(&actions);
                self.engine_is_well()
            }
        }
    }

    /// Writes the log, and returns the actions to take.
    fn append(&mut self, batch: Batch, submitted: &Submitted) -> Vec<Action> {
        self.observed.clear();
        for (submit, number) in submitted {
            let line = submit.spec.name.trim_start_matches('j').parse().unwrap_or(0);
            self.numbers.insert(line, *number);
        }
        self.set_courses(submitted);
        if !batch.commit.events.is_empty() {
            self.commits.push(self.log.len());
        }
        for stamped in &batch.commit.events {
            match &stamped.event {
                Event::Planned { plan, .. } => self.digest = fingerprint(&(self.digest, stamped.at, plan)),
                Event::AttemptEnded { job, state, .. } if state.is_ended() => {
                    self.engine.inner().forget_job(*job);
                }
                _ => {}
            }
        }
        self.log.extend(batch.commit.events);
        batch.actions
    }

    /// Tells the engine what becomes of a job: the life says so in the job's labels, which nothing else reads.
    fn set_courses(&mut self, submitted: &Submitted) {
        for (submit, number) in submitted {
            let said = |label: &str| submit.spec.labels.get(label).and_then(|text| text.parse::<i64>().ok());
            let course = Course {
                exit_code: said("exit").and_then(|code| i32::try_from(code).ok()).unwrap_or(0),
                resumes: submit.spec.resumable,
                ..Course::of_length(said("work").unwrap_or(0))
            };
            self.engine.inner().set_course(*number, course);
        }
    }

    fn engine_is_well(&mut self) -> Done {
        match self.engine.take_wrongs().into_iter().next() {
            None => Ok(()),
            Some(wrong) => Err(broken("L7", format!("on the machines: {wrong}"))),
        }
    }
}

fn how(blow: Blow) -> EndedHow {
    match blow {
        Blow::Signal(signal) => EndedHow::Signalled(signal),
        Blow::Exit(code) => EndedHow::Exited(code),
        Blow::OutOfMemory => EndedHow::OutOfMemory(2 << 30, 1 << 30),
        Blow::SupervisorLost => EndedHow::SupervisorLost,
    }
}

/// Starting, dying, starting again.
impl World {
    fn open(&mut self, state: State) {
        self.kept = (state.clone(), self.log.len());
        self.controller = Controller::open(state);
        self.controller.check_every(0);
        self.controller.keep_books();
        // Nothing reads the history here; some lives keep it to show that it can be kept.
        self.controller.keep_history(self.seed.is_multiple_of(VERIFY_EVERY_LIFE));
        let next = self.controller.state().next_job;
        self.numbers.retain(|_, number| *number < next);
    }

    fn start(&mut self, state: State) -> Done {
        self.open(state);
        let term = Term(self.controller.state().term.0 + 1);
        let begin = Command::Begin { term, boot_id: "boot".into(), version: "chaos".into() };
        let _ = self.controller.take(&begin, self.now).map_err(of_controller)?;
        self.engine.restart(term);
        Ok(())
    }

    fn restart(&mut self) -> Done {
        self.observed.clear();
        self.restarts += 1;
        let state = self.fold()?;
        self.start(state)
    }

    /// The same, where everything that the daemon knew is in the log.
    fn restart_as_it_was(&mut self) -> Done {
        let folded = self.fold()?;
        if folded != *self.controller.state() {
            return Err(broken("L2", "the fold of the log is not the state that the daemon had"));
        }
        self.restart()
    }

    /// The state that the log gives: mostly from the last start on, now and then from its very beginning.
    fn fold(&self) -> Result<State, Violation> {
        let whole = self.restarts.is_multiple_of(WHOLE_FOLD_EVERY);
        let (mut state, from) = if whole { (State::default(), 0) } else { self.kept.clone() };
        for stamped in &self.log[from..] {
            state.apply(stamped).map_err(|misfit| broken("L2", misfit.to_string()))?;
        }
        Ok(state)
    }
}

/// Looking closer.
impl World {
    /// Checks at random events: the whole state, the snapshot against one built anew, and planning again.
    fn look_closer(&mut self) -> Done {
        let position = self.controller.state().position.0;
        if position < self.look_at {
            return Ok(());
        }
        self.look_at = position + self.dice.below(2 * LOOK_EVERY_EVENTS);
        let state = self.controller.state();
        if let Some(violation) = check::check(state).into_iter().next() {
            return Err(violation);
        }
        let mut kept = self.controller.snapshot().clone();
        let mut anew = Snapshot::new(state);
        kept.pass_time(state, self.now);
        anew.pass_time(state, self.now);
        if !kept.same_as(&anew) {
            return Err(broken(
                "L3",
                format!("the snapshot kept is not the one built anew: {}", differs(&kept, &anew)),
            ));
        }
        let (warm, cold) =
            (plan::plan(state, &mut kept, self.now).0, plan::plan(state, &mut anew, self.now).0);
        if warm != cold {
            return Err(broken("L3", format!("warm caches plan {warm:?}, cold ones {cold:?}")));
        }
        if !kept.same_as(&anew) {
            return Err(broken("L3", "planning has left the snapshot another than it was"));
        }
        // Under the literature's walk, the walk itself says which jobs lose, and where it ends.
        if !warm.is_empty() && state.policy.preempt != Preempt::Walk {
            return Err(broken("L10", format!("planned again without news: {warm:?}")));
        }
        match check::waiting_without_reason(state).first() {
            Some(job) => Err(broken("L6", format!("job {job} waits without a reason"))),
            None => Ok(()),
        }
    }

    /// Checks that the log, folded from the beginning, is the state; some lives are read from text and planned again.
    fn the_log_gives_the_state(&mut self) -> Done {
        self.restarts = 0;
        if self.fold()? != *self.controller.state() {
            return Err(broken("L2", "the fold of the log is not the state"));
        }
        if !self.seed.is_multiple_of(VERIFY_EVERY_LIFE) {
            return Ok(());
        }
        let mut verify = Verify::new("chaos");
        let ends = self.commits.iter().skip(1).copied().chain([self.log.len()]);
        for (begin, end) in self.commits.iter().copied().zip(ends) {
            let read: Vec<Stamped> = self.log[begin..end].iter().map(read_back).collect::<Result<_, _>>()?;
            verify.commit(&read).map_err(|misfit| broken("L2", misfit.to_string()))?;
        }
        match verify.finish().first.into_iter().next() {
            None => Ok(()),
            Some(found) => Err(broken(found.law, format!("position {}: {}", found.position, found.text))),
        }
    }
}

/// An event as it comes back from the text that the log keeps.
fn read_back(stamped: &Stamped) -> Result<Stamped, Violation> {
    let text = serde_json::to_string(stamped).map_err(|error| broken("L2", error.to_string()))?;
    let read: Stamped =
        serde_json::from_str(&text).map_err(|error| broken("L2", format!("{error}: {text}")))?;
    if read == *stamped { Ok(read) } else { Err(broken("L2", format!("read back otherwise: {text}"))) }
}

/// Which part of two snapshots differs.
fn differs(kept: &Snapshot, anew: &Snapshot) -> &'static str {
    if kept.capacity != anew.capacity {
        "what is free"
    } else if kept.held != anew.held {
        "what queues hold"
    } else if (&kept.leaving, &kept.leavers) != (&anew.leaving, &anew.leavers) {
        "what is being stopped"
    } else if !kept.waiting.same_as(&anew.waiting) {
        "who waits"
    } else if kept.limits != anew.limits {
        "when limits are reached"
    } else if kept.running != anew.running {
        "who runs"
    } else {
        "who grows, who is near whom, or what is due"
    }
}
