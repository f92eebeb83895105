//! Writing a state as a scenario that leads to it, with all names replaced: what a bug report needs, and nothing private. Each line
//! is read back; where words do not say all, braces do.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Scenario;
use super::links;
use super::names::Names;
use super::read;
use super::words::Words;
use crate::amount::{Amount, Resource};
use crate::engine::EndedHow;
use crate::explain;
use crate::id::JobId;
use crate::model::allocation::Placement;
use crate::model::ask::DrawAsk;
use crate::model::device::Health;
use crate::model::gang::Group;
use crate::model::job::{Cause, DependsOn, JobSpec, JobState, Requeue, StopOrder, usual_restarts};
use crate::model::members::Members;
use crate::model::node::NodeState;
use crate::model::policy::{self, Policy};
use crate::model::queue::{DEFAULT, Nodes, Queue};
use crate::model::reservation::{Part, Purpose, Reservation};
use crate::model::topology::Spread;
use crate::plan;
use crate::reason::{Reason, shown};
use crate::snapshot::Snapshot;
use crate::state::{Job, Run, Runs, State};
use crate::time::{Span, Time};

/// A state as a scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Its lines; the last one plans.
    pub text: String,
    /// What is different when the scenario is run: empty where it shows the same jobs in the same places, waiting for the same reasons.
    pub differences: Vec<String>,
}

/// Writes a state as a scenario.
pub fn write(state: &State) -> Written {
    let names = Names::of(state);
    let mut script = Script { state, names: &names, lines: Vec::new(), empty: Snapshot::emptied(state) };
    script.settings();
    state.jobs.values().for_each(|job| script.job(job));
    script.circumstances();
    let text = script.text();
    let differences = differences(state, &names, &text);
    Written { text, differences }
}

/// Lines with their time and, at one moment, their order.
struct Script<'a> {
    state: &'a State,
    names: &'a Names<'a>,
    lines: Vec<((Time, u8), String)>,
    empty: Snapshot,
}

