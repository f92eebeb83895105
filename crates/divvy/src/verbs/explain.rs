//! `divvy explain`: the verdict, all blockers with what fixes each, and the funnel.

use std::io::Write;

use divvy_api::{
    Cause, Displaced, Ended, ExpectedStart, Explain as Explained, GaveUp, JobState, MadeRoom, Room, Trial,
    Verdict, Way, paths,
};
use serde_json::value::RawValue;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{FormatFlag, Written, ago, foreseen, local, near, now_ms, plain, span, told, write_json};
use crate::pool::{self, Place};

const EXAMPLES: &str = "\
Examples:
  divvy explain 12             why job 12 waits, and what would start it
  divvy explain 12 -o json     for programs
  divvy explain --kube POD     why a pod waits in a Kubernetes cluster";

/// Explain why a job waits, runs where it runs, or ended
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Explain {
    /// The job; with --kube a pod, as namespace/name
    #[arg(value_parser = super::job)]
    job: String,
    #[command(flatten)]
    format: OneObject,
    #[cfg(feature = "kubernetes")]
    #[command(flatten)]
    cluster: super::cluster::Cluster,
}

/// `-o` where there is one object: no CSV.
pub(crate) type OneObject = FormatFlag<Shape>;

/// How one object is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Shape {
    /// For people.
    #[default]
    Text,
    /// One object.
    Json,
}

impl Written for Shape {
    const NAMES: &'static str = "text or json";
    const USUAL: &'static str = "text";
}

impl OneObject {
    /// Whether the output is for a program.
    pub(crate) fn is_json(self) -> bool {
        self.output == Shape::Json
    }

    /// Writes an object as it came, or rendered for people.
    pub(crate) fn print<T: serde::de::DeserializeOwned>(
        self,
        object: &RawValue,
        render: impl FnOnce(&T) -> String,
    ) -> Result<Exit, Failure> {
        if self.is_json() {
            write_json(object)?;
        } else {
            std::io::stdout().lock().write_all(render(&serde_json::from_str(object.get())?).as_bytes())?;
        }
        Ok(Exit::Success)
    }
}

impl Explain {
    pub(crate) fn run(&self, place: &Place) -> Result<Exit, Failure> {
        let object = self.explained(place)?;
        self.format.print(&object, |explained| render(explained, now_ms()))
    }

    fn explained(&self, place: &Place) -> Result<Box<RawValue>, Failure> {
        #[cfg(feature = "kubernetes")]
        if self.cluster.kube {
            return self.cluster.explain(&self.job);
        }
        let path = paths::explain(&self.job);
        pool::with_client(place, async |mut client| Ok(client.get(&path).await?))
    }
}

/// The answer in about eight lines.
fn render(explained: &Explained, now_ms: i64) -> String {
    let mut text = headline(explained);
    let mut asks = Vec::new();
    if !explained.ask.is_empty() {
        asks.push(plain(&explained.ask).into_owned());
    }
    if let Some(position) = explained.position {
        let whose = if explained.members_before > 0 { "its array " } else { "" };
        asks.push(format!("{whose}{} in line", ordinal(position)));
    }
    if let Some(submitted) = explained.submitted_ms {
        asks.push(format!("submitted {} ago", ago(submitted, now_ms)));
    }
    if !asks.is_empty() {
        let label = match &explained.ended {
            // What it asked for may not be known any more.
            _ if explained.ask.is_empty() => "was",
            Some(_) => "asked",
            None => "asks",
        };
        text += &labelled(label, &asks.join(", "));
    }
    if let Some(ended) = &explained.ended {
        text += &past(ended, &explained.nodes, now_ms);
    }
    if let Some(next) = &explained.next_member {
        text += &labelled("array", &before_it(explained.members_before, next));
    }
    text += &blockers(&explained.blockers, &explained.job);
    // If only one thing keeps the job back, removing that also starts it.
    if let Some(remedy) = explained.remedy.as_ref().filter(|_| explained.blockers.len() > 1) {
        text += &labelled("start", &way(remedy, &explained.job));
    }
    if let Some(displaced) = &explained.displaced {
        text += &labelled("before", &lost(displaced));
    }
    if let Some(gave_up) = &explained.gave_up {
        text += &labelled("before", &given_up(gave_up, now_ms));
    }
    if !explained.made_room.is_empty() {
        text += &labelled("for it", &made_room(&explained.made_room));
    }
    if let Some(safe) = &explained.why_safe {
        text += &labelled("safe", &plain(safe));
    }
    if let Some(stopped) = &explained.stopped_for {
        text += &labelled("ends", &stopped_for(stopped));
    }
    if let Some(by) = explained.overdue_ms {
        text += &labelled("ends", &overdue(by));
    }
    if !explained.funnel.is_empty() {
        text += &labelled("GPUs", &funnel(&explained.funnel));
    }
    if let Some(room) = &explained.room {
        text += &labelled("room", &kept(room, now_ms));
    }
    if let Some(start) = start(&explained.start, now_ms) {
        text += &labelled("when", &start);
    }
    if let Some(deadline) = deadline(explained, now_ms) {
        text += &labelled("until", &deadline);
    }
    text
}

