//! Scenarios: the core driven by a few lines of text, for golden tests and bug reports. Everything unsaid has a default.
//!
//! ```text
//! node   n1  8xh100            # name, devices [cpu=64 mem=512]
//! queue  a   limit=4           # name [limit=N guarantee=N lend=N borrow=N weight=2 priority=1 requeue=failure h100=N]
//! policy strict: true         # settings, as in a policy file; several as {strict: true, preempt: walk}
//! submit j1  a  2              # name, queue, GPUs per task [tasks=4 prio=high model=a100 gb=80 milli=500 after=j0:ok array=0-9%2 limit=2h cpu=4 mem=8 held start=+5m user=ana wait exclusive fixed resumable]
//! plan                         # a cycle; what is placed starts at once
//! end    j1  exit=0            # all tasks, or one: j1/0 [signal=9 lost reboot]
//! pass   2h                    # time
//! cancel j1 · hold j1 · release j1 [by=ana] · device n1:3 down|foreign|ok · drain on|off [n1] · remove a · restart · explain j1
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::controller::Controller;
use crate::decide::{Command, Person, Submit};
use crate::engine::{EndedHow, Observation, TaskEnd, TaskStart};
use crate::event::{Event, Stamped};
use crate::explain;
use crate::id::{AllocationId, DeviceId, JobId, NodeId, Term};
use crate::model::allocation::Placement;
use crate::model::ask::{Alternative, Ask, DeviceAsk, DeviceClass, DrawAsk};
use crate::model::device::{DeviceSpec, Draw, Health, Occupant};
use crate::model::gang::{Group, Role};
use crate::model::job::{
    Cause, JobSpec, Kind, Lifetime, Owner, Process, Requeue, StopOrder, Work, priority, usual_restarts,
};
use crate::model::node::NodeSpec;
use crate::model::policy;
use crate::model::queue::{Queue, read_amount};
use crate::state::State;
use crate::time::{Span, Time};

/// A pool driven by lines of text, and all that was logged.
pub struct Scenario {
    controller: Controller,
    now: Time,
    names: BTreeMap<String, u64>,
    queues: Vec<Queue>,
    /// All events so far, in order.
    pub log: Vec<Stamped>,
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

type Done = Result<(), String>;

/// Runs a scenario and gives what it prints.
pub fn run(text: &str) -> Result<String, BadLine> {
    let mut scenario = Scenario::new();
    for (index, line) in text.lines().enumerate() {
        scenario.line(line).map_err(|what| BadLine { line: index + 1, what })?;
    }
    Ok(scenario.out)
}

impl Default for Scenario {
    fn default() -> Self {
        Self::new()
    }
}

/// The words of a line: those in place, and those with a name.
struct Words<'a> {
    placed: Vec<&'a str>,
    named: BTreeMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    fn of(line: &'a str) -> Self {
        let (named, placed) = line.split_whitespace().partition::<Vec<_>, _>(|word| word.contains('='));
        Self { placed, named: named.into_iter().filter_map(|word| word.split_once('=')).collect() }
    }

    fn at(&self, index: usize, what: &str) -> Result<&'a str, String> {
        self.placed.get(index).copied().ok_or_else(|| format!("{what} is missing"))
    }

    fn has(&self, flag: &str) -> bool {
        self.placed.contains(&flag)
    }

    fn number(&self, name: &str, default: i64) -> Result<i64, String> {
        self.named
            .get(name)
            .map_or(Ok(default), |text| text.parse().map_err(|_| format!("{name}={text} is no number")))
    }
}