impl Script<'_> {
    fn add(&mut self, at: Time, order: u8, line: String) {
        self.lines.push(((self.names.time(at), order), line));
    }

    fn settings(&mut self) {
        let begin = self.names.begin;
        if self.state.policy != Policy::default() {
            self.add(begin, 0, format!("policy {}", policy(&self.state.policy)));
        }
        for queue in self.state.queues.values() {
            let renamed = self.names.renamed_queue(queue);
            if renamed != Queue::named(DEFAULT) {
                self.add(begin, 0, queue_line(&renamed));
            }
        }
        if !self.state.queues.contains_key(DEFAULT) {
            self.add(begin, 0, format!("remove {DEFAULT}"));
        }
        for (id, node) in &self.state.nodes {
            let hardware = self.names.hardware(*id, &node.spec);
            self.add(begin, 0, node_line(&hardware));
        }
    }

    fn job(&mut self, job: &Job) {
        let mut spec = self.names.renamed_spec(job);
        // It was accepted once; the pool may have had more then.
        spec.wait_for_capacity |= plan::fits_empty(&self.empty, &job.spec).is_err();
        let name = spec.name.clone();
        self.add(job.submitted_at, 1, self.submit_line(job, &spec));
        if let Some(estimate) = &job.estimate {
            let spans = [estimate.p50_ms, estimate.p90_ms].map(span).join(" ");
            self.add(job.submitted_at, 1, format!("estimate {name} {spans}"));
        }
        match &job.runs {
            Runs::Single(run) => self.run(job, job.id(), run, None),
            Runs::Array(array) => {
                if let Some(by) = array.held.as_ref().filter(|by| **by != job.owner.name) {
                    self.hold(job, job.id(), by);
                }
                for (member, run) in &array.touched {
                    self.run(job, JobId::member(job.number, *member), run, array.held.as_deref());
                }
            }
        }
    }

    /// `submit j1 q1 2 user=u1 …`; an array without its members that have ended.
    fn submit_line(&self, job: &Job, spec: &JobSpec) -> String {
        let user = self.names.user(&job.owner.name);
        let (array, held) = match &job.runs {
            Runs::Single(run) => (None, run.held_by.as_ref()),
            Runs::Array(runs) => (Some(array_text(job, runs.array.at_most)), runs.held.as_ref()),
        };
        let held = held.filter(|by| **by == job.owner.name).map(|_| " held".to_owned());
        let array = array.map(|array| format!(" array={array}"));
        let said = format!(" user={user}{}{}", array.unwrap_or_default(), held.unwrap_or_default());
        let now = self.names.time(job.submitted_at);
        let words = job_words(spec, now).map(|words| format!("submit {words}{said}"));
        let says_all = |line: &String| {
            read::spec(&Words::of(line), spec.after.clone(), now).is_ok_and(|read| read == *spec)
        };
        words
            .filter(says_all)
            .unwrap_or_else(|| format!("submit {} {}{said} {}", spec.name, spec.queue, json(spec)))
    }

    fn hold(&mut self, job: &Job, id: JobId, by: &str) {
        let by = if by == job.owner.name { self.names.user(by) } else { "root".into() };
        self.add(job.submitted_at, 2, format!("hold {} by={by}", self.names.job(id)));
    }

    fn run(&mut self, job: &Job, id: JobId, run: &Run, array_held: Option<&str>) {
        let name = self.names.job(id);
        match (run.state, &run.held_by) {
            (JobState::Held, Some(by))
                if *by != job.owner.name || id.member.is_some() && array_held.is_none() =>
            {
                self.hold(job, id, by);
            }
            (JobState::Pending, _) if array_held.is_some() => {
                self.add(job.submitted_at, 2, format!("release {name} by=root"));
            }
            _ => {}
        }
        if run.is_active() {
            self.start(job, id, run);
        }
    }

    fn start(&mut self, job: &Job, id: JobId, run: &Run) {
        let name = self.names.job(id);
        let at = run.placed_at.unwrap_or(job.submitted_at);
        let slowly = if run.started_at.is_none() { " slowly" } else { "" };
        self.add(at, 3, format!("start {name} {}{slowly}", self.on(job, &run.placements)));
        for (rank, end) in &run.over {
            let code = i32::from(end.how != EndedHow::Exited(0));
            let over = end.at.max(at).min(self.state.now);
            // What it held may go to another job at the same moment.
            let order = if over > at { 2 } else { 4 };
            self.add(over, order, format!("end {name}/{rank} exit={code}"));
        }
        // What is overdue was told to stop long ago.
        let grace = Span(StopOrder::default().grace_ms);
        let told = self.state.should_have_ended(id).map_or(self.state.now, |by| (by - grace).max(at));
        match run.stopping.as_ref().map(|stopping| (stopping.cause, stopping.requeue)) {
            None | Some((Cause::BrokenGang, _)) => {}
            Some((_, true)) => self.add(told, 5, format!("stop {name}")),
            Some((_, false)) => self.add(told, 5, format!("cancel {name} by=root")),
        }
    }

    /// The places of the tasks; `-` for one that an elastic gang does not have.
    fn by_rank(&self, job: &Job, placements: &[Placement]) -> String {
        if !job.spec.gang.is_elastic() {
            return self.names.places(placements);
        }
        let last = placements.iter().map(|placement| placement.rank).max().unwrap_or(0);
        let of = |rank| {
            let own = placements.iter().find(|placement| placement.rank == rank);
            own.map_or_else(|| "-".to_owned(), |own| self.names.places(std::slice::from_ref(own)))
        };
        (0..=last).map(of).collect::<Vec<_>>().join(",")
    }

    /// `on=n1:0,n1:1 cpu=4 mem=8`: what the tasks have; of the host only what the job does not say.
    fn on(&self, job: &Job, placements: &[Placement]) -> String {
        let mut text = format!("on={}", self.by_rank(job, placements));
        let asked: Vec<_> = placements
            .iter()
            .map(|placement| (placement, job.spec.gang.role_of(placement.rank)))
            .map(|(placement, role)| role?.0.ask.alternatives.get(placement.alternative as usize))
            .map(|asked| {
                asked.map_or((0, 0), |asked| (asked.cpu_milli.unwrap_or(0), asked.memory_bytes.unwrap_or(0)))
            })
            .collect();
        if placements.iter().zip(&asked).any(|(placement, asked)| placement.cpu_milli != asked.0) {
            text += &format!(" cpu={}", each(placements.iter().map(|placement| cores(placement.cpu_milli))));
        }
        if placements.iter().zip(&asked).any(|(placement, asked)| placement.memory_bytes != asked.1) {
            text +=
                &format!(" mem={}", each(placements.iter().map(|placement| memory(placement.memory_bytes))));
        }
        let alternative = placements.first().map_or(0, |placement| placement.alternative);
        if alternative > 0 { text + &format!(" alt={alternative}") } else { text }
    }

    /// What is promised, what is broken, what takes nothing new.
    fn circumstances(&mut self) {
        let now = self.state.now;
        for promise in self.state.promises.values() {
            let Some(job) = self.state.jobs.get(&promise.job.number) else { continue };
            let on = self.on(job, &promise.placements);
            self.add(now, 6, format!("promise {} {on}", self.names.job(promise.job)));
        }
        for (id, device) in &self.state.devices {
            match (&device.health, &device.occupant) {
                (Health::Down(_), _) => self.add(now, 7, format!("device {} down", self.names.device(*id))),
                (_, Some(_)) => self.add(now, 7, format!("device {} foreign", self.names.device(*id))),
                _ => {}
            }
        }
        for (id, node) in &self.state.nodes {
            if node.state == NodeState::Draining {
                self.add(now, 7, format!("drain on {}", self.names.node(*id)));
            }
        }
        for kept in &self.state.reservations {
            self.add(now, 7, self.kept(kept));
        }
        if self.state.draining {
            self.add(now, 7, "drain on".into());
        }
        self.add(now, 8, "plan".into());
    }

    fn kept(&self, kept: &Reservation) -> String {
        let part = |part: &Part| match part.devices.is_empty() {
            true => vec![self.names.node(part.node)],
            false => part.devices.iter().map(|id| self.names.device(*id)).collect(),
        };
        let parts: Vec<String> = kept.parts.iter().flat_map(part).collect();
        let (parts, now) = (parts.join(","), self.state.now);
        let mut line = match &kept.purpose {
            Purpose::Maintenance if kept.evicts => format!("drain on {parts} evict"),
            Purpose::Maintenance => format!("drain on {parts}"),
            Purpose::Queue(queue) => format!("reserve {parts} queue={}", self.names.queue(queue)),
        };
        let from = kept.from.max(now);
        if from > now {
            line += &format!(" at=+{}", span(from.since(now).0));
        }
        if let Some(until) = kept.until {
            line += &format!(" for={}", span(until.since(from).0.max(1)));
        }
        line
    }

    fn text(mut self) -> String {
        self.lines.sort_by_key(|(key, _)| *key);
        let (mut text, mut clock) = (String::new(), Time(0));
        for ((at, _), line) in &self.lines {
            if *at > clock {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "pass {}", span(at.since(clock).0));
                clock = *at;
            }
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

/// One word for all tasks where they have the same, else one each.
fn each(words: impl Iterator<Item = String>) -> String {
    let mut words: Vec<String> = words.collect();
    if words.windows(2).all(|pair| pair[0] == pair[1]) {
        words.truncate(1);
    }
    words.join(",")
}

fn json<T: serde::Serialize>(value: &T) -> String {
    // What was read from the log can be written.
    serde_json::to_string(value).unwrap_or_default()
}

/// The settings that are not the usual ones.
fn policy(policy: &Policy) -> String {
    let usual = policy::said(&Policy::default());
    let mut said = policy::said(&policy.spelled_out());
    said.retain(|name, value| usual.get(name) != Some(value));
    json(&said)
}

fn queue_line(queue: &Queue) -> String {
    let amounts = |word: &str, amounts: &BTreeMap<Resource, Amount>| {
        let of = |(resource, amount): (&Resource, &Amount)| {
            let name = if *resource == Resource::Any { word.to_owned() } else { resource.to_string() };
            match amount {
                Amount::Unlimited => format!(" {name}=unlimited"),
                Amount::Finite(amount) => format!(" {name}={}", shown(resource, *amount)),
            }
        };
        amounts.iter().map(of).collect::<String>()
    };
    let mut line = format!("queue {}{}", queue.path, amounts("limit", &queue.limit));
    for (word, of) in [("guarantee", &queue.guarantee), ("lend", &queue.lend), ("borrow", &queue.borrow)] {
        line += &amounts(word, of);
    }
    if queue.weight != 1 {
        line += &format!(" weight={}", queue.weight);
    }
    if queue.priority != 0 {
        line += &format!(" priority={}", queue.priority);
    }
    if queue.requeue != Requeue::default() {
        line += &format!(" requeue={}", requeue(queue.requeue));
    }
    match queue.nodes.said() {
        Some(Nodes::Named(names)) => {
            line += &format!(" nodes={}", names.iter().cloned().collect::<Vec<_>>().join(","));
        }
        Some(Nodes::Labelled(labels)) => {
            let labels = labels.iter().map(|(label, value)| format!("{label}:{value}"));
            line += &format!(" nodes={}", labels.collect::<Vec<_>>().join(","));
        }
        None => {}
    }
    let says_all = read::queue(&Words::of(&line)).is_ok_and(|read| read == *queue);
    if says_all { line } else { format!("queue {} {}", queue.path, json(queue)) }
}

fn requeue(requeue: Requeue) -> &'static str {
    match requeue {
        Requeue::Never => "never",
        Requeue::Lost => "lost",
        Requeue::Failure => "failure",
    }
}