/// `was to end by 2026-11-21 14:20:00+01:00, and has not: a process of it hangs, or its node does not answer; nobody waits for its GPUs`
fn overdue(by_ms: i64) -> String {
    let by = local(by_ms);
    format!(
        "was to end by {by}, and has not: a process of it hangs, or its node does not answer; nobody waits for its GPUs"
    )
}

/// `will be stopped at 2026-11-21 14:20:00+01:00 for reservation 1, if it still runs, and goes back into its queue`
pub(crate) fn stopped_for(stopped: &divvy_api::StoppedFor) -> String {
    let (at, id) = (local(stopped.at_ms), stopped.reservation);
    format!("will be stopped at {at} for reservation {id}, if it still runs, and goes back into its queue")
}

/// `kept from ≈ 14:20 on, when job 9 is to end; it was ≈ 13:50, but job 7 runs on`
fn kept(room: &Room, now_ms: i64) -> String {
    let mut text = match room.from_ms {
        Some(from) => format!("kept from ≈ {} on", near(from, now_ms)),
        None if room.was_from_ms.is_some() => "nothing says any more when there is room for it".into(),
        None => "collected for it as it becomes free".into(),
    };
    if let Some(job) = room.awaits.as_ref().filter(|_| room.from_ms.is_some()) {
        text += &format!(", when job {} is to end", plain(job));
    }
    if let Some(was) = room.was_from_ms {
        text += &format!("; it was ≈ {}", near(was, now_ms));
    }
    if let Some(job) = &room.outrun_by {
        text += &format!(", but job {} runs on", plain(job));
    }
    text
}

/// `expected ≈ 14:20 (13:50–16:10), by 40 finished jobs like those that run`
fn start(expected: &ExpectedStart, now_ms: i64) -> Option<String> {
    let by = plain(expected.expected_start_by.as_deref().unwrap_or_default());
    let Some(at) = expected.expected_start_ms else {
        return (!by.is_empty()).then(|| format!("expected: {by}"));
    };
    let by = if by.is_empty() { String::new() } else { format!(", {by}") };
    let ends = (expected.expected_start_low_ms, expected.expected_start_high_ms);
    Some(format!("expected {}{by}", foreseen(at, ends, now_ms)))
}

/// `its deadline of 18:00: it would be over ≈ 16:20, in time`
fn deadline(explained: &Explained, now_ms: i64) -> Option<String> {
    let at = explained.deadline_ms?;
    let said = match explained.expected_end_ms {
        _ if at <= now_ms => format!("missed {} ago", span(now_ms - at)),
        Some(end) if end <= at => format!("it would be over ≈ {}, in time", near(end, now_ms)),
        Some(end) => {
            format!("it would be over ≈ {}, {} too late", near(end, now_ms), span(end - at))
        }
        None if explained.length_ms.is_none() => {
            "nothing says how long it runs: give it a time limit or an estimate".to_owned()
        }
        None => "nobody can say when it starts".to_owned(),
    };
    Some(format!("its deadline of {}: {said}", near(at, now_ms)))
}

