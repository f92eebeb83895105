//! Running a text scenario, and writing one from the log of a pool.

use divvy_core::event::{Event, Stamped};
use divvy_core::explain;
use divvy_core::id::JobId;
use divvy_core::scenario::{self, BadLine, Scenario};
use divvy_core::state::{Job, Misfit, Run, Runs, State};
use divvy_core::time::Span;
use serde::Serialize;

/// A line that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct BadScenario {
    /// From 1.
    pub line: usize,
    /// The line itself.
    pub text: String,
    /// What is wrong, and what is expected.
    pub what: String,
    /// What was told of the lines before it.
    pub before: Vec<String>,
}

/// The result of a scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Ran {
    /// What its lines printed, one after the other.
    pub printed: Vec<String>,
    /// The same with what each plan saw in between, if asked for.
    #[serde(skip)]
    pub told: Vec<String>,
    /// What each plan saw, if asked for: as it is told in between.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traced: Option<Vec<String>>,
    /// What the scenario says its lines print, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<Vec<String>>,
    /// The number of the first line of that, from 1.
    #[serde(skip)]
    pub expected_from: usize,
    /// Which lines were refused, and why.
    pub refused: Vec<Refused>,
    /// How each job that has not ended stands.
    pub jobs: Vec<Standing>,
    /// All that was logged.
    pub events: Vec<Stamped>,
}

/// A line whose command was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// From 1.
    pub line: usize,
    /// Why, in a word: `unknown-queue`.
    pub code: &'static str,
    /// The same in words.
    pub why: String,
}

/// How a job (or a member that something has happened to) stands at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// By the name that its line gave it: `j1`, `j1_3`.
    pub name: String,
    /// Its state: `running`.
    pub state: &'static str,
    /// What it has, by task: `n1:0+n1:1`.
    pub on: Vec<String>,
    /// The code of what keeps it waiting: `DV-GPUS-BUSY`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
    /// The same in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Ran {
    /// Returns whether it printed what it expects; without an expectation, whether nothing was refused.
    pub fn is_as_expected(&self) -> bool {
        match &self.expected {
            Some(expected) => *expected == self.printed,
            None => self.refused.is_empty(),
        }
    }
}

/// Runs a scenario: lines and, after a line `----`, what they print. With `traces`, what each plan saw is told, too.
pub fn run(text: &str, traces: bool) -> Result<Ran, BadScenario> {
    let mut scenario = Scenario::new();
    let mut ran = Ran { traced: traces.then(Vec::new), ..Ran::default() };
    let mut lines = text.strip_prefix('\u{feff}').unwrap_or(text).lines().enumerate();
    for (index, line) in lines.by_ref() {
        if line.trim() == "----" {
            (ran.expected, ran.expected_from) = (Some(Vec::new()), index + 2);
            break;
        }
        let (printed, logged, refused) =
            (scenario.printed().len(), scenario.log.len(), scenario.refused.len());
        if let Err(BadLine { line: number, what }) = scenario.numbered_line(index + 1, line) {
            return Err(BadScenario { line: number, text: line.to_owned(), what, before: ran.told });
        }
        ran.refused.extend(scenario.refused[refused..].iter().map(|why| Refused {
            line: index + 1,
            code: why.code(),
            why: scenario.in_words(why),
        }));
        let printed: Vec<String> = scenario.printed()[printed..].lines().map(str::to_owned).collect();
        ran.told.extend(printed.iter().cloned());
        ran.printed.extend(printed);
        if let Some(traced) = &mut ran.traced {
            let trace = trace(&scenario, index + 1, logged);
            ran.told.extend(trace.iter().cloned());
            traced.extend(trace.iter().map(|line| line.trim_start().to_owned()));
        }
    }
    ran.expected = ran.expected.map(|_| lines.map(|(_, line)| line.to_owned()).collect());
    ran.jobs = standings(&scenario);
    ran.events = scenario.log;
    Ok(ran)
}