fn node_line(hardware: &read::Hardware) -> String {
    let lines = links::words_for(&hardware.devices).into_iter().map(|linked| node_words(hardware, &linked));
    let says_all = |line: &String| read::node(&Words::of(line)).is_ok_and(|read| read == *hardware);
    let mut lines = lines.filter(says_all);
    lines.next().unwrap_or_else(|| format!("node {} {}", hardware.spec.name, json(hardware)))
}

/// A node in words, as far as they go.
fn node_words(hardware: &read::Hardware, linked: &str) -> String {
    let spec = &hardware.spec;
    let mut line = format!("node {}", spec.name);
    if let Some(first) = hardware.devices.first() {
        line += &format!(" {}x{}{linked}", hardware.devices.len(), first.model);
        line += &first.nominal_gb.map(|gb| format!(" gb={gb}")).unwrap_or_default();
        line += &format!(" mib={}", first.memory_mib);
        line += &first.bandwidth_gb_s.said().map(|gb_s| format!(" bandwidth={gb_s}")).unwrap_or_default();
    }
    line += &format!(" cpu={} mem={}", cores(spec.cpu_milli), memory(spec.memory_bytes));
    let numa =
        spec.numa.iter().map(|numa| format!("{}:{}", cores(numa.cpu_milli), memory(numa.memory_bytes)));
    let numa = numa.collect::<Vec<_>>().join(",");
    line += &if numa.is_empty() { String::new() } else { format!(" numa={numa}") };
    line.extend(spec.domains.iter().map(|(level, domain)| format!(" {level}={domain}")));
    line
}

