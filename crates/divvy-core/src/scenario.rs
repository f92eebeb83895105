//! Scenarios: the core driven by a few lines of text, for golden tests and bug reports. Everything unsaid has a default.
//! `docs/scenarios.md` is the manual of the language.
//!
//! ```text
//! node   n1  8xh100            # name, devices [cpu=64 mem=512 gb=80 mib=81559 linked=2 zone=z1 block=b1 rack=r1]
//! queue  a   limit=4           # name [limit=N guarantee=N lend=N borrow=N weight=2 priority=1 requeue=failure h100=N nodes=n1,n2|pool:prod]
//! policy strict: true          # settings, as in a policy file; several as {strict: true, preempt: walk}
//! submit j1  a  2              # name, queue, GPUs per task [tasks=4 prio=high model=a100 gb=80 milli=500 after=j0:ok array=0-9%2 limit=2h cpu=4 mem=8 held start=+5m user=ana wait exclusive fixed resumable estimate=1h restarts=3 within=zone,nvlink near=rack slice=2:node]
//! plan                         # a cycle; what is placed starts at once
//! end    j1  exit=0            # all tasks, or one: j1/0 [signal=9 lost reboot]
//! pass   2h                    # time
//! start  j1  on=n1:0+n1:1,n2:0 # without a plan, by task [cpu=4,8 mem=8 alt=1 slowly]; likewise promise j1 on=n1:0 and stop j1
//! cancel j1 · hold j1 · release j1 [by=ana] · device n1:3 down|foreign|ok · drain on|off [n1|n1:3] [evict at=+1h for=2h] · reserve 4|n1,n2:0 queue=a [model=h100 at=+1h for=2h] · remove a · restart · explain j1 · estimate j1 1h 2h
//! ```
//!
//! What a line of `node`, `queue` or `submit` cannot say in words stands in braces behind it, as JSON.

mod books;
mod calendar;
mod links;
mod names;
mod print;
mod read;
mod stage;
mod words;
mod write;

use std::collections::BTreeMap;

use crate::controller::Controller;
use crate::decide::{Command, Person, Rejection, Submit};
use crate::engine::{EndedHow, Observation, TaskEnd, TaskStart};
use crate::event::{Event, Stamped};
use crate::id::{AllocationId, JobId, Term};
use crate::model::device::{Health, Occupant};
use crate::model::job::{Dependency, Estimate, Owner, priority};
use crate::model::policy;
use crate::model::queue::{Queue, below_guarantee, beyond_limit};
use crate::snapshot::Snapshot;
use crate::state::State;
use crate::time::{Span, Time};
use books::Books;
use words::Words;
pub use write::{Written, write};

/// A pool driven by lines of text, and all that was logged.
pub struct Scenario {
    controller: Controller,
    /// The checker's books, if the laws are checked.
    books: Option<Books>,
    now: Time,
    names: BTreeMap<String, u64>,
    queues: Vec<Queue>,
    /// Which line of a text named a node or a job, by verb and name.
    named_in: BTreeMap<(String, String), usize>,
    /// All events so far, in order.
    pub log: Vec<Stamped>,
    /// What was refused so far, in order.
    pub refused: Vec<Rejection>,
    out: String,
}

/// A line that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct BadLine {
    /// From 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

/// All that a line can begin with.
const VERBS: &str = "node queue policy submit estimate plan end pass start promise stop cancel hold release prioritise device drain reserve remove restart explain";

fn root() -> Person {
    Person::administrator("root")
}

type Done = Result<(), String>;

/// Runs a scenario and gives what it prints.
pub fn run(text: &str) -> Result<String, BadLine> {
    let mut scenario = Scenario::new();
    for (index, line) in text.lines().enumerate() {
        scenario.numbered_line(index + 1, line)?;
    }
    Ok(scenario.out)
}

impl Default for Scenario {
    fn default() -> Self {
        Self::new()
    }
}