fn headline(explained: &Explained) -> String {
    let name =
        if explained.name.is_empty() { String::new() } else { format!(" ({})", plain(&explained.name)) };
    let state = explained.state.as_ref().map_or("waits", |state| state.as_str());
    let verdict = match &explained.verdict {
        Verdict::NoFit if is_beyond_settings(&explained.blockers) => {
            "as things are set it never starts".into()
        }
        Verdict::NoFit => "the pool as it is can never run it".to_owned(),
        Verdict::Preempt => "it would run if others were stopped".into(),
        Verdict::Later if explained.state == Some(JobState::Held) => {
            let waits_on = explained.blockers.iter().any(|blocker| blocker.code != "DV-HELD");
            if waits_on { "once it is released, it goes on waiting" } else { "it starts when it is released" }
                .into()
        }
        Verdict::Later if explained.blockers.iter().any(|blocker| blocker.code == "DV-OVER-BUDGET") => {
            "it starts when its queue has more of its budget".into()
        }
        Verdict::Later if is_promised(explained) => "its devices are promised to it".into(),
        Verdict::Later if waits_for_moments(explained) => "it starts when its time has come".into(),
        Verdict::Later => "it starts when something ends".into(),
        Verdict::Fit => "it can run now".into(),
        Verdict::Placed => placed(explained),
        Verdict::Ended => match (&explained.ended, &explained.state) {
            (Some(ended), Some(state)) => how_it_ended(state, ended),
            _ => explained.reason.as_ref().map_or("it is over".into(), |it| plain(&it.text).into_owned()),
        },
        Verdict::Other(word) => plain(word).into_owned(),
    };
    format!("{}{name} is {}: {verdict}\n", plain(&explained.job), plain(state))
}

/// `exit code 1, of task 3`
fn how_it_ended(state: &JobState, ended: &Ended) -> String {
    let mut why = super::show::why_it_ended(state, &ended.end, ended.exit_code);
    if ended.end.cause == Cause::Checkpointed && *state == JobState::Failed {
        why += super::show::RESTARTS_USED_UP;
    }
    let task = ended.failed_task.map(|task| format!(", of task {task}")).unwrap_or_default();
    format!("{}{task}", plain(&why))
}

/// How long a job that is over waited, where it ran, and when.
fn past(ended: &Ended, nodes: &[String], now_ms: i64) -> String {
    let waited = span(ended.waited_ms);
    let over = format!("{}, {} ago", local(ended.ended_ms), ago(ended.ended_ms, now_ms));
    let Some(started) = ended.started_ms else {
        return labelled("waited", &format!("{waited}, and did not run")) + &labelled("ended", &over);
    };
    let before = match ended.attempts {
        ..=1 => "before it started".into(),
        attempts => format!("in all, before {attempts} attempts"),
    };
    let on = if nodes.is_empty() { String::new() } else { format!("on {}, ", plain(&nodes.join(", "))) };
    let ran = format!("{on}from {} on, for {}", local(started), span(ended.ended_ms - started));
    labelled("waited", &format!("{waited} {before}")) + &labelled("ran", &ran) + &labelled("ended", &over)
}

/// Whether the settings of its queue or its user keep a job from ever starting: the pool may well have room for it. A budget counts
/// only where it is zero; of one that is used up there is more later.
fn is_beyond_settings(blockers: &[divvy_api::Blocker]) -> bool {
    let of_settings = ["DV-QUEUE-LIMIT", "DV-USER-LIMIT", "DV-OVER-QUOTA", "DV-BORROW-LIMIT", "DV-NOT-LENT"];
    let is_nothing = |change: &serde_json::Value| change["kind"] == "raise_budget" && change["from"] == 0;
    blockers.iter().any(|blocker| {
        let mut changes = blocker.ways.iter().flat_map(|way| &way.changes);
        of_settings.contains(&blocker.code.as_str()) || changes.any(is_nothing)
    })
}

/// Whether a job waits only for those who leave it their devices.
fn is_promised(explained: &Explained) -> bool {
    matches!(&explained.blockers[..], [only] if only.code == "DV-PROMISED")
}