/// A job in words, as far as they go: `None` for one that is no flat gang of tasks with one way to run.
fn job_words(spec: &JobSpec, now: Time) -> Option<String> {
    let Group::Role(role) = &*spec.gang else { return None };
    let asked = role.ask.alternatives.first()?;
    let devices = asked.devices.as_ref();
    let mut line = format!("{} {} {}", spec.name, spec.queue, devices.map_or(0, |ask| ask.count));
    let mut say = |name: &str, text: Option<String>| {
        line += &text.map(|text| format!(" {name}={text}")).unwrap_or_default();
    };
    say(
        "tasks",
        match (role.minimum, role.maximum) {
            (1, 1) => None,
            (least, most) if least == most => Some(least.to_string()),
            (least, most) => Some(format!("{least}..{most}")),
        },
    );
    say("prio", (spec.priority != 0).then(|| spec.priority.to_string()));
    let speeds = role.ask.speeds();
    let models = devices.filter(|_| speeds.is_none()).map(|ask| ask.class.models.join(","));
    say("model", models.filter(|models| !models.is_empty()));
    let others = role.ask.alternatives.iter().skip(1).filter(|_| speeds.is_none());
    let others =
        others.filter_map(|it| it.devices.as_ref()).map(|ask| format!("{}:{}", ask.class, ask.count));
    let others: Vec<String> = others.collect();
    say("or", (!others.is_empty()).then(|| others.join(",")));
    let speed = |(model, speed): (&String, &u32)| format!("{model}:{speed}");
    say("speed", speeds.map(|speeds| speeds.iter().map(speed).collect::<Vec<_>>().join(",")));
    say("gb", devices.and_then(|ask| ask.class.least_gb).map(|gb| gb.to_string()));
    say("bandwidth", devices.and_then(|ask| ask.class.least_gb_s.0).map(|gb_s| gb_s.to_string()));
    say(
        "milli",
        devices.and_then(|ask| match ask.draw {
            DrawAsk::Share { milli, .. } => Some(milli.to_string()),
            _ => None,
        }),
    );
    let island = role.ask.island();
    let levels = |required| island.filter(|ask| ask.required == required).map(|ask| ask.level.to_string());
    say("within", levels(true));
    say("near", levels(false));
    say("cpu", asked.cpu_milli.map(cores));
    say("mem", asked.memory_bytes.map(memory));
    say("limit", spec.time_limit.map(|limit| span(limit.0)));
    say("start", spec.start_after.map(|at| format!("+{}", span(at.since(now).0))));
    say("estimate", spec.estimate.map(|estimate| span(estimate.0)));
    say("saves", spec.saves_every_ms().map(span));
    say("after", (!spec.after.is_empty()).then(|| after(spec)));
    say("spread", role.spread.said().map(spread));
    say("requeue", Some(requeue(spec.requeue).to_owned()));
    say("restarts", (spec.most_restarts != usual_restarts()).then(|| spec.most_restarts.to_string()));
    let flags = [("wait", spec.wait_for_capacity), ("exclusive", spec.exclusive)];
    let flags = flags.into_iter().chain([
        ("resumable", spec.resumable),
        ("fixed", !spec.preemptible),
        ("polite", !spec.may_preempt()),
    ]);
    let flags: String = flags.filter(|(_, on)| *on).map(|(flag, _)| format!(" {flag}")).collect();
    Some(line + &flags)
}