impl Scenario {
    /// An empty pool at the time 0, with the checker beside it.
    pub fn new() -> Self {
        let mut scenario = Self::unchecked();
        scenario.books = Some(Books::open(scenario.state()));
        scenario
    }

    /// An empty pool at the time 0, without the checker: for large ones whose plans are measured.
    pub fn unchecked() -> Self {
        let mut scenario = Self {
            controller: Controller::open(State::default()),
            books: None,
            now: Time(0),
            names: BTreeMap::new(),
            queues: vec![Queue::named("default")],
            named_in: BTreeMap::new(),
            log: Vec::new(),
            refused: Vec::new(),
            out: String::new(),
        };
        let _ = scenario.begin(1);
        scenario
    }

    /// The state so far.
    pub fn state(&self) -> &State {
        self.controller.state()
    }

    /// The clock.
    pub fn now(&self) -> Time {
        self.now
    }

    /// What the planner sees of the state.
    pub fn snapshot(&self) -> &Snapshot {
        self.controller.snapshot()
    }

    /// The controller, for tests that look closer.
    pub fn controller(&mut self) -> &mut Controller {
        &mut self.controller
    }

    /// What was printed so far.
    pub fn printed(&self) -> &str {
        &self.out
    }

    /// The jobs by the names that their lines gave them.
    pub fn jobs(&self) -> impl Iterator<Item = (&str, u64)> {
        self.names.iter().map(|(name, number)| (name.as_str(), *number))
    }

    /// Carries out a line of a text in which each node and each job has a name of its own: a second one of that name would silently
    /// take the first one's place. A submission that repeats the first one, by its token, names nothing new.
    pub fn numbered_line(&mut self, number: usize, line: &str) -> Result<(), BadLine> {
        let bad = |what| BadLine { line: number, what };
        let (nodes, next_job) = (self.state().nodes.len(), self.state().next_job);
        let words = Words::of(line);
        if words.placed.first() == Some(&"queue") {
            let queue = read::queue(&words).map_err(bad)?;
            if let Some((path, resource)) = beyond_limit(std::slice::from_ref(&queue)) {
                return Err(bad(below_guarantee(path, &resource)));
            }
        }
        self.line(line).map_err(bad)?;
        let [verb, name, ..] = words.placed[..] else { return Ok(()) };
        let key = (verb.to_owned(), name.to_owned());
        let first = self.named_in.get(&key).copied();
        let is_again = match verb {
            "node" => self.state().nodes.len() == nodes,
            "submit" if self.state().next_job == next_job => return Ok(()),
            "submit" => first.is_some(),
            _ => return Ok(()),
        };
        if is_again {
            let what = if verb == "node" { "node" } else { "job" };
            let place = first.map_or(String::new(), |line| format!(", from line {line}"));
            return Err(bad(format!("there is a {what} {name} already{place}: give this one another name")));
        }
        self.named_in.insert(key, number);
        Ok(())
    }

    /// Carries out one line, whatever its number. It is an error if a law no longer holds after it.
    pub fn line(&mut self, line: &str) -> Done {
        self.carry_out(line)?;
        let found = self.books.as_mut().and_then(Books::found);
        found.map_or(Ok(()), |found| Err(format!("a law of the scheduler does not hold after it, {found}")))
    }