/// Whether all that keeps a job back goes away with time alone.
fn waits_for_moments(explained: &Explained) -> bool {
    let mut blockers = explained.blockers.iter().filter(|blocker| !blocker.ways.is_empty()).peekable();
    explained.remedy.as_ref().is_some_and(is_a_matter_of_time)
        || blockers.peek().is_some() && blockers.all(|blocker| blocker.ways.iter().any(is_a_matter_of_time))
}

/// Whether a way waits only for moments, and not for the end of a job.
fn is_a_matter_of_time(way: &Way) -> bool {
    let is_moment = |change: &serde_json::Value| {
        let kind = change["kind"].as_str().unwrap_or_default();
        matches!(kind, "wait" | "await_calendar" | "await_safety" | "await_budget")
    };
    way.who == "time" && !way.changes.is_empty() && way.changes.iter().all(is_moment)
}

fn placed(explained: &Explained) -> String {
    let nodes = explained.nodes.join(", ");
    let why = explained.why_here.as_ref().map(|why| format!(": {}", plain(why))).unwrap_or_default();
    if nodes.is_empty() { "it has its place".into() } else { format!("on {}{why}", plain(&nodes)) }
}

/// Changes in words, with the moment until which they take, and the command for a change whose words name none.
fn way(way: &Way, job: &str) -> String {
    let who = if way.who == "administrator" { "an administrator: " } else { "" };
    let until = way.until_ms.map(|until| format!(" (≈ {})", local(until))).unwrap_or_default();
    let is_priority = |change: &&serde_json::Value| change["kind"] == "prioritise";
    // A trial has no job number, and a pod's priority is set where the pod is made.
    let number = job.split('_').next().filter(|number| number.parse::<u64>().is_ok());
    let set = way.changes.iter().find(is_priority).zip(number);
    // The members of an array have one priority.
    let whole = if job.contains('_') { ", which sets that of its whole array" } else { "" };
    let set = set.map(|(change, number)| {
        let to = change["to"].as_i64().and_then(|to| i32::try_from(to).ok());
        let to = to.map_or_else(|| change["to"].to_string(), super::ps::priority);
        format!(" (divvy set {number} --priority {to}{whole})")
    });
    format!("{who}{}{}{until}", plain(&way.text), set.unwrap_or_default())
}

/// `3 members go before it; for the next of them, 2_2:`
fn before_it(members: u64, next: &str) -> String {
    let next = plain(next);
    match members {
        1 => format!("1 member goes before it; for that one, {next}:"),
        _ => format!("{members} members go before it; for the next of them, {next}:"),
    }
}

/// `gave up 2 tasks to job 9 (order) 5m02s ago, and runs on`
fn given_up(gave_up: &GaveUp, now_ms: i64) -> String {
    let to = match (&gave_up.by, gave_up.cause.as_str()) {
        // `by` says which, as `reservation 3`.
        (Some(by), "drain") => plain(by).into_owned(),
        (Some(by), _) => format!("job {}", plain(by)),
        (None, _) => "others".into(),
    };
    let (tasks, cause) = (tasks(gave_up.tasks), plain(&gave_up.cause));
    format!("gave up {tasks} to {to} ({cause}) {} ago, and runs on", ago(gave_up.at_ms, now_ms))
}

/// `1 task`, `2 tasks`
fn tasks(count: u32) -> String {
    format!("{count} task{}", if count == 1 { "" } else { "s" })
}

/// `job 3 gave way (reclaimed), 1.50 GPU-hours of work are to be done again`; beyond three jobs, the rest together.
fn made_room(who: &[MadeRoom]) -> String {
    const NAMED: usize = 3;
    let told = |who: &MadeRoom| {
        let told = match (who.tasks, who.at_ms) {
            (Some(count), _) => format!("gave up {}", tasks(count)),
            (None, None) => "gives way".into(),
            (None, Some(_)) => "gave way".into(),
        };
        format!("job {} {told} ({}), {}", plain(&who.job), plain(&who.cause), cost(who.lost_gpu_seconds))
    };
    let mut text = who.iter().take(NAMED).map(told).collect::<Vec<_>>().join("; ");
    if let Some(rest) = who.get(NAMED..).filter(|rest| !rest.is_empty()) {
        text +=
            &format!("; {} more, {}", rest.len(), cost(rest.iter().map(|who| who.lost_gpu_seconds).sum()));
    }
    text
}