/// What the cycles of a line saw, and everything that keeps the jobs waiting that still do.
fn trace(scenario: &Scenario, line: usize, logged: usize) -> Vec<String> {
    let cycles = scenario.log[logged..].iter().filter_map(|stamped| match &stamped.event {
        Event::Planned { saw, state, policy, plan } => Some(format!(
            "  line {line}, after {}: saw position {saw}, state {state:016x}, policy {policy:016x}; plan {plan:016x}",
            Span(stamped.at.0)
        )),
        _ => None,
    });
    let mut told: Vec<String> = cycles.collect();
    if told.is_empty() {
        return told;
    }
    let mut waiting: Vec<(usize, String)> =
        scenario.state().jobs.values().flat_map(|job| waits(scenario, job)).collect();
    waiting.sort();
    told.extend(waiting.into_iter().map(|(_, text)| text));
    told
}

/// A waiting job's place in the line, all its blockers, and its way through the devices.
fn waits(scenario: &Scenario, job: &Job) -> Option<(usize, String)> {
    job.waiting_members().next()?;
    let explained = explain::explain(scenario.state(), scenario.snapshot(), job.id())?;
    let place = explained.position.map_or("-".to_owned(), |place| (place + 1).to_string());
    let blockers: Vec<String> =
        explained.blockers.iter().map(|blocker| format!("{}: {blocker}", blocker.code())).collect();
    let steps = explained.funnel.0.iter().map(|(step, devices, _)| format!("{devices} {}", step.name()));
    let funnel = steps.collect::<Vec<_>>().join(" > ");
    let name = scenario.name_of(job.id());
    let text = format!("  {place}. {name} {}; {}; {funnel}", explained.verdict.name(), blockers.join(", "));
    Some((explained.position.unwrap_or(usize::MAX), text))
}

fn standings(scenario: &Scenario) -> Vec<Standing> {
    let state = scenario.state();
    let runs = state.jobs.values().flat_map(|job| runs(job).into_iter().map(move |(id, run)| (job, id, run)));
    let standing = |(job, id, run): (&Job, JobId, Run)| {
        let reason = explain::reason(state, job, (id, &run));
        let places = if run.is_active() { scenario.places(&run.placements) } else { String::new() };
        Standing {
            name: scenario.name_of(id),
            state: run.state.name(),
            on: places.split_whitespace().map(str::to_owned).collect(),
            code: reason.as_ref().map(divvy_core::reason::Reason::code),
            reason: reason.map(|reason| reason.to_string()),
        }
    };
    runs.map(standing).collect()
}

/// The runs of a job; an array's untouched members are told by the array itself.
fn runs(job: &Job) -> Vec<(JobId, Run)> {
    match &job.runs {
        Runs::Single(run) => vec![(job.id(), run.clone())],
        Runs::Array(array) => {
            let untouched = (!array.fresh.is_empty()).then(|| (job.id(), Run::fresh(array.held.clone())));
            let member = |(member, run): (&u32, &Run)| (JobId::member(job.number, *member), run.clone());
            untouched.into_iter().chain(array.touched.iter().map(member)).collect()
        }
    }
}

/// Follows a log to its end, and writes the result as a scenario.
#[derive(Debug, Default)]
pub struct Export {
    state: State,
}

impl Export {
    /// Follows one commit. An error means that the log cannot be folded any further.
    pub fn commit(&mut self, events: &[Stamped]) -> Result<(), Misfit> {
        events.iter().try_for_each(|stamped| self.state.apply(stamped))
    }