    fn carry_out(&mut self, line: &str) -> Done {
        let words = Words::of(line);
        let Some(verb) = words.placed.first().copied() else { return Ok(()) };
        match verb {
            "node" => {
                let hardware = read::node(&words)?;
                self.see(&Observation::Node(hardware.spec, hardware.devices))
            }
            "queue" => self.queue(&words),
            "policy" => self.policy(&words),
            "submit" => self.submit(&words),
            "estimate" => self.estimate(&words),
            "plan" => words.only(1, "", "").and_then(|()| self.plan()),
            "end" => self.end(&words),
            "pass" => self.pass(&words),
            "start" => self.start(&words),
            "promise" => self.promise(&words),
            "stop" => self.stop(&words),
            "cancel" => self.command(&words, Command::Cancel),
            "hold" => self.command(&words, Command::Hold),
            "release" => self.command(&words, Command::Release),
            "prioritise" => self.prioritise(&words),
            "device" => self.device(&words),
            "drain" => self.drain(&words),
            "reserve" => self.reserve(&words),
            "remove" => self.remove(&words),
            "restart" => words.only(1, "", "").and_then(|()| self.restart()),
            "explain" => self.explain(&words),
            other => Err(format!("no verb is {other:?}: a line begins with one of {VERBS}")),
        }
    }

    fn begin(&mut self, term: u64) -> Done {
        self.take(&Command::Begin { term: Term(term), boot_id: "boot".into(), version: "0".into() })
    }

    /// Takes a command; a refusal is printed.
    fn take(&mut self, command: &Command) -> Done {
        match self.controller.take(command, self.now).map_err(|broken| broken.to_string())? {
            Ok(_) => {}
            Err(rejection) => {
                self.say(&format!("refused {}: {}", rejection.code(), self.in_words(&rejection)));
                // A repetition of a command that was carried out is no refusal.
                if !matches!(rejection, Rejection::Repeated(..)) {
                    self.refused.push(rejection);
                }
            }
        }
        for event in self.keep() {
            self.print(&event);
        }
        Ok(())
    }

    fn see(&mut self, observation: &Observation) -> Done {
        self.controller.see(observation, self.now).map_err(|broken| broken.to_string())?;
        self.keep();
        Ok(())
    }

    /// Moves the controller's new events into the log.
    fn keep(&mut self) -> Vec<Event> {
        let events: Vec<Stamped> =
            self.controller.drain().map(|batch| batch.commit.events).unwrap_or_default();
        self.log.extend(events.iter().cloned());
        if let Some(books) = &mut self.books {
            books.follow(&events);
        }
        events.into_iter().map(|stamped| stamped.event).collect()
    }

    fn queue(&mut self, words: &Words) -> Done {
        let queue = read::queue(words)?;
        self.queues.retain(|other| other.path != queue.path);
        self.queues.push(queue);
        self.take(&Command::SetQueues(self.queues.clone(), root()))
    }

    fn remove(&mut self, words: &Words) -> Done {
        words.only(2, "", "")?;
        let path = words.at(1, "the queue")?;
        if !self.queues.iter().any(|queue| queue.path == path) {
            return Err(format!("there is no queue {path}"));
        }
        let queues = self.queues.iter().filter(|queue| queue.path != path).cloned().collect();
        self.take(&Command::SetQueues(queues, root()))
    }

    fn policy(&mut self, words: &Words) -> Done {
        let policy = policy::parse(words.rest).map_err(|bad| bad.to_string())?;
        self.take(&Command::SetPolicy(Box::new(policy), root()))
    }

    fn pass(&mut self, words: &Words) -> Done {
        words.only(2, "", "")?;
        let span: Span = words.at(1, "the time")?.parse().map_err(|error| format!("{error}"))?;
        self.now = self.now + span;
        Ok(())
    }

    fn submit(&mut self, words: &Words) -> Done {
        let name = words.at(1, "the job's name")?;
        let array = words.named.get("array").map(|text| text.parse()).transpose();
        let user = words.named.get("user").copied().unwrap_or("ana");
        let submit = Submit {
            owner: Owner { name: user.into(), uid: 1000, ..Owner::default() }.into(),
            spec: read::spec(words, self.dependencies(words)?, self.now)?.into(),
            requeue_said: words.named.contains_key("requeue") || words.braces.is_some(),
            array: array.map_err(|error| format!("{error}"))?,
            token: words.named.get("token").map(|token| (*token).to_owned()),
            held: words.has("held"),
            history: BTreeMap::new(),
        };
        let (number, length) = (self.controller.state().next_job, submit.spec.estimate);
        self.take(&Command::Submit(Box::new(submit)))?;
        if !self.controller.state().jobs.contains_key(&number) {
            return Ok(());
        }
        self.names.insert(name.to_owned(), number);
        // What its user says is what the pool goes by.
        let Some(Span(ms)) = length else { return Ok(()) };
        let estimate = Estimate { p50_ms: ms, p90_ms: ms, model: "user".into(), outlook: Vec::new() };
        self.take(&Command::Estimate(JobId::single(number), estimate))
    }