impl Scenario {
    /// An empty pool at the time 0.
    pub fn new() -> Self {
        let mut scenario = Self {
            controller: Controller::open(State::default()),
            now: Time(0),
            names: BTreeMap::new(),
            queues: vec![Queue::named("default")],
            log: Vec::new(),
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

    /// The controller, for tests that look closer.
    pub fn controller(&mut self) -> &mut Controller {
        &mut self.controller
    }

    /// What was printed so far.
    pub fn printed(&self) -> &str {
        &self.out
    }

    /// Carries out one line.
    pub fn line(&mut self, line: &str) -> Done {
        let line = line.split('#').next().unwrap_or_default();
        let words = Words::of(line);
        let Some(verb) = words.placed.first().copied() else { return Ok(()) };
        match verb {
            "node" => self.node(&words),
            "queue" => self.queue(&words),
            "policy" => self.policy(line),
            "submit" => self.submit(&words),
            "plan" => self.plan(),
            "end" => self.end(&words),
            "pass" => {
                let span: Span = words.at(1, "the time")?.parse().map_err(|error| format!("{error}"))?;
                self.now = self.now + span;
                Ok(())
            }
            "cancel" => self.command(&words, Command::Cancel),
            "hold" => self.command(&words, Command::Hold),
            "release" => self.command(&words, Command::Release),
            "device" => self.device(&words),
            "drain" => {
                let by = Person { name: "root".into(), admin: true };
                let command = match words.placed.get(2) {
                    Some(node) => Command::DrainNode((*node).to_owned(), words.has("on"), by),
                    None => Command::SetDrain(words.has("on"), by),
                };
                self.take(&command)
            }
            "remove" => {
                let path = words.at(1, "the queue")?;
                let queues = self.queues.iter().filter(|queue| queue.path != path).cloned().collect();
                self.take(&Command::SetQueues(queues, Person { name: "root".into(), admin: true }))
            }
            "restart" => self.restart(),
            "explain" => self.explain(&words),
            other => Err(format!("unknown verb {other:?}")),
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
                let _ = writeln!(self.out, "refused {}: {rejection}", rejection.code());
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

    /// Moves what was logged into the log.
    fn keep(&mut self) -> Vec<Event> {
        let events: Vec<Stamped> =
            self.controller.drain().map(|batch| batch.commit.events).unwrap_or_default();
        self.log.extend(events.iter().cloned());
        events.into_iter().map(|stamped| stamped.event).collect()
    }

    fn node(&mut self, words: &Words) -> Done {
        let name = words.at(1, "the node's name")?;
        let (count, model) = match words.placed.get(2) {
            None => (0, "h100"),
            Some(devices) => count_of(devices)?,
        };
        let device = |index: u32| DeviceSpec {
            uuid: format!("{name}:{index}"),
            index,
            model: model.to_owned(),
            memory_mib: if model == "a100" { 40_960 } else { 81_559 },
            ..DeviceSpec::default()
        };
        let spec = NodeSpec {
            name: name.to_owned(),
            cpu_milli: words.number("cpu", 64)? * 1000,
            memory_bytes: words.number("mem", 512)? << 30,
            ..NodeSpec::default()
        };
        self.see(&Observation::Node(spec, (0..count).map(device).collect()))
    }

    fn queue(&mut self, words: &Words) -> Done {
        let mut queue = Queue::named(words.at(1, "the queue's name")?);
        for (name, text) in &words.named {
            match *name {
                "requeue" => queue.requeue = requeue(text)?,
                "limit" => drop(queue.limit.insert("any".into(), amount("any", text)?)),
                "guarantee" => drop(queue.guarantee.insert("any".into(), amount("any", text)?)),
                "lend" => drop(queue.lend.insert("any".into(), amount("any", text)?)),
                "borrow" => drop(queue.borrow.insert("any".into(), amount("any", text)?)),
                "weight" => queue.weight = text.parse().map_err(|_| "the weight is a number")?,
                "priority" => queue.priority = text.parse().map_err(|_| "the priority is a number")?,
                resource => drop(queue.limit.insert(resource.into(), amount(resource, text)?)),
            }
        }
        self.queues.retain(|other| other.path != queue.path);
        self.queues.push(queue);
        self.take(&Command::SetQueues(self.queues.clone(), Person { name: "root".into(), admin: true }))
    }

    fn policy(&mut self, line: &str) -> Done {
        let text = line.trim_start().trim_start_matches("policy").trim();
        let policy = policy::parse(text).map_err(|bad| bad.to_string())?;
        self.take(&Command::SetPolicy(Box::new(policy), Person { name: "root".into(), admin: true }))
    }

    fn submit(&mut self, words: &Words) -> Done {
        let name = words.at(1, "the job's name")?;
        let array = words
            .named
            .get("array")
            .map(|text| text.parse())
            .transpose()
            .map_err(|error| format!("{error}"))?;
        let user = words.named.get("user").copied().unwrap_or("ana");
        let submit = Submit {
            owner: Owner { name: user.into(), uid: 1000, ..Owner::default() },
            spec: self.spec(name, words)?,
            requeue_said: words.named.contains_key("requeue"),
            array,
            token: words.named.get("token").map(|token| (*token).to_owned()),
            held: words.has("held"),
            history: BTreeMap::new(),
        };
        let number = self.controller.state().next_job;
        self.take(&Command::Submit(Box::new(submit)))?;
        if self.controller.state().jobs.contains_key(&number) {
            self.names.insert(name.to_owned(), number);
        }
        Ok(())
    }

    fn spec(&self, name: &str, words: &Words) -> Result<JobSpec, String> {
        let alternative = alternative(words)?;
        let tasks = u32::try_from(words.number("tasks", 1)?).map_err(|_| "tasks are a number")?;
        let work = Work::Process(Process { argv: vec!["true".into()], ..Process::default() });
        let role = Role {
            name: "main".into(),
            minimum: tasks,
            maximum: tasks,
            ask: Ask { alternatives: vec![alternative] },
            work,
            topology: None,
        };
        let after = words.named.get("after").map(|text| self.dependency(text)).transpose()?;
        let span = |name: &str| {
            words
                .named
                .get(name)
                .map(|text| text.trim_start_matches('+').parse::<Span>())
                .transpose()
                .map_err(|error| format!("{error}"))
        };
        Ok(JobSpec {
            name: name.into(),
            queue: words.at(2, "the queue")?.into(),
            project: None,
            kind: Kind::Train,
            labels: BTreeMap::new(),
            priority: words
                .named
                .get("prio")
                .map_or(Some(0), |text| priority::parse(text))
                .ok_or("prio is a name or a number")?,
            preemptible: !words.has("fixed"),
            resumable: words.has("resumable"),
            lifetime: Lifetime::Batch,
            gang: Group::Role(role),
            time_limit: span("limit")?,
            estimate: None,
            requeue: words.named.get("requeue").map_or(Ok(Requeue::Lost), |text| requeue(text))?,
            most_restarts: usual_restarts(),
            after: after.into_iter().collect(),
            start_after: span("start")?.map(|span| self.now + span),
            stop: StopOrder::default(),
            checkpoint: None,
            wait_for_capacity: words.has("wait"),
            exclusive: words.has("exclusive"),
        })
    }

    fn dependency(&self, text: &str) -> Result<crate::model::job::Dependency, String> {
        use crate::model::job::{Dependency, DependsOn};
        let (name, on) = text.split_once(':').unwrap_or((text, "ok"));
        let on = match on {
            "ok" => DependsOn::Ok,
            "fail" => DependsOn::Fail,
            "any" => DependsOn::Any,
            other => return Err(format!("after {other:?}: write ok, fail or any")),
        };
        Ok(Dependency { job: self.job(name)?, on })
    }

    /// `j1`, or `j1_3` for a member.
    fn job(&self, name: &str) -> Result<JobId, String> {
        let (base, member) = match name.split_once('_') {
            Some((base, member)) => (base, Some(member.parse().map_err(|_| format!("{name}: no member"))?)),
            None => (name, None),
        };
        let number = self.names.get(base).ok_or_else(|| format!("there is no job {base}"))?;
        Ok(JobId { number: *number, member })
    }

    fn name_of(&self, id: JobId) -> String {
        let name = self.names.iter().find(|(_, number)| **number == id.number).map_or("?", |(name, _)| name);
        id.member.map_or(name.to_owned(), |member| format!("{name}_{member}"))
    }

    fn plan(&mut self) -> Done {
        self.controller.cycle(self.now).map_err(|broken| broken.to_string())?;
        let events = self.keep();
        let mut started = Vec::new();
        for event in &events {
            self.print(event);
            if let Event::Placed { placements, .. } = event {
                started.extend(placements.iter().map(|placement| placement.allocation));
            }
        }
        for allocation in started {
            self.see(&Observation::Started(
                allocation,
                TaskStart { at: self.now, pid: 1, ..TaskStart::default() },
            ))?;
        }
        Ok(())
    }

    /// The devices of each task, or the node of one that has none.
    fn places(&self, placements: &[Placement]) -> String {
        let device = |(id, _): &(DeviceId, Draw)| {
            self.state().devices.get(id).map_or(String::new(), |device| device.spec.uuid.clone())
        };
        let node = |id: NodeId| self.state().nodes.get(&id).map(|node| node.spec.name.clone());
        let task = |placement: &Placement| match placement.devices.is_empty() {
            true => node(placement.node).unwrap_or_default(),
            false => placement.devices.iter().map(device).collect::<Vec<_>>().join("+"),
        };
        placements.iter().map(task).collect::<Vec<_>>().join(" ")
    }

    fn print(&mut self, event: &Event) {
        let line = match event {
            Event::Placed { job, placements, .. } => {
                format!("place {} {}", self.name_of(*job), self.places(placements))
            }
            Event::Promised(promise) => {
                format!("promise {} {}", self.name_of(promise.job), self.places(&promise.placements))
            }
            Event::Stopping { job, cause, by, .. } => {
                let taker = by.as_deref().and_then(|by| by.parse().ok()).map(|by| self.name_of(by));
                let taker = taker.filter(|_| matches!(cause, Cause::Preempted | Cause::Reclaimed));
                let taker = taker.map(|taker| format!(" by {taker}")).unwrap_or_default();
                format!("stop {} {cause:?}{taker}", self.name_of(*job))
            }
            Event::Dropped { job, end, .. } => format!("drop {} {:?}", self.name_of(*job), end.cause),
            Event::Judged { classes } => {
                let reasons: Vec<String> = classes
                    .iter()
                    .filter_map(|(_, reason)| reason.as_ref())
                    .map(|reason| format!("wait {}: {reason}", reason.code()))
                    .collect();
                reasons.join("\n")
            }
            _ => return,
        };
        if !line.is_empty() {
            let _ = writeln!(self.out, "{line}");
        }
    }

    fn end(&mut self, words: &Words) -> Done {
        let (name, rank) = match words.at(1, "the job")?.split_once('/') {
            Some((name, rank)) => (name, Some(rank.parse::<u32>().map_err(|_| "the rank is a number")?)),
            None => (words.at(1, "the job")?, None),
        };
        let id = self.job(name)?;
        let how = if words.has("lost") {
            EndedHow::SupervisorLost
        } else if words.has("reboot") {
            EndedHow::NodeReboot
        } else if words.named.contains_key("signal") {
            EndedHow::Signalled(words.number("signal", 0)? as i32)
        } else {
            EndedHow::Exited(words.number("exit", 0)? as i32)
        };
        let live: Vec<AllocationId> = self.state().run(id).map(|run| run.live.clone()).unwrap_or_default();
        let rank_of = |allocation: &AllocationId| {
            self.state().allocations.get(allocation).map(|held| held.placement.rank)
        };
        let ended: Vec<_> =
            live.into_iter().filter(|allocation| rank.is_none() || rank_of(allocation) == rank).collect();
        for allocation in ended {
            self.controller
                .see(
                    &Observation::Ended(
                        allocation,
                        TaskEnd { at: self.now, how: how.clone(), ..TaskEnd::default() },
                    ),
                    self.now,
                )
                .map_err(|broken| broken.to_string())?;
            for event in self.keep() {
                if let Event::AttemptEnded { job, end, exit_code, state } = &event {
                    let _ = writeln!(
                        self.out,
                        "ended {} {} {:?} exit={exit_code}",
                        self.name_of(*job),
                        state.name(),
                        end.cause
                    );
                }
                if matches!(event, Event::Stopping { .. } | Event::Placed { .. }) {
                    self.print(&event);
                }
            }
        }
        Ok(())
    }

    fn command(&mut self, words: &Words, command: impl Fn(JobId, Person) -> Command) -> Done {
        let name = words.named.get("by").copied().unwrap_or("ana");
        let id = self.job(words.at(1, "the job")?)?;
        self.take(&command(id, Person { name: name.into(), admin: name == "root" }))
    }

    fn device(&mut self, words: &Words) -> Done {
        let uuid = words.at(1, "the device")?.to_owned();
        let occupant =
            Occupant::Process { pid: 7, user: "eve".into(), command: "python".into(), memory_mib: 900 };
        let (health, occupant) = match words.at(2, "down, foreign or ok")? {
            "down" => (Health::Down("fell off the bus".into()), None),
            "foreign" => (Health::Ok, Some(occupant)),
            _ => (Health::Ok, None),
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

    fn explain(&mut self, words: &Words) -> Done {
        let id = self.job(words.at(1, "the job")?)?;
        let explained = explain::explain(self.controller.state(), self.controller.snapshot(), id)
            .ok_or("the job is not there")?;
        let _ = writeln!(self.out, "{}", explained.verdict.name());
        for blocker in explained.blockers {
            let _ = writeln!(self.out, "  {} {blocker} | {}", blocker.code(), blocker.fix());
        }
        let steps: Vec<String> = explained
            .funnel
            .0
            .iter()
            .map(|(step, devices, _)| format!("{devices} {}", step.name()))
            .collect();
        let _ = writeln!(self.out, "  {}", steps.join(" > "));
        Ok(())
    }
}

/// What each task asks for.
fn alternative(words: &Words) -> Result<Alternative, String> {
    let count: u32 = words.at(3, "the number of GPUs")?.parse().map_err(|_| "GPUs are a number")?;
    let models =
        words.named.get("model").map(|text| text.split(',').map(String::from).collect()).unwrap_or_default();
    let gb = u32::try_from(words.number("gb", 0)?).ok().filter(|gb| *gb > 0);
    let class = DeviceClass { models, least_gb: gb, ..DeviceClass::default() };
    let draw = match words.number("milli", 1000)? {
        1000 => DrawAsk::Whole,
        milli => {
            DrawAsk::Share { milli: u32::try_from(milli).map_err(|_| "milli is a number")?, memory_mib: None }
        }
    };
    let devices = (count > 0).then_some(DeviceAsk { class, count, draw });
    let asked = |name: &str, unit: i64| {
        words.named.contains_key(name).then(|| words.number(name, 0)).transpose().map(|n| n.map(|n| n * unit))
    };
    Ok(Alternative {
        devices,
        cpu_milli: asked("cpu", 1000)?,
        memory_bytes: asked("mem", 1 << 30)?,
        speed_percent: 100,
    })
}

/// `8` and `h100` of `8xh100`.
fn count_of(devices: &str) -> Result<(u32, &str), String> {
    let (count, model) = devices.split_once('x').ok_or("write devices as 8xh100")?;
    Ok((count.parse().map_err(|_| "write devices as 8xh100")?, model))
}

fn requeue(text: &str) -> Result<Requeue, String> {
    match text {
        "never" => Ok(Requeue::Never),
        "lost" => Ok(Requeue::Lost),
        "failure" => Ok(Requeue::Failure),
        other => Err(format!("requeue={other}: write never, lost or failure")),
    }
}

fn amount(resource: &str, text: &str) -> Result<crate::amount::Amount, String> {
    read_amount(&resource.into(), text).ok_or_else(|| format!("{resource}={text} is no amount"))
}