fn spread(spread: &Spread) -> String {
    let Spread { over, most, required } = spread;
    let wish = if *required { "" } else { ":wish" };
    most.map_or_else(|| over.clone(), |most| format!("{most}:{over}{wish}"))
}

fn after(spec: &JobSpec) -> String {
    let on = |on| match on {
        DependsOn::Ok => "ok",
        DependsOn::Fail => "fail",
        DependsOn::Any => "any",
    };
    let one = |other: &crate::model::job::Dependency| {
        let member = other.job.member.map(|member| format!("_{member}")).unwrap_or_default();
        format!("j{}{member}:{}", other.job.number, on(other.on))
    };
    spec.after.iter().map(one).collect::<Vec<_>>().join(",")
}

/// The members that have not ended.
fn array_text(job: &Job, at_most: Option<u32>) -> String {
    let open: Members = job.open_members().flatten().collect();
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for member in open.iter() {
        match ranges.last_mut().filter(|last| last.1 + 1 == member) {
            Some(last) => last.1 = member,
            None => ranges.push((member, member)),
        }
    }
    let range = |(first, last): &(u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    let bound = at_most.map(|most| format!("%{most}")).unwrap_or_default();
    ranges.iter().map(range).collect::<Vec<_>>().join(",") + &bound
}

fn cores(milli: i64) -> String {
    shown(&Resource::Cpu, milli)
}

/// GiB where they are whole, else bytes.
fn memory(bytes: i64) -> String {
    if bytes % (1 << 30) == 0 { (bytes >> 30).to_string() } else { format!("{bytes}B") }
}

/// A length of time to the millisecond: `1h30m`.
fn span(ms: i64) -> String {
    let mut left = ms;
    let mut text = String::new();
    for (unit, ms) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)] {
        if left >= ms {
            text += &format!("{}{unit}", left / ms);
            left %= ms;
        }
    }
    if text.is_empty() { "0s".into() } else { text }
}