    /// `estimate j1 1h 2h`: the job is as likely longer as shorter than the one, and longer than the other in one case of ten.
    fn estimate(&mut self, words: &Words) -> Done {
        words.only(4, "", "")?;
        let job = self.job(words.at(1, "the job")?)?;
        let span = |index| -> Result<i64, String> {
            let text = words.at(index, "the length of time")?;
            Ok(text.parse::<Span>().map_err(|error| format!("{error}"))?.0)
        };
        let estimate =
            Estimate { p50_ms: span(2)?, p90_ms: span(3)?, model: "scenario".into(), outlook: Vec::new() };
        self.take(&Command::Estimate(job, estimate))
    }

    /// `after=j0:ok,j1:any`
    fn dependencies(&self, words: &Words) -> Result<Vec<Dependency>, String> {
        let Some(text) = words.named.get("after") else { return Ok(Vec::new()) };
        let read = |text| {
            let (name, on) = read::depends_on(text)?;
            Ok(Dependency { job: self.job(name)?, on })
        };
        text.split(',').map(read).collect()
    }

    /// `j1`, or `j1_3` for a member.
    fn job(&self, name: &str) -> Result<JobId, String> {
        let (base, member) = match name.split_once('_') {
            Some((base, member)) => {
                (base, Some(member.parse().map_err(|_| format!("{name} is no member: write j1_3"))?))
            }
            None => (name, None),
        };
        let number = self.names.get(base).ok_or_else(|| self.no_job(base))?;
        Ok(JobId { number: *number, member })
    }

    fn no_job(&self, name: &str) -> String {
        let known: Vec<&str> = self.names.keys().map(String::as_str).take(12).collect();
        match known.is_empty() {
            true => format!("there is no job {name}: submit it first"),
            false => {
                format!("there is no job {name}; the first of those that there are: {}", known.join(" "))
            }
        }
    }

    fn plan(&mut self) -> Done {
        self.controller.cycle(self.now).map_err(|broken| broken.to_string())?;
        let events = self.keep();
        events.iter().for_each(|event| self.print(event));
        self.run_what_was_placed(&events)
    }

    fn end(&mut self, words: &Words) -> Done {
        words.only(2, "lost reboot", "signal exit")?;
        let (name, rank) = match words.at(1, "the job")?.split_once('/') {
            Some((name, rank)) => (name, Some(rank.parse::<u32>().map_err(|_| "the rank is a number")?)),
            None => (words.at(1, "the job")?, None),
        };
        let id = self.job(name)?;
        let how = how(words)?;
        let live: Vec<AllocationId> = self.state().run(id).map(|run| run.live.clone()).unwrap_or_default();
        if live.is_empty() {
            return Err(format!("no task of {name} runs"));
        }
        let rank_of = |allocation: &AllocationId| {
            self.state().allocations.get(allocation).map(|held| held.placement.rank)
        };
        let ended: Vec<_> =
            live.into_iter().filter(|allocation| rank.is_none() || rank_of(allocation) == rank).collect();
        ended.into_iter().try_for_each(|allocation| self.end_task(allocation, how.clone()))
    }