    /// Returns the scenario, and how it differs from the pool. What it prints is appended to its lines.
    pub fn finish(self) -> scenario::Written {
        let mut written = scenario::write(&self.state);
        if let Ok(ran) = run(&written.text, false) {
            let printed: String = ran.printed.iter().map(|line| format!("{line}\n")).collect();
            written.text += &format!("----\n{printed}");
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool with nearly everything that a scenario can say.
    const EVERYTHING: &str = "\
policy {strict: false, shares: true, ageing: 1s}
queue  vision         limit=9 cpu=64 weight=3
queue  vision/people  guarantee=2 requeue=failure
node   first   8xh100 cpu=63.5 mem=500 numa=32:250,31.5:1000000B linked gb=80
node   second  4xa100
node   third   2xh100
submit train   vision 2 tasks=2 user=zoe estimate=2h resumable prio=high
plan
pass   90m
submit sweep   vision/people 1 array=0-9%3 user=yan limit=1d
submit whole   default 1 exclusive user=xi tasks=2 mem=3 cpu=0.5
plan
end    sweep_0
pass   1s
submit part    default 1 milli=250 model=h100,a100
submit report  default 0 after=sweep:any,train:ok user=zoe
submit later   vision/people 1 start=+3d fixed
submit huge    default 8 model=a100 wait
submit wide    vision 8 user=yan requeue=never restarts=9
estimate wide  30m 2h
hold   part
hold   sweep_9 by=root
drain  on third
device second:1 down
device second:2 foreign
plan
end    train/0
cancel whole by=root
plan";

    fn events(text: &str) -> Vec<Stamped> {
        run(text, false).unwrap().events
    }

    fn exported(log: &[Stamped]) -> scenario::Written {
        let mut export = Export::default();
        export.commit(log).unwrap();
        export.finish()
    }

    #[test]
    fn a_pool_written_as_a_scenario_stands_as_it_did_under_other_names() {
        let written = exported(&events(EVERYTHING));
        assert_eq!(written.differences, [] as [String; 0], "{}", written.text);
        for name in ["vision", "people", "train", "sweep", "zoe", "first", "ana"] {
            assert!(!written.text.contains(name), "{name} is in\n{}", written.text);
        }
        let (own, again) = (run(EVERYTHING, false).unwrap(), run(&written.text, false).unwrap());
        assert!(again.is_as_expected(), "{again:?}");
        let codes =
            |ran: &Ran| ran.jobs.iter().map(|job| (job.state, job.code, job.on.len())).collect::<Vec<_>>();
        assert_eq!(codes(&own), codes(&again), "{}", written.text);
        assert!(own.jobs.len() >= 9, "{own:?}");
    }

    #[test]
    fn what_is_written_says_how_jobs_are_spread_and_nothing_of_the_racks_names() {
        let nodes = "node one 8xh100 rack=basement\nnode two 8xh100 rack=attic\n";
        let jobs = "submit a default 1 tasks=2 spread=1:rack\nplan\nsubmit b default 1 tasks=3 spread=1:rack wait\n\
            submit c default 1 tasks=2 spread=2:rack:wish\nsubmit d default 1 tasks=2 spread=node\nplan";
        let written = exported(&events(&format!("{nodes}{jobs}")));
        assert_eq!(written.differences, [] as [String; 0], "{}", written.text);
        for said in ["spread=1:rack ", "spread=2:rack:wish ", "spread=node ", "wait DV-NOT-SPREAD"] {
            assert!(written.text.contains(said), "{said} is not in\n{}", written.text);
        }
        assert!(!written.text.contains("basement"), "{}", written.text);
    }

    #[test]
    fn a_member_of_an_array_that_waits_again_is_no_difference_from_those_that_wait_still() {
        for first in ["1", "3"] {
            let text = format!(
                "policy {{order: attained}}\nnode n1 2xh100\nsubmit whole default 2 fixed\nplan\n\
                 submit sweep default 1 array=1,3,7-9%2 resumable\nhold sweep_{first}\nrelease sweep_{first}\nplan\n"
            );
            let written = exported(&events(&text));
            assert_eq!(written.differences, [] as [String; 0], "{}", written.text);
        }
    }

    #[test]
    fn what_is_written_is_written_the_same_from_the_scenario_itself() {
        let first = exported(&events(EVERYTHING)).text;
        let node = "node n1 8xh100 linked gb=80 mib=81559 cpu=63.5 mem=500 numa=32:250,31.5:1000000B\n";
        assert!(first.contains(node), "{first}");
        let lines = first.split_once("----").unwrap().0;
        assert_eq!(exported(&events(lines)).text, first);
    }

    #[test]
    fn a_bad_line_is_told_with_its_number_and_itself() {
        let bad = run("node n1 8xh100\n\nsubmit a default 1 exclusiv\n", false).unwrap_err();
        assert_eq!((bad.line, bad.text.as_str()), (3, "submit a default 1 exclusiv"));
        assert!(bad.what.contains("exclusive"), "{bad}");
    }

    #[test]
    fn what_no_pool_could_come_to_is_refused_and_the_lines_before_it_have_told_what_they_tell() {
        let pool = "node n1 2xh100\nnode n2 2xh100\nsubmit x default 1\nplan\nsubmit a default 2\n";
        for (line, told) in [
            ("start a on=n1:1+n1:1", "n1:1+n1:1 names a device twice"),
            ("start a on=n1:1", "n1:1 names 1 devices for a task that asks for 2"),
            ("start a on=n2", "n2 names 0 devices for a task that asks for 2"),
            ("start a on=n1:1+n2:0", "n1:1+n2:0 names devices of two nodes"),
            ("start a on=n1:0+n1:1", "n1:0 is not free"),
            ("start a on=n1:8+n1:9", "there is no device n1:8: its node has n1:0 to n1:1"),
            ("start a on=n9:0+n9:1", "\"n9:0\" is no node and no devices"),
            ("node n3 8x", "\"8x\" are no devices: write 8xh100"),
            ("queue q guarantee=4 limit=2", "the limit of any of q is below its guarantee"),
        ] {
            let bad = run(&format!("{pool}{line}\n"), false).unwrap_err();
            assert!(bad.line == 6 && bad.what.starts_with(told), "{line}: {bad}");
            assert_eq!(bad.before, ["place x n1:0"], "{line}");
        }
        let shares = "policy {shares: true}\nnode n1 1xh100\nsubmit a default 1 milli=600\nstart a on=n1:0\nsubmit b default 1 milli=400\n\
            start b on=n1:0\nsubmit c default 1 milli=100\nstart c on=n1:0\n";
        assert_eq!(run(shares, false).unwrap_err().line, 8);
    }

    #[test]
    fn what_is_refused_is_told_with_its_line_and_expected_only_where_the_scenario_says_so() {
        let text = "node n1 1xh100\n\nsubmit a nowhere 1\n";
        let ran = run(text, false).unwrap();
        assert_eq!((ran.refused[0].line, ran.refused[0].code), (3, "unknown-queue"));
        assert!(!ran.is_as_expected());
        let golden = run(&format!("{text}----\n{}\n", ran.printed[0]), false).unwrap();
        assert!(golden.is_as_expected());
        assert_eq!(golden.expected_from, 5);
    }

    #[test]
    fn a_traced_plan_says_what_it_saw_and_why_each_job_waits() {
        let text = "node n1 2xh100\nsubmit a default 2\nsubmit b default 1\nplan\n----\nnothing";
        let ran = run(text, true).unwrap();
        assert!(!ran.is_as_expected() && ran.expected == Some(vec!["nothing".to_owned()]));
        let told = ran.told.join("\n");
        for words in ["line 4, after 0s: saw position", "1. b later; DV-GPUS-BUSY", "2 healthy > 0 free"] {
            assert!(told.contains(words), "{words} is missing in\n{told}");
        }
        let object = serde_json::to_value(&ran).unwrap();
        assert!(object["traced"][0].as_str().unwrap().starts_with("line 4, after 0s: saw"), "{object}");
        assert_eq!(serde_json::to_value(run(text, false).unwrap()).unwrap().get("traced"), None);
    }
}