fn cost(lost_gpu_seconds: f64) -> String {
    match lost_gpu_seconds {
        ..=0.0 => "no work is lost".into(),
        seconds => format!("{:.2} GPU-hours of work are to be done again", seconds / 3600.0),
    }
}

/// How a job lost its devices, what that cost, and when it is back.
fn lost(displaced: &Displaced) -> String {
    let to = match (&displaced.by, displaced.cause.as_str()) {
        // `by` says which, as `reservation 3`.
        (Some(by), "drain") => plain(by).into_owned(),
        (Some(by), _) => format!("job {}", plain(by)),
        (None, "drain") => "a drain or a reservation, which divvy reserve lists".into(),
        (None, _) => "others".into(),
    };
    let told = if displaced.at_ms.is_none() { "gives way" } else { "gave way" };
    let mut text =
        format!("{told} to {to} ({}), {}", plain(&displaced.cause), cost(displaced.lost_gpu_seconds));
    if let Some(back) = displaced.back_ms {
        text += &format!(", back ≈ {}", local(back));
    }
    text
}

fn labelled(label: &str, text: &str) -> String {
    format!("  {label:<6} {}\n", told(text))
}

fn blockers(blockers: &[divvy_api::Blocker], job: &str) -> String {
    let mut text = String::new();
    for (at, blocker) in blockers.iter().enumerate() {
        let number = if blockers.len() > 1 { format!("{}.", at + 1) } else { "why".into() };
        text += &labelled(&number, &format!("{}  {}", plain(&blocker.code), plain(&blocker.text)));
        match &blocker.ways[..] {
            [] if !blocker.fix.is_empty() => text += &labelled("fix", &plain(&blocker.fix)),
            ways => {
                let labels = std::iter::once("fix").chain(std::iter::repeat("or"));
                ways.iter().zip(labels).for_each(|(one, label)| text += &labelled(label, &way(one, job)));
            }
        }
    }
    text
}

/// `64 in pool → 40 right model → 3 free → 0 on one node`
fn funnel(steps: &[divvy_api::FunnelStep]) -> String {
    steps.iter().map(|step| format!("{} {}", step.devices, plain(&step.step))).collect::<Vec<_>>().join(" → ")
}

fn ordinal(number: u64) -> String {
    let suffix = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{suffix}")
}

/// The answer to `run --dry-run`.
pub(crate) fn render_trial(trial: &Trial) -> String {
    let who: Vec<&str> = trial.made_room.iter().map(|who| who.job.as_str()).collect();
    let jobs = if who.len() == 1 { "job" } else { "jobs" };
    let given_way = format!("would start when {jobs} {} gave way", who.join(", "));
    let verdict = match &trial.verdict {
        Verdict::NoFit if is_beyond_settings(&trial.blockers) => "would never start as things are set",
        Verdict::NoFit => "would never run: the pool as it is cannot hold it",
        Verdict::Preempt if !who.is_empty() => &given_way,
        Verdict::Preempt => "would wait, or start if others were stopped",
        Verdict::Later => "would wait",
        Verdict::Fit | Verdict::Placed => "would start at once",
        Verdict::Ended => "would end at once",
        Verdict::Other(word) => word,
    };
    let mut text = format!("{}\n", plain(verdict));
    for placement in &trial.placements {
        let indices = placement.indices.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let gpus = if indices.is_empty() { "no GPU".into() } else { format!("GPU {indices}") };
        text += &labelled(
            &format!("task {}", placement.task),
            &format!("{} on {}", gpus, plain(&placement.node)),
        );
    }
    if !trial.made_room.is_empty() {
        text += &labelled("for it", &made_room(&trial.made_room));
    }
    text += &blockers(&trial.blockers, "");
    if !trial.funnel.is_empty() && !trial.blockers.is_empty() {
        text += &labelled("GPUs", &funnel(&trial.funnel));
    }
    for notice in &trial.notices {
        text += &labelled("note", &plain(notice));
    }
    text + "dry run: nothing was submitted\n"
}

#[cfg(test)]
mod tests;