    fn end_task(&mut self, allocation: AllocationId, how: EndedHow) -> Done {
        let end = TaskEnd { at: self.now, how, ..TaskEnd::default() };
        let seen = self.controller.see(&Observation::Ended(allocation, end), self.now);
        seen.map_err(|broken| broken.to_string())?;
        let events = self.keep();
        for event in &events {
            match event {
                Event::AttemptEnded { job, end, exit_code, state, .. } => {
                    let (name, cause) = (self.name_of(*job), end.cause);
                    self.say(&format!("ended {name} {} {cause:?} exit={exit_code}", state.name()));
                }
                Event::Stopping { .. }
                | Event::Placed { .. }
                | Event::Grown { .. }
                | Event::Shrinking { .. } => self.print(event),
                _ => {}
            }
        }
        self.run_what_was_placed(&events)
    }

    /// What is placed starts at once.
    fn run_what_was_placed(&mut self, events: &[Event]) -> Done {
        let placed = events.iter().filter_map(|event| match event {
            Event::Placed { placements, .. } | Event::Grown { placements, .. } => Some(placements),
            _ => None,
        });
        let placed: Vec<AllocationId> = placed.flatten().map(|placement| placement.allocation).collect();
        let start = TaskStart { at: self.now, pid: 1, ..TaskStart::default() };
        placed.into_iter().try_for_each(|id| self.see(&Observation::Started(id, start.clone())))
    }

    fn command(&mut self, words: &Words, command: impl Fn(JobId, Person) -> Command) -> Done {
        words.only(2, "", "by")?;
        let name = words.named.get("by").copied().unwrap_or("ana");
        let id = self.job(words.at(1, "the job")?)?;
        self.take(&command(id, if name == "root" { root() } else { Person::user(name) }))
    }

    /// `prioritise j1 high by=root`
    fn prioritise(&mut self, words: &Words) -> Done {
        words.only(3, "", "by")?;
        let (job, text) = (self.job(words.at(1, "the job")?)?, words.at(2, "the priority")?);
        let to =
            priority::parse(text).ok_or_else(|| format!("{text:?} is no priority: write high, or 100"))?;
        let name = words.named.get("by").copied().unwrap_or("ana");
        let by = if name == "root" { root() } else { Person::user(name) };
        self.take(&Command::Prioritise(job, to, by))
    }

    fn device(&mut self, words: &Words) -> Done {
        words.only(3, "", "")?;
        let uuid = words.at(1, "the device")?.to_owned();
        if self.state().device_by_uuid(&uuid).is_none() {
            return Err(format!("there is no device {uuid:?}: write the node's name and a number, as n1:0"));
        }
        let occupant =
            Occupant::Process { pid: 7, user: "eve".into(), command: "python".into(), memory_mib: 900 };
        let (health, occupant) = match words.at(2, "down, foreign or ok")? {
            "down" => (Health::Down("fell off the bus".into()), None),
            "foreign" => (Health::Ok, Some(occupant)),
            "ok" => (Health::Ok, None),
            other => return Err(format!("a device is not {other:?}: write down, foreign or ok")),
        };
        self.see(&Observation::Device { uuid, health, occupant })
    }

    /// The daemon starts again: the state is folded anew from the log, and the engine knows all that was held.
    fn restart(&mut self) -> Done {
        let mut state = State::default();
        for stamped in &self.log {
            state.apply(stamped).map_err(|misfit| misfit.to_string())?;
        }
        let (term, held) = (state.term.0 + 1, state.allocations.keys().copied().collect());
        self.controller = Controller::open(state);
        self.begin(term)?;
        self.see(&Observation::Inventory(held))
    }
}

/// How `end` says that a task ended.
fn how(words: &Words) -> Result<EndedHow, String> {
    let number = |name| i32::try_from(words.number(name, 0)?).map_err(|_| format!("{name} is out of range"));
    Ok(match () {
        () if words.has("lost") => EndedHow::SupervisorLost,
        () if words.has("reboot") => EndedHow::NodeReboot,
        () if words.named.contains_key("signal") => EndedHow::Signalled(number("signal")?),
        () => EndedHow::Exited(number("exit")?),
    })
}