/// How a run stands: where it is, or what keeps it waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    Has(&'static str, String),
    Waits(Option<Reason>),
}

fn differences(state: &State, names: &Names, text: &str) -> Vec<String> {
    let mut scenario = Scenario::new();
    for line in text.lines() {
        if let Err(what) = scenario.line(line) {
            return vec![format!("the line `{line}` cannot be run: {what}")];
        }
    }
    let own: BTreeMap<String, Standing> =
        standings(state, |placements| names.places(placements), |job, reason| names.reason(job, reason))
            .map(|(id, standing)| (names.job(id), standing))
            .collect();
    let places = |placements: &[_]| scenario.places(placements).replace(' ', ",");
    let made: BTreeMap<String, Standing> = standings(scenario.state(), places, |_, reason| reason.clone())
        .map(|(id, standing)| (scenario.name_of(id), standing))
        .collect();
    // The pool's own reasons are told by their codes alone: their texts have names of the pool in them.
    let told = |standing: Option<&Standing>| match standing {
        None => "is not there".to_owned(),
        Some(Standing::Has(state, places)) => format!("is {state} on {places}"),
        Some(Standing::Waits(None)) => "waits".to_owned(),
        Some(Standing::Waits(Some(reason))) => format!("waits, {}", reason.code()),
    };
    let all: std::collections::BTreeSet<&String> = own.keys().chain(made.keys()).collect();
    let differ = all.into_iter().filter(|name| own.get(*name) != made.get(*name));
    differ
        .map(|name| format!("{name} {} here; in the pool it {}", told(made.get(name)), told(own.get(name))))
        .collect()
}

/// All runs that have not ended; of an array's members that wait for the same, touched or not, the first stands for all.
fn standings(
    state: &State,
    places: impl Fn(&[Placement]) -> String,
    reason: impl Fn(&Job, &Reason) -> Reason,
) -> impl Iterator<Item = (JobId, Standing)> {
    state.jobs.values().flat_map(move |job| {
        let runs: Vec<(JobId, Run)> = match &job.runs {
            Runs::Single(run) => vec![(job.id(), run.clone())],
            Runs::Array(array) => {
                let touched = array.touched.iter().map(|(member, run)| (Some(*member), run.clone()));
                let fresh = array.fresh.first().and_then(|first| Some((Some(first), job.run(Some(first))?)));
                touched
                    .chain(fresh)
                    .map(|(member, run)| (JobId { number: job.number, member }, run))
                    .collect()
            }
        };
        let standing = |id: JobId, run: &Run| match run.is_active() {
            true => Standing::Has(run.state.name(), places(&run.placements)),
            false => Standing::Waits(explain::reason(state, job, (id, run)).map(|own| reason(job, &own))),
        };
        without_likes(runs.into_iter().map(|(id, run)| (id, standing(id, &run))).collect())
    })
}

/// Leaves out a member that waits for the same reason as another before it. A member that has waited since a stop or a hold is
/// touched here, but not in the scenario, in which it never ran.
fn without_likes(mut runs: Vec<(JobId, Standing)>) -> Vec<(JobId, Standing)> {
    runs.sort_by_key(|(id, _)| *id);
    let (mut told, mut waiting): (Vec<_>, Vec<Standing>) = (Vec::new(), Vec::new());
    for (id, standing) in runs {
        if matches!(standing, Standing::Waits(_)) {
            if waiting.contains(&standing) {
                continue;
            }
            waiting.push(standing.clone());
        }
        told.push((id, standing));
    }
    told
}
